//! What a worker remembers of statements it has seen: effects of SET, metadata of prepared statements.
//!
//! Everything here is bounded and may be forgotten at any time without changing an answer.

use model::{HostgroupId, Listen};
use session_state::class::Class;
use session_state::setting::SetEffect;
use session_state::state::{State, Text, Variables};
use session_state::statement_key::StatementKey;
use session_state::stored::Body;
use sql::Routine;
use std::collections::HashMap;
use std::hash::Hash;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Weak};

type RandomMap<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// A user and a schema.
type SchemaKey = (Box<str>, HostgroupId, Box<[u8]>);

/// Answer to COM_STMT_PREPARE, as the server gave it.
pub(crate) struct PrepareReply {
    /// All packets with headers, framed as `caps` say.
    pub packets: Vec<u8>,
    /// Capabilities of the backend that gave it.
    pub caps: wire::flags::Capabilities,
    /// Variables of the session that may change what its columns look like, joined.
    pub settings: Text,
    /// Parameters.
    pub params: u16,
    /// The process's DDL epoch when it was asked for.
    pub ddl_epoch: u64,
    /// Worker clock (ms) when it was asked for.
    pub at_ms: u64,
}

/// Whose word is remembered: what one server says to one user need not be what another says to another, nor what it says to a
/// client with other flags.
#[derive(Clone, Copy)]
pub(crate) struct AnswerSource<'a> {
    /// The hostgroup.
    pub hostgroup: HostgroupId,
    /// The server's number in it; None for all of them, which are of one version.
    pub server: Option<usize>,
    /// The version.
    pub version: &'a str,
    /// The user.
    pub user: &'a str,
    /// The client flags that change what statements mean, and how definitions of columns look.
    pub class: Class,
    /// The session, where its rights are its own (SET ROLE).
    pub session: Option<u64>,
}

impl AnswerSource<'_> {
    fn with(&self, text: &[u8]) -> Box<[u8]> {
        let server = self.server.map_or(u64::MAX, |server| server as u64);
        let (hostgroup, server) = (self.hostgroup.0.to_le_bytes(), server.to_le_bytes());
        let class = self.class.capabilities().bits().to_le_bytes();
        let session = self.session.unwrap_or(u64::MAX).to_le_bytes();
        [&hostgroup[..], &server, &class, &session, self.version.as_bytes(), &[0], self.user.as_bytes(), &[0], text].concat().into()
    }
}

struct KnownBody {
    body: Body,
    ddl_epoch: u64,
    at_ms: u64,
}

struct KnownTable {
    is_harmless: bool,
    ddl_epoch: u64,
    at_ms: u64,
}

/// What may be forgotten, and is when it is too much: all of it at once.
struct Bounded<K, V> {
    /// Values with what each counts, bytes.
    entries: RandomMap<K, (V, usize)>,
    bytes: usize,
}

impl<K, V> Default for Bounded<K, V> {
    fn default() -> Self {
        Self { entries: RandomMap::default(), bytes: 0 }
    }
}

impl<K: Eq + Hash, V> Bounded<K, V> {
    fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(value, _)| value)
    }

    /// At most `max` of them, and `max_bytes`; what is larger than that alone is not kept.
    fn insert(&mut self, key: K, value: V, size: usize, (max, max_bytes): (usize, usize)) {
        if size > max_bytes {
            return;
        }
        if self.entries.len() >= max || self.bytes + size > max_bytes {
            self.entries.clear();
            self.bytes = 0;
        }
        self.bytes += size;
        if let Some((_, size)) = self.entries.insert(key, (value, size)) {
            self.bytes -= size;
        }
    }

    fn remove(&mut self, key: &K) {
        self.bytes -= self.entries.remove(key).map_or(0, |(_, size)| size);
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Memory {
    sets: RandomMap<Box<[u8]>, (Arc<SetEffect>, u64)>,
    prepared: Bounded<(Box<[u8]>, Arc<StatementKey>), PrepareReply>,
    bodies: Bounded<Box<[u8]>, KnownBody>,
    tables: Bounded<Box<[u8]>, KnownTable>,
    schemas: RandomMap<SchemaKey, (u64, u64)>,
    accepted: Bounded<Box<[u8]>, u64>,
    interned: Vec<Variables>,
    statements: RandomMap<u64, Weak<StatementKey>>,
    interned_texts: Vec<Text>,
    proxy_addrs: Vec<(Option<SocketAddr>, ProxyAddr)>,
    unknown_collations: Vec<u16>,
}

/// The address that a client connected to, as rules see it: IP address and port, or a Unix socket's path (empty where there are
/// several) and 0.
pub(crate) type ProxyAddr = Rc<(Box<str>, u16)>;

/// SET statements remembered.
const MAX_SETS: usize = 1024;
/// How long a server's word on a SET counts, ms: its global variables say which collation SET NAMES gives, and rights come and go.
const SET_AGE_MS: u64 = 60_000;
/// Longest SET statement remembered, bytes.
const MAX_SET_LEN: usize = 1024;
/// Bytes of prepared metadata remembered by a worker.
const MAX_PREPARED_BYTES: usize = 16 << 20;
/// Stored routines remembered, and bytes of what is remembered of them.
const MAX_BODIES: usize = 4096;
const MAX_BODIES_BYTES: usize = 1 << 20;
/// Tables and views remembered, and bytes of their names.
const MAX_TABLES: usize = 4096;
const MAX_TABLES_BYTES: usize = 1 << 20;
/// (user, schema) pairs remembered as valid.
const MAX_SCHEMAS: usize = 10_000;
/// How long a (user, schema) pair counts as valid at login, ms.
const SCHEMA_AGE_MS: u64 = 10_000;
/// Synchronising SETs remembered as accepted.
const MAX_ACCEPTED: usize = 4096;
/// Longest synchronising SET remembered, bytes: those that carry long user variables are rarely said twice.
const MAX_ACCEPTED_LEN: usize = 4096;
/// Bytes of synchronising SETs remembered by a worker.
const MAX_ACCEPTED_BYTES: usize = 4 << 20;
/// How long a server's word on a synchronising SET counts, ms: privileges and time zones come and go.
const ACCEPTED_AGE_MS: u64 = 30_000;

/// Unknown collations that are told of.
const MAX_COLLATIONS: usize = 64;
/// Statements that clients have prepared, for sharing.
const MAX_STATEMENTS: usize = 10_000;
/// Sets of variables (and schema names) kept for sharing.
const MAX_INTERNED: usize = 64;

impl Memory {
    /// The effect of this SET statement, if it was learnt there since rights last changed, and not long ago.
    pub(crate) fn set_effect(&self, place: &AnswerSource<'_>, sql: &[u8], now_ms: u64, rights_changed_ms: u64) -> Option<Arc<SetEffect>> {
        let (effect, at_ms) = self.sets.get(&place.with(sql))?;
        let is_fresh = *at_ms >= rights_changed_ms && now_ms.saturating_sub(*at_ms) <= SET_AGE_MS;
        is_fresh.then(|| Arc::clone(effect))
    }

    /// Remembers the effect of a SET statement.
    pub(crate) fn learn_set(&mut self, place: &AnswerSource<'_>, sql: &[u8], effect: SetEffect, at_ms: u64) {
        if sql.len() > MAX_SET_LEN {
            return;
        }
        if self.sets.len() >= MAX_SETS {
            self.sets.clear();
        }
        self.sets.insert(place.with(sql), (Arc::new(effect), at_ms));
    }

    /// A server refused what a SET learnt here gave a session: all of them are asked for anew.
    pub(crate) fn forget_sets(&mut self) {
        self.sets.clear();
    }

    /// Has this server accepted this synchronising SET of this user a moment ago?
    pub(crate) fn is_accepted(&self, place: &AnswerSource<'_>, sql: &str, now_ms: u64) -> bool {
        sql.len() <= MAX_ACCEPTED_LEN
            && self.accepted.get(&place.with(sql.as_bytes())).is_some_and(|at| now_ms.saturating_sub(*at) <= ACCEPTED_AGE_MS)
    }

    /// A server accepted this synchronising SET.
    pub(crate) fn accept(&mut self, place: &AnswerSource<'_>, sql: &str, now_ms: u64) {
        if sql.len() > MAX_ACCEPTED_LEN {
            return;
        }
        let key = place.with(sql.as_bytes());
        let size = key.len();
        self.accepted.insert(key, now_ms, size, (MAX_ACCEPTED, MAX_ACCEPTED_BYTES));
    }

    /// The servers' answer to the same COM_STMT_PREPARE under the same settings, when it is fresh.
    pub(crate) fn prepared(
        &self,
        place: &AnswerSource<'_>,
        (key, settings): (&Arc<StatementKey>, &[u8]),
        ddl_epoch: u64,
        now_ms: u64,
        max_age_ms: u64,
    ) -> Option<&PrepareReply> {
        let known = self.prepared.get(&(place.with(b""), Arc::clone(key)))?;
        let is_fresh = |p: &PrepareReply| p.ddl_epoch == ddl_epoch && now_ms.saturating_sub(p.at_ms) <= max_age_ms;
        Some(known).filter(|p| is_fresh(p) && *p.settings == *settings)
    }

    /// Remembers an answer to COM_STMT_PREPARE; at most `max` of them.
    pub(crate) fn learn_prepared(&mut self, place: &AnswerSource<'_>, key: Arc<StatementKey>, reply: PrepareReply, max: usize) {
        let size = reply.packets.len() + key.text.len();
        self.prepared.insert((place.with(b""), key), reply, size, (max, MAX_PREPARED_BYTES));
    }

    /// The metadata of a statement changed.
    pub(crate) fn forget_prepared(&mut self, place: &AnswerSource<'_>, key: &Arc<StatementKey>) {
        self.prepared.remove(&(place.with(b""), Arc::clone(key)));
    }

    /// What is known of a stored routine, when it is fresh.
    pub(crate) fn body(&self, place: &AnswerSource<'_>, routine: &Routine, ddl_epoch: u64, now_ms: u64, max_age_ms: u64) -> Option<&Body> {
        let known = self.bodies.get(&place.with(&routine_key(routine)))?;
        (known.ddl_epoch == ddl_epoch && now_ms.saturating_sub(known.at_ms) <= max_age_ms).then_some(&known.body)
    }

    /// Remembers what a stored routine leaves.
    pub(crate) fn learn_body(&mut self, place: &AnswerSource<'_>, routine: &Routine, body: Body, ddl_epoch: u64, at_ms: u64) {
        let key = place.with(&routine_key(routine));
        let calls = if let Body::Read { calls, .. } = &body { calls.iter().map(|called| routine_key(called).len() + 64).sum() } else { 0 };
        let size = key.len() + calls + 64;
        self.bodies.insert(key, KnownBody { body, ddl_epoch, at_ms }, size, (MAX_BODIES, MAX_BODIES_BYTES));
    }

    /// Whether reading a table runs no code that may write, when that is known and fresh.
    pub(crate) fn is_harmless(
        &self,
        place: &AnswerSource<'_>,
        table: (&str, &str),
        ddl_epoch: u64,
        now_ms: u64,
        max_age_ms: u64,
    ) -> Option<bool> {
        let known = self.tables.get(&place.with(&table_key(table)))?;
        (known.ddl_epoch == ddl_epoch && now_ms.saturating_sub(known.at_ms) <= max_age_ms).then_some(known.is_harmless)
    }

    /// When (ms) that was learnt of a table.
    pub(crate) fn harmless_since_ms(&self, place: &AnswerSource<'_>, table: (&str, &str)) -> Option<u64> {
        self.tables.get(&place.with(&table_key(table))).map(|known| known.at_ms)
    }

    /// Remembers that of a table.
    pub(crate) fn learn_table(&mut self, place: &AnswerSource<'_>, table: (&str, &str), is_harmless: bool, ddl_epoch: u64, at_ms: u64) {
        let key = place.with(&table_key(table));
        let size = key.len() + 64;
        self.tables.insert(key, KnownTable { is_harmless, ddl_epoch, at_ms }, size, (MAX_TABLES, MAX_TABLES_BYTES));
    }

    /// Was this schema open to this user a moment ago, and nothing was defined or granted since?
    pub(crate) fn schema_is_valid(&self, (user, at): (&str, HostgroupId), schema: &[u8], ddl_epoch: u64, now_ms: u64) -> bool {
        let known = self.schemas.get(&(user.into(), at, schema.into()));
        known.is_some_and(|(epoch, at_ms)| *epoch == ddl_epoch && now_ms.saturating_sub(*at_ms) <= SCHEMA_AGE_MS)
    }

    /// A server of this hostgroup let this user into this schema.
    pub(crate) fn learn_schema(&mut self, (user, at): (&str, HostgroupId), schema: &[u8], ddl_epoch: u64, now_ms: u64) {
        if self.schemas.len() >= MAX_SCHEMAS {
            self.schemas.clear();
        }
        self.schemas.insert((user.into(), at, schema.into()), (ddl_epoch, now_ms));
    }

    /// Whether this is the first that is heard of a collation which the servers do not know.
    pub(crate) fn is_new_collation(&mut self, id: u16) -> bool {
        let is_new = !self.unknown_collations.contains(&id) && self.unknown_collations.len() < MAX_COLLATIONS;
        if is_new {
            self.unknown_collations.push(id);
        }
        is_new
    }

    /// Sessions with equal settings hold one copy of them.
    pub(crate) fn share(&mut self, state: &mut State) {
        state.variables = self.intern(std::mem::take(&mut state.variables));
        if let Some(schema) = state.schema.take() {
            state.schema = Some(self.intern_text(schema));
        }
    }

    /// The same variables in one shared copy, if they were seen before.
    pub(crate) fn intern(&mut self, variables: Variables) -> Variables {
        if let Some(known) = self.interned.iter().find(|v| **v == variables) {
            return known.clone();
        }
        if self.interned.len() >= MAX_INTERNED {
            self.interned.clear();
        }
        self.interned.push(variables.clone());
        variables
    }

    /// The same statement in one shared copy, if a client has it: their texts take room once, and that two are the same is seen at once.
    pub(crate) fn intern_statement(&mut self, key: StatementKey) -> Arc<StatementKey> {
        let hash = key.hash();
        if let Some(known) = self.statements.get(&hash).and_then(Weak::upgrade).filter(|known| **known == key) {
            return known;
        }
        if self.statements.len() >= MAX_STATEMENTS {
            self.statements.retain(|_, known| known.strong_count() > 0);
            if self.statements.len() > MAX_STATEMENTS / 2 {
                self.statements.clear();
            }
        }
        let key = Arc::new(key);
        self.statements.insert(hash, Arc::downgrade(&key));
        key
    }

    /// The same text in one shared copy, if it was seen before.
    pub(crate) fn intern_text(&mut self, text: Text) -> Text {
        if let Some(known) = self.interned_texts.iter().find(|t| **t == text) {
            return known.clone();
        }
        if self.interned_texts.len() >= MAX_INTERNED {
            self.interned_texts.clear();
        }
        self.interned_texts.push(text.clone());
        text
    }

    /// A listener's address in one shared copy. Where there is one Unix socket to come to, its path is it.
    pub(crate) fn proxy_addr(&mut self, local: Option<SocketAddr>, listen: &[Listen]) -> ProxyAddr {
        if let Some((_, known)) = self.proxy_addrs.iter().find(|(address, _)| *address == local) {
            return Rc::clone(known);
        }
        if self.proxy_addrs.len() >= MAX_INTERNED {
            self.proxy_addrs.clear();
        }
        let text = match local {
            Some(local) => local.ip().to_canonical().to_string(),
            None => Listen::only_path(listen).map(|path| path.display().to_string()).unwrap_or_default(),
        };
        let address = Rc::new((text.into(), local.map_or(0, |local| local.port())));
        self.proxy_addrs.push((local, Rc::clone(&address)));
        address
    }
}

/// Names of routines ignore case, those of schemas do not everywhere.
fn routine_key(routine: &Routine) -> Vec<u8> {
    let kind = u8::from(routine.is_procedure);
    let schema = routine.schema.as_deref().unwrap_or_default();
    [&[kind], schema.as_bytes(), &[0], routine.name.to_ascii_lowercase().as_bytes()].concat()
}

/// Whether names of tables ignore case is the server's matter.
fn table_key((schema, name): (&str, &str)) -> Vec<u8> {
    [schema.as_bytes(), &[0], name.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use session_state::statement_key::Meaning;
    use wire::flags::Capabilities;

    fn place() -> AnswerSource<'static> {
        let class = Class::of(Capabilities::default());
        AnswerSource { hostgroup: HostgroupId(0), server: Some(0), version: "8.0", user: "anna", class, session: None }
    }

    #[test]
    fn a_unix_socket_is_known_by_its_path_where_there_is_one() {
        let seen = |listen: &str, local: Option<&str>| {
            let local = local.map(|local| local.parse().unwrap());
            let address = Memory::default().proxy_addr(local, &Listen::parse_list(listen).unwrap());
            (address.0.to_string(), address.1)
        };
        assert_eq!(seen("0.0.0.0:6033;/run/p.sock", None), ("/run/p.sock".to_owned(), 0));
        assert_eq!(seen("/run/p.sock;/run/q.sock", None), (String::new(), 0));
        assert_eq!(seen("0.0.0.0:6033;/run/p.sock", Some("10.0.0.1:6033")), ("10.0.0.1".to_owned(), 6033));
    }

    #[test]
    fn statements_are_shared_while_a_client_has_them() {
        let key = |text: &str| {
            let meaning = Meaning { schema: None, mode: b""[..].into(), user_variables: None, text: text.as_bytes().into(), types: None };
            StatementKey::from(meaning)
        };
        let mut memory = Memory::default();
        let first = memory.intern_statement(key("SELECT 1"));
        assert!(Arc::ptr_eq(&first, &memory.intern_statement(key("SELECT 1"))));
        assert!(!Arc::ptr_eq(&first, &memory.intern_statement(key("SELECT 2"))));
        for n in 0..MAX_STATEMENTS {
            memory.intern_statement(key(&n.to_string()));
        }
        assert!(memory.statements.len() <= MAX_STATEMENTS);
        assert!(Arc::ptr_eq(&first, &memory.intern_statement(key("SELECT 1"))), "what nobody has goes first");
        let kept: Vec<_> = (0..MAX_STATEMENTS).map(|n| memory.intern_statement(key(&n.to_string()))).collect();
        assert!(kept.len() == MAX_STATEMENTS && memory.statements.len() <= MAX_STATEMENTS);
    }

    #[test]
    fn tables_are_known_for_a_while_and_until_a_definition() {
        let mut memory = Memory::default();
        memory.learn_table(&place(), ("s", "v"), false, 1, 10);
        memory.learn_table(&place(), ("s", "t"), true, 1, 10);
        assert_eq!(memory.is_harmless(&place(), ("s", "v"), 1, 15, 5), Some(false));
        assert_eq!(memory.is_harmless(&place(), ("s", "t"), 1, 15, 5), Some(true));
        assert_eq!(memory.is_harmless(&place(), ("s", "t"), 1, 16, 5), None);
        assert_eq!(memory.is_harmless(&place(), ("s", "t"), 2, 15, 5), None);
        assert_eq!(memory.is_harmless(&place(), ("s", "T"), 1, 15, 5), None);
        let since_ms = |name| memory.harmless_since_ms(&place(), ("s", name));
        assert_eq!((since_ms("t"), since_ms("v"), since_ms("T")), (Some(10), Some(10), None));
        assert_eq!(memory.is_harmless(&AnswerSource { user: "berta", ..place() }, ("s", "t"), 1, 15, 5), None, "who may see less");
        for n in 0..=MAX_TABLES {
            memory.learn_table(&place(), ("s", &n.to_string()), true, 1, 10);
        }
        assert!(memory.tables.entries.len() <= MAX_TABLES);
    }

    #[test]
    fn a_set_is_known_for_a_while_and_to_sessions_that_are_alike() {
        let mut memory = Memory::default();
        memory.learn_set(&place(), b"SET NAMES utf8mb4", SetEffect::default(), 10);
        let is_known = |memory: &Memory, place: &AnswerSource<'_>, now_ms, rights_ms| {
            memory.set_effect(place, b"SET NAMES utf8mb4", now_ms, rights_ms).is_some()
        };
        assert!(is_known(&memory, &place(), 10 + SET_AGE_MS, 10));
        assert!(!is_known(&memory, &place(), 11 + SET_AGE_MS, 10), "globals may have changed");
        assert!(!is_known(&memory, &place(), 12, 11), "rights have changed");
        let class = Class::of(Capabilities::IGNORE_SPACE);
        for other in [
            AnswerSource { user: "berta", ..place() },
            AnswerSource { version: "8.4", ..place() },
            AnswerSource { server: None, ..place() },
            AnswerSource { hostgroup: HostgroupId(1), ..place() },
            AnswerSource { class, ..place() },
            AnswerSource { session: Some(7), ..place() },
        ] {
            assert!(!is_known(&memory, &other, 10, 0));
        }
    }

    #[test]
    fn a_schema_is_open_until_something_is_defined_or_granted() {
        let (mut memory, anna) = (Memory::default(), ("anna", HostgroupId(1)));
        memory.learn_schema(anna, b"s", 3, 10);
        assert!(memory.schema_is_valid(anna, b"s", 3, 10 + SCHEMA_AGE_MS));
        assert!(!memory.schema_is_valid(anna, b"s", 3, 11 + SCHEMA_AGE_MS));
        assert!(!memory.schema_is_valid(anna, b"s", 4, 10));
        assert!(!memory.schema_is_valid(("berta", HostgroupId(1)), b"s", 3, 10));
        assert!(!memory.schema_is_valid(("anna", HostgroupId(2)), b"s", 3, 10));
    }

    #[test]
    fn a_preparation_is_known_under_the_same_settings() {
        let mut memory = Memory::default();
        let meaning = Meaning { schema: None, mode: b""[..].into(), user_variables: None, text: b"SELECT 1/3"[..].into(), types: None };
        let key = Arc::new(StatementKey::from(meaning));
        let reply = |settings: &[u8]| PrepareReply {
            packets: Vec::new(),
            caps: Capabilities::default(),
            settings: settings.into(),
            params: 0,
            ddl_epoch: 1,
            at_ms: 10,
        };
        memory.learn_prepared(&place(), Arc::clone(&key), reply(b"a"), 10);
        let is_known = |memory: &Memory, place: &AnswerSource<'_>, settings: &[u8], epoch| {
            memory.prepared(place, (&key, settings), epoch, 12, 5).is_some()
        };
        assert!(is_known(&memory, &place(), b"a", 1));
        assert!(!is_known(&memory, &place(), b"b", 1) && !is_known(&memory, &place(), b"a", 2));
        let class = Class::of(Capabilities::MARIADB_CLIENT_EXTENDED_METADATA);
        assert!(!is_known(&memory, &AnswerSource { class, ..place() }, b"a", 1));
        assert!(!is_known(&memory, &AnswerSource { session: Some(7), ..place() }, b"a", 1));
        memory.learn_prepared(&place(), Arc::clone(&key), reply(b"b"), 10);
        assert!(is_known(&memory, &place(), b"b", 1) && !is_known(&memory, &place(), b"a", 1));
        memory.forget_prepared(&place(), &key);
        assert!(!is_known(&memory, &place(), b"b", 1));
    }

    #[test]
    fn accepted_sets_are_bounded_in_bytes() {
        let mut memory = Memory::default();
        memory.accept(&place(), "SET a=1", 0);
        memory.accept(&place(), "SET a=1", 5);
        assert!(memory.is_accepted(&place(), "SET a=1", ACCEPTED_AGE_MS + 5));
        let long = format!("SET @a='{}'", "x".repeat(MAX_ACCEPTED_LEN));
        memory.accept(&place(), &long, 0);
        assert!(!memory.is_accepted(&place(), &long, 0), "too long");
        assert_eq!(memory.accepted.bytes, place().with(b"SET a=1").len(), "counted once");
        for n in 0..2 * MAX_ACCEPTED {
            memory.accept(&place(), &format!("SET @a='{n:04000}'"), 0);
        }
        let kept: usize = memory.accepted.entries.keys().map(|key| key.len()).sum();
        assert_eq!(kept, memory.accepted.bytes);
        assert!(kept <= MAX_ACCEPTED_BYTES, "{kept}");
    }
}
