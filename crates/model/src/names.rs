//! Who remembers addresses of names: the meeting point of those who look names up (the monitor) and those who connect (the data
//! plane).

use std::net::IpAddr;
use std::sync::Arc;

/// A memory of names. Called from any thread; no call blocks or waits for a resolver.
pub trait AddressBook: Send + Sync {
    /// The addresses that are known, at least one; None when nothing is. What is old is given too, and looked up again meanwhile.
    fn find(&self, host: &str) -> Option<Arc<[IpAddr]>>;

    /// Somebody has looked this name up.
    fn learn(&self, host: &str, addresses: &[IpAddr]);

    /// None of its addresses could be connected to: they may have changed.
    fn doubt(&self, host: &str);
}
