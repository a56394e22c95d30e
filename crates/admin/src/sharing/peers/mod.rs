//! Proxies that list each other in `proxysql_servers` and pull configurations from each other over the admin port, without etcd.
//!
//! A revision lists its ancestors. A proxy takes only revisions that descend from its own, so no older one ever wins. Two revisions without
//! such a relation are a conflict that waits for an operator (CONFIG REBASE). No authority orders the changes: changing two proxies at the
//! same time makes a conflict, which etcd would have refused.
//!
//! INVARIANT: revisions with the same content are one revision, whichever proxy made them. The same change of the same revision has the
//! same id everywhere. If peers came to the same content by different ways, each notes the other's id as another name of its own revision.

mod check;
mod tables;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use model::remark::row_name;
use model::{About, Config, Remark};
use serde::{Deserialize, Serialize};
use shared_config::Revision;

use super::{Draft, made_by};
use crate::client::{Client, Fault};
use crate::clock::now;
use crate::store::modules::{MODULES, Module};

/// Most ancestors that a revision lists.
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

/// A revision and its ancestors, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Descent {
    /// Its checksum is that of the modules that its maker shared.
    pub revision: Revision,
    /// The ids of its ancestors.
    pub lineage: Vec<String>,
    /// Ids of revisions of other peers with the same content.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub equal: Vec<String>,
}

impl Descent {
    /// Every name of the revision.
    fn ids(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.revision.id).chain(&self.equal)
    }

    /// The name that each peer which has this content knows it by, once they have heard of each other.
    fn name(&self) -> &str {
        self.ids().min().map_or("", String::as_str)
    }

    fn came_from(&self, other: &Self) -> bool {
        other.ids().any(|id| self.lineage.contains(id))
    }

    /// This revision with what `other`, whose content is the same, has for names and ancestors; None where that is nothing new.
    fn joined(&self, other: &Self) -> Option<Self> {
        let mut joined = self.clone();
        for id in other.ids() {
            if *id != joined.revision.id && joined.equal.len() < LINEAGE && !joined.equal.contains(id) {
                joined.equal.push(id.clone());
            }
        }
        let own: Vec<String> = joined.ids().cloned().collect();
        extend(&mut joined.lineage, other.lineage.iter().filter(|id| !own.contains(id)));
        joined.revision.number = joined.revision.number.max(other.revision.number);
        (joined != *self).then_some(joined)
    }
}

/// Appends new ids, up to the limit of a lineage.
fn extend<'a>(lineage: &mut Vec<String>, ids: impl IntoIterator<Item = &'a String>) {
    for id in ids {
        if lineage.len() < LINEAGE && !lineage.contains(id) {
            lineage.push(id.clone());
        }
    }
}

/// The relation of another proxy's revision to this one's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Relation {
    /// The same content, or no revision on either side.
    Same,
    /// The other one descends from this one's.
    Newer,
    /// This one descends from the other one's.
    Older,
    /// Neither descends from the other: a conflict.
    Apart,
}

/// The relation of `theirs` to `mine`; None is a proxy without a revision.
pub(crate) fn relation(mine: Option<&Descent>, theirs: Option<&Descent>) -> Relation {
    match (mine, theirs) {
        (None, None) => Relation::Same,
        (None, Some(_)) => Relation::Newer,
        (Some(_), None) => Relation::Older,
        (Some(mine), Some(theirs)) => match () {
            () if mine.ids().any(|id| theirs.ids().any(|other| id == other)) => Relation::Same,
            () if theirs.came_from(mine) => Relation::Newer,
            () if mine.came_from(theirs) => Relation::Older,
            () => Relation::Apart,
        },
    }
}

/// The next step among the others' revisions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Choice {
    /// No revision is newer.
    Nothing,
    /// The index of a newer revision to take.
    Pull(usize),
    /// The revision of the one with this index has the same content, and names or ancestors that this proxy does not know.
    Join(usize),
    /// These do not descend from each other, or not from this proxy's.
    Conflict(Vec<usize>),
    /// No proxy has a revision, and these have another content.
    Undecided(Vec<usize>),
}

/// Chooses among the others' revisions. `is_equal` says which ones have this proxy's content.
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
    let is_join = |index: &usize| {
        let joined = mine.zip(others[*index]).map(|(mine, theirs)| mine.joined(theirs).is_some());
        is_equal.get(*index) == Some(&true) && joined == Some(true)
    };
    let join = of(Relation::Apart).chain(of(Relation::Same)).find(is_join);
    let undecided = || of(Relation::Same).filter(|index| mine.is_none() && is_equal.get(*index) == Some(&false)).collect::<Vec<_>>();
    match (newer.iter().find(|one| is_newest(one)), newer.is_empty()) {
        // One that came from all that are apart ends the conflict.
        (Some(one), _) if apart.iter().all(|other| relation(others[*other], others[*one]) == Relation::Newer) => Choice::Pull(*one),
        _ if let Some(join) = join => Choice::Join(join),
        (Some(_), _) | (None, true) if !apart.is_empty() => Choice::Conflict(apart),
        (None, false) => Choice::Conflict(newer),
        _ => match undecided() {
            differing if differing.is_empty() => Choice::Nothing,
            differing => Choice::Undecided(differing),
        },
    }
}

/// A row of `proxysql_servers`, with the peer's last answers.
#[derive(Debug, Clone, Default)]
pub(super) struct Peer {
    weight: i64,
    comment: String,
    /// Its last answer.
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

impl PeerLine {
    /// No more is kept than this version would say.
    fn bounded(mut self) -> Self {
        if let Some(descent) = &mut self.descent {
            descent.lineage.truncate(LINEAGE);
            descent.equal.truncate(LINEAGE);
        }
        self
    }
}

/// A proxy's answer to `CONFIG REVISION`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PeerLine {
    pub uuid: String,
    pub name: String,
    pub version: String,
    /// None before the first revision.
    pub descent: Option<Descent>,
    /// Checksum of its shared modules as they are now.
    pub sha256: String,
    /// In words of LOAD, for example `MYSQL USERS`.
    pub modules: Vec<String>,
}

/// A revision that was pulled, for the engine.
#[derive(Debug, Clone)]
pub(crate) struct Pulled {
    /// The revision, whose maker may be a third proxy.
    pub descent: Descent,
    /// The modules in the text.
    pub modules: Vec<String>,
    /// The configuration's text, with passwords.
    pub text: String,
}

#[derive(Debug, Default)]
struct State {
    descent: Option<Descent>,
    /// Checksum of this proxy's shared modules.
    sha256: String,
    modules: Vec<String>,
    peers: BTreeMap<(String, u16), Peer>,
    pulled: Option<Pulled>,
    /// A peer with the same content, whose names and ancestors this proxy is to know.
    joining: Option<PeerLine>,
    conflict: Option<String>,
    since: i64,
    /// The id of a revision that an operator refused or this proxy cannot use, with the reason.
    refused: Option<(String, String)>,
}

/// This proxy among its peers. One a process.
#[derive(Debug)]
pub(crate) struct Peers {
    uuid: String,
    name: String,
    version: String,
    address: String,
    /// Answers that were longer than allowed.
    too_large: AtomicU64,
    state: Mutex<State>,
}

/// Whether configurations are pulled from peers.
pub(crate) fn is_on(config: &Config) -> bool {
    !super::Sharing::is_on(config) && !config.admin.cluster_username.is_empty() && !config.rows("proxysql_servers").is_empty()
}

/// That peers are listed and not asked, if so.
pub(crate) fn silence(config: &Config) -> Option<Remark> {
    let rows = config.rows("proxysql_servers");
    let first = rows.first().filter(|_| !is_on(config))?;
    let why = if super::Sharing::is_on(config) {
        "etcd holds the shared configuration (admin-shared_config_endpoints)"
    } else {
        "admin-cluster_username is empty. Set it and admin-cluster_password, then LOAD ADMIN VARIABLES TO RUNTIME"
    };
    let text = format!("the proxy polls none of the listed peers ({}) because {why}", rows.len());
    Some(Remark { table: "proxysql_servers", row: row_name(first), column: "hostname", about: About::Dead, text })
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

pub(crate) fn shared_modules(config: &Config) -> Vec<&'static Module> {
    MODULES.iter().filter(|module| diffs_before_sync(config, module.words) > 0).collect()
}

/// Whether there is nothing that a proxy could give to its peers but where they are.
fn is_blank(config: &Config) -> bool {
    let mut tables = shared_modules(config).into_iter().flat_map(|module| module.part.tables.iter().copied());
    tables.all(|table| table == "proxysql_servers" || config.rows(table).is_empty())
}

/// `base` with these modules replaced by those of `from`.
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

/// The text of this proxy's shared modules.
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
            too_large: AtomicU64::new(0),
            state: Mutex::new(State { descent, since: now(), ..State::default() }),
        };
        peers.note(config);
        Arc::new(peers)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the configuration in force.
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

    /// A LOAD has put this in force: the revision that it is. A LOAD without a change makes none, unless it would be the first one and has
    /// something to give, or `is_ordered`. `others` end conflicts with them.
    pub(crate) fn descend(&self, config: &Config, draft: Draft, others: &[Descent], is_ordered: bool) -> Option<Descent> {
        let sum = shared_config::sum(draft.text.as_bytes());
        let (is_unchanged, before) = {
            let state = self.lock();
            (state.sha256 == sum, state.descent.clone())
        };
        // Beside a peer's revision, which comes with the next checks, a first one of its own would be a rival.
        let is_first = before.is_none() && !is_blank(config) && self.known_revision().is_none();
        if is_unchanged && others.is_empty() && !is_first && !is_ordered {
            return None;
        }
        let all = || before.iter().chain(others);
        let mut lineage = Vec::new();
        extend(&mut lineage, all().flat_map(Descent::ids));
        // In turn, so that of each the newest are kept.
        let longest = all().map(|one| one.lineage.len()).max().unwrap_or(0);
        extend(&mut lineage, (0..longest).flat_map(|back| all().filter_map(move |one| one.lineage.get(back))));
        // Any proxy that makes this change of these revisions makes the same revision.
        let mut names: Vec<&str> = all().map(Descent::name).collect();
        names.sort_unstable();
        let id = shared_config::sum(format!("{sum} {}", names.join(" ")).as_bytes());
        let revision = Revision {
            number: all().map(|one| one.revision.number).max().unwrap_or(0) + 1,
            id: id.chars().take(32).collect(),
            sha256: sum,
            bytes: u64::try_from(draft.text.len()).unwrap_or(u64::MAX),
            parts: Vec::new(),
            author: draft.author,
            proxy: self.name.clone(),
            time: now(),
            command: draft.command,
        };
        let descent = Descent { revision, lineage, equal: Vec::new() };
        self.stands_at(Some(descent.clone()), config);
        Some(descent)
    }

    /// This proxy's line for its peers.
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

    /// This proxy's revision with the names and ancestors that a peer's has whose content is the same, once.
    pub(crate) fn joined(&self) -> Option<Descent> {
        let mut state = self.lock();
        let line = state.joining.take()?;
        // A LOAD may have been faster.
        if line.sha256 == state.sha256 { state.descent.as_ref()?.joined(&line.descent?) } else { None }
    }

    /// A peer that has a revision, for one that has none.
    pub(crate) fn known_revision(&self) -> Option<(String, Descent)> {
        let state = self.lock();
        let lines = state.peers.values().filter_map(|peer| peer.line.as_ref());
        lines.filter_map(|line| Some((line.name.clone(), line.descent.clone()?))).next()
    }

    /// Pulls a peer's revision. Blocks.
    ///
    /// # Errors
    /// The peer does not answer, or has another revision by now.
    pub(crate) fn pull_from(&self, at: &(String, u16), line: PeerLine, config: &Config) -> Result<Pulled, String> {
        let mut client = check::connect(at, config)?;
        let pulled = check::pull(&mut client, line, config);
        self.measure(&client);
        pulled
    }

    /// Counts an answer that was too long.
    fn measure(&self, client: &Client) {
        self.too_large.fetch_add(u64::from(client.fault() == Some(Fault::TooLong)), Ordering::Relaxed);
    }

    /// The peers whose revisions conflict with this one's, with address and line.
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
        Descent { revision, lineage: lineage.iter().map(|id| text(id)).collect(), equal: vec![] }
    }

    /// Two peers that came to the same content by different ways, and have heard of each other.
    #[test]
    fn the_same_content_is_one_revision() {
        let (a, b, x) = (of("a", &[]), of("b", &["x"]), of("x", &[]));
        assert_eq!(choose(Some(&a), &[Some(&b)], &[true]), Choice::Join(0));
        let (mine, theirs) = (a.joined(&b).unwrap(), b.joined(&a).unwrap());
        assert_eq!((mine.name(), theirs.name()), ("a", "a"));
        assert_eq!((mine.lineage.clone(), theirs.lineage.clone()), (vec!["x".to_owned()], vec!["x".to_owned()]));
        // Whether the other one has heard of it or not.
        for other in [&b, &theirs] {
            assert_eq!(relation(Some(&mine), Some(other)), Relation::Same);
            assert_eq!(choose(Some(&mine), &[Some(other)], &[true]), Choice::Nothing);
        }
        // A descendant of either is newer to all.
        let next = of("n", &["b", "x"]);
        assert_eq!(choose(Some(&mine), &[Some(&next), Some(&b)], &[false, true]), Choice::Pull(0));
        let peers = Peers::new(&shared_config::ProxyLine::default(), Some(mine.clone()), &Config::default());
        let draft = || Draft { text: "new".to_owned(), author: String::new(), command: String::new() };
        let next = peers.descend(&Config::default(), draft(), &[], false).unwrap();
        for before in [&a, &b, &x, &mine, &theirs] {
            assert_eq!(relation(Some(before), Some(&next)), Relation::Newer);
        }
        // The same change of it is the same revision.
        let peers = Peers::new(&shared_config::ProxyLine::default(), Some(theirs), &Config::default());
        assert_eq!(peers.descend(&Config::default(), draft(), &[], false).unwrap().revision.id, next.revision.id);
        let kept: Descent = serde_json::from_str(&serde_json::to_string(&mine).unwrap()).unwrap();
        assert_eq!(kept, mine);
    }

    #[test]
    fn what_ends_a_conflict_names_both_lines() {
        let line = |name: &str| (0..LINEAGE).map(|n| format!("{name}{n}")).collect::<Vec<_>>();
        let of = |name: &str| of(name, &line(name).iter().map(String::as_str).collect::<Vec<_>>());
        let peers = Peers::new(&shared_config::ProxyLine::default(), Some(of("a")), &Config::default());
        let draft = Draft { text: "new".to_owned(), author: String::new(), command: String::new() };
        let next = peers.descend(&Config::default(), draft, &[of("b")], true).unwrap();
        assert_eq!((&next.lineage[..6], next.lineage.len()), (&["a", "b", "a0", "b0", "a1", "b1"].map(str::to_owned)[..], LINEAGE));
    }

    #[test]
    fn what_is_newer_is_pulled_before_names_are_exchanged() {
        let (a, b, next) = (of("a", &[]), of("b", &[]), of("n", &["a"]));
        assert_eq!(choose(Some(&a), &[Some(&b), Some(&next)], &[true, false]), Choice::Pull(1));
        assert_eq!(choose(Some(&b), &[Some(&a), Some(&next)], &[true, false]), Choice::Join(0));
        assert_eq!(choose(b.joined(&a).as_ref(), &[Some(&a), Some(&next)], &[true, false]), Choice::Pull(1));
    }

    #[test]
    fn peers_without_a_revision_that_differ_are_told() {
        assert_eq!(choose(None, &[None, None], &[true, false]), Choice::Undecided(vec![1]));
        assert_eq!(choose(None, &[None, None], &[true, true]), Choice::Nothing);
        assert_eq!(choose(None, &[None, Some(&of("a", &[]))], &[false, false]), Choice::Pull(1));
    }

    #[test]
    fn the_first_revision_is_of_a_proxy_that_has_something_to_give() {
        let config = |text: &str| model::parse(text, "test.cnf").unwrap().0;
        let shared = r#"admin_variables = { cluster_username="c" } proxysql_servers = ( { hostname="p", port=6032 } ) "#;
        let load = |text: &str, is_ordered: bool| {
            let config = config(&format!("{shared}{text}"));
            let peers = Peers::new(&shared_config::ProxyLine::default(), None, &config);
            let draft = || Draft { text: text_of(&config), author: String::new(), command: String::new() };
            let first = peers.descend(&config, draft(), &[], is_ordered);
            assert!(first.is_none() || peers.descend(&config, draft(), &[], false).is_none(), "one is enough");
            first.map(|first| first.revision.number)
        };
        let users = r#"mysql_users = ( { username="anna" } )"#;
        assert_eq!((load(users, false), load("", false), load("", true)), (Some(1), None, Some(1)));
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
        assert_eq!(choose(Some(&c), &[Some(&d)], &[true]), Choice::Join(0), "the same content is no conflict");
        assert_eq!(choose(None, &[None, Some(&a)], &[false, false]), Choice::Pull(1));
    }
}
