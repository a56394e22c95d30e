//! The GTIDs that clients of one worker got OK for, the latest ones: whether a transaction that only a lost server has was acknowledged
//! (`stats_tidegate_errant`). Servers report GTIDs while causal reads are on.

use std::collections::VecDeque;

/// Most that are kept; beyond it the oldest are dropped. About 600 KB with MySQL's GTIDs.
const KEPT: usize = 10_000;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Acknowledged(VecDeque<Box<[u8]>>);

impl Acknowledged {
    /// A client gets OK for these: one, mostly.
    pub(crate) fn add(&mut self, gtids: &[u8]) {
        for gtid in gtids.split(|byte| *byte == b',') {
            if self.0.len() == KEPT {
                self.0.pop_front();
            }
            self.0.push_back(gtid.trim_ascii().to_ascii_lowercase().into());
        }
    }

    /// Which of these are among them.
    pub(crate) fn which(&self, gtids: &[String]) -> Vec<bool> {
        gtids.iter().map(|gtid| self.0.iter().any(|known| known.eq_ignore_ascii_case(gtid.as_bytes()))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_kept() {
        let mut all = Acknowledged::default();
        all.add(b"AA:7, bb:1");
        all.add(b"0-1-5");
        let asked = ["aa:7", "bb:1", "0-1-5", "0-1-6"].map(str::to_owned);
        assert_eq!(all.which(&asked), [true, true, true, false]);
        (0..KEPT).for_each(|number| all.add(format!("0-2-{number}").as_bytes()));
        assert_eq!(all.which(&asked), [false; 4]);
        assert_eq!(all.0.len(), KEPT);
    }
}
