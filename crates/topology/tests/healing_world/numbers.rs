//! Transactions as servers number them, and sets of them: the truth of a run, independent of the product's [`GtidSet`].

use std::collections::BTreeMap;

use topology::GtidSet;

/// Kind of the servers of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flavor {
    MySql,
    MariaDb,
}

/// MySQL's `uuid:number`, MariaDB's `0-server-number`. No two transactions of a run share one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Gtid {
    pub(crate) server: u64,
    pub(crate) number: u64,
}

impl Gtid {
    pub(crate) fn text(self, flavor: Flavor) -> String {
        match flavor {
            Flavor::MySql => format!("s{}:{}", self.server, self.number),
            Flavor::MariaDb => format!("0-{}-{}", self.server, self.number),
        }
    }
}

/// A set; intervals of each server, sorted, both ends belong to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Numbers(BTreeMap<u64, Vec<(u64, u64)>>);

impl Numbers {
    pub(crate) fn add(&mut self, gtid: Gtid) {
        let own = self.0.entry(gtid.server).or_default();
        if own.iter().any(|(from, to)| (*from..=*to).contains(&gtid.number)) {
            return;
        }
        match own.last_mut() {
            Some(last) if last.1 + 1 == gtid.number => last.1 = gtid.number,
            Some(last) if last.1 < gtid.number => own.push((gtid.number, gtid.number)),
            _ => {
                // Before others: intervals may touch now.
                own.push((gtid.number, gtid.number));
                own.sort_unstable();
                own.dedup_by(|next, one| {
                    let touches = one.1 + 1 == next.0;
                    if touches {
                        one.1 = next.1;
                    }
                    touches
                });
            }
        }
    }

    pub(crate) fn of<'a>(all: impl IntoIterator<Item = &'a Gtid>) -> Self {
        let mut set = Self::default();
        all.into_iter().for_each(|gtid| set.add(*gtid));
        set
    }

    pub(crate) fn has(&self, gtid: Gtid) -> bool {
        self.0.get(&gtid.server).is_some_and(|own| own.iter().any(|(from, to)| (*from..=*to).contains(&gtid.number)))
    }

    pub(crate) fn has_all(&self, other: &Self) -> bool {
        let has = |(server, all): (&u64, &Vec<(u64, u64)>)| {
            let own = self.0.get(server).map_or(&[][..], Vec::as_slice);
            all.iter().all(|(from, to)| own.iter().any(|(begin, end)| begin <= from && to <= end))
        };
        other.0.iter().all(has)
    }

    pub(crate) fn of_server(&self, server: u64) -> Self {
        Self(self.0.iter().filter(|(of, _)| **of == server).map(|(of, own)| (*of, own.clone())).collect())
    }

    /// The last number of a server.
    pub(crate) fn last_of(&self, server: u64) -> u64 {
        self.0.get(&server).and_then(|own| own.last()).map_or(0, |last| last.1)
    }

    /// The highest number of any server.
    pub(crate) fn last(&self) -> u64 {
        self.0.values().filter_map(|own| own.last()).map(|last| last.1).max().unwrap_or(0)
    }

    /// As a server writes it: MariaDB names the last number of each server.
    pub(crate) fn text(&self, flavor: Flavor) -> String {
        let intervals = |own: &Vec<(u64, u64)>| own.iter().map(|(from, to)| format!(":{from}-{to}")).collect::<String>();
        let one = |(server, own): (&u64, &Vec<(u64, u64)>)| match flavor {
            Flavor::MySql => format!("s{server}{}", intervals(own)),
            Flavor::MariaDb => format!("0-{server}-{}", own.last().map_or(0, |last| last.1)),
        };
        self.0.iter().map(one).collect::<Vec<_>>().join(",")
    }
}

/// The product's type of the same text.
pub(crate) fn set(text: &str) -> GtidSet {
    GtidSet::parse(text).unwrap_or_else(|| panic!("'{text}' is no set of GTIDs"))
}
