//! Captures of traffic: what chosen sessions say, and what they are answered, goes into a file.
//!
//! Sessions put encoded records into the queue of their worker, and a thread compresses, seals and writes them. INVARIANT: whoever puts a
//! record in waits for nothing but a copy into memory. Where the queue is full, the session's capture has a gap, which is counted.

mod run;
mod thread;

pub(crate) use run::{CapturePlan, Run, Stop};

use crate::workers::clock::Clock;
use arc_swap::ArcSwapOption;
use capture::{Header, Writer};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Captures that `stats_tidegate_captures` shows.
const KEPT: usize = 20;
/// How long the end of a file may take when the process ends.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// See the module. One for the process; one capture runs at a time.
#[derive(Default)]
pub(crate) struct Desk {
    /// The number of the capture that runs; 0 for none.
    running: AtomicU64,
    current: ArcSwapOption<Run>,
    runs: Mutex<Runs>,
}

#[derive(Default)]
struct Runs {
    all: Vec<Arc<Run>>,
    thread: Option<JoinHandle<()>>,
}

impl Desk {
    /// The number of the capture that runs; 0 for none.
    pub(crate) fn running(&self) -> u64 {
        self.running.load(Ordering::Acquire)
    }

    /// The capture that runs.
    pub(crate) fn current(&self) -> Option<Arc<Run>> {
        self.current.load_full()
    }

    /// Every capture, the newest last.
    pub(crate) fn runs(&self) -> Vec<Arc<Run>> {
        self.lock().all.clone()
    }

    /// Creates the file and begins to capture.
    ///
    /// # Errors
    /// A capture runs, or the file or the thread cannot be made.
    pub(crate) fn start(self: &Arc<Self>, plan: CapturePlan, header: &Header, clock: Clock) -> Result<Arc<Run>, String> {
        let mut runs = self.lock();
        if let Some(before) = runs.all.last().filter(|run| !run.is_written()) {
            let name = &before.plan.name;
            return Err(format!("capture '{name}' runs, and one runs at a time: CAPTURE STOP '{name}' ends it"));
        }
        let (writer, head) = Writer::new(header, plan.key).map_err(|e| format!("cannot begin the file: {e}"))?;
        let number = runs.all.last().map_or(1, |run| run.number + 1);
        let run = Arc::new(Run::new(plan, number, header));
        let file = thread::create(&run, &head)?;
        let (desk, of_thread) = (Arc::clone(self), Arc::clone(&run));
        let spawned =
            std::thread::Builder::new().name("capture".to_owned()).spawn(move || thread::write(&desk, &of_thread, clock, (file, writer)));
        runs.thread = Some(spawned.map_err(|e| format!("cannot start a thread: {e}"))?);
        if runs.all.len() >= KEPT {
            runs.all.remove(0);
        }
        runs.all.push(Arc::clone(&run));
        self.current.store(Some(Arc::clone(&run)));
        self.running.store(number, Ordering::Release);
        Ok(run)
    }

    /// Ends the capture of this name.
    ///
    /// # Errors
    /// It does not run.
    pub(crate) fn stop(&self, name: &str) -> Result<Arc<Run>, String> {
        let current = self.current().filter(|run| *run.plan.name == *name);
        let run = current.ok_or_else(|| format!("capture '{name}' does not run"))?;
        self.end(&run, Stop::Ordered);
        Ok(run)
    }

    /// Ends a capture: sessions give it nothing more. Its thread writes what waits.
    fn end(&self, run: &Arc<Run>, why: Stop) {
        run.end(why);
        if self.current.load().as_ref().is_some_and(|current| Arc::ptr_eq(current, run)) {
            self.running.store(0, Ordering::Release);
            self.current.store(None);
        }
    }

    /// The process ends, or another one takes over: so does the capture.
    pub(crate) fn leave(&self) {
        if let Some(run) = self.current() {
            self.end(&run, Stop::Shutdown);
        }
    }

    /// Waits until the file is complete.
    pub(crate) fn shut_down(&self) {
        self.leave();
        let Some(thread) = self.lock().thread.take() else { return };
        let deadline = Instant::now() + STOP_WITHIN;
        while !thread.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Runs> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
