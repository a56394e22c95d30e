//! One capture: what was ordered, the queues of its workers, and what is counted.

use capture::seal::PublicKey;
use capture::{GapReason, Header, Record, Trailer, Withheld};
use model::snapshot::is_drawn;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// The writer is woken at so many bytes of a queue; it looks by itself in any case.
const WAKE: usize = 256 << 10;
/// Bytes beyond the limit of a queue that hold gaps, a few of each session.
const FOR_GAPS: usize = 64 << 10;

/// What an operator ordered.
#[derive(Clone, Debug)]
pub(crate) struct CapturePlan {
    /// Its name.
    pub name: Box<str>,
    /// FOR s SECONDS.
    pub seconds: u64,
    /// MAX m MB, bytes.
    pub max_bytes: u64,
    /// Share of the sessions.
    pub percent: f64,
    /// Whose sessions; empty: all.
    pub users: Vec<Box<str>>,
    /// To whom the file is sealed; None: to nobody.
    pub key: Option<PublicKey>,
    /// Where files are.
    pub directory: PathBuf,
    /// Bytes that may wait on a worker.
    pub queue_bytes: usize,
    /// Share of the disk, percent, that stays free.
    pub reserve_percent: u64,
    /// Workers.
    pub workers: usize,
}

/// Why a capture ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// CAPTURE STOP.
    Ordered,
    /// Its seconds are over.
    Time,
    /// The file has its MAX.
    Size,
    /// The disk is nearly full.
    Disk,
    /// The file cannot be written.
    Write(String),
    /// The process ends, or another one took over.
    Shutdown,
}

impl Stop {
    /// In words, for tables, logs and the file.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Ordered => "CAPTURE STOP".to_owned(),
            Self::Time => "the time is over".to_owned(),
            Self::Size => "MAX was reached".to_owned(),
            Self::Disk => "the disk is nearly full (mysql-capture_disk_reserve_percent)".to_owned(),
            Self::Write(error) => format!("write error: {error}"),
            Self::Shutdown => "the process ended".to_owned(),
        }
    }
}

/// Where the thread waits for work.
#[derive(Default)]
struct Bell {
    is_rung: Mutex<bool>,
    rings: Condvar,
}

/// What waits to be written.
#[derive(Default)]
struct RecordQueue {
    bytes: Vec<u8>,
    is_closed: bool,
}

/// See the module.
pub(crate) struct Run {
    /// What was ordered.
    pub plan: CapturePlan,
    /// Its number in this process, from 1.
    pub number: u64,
    /// When it began: process clock, us.
    pub started_us: u64,
    /// The same, Unix s.
    pub started_at: u64,
    /// The file, once it is there.
    pub path: OnceLock<PathBuf>,
    /// Sessions that began.
    pub sessions: AtomicU64,
    /// Commands.
    pub commands: AtomicU64,
    /// Commands of sessions that have not begun, as in a transaction that began before.
    pub missed: AtomicU64,
    /// Bytes of the file.
    pub bytes: AtomicU64,
    ends: AtomicU64,
    /// Bytes of long data that sessions hold.
    held: AtomicUsize,
    queues: Box<[Mutex<RecordQueue>]>,
    bell: Bell,
    gaps: [AtomicU64; GapReason::ALL.len()],
    withheld: [AtomicU64; Withheld::ALL.len()],
    stop: OnceLock<Stop>,
    write_error: OnceLock<String>,
    ended_us: AtomicU64,
    is_written: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Run {
    pub(super) fn new(plan: CapturePlan, number: u64, header: &Header) -> Self {
        let queues = (0..plan.workers.max(1)).map(|_| Mutex::default()).collect();
        Self {
            plan,
            number,
            started_us: header.started_us,
            started_at: header.started_unix_us / 1_000_000,
            path: OnceLock::new(),
            sessions: AtomicU64::new(0),
            commands: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            ends: AtomicU64::new(0),
            held: AtomicUsize::new(0),
            queues,
            bell: Bell::default(),
            gaps: Default::default(),
            withheld: Default::default(),
            stop: OnceLock::new(),
            write_error: OnceLock::new(),
            ended_us: AtomicU64::new(0),
            is_written: AtomicBool::new(false),
        }
    }

    /// Whether a session of this user is captured.
    pub(crate) fn wants(&self, session: u64, user: &str) -> bool {
        (self.plan.users.is_empty() || self.plan.users.iter().any(|name| **name == *user)) && is_drawn(session, self.plan.percent)
    }

    /// The number of ends so far: a command that begins now comes behind them.
    pub(crate) fn ends_so_far(&self) -> u64 {
        self.ends.load(Ordering::Acquire)
    }

    /// A command ends now: the number of its end.
    pub(crate) fn count_end(&self) -> u64 {
        self.ends.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Puts a record into a worker's queue; false if it does not fit, or the capture has ended.
    pub(crate) fn push(&self, worker: usize, record: &Record<'_>) -> bool {
        let is_gap = matches!(record, Record::Gap(_) | Record::End { .. });
        let most = self.plan.queue_bytes + if is_gap { FOR_GAPS } else { 0 };
        let Some(queue) = self.queues.get(worker) else { return false };
        let mut queue = lock(queue);
        if queue.is_closed {
            return false;
        }
        let before = queue.bytes.len();
        record.encode(&mut queue.bytes);
        let fits = queue.bytes.len() <= most;
        if !fits {
            queue.bytes.truncate(before);
        }
        let wakes = before < WAKE && queue.bytes.len() >= WAKE;
        drop(queue);
        if wakes {
            self.ring();
        }
        match record {
            Record::Session(_) if fits => self.sessions.fetch_add(1, Ordering::Relaxed),
            Record::Command(_) if fits => self.commands.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
        fits
    }

    /// A session is to hold so many bytes more of long data; false if all sessions would hold more than a queue.
    pub(crate) fn hold(&self, bytes: usize) -> bool {
        let most = self.plan.queue_bytes;
        let add = |held: usize| held.checked_add(bytes).filter(|held| *held <= most);
        self.held.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).is_ok()
    }

    /// A session holds so many bytes no more.
    pub(crate) fn let_go(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// Takes what waits on a worker; `closes`: nothing more comes.
    pub(super) fn take(&self, worker: usize, closes: bool) -> Vec<u8> {
        let Some(queue) = self.queues.get(worker) else { return Vec::new() };
        let mut queue = lock(queue);
        queue.is_closed |= closes;
        std::mem::take(&mut queue.bytes)
    }

    /// Bytes that wait.
    pub(crate) fn queued_bytes(&self) -> u64 {
        self.queues.iter().map(|queue| lock(queue).bytes.len() as u64).sum()
    }

    /// Wakes the thread.
    fn ring(&self) {
        *lock(&self.bell.is_rung) = true;
        self.bell.rings.notify_one();
    }

    /// Waits until there is something to do, or for so long.
    pub(super) fn wait(&self, most: Duration) {
        let rung = lock(&self.bell.is_rung);
        let (mut rung, _) = self.bell.rings.wait_timeout_while(rung, most, |is_rung| !*is_rung).unwrap_or_else(PoisonError::into_inner);
        *rung = false;
    }

    /// Ends it; the first reason counts.
    pub(super) fn end(&self, why: Stop) {
        let _ = self.stop.set(why);
        self.ring();
    }

    /// Why it ended, if it did.
    pub(crate) fn stopped(&self) -> Option<&Stop> {
        self.stop.get()
    }

    /// Why it ended, if it did, in words. A write error stands behind another reason.
    pub(crate) fn reason(&self) -> String {
        let why = self.stopped().map(Stop::text).unwrap_or_default();
        match self.write_error.get() {
            Some(error) if !matches!(self.stopped(), Some(Stop::Write(_))) => format!("{why}; write error: {error}"),
            _ => why,
        }
    }

    /// Bytes could not be written. The first error counts.
    pub(super) fn cannot_write(&self, error: &std::io::Error) {
        let _ = self.write_error.set(error.to_string());
    }

    /// Whether all bytes could be written so far.
    pub(super) fn is_written_so_far(&self) -> bool {
        self.write_error.get().is_none()
    }

    /// The file is complete.
    pub(super) fn written(&self, now_us: u64) {
        self.ended_us.store(now_us, Ordering::Release);
        self.is_written.store(true, Ordering::Release);
    }

    /// The file's path.
    pub(crate) fn file(&self) -> String {
        self.path.get().map(|path| path.display().to_string()).unwrap_or_default()
    }

    /// Whether the file is complete, or given up.
    pub(crate) fn is_written(&self) -> bool {
        self.is_written.load(Ordering::Acquire)
    }

    /// How long it ran or has run so far, s.
    pub(crate) fn seconds(&self, now_us: u64) -> u64 {
        let until = if self.is_written() { self.ended_us.load(Ordering::Acquire) } else { now_us };
        until.saturating_sub(self.started_us) / 1_000_000
    }

    /// Counts a gap.
    pub(crate) fn count_gap(&self, why: GapReason) {
        count(&self.gaps, GapReason::ALL, why);
    }

    /// Counts a command that is not captured.
    pub(crate) fn count_withheld(&self, why: Withheld) {
        count(&self.withheld, Withheld::ALL, why);
    }

    /// Gaps by reason.
    pub(crate) fn gaps(&self) -> impl Iterator<Item = (GapReason, u64)> {
        GapReason::ALL.iter().copied().zip(self.gaps.iter().map(|count| count.load(Ordering::Relaxed)))
    }

    /// Commands that were not captured, by reason.
    pub(crate) fn withheld(&self) -> impl Iterator<Item = (Withheld, u64)> {
        Withheld::ALL.iter().copied().zip(self.withheld.iter().map(|count| count.load(Ordering::Relaxed)))
    }

    /// What the file says at its end.
    pub(super) fn trailer(&self, now_us: u64) -> Trailer {
        Trailer {
            reason: self.stopped().map(Stop::text).unwrap_or_default(),
            ended_us: now_us,
            commands: self.commands.load(Ordering::Relaxed),
            sessions: self.sessions.load(Ordering::Relaxed),
            gaps: self.gaps().map(|(_, count)| count).sum(),
        }
    }
}

fn count<R: PartialEq>(counts: &[AtomicU64], all: &[R], why: R) {
    if let Some(count) = all.iter().position(|reason| *reason == why).and_then(|at| counts.get(at)) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}
