//! Statements that take as long as their work does. A thread of its own answers each, so that the engine serves other sessions.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::reply::Reply;

/// The work of a thread; its reply is the statement's.
pub(super) type Work = Box<dyn FnOnce() -> Reply + Send>;

/// Most orders that are under way at a time.
const MOST: usize = 4;

/// See the module.
#[derive(Default)]
pub(super) struct Orders {
    /// Of the statement at hand.
    given: Option<Work>,
    /// Shared by all running orders: its count is theirs plus one.
    under_way: Arc<()>,
}

impl Orders {
    /// The statement at hand is answered by `work`, unless too many are under way.
    pub(super) fn give(&mut self, work: Work) -> Result<(), String> {
        if Arc::strong_count(&self.under_way) > MOST {
            return Err(format!("{MOST} commands are already under way: wait until one is done"));
        }
        self.given = Some(work);
        Ok(())
    }

    /// Answers the present statement with `reply`, or later with the work that it gave.
    pub(super) fn answer(&mut self, reply: Reply, to: oneshot::Sender<Reply>) {
        let Some(work) = self.given.take() else {
            let _ = to.send(reply);
            return;
        };
        let place = Arc::clone(&self.under_way);
        let carry_out = move || {
            // A fault of ours costs one order.
            let reply = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Reply::refused("internal error; the log says more"));
            drop(place);
            let _ = to.send(reply);
        };
        if let Err(error) = std::thread::Builder::new().name("admin-order".to_owned()).spawn(carry_out) {
            tracing::error!("no thread for an order: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::take_over::Frozen;

    fn run(work: Work) -> Reply {
        let (mut orders, (to, answer)) = (Orders::default(), oneshot::channel());
        orders.give(work).unwrap();
        orders.answer(Reply::done(), to);
        answer.blocking_recv().unwrap()
    }

    /// An upgrade freezes the admin port as long as its work lasts.
    #[test]
    fn work_that_panics_or_is_refused_leaves_nothing_frozen() {
        let frozen = Frozen::default();
        let freeze = frozen.freeze();
        let reply = run(Box::new(move || -> Reply {
            let _held = freeze;
            panic!("a fault of ours")
        }));
        assert!(matches!(&reply, Reply::Err { text, .. } if text.starts_with("internal error")), "{reply:?}");
        assert!(!frozen.is_set());
        let mut full = Orders::default();
        let _under_way: Vec<Arc<()>> = (0..MOST).map(|_| Arc::clone(&full.under_way)).collect();
        let freeze = frozen.freeze();
        assert!(frozen.is_set());
        full.give(Box::new(move || {
            freeze.keep();
            Reply::done()
        }))
        .unwrap_err();
        assert!(!frozen.is_set());
        let freeze = frozen.freeze();
        run(Box::new(move || {
            freeze.keep();
            Reply::done()
        }));
        assert!(frozen.is_set(), "the other process has taken over");
    }
}
