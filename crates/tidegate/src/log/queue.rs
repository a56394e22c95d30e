//! The queue of lines between all threads and the thread that writes.
//!
//! INVARIANT: logging waits only for a copy of the line. If the terminal, the file or the disk is too slow, lines are dropped once the
//! queue is full, and counted.

use std::fs::File;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Lines that wait to be written. See the module.
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
    written: Condvar,
    dropped: AtomicU64,
}

struct Waiting {
    lines: Vec<u8>,
    max_bytes: usize,
    /// The target of the next lines, if it has changed.
    target: Option<Target>,
    /// The thread has lines in hand.
    is_writing: bool,
}

/// The target of lines.
pub(super) enum Target {
    /// Standard error.
    Terminal,
    /// The error log.
    File(File),
    /// Anything else, in tests.
    #[cfg(test)]
    Test(Box<dyn Write + Send>),
}

impl Target {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            Self::Terminal => io::stderr().write_all(lines),
            Self::File(file) => file.write_all(lines),
            #[cfg(test)]
            Self::Test(sink) => sink.write_all(lines),
        }
    }
}

/// Bytes that wait at most until [`Queue::set_max_bytes`] says otherwise.
const MAX_BYTES: usize = 16 << 20;
/// Memory that an empty queue keeps.
const KEEP: usize = 64 << 10;

impl Queue {
    /// Starts the thread that writes to `target`.
    ///
    /// # Errors
    /// No thread can be started.
    pub(super) fn start(target: Target) -> io::Result<Arc<Self>> {
        let waiting = Waiting { lines: Vec::new(), max_bytes: MAX_BYTES, target: None, is_writing: false };
        let queue =
            Arc::new(Self { waiting: Mutex::new(waiting), arrived: Condvar::new(), written: Condvar::new(), dropped: AtomicU64::new(0) });
        let writer = Arc::clone(&queue);
        std::thread::Builder::new().name("error log".to_owned()).spawn(move || writer.write_all(target))?;
        Ok(queue)
    }

    /// Puts a line in, or drops it when the queue is full.
    pub(super) fn put(&self, line: &[u8]) {
        let mut waiting = self.waiting();
        if waiting.lines.len() + line.len() > waiting.max_bytes {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        waiting.lines.extend_from_slice(line);
        drop(waiting);
        self.arrived.notify_one();
    }

    /// Lines that were dropped because the queue was full.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Whether at least half of the queue is free.
    pub(super) fn has_room(&self) -> bool {
        let waiting = self.waiting();
        waiting.lines.len() <= waiting.max_bytes / 2
    }

    /// How many bytes may wait.
    pub(super) fn set_max_bytes(&self, bytes: usize) {
        self.waiting().max_bytes = bytes;
    }

    /// Writes to another target from here on.
    pub(super) fn redirect(&self, target: Target) {
        self.waiting().target = Some(target);
    }

    /// Waits until everything is written, but not longer than `within`.
    pub(super) fn flush(&self, within: Duration) {
        let is_busy = |waiting: &mut Waiting| !waiting.lines.is_empty() || waiting.is_writing;
        let _ = self.written.wait_timeout_while(self.waiting(), within, is_busy);
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread, which ends with the process. Lines that cannot be written are lost: there is no other place to report it.
    fn write_all(&self, mut target: Target) {
        let mut lines = Vec::new();
        loop {
            let mut waiting = self.waiting();
            while waiting.lines.is_empty() {
                waiting = self.arrived.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            }
            std::mem::swap(&mut lines, &mut waiting.lines);
            waiting.is_writing = true;
            let changed = waiting.target.take();
            drop(waiting);
            target = changed.unwrap_or(target);
            let _ = target.write(&lines);
            lines.clear();
            lines.shrink_to(KEEP);
            self.waiting().is_writing = false;
            self.written.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// A terminal whose reader takes a write only when the test says so.
    struct Slow {
        go: mpsc::Receiver<()>,
        seen: mpsc::Sender<Vec<u8>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.go.recv();
            let _ = self.seen.send(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nobody_waits_for_a_terminal_that_takes_nothing() {
        let ((let_go, go), (seen, written)) = (mpsc::channel(), mpsc::channel());
        let queue = Queue::start(Target::Test(Box::new(Slow { go, seen }))).unwrap();
        queue.set_max_bytes(10);
        // Whatever the thread has in hand already: no more than 10 bytes wait.
        for _ in 0..1000 {
            queue.put(b"line\n");
        }
        let dropped = queue.dropped();
        assert!((996..=998).contains(&dropped), "{dropped}");
        assert!(!queue.has_room());
        queue.flush(Duration::from_millis(1));
        drop(let_go);
        queue.flush(Duration::from_secs(60));
        assert!(queue.has_room());
        let all: Vec<u8> = written.try_iter().flatten().collect();
        assert_eq!(String::from_utf8(all).unwrap(), "line\n".repeat(1000 - dropped as usize));
    }
}
