//! What is known of a server's address over time: which addresses its name had, and when the server behind it was started.

use arc_swap::ArcSwap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// See the module.
#[derive(Default)]
pub(crate) struct AddressHistory {
    /// Addresses that the name has no more, and whether there are any.
    gone: ArcSwap<Vec<IpAddr>>,
    has_moved: AtomicBool,
    started_ms: AtomicU64,
}

impl AddressHistory {
    /// The name has these addresses no more.
    pub(crate) fn moved(&self, gone: &[IpAddr]) {
        self.gone.store(Arc::new(gone.to_vec()));
        self.has_moved.store(!gone.is_empty(), Ordering::Release);
    }

    /// Whether the name has had other addresses.
    pub(crate) fn has_moved(&self) -> bool {
        self.has_moved.load(Ordering::Acquire)
    }

    /// Whether the name has this address no more.
    pub(crate) fn is_gone(&self, ip: IpAddr) -> bool {
        self.gone.load().contains(&ip)
    }

    /// The server was started after this (process clock, ms).
    pub(crate) fn started_after(&self, at_ms: u64) {
        self.started_ms.fetch_max(at_ms, Ordering::AcqRel);
    }

    /// Connections that were opened before this (process clock, ms) ended when the server was started; 0 where that is not known.
    pub(crate) fn started_ms(&self) -> u64 {
        // Where its name has had other addresses, it is not known which of them said so.
        if self.has_moved() { 0 } else { self.started_ms.load(Ordering::Acquire) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_gone_until_the_name_has_it_again() {
        let (one, other) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2]));
        let history = AddressHistory::default();
        for (gone, expected) in [(&[one][..], (true, false, true)), (&[other], (false, true, true)), (&[], (false, false, false))] {
            history.moved(gone);
            assert_eq!((history.is_gone(one), history.is_gone(other), history.has_moved()), expected);
        }
    }

    #[test]
    fn the_latest_known_start_counts_unless_the_name_has_moved() {
        let history = AddressHistory::default();
        assert_eq!(history.started_ms(), 0);
        history.started_after(2000);
        history.started_after(1000);
        assert_eq!(history.started_ms(), 2000);
        history.moved(&[IpAddr::from([127, 0, 0, 1])]);
        assert_eq!(history.started_ms(), 0, "which of them was started then?");
        history.moved(&[]);
        assert_eq!(history.started_ms(), 2000);
    }
}
