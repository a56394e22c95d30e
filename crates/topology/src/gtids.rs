//! Sets of GTIDs, and how many transactions one has that another lacks.
//!
//! Pure. A set is numbers by stream: MySQL counts by source (and tag), MariaDB by domain, where having one number is having
//! all before it. <https://dev.mysql.com/doc/refman/8.4/en/replication-gtids-concepts.html>,
//! <https://mariadb.com/kb/en/gtid/>. INVARIANT: the intervals of a stream are sorted, and neither overlap nor touch.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Both ends belong to it.
type Interval = (u64, u64);

/// What a server has executed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GtidSet(BTreeMap<Box<str>, Vec<Interval>>);

impl GtidSet {
    /// From a server's words: `gtid_executed` of MySQL (`uuid:1-5:7:tag:1-3,...`) or a position of MariaDB
    /// (`domain-server-number,...`). None for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let mut set = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match part.split_once(':') {
                Some((source, rest)) => set.add_source(source, rest)?,
                None => set.add_position(part)?,
            }
        }
        for intervals in set.0.values_mut() {
            join(intervals);
        }
        Some(set)
    }

    /// How many transactions of this set another one lacks.
    pub fn missing_in(&self, other: &Self) -> u64 {
        let missing = self.0.iter().map(|(stream, own)| {
            let has = other.0.get(stream).map_or(&[][..], Vec::as_slice);
            size(own).saturating_sub(shared(own, has))
        });
        missing.fold(0, u64::saturating_add)
    }

    /// What is of this source (MySQL's `server_uuid`), with its tags.
    pub fn of_source(&self, uuid: &str) -> Self {
        let uuid = uuid.to_ascii_lowercase();
        let is_of = |stream: &str| stream.split(':').next() == Some(uuid.as_str());
        Self(self.0.iter().filter(|(stream, _)| is_of(stream)).map(|(stream, own)| (stream.clone(), own.clone())).collect())
    }

    fn add_position(&mut self, gtid: &str) -> Option<()> {
        let mut numbers = gtid.splitn(3, '-').map(|number| number.parse::<u64>().ok());
        let (domain, _server, number) = (numbers.next()??, numbers.next()??, numbers.next()??);
        if number > 0 {
            self.0.entry(domain.to_string().into()).or_default().push((1, number));
        }
        Some(())
    }

    /// Intervals follow their source, or the last tag before them.
    fn add_source(&mut self, source: &str, rest: &str) -> Option<()> {
        let source = source.trim().to_ascii_lowercase();
        let mut stream = source.clone();
        for item in rest.split(':').map(str::trim) {
            if item.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
                if !item.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
                    return None;
                }
                stream = format!("{source}:{}", item.to_ascii_lowercase());
                continue;
            }
            let (from, to) = item.split_once('-').unwrap_or((item, item));
            let interval = (from.parse().ok()?, to.parse().ok()?);
            if interval.0 == 0 || interval.0 > interval.1 {
                return None;
            }
            self.0.entry(stream.as_str().into()).or_default().push(interval);
        }
        Some(())
    }
}

/// Brings intervals into the form that the module promises.
fn join(intervals: &mut Vec<Interval>) {
    intervals.sort_unstable();
    let mut joined: Vec<Interval> = Vec::with_capacity(intervals.len());
    for (from, to) in intervals.drain(..) {
        match joined.last_mut().filter(|last| from <= last.1.saturating_add(1)) {
            Some(last) => last.1 = last.1.max(to),
            None => joined.push((from, to)),
        }
    }
    *intervals = joined;
}

fn size(intervals: &[Interval]) -> u64 {
    intervals.iter().map(|(from, to)| (to - from).saturating_add(1)).fold(0, u64::saturating_add)
}

/// How many numbers are in both.
fn shared(a: &[Interval], b: &[Interval]) -> u64 {
    let (mut i, mut j, mut count) = (0, 0, 0_u64);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        let (from, to) = (x.0.max(y.0), x.1.min(y.1));
        if from <= to {
            count = count.saturating_add((to - from).saturating_add(1));
        }
        if x.1 < y.1 { i += 1 } else { j += 1 }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(own: &str, other: &str) -> u64 {
        GtidSet::parse(own).unwrap().missing_in(&GtidSet::parse(other).unwrap())
    }

    #[test]
    fn what_is_of_a_source() {
        let set = GtidSet::parse("aa:1-10:5:tag:1-3,bb:1-5").unwrap();
        assert_eq!(set.of_source("AA"), GtidSet::parse("aa:1-10:tag:1-3").unwrap());
        assert_eq!(set.of_source("a"), GtidSet::default());
    }

    #[test]
    fn mysql_counts_by_source_and_tag() {
        assert_eq!(missing("aa:1-10", "aa:1-7"), 3);
        assert_eq!(missing("aa:1-10", "AA:1-2:5:7-20"), 3, "3, 4 and 6");
        assert_eq!(missing("aa:1-3,\nbb:1-5", "aa:1-3"), 5, "a source that the other has never heard of");
        assert_eq!(missing("aa:1-3", "aa:1-3,cc:1-100"), 0, "what only the other has is no lag");
        assert_eq!(missing("aa:1-5:tag:1-3", "aa:1-5"), 3);
        assert_eq!(missing("aa:1-5:tag:1-3:other:1", "aa:1-5:tag:1-2"), 2);
        assert_eq!(missing("aa:5:1-2:3-4", "aa:1"), 4);
        assert_eq!(missing("", "aa:1"), 0);
    }

    #[test]
    fn mariadb_counts_by_domain_whoever_wrote() {
        assert_eq!(missing("0-1-57", "0-2-50"), 7);
        assert_eq!(missing("0-1-57,1-1-3", "0-1-57"), 3);
        assert_eq!(missing("0-1-57", "0-1-99,7-7-7"), 0);
        assert_eq!(missing("0-1-57,0-2-60", "0-1-57"), 3, "two positions of a domain: the later one");
        assert_eq!(missing("0-1-0", ""), 0);
    }

    #[test]
    fn anything_else_is_no_set() {
        for text in ["x", "0-1", "0-1-x", "aa:x:y-", "aa:0-1", "aa:5-3", "aa:1-b", "0-1-2-3"] {
            assert_eq!(GtidSet::parse(text), None, "{text}");
        }
    }

    /// Against counting one by one, over every pair of small sets.
    #[test]
    fn intervals_are_counted_as_numbers_are() {
        let text = |bits: u32| {
            let numbers: Vec<String> = (0..6).filter(|n| bits >> n & 1 == 1).map(|n| (n + 1).to_string()).collect();
            if numbers.is_empty() { String::new() } else { format!("aa:{}", numbers.join(":")) }
        };
        for a in 0..64_u32 {
            for b in 0..64_u32 {
                assert_eq!(missing(&text(a), &text(b)), u64::from((a & !b).count_ones()), "{} {}", text(a), text(b));
            }
        }
    }
}
