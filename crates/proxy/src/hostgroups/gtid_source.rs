//! GTIDs that the proxy chooses for transactions beforehand, so that a COMMIT whose answer was lost can be looked up.
//!
//! Pure but for chance: one source (UUID) for each hostgroup and run of the proxy, drawn when it is first wanted, so that no
//! number is ever given out twice; and its numbers. Numbers that were certainly not used come back, because every number that
//! is left out makes `gtid_executed` of the servers longer.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Least time between two lines of the log that say why no GTID can be chosen, ms.
const LOG_EVERY_MS: u64 = 60_000;

/// A GTID that nobody else uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AssignedGtid {
    source: Arc<str>,
    number: u64,
}

impl fmt::Display for AssignedGtid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.source, self.number)
    }
}

/// The assigned GTIDs of a hostgroup.
#[derive(Debug, Default)]
pub(crate) struct GtidSource {
    source: OnceLock<Arc<str>>,
    numbers: Mutex<GtidNumbers>,
    /// Process clock (ms) plus one of the last line in the log; 0 for none.
    told_ms: AtomicU64,
}

#[derive(Debug, Default)]
struct GtidNumbers {
    /// Given out so far.
    used: u64,
    /// Of those, given back.
    free: BTreeSet<u64>,
}

impl GtidSource {
    /// One that nobody has; None when the system gives no random number.
    pub(crate) fn take(&self) -> Option<AssignedGtid> {
        let source = match self.source.get() {
            Some(source) => source,
            None => {
                let drawn = random_uuid()?;
                self.source.get_or_init(|| drawn)
            }
        };
        let mut numbers = self.numbers();
        let number = match numbers.free.pop_first() {
            Some(number) => number,
            None => {
                numbers.used += 1;
                numbers.used
            }
        };
        Some(AssignedGtid { source: Arc::clone(source), number })
    }

    /// This one was certainly not used, and no connection has it any more. INVARIANT: a server that has a GTID skips, without a
    /// word, what is done under it once more; whoever gives one back has proof.
    pub(crate) fn give_back(&self, gtid: &AssignedGtid) {
        if self.source.get().is_some_and(|source| *source == gtid.source) {
            self.numbers().free.insert(gtid.number);
        }
    }

    /// Whether it is time to say again why there are none.
    pub(crate) fn may_tell(&self, now_ms: u64) -> bool {
        let is_due = |last: u64| (last == 0 || now_ms + 1 >= last + LOG_EVERY_MS).then_some(now_ms + 1);
        self.told_ms.fetch_update(Ordering::AcqRel, Ordering::Acquire, is_due).is_ok()
    }

    fn numbers(&self) -> MutexGuard<'_, GtidNumbers> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A random UUID (RFC 9562, version 4) as MySQL writes it.
fn random_uuid() -> Option<Arc<str>> {
    let mut bytes = [0_u8; 16];
    aws_lc_rs::rand::fill(&mut bytes).ok()?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let n = u128::from_be_bytes(bytes);
    Some(
        format!("{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", n >> 96, n >> 80 & 0xffff, n >> 64 & 0xffff, n >> 48 & 0xffff, n & 0xffff_ffff_ffff)
            .into(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_given_once_and_come_back_lowest_first() {
        let gtids = GtidSource::default();
        let all: Vec<AssignedGtid> = (0..4).filter_map(|_| gtids.take()).collect();
        assert_eq!(all.iter().map(|gtid| gtid.number).collect::<Vec<_>>(), [1, 2, 3, 4]);
        gtids.give_back(&all[2]);
        gtids.give_back(&all[1]);
        let next: Vec<u64> = (0..3).filter_map(|_| gtids.take()).map(|gtid| gtid.number).collect();
        assert_eq!(next, [2, 3, 5]);
        GtidSource::default().take().iter().for_each(|other| gtids.give_back(other));
        assert_eq!(gtids.take().map(|gtid| gtid.number), Some(6), "what another hostgroup gave is not taken back");
    }

    #[test]
    fn an_assigned_gtid_has_a_source_of_its_own() {
        let (a, b) = (GtidSource::default().take().unwrap(), GtidSource::default().take().unwrap());
        assert_ne!(a.source, b.source);
        let text = a.to_string();
        let (uuid, number) = text.split_once(':').unwrap();
        let lengths: Vec<usize> = uuid.split('-').map(str::len).collect();
        assert_eq!((lengths, number), (vec![8, 4, 4, 4, 12], "1"));
        assert!(uuid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-') && &uuid[14..15] == "4");
    }

    #[test]
    fn one_line_a_minute() {
        let gtids = GtidSource::default();
        let told: Vec<bool> = [0, 1, 59_999, 60_000, 60_001].into_iter().map(|now_ms| gtids.may_tell(now_ms)).collect();
        assert_eq!(told, [true, false, false, true, false]);
    }
}
