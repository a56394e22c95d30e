//! What a worker does beside its sessions: it reads its mail, serves those who wait for a backend, and sweeps.

use crate::backends::backend::DetachedBackend;
use crate::backends::cleaning::ping;
use crate::backends::connect;
use crate::clients::session_handle::Signal;
use crate::session;
use crate::workers::mailbox::Mail;
use crate::workers::shared::Shared;
use crate::workers::worker::{CHECKS, Worker};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// How often waiters' deadlines and growth are looked at while someone waits.
const POOL_TICK: Duration = Duration::from_millis(1);
/// How often sessions are swept for timeouts.
const SWEEP: Duration = Duration::from_millis(100);
/// Sweeps between two rounds of pool maintenance.
const SWEEPS_PER_MAINTENANCE: u32 = 10;
/// Messages that are served in a row before sessions have their turn.
const MAILS_A_TURN: u32 = 32;

/// Runs a worker until it is told to stop; the caller's thread becomes it.
pub(crate) fn run(index: usize, shared: Arc<Shared>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .event_interval(31)
        .global_queue_interval(127)
        .max_blocking_threads(CHECKS)
        .build_local(tokio::runtime::LocalOptions::default())?;
    runtime.block_on(serve(Worker::new(index, shared)));
    // A name lookup that hangs in a helper thread must not hold up the stop.
    runtime.shutdown_background();
    Ok(())
}

/// A worker as a task of the calling thread's runtime, among others.
#[cfg(feature = "sim")]
pub(crate) fn spawn(index: usize, shared: Arc<Shared>) {
    tokio::task::spawn_local(serve(Worker::new(index, shared)));
}

async fn serve(worker: Rc<Worker>) {
    tokio::task::spawn_local(serve_waiters(Rc::clone(&worker)));
    tokio::task::spawn_local(sweep(Rc::clone(&worker)));
    let mut mails = 0_u32;
    loop {
        let mail = worker.mailbox().receive().await;
        match mail {
            Mail::Accept { socket, peer, local } => session::start(&worker, socket, peer, local),
            Mail::Backend(detached) => adopt(&worker, *detached),
            Mail::Wanted { lane, needs, makes_room, from } => {
                worker.pool(lane.hostgroup).wanted(&worker, &lane, needs, makes_room, from);
            }
            Mail::Probe => {
                tokio::task::spawn_local(probe(Rc::clone(&worker)));
            }
            Mail::Arranged => worker.arranged(),
            Mail::Ask(question) => question(&worker),
            Mail::Report => worker.report(),
            Mail::Kill { id, kind } => worker.kill(id, kind),
            Mail::Drain => worker.signal_all(Signal::Drain),
            Mail::Stop => {
                worker.signal_all(Signal::Stop);
                return finish(&worker).await;
            }
        }
        mails = mails.wrapping_add(1);
        if mails.is_multiple_of(MAILS_A_TURN) {
            // While mail waits, `receive` never does.
            tokio::task::yield_now().await;
        }
    }
}

/// Lets sessions that were told to stop run to their end, for a moment.
async fn finish(worker: &Worker) {
    for _ in 0..200 {
        if worker.entries.borrow().is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A backend from another worker.
fn adopt(worker: &Rc<Worker>, detached: DetachedBackend) {
    match detached.attach() {
        Ok(backend) => {
            worker.pool(backend.core.lane.hostgroup).received(worker, backend);
        }
        Err(e) => tracing::warn!("cannot take over a backend from another worker, backend closed: {e}"),
    }
}

/// Asks the servers, one after the other, what they are; the first answer is what clients are told.
async fn probe(worker: Rc<Worker>) {
    let limit = Duration::from_millis(worker.snapshot().vars.connect_timeout_server);
    let hostgroups = worker.shared.hostgroups();
    for server in hostgroups.iter().flat_map(|h| h.servers().to_vec()).filter(|s| s.is_online()) {
        if let Some(Ok(info)) = worker.within(limit, connect::probe(&worker, &server)).await {
            tracing::info!("{} is {}", server.key, info.version);
            worker.shared.info.set(info);
            return;
        }
    }
    worker.shared.probe_failed.store(true, std::sync::atomic::Ordering::Release);
}

/// Serves deadlines and growth while anyone waits.
async fn serve_waiters(worker: Rc<Worker>) {
    loop {
        if worker.pools().iter().any(|p| p.has_waiters()) {
            let _ = tokio::time::timeout(POOL_TICK, worker.has_room.notified()).await;
        } else {
            // Whoever comes first has been looked after: the next look is due in a moment.
            worker.pool_wakeup.notified().await;
            continue;
        }
        for pool in worker.pools().iter().filter(|p| p.has_waiters()) {
            pool.tick(&worker);
        }
    }
}

/// Moves the coarse clock, ends what is overdue, maintains the pools.
async fn sweep(worker: Rc<Worker>) {
    let mut interval = tokio::time::interval(SWEEP);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut round = 0_u32;
    loop {
        interval.tick().await;
        let now_us = worker.shared.clock.now_us();
        worker.swept(now_us, now_us + SWEEP.as_micros() as u64);
        let now_ms = now_us / 1000;
        worker.clock.set(now_ms);
        worker.shared.beats.beat(worker.index, now_ms);
        worker.look_at_sessions(now_ms);
        worker.make_places();
        round = round.wrapping_add(1);
        if round.is_multiple_of(SWEEPS_PER_MAINTENANCE) {
            maintain(&worker);
        }
    }
}

/// Looks after buffers, the query cache and the pools.
fn maintain(worker: &Rc<Worker>) {
    worker.buffers.trim();
    if worker.index == 0 {
        worker.shared.cache.sweep(worker.clock.now_ms());
    }
    for pool in worker.pools() {
        for backend in pool.maintain(worker) {
            tokio::task::spawn_local(ping(Rc::clone(worker), Rc::clone(&pool), backend, Vec::new()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bed;
    use std::sync::atomic::{AtomicU32, Ordering};
    use tokio::task::{LocalSet, spawn_local};

    #[tokio::test]
    async fn a_full_mailbox_leaves_turns_to_sessions() {
        const MAILS: u32 = 1_000;
        let worker = bed::worker(bed::snapshot(&[(0, "127.0.0.1")], ""));
        let served = Arc::new(AtomicU32::new(0));
        for _ in 0..MAILS {
            let served = Arc::clone(&served);
            worker.mailbox().send(Mail::Ask(Box::new(move |_| {
                served.fetch_add(1, Ordering::Relaxed);
            })));
        }
        let all = async {
            spawn_local(serve(worker));
            let served_before = spawn_local(async move { served.load(Ordering::Relaxed) });
            assert!(served_before.await.unwrap() <= MAILS_A_TURN);
        };
        LocalSet::new().run_until(all).await;
    }
}
