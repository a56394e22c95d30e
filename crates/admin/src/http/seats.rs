//! The open connections. One without a request gives way to the next client.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// How often the log says that connections are closed.
const TOLD_EVERY: Duration = Duration::from_secs(10);
/// How often is looked for one to close while all of them work.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Counts the connections, up to a limit.
#[derive(Debug)]
pub(crate) struct Seats {
    name: &'static str,
    permits: Arc<Semaphore>,
    most: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    /// The oldest first.
    by_age: Vec<Arc<One>>,
    /// When the log was told last, and how many were closed since.
    told_at: Option<Instant>,
    closed: u64,
}

#[derive(Debug, Default)]
struct One {
    works: AtomicBool,
    is_told: AtomicBool,
    leave: Notify,
}

/// One connection's; it is free again when dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    one: Arc<One>,
    seats: Arc<Seats>,
    _permit: Option<OwnedSemaphorePermit>,
}

/// A request is being answered.
#[derive(Debug)]
pub(crate) struct Working {
    one: Arc<One>,
    seats: Arc<Seats>,
}

impl Seats {
    /// For `most` connections of a port that the log calls `name`.
    pub(crate) fn new(name: &'static str, most: usize) -> Self {
        Self { name, permits: Arc::new(Semaphore::new(most)), most, taken: Mutex::default() }
    }

    /// A seat for one more. There is none only as long as all work.
    pub(crate) async fn take(this: &Arc<Self>) -> Seat {
        let permit = loop {
            let wanted = Arc::clone(&this.permits).acquire_owned();
            if this.permits.available_permits() == 0 {
                this.make_room();
            }
            if let Ok(permit) = tokio::time::timeout(LOOK_AGAIN, wanted).await {
                // It is never closed.
                break permit.ok();
            }
        };
        let one = Arc::new(One::default());
        this.taken().by_age.push(Arc::clone(&one));
        Seat { one, seats: Arc::clone(this), _permit: permit }
    }

    /// Tells the one that has been idle for the longest time to leave.
    fn make_room(&self) {
        let mut taken = self.taken();
        let idle = taken.by_age.iter().find(|one| !one.works.load(Ordering::Acquire) && !one.is_told.load(Ordering::Acquire)).cloned();
        let Some(idle) = idle else { return };
        idle.is_told.store(true, Ordering::Release);
        idle.leave.notify_one();
        taken.closed += 1;
        if taken.told_at.is_none_or(|at| at.elapsed() >= TOLD_EVERY) {
            let closed = std::mem::take(&mut taken.closed);
            taken.told_at = Some(Instant::now());
            tracing::warn!("{}: more than {} connections: {closed} idle connections closed since the last such line", self.name, self.most);
        }
    }

    fn taken(&self) -> std::sync::MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// A request has come.
    pub(crate) fn works(&self) -> Working {
        self.one.works.store(true, Ordering::Release);
        Working { one: Arc::clone(&self.one), seats: Arc::clone(&self.seats) }
    }

    /// Waits until another connection needs the place.
    pub(crate) async fn told_to_leave(&self) {
        self.one.leave.notified().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.taken().by_age.retain(|one| !Arc::ptr_eq(one, &self.one));
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.one.works.store(false, Ordering::Release);
        // It is idle as of now: the youngest.
        let mut taken = self.seats.taken();
        if let Some(at) = taken.by_age.iter().position(|one| Arc::ptr_eq(one, &self.one)) {
            let one = taken.by_age.remove(at);
            taken.by_age.push(one);
        }
    }
}
