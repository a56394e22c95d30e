//! A model of one server: its binary log, what it has committed, its gate (`read_only`), its channel and its side of semi-synchronous
//! replication. What servers do to each other is in `replication`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use topology::healing::{LinkState, LinkThread, ServerVersion};
use topology::{GtidSet, ServerId};

use crate::numbers::{Flavor, Gtid, Numbers, set};

/// Its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    Up,
    /// SIGSTOP: connections stay, nothing happens.
    Frozen,
    /// Its host refuses connections.
    Crashed,
    /// Its host is gone too.
    Lost,
}

/// `read_only`, with MySQL's `super_read_only`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    Open,
    ReadOnly,
    Closed,
}

/// A transaction, and when it was written first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transaction {
    pub(crate) gtid: Gtid,
    pub(crate) at_ms: u64,
}

/// Its settings of semi-synchronous replication.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Semi {
    pub(crate) is_source: bool,
    /// Commits wait now.
    pub(crate) is_on: bool,
    pub(crate) is_after_sync: bool,
    pub(crate) timeout_ms: u64,
    pub(crate) keeps_waiting: bool,
    pub(crate) acks: u64,
    pub(crate) is_acker: bool,
}

/// How it is as a replica, all its life.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Nature {
    /// It applies a transaction in so long.
    pub(crate) apply_ms: u64,
    /// It is delayed on purpose.
    pub(crate) delay_ms: u64,
    /// Its applier stops with an error from then on.
    pub(crate) breaks_ms: Option<u64>,
    pub(crate) net_timeout_ms: u64,
}

/// Its channel.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) source: usize,
    pub(crate) receiver: LinkThread,
    pub(crate) applies: bool,
    pub(crate) applier_error: Option<u64>,
    /// The place in the source's binary log, while it is connected.
    pub(crate) cursor: Option<usize>,
    pub(crate) heard_ms: u64,
    pub(crate) tried_ms: u64,
    pub(crate) heartbeats: u64,
    pub(crate) relay: VecDeque<Transaction>,
    /// MySQL's `Retrieved_Gtid_Set`.
    pub(crate) retrieved: Numbers,
    /// MariaDB's `Gtid_IO_Pos`.
    pub(crate) last: Option<Gtid>,
    pub(crate) applied_ms: u64,
}

impl Link {
    pub(crate) fn to(source: usize) -> Self {
        Self {
            source,
            receiver: LinkThread { state: LinkState::Connecting, error: None },
            applies: true,
            applier_error: None,
            cursor: None,
            heard_ms: 0,
            tried_ms: 0,
            heartbeats: 0,
            relay: VecDeque::new(),
            retrieved: Numbers::default(),
            last: None,
            applied_ms: 0,
        }
    }

    pub(crate) fn receives(&self) -> bool {
        self.receiver.state != LinkState::Stopped
    }

    pub(crate) fn stop_receiver(&mut self) {
        (self.receiver.state, self.cursor) = (LinkState::Stopped, None);
    }

    pub(crate) fn start_receiver(&mut self) {
        if !self.receives() {
            (self.receiver, self.cursor, self.tried_ms) = (LinkThread { state: LinkState::Connecting, error: None }, None, 0);
        }
    }

    pub(crate) fn stop(&mut self) {
        self.stop_receiver();
        self.applies = false;
    }

    fn drop_relay(&mut self) {
        self.relay.clear();
        (self.retrieved, self.last) = (Numbers::default(), None);
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) number: u64,
    pub(crate) flavor: Flavor,
    pub(crate) life: Life,
    /// Connections end with it.
    pub(crate) incarnation: u32,
    pub(crate) gate: Gate,
    /// What its files say.
    pub(crate) file_gate: Gate,
    pub(crate) is_strict: bool,
    pub(crate) nature: Nature,
    pub(crate) semi: Semi,
    /// Its binary log; the first ones are purged.
    pub(crate) log: Vec<Transaction>,
    pub(crate) purged: usize,
    pub(crate) logged: Numbers,
    /// What is committed: commits that wait for an acknowledgement may not be.
    pub(crate) executed: Numbers,
    /// Commits that wait, with who acknowledged them.
    pub(crate) waiting: BTreeMap<Gtid, (u64, BTreeSet<usize>)>,
    pub(crate) link: Option<Link>,
    /// MariaDB's `gtid_slave_pos`.
    pub(crate) position: Option<Gtid>,
    /// Who holds `tidegate.heal`.
    pub(crate) lock: Option<u64>,
    /// Connections that were ended by KILL.
    pub(crate) killed: BTreeSet<u64>,
    /// Clients' sessions are ended by counting this up.
    pub(crate) sessions: u32,
    /// Times of answers are longer by so much.
    pub(crate) slow_ms: u64,
}

impl Server {
    pub(crate) fn id(&self) -> ServerId {
        let uuid = format!("s{}", self.number);
        ServerId::new(Some(self.number), (self.flavor == Flavor::MySql).then_some(uuid.as_str()))
    }

    pub(crate) fn version(&self) -> ServerVersion {
        match self.flavor {
            Flavor::MySql => ServerVersion { is_mariadb: false, number: (9, 7, 4) },
            Flavor::MariaDb => ServerVersion { is_mariadb: true, number: (10, 11, 19) },
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.life == Life::Up
    }

    /// `gtid_executed`, or `gtid_binlog_state` with `gtid_slave_pos`.
    pub(crate) fn executed_set(&self) -> GtidSet {
        set(&self.executed.text(self.flavor))
    }

    pub(crate) fn purged_set(&self) -> GtidSet {
        match self.flavor {
            Flavor::MySql => set(&self.purged_numbers().text(self.flavor)),
            Flavor::MariaDb => GtidSet::default(),
        }
    }

    pub(crate) fn purged_numbers(&self) -> Numbers {
        Numbers::of(self.log[..self.purged].iter().map(|one| &one.gtid))
    }

    /// What its channel received, in the server's words.
    pub(crate) fn received_text(&self) -> String {
        match (&self.link, self.flavor) {
            (None, _) => String::new(),
            (Some(link), Flavor::MySql) => link.retrieved.text(self.flavor),
            (Some(link), Flavor::MariaDb) => link.last.or(self.position).map_or(String::new(), |last| last.text(self.flavor)),
        }
    }

    /// Whether it has the transaction, applied or only received.
    pub(crate) fn has(&self, gtid: Gtid) -> bool {
        self.logged.has(gtid) || self.link.as_ref().is_some_and(|link| link.retrieved.has(gtid))
    }

    fn write(&mut self, one: Transaction) {
        self.log.push(one);
        self.logged.add(one.gtid);
    }

    /// A client, or a privileged user, commits. None if the gate is closed.
    pub(crate) fn commit(&mut self, now_ms: u64, is_privileged: bool) -> Option<Gtid> {
        let may = match self.gate {
            Gate::Open => true,
            Gate::ReadOnly => is_privileged && self.flavor == Flavor::MySql,
            Gate::Closed => false,
        };
        if !may {
            return None;
        }
        let last = if self.flavor == Flavor::MySql { self.logged.last_of(self.number) } else { self.logged.last() };
        let gtid = Gtid { server: self.number, number: last + 1 };
        self.write(Transaction { gtid, at_ms: now_ms });
        let waits = self.semi.is_source && self.semi.is_on;
        if waits {
            self.waiting.insert(gtid, (now_ms, BTreeSet::new()));
        }
        if !waits || !self.semi.is_after_sync {
            self.executed.add(gtid);
        }
        Some(gtid)
    }

    /// Commits that have waited enough are done. `ackers` are connected.
    pub(crate) fn settle(&mut self, now_ms: u64, ackers: u64) {
        let semi = self.semi;
        if !semi.is_source {
            return self.release();
        }
        let is_late = self.waiting.values().any(|(since, _)| now_ms.saturating_sub(*since) >= semi.timeout_ms);
        if is_late || (!semi.keeps_waiting && ackers < semi.acks) {
            self.semi.is_on = false;
            return self.release();
        }
        self.semi.is_on |= ackers >= semi.acks;
        let done: Vec<Gtid> = self.waiting.iter().filter(|(_, (_, acks))| acks.len() as u64 >= semi.acks).map(|(gtid, _)| *gtid).collect();
        for gtid in done {
            self.waiting.remove(&gtid);
            self.executed.add(gtid);
        }
    }

    /// Nothing waits any more, with or without acknowledgements.
    pub(crate) fn release(&mut self) {
        for gtid in std::mem::take(&mut self.waiting).into_keys() {
            self.executed.add(gtid);
        }
    }

    /// Applies the next transaction that is due.
    pub(crate) fn apply(&mut self, now_ms: u64) {
        let nature = self.nature;
        let Some(link) = &mut self.link else { return };
        if !link.applies || link.applier_error.is_some() || now_ms < link.applied_ms + nature.apply_ms {
            return;
        }
        let budget = 1 + 20 / nature.apply_ms.max(1);
        for _ in 0..budget {
            let Some(link) = &mut self.link else { return };
            let Some(one) = link.relay.front().copied().filter(|one| now_ms >= one.at_ms + nature.delay_ms) else { return };
            if nature.breaks_ms.is_some_and(|at| now_ms >= at) {
                link.applier_error = Some(1_062);
                return;
            }
            // ER_GTID_STRICT_OUT_OF_ORDER
            if self.flavor == Flavor::MariaDb && self.is_strict && one.gtid.number <= self.logged.last() {
                link.applier_error = Some(1_950);
                return;
            }
            link.applied_ms = now_ms;
            link.relay.pop_front();
            if !self.logged.has(one.gtid) {
                self.write(one);
                self.executed.add(one.gtid);
            }
            self.position = Some(one.gtid);
        }
    }

    /// START of both threads. MariaDB fetches again what it had not applied.
    pub(crate) fn start(&mut self) {
        let Some(link) = &mut self.link else { return };
        if self.flavor == Flavor::MariaDb && !link.receives() && !link.applies {
            link.drop_relay();
        }
        link.start_receiver();
        (link.applies, link.applier_error) = (true, None);
    }

    /// CHANGE MASTER, CHANGE REPLICATION SOURCE. MySQL keeps what it received only beside a running applier.
    pub(crate) fn change(&mut self, source: usize, is_demoted: bool) {
        if is_demoted && self.flavor == Flavor::MariaDb {
            self.position = self.log.last().map(|last| last.gtid);
        }
        let link = self.link.get_or_insert_with(|| {
            let mut link = Link::to(source);
            link.stop();
            link
        });
        if self.flavor == Flavor::MariaDb || !link.applies {
            link.drop_relay();
        }
        (link.source, link.cursor) = (source, None);
    }

    pub(crate) fn die(&mut self, life: Life) {
        self.life = life;
        self.lock = None;
        self.killed.clear();
        if let Some(link) = &mut self.link {
            link.cursor = None;
        }
    }

    /// It finds in its binary log what waited for acknowledgements, and commits it. Channels start by themselves. What was received is kept
    /// in both flavors, as with `sync_relay_log=1`.
    pub(crate) fn restart(&mut self) {
        (self.life, self.gate) = (Life::Up, self.file_gate);
        self.incarnation += 1;
        self.sessions += 1;
        self.release();
        if let Some(link) = &mut self.link {
            link.receiver = LinkThread { state: LinkState::Connecting, error: None };
            (link.applies, link.applier_error, link.tried_ms) = (true, None, 0);
        }
    }
}
