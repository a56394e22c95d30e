//! When a copied statement may start: [`LiveOrder`] with those who wait for it, on all workers.

use super::{Copying, lock};
use capture::{Begun, LiveOrder, Locks, Place, Waiting};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Poll, Waker};

/// See the module.
#[derive(Default)]
pub(super) struct Gate {
    order: LiveOrder,
    waiting: Waiting<Waker>,
}

/// A statement that runs at the original.
pub(crate) struct Beginning {
    copying: Arc<Copying>,
    begun: Option<Begun>,
}

impl Beginning {
    /// It begins now.
    pub(crate) fn new(copying: &Arc<Copying>, locks: Locks) -> Self {
        let begun = lock(&copying.gate).order.begin(locks);
        Self { copying: Arc::clone(copying), begun: Some(begun) }
    }

    /// Its answer is complete: whatever begins later comes behind it. None: it has a ticket already.
    pub(crate) fn end(mut self) -> Option<OrderTicket> {
        self.ends(LiveOrder::end)
    }

    /// The same for the victim of a deadlock, whose transaction was rolled back.
    pub(crate) fn end_victim(mut self) -> Option<OrderTicket> {
        self.ends(LiveOrder::end_victim)
    }

    fn ends(&mut self, end: impl FnOnce(&mut LiveOrder, Begun) -> Place) -> Option<OrderTicket> {
        let begun = self.begun.take()?;
        let place = end(&mut lock(&self.copying.gate).order, begun);
        Some(OrderTicket { copying: Arc::clone(&self.copying), place, is_passed: false, is_stuck: false })
    }
}

impl Drop for Beginning {
    fn drop(&mut self) {
        if let Some(begun) = self.begun.take() {
            lock(&self.copying.gate).order.forget(begun);
        }
    }
}

/// A statement that has not ended on the shadow. Dropped, it has.
pub(crate) struct OrderTicket {
    copying: Arc<Copying>,
    place: Place,
    /// Nobody waits for it any more.
    is_passed: bool,
    /// Statements of transactions with locks need not wait for anything while it runs.
    is_stuck: bool,
}

impl OrderTicket {
    /// Whether a write of another session ran beside it at the original, or runs beside it out of order.
    pub(crate) fn is_raced(&self) -> bool {
        self.place.is_raced
    }

    /// Whether it may take or release locks.
    pub(crate) fn is_write(&self) -> bool {
        self.place.is_write()
    }

    /// Waits until it may start.
    pub(crate) async fn turn(&mut self) {
        poll_fn(|cx| {
            let mut gate = lock(&self.copying.gate);
            let Gate { order, waiting } = &mut *gate;
            if order.may_start(&self.place) {
                waiting.remove(&self.place);
                self.place.is_raced |= order.has_passed();
                return Poll::Ready(());
            }
            waiting.insert(order, &self.place, cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// It runs, and may wait for a lock of a transaction that waits for it: the others need not wait any more. A read holds them up: it waits
    /// for no such lock.
    pub(crate) fn pass(&mut self) {
        if self.place.is_write() && !std::mem::replace(&mut self.is_passed, true) {
            self.may_be_overtaken(!self.is_stuck);
            self.leave(|order, place| order.pass(place));
        }
    }

    /// It still waits for a lock. The transaction that holds the lock may wait for what stands behind this statement in its session, so until
    /// this one ends, statements of transactions with locks may start out of order.
    pub(crate) fn stick(&mut self) {
        if self.place.is_write() && !std::mem::replace(&mut self.is_stuck, true) {
            self.may_be_overtaken(!self.is_passed);
            self.copying.stuck.send_modify(|stuck| *stuck += 1);
        }
    }

    /// Later statements may overtake it from now on. It counts once.
    fn may_be_overtaken(&mut self, is_new: bool) {
        self.copying.run.overtaken.fetch_add(u64::from(is_new), Ordering::Relaxed);
        self.place.is_raced = true;
    }

    /// It starts out of order.
    pub(crate) fn overtake(&mut self) {
        self.place.is_raced = true;
        lock(&self.copying.gate).waiting.remove(&self.place);
    }

    fn leave(&self, leave: impl FnOnce(&mut LiveOrder, &Place)) {
        let woken: Vec<Waker> = {
            let mut gate = lock(&self.copying.gate);
            let Gate { order, waiting } = &mut *gate;
            waiting.remove(&self.place);
            leave(order, &self.place);
            std::iter::from_fn(|| waiting.pop(order)).collect()
        };
        woken.into_iter().for_each(Waker::wake);
    }
}

impl Drop for OrderTicket {
    fn drop(&mut self) {
        if self.is_stuck {
            self.copying.stuck.send_modify(|stuck| *stuck -= 1);
        }
        if self.is_passed {
            lock(&self.copying.gate).order.done_passed();
        } else {
            self.leave(LiveOrder::done);
        }
    }
}
