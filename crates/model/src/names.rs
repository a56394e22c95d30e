//! Who remembers addresses of names: the meeting point of those who look names up (the monitor) and those who connect (the data
//! plane).

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

/// A look-up. Who drops it only waits for it no more: it goes on, and what it brings is remembered.
pub type Resolving<'a> = Pin<Box<dyn Future<Output = io::Result<Arc<[IpAddr]>>> + Send + 'a>>;

/// A memory of names. Called from any thread; no call blocks.
pub trait AddressBook: Send + Sync {
    /// The addresses that are known, at least one; None when nothing is. What is old is given too, and looked up again meanwhile.
    fn find(&self, host: &str) -> Option<Arc<[IpAddr]>>;

    /// Looks up a name of which nothing is known.
    fn resolve<'a>(&'a self, host: &'a str) -> Resolving<'a>;

    /// Whether nothing is known of a name, and a look-up goes on.
    fn is_unresolved(&self, host: &str) -> bool;

    /// None of its addresses could be connected to: they may have changed.
    fn doubt(&self, host: &str);
}
