//! Addresses of servers' names, for connects.
//!
//! What the address book knows is used at once, so that no connect waits for a slow or dead resolver; what it does not know it
//! looks up, also when the connect that asked has given up. One for each process; without a book every connect looks its name up.

use model::names::AddressBook;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

/// See the module.
#[derive(Default)]
pub(crate) struct Names {
    book: OnceLock<Arc<dyn AddressBook>>,
}

impl Names {
    /// Uses this book from now on; the first one stays.
    pub(crate) fn open(&self, book: Arc<dyn AddressBook>) {
        let _ = self.book.set(book);
    }

    /// The addresses of a name, in the order in which they are to be tried. IP addresses stand for themselves.
    ///
    /// # Errors
    /// The resolver's, for a name of which nothing is known.
    pub(crate) async fn addresses(&self, host: &str) -> io::Result<Arc<[IpAddr]>> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(Arc::from([ip]));
        }
        let Some(book) = self.book.get() else {
            let mut addresses: Vec<IpAddr> = tokio::net::lookup_host((host, 0)).await?.map(|address| address.ip()).collect();
            addresses.dedup();
            return Ok(addresses.into());
        };
        match book.find(host) {
            Some(known) => Ok(known),
            None => book.resolve(host).await,
        }
    }

    /// Whether a connect to this name has not got so far as to have an address.
    pub(crate) fn is_unresolved(&self, host: &str) -> bool {
        self.book.get().is_some_and(|book| book.is_unresolved(host))
    }

    /// None of a name's addresses could be connected to.
    pub(crate) fn doubt(&self, host: &str) {
        if let Some(book) = self.book.get() {
            book.doubt(host);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::names::Resolving;
    use std::collections::HashMap;
    use std::sync::Mutex;

    /// What it knows; it looks up nothing.
    #[derive(Clone, Default)]
    struct Book(Arc<Mutex<HashMap<String, Arc<[IpAddr]>>>>);

    impl AddressBook for Book {
        fn find(&self, host: &str) -> Option<Arc<[IpAddr]>> {
            self.0.lock().unwrap().get(host).cloned()
        }

        fn resolve<'a>(&'a self, _host: &'a str) -> Resolving<'a> {
            Box::pin(std::future::pending())
        }

        fn is_unresolved(&self, host: &str) -> bool {
            self.find(host).is_none()
        }

        fn doubt(&self, host: &str) {
            self.0.lock().unwrap().remove(host);
        }
    }

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    /// The answer, if it is there without waiting.
    fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match std::pin::pin!(future).poll(&mut context) {
            std::task::Poll::Ready(answer) => Some(answer),
            std::task::Poll::Pending => None,
        }
    }

    #[test]
    fn what_the_book_knows_waits_for_no_resolver() {
        let (names, book) = (Names::default(), Book::default());
        assert!(!names.is_unresolved("db"), "without a book");
        names.open(Arc::new(book.clone()));
        assert!(at_once(names.addresses("db")).is_none() && names.is_unresolved("db"), "nobody knows it");
        book.0.lock().unwrap().insert("db".into(), [A, B].into());
        assert_eq!(*at_once(names.addresses("db")).unwrap().unwrap(), [A, B]);
        names.doubt("db");
        assert!(at_once(names.addresses("db")).is_none());
    }

    #[test]
    fn addresses_need_neither_book_nor_resolver() {
        assert_eq!(*at_once(Names::default().addresses("192.0.2.2")).unwrap().unwrap(), [B]);
    }
}
