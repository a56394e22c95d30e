//! Proxies that list each other in `proxysql_servers` and pull configurations from each other over the admin port, without etcd.
//!
//! A revision knows those that it came from. A proxy takes a revision that came from its own, and no other: nothing older ever wins. Two
//! that came from neither each other are a conflict, which waits for an operator (CONFIG REBASE). Nothing puts changes into one order
//! here: who changes two proxies at the same time makes a conflict, which etcd would have refused.

mod check;
mod tables;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use model::Config;
use serde::{Deserialize, Serialize};
use shared_config::{Revision, new_id};

use super::{Draft, made_by};
use crate::commands::layers::{MODULES, Module};
use crate::engine::now;

/// Most revisions that one remembers to have come from.
const LINEAGE: usize = 500;

/// Modules that peers share, with the words of their settings: `admin-cluster_..._diffs_before_sync`, `..._save_to_disk`.
const SHARED: &[(&str, &str)] = &[
    ("MYSQL QUERY RULES", "mysql_query_rules"),
    ("MYSQL SERVERS", "mysql_servers"),
    ("MYSQL USERS", "mysql_users"),
    ("PROXYSQL SERVERS", "proxysql_servers"),
    ("MYSQL VARIABLES", "mysql_variables"),
    ("ADMIN VARIABLES", "admin_variables"),
];

/// A revision, and those that it came from, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Descent {
    /// The revision. Its sum is that of what its maker shared.
    pub revision: Revision,
    /// Ids of those before it.
    pub lineage: Vec<String>,
}

/// How another proxy's revision stands to this one's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Relation {
    /// The same content, or nothing on either side.
    Same,
    /// The other one came from this one's.
    Newer,
    /// This one came from the other one's.
    Older,
    /// Neither.
    Apart,
}

/// How `theirs` stands to `mine`.
pub(crate) fn relation(mine: Option<&Descent>, theirs: Option<&Descent>) -> Relation {
    match (mine, theirs) {
        (None, None) => Relation::Same,
        (None, Some(_)) => Relation::Newer,
        (Some(_), None) => Relation::Older,
        (Some(mine), Some(theirs)) => match () {
            () if mine.revision.id == theirs.revision.id => Relation::Same,
            () if theirs.lineage.contains(&mine.revision.id) => Relation::Newer,
            () if mine.lineage.contains(&theirs.revision.id) => Relation::Older,
            () => Relation::Apart,
        },
    }
}

/// What is to be done about the others' revisions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Nothing is newer.
    Nothing,
    /// The revision of the one with this index is.
    Pull(usize),
    /// These came from neither each other, or from neither this one's.
    Conflict(Vec<usize>),
}

/// Which of the others' revisions is taken. `is_equal` says of which the content is what this proxy has.
pub(crate) fn choose(mine: Option<&Descent>, others: &[Option<&Descent>], is_equal: &[bool]) -> Choice {
    let of = |wanted: Relation| {
        let all = others.iter().enumerate().filter(move |(_, other)| relation(mine, **other) == wanted);
        all.map(|(index, _)| index)
    };
    let apart: Vec<usize> = of(Relation::Apart).filter(|index| !is_equal.get(*index).copied().unwrap_or(false)).collect();
    let newer: Vec<usize> = of(Relation::Newer).collect();
    let is_newest = |one: &usize| {
        let to_one = |other: &usize| matches!(relation(others[*other], others[*one]), Relation::Same | Relation::Newer);
        newer.iter().all(to_one)
    };
    match (newer.iter().find(|one| is_newest(one)), newer.is_empty()) {
        // One that came from all that are apart ends the conflict.
        (Some(one), _) if apart.iter().all(|other| relation(others[*other], others[*one]) == Relation::Newer) => Choice::Pull(*one),
        (Some(_), _) | (None, true) if !apart.is_empty() => Choice::Conflict(apart),
        (None, false) => Choice::Conflict(newer),
        _ => Choice::Nothing,
    }
}

/// One row of `proxysql_servers`, and what is known of who is there.
#[derive(Debug, Clone, Default)]
pub(super) struct Peer {
    weight: i64,
    comment: String,
    /// What it answered last.
    line: Option<PeerLine>,
    /// Per module: version, epoch, checksum, when it changed, how many checks in a row it differed.
    checksums: BTreeMap<String, PeerChecksum>,
    uptime_s: i64,
    queries: i64,
    clients_connected: i64,
    clients_created: i64,
    checks_ok: i64,
    checks_err: i64,
    ping_us: i64,
    checked: Option<Instant>,
    /// Checks in a row in which its revision was newer.
    newer: u64,
    error: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct PeerChecksum {
    version: i64,
    epoch: i64,
    checksum: String,
    changed_at: i64,
    updated_at: i64,
    differs: i64,
}

/// A proxy's answer to `CONFIG REVISION`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PeerLine {
    /// Its uuid.
    pub uuid: String,
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its revision, if it has one.
    pub descent: Option<Descent>,
    /// Sum of what it shares now.
    pub sha256: String,
    /// The modules that it shares.
    pub modules: Vec<String>,
}

/// A revision that was pulled, for the engine.
#[derive(Debug, Clone)]
pub(crate) struct Pulled {
    /// The revision and where it comes from.
    pub descent: Descent,
    /// The modules that are in it.
    pub modules: Vec<String>,
    /// Its text.
    pub text: String,
}

#[derive(Debug, Default)]
struct State {
    descent: Option<Descent>,
    /// Sum of what this proxy shares.
    sha256: String,
    modules: Vec<String>,
    peers: BTreeMap<(String, u16), Peer>,
    pulled: Option<Pulled>,
    conflict: Option<String>,
    since: i64,
    /// What an operator refused or this proxy cannot run by.
    refused: Option<(String, String)>,
}

/// This proxy among its peers. One a process.
#[derive(Debug)]
pub(crate) struct Peers {
    uuid: String,
    name: String,
    version: String,
    address: String,
    state: Mutex<State>,
}

/// Whether configurations are pulled from peers.
pub(crate) fn is_on(config: &Config) -> bool {
    !super::Sharing::is_on(config) && !config.admin.cluster_username.is_empty() && !config.rows("proxysql_servers").is_empty()
}

/// Why peers that are listed are not asked, if so.
pub(crate) fn silence(config: &Config) -> Option<String> {
    let count = config.rows("proxysql_servers").len();
    let why = if super::Sharing::is_on(config) {
        "what is shared is in etcd (admin-shared_config_endpoints)"
    } else {
        "admin-cluster_username is empty"
    };
    (count > 0 && !is_on(config)).then(|| format!("proxysql_servers: none of {count} peers is asked, because {why}"))
}

/// Checks after which a module that differs is pulled; 0 is never: it is this proxy's own.
fn diffs_before_sync(config: &Config, words: &str) -> u64 {
    let name = SHARED.iter().find(|(module, _)| *module == words).map(|(_, name)| format!("cluster_{name}_diffs_before_sync"));
    name.and_then(|name| config.admin.get(&name)).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Whether a module that was pulled is saved.
pub(crate) fn is_saved(config: &Config, words: &str) -> bool {
    let name = SHARED.iter().find(|(module, _)| *module == words).map(|(_, name)| format!("cluster_{name}_save_to_disk"));
    name.and_then(|name| config.admin.get(&name)).is_none_or(|text| text == "true")
}

/// The modules that this proxy shares.
pub(crate) fn shared_modules(config: &Config) -> Vec<&'static Module> {
    MODULES.iter().filter(|module| diffs_before_sync(config, module.words) > 0).collect()
}

/// `base` with these modules of `from`.
pub(crate) fn with_modules(base: &Config, from: &Config, modules: &[&Module]) -> Config {
    let mut config = base.clone();
    for module in modules {
        for table in module.part.tables {
            match from.tables.get_key_value(table) {
                Some((name, rows)) => _ = config.tables.insert(name, rows.clone()),
                None => _ = config.tables.remove(table),
            }
        }
        match module.part.variables {
            Some(model::settings::MysqlVariables::MODULE) => config.mysql = from.mysql.clone(),
            Some(_) => config.admin = from.admin.clone(),
            None => {}
        }
    }
    config
}

/// The text of what this proxy shares.
pub(crate) fn text_of(config: &Config) -> String {
    model::config::shared::to_shared_text(&with_modules(&Config::default(), config, &shared_modules(config)))
}

impl Peers {
    /// This proxy; `descent` is the revision that it starts by.
    pub(crate) fn new(me: &shared_config::ProxyLine, descent: Option<Descent>, config: &Config) -> Arc<Self> {
        let peers = Self {
            uuid: me.uuid.clone(),
            name: me.name.clone(),
            version: me.version.clone(),
            address: me.address.clone(),
            state: Mutex::new(State { descent, since: now(), ..State::default() }),
        };
        peers.note(config);
        Arc::new(peers)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is in force now.
    pub(crate) fn note(&self, config: &Config) {
        if is_on(config) {
            let (sum, modules) = (shared_config::sum(text_of(config).as_bytes()), shared_modules(config));
            let mut state = self.lock();
            (state.sha256, state.modules) = (sum, modules.iter().map(|module| module.words.to_owned()).collect());
        }
    }

    /// The revision in force.
    pub(crate) fn descent(&self) -> Option<Descent> {
        self.lock().descent.clone()
    }

    /// A revision is in force; None when this proxy has none any more.
    pub(crate) fn stands_at(&self, descent: Option<Descent>, config: &Config) {
        {
            let mut state = self.lock();
            (state.descent, state.conflict, state.refused, state.since) = (descent, None, None, now());
        }
        self.note(config);
    }

    /// A LOAD has put this in force: the revision that it is, if it differs from the one before. `others` end conflicts with them.
    pub(crate) fn descend(&self, config: &Config, draft: Draft, others: &[Descent]) -> Option<Descent> {
        let sum = shared_config::sum(draft.text.as_bytes());
        let state = self.lock();
        if state.sha256 == sum && others.is_empty() {
            return None;
        }
        drop(state);
        let before = self.descent();
        let all = || before.iter().chain(others);
        let mut lineage: Vec<String> = all().map(|one| one.revision.id.clone()).collect();
        for id in all().flat_map(|one| &one.lineage) {
            if lineage.len() < LINEAGE && !lineage.contains(id) {
                lineage.push(id.clone());
            }
        }
        let revision = Revision {
            number: all().map(|one| one.revision.number).max().unwrap_or(0) + 1,
            id: new_id(),
            sha256: sum,
            bytes: u64::try_from(draft.text.len()).unwrap_or(u64::MAX),
            parts: Vec::new(),
            author: draft.author,
            proxy: self.name.clone(),
            time: now(),
            command: draft.command,
        };
        let descent = Descent { revision, lineage };
        self.stands_at(Some(descent.clone()), config);
        Some(descent)
    }

    /// What this proxy tells the others of itself.
    pub(crate) fn line(&self) -> PeerLine {
        let state = self.lock();
        PeerLine {
            uuid: self.uuid.clone(),
            name: self.name.clone(),
            version: self.version.clone(),
            descent: state.descent.clone(),
            sha256: state.sha256.clone(),
            modules: state.modules.clone(),
        }
    }

    /// The revision that was pulled last, once.
    pub(crate) fn pulled(&self) -> Option<Pulled> {
        self.lock().pulled.take()
    }

    /// A peer's revision. Blocks.
    ///
    /// # Errors
    /// It does not answer, or has another one by now.
    pub(crate) fn pull_from(&self, at: &(String, u16), line: PeerLine, config: &Config) -> Result<Pulled, String> {
        check::connect(at, config).and_then(|mut client| check::pull(&mut client, line))
    }

    /// The others whose revisions are in conflict with this one's: where they are, and what they have.
    pub(crate) fn rivals(&self) -> Vec<((String, u16), PeerLine)> {
        let state = self.lock();
        let mine = state.descent.as_ref();
        let apart = state.peers.iter().filter_map(|(at, peer)| {
            let line = peer.line.as_ref().filter(|line| line.uuid != self.uuid && line.sha256 != state.sha256)?;
            (relation(mine, line.descent.as_ref()) == Relation::Apart).then(|| (at.clone(), line.clone()))
        });
        apart.collect()
    }
}

/// A revision in one line.
pub(crate) fn described(descent: &Descent) -> String {
    let revision = &descent.revision;
    format!("{} (by {}, {}: {})", revision.number, made_by(revision), super::ago(now() - revision.time), revision.command)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(id: &str, lineage: &[&str]) -> Descent {
        let text = |text: &str| text.to_owned();
        let revision = Revision {
            number: 1 + lineage.len() as u64,
            id: text(id),
            sha256: text(id),
            bytes: 1,
            parts: vec![],
            author: text("anna"),
            proxy: text("p"),
            time: 0,
            command: text("LOAD"),
        };
        Descent { revision, lineage: lineage.iter().map(|id| text(id)).collect() }
    }

    #[test]
    fn only_what_came_from_ones_own_is_newer() {
        let (a, b, c) = (of("a", &[]), of("b", &["a"]), of("c", &["a"]));
        let is = |mine: &Descent, theirs: &Descent| relation(Some(mine), Some(theirs));
        assert_eq!((is(&a, &b), is(&b, &a), is(&b, &b), is(&b, &c)), (Relation::Newer, Relation::Older, Relation::Same, Relation::Apart));
        assert_eq!(
            (relation(None, Some(&a)), relation(Some(&a), None), relation(None, None)),
            (Relation::Newer, Relation::Older, Relation::Same)
        );
    }

    #[test]
    fn the_newest_is_pulled_and_a_conflict_waits() {
        let (a, b, c, d) = (of("a", &[]), of("b", &["a"]), of("c", &["b", "a"]), of("d", &["a"]));
        let chosen = |mine: &Descent, others: &[&Descent]| {
            let others: Vec<Option<&Descent>> = others.iter().map(|one| Some(*one)).collect();
            choose(Some(mine), &others, &vec![false; others.len()])
        };
        assert_eq!(chosen(&a, &[&b, &c, &a]), Choice::Pull(1));
        assert_eq!(chosen(&c, &[&b, &a]), Choice::Nothing);
        assert_eq!(chosen(&a, &[&c, &d]), Choice::Conflict(vec![0, 1]), "two that are newer, and from neither each other");
        assert_eq!(chosen(&c, &[&d, &b]), Choice::Conflict(vec![0]));
        let ended = of("e", &["c", "d", "b", "a"]);
        assert_eq!(chosen(&c, &[&d, &ended]), Choice::Pull(1));
        assert_eq!(choose(Some(&c), &[Some(&d)], &[true]), Choice::Nothing, "the same content is no conflict");
        assert_eq!(choose(None, &[None, Some(&a)], &[false, false]), Choice::Pull(1));
    }
}
