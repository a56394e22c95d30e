//! Those who wait for a connection: what they want, and what they get.

use super::HostgroupPool;
use super::lines::{Lines, Ticket};
use super::riders::{Got, Ridden, Rider};
use crate::backends::backend::Backend;
use crate::backends::connect::Raw;
use crate::hostgroups::choice::{AllowedConnections, Needs};
use crate::hostgroups::lane::Lane;
use crate::servers::server::ServerShared;
use crate::workers::worker::Worker;
use model::HostgroupId;
use session_state::collected::ServerError;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Why no backend was had.
#[derive(Debug)]
pub(crate) enum AcquireError {
    /// None became free in time: error 9001.
    Timeout {
        /// Hostgroup that was asked.
        hostgroup: HostgroupId,
        /// How long it was waited for, ms.
        waited_ms: u64,
        /// Empty, full or failing.
        reason: String,
    },
    /// The server refused the login; its own error goes to the client.
    Refused(ServerError),
    /// The login cannot be made with what is known of the password, or similar: text for the client.
    Impossible(String),
}

pub(super) enum Outcome {
    Waiting,
    Ready(Box<Backend>),
    Failed(AcquireError),
    /// Its statement is under way together with others'.
    Riding,
    /// What became of that.
    Ridden(Ridden),
    Taken,
}

/// What one who waits wants.
#[derive(Default)]
pub(crate) struct Wish {
    /// Which server and connection will do.
    pub needs: Needs,
    /// The session's collation, for a login.
    pub collation: u8,
    /// It wants a connection that is opened as its client logged in.
    pub raw: Option<Raw>,
    /// Its statement may be sent together with others'.
    pub rider: Option<Box<Rider>>,
}

impl Wish {
    /// A `fast_forward` session's own connection.
    pub(crate) fn own(collation: u8, raw: Raw) -> Self {
        Self { needs: Needs { connections: AllowedConnections::New, ..Needs::default() }, collation, raw: Some(raw), rider: None }
    }
}

/// What those of one line have in common.
#[derive(Clone)]
pub(super) struct Kind {
    pub(super) lane: Rc<Lane>,
    /// They take connections that others have used.
    pub(super) takes_used: bool,
    /// Each wants a server that is not far behind, and says how far that is.
    pub(super) is_choosy: bool,
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.lane, &other.lane) && (self.takes_used, self.is_choosy) == (other.takes_used, other.is_choosy)
    }
}

impl Kind {
    /// Whether they take idle backends of this lane.
    pub(super) fn takes_of(&self, lane: &Lane) -> bool {
        self.takes_used && std::ptr::eq(&raw const *self.lane, lane)
    }
}

/// All who wait for connections of one pool.
pub(super) type Waiters = Lines<Kind, Rc<Waiter>>;

/// One session's place in the queue.
pub(super) struct Waiter {
    pub(super) lane: Rc<Lane>,
    pub(super) wish: Wish,
    /// A connection of its own is being opened for it.
    pub(super) is_opening: Cell<bool>,
    /// The connection that it would have had next was put off: the hostgroup may have only so many a second.
    pub(super) is_throttled: Cell<bool>,
    /// It waits for other statements of this turn of the loop only, and has not been counted as waiting for a backend.
    pub(super) gathers: Cell<bool>,
    pub(super) since_us: u64,
    /// Since when it is in line: waiters stand in this order.
    pub(super) turn_us: u64,
    pub(super) ticket: Ticket,
    pub(super) outcome: RefCell<Outcome>,
    pub(super) waker: RefCell<Option<Waker>>,
}

impl Waiter {
    /// Its line.
    pub(super) fn kind(&self) -> Kind {
        Kind { lane: Rc::clone(&self.lane), takes_used: !self.is_loner(), is_choosy: self.is_choosy() }
    }

    /// Whether it takes no connection that others have used.
    pub(super) fn is_loner(&self) -> bool {
        !self.wish.needs.takes_used()
    }

    /// Whether it wants a server that is not far behind.
    pub(super) fn is_choosy(&self) -> bool {
        self.wish.needs.max_lag_ms.is_some()
    }

    /// Whether a connection to this server may be opened for it, now or when the server is full no more.
    pub(super) fn may_connect_to(&self, server: &ServerShared, now_ms: u64) -> bool {
        self.wish.needs.accept(server) && may_connect(&self.lane, server, now_ms)
    }

    /// Whether closing a connection to this server lets one be opened for it, which nobody else would lend it.
    pub(super) fn wants_room_on(&self, server: &ServerShared, now_ms: u64) -> bool {
        self.wish.raw.is_some()
            && !self.is_opening.get()
            && !self.waits_for_its_own()
            && server.room.is_full()
            && self.may_connect_to(server, now_ms)
    }

    /// Whether it waits for its user's own connections only: there may be no more of them.
    pub(super) fn waits_for_its_own(&self) -> bool {
        self.lane.is_used_up()
    }

    pub(super) fn finish(&self, outcome: Outcome) {
        *self.outcome.borrow_mut() = outcome;
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

/// Whether a connection of a lane to this server may be opened, now or when the server is full no more.
pub(super) fn may_connect(lane: &Lane, server: &ServerShared, now_ms: u64) -> bool {
    server.takes_work(now_ms) && !server.connects.are_backing_off(now_ms) && lane.may_ask(server, now_ms)
}

/// A queued request; leaves the queue when dropped.
pub(crate) struct Acquire {
    pub(super) worker: Rc<Worker>,
    pub(super) pool: Rc<HostgroupPool>,
    pub(super) waiter: Rc<Waiter>,
}

impl Acquire {
    /// Ready when a backend was assigned, none will be, or a rider needs none any more.
    pub(crate) fn poll_any(&mut self, cx: &mut Context<'_>) -> Poll<Result<Got, AcquireError>> {
        let mut outcome = self.waiter.outcome.borrow_mut();
        if let Outcome::Ridden(_) = *outcome
            && let Outcome::Ridden(ridden) = std::mem::replace(&mut *outcome, Outcome::Taken)
        {
            return Poll::Ready(Ok(Got::Ridden(ridden)));
        }
        drop(outcome);
        self.poll(cx).map_ok(Got::Backend)
    }

    /// Ready when a backend was assigned, or none will be.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Backend, AcquireError>> {
        let mut outcome = self.waiter.outcome.borrow_mut();
        match std::mem::replace(&mut *outcome, Outcome::Taken) {
            Outcome::Ready(backend) => Poll::Ready(Ok(*backend)),
            Outcome::Failed(e) => Poll::Ready(Err(e)),
            Outcome::Waiting | Outcome::Taken => {
                *outcome = Outcome::Waiting;
                *self.waiter.waker.borrow_mut() = Some(cx.waker().clone());
                Poll::Pending
            }
            under_way @ (Outcome::Riding | Outcome::Ridden(_)) => {
                *outcome = under_way;
                *self.waiter.waker.borrow_mut() = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        self.pool.loners.set(self.pool.loners.get() - usize::from(self.waiter.is_loner()));
        let outcome = self.waiter.outcome.replace(Outcome::Taken);
        if matches!(outcome, Outcome::Waiting) {
            self.pool.leave_queue(&self.worker, &self.waiter);
        }
        self.pool.choosy.set(self.pool.choosy.get() - usize::from(self.waiter.is_choosy()));
        match outcome {
            Outcome::Ready(backend) if self.waiter.wish.raw.is_some() => {
                drop(backend);
                self.pool.grow(&self.worker);
            }
            Outcome::Ready(backend) => self.pool.release(&self.worker, *backend),
            Outcome::Waiting | Outcome::Failed(_) | Outcome::Riding | Outcome::Ridden(_) | Outcome::Taken => {}
        }
    }
}
