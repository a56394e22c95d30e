//! The monitor's thread: a runtime of its own, so that busy workers delay no probe and slow probes no worker.

use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::dns::LOOKUPS_MAX;
use crate::error::MonitorError;
use crate::monitor::{Monitor, Running};
use crate::scheduler::Scheduler;
use model::fleet::Fleet;

/// The thread spends at most one part in this many of its time on updating lanes: that work grows with the fleet.
const REST: u32 = 4;
/// After deciding by what checks saw, the thread does other things for so many times as long: what comes in meanwhile is decided together.
const SIGHTINGS_REST: u32 = 1;
/// The least that it does so, since each decision looks at when time alone changes something in the whole fleet.
const SIGHTINGS_REST_MIN: Duration = Duration::from_millis(5);
/// Lanes are brought into line at least so often: one that has died is started again.
const RECONCILE_AT_LEAST: Duration = Duration::from_secs(1);
/// Between two ticks, whatever the topology says.
const TICK_MIN: Duration = Duration::from_millis(1);
/// Longest that the end is put off by orders that are under way.
const ORDERS_LIMIT: Duration = Duration::from_secs(6);
/// Longest that the end waits for the disk.
const KEEP_LIMIT: Duration = Duration::from_secs(2);
/// Between two looks at whether names were moved.
const NAMES_LOOK: Duration = Duration::from_secs(1);
/// Look-ups of names that run at a time need threads.
const BLOCKING_THREADS_MAX: usize = LOOKUPS_MAX + 4;

/// The running monitor. Dropping it stops the thread.
#[derive(Debug)]
pub struct MonitorThread {
    monitor: Arc<Monitor>,
    thread: Option<JoinHandle<()>>,
}

impl MonitorThread {
    /// Ends all probes, has a switchover that is under way undone, and returns when the thread is gone.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.monitor.stopping.send_replace(true);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the monitor's thread has panicked");
        }
    }
}

impl Drop for MonitorThread {
    fn drop(&mut self) {
        self.end();
    }
}

impl Monitor {
    /// Starts the thread: from now on servers are probed, and `fleet` gets the layouts.
    ///
    /// # Errors
    /// [`MonitorError`] if it runs already, or if the system has no thread for it.
    pub fn start(self: &Arc<Self>, fleet: Arc<dyn Fleet>) -> Result<MonitorThread, MonitorError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(BLOCKING_THREADS_MAX).build()?;
        let mut stopped = self.stopping.subscribe();
        let (ready, begun) = mpsc::channel();
        let monitor = Arc::clone(self);
        let work = move || {
            let running = Running { fleet, runtime: runtime.handle().clone() };
            let is_first = monitor.begin(running);
            // The starter may be gone, so the send may fail.
            let _ = ready.send(is_first);
            if is_first {
                runtime.block_on(async {
                    tokio::select! {
                        _ = stopped.wait_for(|stop| *stop) => {}
                        () = watch_servers(&monitor) => {}
                        () = monitor.connector.resolver.keep_fresh() => {}
                        () = watch_names(&monitor) => {}
                        () = monitor.keep_standings() => {}
                        () = monitor.keep_events() => {}
                        () = crate::channels::keep(&monitor) => {}
                        () = crate::healing::keep(&monitor) => {}
                        () = crate::healing::follow_records(&monitor) => {}
                    }
                    // Running orders notice it and undo their changes.
                    let _ = tokio::time::timeout(ORDERS_LIMIT, monitor.orders.write()).await;
                    match tokio::time::timeout(KEEP_LIMIT, monitor.write_standings()).await {
                        Ok(Ok(())) => {}
                        Ok(Err(e)) => tracing::warn!("the current writers were not saved for the next start: {e}"),
                        Err(_) => tracing::warn!("the current writers were not saved for the next start: the disk does not answer"),
                    }
                    let _ = tokio::time::timeout(KEEP_LIMIT, monitor.write_events()).await;
                });
            }
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("monitor".into()).spawn(work)?;
        match begun.recv() {
            Ok(true) => Ok(MonitorThread { monitor: Arc::clone(self), thread: Some(thread) }),
            _ => Err(MonitorError::Running),
        }
    }
}

/// Signals, ticks and changed checks, for ever.
async fn watch_servers(monitor: &Arc<Monitor>) {
    let mut scheduler = Scheduler::default();
    let (mut is_stale, mut reconcile_at) = (true, Instant::now());
    let mut rested_at = Instant::now();
    let mut ticked_at = Instant::now();
    let mut sightings_at = None;
    let mut decided_at = Instant::now();
    loop {
        let tick_at = monitor.next_tick().map(|at| at.max(ticked_at + TICK_MIN));
        tokio::select! {
            biased;
            () = monitor.signalled() => monitor.take_signals(),
            () = monitor.sighted(), if sightings_at.is_none() => sightings_at = Some(decided_at),
            () = at(sightings_at) => {
                let begun = Instant::now();
                monitor.take_sightings();
                sightings_at = None;
                decided_at = Instant::now() + (begun.elapsed() * SIGHTINGS_REST).max(SIGHTINGS_REST_MIN);
            }
            () = monitor.stale(), if !is_stale => {
                (is_stale, reconcile_at) = (true, rested_at);
            }
            () = at(tick_at) => {
                ticked_at = Instant::now();
                monitor.tick();
            }
            () = at(Some(reconcile_at)) => {
                let begun = Instant::now();
                scheduler.reconcile(monitor, monitor.wanted());
                monitor.counts.set_lanes(scheduler.len());
                rested_at = Instant::now() + begun.elapsed() * REST;
                (is_stale, reconcile_at) = (false, rested_at + RECONCILE_AT_LEAST);
            }
        }
    }
}

/// Names that are moved, for ever.
async fn watch_names(monitor: &Monitor) {
    loop {
        tokio::time::sleep(NAMES_LOOK).await;
        monitor.take_moved_names();
    }
}

/// Waits for a time, or for ever.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}
