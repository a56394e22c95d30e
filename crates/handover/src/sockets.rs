//! The process's listening sockets, and whether it is in charge: whether it accepts, or the process before or behind it does.
//!
//! All of them share one open socket, so that nothing that waits to be accepted is lost when the other one takes over.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// See the module.
#[derive(Debug)]
pub struct Sockets {
    /// Given by the process before, and not asked for yet.
    given: Mutex<BTreeMap<String, OwnedFd>>,
    /// Copies of those that are open.
    open: Mutex<BTreeMap<String, OwnedFd>>,
    in_charge: watch::Sender<bool>,
}

/// Counts a socket among the open ones, as long as it lives.
#[derive(Debug)]
pub struct Opened {
    sockets: Arc<Sockets>,
    name: String,
}

impl Drop for Opened {
    fn drop(&mut self) {
        lock(&self.sockets.open).remove(&self.name);
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sockets {
    /// For a process without a predecessor: it is in charge from the beginning.
    pub fn fresh() -> Arc<Self> {
        Self::new(BTreeMap::new(), true)
    }

    /// Of one that was given these by their addresses. It is in charge once [`Sockets::set_in_charge`] says so.
    pub fn given(sockets: impl IntoIterator<Item = (String, OwnedFd)>) -> Arc<Self> {
        Self::new(sockets.into_iter().collect(), false)
    }

    fn new(given: BTreeMap<String, OwnedFd>, in_charge: bool) -> Arc<Self> {
        Arc::new(Self { given: Mutex::new(given), open: Mutex::default(), in_charge: watch::Sender::new(in_charge) })
    }

    /// The socket of this address, if one was given.
    pub fn take(&self, address: &str) -> Option<OwnedFd> {
        lock(&self.given).remove(address)
    }

    /// Closes the inherited sockets that no listener has asked for.
    pub fn forget_given(&self) {
        lock(&self.given).clear();
    }

    /// A socket is open at this address, until the answer is dropped.
    ///
    /// # Errors
    /// The process has too many descriptors.
    pub fn opened(self: &Arc<Self>, address: &str, socket: BorrowedFd<'_>) -> io::Result<Opened> {
        lock(&self.open).insert(address.to_owned(), socket.try_clone_to_owned()?);
        Ok(Opened { sockets: Arc::clone(self), name: address.to_owned() })
    }

    /// Copies of those that are open, by address.
    ///
    /// # Errors
    /// The process has too many descriptors.
    pub fn copies(&self) -> io::Result<Vec<(String, OwnedFd)>> {
        lock(&self.open).iter().map(|(name, socket)| Ok((name.clone(), socket.as_fd().try_clone_to_owned()?))).collect()
    }

    /// This process is in charge from now on, or the other one.
    pub fn set_in_charge(&self, is: bool) {
        self.in_charge.send_replace(is);
    }

    /// Whether this process is in charge.
    pub fn is_in_charge(&self) -> bool {
        *self.in_charge.borrow()
    }

    /// The same, with its changes.
    pub fn watch(&self) -> watch::Receiver<bool> {
        self.in_charge.subscribe()
    }

    /// Does this (an accept) while the process is in charge, and begins it again when it is so again.
    pub async fn in_charge<T, F: Future<Output = T>>(&self, attempt: impl Fn() -> F) -> T {
        let mut in_charge = self.watch();
        loop {
            // The sender is in `self`: neither wait fails.
            let _ = in_charge.wait_for(|is| *is).await;
            tokio::select! {
                biased;
                _ = in_charge.wait_for(|is| !*is) => {}
                done = attempt() => return done,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_is_not_in_charge_does_not_begin() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let given = Sockets::given([("a".to_owned(), OwnedFd::from(listener))]);
        let waits = tokio::time::timeout(std::time::Duration::from_millis(1), given.in_charge(|| std::future::ready(1))).await;
        assert!(waits.is_err());
        given.set_in_charge(true);
        assert_eq!(given.in_charge(|| std::future::ready(1)).await, 1);
        let socket = given.take("a").unwrap();
        assert!(given.take("a").is_none() && given.copies().unwrap().is_empty());
        let opened = given.opened("a", socket.as_fd()).unwrap();
        assert_eq!(given.copies().unwrap().len(), 1);
        drop(opened);
        assert!(given.copies().unwrap().is_empty());
    }
}
