//! Addresses of servers' names, for connects.
//!
//! What the address book knows is used at once, so that no connect waits for a slow or dead resolver; only what it does not know is
//! looked up here, and told to it. One for each process; without a book every connect looks its name up.

use model::names::AddressBook;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

/// See the module.
#[derive(Default)]
pub struct Names {
    book: OnceLock<Arc<dyn AddressBook>>,
}

impl Names {
    /// Uses this book from now on; the first one stays.
    pub fn open(&self, book: Arc<dyn AddressBook>) {
        let _ = self.book.set(book);
    }

    /// The addresses of a name, in the order in which they are to be tried. IP addresses stand for themselves.
    ///
    /// # Errors
    /// The resolver's, for a name of which nothing is known.
    pub async fn addresses(&self, host: &str) -> io::Result<Arc<[IpAddr]>> {
        self.addresses_by(host, async { Ok(tokio::net::lookup_host((host, 0)).await?.map(|address| address.ip()).collect()) }).await
    }

    async fn addresses_by(&self, host: &str, look_up: impl Future<Output = io::Result<Vec<IpAddr>>>) -> io::Result<Arc<[IpAddr]>> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(Arc::from([ip]));
        }
        if let Some(known) = self.book.get().and_then(|book| book.find(host)) {
            return Ok(known);
        }
        let mut addresses = look_up.await?;
        addresses.dedup();
        if let Some(book) = self.book.get().filter(|_| !addresses.is_empty()) {
            book.learn(host, &addresses);
        }
        Ok(addresses.into())
    }

    /// None of a name's addresses could be connected to.
    pub fn doubt(&self, host: &str) {
        if let Some(book) = self.book.get() {
            book.doubt(host);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Book(Mutex<HashMap<String, Arc<[IpAddr]>>>);

    impl AddressBook for Book {
        fn find(&self, host: &str) -> Option<Arc<[IpAddr]>> {
            self.0.lock().unwrap().get(host).cloned()
        }

        fn learn(&self, host: &str, addresses: &[IpAddr]) {
            self.0.lock().unwrap().insert(host.to_owned(), addresses.into());
        }

        fn doubt(&self, host: &str) {
            self.0.lock().unwrap().remove(host);
        }
    }

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    /// A resolver that never answers.
    fn dead() -> impl Future<Output = io::Result<Vec<IpAddr>>> {
        std::future::pending()
    }

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
        let names = Names::default();
        names.open(Arc::new(Book::default()));
        assert!(at_once(names.addresses_by("db", dead())).is_none(), "nobody knows it");
        let answer = at_once(names.addresses_by("db", async { Ok(vec![A, A, B]) })).unwrap().unwrap();
        assert_eq!(*answer, [A, B]);
        assert_eq!(*at_once(names.addresses_by("db", dead())).unwrap().unwrap(), [A, B], "it was told");
        names.doubt("db");
        assert!(at_once(names.addresses_by("db", dead())).is_none());
        let failed = at_once(names.addresses_by("db", async { Err(io::ErrorKind::NotFound.into()) })).unwrap();
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn addresses_need_neither_book_nor_resolver() {
        let names = Names::default();
        assert_eq!(*at_once(names.addresses_by("192.0.2.2", dead())).unwrap().unwrap(), [B]);
        assert_eq!(*at_once(names.addresses_by("db", async { Ok(vec![A]) })).unwrap().unwrap(), [A], "without a book");
    }
}
