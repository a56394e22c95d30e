//! When a copied statement may start: [`LiveOrder`] with those who wait for it, on all workers.

use super::{Copying, lock};
use capture::{Begun, LiveOrder, Locks, Place, Waiting};
use std::future::poll_fn;
use std::sync::Arc;
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
        Some(OrderTicket { copying: Arc::clone(&self.copying), place })
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
}

impl OrderTicket {
    /// Whether a write of another session ran beside it at the original.
    pub(crate) fn is_raced(&self) -> bool {
        self.place.is_raced
    }

    /// Waits until it may start.
    pub(crate) async fn turn(&self) {
        poll_fn(|cx| {
            let mut gate = lock(&self.copying.gate);
            let Gate { order, waiting } = &mut *gate;
            if order.may_start(&self.place) {
                waiting.remove(&self.place);
                return Poll::Ready(());
            }
            waiting.insert(order, &self.place, cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Drop for OrderTicket {
    fn drop(&mut self) {
        let woken: Vec<Waker> = {
            let mut gate = lock(&self.copying.gate);
            let Gate { order, waiting } = &mut *gate;
            waiting.remove(&self.place);
            order.done(&self.place);
            std::iter::from_fn(|| waiting.pop(order)).collect()
        };
        woken.into_iter().for_each(Waker::wake);
    }
}
