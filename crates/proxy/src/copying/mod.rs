//! Whole sessions on their way to a shadow: what rehearsals in mode `all` share between workers. One such rehearsal runs at a time.
//!
//! A session puts its commands into its [`CopyStrand`] after they were answered. [`crate::shadow`] runs them on a connection of the strand.
//! The [`OrderTicket`] of a command says when it may start ([`capture::LiveOrder`]). INVARIANT: what waits is bounded in bytes. If the queue is
//! full, whole sessions are given up, the youngest first, so that the others stay complete.

mod gate;
mod line;
mod strand;

pub(crate) use gate::{Beginning, OrderTicket};
pub(crate) use strand::{Act, CopiedCommand, CopiedState, CopyStrand, Job, PinnedValues};

use arc_swap::ArcSwapOption;
use gate::Gate;
use line::WaitingLine;
use rehearsal::{GaveUp, Run};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, Semaphore, watch};

/// Sessions that may have a connection to the shadow before their turn: so many more connections than the original had at a time.
const EARLY_CONNECTIONS: usize = 16;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The rehearsal in mode `all` that runs or ran last.
pub(crate) type CopyDesk = ArcSwapOption<Copying>;

/// See the module.
pub(crate) struct Copying {
    /// What is counted.
    pub run: Arc<Run>,
    gate: Mutex<Gate>,
    /// Sessions by age.
    strands: Mutex<BTreeMap<u64, Arc<CopyStrand>>>,
    line: Arc<Mutex<WaitingLine>>,
    begun: AtomicU64,
    room: Notify,
    /// Permits of sessions that have a connection before their turn.
    pub early: Arc<Semaphore>,
    pressed: Notify,
    /// Statements that are [stuck](OrderTicket::stick).
    stuck: watch::Sender<u64>,
}

impl Copying {
    /// Nothing has begun.
    pub(crate) fn new(run: Arc<Run>) -> Arc<Self> {
        let (gate, strands, line) = (Mutex::default(), Mutex::default(), Arc::default());
        let (room, pressed, stuck) = (Notify::new(), Notify::new(), watch::Sender::default());
        let early = Arc::new(Semaphore::new(EARLY_CONNECTIONS));
        Arc::new(Self { run, gate, strands, line, begun: AtomicU64::new(0), room, early, pressed, stuck })
    }

    /// A session begins.
    pub(crate) fn strand(&self) -> Arc<CopyStrand> {
        let strand = Arc::new(CopyStrand::new(self.begun.fetch_add(1, Ordering::Relaxed), Arc::clone(&self.line)));
        lock(&self.strands).insert(strand.number, Arc::clone(&strand));
        strand
    }

    /// A session has ended on the shadow too.
    pub(crate) fn forget(&self, strand: &CopyStrand) {
        lock(&self.strands).remove(&strand.number);
        self.give_room(strand.clear());
    }

    /// Puts a job into a strand; gives it back where the queue would be beyond `most` bytes.
    fn try_admit(&self, strand: &CopyStrand, job: Job, most: u64) -> Result<(), Job> {
        let bytes = job.bytes();
        if !self.run.take_room_within(bytes, most) {
            return Err(job);
        }
        if !strand.push(job) {
            self.give_room(bytes);
        }
        Ok(())
    }

    /// Puts a job into a strand. Where the queue is full, the youngest sessions that wait are given up.
    pub(crate) fn admit(&self, strand: &CopyStrand, job: Job) {
        self.admit_within(strand, job, self.run.plan.queue_bytes);
    }

    /// The same for a client that waits afterwards, if the queue is full: true. A job outside the queue would keep back those in the queue
    /// that depend on it, so the queue takes twice its limit. What waits may need a lock of a transaction that is open, so a client in one
    /// waits only where the queue is full by half again. One that sends long data never waits: its execution comes behind, and gives room.
    pub(crate) fn admit_beyond(&self, strand: &CopyStrand, job: Job, is_open: bool) -> bool {
        let (limit, may_wait) = (self.run.plan.queue_bytes, !job.is_long_data());
        self.admit_within(strand, job, limit.saturating_mul(2));
        may_wait && self.run.queued_bytes() > if is_open { limit.saturating_add(limit / 2) } else { limit }
    }

    /// Whether clients are to wait.
    pub(crate) fn is_full(&self) -> bool {
        self.run.queued_bytes() > self.run.plan.queue_bytes
    }

    /// Gives up the youngest sessions until the queue is within its limit.
    pub(crate) fn make_room(&self) {
        while self.is_full() && self.give_up_youngest() {}
    }

    fn admit_within(&self, strand: &CopyStrand, mut job: Job, most: u64) {
        // Whoever else is given up, its own long data stays.
        let is_too_long = strand.long_data_bytes().saturating_add(job.bytes()) > self.run.plan.queue_bytes;
        if is_too_long && job.is_long_data() {
            return self.give_up(strand, GaveUp::QueueFull);
        }
        while let Err(back) = self.try_admit(strand, job, most) {
            if is_too_long || strand.is_gone() || !self.give_up_youngest() {
                return self.give_up(strand, GaveUp::QueueFull);
            }
            job = back;
        }
    }

    /// Gives up the youngest session of which something waits; false if there is none.
    fn give_up_youngest(&self) -> bool {
        let Some(number) = lock(&self.line).youngest() else { return false };
        let Some(strand) = lock(&self.strands).get(&number).cloned() else {
            // Its session ends right now, which gives room.
            lock(&self.line).remove(number);
            return true;
        };
        self.give_up(&strand, GaveUp::QueueFull);
        true
    }

    /// Nothing more of the session is copied.
    pub(crate) fn give_up(&self, strand: &CopyStrand, why: GaveUp) {
        if strand.leave() {
            self.run.give_up(why);
        }
        self.give_room(strand.clear());
    }

    /// Bytes wait no more.
    pub(crate) fn give_room(&self, bytes: u64) {
        if bytes > 0 {
            self.run.give_room(bytes);
            // Whoever waits goes on only then, and all of them do.
            if !self.is_full() {
                self.room.notify_waiters();
            }
        }
    }

    /// Resolves once the queue is within its limit. It counts from the first poll, or from `Notified::enable`.
    pub(crate) fn has_room(&self) -> tokio::sync::futures::Notified<'_> {
        self.room.notified()
    }

    /// A session whose turn it is gets no connection: those that have one early give it back.
    pub(crate) fn press(&self) {
        self.pressed.notify_waiters();
    }

    /// Resolves at the next [`Self::press`].
    pub(crate) async fn pressed(&self) {
        self.pressed.notified().await;
    }

    /// Resolves while a statement is [stuck](OrderTicket::stick).
    pub(crate) async fn is_stuck(&self) {
        // An error means that the sender is gone, which is this.
        let _ = self.stuck.subscribe().wait_for(|stuck| *stuck > 0).await;
    }

    /// When the oldest command that waits was answered: process clock, us. None if nothing waits.
    pub(crate) fn oldest_us(&self) -> Option<u64> {
        lock(&self.line).oldest_us()
    }

    /// The rehearsal has ended: what waits is dropped.
    pub(crate) fn close(&self) {
        let strands = std::mem::take(&mut *lock(&self.strands));
        for strand in strands.values() {
            strand.leave();
            self.give_room(strand.clear());
        }
    }
}

#[cfg(test)]
mod tests;
