//! The new process's side.

use super::roles::{self, Difference};
use super::{FromHeir, Leaving, PROTOCOL, Start, ToHeir, placements};
use crate::cli::VERSION;
use ::admin::scheduler::Board;
use anyhow::{Context, Result, bail};
use handover::{Inlet, Outlet, Sockets};
use model::ServerAddr;
use model::control::DataPlane;
use monitor::Monitor;
use proxy::{Control, DetachedSocket, Holdings, Inheritance};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// How long the new process looks at the servers before it gives up seeing them as the old one does.
const LOOK: Duration = Duration::from_secs(5);

/// The process whose place this one takes.
pub(crate) struct Predecessor {
    inlet: Inlet,
    outlet: Arc<Mutex<Outlet>>,
    /// It understands [`FromHeir::Changed`].
    hears_changes: bool,
    start: Option<Box<Start>>,
    lock: Option<OwnedFd>,
    sockets: Option<Arc<Sockets>>,
}

/// The state that must be as in the process before.
#[derive(Default)]
pub(crate) struct Seen {
    /// Clients are not accepted.
    pub is_paused: bool,
    /// How servers are used.
    pub placements: Vec<String>,
    /// Servers that an operator drains.
    pub drained: Vec<ServerAddr>,
    /// The monitor's knowledge.
    pub knowledge: Option<Vec<u8>>,
}

impl Seen {
    /// Passes the predecessor's knowledge to the monitor. Without it the data directory's file holds.
    pub(crate) fn tell(&mut self, monitor: &Monitor) {
        match self.knowledge.take().map(|knowledge| handover::decode(&knowledge)) {
            Some(Ok(knowledge)) => monitor.learn(knowledge),
            Some(Err(e)) => {
                tracing::warn!("cannot read the server roles of the previous process, using the file in the data directory: {e}")
            }
            None => tracing::info!("the previous process sends no server roles, using the file in the data directory"),
        }
    }
}

/// Sends a message. If the other process is gone, the reader notices it.
fn say(outlet: &Mutex<Outlet>, what: &FromHeir) {
    if let Err(e) = outlet.lock().unwrap_or_else(PoisonError::into_inner).send(what, &[]) {
        tracing::debug!("the previous process does not listen: {e}");
    }
}

impl Predecessor {
    /// Receives the state from the process that started this one, over standard input.
    ///
    /// # Errors
    /// There is none, or its version cannot be followed.
    pub(crate) fn meet() -> Result<Self> {
        let stdin = std::io::stdin().as_fd().try_clone_to_owned()?;
        // Nothing that this process starts has the socket.
        let nothing = std::fs::File::open("/dev/null")?;
        rustix::stdio::dup2_stdin(&nothing)?;
        let (mut inlet, outlet) = handover::pair(UnixStream::from(stdin))?;
        let outlet = Arc::new(Mutex::new(outlet));
        match Self::hear_start(&mut inlet) {
            Ok((start, lock, sockets)) => {
                let hears_changes = start.hears_changes;
                Ok(Self { inlet, outlet, hears_changes, start: Some(start), lock: Some(lock), sockets: Some(sockets) })
            }
            Err(e) => {
                say(&outlet, &FromHeir::Failed(format!("{e:#}")));
                Err(e)
            }
        }
    }

    fn hear_start(inlet: &mut Inlet) -> Result<(Box<Start>, OwnedFd, Arc<Sockets>)> {
        let heard = inlet.receive::<ToHeir>().context("the process before")?;
        let Some((ToHeir::Start(start), descriptors)) = heard else { bail!("--take-over is for a process that PROXYSQL UPGRADE starts") };
        if start.protocol != PROTOCOL {
            bail!(
                "the previous process ({}) uses a hand-over format that {VERSION} does not know: drain it, then start this version",
                start.version
            );
        }
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum.unwrap_or(u64::MAX);
        if limit < start.open_files {
            bail!("the new process may open {limit} files, but the previous process has {} open: raise the limit", start.open_files);
        }
        let mut descriptors = descriptors.all().map_err(anyhow::Error::msg)?.into_iter();
        let lock = descriptors.next().context("the lock of the data directory is missing")?;
        let sockets = Sockets::given(start.sockets.iter().cloned().zip(descriptors));
        Ok((start, lock, sockets))
    }

    /// The admin interface's part of the state.
    ///
    /// # Errors
    /// It was taken before.
    pub(crate) fn admin(&mut self) -> Result<(Vec<u8>, OwnedFd)> {
        let start = self.start.as_mut().context("no sockets were handed over")?;
        Ok((std::mem::take(&mut start.layers), self.lock.take().context("the lock is gone")?))
    }

    /// The data plane's part of the state, and the roles to wait for.
    ///
    /// # Errors
    /// It was taken before.
    pub(crate) fn plane(&mut self) -> Result<(Inheritance, Seen)> {
        let Start { process, placements, drained, knowledge, .. } = *self.start.take().context("no sockets were handed over")?;
        let seen = Seen { is_paused: process.is_paused, placements, drained, knowledge };
        let sockets = self.sockets.take().context("the sockets are gone")?;
        Ok((Inheritance { sockets, process: Some(process) }, seen))
    }

    /// This process cannot take over.
    pub(crate) fn fail(&self, why: &str) {
        say(&self.outlet, &FromHeir::Failed(why.to_owned()));
    }

    /// Waits until this process sees the servers as the process before does, reports that it is ready, and waits until it is in charge.
    /// Later offers are taken in the background. The returned function reports that this process stops.
    ///
    /// # Errors
    /// The process before is gone or has given up. Or this process sees other roles in a cluster.
    pub(crate) async fn take_over(
        self,
        control: &Arc<Control>,
        monitor: &Monitor,
        before: &Seen,
        (leaving, board): (&Arc<Leaving>, &Arc<Board>),
    ) -> Result<impl Fn() + use<>> {
        let clusters: Vec<_> = control.snapshot().roles.iter().flat_map(|group| group.hostgroups()).collect();
        let differences = || roles::differences(&before.placements, &placements(&**control), &clusters);
        let until = Instant::now() + LOOK;
        while (!monitor.has_looked() || !differences().is_empty()) && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let Self { inlet, outlet, hears_changes, .. } = self;
        let (roles, others): (Vec<_>, Vec<_>) = differences().into_iter().partition(Difference::is_of_role);
        if !roles.is_empty() {
            let why = format!("the new process sees servers in other roles than the serving process: {}", roles::words(&roles));
            say(&outlet, &FromHeir::Failed(why.clone()));
            bail!(why);
        }
        if !others.is_empty() {
            tracing::warn!("this process sees servers in other roles than the previous process: {}", roles::words(&others));
        }
        say(&outlet, &FromHeir::Ready { version: VERSION.to_owned() });
        let (charge, in_charge) = oneshot::channel();
        let (answers, plane) = (Arc::clone(&outlet), Arc::clone(control));
        let (leaving, board) = (Arc::clone(leaving), Arc::clone(board));
        leaving.set(true);
        let work = move || {
            listen((inlet, hears_changes), &answers, &plane, &board, charge);
            board.set_elsewhere([]);
            leaving.set(false);
        };
        std::thread::Builder::new().name("upgrade-in".to_owned()).spawn(work)?;
        in_charge.await.context("the previous process has given up or ended")?;
        let sockets = control.sockets();
        sockets.forget_given();
        sockets.set_in_charge(true);
        Ok(move || say(&outlet, &FromHeir::Stops))
    }
}

/// Takes offers of the process before, until it is gone. `hears_changes`: it understands [`FromHeir::Changed`].
fn listen(
    (mut inlet, hears_changes): (Inlet, bool),
    outlet: &Arc<Mutex<Outlet>>,
    control: &Control,
    board: &Board,
    charge: oneshot::Sender<()>,
) {
    let mut charge = Some(charge);
    loop {
        match inlet.receive::<ToHeir>() {
            Ok(Some((ToHeir::TakeOver(left), _))) => {
                let outlet = Arc::clone(outlet);
                let kill = move |session, is_query| say(&outlet, &FromHeir::Kill { session, is_query });
                control.count_elsewhere(left, Some(Box::new(kill)));
                if let Some(charge) = charge.take() {
                    let _ = charge.send(());
                }
            }
            Ok(Some((ToHeir::Offer { number, record }, sockets))) => {
                let outlet = Arc::clone(outlet);
                let answer = move |taken: Result<(), String>| match taken {
                    Ok(()) => say(&outlet, &FromHeir::Taken(number)),
                    Err(why) => say(&outlet, &FromHeir::Refused(number, why)),
                };
                let attached = |sockets: Vec<OwnedFd>| sockets.into_iter().map(DetachedSocket::given).collect::<std::io::Result<_>>();
                match sockets.all().and_then(|sockets| attached(sockets).map_err(|e| e.to_string())) {
                    Ok(sockets) => control.take_in(&record, sockets, Box::new(answer)),
                    Err(why) => answer(Err(why)),
                }
            }
            Ok(Some((ToHeir::Kill { session, is_query }, _))) => control.kill_here(session, is_query),
            Ok(Some((ToHeir::Counted(counts), _))) => control.add_counts(*counts),
            Ok(Some((ToHeir::Left(left), _))) => {
                control.count_elsewhere(left, None);
                say(outlet, &FromHeir::Holds(control.own_connections()));
                if hears_changes {
                    say(outlet, &FromHeir::Changed(control.changes()));
                }
            }
            Ok(Some((ToHeir::Scripts(ids), _))) => board.set_elsewhere(ids),
            Ok(Some((ToHeir::Start(_), _))) => {}
            Ok(None) => break tracing::info!("the previous process has ended"),
            Err(e) => break tracing::error!("cannot read from the previous process, which keeps its remaining sessions: {e}"),
        }
    }
    control.count_elsewhere(Holdings::default(), None);
}
