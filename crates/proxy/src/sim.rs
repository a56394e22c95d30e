//! The data plane in a simulated world (feature `sim`): sockets in memory, connects by a hook, a seed for its choices, time
//! that the runtime moves.
//!
//! Sessions, pools, limits and the control are the real ones; only what touches the operating system is replaced. The whole
//! proxy lives on the calling thread, whose runtime must be a local one (`build_local`) with paused time.

use crate::net::stream::DetachedSocket;
use crate::stats::ProxyStats;
use crate::takeover::hand_over_queue::{ForSuccessor, HandOverQueue};
use crate::workers::control::Control;
use crate::workers::in_force::InForce;
use crate::workers::mailbox::Mail;
pub use crate::workers::safety::{Safety, do_without};
use crate::workers::shared::Shared;
use crate::workers::start::StartError;
use model::fleet::RoleKeeper;
use model::snapshot::{Address, Snapshot};
use std::cell::Cell;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use tokio::io::ReadBuf;
use tokio::sync::{mpsc, watch};

/// One end of a connection in memory. Dropping it closes it.
pub trait Pipe: Send {
    /// Ready when there are bytes, the end of the stream or an error to read.
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<()>;

    /// Ready when there is room to write, or writing fails.
    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<()>;

    /// Reads what is there; nothing read is the end of the stream.
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>>;

    /// Writes as much as there is room for.
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;

    /// Closes both directions at once.
    fn shutdown(&self) -> io::Result<()>;

    /// The same end once more, as `dup(2)` has it: it closes when all copies are dropped.
    fn copy(&self) -> Box<dyn Pipe>;
}

/// A connect under way.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn Pipe>>>>>;

/// The network between the proxy and its servers.
pub trait Network: Send + Sync {
    /// Connects to a server, as `connect(2)` does: an answer, a refusal, or silence.
    fn connect(&self, address: &Address) -> Connecting;
}

/// What stands in for the operating system.
pub struct World {
    network: Arc<dyn Network>,
    seed: u64,
}

impl World {
    pub(crate) fn connect(&self, address: &Address) -> Connecting {
        self.network.connect(address)
    }

    /// Where the workers' choices begin.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }
}

/// The data plane, all on one thread.
pub struct Simulated {
    shared: Arc<Shared>,
    control: Arc<Control>,
    clients: Cell<usize>,
}

impl Simulated {
    /// The process that takes the place of `before`: what goes with the process as a whole is taken over, clients and connections are
    /// not: see [`Simulated::hand_over`].
    ///
    /// # Errors
    /// As for [`Simulated::start`].
    pub fn take_over(before: &Self, keeper: Arc<dyn RoleKeeper>, network: Arc<dyn Network>, seed: u64) -> Result<Self, StartError> {
        let snapshot = Arc::clone(&before.shared.in_force.load().snapshot);
        Self::start_after(Some(before), snapshot, keeper, network, seed)
    }

    /// Starts the workers as tasks of the calling thread's runtime. No listeners are opened: see [`Simulated::accept`].
    /// `keeper` says which server has which role.
    ///
    /// # Errors
    /// [`StartError::Config`] when patterns of rules cannot be used.
    pub fn start(snapshot: Arc<Snapshot>, keeper: Arc<dyn RoleKeeper>, network: Arc<dyn Network>, seed: u64) -> Result<Self, StartError> {
        Self::start_after(None, snapshot, keeper, network, seed)
    }

    fn start_after(
        before: Option<&Self>,
        snapshot: Arc<Snapshot>,
        keeper: Arc<dyn RoleKeeper>,
        network: Arc<dyn Network>,
        seed: u64,
    ) -> Result<Self, StartError> {
        let in_force = Arc::new(InForce::compile(Arc::clone(&snapshot), None).map_err(StartError::Config)?);
        let threads = usize::try_from(snapshot.vars.threads).unwrap_or(1).max(1);
        let mut shared = Shared::new(in_force, Some(keeper), threads, None);
        if let Some(before) = before {
            crate::workers::start::take_over(&before.control.process_record(), &mut shared);
            // The simulated time is not the system's.
            shared.clock = before.shared.clock;
        }
        let shared = Arc::new(shared);
        let _ = shared.simulated.set(World { network, seed });
        let (open, _) = watch::channel(true);
        let stats = Arc::new(ProxyStats::new(Arc::clone(&shared)));
        let control = Arc::new(Control::new(Arc::clone(&shared), stats, PathBuf::new(), 0, open));
        for index in 0..threads {
            crate::workers::work::spawn(index, Arc::clone(&shared));
        }
        Ok(Self { shared, control, clients: Cell::new(0) })
    }

    /// What an operator may do to it.
    pub fn control(&self) -> Arc<Control> {
        Arc::clone(&self.control)
    }

    /// A client has connected; workers take them in turn.
    pub fn accept(&self, pipe: Box<dyn Pipe>, peer: SocketAddr) {
        let turn = self.clients.replace(self.clients.get().wrapping_add(1));
        let Some(mailbox) = self.shared.mailboxes.get(turn % self.shared.mailboxes.len().max(1)) else { return };
        self.shared.frontends.fetch_add(1, Ordering::AcqRel);
        mailbox.send(Mail::Accept { socket: DetachedSocket::Memory(pipe), peer: Some(peer), local: None });
    }

    /// Sessions and idle connections go to another process from now on: each when it is at rest. Answers what goes.
    pub fn hand_over(&self) -> mpsc::UnboundedReceiver<ForSuccessor> {
        let (successor, queue) = HandOverQueue::new();
        self.shared.set_successor(Some(successor));
        self.shared.send_all(|| Mail::Ask(Box::new(crate::session::hand_over)));
        queue
    }

    /// The process ends: what it still has is closed.
    pub fn stop(&self) {
        self.shared.send_all(|| Mail::Stop);
    }

    /// Clients that are connected, as the proxy sees it.
    pub fn frontends(&self) -> usize {
        self.shared.frontends.load(Ordering::Acquire)
    }
}
