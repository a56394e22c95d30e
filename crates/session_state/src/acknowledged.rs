//! The GTIDs that clients of one worker, or of several ones, got OK for, the latest ones: whether a transaction that only a lost server has was acknowledged
//! (`stats_tidegate_errant`). Servers report GTIDs while causal reads are on.

use std::collections::{HashMap, VecDeque};

/// Most that are kept of one worker; beyond it the oldest are dropped. About 600 KB with MySQL's GTIDs.
const KEPT: usize = 10_000;
/// Longest GTID that is kept, bytes: a tag has 32 at most.
const LONGEST: usize = 100;
/// Longest range that is kept, transactions.
const MOST_OF_RANGE: u64 = 16;

/// See the module.
#[derive(Debug)]
pub struct Acknowledged {
    latest: VecDeque<Box<[u8]>>,
    most: usize,
    /// How many were added so far, dropped ones too.
    count: u64,
}

impl Default for Acknowledged {
    fn default() -> Self {
        Self::of_workers(1)
    }
}

impl Acknowledged {
    /// Room for what so many workers keep.
    pub fn of_workers(workers: usize) -> Self {
        Self { latest: VecDeque::new(), most: KEPT.saturating_mul(workers.max(1)), count: 0 }
    }

    /// A client gets OK for these: one, mostly, or a short range. Whatever is longer is some other list, and is left out.
    pub fn add(&mut self, gtids: &[u8]) {
        for gtid in gtids.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|gtid| (1..=LONGEST).contains(&gtid.len())) {
            let gtid = gtid.to_ascii_lowercase();
            match range(&gtid) {
                None => self.keep(gtid),
                Some((source, from, to)) if to.saturating_sub(from) < MOST_OF_RANGE => {
                    (from..=to).for_each(|number| self.keep([source, number.to_string().as_bytes()].concat()));
                }
                Some(_) => {}
            }
        }
    }

    fn keep(&mut self, gtid: Vec<u8>) {
        if self.latest.len() == self.most {
            self.latest.pop_front();
        }
        self.latest.push_back(gtid.into());
        self.count += 1;
    }

    /// How many were added so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// All of them.
    pub fn all(&self) -> Vec<String> {
        self.since(0)
    }

    /// Those that were added since [`Self::count`] was this, as far as they are kept.
    pub fn since(&self, count: u64) -> Vec<String> {
        let added = usize::try_from(self.count.saturating_sub(count)).unwrap_or(usize::MAX);
        let older = self.latest.len().saturating_sub(added);
        self.latest.iter().skip(older).map(|gtid| String::from_utf8_lossy(gtid).into_owned()).collect()
    }

    /// Which of these are among them. One pass, however many are asked for.
    pub fn which(&self, gtids: &[String]) -> Vec<bool> {
        let places: HashMap<Vec<u8>, usize> =
            gtids.iter().enumerate().map(|(place, gtid)| (gtid.to_ascii_lowercase().into_bytes(), place)).collect();
        let mut found = vec![false; gtids.len()];
        for place in self.latest.iter().filter_map(|known| places.get(&known[..])) {
            found[*place] = true;
        }
        found
    }
}

/// `uuid:7-9` of MySQL: what stands before the numbers, the first and the last.
fn range(gtid: &[u8]) -> Option<(&[u8], u64, u64)> {
    let colon = gtid.iter().rposition(|byte| *byte == b':')?;
    let (from, to) = std::str::from_utf8(&gtid[colon + 1..]).ok()?.split_once('-')?;
    Some((&gtid[..=colon], from.parse().ok()?, to.parse().ok()?))
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
        assert_eq!(all.all(), ["aa:7", "bb:1", "0-1-5"]);
        all.add(b"cc:7-8,cc:1-100");
        assert_eq!(all.which(&["CC:7", "cc:8", "cc:9", "cc:1"].map(str::to_owned)), [true, true, false, false]);
        all.add(&[b'x'; LONGEST + 1]);
        assert_eq!(all.latest.len(), 5);
        (0..KEPT).for_each(|number| all.add(format!("0-2-{number}").as_bytes()));
        assert_eq!(all.which(&asked), [false; 4]);
        assert_eq!(all.latest.len(), KEPT);
    }

    #[test]
    fn those_since_a_moment_are_told() {
        let mut all = Acknowledged::of_workers(2);
        (0..KEPT).for_each(|number| all.add(format!("0-1-{number}").as_bytes()));
        let count = all.count();
        assert_eq!((all.since(count).len(), all.since(count + 1).len(), all.since(0).len()), (0, 0, KEPT));
        (0..2 * KEPT).for_each(|number| all.add(format!("0-2-{number}").as_bytes()));
        assert_eq!((all.since(count).len(), all.since(all.count() - 1)), (2 * KEPT, vec![format!("0-2-{}", 2 * KEPT - 1)]));
    }
}
