//! One log: a bounded queue of records, and the thread that writes them.
//!
//! INVARIANT: whoever puts a record in waits for nothing but a push to a vector; the thread takes all that waits at once.

use super::file::{LogFile, LogFormat, LogTarget};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What a log is made of.
pub(crate) trait Record: Send + 'static {
    /// Bytes that it takes while it waits.
    fn size(&self) -> usize;

    /// Appends the record; JSON without a line's end.
    fn encode(&self, form: LogFormat, out: &mut Vec<u8>);
}

/// What became of a log's records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogCounts {
    /// Written.
    pub written: u64,
    /// Dropped because the queue was full.
    pub dropped: u64,
    /// Lost because the file could not be written.
    pub failed: u64,
}

enum LogOrder {
    Configure(Option<LogTarget>),
    Rotate(mpsc::SyncSender<()>),
    Stop,
}

enum Item<R> {
    Record(R),
    Order(LogOrder),
}

struct LogQueue<R> {
    items: Vec<Item<R>>,
    bytes: usize,
    max_bytes: usize,
}

struct Inner<R> {
    queue: Mutex<LogQueue<R>>,
    wakeup: Condvar,
    written: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
}

impl<R> Inner<R> {
    fn queue(&self) -> MutexGuard<'_, LogQueue<R>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn order(&self, order: LogOrder) {
        self.queue().items.push(Item::Order(order));
        self.wakeup.notify_one();
    }
}

/// See the module. Without a target nothing is written and no thread runs.
pub(crate) struct Log<R> {
    inner: Arc<Inner<R>>,
    on: AtomicBool,
    thread: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    handle: Option<JoinHandle<()>>,
    target: Option<LogTarget>,
}

impl<R> Default for Log<R> {
    fn default() -> Self {
        let queue = LogQueue { items: Vec::new(), bytes: 0, max_bytes: 0 };
        let inner = Inner {
            queue: Mutex::new(queue),
            wakeup: Condvar::new(),
            written: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        };
        Self { inner: Arc::new(inner), on: AtomicBool::new(false), thread: Mutex::default() }
    }
}

/// How long a rotation may take.
const ROTATE_WITHIN: Duration = Duration::from_secs(2);
/// How long the last records may take.
const STOP_WITHIN: Duration = Duration::from_secs(3);

impl<R: Record> Log<R> {
    /// Whether anything is written.
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// What became of the records so far.
    pub(crate) fn counts(&self) -> LogCounts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LogCounts { written: load(&self.inner.written), dropped: load(&self.inner.dropped), failed: load(&self.inner.failed) }
    }

    /// Puts a record into the queue, or drops it when `max_bytes` wait already.
    pub(crate) fn write(&self, record: R) {
        let size = record.size();
        let mut queue = self.inner.queue();
        if queue.bytes + size > queue.max_bytes {
            drop(queue);
            self.inner.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        queue.bytes += size;
        queue.items.push(Item::Record(record));
        let first = queue.items.len() == 1;
        drop(queue);
        if first {
            self.inner.wakeup.notify_one();
        }
    }

    /// Writes to `target` from here on (None: nowhere); at most `max_bytes` of records wait.
    pub(crate) fn configure(&self, target: Option<LogTarget>, max_bytes: usize) {
        self.inner.queue().max_bytes = max_bytes;
        let mut running = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if running.target == target {
            return;
        }
        if running.handle.is_none() {
            let inner = Arc::clone(&self.inner);
            let thread = std::thread::Builder::new().name("log".to_owned()).spawn(move || Writer::new(inner).run());
            match thread {
                Ok(handle) => running.handle = Some(handle),
                Err(e) => return tracing::error!("cannot start the thread of a log: {e}"),
            }
        }
        running.target.clone_from(&target);
        let is_on = target.is_some();
        self.inner.order(LogOrder::Configure(target));
        self.on.store(is_on, Ordering::Relaxed);
    }

    /// Begins a new file. An error when the thread does not answer in time.
    pub(crate) fn rotate(&self) -> Result<(), String> {
        if !self.is_on() {
            return Ok(());
        }
        let is_done = self.rotate_soon();
        is_done.recv_timeout(ROTATE_WITHIN).map_err(|_| "the log's writer is busy; it rotates the file later".to_owned())
    }

    /// As [`Log::rotate`], without waiting; the answer comes when it is done.
    pub(crate) fn rotate_soon(&self) -> mpsc::Receiver<()> {
        let (done, is_done) = mpsc::sync_channel(1);
        if self.is_on() {
            self.inner.order(LogOrder::Rotate(done));
        }
        is_done
    }

    /// Writes what waits and ends the thread.
    pub(crate) fn stop(&self) {
        self.on.store(false, Ordering::Relaxed);
        let mut running = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        running.target = None;
        let Some(handle) = running.handle.take() else { return };
        self.inner.order(LogOrder::Stop);
        let deadline = Instant::now() + STOP_WITHIN;
        while !handle.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        if handle.is_finished() {
            let _ = handle.join();
        }
    }
}

/// Bytes that are written at once.
const WRITE: usize = 64 << 10;
/// Pause between tries to open a file, or to write to it.
const RETRY: Duration = Duration::from_secs(1);
/// How often is said that a file cannot be opened or written.
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);

struct Writer<R> {
    inner: Arc<Inner<R>>,
    target: Option<LogTarget>,
    file: Option<LogFile>,
    failed_at: Option<Instant>,
    complained_at: Option<Instant>,
    /// Encoded and not yet written, and how many records that is.
    out: Vec<u8>,
    pending: u64,
}

impl<R: Record> Writer<R> {
    fn new(inner: Arc<Inner<R>>) -> Self {
        Self { inner, target: None, file: None, failed_at: None, complained_at: None, out: Vec::new(), pending: 0 }
    }

    /// Does what comes, in the order in which it comes.
    fn run(mut self) {
        loop {
            for item in self.next() {
                match item {
                    Item::Record(record) => self.write(&record),
                    Item::Order(LogOrder::Stop) => return self.append(),
                    Item::Order(LogOrder::Configure(target)) => {
                        self.append();
                        self.target = target;
                        self.open_anew();
                    }
                    Item::Order(LogOrder::Rotate(done)) => {
                        self.append();
                        self.open_anew();
                        let _ = done.try_send(());
                    }
                }
            }
            self.append();
        }
    }

    /// Waits for anything to do.
    fn next(&self) -> Vec<Item<R>> {
        let mut queue = self.inner.queue();
        while queue.items.is_empty() {
            queue = self.inner.wakeup.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        queue.bytes = 0;
        std::mem::take(&mut queue.items)
    }

    fn open_anew(&mut self) {
        (self.file, self.failed_at, self.complained_at) = (None, None, None);
        self.open();
    }

    /// Opens the next file.
    fn open(&mut self) {
        let Some(target) = &self.target else { return };
        match LogFile::create(target) {
            Ok(file) => self.file = Some(file),
            Err(e) => {
                let text = format!("log {}: cannot open a file: {e}", target.base.display());
                self.failed(&text);
            }
        }
    }

    /// Nothing is tried for a moment.
    fn failed(&mut self, text: &str) {
        let now = Instant::now();
        self.failed_at = Some(now);
        if self.complained_at.is_none_or(|at| now - at >= COMPLAIN_EVERY) {
            self.complained_at = Some(now);
            tracing::error!("{text}; the proxy drops and counts the log's records");
        }
    }

    fn write(&mut self, record: &R) {
        let Some(target) = &self.target else { return };
        let (form, max_bytes) = (target.form, target.max_bytes);
        record.encode(form, &mut self.out);
        if form == LogFormat::Json {
            self.out.push(b'\n');
        }
        self.pending += 1;
        let is_full = self.file.as_ref().map_or(0, LogFile::size) + self.out.len() as u64 >= max_bytes;
        if is_full || self.out.len() >= WRITE {
            self.append();
        }
        if is_full && self.failed_at.is_none() {
            self.file = None;
        }
    }

    /// Puts what is encoded into the file; false when that fails, or failed a moment ago. The same file is tried again.
    fn put(&mut self) -> bool {
        if self.failed_at.is_some_and(|at| at.elapsed() < RETRY) {
            return false;
        }
        if self.file.is_none() {
            self.open();
        }
        let Some(file) = &mut self.file else { return false };
        match file.append(&self.out) {
            Ok(()) => self.failed_at = None,
            Err(e) => {
                let text = format!("log {}: cannot write: {e}", file.path().display());
                if file.is_deleted() {
                    self.file = None;
                }
                self.failed(&text);
            }
        }
        self.failed_at.is_none()
    }

    /// Appends what is encoded to the file; what cannot be written is lost.
    fn append(&mut self) {
        if self.pending == 0 {
            return;
        }
        let counter = if self.put() { &self.inner.written } else { &self.inner.failed };
        counter.fetch_add(self.pending, Ordering::Relaxed);
        self.pending = 0;
        self.out.clear();
        self.out.shrink_to(WRITE);
    }
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
