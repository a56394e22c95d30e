//! What waits of one session, and what it consists of.

use super::line::WaitingLine;
use super::{OrderTicket, lock};
use meter::digest::Digest;
use rehearsal::Answer;
use session_state::chosen::Chosen;
use session_state::class::LaneKey;
use session_state::state::{State, Text};
use sql::{Analysis, LexMode};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// Bytes that a waiting command takes beside its text.
const OVERHEAD: u64 = 1024;

/// What the shadow does next for a session.
pub(crate) enum Job {
    /// It begins in this state, or begins again: nothing of before is left.
    Begin(Box<CopiedState>),
    /// It runs a command.
    Run(Box<CopiedCommand>),
    /// It rolls back what is open, and waits for the next begin: a command is missing.
    Cut,
}

impl Job {
    /// Room that it takes.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Begin(begun) => OVERHEAD + begun.state.bytes() as u64,
            Self::Cut => OVERHEAD,
            Self::Run(command) => OVERHEAD + command.act.bytes() as u64,
        }
    }

    /// The shadow keeps it until the session executes the statement.
    pub(super) fn is_long_data(&self) -> bool {
        matches!(self, Self::Run(command) if matches!(command.act, Act::LongData { .. }))
    }

    fn ended_us(&self) -> Option<u64> {
        match self {
            Self::Run(command) => Some(command.ended_us),
            Self::Begin(_) | Self::Cut => None,
        }
    }
}

/// A session between two transactions.
pub(crate) struct CopiedState {
    /// Its state.
    pub state: State,
    /// Who chose its collations.
    pub chosen: Chosen,
    /// Where it runs, and as whom.
    pub lane: LaneKey,
    /// Collation of new connections.
    pub collation: u8,
    /// How its texts are read.
    pub lex: LexMode,
    /// LAST_INSERT_ID(), where it is known.
    pub last_insert_id: Option<u64>,
    /// Whose session it is.
    pub client: Option<IpAddr>,
}

/// A command.
pub(crate) enum Act {
    /// COM_QUERY.
    Query(Box<[u8]>),
    /// A prepared statement's text, by the client's number (0: the original refused it), and the schema of its PREPARE. Without a turn of
    /// its own, the shadow prepares it when it is used.
    Prepare { id: u32, text: Arc<[u8]>, schema: Option<Text> },
    /// COM_STMT_EXECUTE without a cursor, with types.
    Execute { id: u32, payload: Vec<u8> },
    /// COM_STMT_SEND_LONG_DATA: what follows the statement's number.
    LongData { id: u32, body: Vec<u8> },
    /// COM_STMT_CLOSE.
    Close(u32),
    /// COM_STMT_RESET.
    Reset(u32),
    /// COM_INIT_DB.
    InitDb(Box<[u8]>),
    /// COM_SET_OPTION.
    SetOption([u8; 2]),
}

impl Act {
    fn bytes(&self) -> usize {
        match self {
            Self::Query(text) | Self::InitDb(text) => text.len(),
            Self::Prepare { text, .. } => text.len(),
            Self::Execute { payload: bytes, .. } | Self::LongData { body: bytes, .. } => bytes.len(),
            Self::Close(_) | Self::Reset(_) | Self::SetOption(_) => 0,
        }
    }
}

/// Values of the original that a statement gets on the shadow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PinnedValues {
    /// The clock, Unix us.
    pub time_us: Option<u64>,
    /// The first AUTO_INCREMENT value.
    pub insert_id: Option<u64>,
    /// LAST_INSERT_ID() before the statement.
    pub last_insert_id: Option<u64>,
}

impl PinnedValues {
    /// The SET that gives them; None where there is nothing to give.
    pub(crate) fn text(self) -> Option<String> {
        let time = self.time_us.map(|us| format!("timestamp={}.{:06}", us / 1_000_000, us % 1_000_000));
        let ids = [("insert_id", self.insert_id), ("last_insert_id", self.last_insert_id)];
        let ids = ids.into_iter().filter_map(|(name, id)| Some(format!("{name}={}", id?)));
        let all: Vec<String> = time.into_iter().chain(ids).collect();
        (!all.is_empty()).then(|| format!("SET {}", all.join(", ")))
    }
}

/// A command with all that the shadow needs to run and to judge it.
pub(crate) struct CopiedCommand {
    /// When it may start; None for what needs no turn.
    pub ticket: Option<OrderTicket>,
    /// What it is.
    pub act: Act,
    /// Kind and facts of its statement.
    pub analysis: Analysis,
    /// The session's schema when it was sent.
    pub schema: Option<Text>,
    /// The statement's digest; None for what is no statement.
    pub digest: Option<Arc<Digest>>,
    /// What the original answered, and how long its server took, us. None: it is not compared.
    pub original: Option<(Answer, u64)>,
    /// Values of the original.
    pub pins: PinnedValues,
    /// When it was answered: process clock, us.
    pub ended_us: u64,
}

#[derive(Default)]
struct CopyQueue {
    jobs: VecDeque<Job>,
    bytes: u64,
    /// Those of long data among them.
    long_data: u64,
    /// Bytes of long data that the shadow has taken and not used yet.
    held: u64,
    /// The session is over, or given up: nothing more comes.
    is_closed: bool,
}

/// See the module.
pub(crate) struct CopyStrand {
    /// Its place by age: later sessions have larger numbers.
    pub number: u64,
    queue: Mutex<CopyQueue>,
    /// Locked while the queue is, not the other way round.
    line: Arc<Mutex<WaitingLine>>,
    arrival: Notify,
    is_gone: AtomicBool,
    is_broken: AtomicBool,
}

impl CopyStrand {
    pub(super) fn new(number: u64, line: Arc<Mutex<WaitingLine>>) -> Self {
        let (is_gone, is_broken) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { number, queue: Mutex::default(), line, arrival: Notify::new(), is_gone, is_broken }
    }

    /// Where it stands in the line, after its first job has changed.
    fn line_up(&self, queue: &CopyQueue) {
        match queue.jobs.front() {
            Some(first) => lock(&self.line).set(self.number, first.ended_us()),
            None if queue.held > 0 => lock(&self.line).set(self.number, None),
            None => lock(&self.line).remove(self.number),
        }
    }

    /// False where nothing more is taken.
    pub(super) fn push(&self, job: Job) -> bool {
        let mut queue = lock(&self.queue);
        if queue.is_closed {
            return false;
        }
        let bytes = job.bytes();
        queue.bytes += bytes;
        queue.long_data += if job.is_long_data() { bytes } else { 0 };
        queue.jobs.push_back(job);
        if queue.jobs.len() == 1 {
            self.line_up(&queue);
        }
        drop(queue);
        self.arrival.notify_one();
        true
    }

    /// The next job and its bytes, which are given back when it was done; None once the session is over.
    pub(crate) async fn next(&self) -> Option<(Job, u64)> {
        loop {
            {
                let mut queue = lock(&self.queue);
                if let Some(job) = queue.jobs.pop_front() {
                    let bytes = job.bytes();
                    queue.bytes -= bytes;
                    queue.long_data -= if job.is_long_data() { bytes } else { 0 };
                    self.line_up(&queue);
                    return Some((job, bytes));
                }
                if queue.is_closed {
                    return None;
                }
            }
            self.arrival.notified().await;
        }
    }

    /// The session is over: what waits still runs.
    pub(crate) fn finish(&self) {
        lock(&self.queue).is_closed = true;
        self.arrival.notify_one();
    }

    /// Nothing more of it runs; false if that was so.
    pub(super) fn leave(&self) -> bool {
        let is_new = !self.is_gone.swap(true, Ordering::AcqRel);
        self.finish();
        is_new
    }

    /// The session was given up.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    /// Its transaction is lost on the shadow; the session must begin again.
    pub(crate) fn set_broken(&self, is_broken: bool) {
        self.is_broken.store(is_broken, Ordering::Release);
    }

    /// See [`CopyStrand::set_broken`].
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }

    /// Bytes of a job are kept behind its end, until [`Self::let_go`].
    pub(crate) fn hold(&self, bytes: u64) {
        let mut queue = lock(&self.queue);
        queue.held += bytes;
        self.line_up(&queue);
    }

    /// So many bytes are kept no more; how many of them are to be given back.
    pub(crate) fn let_go(&self, bytes: u64) -> u64 {
        let mut queue = lock(&self.queue);
        let bytes = bytes.min(queue.held);
        queue.held -= bytes;
        self.line_up(&queue);
        bytes
    }

    /// Bytes of long data that waits or is kept: only the session itself gives them back.
    pub(super) fn long_data_bytes(&self) -> u64 {
        let queue = lock(&self.queue);
        queue.long_data + queue.held
    }

    /// Drops what waits; its bytes, with those that are kept.
    pub(super) fn clear(&self) -> u64 {
        let mut queue = lock(&self.queue);
        queue.long_data = 0;
        let jobs = std::mem::take(&mut queue.jobs);
        let bytes = std::mem::take(&mut queue.bytes) + std::mem::take(&mut queue.held);
        self.line_up(&queue);
        // Tickets lock the gate.
        drop(queue);
        drop(jobs);
        bytes
    }

    #[cfg(test)]
    pub(super) fn has_waiting(&self) -> bool {
        !lock(&self.queue).jobs.is_empty()
    }
}
