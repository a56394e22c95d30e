//! The cache of names and addresses, as a trait between the monitor, which looks names up, and the data plane, which connects.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

/// A look-up. Dropping it ends only the wait: the look-up continues, and its answer is kept.
pub type Resolving<'a> = Pin<Box<dyn Future<Output = io::Result<Arc<[IpAddr]>>> + Send + 'a>>;

/// A memory of names. Called from any thread; no call blocks.
pub trait AddressBook: Send + Sync {
    /// The known addresses, at least one; None if there are none. Old ones are returned too, and looked up again meanwhile.
    fn find(&self, host: &str) -> Option<Arc<[IpAddr]>>;

    /// Looks up a name of which nothing is known.
    fn resolve<'a>(&'a self, host: &'a str) -> Resolving<'a>;

    /// Whether nothing is known of a name, and a look-up goes on.
    fn is_unresolved(&self, host: &str) -> bool;

    /// None of its addresses could be connected to: they may have changed.
    fn doubt(&self, host: &str);
}
