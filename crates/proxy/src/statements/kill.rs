//! KILL QUERYs that are on their way: one may arrive late, when another statement runs on the connection.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use tokio::sync::Notify;

/// The KILL QUERYs for one statement.
#[derive(Default)]
pub(crate) struct Kill {
    /// The statement is over.
    is_withdrawn: AtomicBool,
    /// A client wants the statement to end, not only the proxy.
    is_clients: AtomicBool,
    /// Those that were sent and not answered.
    out: AtomicU32,
    changed: Notify,
}

/// One that is on its way, as far as anybody knows: also when nobody waits for its answer any more.
pub(crate) struct Out<'a>(&'a Kill);

impl Out<'_> {
    pub(crate) fn answered(self) {
        self.0.out.fetch_sub(1, Ordering::AcqRel);
        self.0.changed.notify_waiters();
    }
}

impl Kill {
    /// A client wants the statement to end. True the first time.
    pub(crate) fn is_clients_first(&self) -> bool {
        !self.is_clients.swap(true, Ordering::AcqRel)
    }

    /// The caller sends one; None when the statement is over.
    pub(crate) fn begin(&self) -> Option<Out<'_>> {
        if self.is_withdrawn.load(Ordering::Acquire) {
            return None;
        }
        self.out.fetch_add(1, Ordering::AcqRel);
        Some(Out(self))
    }

    /// None is sent from here on. True when one is on its way.
    pub(crate) fn withdraw(&self) -> bool {
        self.is_withdrawn.store(true, Ordering::Release);
        self.out.load(Ordering::Acquire) > 0
    }

    /// None is on its way any more.
    pub(crate) async fn over(&self) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.out.load(Ordering::Acquire) == 0 {
                return;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn what_is_withdrawn_is_not_sent_and_what_is_out_is_waited_for() {
        let kill = Kill::default();
        kill.begin().unwrap().answered();
        let out = kill.begin().unwrap();
        assert!(kill.withdraw());
        assert!(kill.begin().is_none());
        assert!(tokio::time::timeout(Duration::from_millis(1), kill.over()).await.is_err());
        out.answered();
        kill.over().await;
        assert!(!kill.withdraw());
    }

    #[tokio::test]
    async fn what_nobody_waits_for_any_more_may_still_arrive() {
        let kill = Kill::default();
        assert!(kill.begin().is_some(), "its answer is not waited for");
        assert!(kill.withdraw());
        assert!(tokio::time::timeout(Duration::from_millis(1), kill.over()).await.is_err());
    }
}
