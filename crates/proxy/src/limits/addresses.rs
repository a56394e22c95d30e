//! How many connections each client's address has.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Connections by address; one a process.
#[derive(Debug, Default)]
pub(crate) struct Addresses(Mutex<HashMap<IpAddr, u32>>);

/// A connection's place among those of its address, until it is dropped.
#[derive(Debug)]
pub(crate) struct AddressSlot {
    addresses: Arc<Addresses>,
    address: IpAddr,
}

impl Addresses {
    /// A place for one more connection of this address; None if it has `most` of them. A limit of 0 is none.
    pub(crate) fn place(self: &Arc<Self>, address: IpAddr, most: u64) -> Option<AddressSlot> {
        let address = address.to_canonical();
        let mut counts = self.counts();
        let count = counts.entry(address).or_default();
        if most > 0 && u64::from(*count) >= most {
            return None;
        }
        *count += 1;
        Some(AddressSlot { addresses: Arc::clone(self), address })
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<IpAddr, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AddressSlot {
    fn drop(&mut self) {
        let mut counts = self.addresses.counts();
        let Some(count) = counts.get_mut(&self.address) else { return };
        *count -= 1;
        if *count == 0 {
            counts.remove(&self.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_given_back() {
        let addresses = Arc::new(Addresses::default());
        let [one, other]: [IpAddr; 2] = ["10.0.0.1", "::ffff:10.0.0.2"].map(|text| text.parse().unwrap());
        let held: Vec<AddressSlot> = (0..2).filter_map(|_| addresses.place(one, 2)).collect();
        assert!(held.len() == 2 && addresses.place(one, 2).is_none());
        assert!(addresses.place(other, 2).is_some(), "another one");
        assert!(addresses.place(one, 0).is_some(), "no limit");
        drop(held);
        assert!(addresses.place(one, 1).is_some());
        assert!(addresses.counts().is_empty(), "nothing is kept");
    }
}
