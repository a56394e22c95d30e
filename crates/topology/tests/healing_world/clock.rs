//! Virtual time, and the tasks that live in it: one thread, no waiting, the same order in every run.
//!
//! A task is polled whenever anything happens. A frozen task is not polled; a dead one is dropped, and what it sent goes on by itself.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

type Work = Pin<Box<dyn Future<Output = ()>>>;

/// Whose task it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Servers, network, clients, faults: they go on whatever becomes of a healer.
    World,
    /// The healer with this number.
    Healer(usize),
}

/// See the module.
#[derive(Default)]
pub(crate) struct Clock {
    now_ms: Cell<u64>,
    timers: RefCell<BTreeSet<u64>>,
    tasks: RefCell<Vec<(Owner, Option<Work>)>>,
    /// Healers that are not polled.
    frozen: RefCell<BTreeSet<usize>>,
    /// Healers whose tasks end after the present poll.
    doomed: RefCell<BTreeSet<usize>>,
}

impl Clock {
    pub(crate) fn now_ms(&self) -> u64 {
        self.now_ms.get()
    }

    pub(crate) fn spawn(&self, owner: Owner, work: impl Future<Output = ()> + 'static) {
        self.tasks.borrow_mut().push((owner, Some(Box::pin(work))));
    }

    pub(crate) fn freeze(&self, healer: usize, is_frozen: bool) {
        self.frozen.borrow_mut().retain(|other| *other != healer);
        self.frozen.borrow_mut().extend(is_frozen.then_some(healer));
    }

    pub(crate) fn is_frozen(&self, healer: usize) -> bool {
        self.frozen.borrow().contains(&healer)
    }

    /// All its tasks end.
    pub(crate) fn kill(&self, healer: usize) {
        self.doomed.borrow_mut().insert(healer);
    }

    /// Waits for so long.
    pub(crate) async fn sleep(&self, ms: u64) {
        self.until(self.now_ms() + ms, || false).await;
    }

    /// Waits until something is so, at most until a time. False if the time came first.
    pub(crate) async fn until(&self, at_ms: u64, is_so: impl Fn() -> bool) -> bool {
        let mut is_set = false;
        let poll = |_: &mut Context<'_>| {
            if is_so() {
                return Poll::Ready(true);
            }
            if self.now_ms() >= at_ms {
                return Poll::Ready(false);
            }
            if !std::mem::replace(&mut is_set, true) {
                self.timers.borrow_mut().insert(at_ms);
            }
            Poll::Pending
        };
        std::future::poll_fn(poll).await
    }

    /// Runs everything until a time.
    pub(crate) fn run_until(&self, end_ms: u64) {
        loop {
            self.poll_all();
            let next = self.timers.borrow().first().copied();
            let Some(next) = next.filter(|at| *at <= end_ms) else { break };
            self.timers.borrow_mut().pop_first();
            self.now_ms.set(next.max(self.now_ms()));
        }
        self.now_ms.set(end_ms);
    }

    /// Every task ends.
    pub(crate) fn end(&self) {
        let tasks = std::mem::take(&mut *self.tasks.borrow_mut());
        drop(tasks);
    }

    fn poll_all(&self) {
        let mut context = Context::from_waker(Waker::noop());
        let mut place = 0;
        // Tasks that begin meanwhile are at the end.
        while place < self.tasks.borrow().len() {
            let (owner, work) = {
                let mut tasks = self.tasks.borrow_mut();
                let is_still = matches!(tasks[place].0, Owner::Healer(healer) if self.is_frozen(healer));
                (tasks[place].0, if is_still { None } else { tasks[place].1.take() })
            };
            if let Some(mut work) = work
                && work.as_mut().poll(&mut context).is_pending()
            {
                self.tasks.borrow_mut()[place] = (owner, Some(work));
            }
            self.bury();
            place += 1;
        }
        self.tasks.borrow_mut().retain(|(_, work)| work.is_some());
    }

    fn bury(&self) {
        for healer in std::mem::take(&mut *self.doomed.borrow_mut()) {
            self.frozen.borrow_mut().remove(&healer);
            let of_it = |(owner, work): &mut (Owner, Option<Work>)| if *owner == Owner::Healer(healer) { work.take() } else { None };
            // Dropped when nothing is borrowed: the end of a connection is an event of its own.
            let dead: Vec<Work> = self.tasks.borrow_mut().iter_mut().filter_map(of_it).collect();
            drop(dead);
        }
    }
}
