//! Kinds of clusters as the property tests see them: three servers, a small alphabet of sightings, and what must hold after
//! any history of them.
#![allow(dead_code, clippy::unwrap_used)] // each test uses a part; tests may panic

use std::collections::BTreeSet;

use topology::{Observation, ProbeError};

use super::{Fleet, addr, galera, group, group_replication, read_only, unreachable};

pub(crate) const NODES: [&str; 3] = ["a", "b", "c"];

/// The possible results of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    /// It may write.
    Writes,
    /// It may only read.
    Reads,
    /// It must not serve.
    Bad,
    /// It finishes its running work.
    Leaving,
    /// Group Replication: it writes, and says that it is the only primary.
    Claims,
    Unreachable,
    Timeout,
    Denied,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Replication,
    Galera,
    Group,
}

pub(crate) const KINDS: [Kind; 3] = [Kind::Replication, Kind::Galera, Kind::Group];

impl Kind {
    pub(crate) fn config(self) -> String {
        let fast = "mysql_variables = { failback_delay_ms=2000 }\n";
        match self {
            Self::Replication => format!("{fast}{}", super::REPLICATION),
            Self::Galera => format!(
                "{fast}mysql_servers = ( {{ hostgroup=1, address=\"a\", port=3306, weight=10 }},
                   {{ hostgroup=2, address=\"b\", port=3306 }}, {{ hostgroup=2, address=\"c\", port=3306 }} )
                 mysql_galera_hostgroups = ( {{ writer_hostgroup=1, reader_hostgroup=2, backup_writer_hostgroup=3,
                   offline_hostgroup=4, max_writers=1, max_transactions_behind=10 }} )"
            ),
            Self::Group => format!("{fast}{}", group_replication(1, 0)),
        }
    }

    pub(crate) fn alphabet(self) -> &'static [Word] {
        match self {
            Self::Replication => &[Word::Writes, Word::Reads, Word::Unreachable, Word::Timeout, Word::Denied],
            Self::Galera => &[Word::Writes, Word::Reads, Word::Bad, Word::Leaving, Word::Unreachable, Word::Timeout, Word::Denied],
            Self::Group => &[Word::Claims, Word::Reads, Word::Bad, Word::Unreachable, Word::Timeout, Word::Denied],
        }
    }

    pub(crate) fn seen(self, node: &str, word: Word) -> Observation {
        let error = match word {
            Word::Unreachable => Some(unreachable()),
            Word::Timeout => Some(ProbeError::Timeout),
            Word::Denied => Some(ProbeError::Denied("1045".to_owned())),
            _ => None,
        };
        match (self, error) {
            (Self::Replication, Some(error)) => Observation::ReadOnly(Err(error)),
            (Self::Galera, Some(error)) => Observation::Galera(Err(error)),
            (Self::Group, Some(error)) => Observation::Group(Err(error)),
            (Self::Replication, None) => read_only(word != Word::Writes),
            (Self::Galera, None) => galera(|view| {
                view.read_only = word == Word::Reads;
                view.primary_partition = word != Word::Bad;
                view.desync = word == Word::Leaving;
            }),
            (Self::Group, None) => group(|view| {
                view.viable = word != Word::Bad;
                view.read_only = word != Word::Claims;
                view.primary = (word == Word::Claims).then(|| addr(node)).or(view.primary.take());
            }),
        }
    }

    /// The layout while all nodes are well and `a` writes.
    pub(crate) fn healthy_layout(self) -> &'static str {
        match self {
            Self::Replication => "1: a; 2: a b c",
            Self::Galera => "1: a; 2: b c; 3: b c",
            Self::Group => "1: a; 3: b c",
        }
    }

    /// The answer of `node` while all nodes are well.
    pub(crate) fn healthy(self, node: &str) -> Word {
        match (self, node) {
            (Self::Replication, "a") | (Self::Galera, _) => Word::Writes,
            (Self::Group, "a") => Word::Claims,
            _ => Word::Reads,
        }
    }

    pub(crate) fn settled(self) -> Fleet {
        let mut fleet = Fleet::new(&self.config());
        for node in NODES {
            fleet.see(node, self.seen(node, self.healthy(node)));
        }
        assert_eq!(fleet.layout(), self.healthy_layout());
        fleet.pass(5_000).events();
        fleet
    }
}

/// A fleet and its inputs, a second apart.
#[derive(Clone)]
pub(crate) struct History {
    pub kind: Kind,
    pub fleet: Fleet,
    pub told: Vec<(usize, Word)>,
    /// Each node's last two answers; errors count.
    last: [[Option<Word>; 2]; 3],
    /// Nodes that could not be reached and have not answered since.
    lost: BTreeSet<usize>,
    /// Pairs of an old writer and a node that took over while the old one was unreachable.
    replaced: BTreeSet<(usize, usize)>,
    /// Nodes that have written since they were read-only. Their return after a failure is no promotion.
    has_written: BTreeSet<usize>,
}

impl History {
    pub(crate) fn new(kind: Kind) -> Self {
        let mut history = Self {
            kind,
            fleet: kind.settled(),
            told: Vec::new(),
            last: [[None; 2]; 3],
            lost: BTreeSet::new(),
            replaced: BTreeSet::new(),
            has_written: BTreeSet::from([0]),
        };
        for (index, node) in NODES.into_iter().enumerate() {
            history.last[index] = [Some(kind.healthy(node)); 2];
        }
        history
    }

    /// One more sighting, a second later.
    pub(crate) fn tell(&mut self, node: usize, word: Word) {
        let before = self.writers();
        let revision = self.fleet.topology.layout().clone();
        self.fleet.pass(1_000).see(NODES[node], self.kind.seen(NODES[node], word));
        self.told.push((node, word));
        self.last[node] = [Some(word), self.last[node][0]];
        match word {
            Word::Unreachable => drop(self.lost.insert(node)),
            Word::Timeout | Word::Denied => {}
            _ => drop(self.lost.remove(&node)),
        }
        if word == Word::Reads {
            self.replaced.retain(|(old, new)| *old != node && *new != node);
            self.has_written.remove(&node);
        }
        let after = self.writers();
        for old in 0..3 {
            let is_new = after.contains(&node) && !before.contains(&node) && !self.has_written.contains(&node);
            if self.kind == Kind::Replication && is_new && old != node && self.last[old] == [Some(Word::Unreachable); 2] {
                self.replaced.insert((old, node));
            }
        }
        self.has_written.extend(after);
        let layout = self.fleet.topology.layout();
        let is_changed = layout.hostgroups != revision.hostgroups;
        assert!(layout.revision >= revision.revision, "{self:?}");
        assert!(!is_changed || layout.revision > revision.revision, "the revision must grow: {self:?}");
    }

    /// Each node's last answer.
    pub(crate) fn last_words(&self) -> impl Iterator<Item = (&'static str, Word)> + '_ {
        NODES.into_iter().enumerate().filter_map(|(index, node)| Some((node, self.last[index][0]?)))
    }

    /// Nodes that are ONLINE in the writer hostgroup.
    pub(crate) fn writers(&self) -> Vec<usize> {
        let names = self.fleet.hostgroup(1);
        names.split(' ').filter_map(|name| NODES.iter().position(|node| *node == name)).collect()
    }

    /// Asserts the properties that hold after any history.
    pub(crate) fn check(&self) {
        let writers = self.writers();
        if self.kind != Kind::Replication {
            assert!(writers.len() <= 1, "max_writers: {self:?}");
        }
        for writer in &writers {
            let word = self.last[*writer][0];
            assert!(!matches!(word, Some(Word::Reads | Word::Bad)), "a writer that must not write: {self:?}");
        }
        for node in self.lost.iter().filter(|node| self.last[**node][0] == Some(Word::Denied)) {
            let serves = (1..=3).any(|id| self.fleet.hostgroup(id).split(' ').any(|name| name == NODES[*node]));
            assert!(!serves, "nothing is known of {} since it was lost: {self:?}", NODES[*node]);
        }
        for (old, _) in &self.replaced {
            assert!(!writers.contains(old), "an old writer is back: {self:?}");
        }
        let is_candidate = |node: &usize| match self.kind {
            Kind::Galera => self.last[*node] == [Some(Word::Writes); 2],
            // All other members agree on the primary.
            Kind::Replication | Kind::Group => {
                let says_so = matches!(self.last[*node], [Some(Word::Writes | Word::Claims), Some(Word::Writes | Word::Claims)]);
                says_so
                    && (0..3).filter(|other| other != node).all(|other| self.last[other][0] == Some(Word::Reads))
                    && self.is_named(*node)
            }
        };
        assert!(!writers.is_empty() || !(0..3).any(|node| is_candidate(&node)), "no writer while there is a candidate: {self:?}");
    }

    /// Secondaries of the alphabet name `a`; so only `a` is undisputed.
    fn is_named(&self, node: usize) -> bool {
        self.kind == Kind::Replication || node == 0
    }

    /// All is well from now on, and time passes: every state that is not ONLINE must end.
    pub(crate) fn recover(&mut self) {
        self.fleet.follow("b", &["a"]).follow("c", &["a"]);
        for _ in 0..10 {
            for node in NODES {
                let word = self.kind.healthy(node);
                self.fleet.see(node, Observation::Ping(Ok(100))).see(node, self.kind.seen(node, word));
            }
            self.fleet.answer_sources().pass(1_000);
        }
        assert_eq!(self.fleet.layout(), self.kind.healthy_layout(), "{self:?}");
    }
}

impl std::fmt::Debug for History {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let told: Vec<String> = self.told.iter().map(|(node, word)| format!("{}:{word:?}", NODES[*node])).collect();
        write!(f, "{:?}: {} => {}", self.kind, told.join(" "), self.fleet.layout())
    }
}
