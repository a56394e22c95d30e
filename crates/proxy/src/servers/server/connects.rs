//! How connects to a server go: how many are under way, whether they fail, and how long none is tried then.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// First pause after a failed connect, ms; doubles with each further failure.
const RETRY_FIRST_MS: u64 = 10;
/// Longest pause between connects to a failing server, ms.
const RETRY_MAX_MS: u64 = 1000;

/// How long no connect is tried after one that failed behind so many others, ms.
pub(crate) fn pause_ms(failures: u32) -> u64 {
    (RETRY_FIRST_MS << failures.min(16)).min(RETRY_MAX_MS)
}

/// See the module.
#[derive(Default)]
pub(crate) struct Connects {
    under_way: AtomicU32,
    /// Those of them that take longer than they should.
    stalled: AtomicU32,
    /// Process clock (ms) before which no new connection is tried; 0 when healthy.
    retry_at_ms: AtomicU64,
    failures: AtomicU32,
    /// The last of them was none of reaching the server: that it answers pings ends no pause.
    is_unfit: AtomicBool,
    last_error: Mutex<Option<String>>,
}

impl Connects {
    /// Takes the right to connect now: at most `concurrency` at a time; one at a time after failures.
    pub(super) fn begin(&self, concurrency: u32) -> bool {
        let limit = if self.are_failing() { 1 } else { concurrency };
        self.under_way.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| (n < limit).then_some(n + 1)).is_ok()
    }

    /// One of them is over.
    pub(super) fn end(&self) {
        self.under_way.fetch_sub(1, Ordering::AcqRel);
    }

    /// One of them takes longer than it should, until [`Self::end_stall`].
    pub(super) fn begin_stall(&self) {
        self.stalled.fetch_add(1, Ordering::AcqRel);
    }

    /// That one is over.
    pub(super) fn end_stall(&self) {
        self.stalled.fetch_sub(1, Ordering::AcqRel);
    }

    /// A login succeeded; answers how many connects had failed before.
    pub(crate) fn succeeded(&self) -> u32 {
        self.end_pause();
        self.failures.swap(0, Ordering::AcqRel)
    }

    /// A connect failed for a reason that concerns the server, before it took the login or after it (`was_let_in`); pauses grow
    /// until one succeeds.
    pub(crate) fn failed(&self, error: &str, was_let_in: bool, now_ms: u64) {
        self.is_unfit.store(was_let_in, Ordering::Release);
        let pause_ms = pause_ms(self.failures.fetch_add(1, Ordering::AcqRel));
        self.retry_at_ms.store(now_ms + pause_ms, Ordering::Release);
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_owned());
    }

    /// The server answered a ping: the next connect need not wait, if what failed was to reach it.
    pub(super) fn answered(&self) {
        if !self.is_unfit.load(Ordering::Acquire) {
            self.end_pause();
        }
    }

    /// The next connect need not wait.
    pub(super) fn end_pause(&self) {
        self.retry_at_ms.store(0, Ordering::Release);
    }

    /// The server was out and is back: failures of before say nothing of it.
    pub(super) fn begin_anew(&self) {
        self.end_pause();
        self.failures.store(0, Ordering::Release);
    }

    /// Connections that are being made.
    pub(crate) fn under_way(&self) -> u32 {
        self.under_way.load(Ordering::Acquire)
    }

    /// True while a connect takes longer than it should.
    pub(crate) fn are_stalling(&self) -> bool {
        self.stalled.load(Ordering::Acquire) > 0
    }

    /// True while connects fail and the pause before the next try is not over.
    pub(crate) fn are_backing_off(&self, now_ms: u64) -> bool {
        self.retry_at_ms.load(Ordering::Acquire) > now_ms
    }

    /// True while connects fail: one is tried at a time.
    pub(crate) fn are_failing(&self) -> bool {
        self.failures.load(Ordering::Acquire) > 0
    }

    /// The last connect error, while connects fail.
    pub(crate) fn last_error(&self) -> Option<String> {
        if !self.are_failing() {
            return None;
        }
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_from_ten_milliseconds_to_a_second() {
        let pauses = [0, 1, 2, 6, 7, 16, 17, u32::MAX].map(pause_ms);
        assert_eq!(pauses, [10, 20, 40, 640, 1000, 1000, 1000, 1000]);
        let connects = Connects::default();
        for (now_ms, until_ms) in [(0, 10), (100, 120), (200, 240)] {
            connects.failed("refused", false, now_ms);
            assert!(connects.are_backing_off(until_ms - 1) && !connects.are_backing_off(until_ms), "{now_ms}");
        }
        assert_eq!(connects.succeeded(), 3);
        connects.failed("refused", false, 300);
        assert!(connects.are_backing_off(309) && !connects.are_backing_off(310), "a success ends the row of failures");
    }

    #[test]
    fn one_connect_is_tried_at_a_time_while_they_fail() {
        let connects = Connects::default();
        assert!(connects.begin(2) && connects.begin(2) && !connects.begin(2));
        connects.failed("refused", false, 0);
        connects.end();
        assert!(!connects.begin(2), "the other one is under way still");
        connects.end();
        assert!(connects.begin(2) && !connects.begin(2));
        connects.succeeded();
        assert!(connects.begin(2));
        assert_eq!(connects.under_way(), 2);
    }

    #[test]
    fn an_error_is_shown_while_connects_fail() {
        let connects = Connects::default();
        assert_eq!(connects.last_error(), None);
        connects.failed("refused", false, 0);
        connects.failed("timed out", false, 0);
        assert_eq!(connects.last_error().as_deref(), Some("timed out"));
        connects.end_pause();
        assert!(connects.are_failing() && connects.last_error().is_some(), "a pause that ends early is no success");
        connects.begin_anew();
        assert_eq!(connects.last_error(), None);
    }

    #[test]
    fn an_answer_ends_the_pause_of_who_could_not_be_reached() {
        let connects = Connects::default();
        for (was_let_in, backs_off) in [(false, false), (true, true), (false, false)] {
            connects.failed("an error", was_let_in, 1000);
            connects.answered();
            assert_eq!(connects.are_backing_off(1001), backs_off, "{was_let_in}");
            assert!(connects.are_failing());
        }
    }

    #[test]
    fn a_server_stalls_as_long_as_one_of_its_connects_does() {
        let connects = Connects::default();
        connects.begin_stall();
        connects.begin_stall();
        connects.end_stall();
        assert!(connects.are_stalling());
        connects.end_stall();
        assert!(!connects.are_stalling());
    }
}
