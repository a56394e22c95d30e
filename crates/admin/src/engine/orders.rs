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
