//! Sets of GTIDs: the transactions of a server, and how many of them another server lacks.
//!
//! Pure. MySQL counts by source (and tag), and lists every number that a server has. MariaDB counts by domain: each GTID names the server
//! that wrote it, and a server lists the last number of each. In a domain, one transaction of a server implies all earlier ones of that
//! server. It implies nothing about lower numbers of *another* server: after a failover two servers continue from the same number.
//! <https://dev.mysql.com/doc/refman/8.4/en/replication-gtids-concepts.html>, <https://mariadb.com/kb/en/gtid/>.
//! INVARIANT: the intervals of a stream are sorted, and neither overlap nor touch.

use std::collections::BTreeMap;
use std::fmt;

use crate::observation::ServerId;

use serde::{Deserialize, Serialize};

/// Both ends belong to it.
type Interval = (u64, u64);

/// The GTIDs that a server has executed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GtidSet {
    /// MySQL's, by source and tag.
    sources: BTreeMap<Box<str>, Vec<Interval>>,
    /// MariaDB's, by domain.
    domains: BTreeMap<u64, Domain>,
}

/// A server's GTIDs of one MariaDB domain: the last number of each server that wrote there, as far as it is reported.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Domain(BTreeMap<u64, u64>);

impl Domain {
    /// The highest number of the domain, of any server.
    fn last(&self) -> u64 {
        self.0.values().copied().max().unwrap_or_default()
    }

    /// The numbers of this set that `other` lacks, at most: other servers may have written some of them in between. If `other` does not
    /// name a server, its own last number counts for that server.
    fn missing_in(&self, other: &Self) -> Vec<Interval> {
        let lacks = |(server, last): (&u64, &u64)| {
            let has = other.0.get(server).copied().unwrap_or_else(|| other.last());
            (*last > has).then(|| (has + 1, *last))
        };
        let mut missing: Vec<Interval> = self.0.iter().filter_map(lacks).collect();
        join(&mut missing);
        missing
    }

    /// The numbers by which a writer is ahead of its replica. If the writer has the replica's last transaction, the replica has all that
    /// the writer had before. It may not name every server that wrote, for example after a restore from a backup.
    fn ahead_of(&self, replica: &Self) -> Vec<Interval> {
        let last = replica.0.iter().max_by_key(|(_, number)| **number);
        match last.filter(|(server, number)| self.0.get(server).is_some_and(|own| own >= number)) {
            Some((_, number)) if self.last() > *number => vec![(number + 1, self.last())],
            Some(_) => Vec::new(),
            None => self.missing_in(replica),
        }
    }
}

impl GtidSet {
    /// From a server's words: `gtid_executed` of MySQL (`uuid:1-5:7:tag:1-3,...`), or GTIDs of MariaDB (`domain-server-number,...`):
    /// a position, `gtid_binlog_state`, or both. White space around a comma is skipped: MySQL begins a line with each source. None for
    /// anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let mut set = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match part.split_once(':') {
                Some((source, rest)) => set.add_source(source, rest)?,
                None => set.add_position(part)?,
            }
        }
        for intervals in set.sources.values_mut() {
            join(intervals);
        }
        Some(set)
    }

    /// How many transactions of this set `other` lacks.
    pub fn missing_in(&self, other: &Self) -> u64 {
        self.count(other, Domain::missing_in)
    }

    /// How many transactions a replica is behind a writer that has this.
    pub fn ahead_of(&self, replica: &Self) -> u64 {
        self.count(replica, Domain::ahead_of)
    }

    fn count(&self, other: &Self, in_domain: impl Fn(&Domain, &Domain) -> Vec<Interval>) -> u64 {
        let of_sources = self.sources.iter().map(|(stream, own)| {
            let has = other.sources.get(stream).map_or(&[][..], Vec::as_slice);
            size(own).saturating_sub(shared(own, has))
        });
        let nothing = Domain::default();
        let of_domains = self.domains.iter().map(|(domain, own)| size(&in_domain(own, other.domains.get(domain).unwrap_or(&nothing))));
        of_sources.chain(of_domains).fold(0, u64::saturating_add)
    }

    /// Whether it holds all transactions of `other`.
    pub fn contains(&self, other: &Self) -> bool {
        other.missing_in(self) == 0
    }

    /// Whether it has nothing.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty() && self.domains.is_empty()
    }

    /// All that either of two sets has.
    #[must_use]
    pub fn with(mut self, other: &Self) -> Self {
        for (stream, intervals) in &other.sources {
            let own = self.sources.entry(stream.clone()).or_default();
            own.extend(intervals);
            join(own);
        }
        for (domain, others) in &other.domains {
            let own = self.domains.entry(*domain).or_default();
            for (server, number) in &others.0 {
                let last = own.0.entry(*server).or_default();
                *last = (*number).max(*last);
            }
        }
        self
    }

    /// What this set has that another one lacks, as a set: of MariaDB the last number of each server. What the server `own` wrote, and
    /// the other set does not name, counts as lacking: nobody else can have written it.
    pub fn beyond(&self, other: &Self, own: &ServerId) -> Self {
        let mut set = Self::default();
        for (stream, intervals) in &self.sources {
            let rest = minus(intervals, other.sources.get(stream).map_or(&[][..], Vec::as_slice));
            if !rest.is_empty() {
                set.sources.insert(stream.clone(), rest);
            }
        }
        let nothing = Domain::default();
        for (domain, has) in &self.domains {
            let others = other.domains.get(domain).unwrap_or(&nothing);
            let unnamed = |server: &u64| if own.number == Some(*server) { 0 } else { others.last() };
            let lacks = |server: &u64, number: u64| number > others.0.get(server).copied().unwrap_or_else(|| unnamed(server));
            let rest: BTreeMap<u64, u64> = has.0.iter().filter(|(server, number)| lacks(server, **number)).map(|(s, n)| (*s, *n)).collect();
            if !rest.is_empty() {
                set.domains.insert(*domain, Domain(rest));
            }
        }
        set
    }

    /// What this set has and another one certainly lacks, and (MariaDB) what cannot be told: the last number of a server that the other
    /// set does not name, while it has higher numbers of the domain. It may be restored from a backup, which names the last one only.
    pub fn apart_from(&self, other: &Self) -> (Self, Self) {
        let (lacks, mut unclear) = (self.beyond(other, &ServerId::default()), Self::default());
        let nothing = Domain::default();
        for (domain, has) in &self.domains {
            let others = other.domains.get(domain).unwrap_or(&nothing);
            let is_unclear = |(server, number): &(&u64, &u64)| !others.0.contains_key(*server) && **number <= others.last();
            let unnamed: BTreeMap<u64, u64> = has.0.iter().filter(is_unclear).map(|(server, number)| (*server, *number)).collect();
            if !unnamed.is_empty() {
                unclear.domains.insert(*domain, Domain(unnamed));
            }
        }
        (lacks, unclear)
    }

    /// MariaDB: what the server with this `server_id` wrote beyond the last number of it that `had` names; all of it where none is named.
    pub fn writes_past(&self, writer: u64, had: &Self) -> Self {
        let mut set = Self::default();
        for (domain, has) in &self.domains {
            let named = had.domains.get(domain).and_then(|had| had.0.get(&writer)).copied().unwrap_or_default();
            if let Some(number) = has.0.get(&writer).filter(|number| **number > named) {
                set.domains.insert(*domain, Domain(BTreeMap::from([(writer, *number)])));
            }
        }
        set
    }

    /// This set without the transactions of another one. Of MariaDB every number of a server that `other` names in the domain goes: a set
    /// holds only the last one, and the earlier ones may be of `other` too.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let mut set = self.clone();
        for (stream, others) in &other.sources {
            set.sources.entry(stream.clone()).and_modify(|own| *own = minus(own, others));
        }
        set.sources.retain(|_, own| !own.is_empty());
        for (domain, others) in &other.domains {
            set.domains.entry(*domain).and_modify(|own| own.0.retain(|server, _| !others.0.contains_key(server)));
        }
        set.domains.retain(|_, own| !own.0.is_empty());
        set
    }

    /// This set without the transactions of another one: exact for MySQL, by the last number of each server for MariaDB.
    #[must_use]
    pub fn without_all_of(&self, other: &Self) -> Self {
        self.beyond(other, &ServerId::default())
    }

    /// Each transaction as a GTID, at most so many; a last text stands for the rest. Of MariaDB the last one of each server.
    pub fn each(&self, limit: usize) -> Vec<String> {
        let mut all = Vec::new();
        for (stream, intervals) in &self.sources {
            for (from, to) in intervals {
                for number in *from..=*to {
                    if all.len() == limit {
                        all.push(format!("{stream}:{number}-{to} ..."));
                        return all;
                    }
                    all.push(format!("{stream}:{number}"));
                }
            }
        }
        let gtids =
            self.domains.iter().flat_map(|(domain, own)| own.0.iter().map(move |(server, number)| format!("{domain}-{server}-{number}")));
        all.extend(gtids);
        all
    }

    /// What is left of this set without `extra`, a part of it. Of MariaDB these are the last numbers that `had` has of the servers in `extra`.
    #[must_use]
    pub fn but_for(&self, extra: &Self, had: &Self) -> Self {
        let mut set = self.clone();
        for (stream, others) in &extra.sources {
            set.sources.entry(stream.clone()).and_modify(|own| *own = minus(own, others));
        }
        set.sources.retain(|_, own| !own.is_empty());
        for (domain, others) in &extra.domains {
            let Some(own) = set.domains.get_mut(domain) else { continue };
            for server in others.0.keys() {
                match had.domains.get(domain).and_then(|had| had.0.get(server)) {
                    Some(number) => drop(own.0.insert(*server, *number)),
                    None => drop(own.0.remove(server)),
                }
            }
        }
        set.domains.retain(|_, own| !own.0.is_empty());
        set
    }

    /// MariaDB: the last GTID of each domain, as `gtid_slave_pos` has it.
    pub fn position(&self) -> String {
        let last = |(domain, own): (&u64, &Domain)| {
            let (server, number) = own.0.iter().max_by_key(|(_, number)| **number)?;
            Some(format!("{domain}-{server}-{number}"))
        };
        self.domains.iter().filter_map(last).collect::<Vec<_>>().join(",")
    }

    /// MySQL: as a replica sends it with COM_BINLOG_DUMP_GTID. None for GTIDs with tags.
    /// <https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_com_binlog_dump_gtid.html>
    pub fn encoded(&self) -> Option<Vec<u8>> {
        let mut bytes = (self.sources.len() as u64).to_le_bytes().to_vec();
        for (uuid, intervals) in &self.sources {
            let hex: Vec<u8> = uuid.bytes().filter(|byte| *byte != b'-').collect();
            let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            let sid: Vec<u8> = hex.chunks_exact(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect::<Option<_>>()?;
            bytes.extend(<[u8; 16]>::try_from(sid).ok()?);
            bytes.extend((intervals.len() as u64).to_le_bytes());
            for (from, to) in intervals {
                bytes.extend(from.to_le_bytes());
                bytes.extend(to.checked_add(1)?.to_le_bytes());
            }
        }
        Some(bytes)
    }

    /// MariaDB: whether a transaction of the server with this `server_id` is named in any domain.
    pub fn names(&self, writer: u64) -> bool {
        self.domains.values().any(|domain| domain.0.contains_key(&writer))
    }

    /// Without what a server wrote.
    #[must_use]
    pub fn without_writes_of(&self, id: &ServerId) -> Self {
        self.before_writes_of(id, &Self::default())
    }

    /// The transactions of this source (MySQL's `server_uuid`), with its tags.
    pub fn of_source(&self, uuid: &str) -> Self {
        let uuid = uuid.to_ascii_lowercase();
        let sources = self.sources.iter().filter(|(stream, _)| is_of(stream, &uuid));
        Self { sources: sources.map(|(stream, own)| (stream.clone(), own.clone())).collect(), domains: BTreeMap::new() }
    }

    /// MariaDB: the last number of this server in each domain.
    pub fn of_server(&self, number: u64) -> Self {
        let of_domain = |(domain, last): (&u64, &Domain)| Some((*domain, Domain(BTreeMap::from([(number, *last.0.get(&number)?)]))));
        Self { sources: BTreeMap::new(), domains: self.domains.iter().filter_map(of_domain).collect() }
    }

    /// This set as it was before the server `id` wrote, if `before` is an earlier sample: the numbers of `id` are taken from `before`. Used
    /// for a promoted server.
    pub fn before_writes_of(&self, id: &ServerId, before: &Self) -> Self {
        let mut set = self.clone();
        if let Some(uuid) = &id.uuid {
            set.sources.retain(|stream, _| !is_of(stream, uuid));
            set.sources.extend(before.of_source(uuid).sources);
        } else if let Some(number) = id.number {
            for (domain, last) in &mut set.domains {
                let had = before.domains.get(domain).and_then(|domain| domain.0.get(&number));
                match had {
                    Some(had) => drop(last.0.insert(number, *had)),
                    None => drop(last.0.remove(&number)),
                }
            }
            set.domains.retain(|_, domain| !domain.0.is_empty());
        }
        set
    }

    fn add_position(&mut self, gtid: &str) -> Option<()> {
        let mut numbers = gtid.splitn(3, '-').map(|number| number.parse::<u64>().ok());
        let (domain, server, number) = (numbers.next()??, numbers.next()??, numbers.next()??);
        if number > 0 {
            let last = self.domains.entry(domain).or_default().0.entry(server).or_default();
            *last = number.max(*last);
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
            self.sources.entry(stream.as_str().into()).or_default().push(interval);
        }
        Some(())
    }
}

/// As the servers write it: MySQL's `uuid:1-5`, MariaDB's `domain-server-number`, the last one of each server.
impl fmt::Display for GtidSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers = |(from, to): &Interval| if from == to { from.to_string() } else { format!("{from}-{to}") };
        let of_sources = self.sources.iter().map(|(stream, own)| {
            let all: Vec<String> = own.iter().map(numbers).collect();
            format!("{stream}:{}", all.join(":"))
        });
        let gtids =
            |(domain, own): (&u64, &Domain)| own.0.iter().map(|(server, number)| format!("{domain}-{server}-{number}")).collect::<Vec<_>>();
        let all: Vec<String> = of_sources.chain(self.domains.iter().flat_map(gtids)).collect();
        f.write_str(&all.join(","))
    }
}

/// Whether a stream is of this source, which is in lower case.
fn is_of(stream: &str, uuid: &str) -> bool {
    stream.split(':').next() == Some(uuid)
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

/// The numbers of `own` that are not in `other`.
fn minus(own: &[Interval], other: &[Interval]) -> Vec<Interval> {
    let (mut rest, mut i) = (Vec::new(), 0);
    for (mut from, to) in own.iter().copied() {
        // Both are sorted: what ended before this interval ends before all later ones.
        while let Some((begin, end)) = other.get(i).copied().filter(|(begin, _)| *begin <= to) {
            if begin > from {
                rest.push((from, begin - 1));
            }
            from = end.saturating_add(1).max(from);
            if end > to {
                break;
            }
            i += 1;
        }
        if from <= to {
            rest.push((from, to));
        }
    }
    rest
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
    fn sets_that_are_apart() {
        let apart = |own: &str, other: &str| {
            let (lacks, unclear) = GtidSet::parse(own).unwrap().apart_from(&GtidSet::parse(other).unwrap());
            [lacks.to_string(), unclear.to_string()]
        };
        assert_eq!(apart("aa:1-9,bb:1", "aa:1-7:9"), ["aa:8,bb:1", ""]);
        assert_eq!(apart("0-1-7,0-2-3", "0-1-5,0-2-8"), ["0-1-7", ""]);
        assert_eq!(apart("0-1-7", "0-2-8"), ["", "0-1-7"], "it may have been restored from a backup");
        assert_eq!(apart("0-1-9,4-1-1", "0-2-8"), ["0-1-9,4-1-1", ""]);
        let past = |own: &str, had: &str| GtidSet::parse(own).unwrap().writes_past(1, &GtidSet::parse(had).unwrap()).to_string();
        assert_eq!([past("0-1-7,0-2-9", "0-1-5"), past("0-1-5", "0-1-5"), past("0-1-5,3-1-2", "0-2-8")], ["0-1-7", "", "0-1-5,3-1-2"]);
    }

    #[test]
    fn what_is_before_a_part() {
        let but = |own: &str, extra: &str, had: &str| {
            let [own, extra, had] = [own, extra, had].map(|text| GtidSet::parse(text).unwrap());
            own.but_for(&extra, &had)
        };
        assert_eq!(but("aa:1-9,bb:1", "aa:8-9", "aa:1-7").to_string(), "aa:1-7,bb:1");
        let common = but("0-1-7,0-2-3,1-1-9", "0-1-7", "0-1-5,0-2-3");
        assert_eq!((common.to_string(), common.position()), ("0-1-5,0-2-3,1-1-9".into(), "0-1-5,1-1-9".into()));
        assert_eq!(but("0-1-6,0-2-5", "0-1-6", "0-2-5").position(), "0-2-5");
        let uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
        let encoded = GtidSet::parse(&format!("{uuid}:1-5:9")).unwrap().encoded().unwrap();
        assert_eq!((encoded.len(), &encoded[..10]), (64, &[1, 0, 0, 0, 0, 0, 0, 0, 0x3e, 0x11][..]));
        assert_eq!(&encoded[24..], [2_u64, 1, 6, 9, 10].map(u64::to_le_bytes).concat());
        assert_eq!(GtidSet::parse(&format!("{uuid}:tag:1")).unwrap().encoded(), None);
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
    fn mariadb_counts_by_domain_and_by_who_wrote() {
        assert_eq!(missing("0-1-57", "0-1-50"), 7);
        assert_eq!(missing("0-1-57,1-1-3", "0-1-57"), 3);
        assert_eq!(missing("0-1-57", "0-1-99,7-7-7"), 0);
        assert_eq!(missing("0-1-57,0-2-60", "0-1-57"), 3, "the second one goes on where the first one stopped");
        assert_eq!(missing("0-1-57,0-2-60,0-3-70", "0-1-57"), 13, "and no number counts twice");
        assert_eq!(missing("0-1-57,0-2-60", "0-1-57,0-2-60"), 0);
        assert_eq!(missing("0-1-100,0-2-99", "0-1-98,0-2-99"), 2, "99 may be of both, after a fork");
        assert_eq!(missing("0-1-0", ""), 0);
    }

    /// A primary died with two writes that no other server had, and another server continued from there.
    #[test]
    fn a_higher_number_of_another_server_contains_nothing_of_a_fork() {
        assert_eq!(missing("0-1-7", "0-1-5,0-2-8"), 2, "0-1-6 and 0-1-7");
        assert_eq!(missing("0-1-5,0-2-8", "0-1-7"), 1, "what has no higher number counts as there where its server is not named");
        assert_eq!(missing("0-1-5,0-2-8", "0-1-7,0-2-8"), 0);
        assert!(!GtidSet::parse("0-1-5,0-2-8").unwrap().contains(&GtidSet::parse("0-1-7").unwrap()));
        // A position alone does not say how far the other server is: numbers are all that there is.
        assert_eq!(missing("0-1-7", "0-2-8"), 0);
        assert_eq!(missing("0-1-57", "0-2-50"), 7);
    }

    #[test]
    fn a_replica_is_behind_by_its_position() {
        let behind = |writer: &str, replica: &str| GtidSet::parse(writer).unwrap().ahead_of(&GtidSet::parse(replica).unwrap());
        assert_eq!(behind("0-1-100,0-2-150", "0-1-100,0-2-140"), 10);
        assert_eq!(behind("0-1-100,0-2-150", "0-1-40,0-2-150"), 0, "the rest came with a backup");
        assert_eq!(behind("0-1-100,0-2-150", "0-1-98"), 52);
        assert_eq!(behind("0-1-100", "0-1-90,0-3-200"), 10, "what only the replica has says nothing");
        assert_eq!(behind("0-1-7", "0-1-5,0-2-8"), 2);
        assert_eq!((behind("0-1-7", ""), behind("aa:1-10", "aa:1-7")), (7, 3));
    }

    #[test]
    fn what_one_set_has_beyond_another() {
        let set = |text: &str| GtidSet::parse(text).unwrap();
        let beyond = |own: &str, other: &str, id: &ServerId| set(own).beyond(&set(other), id).to_string();
        let (nobody, three) = (ServerId::default(), ServerId::new(Some(3), None));
        assert_eq!(beyond("aa:1-10,bb:1-3", "aa:2-3:5:9-20", &nobody), "aa:1:4:6-8,bb:1-3");
        assert_eq!(beyond("aa:1-10", "aa:1-10,bb:1", &nobody), "");
        assert_eq!(beyond("0-1-7", "0-1-5,0-2-8", &nobody), "0-1-7");
        assert_eq!(beyond("0-1-5,0-3-6", "0-1-9", &nobody), "", "it may have written that as a primary of earlier times");
        assert_eq!(beyond("0-1-5,0-3-6", "0-1-9", &three), "0-3-6", "it says that it wrote it itself, and nobody names it");
        assert_eq!(beyond("0-1-5,0-3-6", "0-1-9,0-3-6", &three), "");
        assert_eq!(set("aa:1-5:9,0-1-5").with(&set("aa:6-8,bb:1,0-1-4,0-2-6,1-1-1")).to_string(), "aa:1-9,bb:1,0-1-5,0-2-6,1-1-1");
        assert_eq!(set("0-1-5,0-3-6").without_writes_of(&three).to_string(), "0-1-5");
        assert!(set("").is_empty() && !set("0-1-5").is_empty());
    }

    #[test]
    fn what_is_left_without_another_set() {
        let set = |text: &str| GtidSet::parse(text).unwrap();
        let without = |own: &str, other: &str| set(own).without(&set(other)).to_string();
        assert_eq!(without("aa:1-10,bb:1-3", "aa:4:6-20,cc:1"), "aa:1-3:5,bb:1-3");
        assert_eq!(without("aa:1-10", "aa:1-10"), "");
        assert_eq!(without("0-1-7,0-2-5,1-1-1", "0-1-7"), "0-2-5,1-1-1");
    }

    /// Two sets of 200,000 intervals: quadratic work would take minutes.
    #[test]
    fn sets_with_many_gaps_are_compared_in_one_pass() {
        let every_fourth = |offset: u64| (0..200_000).map(|n| (4 * n + offset, 4 * n + offset)).collect::<Vec<Interval>>();
        assert_eq!(minus(&every_fourth(1), &every_fourth(3)).len(), 200_000);
        assert!(minus(&every_fourth(1), &every_fourth(1)).is_empty());
    }

    #[test]
    fn what_a_promoted_server_had_before_its_first_write() {
        let set = |text| GtidSet::parse(text).unwrap();
        let mariadb = ServerId::new(Some(2), None);
        assert_eq!(set("0-1-5,0-2-8").before_writes_of(&mariadb, &set("0-1-4")), set("0-1-5"));
        assert_eq!(set("0-1-5,0-2-8,1-2-1").before_writes_of(&mariadb, &set("0-2-2,0-1-4")), set("0-1-5,0-2-2"), "it wrote long ago");
        let mysql = ServerId::new(Some(2), Some("BB"));
        assert_eq!(set("aa:1-5,bb:1-8").before_writes_of(&mysql, &set("aa:1-4,bb:1-2")), set("aa:1-5,bb:1-2"));
        assert_eq!(set("aa:1-5,bb:1-8:tag:1").before_writes_of(&mysql, &set("aa:1-4")), set("aa:1-5"));
        let unknown = ServerId::default();
        assert_eq!(set("aa:1-5").before_writes_of(&unknown, &set("")), set("aa:1-5"));
    }

    #[test]
    fn a_set_is_read_as_it_is_written() {
        for text in ["", "aa:1-5:7", "aa:1:tag:1-3", "0-1-5,0-2-8,7-1-1"] {
            let set = GtidSet::parse(text).unwrap();
            assert_eq!(GtidSet::parse(&set.to_string()), Some(set.clone()), "{text} {set}");
        }
    }

    /// Two servers write in turn and replicate from each other, until one dies with transactions that the other one lacks. Compared with
    /// sets of single transactions over every short history.
    #[test]
    fn mariadb_sets_are_those_of_their_transactions() {
        // Each step: the server that writes, and whether the other one gets it.
        for history in 0..1_u32 << 12 {
            let mut has: [Vec<(u64, u64)>; 2] = [Vec::new(), Vec::new()];
            for step in 0..6 {
                let (who, is_sent) = ((history >> (2 * step) & 1) as usize, history >> (2 * step + 1) & 1 == 1);
                let number = has[who].iter().map(|(_, number)| *number).max().unwrap_or_default() + 1;
                has[who].push((who as u64 + 1, number));
                if is_sent {
                    let missed: Vec<_> = has[who].iter().filter(|gtid| !has[1 - who].contains(gtid)).copied().collect();
                    has[1 - who].extend(missed);
                }
            }
            let set = |own: &[(u64, u64)]| {
                let text: Vec<String> = own.iter().map(|(server, number)| format!("0-{server}-{number}")).collect();
                GtidSet::parse(&text.join(",")).unwrap()
            };
            for (one, other) in [(0, 1), (1, 0)] {
                let lacks = has[one].iter().any(|gtid| !has[other].contains(gtid));
                let names_all = has[one].iter().all(|(server, _)| has[other].iter().any(|(named, _)| named == server));
                let found = set(&has[one]).missing_in(&set(&has[other]));
                // If every server is named, all missing transactions are found, and no others.
                assert!(found > 0 || !lacks || !names_all, "{has:?}");
                assert!(found == 0 || lacks, "{has:?}");
            }
        }
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
                let set = |bits| GtidSet::parse(&text(bits)).unwrap();
                assert_eq!(set(a).beyond(&set(b), &ServerId::default()), set(a & !b), "{} {}", text(a), text(b));
                assert_eq!(set(a).without(&set(b)), set(a & !b), "{} {}", text(a), text(b));
                assert_eq!(set(a).with(&set(b)), set(a | b), "{} {}", text(a), text(b));
            }
        }
    }
}
