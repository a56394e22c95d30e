//! The load: many clients on one thread around one epoll, each with one command in flight.
//!
//! A run has a window of time. Commands sent in the window are waited for beyond it, so that every command is complete when the peer's
//! processor time is read. Rates count only commands completed within the window.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use super::connection::{Connection, Progress};
use super::histogram::Histogram;
use super::work::Work;
use crate::error::{IoContext, LabError};

/// Logins under way at a time, so that no listen queue overflows.
const LOGINS_AT_A_TIME: usize = 32;
/// Events taken from the kernel at once.
const EVENTS: usize = 256;
/// Read buffer in bytes, shared by all clients.
const BUFFER: usize = 256 * 1024;
/// For logins, and for replies after the window: far more than anything that still works needs.
const LIMIT: Duration = Duration::from_secs(60);
/// Longest sleep in the kernel.
const NAP: Duration = Duration::from_millis(20);

/// The load for a peer.
#[derive(Clone, Debug)]
pub struct Load {
    /// The peer's address.
    pub address: SocketAddr,
    /// How many clients.
    pub clients: usize,
    /// The work of each client.
    pub work: Work,
    /// Commands a second over all clients; `None` for as many as go.
    pub pace: Option<u32>,
}

/// The result of one run.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Commands (or whole connections) completed, those after the window included.
    pub completed: u64,
    /// Commands completed within the window, by client.
    pub in_window: Vec<u64>,
    /// The window.
    pub window: Duration,
    /// From the first command to the last reply.
    pub elapsed: Duration,
    /// How long each completed one took.
    pub latency: Histogram,
}

/// Connected clients.
#[derive(Debug)]
pub struct Fleet {
    load: Load,
    epoll: OwnedFd,
    /// `None` for a client that is between two connections.
    clients: Vec<Option<Connection>>,
    buffer: Vec<u8>,
    busy: usize,
}

impl Fleet {
    /// Connects and logs in all clients; none for [`Work::Connect`], which does that in its runs.
    pub fn open(load: &Load) -> Result<Fleet, LabError> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(|errno| LabError::io("create an epoll", errno.into()))?;
        let mut fleet = Fleet { load: load.clone(), epoll, clients: Vec::new(), buffer: vec![0; BUFFER], busy: 0 };
        if load.work == Work::Connect {
            fleet.clients.resize_with(load.clients, || None);
        } else {
            fleet.log_in()?;
        }
        Ok(fleet)
    }

    fn log_in(&mut self) -> Result<(), LabError> {
        let deadline = Instant::now() + LIMIT;
        let mut ready = 0;
        while ready < self.load.clients {
            while self.clients.len() < self.load.clients && self.clients.len() - ready < LOGINS_AT_A_TIME {
                let index = self.clients.len();
                self.clients.push(None);
                self.connect(index)?;
            }
            for index in self.wait(NAP)? {
                ready += usize::from(self.advance(index)? == Progress::Ready);
            }
            if Instant::now() > deadline {
                return Err(late(&format!("{} logins ({ready} done)", self.load.clients), LIMIT));
            }
        }
        Ok(())
    }

    /// Keeps all clients busy for `window`.
    pub fn run(&mut self, window: Duration) -> Result<Run, LabError> {
        let start = Instant::now();
        let mut state = Running::new(start, window, self.load.clients);
        if self.load.pace.is_none() {
            for index in 0..self.clients.len() {
                self.start(index, start)?;
            }
        }
        loop {
            let now = Instant::now();
            state.look_at_clock(now);
            if !state.open && self.busy == 0 {
                break;
            }
            if now > state.deadline + LIMIT {
                return Err(late(&format!("{} replies", self.busy), LIMIT));
            }
            let nap = self.send_due(&mut state, now)?;
            for index in self.wait(nap)? {
                self.on_event(index, &mut state)?;
            }
        }
        state.run.elapsed = start.elapsed();
        Ok(state.run)
    }

    /// For a paced load: sends the commands that are due. Returns the longest time to sleep.
    fn send_due(&mut self, state: &mut Running, now: Instant) -> Result<Duration, LabError> {
        let Some(pace) = self.load.pace.filter(|_| state.open) else {
            return Ok(NAP);
        };
        let due = (now - state.start).as_secs_f64() * f64::from(pace);
        // A client that is still busy is passed over: the pace is then not kept, and the report shows it.
        let mut tries = self.clients.len();
        while (state.sent as f64) < due && tries > 0 {
            let index = state.turn % self.clients.len();
            state.turn += 1;
            tries -= 1;
            if self.clients[index].as_ref().is_some_and(Connection::is_idle) {
                self.start(index, now)?;
                state.sent += 1;
            }
        }
        let next = state.start + Duration::from_secs_f64((state.sent + 1) as f64 / f64::from(pace));
        Ok(next.saturating_duration_since(now).min(NAP))
    }

    fn on_event(&mut self, index: usize, state: &mut Running) -> Result<(), LabError> {
        let progress = self.advance(index)?;
        if progress == Progress::Waiting {
            return Ok(());
        }
        if progress == Progress::Ready {
            // Only with connections made during a run.
            return self.client(index)?.send_first();
        }
        let now = Instant::now();
        self.busy -= 1;
        state.completed(index, now - self.client(index)?.since);
        if self.load.work == Work::Connect {
            self.client(index)?.quit()?;
            self.clients[index] = None;
        }
        if state.look_at_clock(now) && self.load.pace.is_none() { self.start(index, now) } else { Ok(()) }
    }

    /// Begins one command, or one connection.
    fn start(&mut self, index: usize, now: Instant) -> Result<(), LabError> {
        self.busy += 1;
        if self.load.work == Work::Connect { self.connect(index) } else { self.client(index)?.send(now) }
    }

    fn connect(&mut self, index: usize) -> Result<(), LabError> {
        let connection = Connection::open(self.load.address, &self.load.work, index)?;
        epoll::add(&self.epoll, &connection, EventData::new_u64(index as u64), EventFlags::IN)
            .map_err(|errno| LabError::io("watch a socket", errno.into()))?;
        self.clients[index] = Some(connection);
        Ok(())
    }

    fn advance(&mut self, index: usize) -> Result<Progress, LabError> {
        let Some(Some(client)) = self.clients.get_mut(index) else {
            return Ok(Progress::Waiting);
        };
        client.on_readable(&mut self.buffer, &self.load.work, index)
    }

    fn client(&mut self, index: usize) -> Result<&mut Connection, LabError> {
        let client = self.clients.get_mut(index).and_then(Option::as_mut);
        client.ok_or_else(|| LabError::Protocol(format!("client {index} has no connection")))
    }

    fn wait(&mut self, nap: Duration) -> Result<Events, LabError> {
        let mut events = Events { list: [NO_EVENT; EVENTS], next: 0, count: 0 };
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(nap.subsec_nanos()) };
        events.count = match epoll::wait(&self.epoll, &mut events.list, Some(&timeout)) {
            Ok(count) => count,
            Err(rustix::io::Errno::INTR) => 0,
            Err(errno) => return Err(std::io::Error::from(errno)).context(|| "wait for sockets".to_owned()),
        };
        Ok(events)
    }
}

const NO_EVENT: Event = Event { flags: EventFlags::empty(), data: EventData::new_u64(0) };

/// A batch from the kernel, as client numbers.
struct Events {
    list: [Event; EVENTS],
    next: usize,
    count: usize,
}

impl Iterator for Events {
    type Item = usize;

    fn next(&mut self) -> Option<Self::Item> {
        let event = self.list[..self.count].get(self.next)?;
        self.next += 1;
        Some(usize::try_from(event.data.u64()).unwrap_or(usize::MAX))
    }
}

/// A run under way.
struct Running {
    start: Instant,
    deadline: Instant,
    /// Whether the window is still open.
    open: bool,
    /// Commands sent, and whose turn is next, when the load is paced.
    sent: u64,
    turn: usize,
    run: Run,
}

impl Running {
    fn new(start: Instant, window: Duration, clients: usize) -> Running {
        let run = Run { in_window: vec![0; clients], window, ..Run::default() };
        Running { start, deadline: start + window, open: true, sent: 0, turn: 0, run }
    }

    /// Closes the window when it is time; whether it is open.
    fn look_at_clock(&mut self, now: Instant) -> bool {
        self.open = self.open && now < self.deadline;
        self.open
    }

    fn completed(&mut self, index: usize, latency: Duration) {
        self.run.completed += 1;
        self.run.in_window[index] += u64::from(self.open);
        self.run.latency.record(latency);
    }
}

fn late(what: &str, limit: Duration) -> LabError {
    LabError::Deadline { what: what.to_owned(), limit, detail: String::new() }
}
