//! A TCP relay that fails as networks do: it falls silent with all connections open, or cuts them.
//!
//! INVARIANT: a silent connection passes nothing on, not even its end, in either direction, until it is cut.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::error::{IoContext, LabError};

/// Bytes passed on at a time.
const CHUNK: usize = 64 * 1024;

/// A running relay; all its connections are cut when it is dropped.
#[derive(Debug)]
pub struct Relay {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    target: Mutex<SocketAddr>,
    pairs: Mutex<Vec<Arc<Pair>>>,
    accepted: AtomicUsize,
    silent_from_start: AtomicBool,
    over: AtomicBool,
    trap: Mutex<Option<(Vec<u8>, Lost)>>,
    sprung: AtomicUsize,
    /// How long what a client sends is under way, ms.
    delay_ms: AtomicU64,
}

/// The loss when a trap springs; the connection is silent from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The command: the server never gets it.
    Command,
    /// The answer: the server gets the command.
    Answer,
}

/// One connection through the relay.
#[derive(Debug)]
struct Pair {
    near: TcpStream,
    far: TcpStream,
    silent: Mutex<bool>,
    changed: Condvar,
}

impl Relay {
    /// Passes connections on to `host:port` of this machine.
    pub fn to(target: &str) -> Result<Relay, LabError> {
        let target = address(target)?;
        let listener = TcpListener::bind("127.0.0.1:0").context(|| "listen".to_owned())?;
        let port = listener.local_addr().context(|| "own address".to_owned())?.port();
        let shared = Arc::new(Shared {
            target: Mutex::new(target),
            pairs: Mutex::default(),
            accepted: AtomicUsize::new(0),
            silent_from_start: AtomicBool::new(false),
            over: AtomicBool::new(false),
            trap: Mutex::default(),
            sprung: AtomicUsize::new(0),
            delay_ms: AtomicU64::new(0),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            while let Ok((near, _)) = listener.accept() {
                if accepting.over.load(Ordering::Acquire) {
                    return;
                }
                accepting.accepted.fetch_add(1, Ordering::AcqRel);
                // A target that is down shows as a connection that is closed at once.
                let _ = accepting.connect(near);
            }
        });
        Ok(Relay { port, shared })
    }

    /// Connections of later go to `host:port` of this machine: another server in the place of the first.
    pub fn turn_to(&self, target: &str) -> Result<(), LabError> {
        *self.shared.target.lock().unwrap_or_else(PoisonError::into_inner) = address(target)?;
        Ok(())
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Connections it has ever accepted.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::Acquire)
    }

    /// The connections of now fall silent; later ones work. As a firewall that has forgotten them.
    pub fn silence_connections(&self) {
        for pair in self.shared.pairs().iter() {
            pair.set_silent(true);
        }
    }

    /// All connections, of now and later, are silent (`true`), or new ones work again (`false`).
    pub fn silence_all(&self, silent: bool) {
        self.shared.silent_from_start.store(silent, Ordering::Release);
        if silent {
            self.silence_connections();
        }
    }

    /// Connections of later are silent, until [`Relay::resume`]; those of now work.
    pub fn silence_new(&self) {
        self.shared.silent_from_start.store(true, Ordering::Release);
    }

    /// Silent connections go on where they stopped.
    pub fn resume(&self) {
        self.shared.silent_from_start.store(false, Ordering::Release);
        for pair in self.shared.pairs().iter() {
            pair.set_silent(false);
        }
    }

    /// What clients send from now on takes so long, ms: a service that is slow.
    pub fn delay(&self, ms: u64) {
        self.shared.delay_ms.store(ms, Ordering::Release);
    }

    /// The next write of a client that has these words in it (in one piece) springs a trap, once.
    pub fn trap(&self, words: &str, lost: Lost) {
        *self.shared.trap.lock().unwrap_or_else(PoisonError::into_inner) = Some((words.as_bytes().to_vec(), lost));
    }

    /// How many traps have sprung.
    pub fn sprung(&self) -> usize {
        self.shared.sprung.load(Ordering::Acquire)
    }

    /// Closes the connections of now towards the clients; the server learns nothing of it before they are cut.
    pub fn cut_near(&self) {
        for pair in self.shared.pairs().iter() {
            pair.set_silent(true);
            let _ = pair.near.shutdown(Shutdown::Both);
        }
    }

    /// Closes all connections on both sides.
    pub fn cut(&self) {
        for pair in self.shared.pairs().drain(..) {
            pair.cut();
        }
    }
}

fn address(text: &str) -> Result<SocketAddr, LabError> {
    text.parse().map_err(|_| LabError::Protocol(format!("{text} is no address")))
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        self.cut();
    }
}

impl Shared {
    fn pairs(&self) -> MutexGuard<'_, Vec<Arc<Pair>>> {
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connect(self: &Arc<Self>, near: TcpStream) -> std::io::Result<()> {
        let target = *self.target.lock().unwrap_or_else(PoisonError::into_inner);
        let far = TcpStream::connect(target)?;
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        let ways = [(near.try_clone()?, far.try_clone()?), (far.try_clone()?, near.try_clone()?)];
        let silent = self.silent_from_start.load(Ordering::Acquire);
        let pair = Arc::new(Pair { near, far, silent: Mutex::new(silent), changed: Condvar::new() });
        self.pairs().push(Arc::clone(&pair));
        for (way, (from, to)) in ways.into_iter().enumerate() {
            let (pair, shared) = (Arc::clone(&pair), (way == 0).then(|| Arc::clone(self)));
            thread::spawn(move || pair.carry(from, to, shared.as_deref()));
        }
        Ok(())
    }

    /// The loss, if these bytes of a client spring the trap.
    fn springs(&self, bytes: &[u8]) -> Option<Lost> {
        let mut trap = self.trap.lock().unwrap_or_else(PoisonError::into_inner);
        let sprung = trap.take_if(|(words, _)| bytes.windows(words.len()).any(|window| window == words.as_slice()));
        sprung.map(|(_, lost)| lost)
    }
}

impl Pair {
    /// Passes bytes on until one side closes; the close is passed on too.
    fn carry(&self, mut from: TcpStream, mut to: TcpStream, traps: Option<&Shared>) {
        let mut bytes = vec![0; CHUNK];
        loop {
            self.wait_while_silent();
            let count = from.read(&mut bytes).unwrap_or(0);
            if let Some(shared) = traps.filter(|_| count > 0) {
                thread::sleep(Duration::from_millis(shared.delay_ms.load(Ordering::Acquire)));
            }
            if let Some((traps, lost)) = traps.and_then(|traps| Some((traps, traps.springs(&bytes[..count])?))) {
                // Silent before the server can answer.
                self.set_silent(true);
                let passed_on = lost == Lost::Answer && to.write_all(&bytes[..count]).is_ok();
                traps.sprung.fetch_add(1, Ordering::AcqRel);
                if passed_on {
                    continue;
                }
            }
            self.wait_while_silent();
            if count == 0 || to.write_all(&bytes[..count]).is_err() {
                return self.cut();
            }
        }
    }

    fn wait_while_silent(&self) {
        let silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_while(silent, |silent| *silent));
    }

    fn set_silent(&self, silent: bool) {
        *self.silent.lock().unwrap_or_else(PoisonError::into_inner) = silent;
        self.changed.notify_all();
    }

    fn cut(&self) {
        let _ = self.near.shutdown(Shutdown::Both);
        let _ = self.far.shutdown(Shutdown::Both);
        self.set_silent(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_on_falls_silent_and_goes_on() {
        let echo = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Relay::to(&echo.local_addr().unwrap().to_string()).unwrap();
        thread::spawn(move || {
            let (mut peer, _) = echo.accept().unwrap();
            let mut byte = [0];
            while peer.read_exact(&mut byte).is_ok() {
                peer.write_all(&byte).unwrap();
            }
        });
        let mut client = TcpStream::connect(("127.0.0.1", relay.port())).unwrap();
        client.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let mut byte = [0];
        client.write_all(b"a").unwrap();
        crate::wait::until("the echo", Duration::from_secs(10), || client.read_exact(&mut byte).ok()).unwrap();
        relay.silence_connections();
        client.write_all(b"b").unwrap();
        assert!(client.read_exact(&mut byte).is_err());
        relay.resume();
        crate::wait::until("the echo", Duration::from_secs(10), || client.read_exact(&mut byte).ok()).unwrap();
        assert_eq!(&byte, b"b");
        relay.cut();
        assert_eq!(client.read(&mut byte).unwrap_or(0), 0);
    }
}
