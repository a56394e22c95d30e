//! The old process's side.

use super::{FromHeir, PROTOCOL, Start, ToHeir, placements};
use crate::cli::{Cli, VERSION, program_name};
use ::admin::Frozen;
use ::admin::scheduler::Board;
use anyhow::{Context, Result, bail};
use handover::{Inlet, Outlet};
use monitor::Monitor;
use proxy::{Control, DetachedSocket, ForSuccessor, HandOverQueue, Offer, Proxy};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc, oneshot, watch};

/// A process that is ready to take over, and has changed nothing yet.
pub(crate) struct Successor {
    child: Running,
    inlet: Inlet,
    outlet: Outlet,
    frozen: Frozen,
}

/// A process that ends with this value, unless it is let go.
struct Running(Option<Child>);

impl Running {
    fn id(&self) -> u32 {
        self.0.as_ref().map_or(0, Child::id)
    }

    /// It lives on, whatever becomes of this process.
    fn let_go(mut self) -> Option<Child> {
        self.0.take()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Starts a process that is to take over, and waits until it is ready.
///
/// # Errors
/// Why it is not, in its own words if it sent any; it is gone then.
pub(crate) fn begin(program: &Path, cli: &Cli, control: &Control, monitor: &Monitor, given: ::admin::Successor) -> Result<Successor> {
    let ::admin::Successor { program: _, layers, lock, upgrade_timeout_ms, frozen } = given;
    let limit = Duration::from_millis(upgrade_timeout_ms);
    if std::process::id() == 1 {
        bail!("the first process of a container must stay: start it with --supervise");
    }
    if let Err(e) = monitor.write_events_now() {
        tracing::warn!("the new process will not show the latest events: {e}");
    }
    let drained = monitor.drained().map_err(anyhow::Error::msg)?;
    let (ours, theirs) = UnixStream::pair()?;
    let mut command = Command::new(program);
    command.arg0(program_name()).args(cli.again().arguments()).arg("--take-over").stdin(Stdio::from(OwnedFd::from(theirs)));
    let child = Running(Some(command.spawn().with_context(|| program.display().to_string())?));
    // The child alone has the other end from here on, so that its end is noticed.
    drop(command);
    let (mut inlet, mut outlet) = handover::pair(ours)?;
    let (sockets, mut descriptors): (Vec<String>, Vec<OwnedFd>) = control.sockets().copies()?.into_iter().unzip();
    descriptors.insert(0, lock);
    let start = Start {
        protocol: PROTOCOL,
        version: VERSION.to_owned(),
        sockets,
        layers,
        process: control.process_record(),
        drained,
        open_files: crate::open_files(),
        placements: placements(control),
        knowledge: Some(handover::encode(&monitor.knowledge()).map_err(anyhow::Error::msg)?),
        hears_changes: true,
    };
    outlet.limit(limit)?;
    inlet.limit(Some(limit))?;
    let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    let started = outlet.send(&ToHeir::Start(Box::new(start)), &descriptors);
    // Its own message tells more than a failed send.
    match inlet.receive::<FromHeir>() {
        Ok(Some((FromHeir::Ready { version }, _))) => tracing::info!("process {} ({version}) is ready to take over", child.id()),
        Ok(Some((FromHeir::Failed(why), _))) => bail!("the new process cannot take over: {why}"),
        Ok(Some(_)) => bail!("the new process sent an unexpected message"),
        Ok(None) => bail!("the new process ended before it was ready"),
        Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
            bail!("the new process was not ready within {} ms (admin-upgrade_timeout)", limit.as_millis())
        }
        Err(e) => return Err(e).context("the new process"),
    }
    started.context("the new process")?;
    // Before it serves metrics: their values never fall.
    outlet.send(&ToHeir::Counted(Box::new(control.counts())), &[]).context("the new process")?;
    Ok(Successor { child, inlet, outlet, frozen })
}

/// The end of a hand-over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The other process has all that it takes: this one may end.
    Over,
    /// The other process is gone: this one serves on.
    Failed,
}

/// Answers that are waited for, by the number of the offer.
type Pending = Arc<Mutex<HashMap<u64, (Instant, oneshot::Sender<Result<(), String>>)>>>;

/// The state of the other process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Serves,
    Stops,
    Gone,
}

impl Successor {
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Puts it in charge, reports that through `in_charge`, and hands everything over. Sessions that are left after `limit` stay here, as
    /// scripts do. `stop` ends the hand-over of sessions. If the future is dropped, no further session is offered, and the last counts are
    /// lost.
    pub(crate) async fn hand_over(
        self,
        proxy: &Proxy,
        control: &Control,
        (limit, board, stop): (Duration, &Board, &Notify),
        in_charge: std::sync::mpsc::Sender<()>,
    ) -> Outcome {
        let Self { child, inlet, mut outlet, frozen } = self;
        let id = child.id();
        let sockets = control.sockets();
        sockets.set_in_charge(false);
        let scripts = outlet.send(&ToHeir::Scripts(board.running()), &[]);
        let told = scripts.and_then(|()| outlet.send(&ToHeir::TakeOver(control.holdings()), &[]));
        let mut child = child.let_go();
        let mut failed = |why: &str| {
            if let Some(child) = &mut child {
                let _ = child.kill();
                let _ = child.wait();
            }
            proxy.keep_all();
            control.successor_failed();
            control.forget_handed_counts();
            sockets.set_in_charge(true);
            frozen.set(false);
            tracing::error!("upgrade: {why}: this process keeps serving");
            Outcome::Failed
        };
        if let Err(e) = told {
            return failed(&format!("the new process is gone ({e})"));
        }
        // The asker may be gone.
        let _ = in_charge.send(());
        let (successor, queue) = HandOverQueue::new();
        let _ = outlet.limit(ANSWER_WITHIN);
        let (pending, outlet) = (Pending::default(), Arc::new(Mutex::new(outlet)));
        let (state, mut states) = watch::channel(State::Serves);
        let threads = std::thread::Builder::new().name("upgrade-in".to_owned()).spawn({
            let (pending, control) = (Arc::clone(&pending), proxy.control());
            move || answers(inlet, &pending, &state, &control)
        });
        let threads = threads.and_then(|_| {
            let (pending, outlet) = (Arc::clone(&pending), Arc::clone(&outlet));
            std::thread::Builder::new().name("upgrade-out".to_owned()).spawn(move || send_out(queue, &outlet, &pending))
        });
        if let Err(e) = threads {
            return failed(&format!("no thread: {e}"));
        }
        let (began, counter) = (Instant::now(), proxy.control());
        proxy.hand_over(successor);
        // What was counted since that process was ready: its values are not behind for long.
        let caught_up = tokio::task::spawn_blocking({
            let (counter, outlet) = (Arc::clone(&counter), Arc::clone(&outlet));
            move || hand_counts(&counter, &outlet)
        });
        let mut look = tokio::time::interval(Duration::from_millis(5));
        let mut count = tokio::time::interval_at(tokio::time::Instant::now() + COUNT_AGAIN, COUNT_AGAIN);
        let mut at_rest: Option<Instant> = None;
        loop {
            tokio::select! {
                _ = look.tick() => {}
                _ = states.changed() => {}
                () = stop.notified() => break,
                _ = count.tick() => {
                    let left = [ToHeir::Left(control.holdings()), ToHeir::Scripts(board.running())];
                    let mut outlet = outlet.lock().unwrap_or_else(PoisonError::into_inner);
                    let _ = left.iter().try_for_each(|left| outlet.send(left, &[]));
                }
            }
            match *states.borrow() {
                State::Gone => return failed("the new process is gone"),
                State::Stops => break,
                State::Serves => {}
            }
            let is_at_rest = proxy.clients() == 0 && board.running().is_empty();
            at_rest = at_rest.filter(|_| is_at_rest).or_else(|| is_at_rest.then(Instant::now));
            // Idle connections that are left are closed.
            let is_over = at_rest.is_some_and(|since| !control.has_connections() || since.elapsed() >= IDLE_WITHIN);
            if is_over || began.elapsed() >= limit {
                break;
            }
            if longest(&pending) > ANSWER_WITHIN {
                return failed("the new process does not answer");
            }
        }
        // Sessions on their way arrive or stay.
        proxy.keep_all();
        while longest(&pending) > Duration::ZERO && *states.borrow() == State::Serves && longest(&pending) < ANSWER_WITHIN {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let _ = caught_up.await;
        let counted = tokio::task::spawn_blocking(move || {
            outlet.lock().unwrap_or_else(PoisonError::into_inner).send(&ToHeir::Left(counter.holdings()), &[])?;
            hand_counts(&counter, &outlet)
        });
        if let Ok(Err(e)) = counted.await {
            tracing::warn!("upgrade: the counters were not handed over: {e}");
        }
        tracing::info!("process {id} has taken over in {} ms; {} sessions remain here", began.elapsed().as_millis(), proxy.clients());
        Outcome::Over
    }
}

/// Sends what was counted here since that was last sent.
fn hand_counts(control: &Control, outlet: &Mutex<Outlet>) -> std::io::Result<()> {
    let counts = ToHeir::Counted(Box::new(control.more_counts()));
    outlet.lock().unwrap_or_else(PoisonError::into_inner).send(&counts, &[])
}

/// Time between two reports of this process's remaining sessions.
const COUNT_AGAIN: Duration = Duration::from_millis(200);

/// How long idle connections may take to move after the last session.
const IDLE_WITHIN: Duration = Duration::from_secs(1);

/// Longest that the other process takes to say whether it has a session, before it is taken for hung.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

fn longest(pending: &Pending) -> Duration {
    let pending = pending.lock().unwrap_or_else(PoisonError::into_inner);
    pending.values().map(|(since, _)| since.elapsed().max(Duration::from_nanos(1))).max().unwrap_or_default()
}

/// Sends offers and KILLs until there are no more.
fn send_out(mut queue: mpsc::UnboundedReceiver<ForSuccessor>, outlet: &Mutex<Outlet>, pending: &Pending) {
    let mut number = 0;
    while let Some(next) = queue.blocking_recv() {
        let Offer { record, sockets, answer } = match next {
            ForSuccessor::Offer(offer) => offer,
            ForSuccessor::Kill { session, is_query } => {
                let kill = ToHeir::Kill { session, is_query };
                if let Err(e) = outlet.lock().unwrap_or_else(PoisonError::into_inner).send(&kill, &[]) {
                    tracing::debug!("a KILL of session {session} did not reach the new process: {e}");
                }
                continue;
            }
        };
        number += 1;
        pending.lock().unwrap_or_else(PoisonError::into_inner).insert(number, (Instant::now(), answer));
        let sent = sockets.into_iter().map(DetachedSocket::into_descriptor).collect::<std::io::Result<Vec<_>>>().and_then(|sockets| {
            let sockets: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
            outlet.lock().unwrap_or_else(PoisonError::into_inner).send(&ToHeir::Offer { number, record }, &sockets)
        });
        if let Err(e) = sent
            && let Some((_, answer)) = pending.lock().unwrap_or_else(PoisonError::into_inner).remove(&number)
        {
            let _ = answer.send(Err(e.to_string()));
        }
    }
}

/// Passes answers on until the other process is gone.
fn answers(mut inlet: Inlet, pending: &Pending, state: &watch::Sender<State>, control: &Control) {
    let _ = inlet.limit(None);
    let take = |number| pending.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
    loop {
        let (number, answer) = match inlet.receive::<FromHeir>() {
            Ok(Some((FromHeir::Taken(number), _))) => (number, Ok(())),
            Ok(Some((FromHeir::Refused(number, why), _))) => (number, Err(why)),
            Ok(Some((FromHeir::Kill { session, is_query }, _))) => {
                control.kill_here(session, is_query);
                continue;
            }
            Ok(Some((FromHeir::Holds(connections), _))) => {
                control.count_connections_elsewhere(&connections);
                continue;
            }
            Ok(Some((FromHeir::Changed(changes), _))) => {
                control.learn_changes(changes);
                continue;
            }
            Ok(Some((FromHeir::Stops, _))) => {
                state.send_replace(State::Stops);
                continue;
            }
            Ok(Some((FromHeir::Ready { .. } | FromHeir::Failed(_), _))) => continue,
            Ok(None) | Err(_) => break,
        };
        if let Some((_, to)) = take(number) {
            let _ = to.send(answer);
        }
    }
    state.send_if_modified(|state| std::mem::replace(state, State::Gone) != State::Gone);
    for (_, (_, answer)) in pending.lock().unwrap_or_else(PoisonError::into_inner).drain() {
        let _ = answer.send(Err("the new process is gone".to_owned()));
    }
}
