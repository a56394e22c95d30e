//! Session state as data: what a session wants, what a backend has, and the statements between the two.
//!
//! [`State`] has one shape for both sides. [`diff`] is pure. A variable that is not listed has the connection's default: what a
//! fresh one has. The values are the server's own words, learnt from its session tracker, so they can be given back to any backend.

use crate::server_info::{Family, ServerInfo};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use wire::charset::Collation;
use wire::session_state::is_variable_name;

/// Bytes shared between the sessions and backends that hold the same value.
pub type Text = Arc<[u8]>;

/// No variable: the collation that a login or SET NAMES gave together with `character_set_client`, which servers keep with that
/// and parameters of prepared statements have. Absent where the variable was assigned alone: that brings the same everywhere.
pub const CLIENT_COLLATION: &str = "client_collation";
/// The same of `character_set_results`.
pub const RESULTS_COLLATION: &str = "results_collation";
/// No collation: in place of one it is the default of the character set, whatever that is at the server at hand. Only shadows have it.
pub(crate) const SERVERS_OWN: &str = "DEFAULT";

/// What a login and SET NAMES give a character set.
pub(crate) const NAMED_CHARSETS: [&str; 3] = ["character_set_client", "character_set_connection", "character_set_results"];
/// What they give its collation.
pub const NAMED_COLLATIONS: [&str; 3] = ["collation_connection", CLIENT_COLLATION, RESULTS_COLLATION];

/// Session variables (or user variables) that differ from the default: sorted by name, shared until changed.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct Variables(Option<Arc<Vec<VariableEntry>>>);

/// A name and its value.
type VariableEntry = (Arc<str>, Text);

impl PartialEq for Variables {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b) || a == b,
            _ => false,
        }
    }
}

impl Eq for Variables {}

impl Hash for Variables {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.entries().hash(state);
    }
}

impl Variables {
    /// The entries in order of their names.
    pub fn entries(&self) -> &[(Arc<str>, Text)] {
        self.0.as_deref().map_or(&[], |v| v.as_slice())
    }

    /// True when every variable has its default.
    pub fn is_empty(&self) -> bool {
        self.entries().is_empty()
    }

    /// The value of `name`, when it differs from the default.
    pub fn get(&self, name: &str) -> Option<&Text> {
        // They are few, and hardly two names are of one length: that tells most of them apart without reading them.
        self.entries().iter().find(|(n, _)| n.len() == name.len() && **n == *name).map(|(_, v)| v)
    }

    /// Sets what a login with this collation sets.
    pub fn set_names(&mut self, collation: &Collation) {
        for (names, value) in [(NAMED_CHARSETS, collation.charset), (NAMED_COLLATIONS, collation.name)] {
            names.into_iter().for_each(|name| self.set(name, Some(value.as_bytes())));
        }
    }

    /// Sets `name`, or (None) puts it back to its default.
    pub fn set(&mut self, name: &str, value: Option<&[u8]>) {
        if self.get(name).map(|v| &**v) == value {
            return;
        }
        let entries = Arc::make_mut(self.0.get_or_insert_with(Arc::default));
        match (entries.binary_search_by(|(n, _)| (**n).cmp(name)), value) {
            (Ok(i), Some(value)) => {
                if let Some(entry) = entries.get_mut(i) {
                    entry.1 = value.into();
                }
            }
            (Ok(i), None) => {
                entries.remove(i);
            }
            (Err(i), Some(value)) => entries.insert(i, (name.into(), value.into())),
            (Err(_), None) => {}
        }
        if entries.is_empty() {
            self.0 = None;
        }
    }

    /// Takes the equal `other`'s copy for its own.
    pub fn share(&mut self, other: &Self) {
        let same = match (&self.0, &other.0) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => true,
        };
        if !same {
            self.0.clone_from(&other.0);
        }
    }

    /// How many entries differ from `other`'s.
    fn distance(&self, other: &Self) -> usize {
        if self == other {
            return 0;
        }
        let missing = |a: &Self, b: &Self| a.entries().iter().filter(|(n, v)| b.get(n) != Some(v)).count();
        missing(self, other) + missing(other, self)
    }
}

/// User variables of one session that are carried; one with more keeps its backend.
pub const MOST_USER_VARIABLES: usize = 64;
/// Longest literal of a user variable that is carried, bytes; one that is longer keeps the backend.
pub(crate) const LONGEST_USER_VARIABLE: usize = 64 << 10;

/// What one session wants, or what one backend has.
#[derive(Clone, Default, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Current schema; None when none is chosen.
    pub schema: Option<Text>,
    /// Session variables.
    pub variables: Variables,
    /// User variables, as SQL literals; a NULL has its type before it (`5,@`a`=NULL`).
    pub user_variables: Variables,
}

impl State {
    /// A user variable has this value, an SQL literal. False, and nothing is changed, where that is more than is carried.
    pub fn carry_user_variable(&mut self, name: &str, literal: &str) -> bool {
        let all = &mut self.user_variables;
        let fits = literal.len() <= LONGEST_USER_VARIABLE && (all.get(name).is_some() || all.entries().len() < MOST_USER_VARIABLES);
        if fits {
            all.set(name, Some(literal.as_bytes()));
        }
        fits
    }

    /// Bytes of the names and values of its variables.
    pub fn bytes(&self) -> usize {
        let all = self.variables.entries().iter().chain(self.user_variables.entries());
        all.map(|(name, value)| name.len() + value.len()).sum()
    }

    /// Another schema is chosen: the variables that follow it are the server's again.
    pub fn enter_schema(&mut self, schema: Option<Text>) {
        self.schema = schema;
        for name in OF_THE_SCHEMA {
            if !self.variables.is_empty() {
                self.variables.set(name, None);
            }
        }
    }
}

/// What brings a backend from `have` to `want`.
#[derive(Debug, PartialEq, Eq)]
pub enum Diff {
    /// Nothing to do.
    Identical,
    /// These steps, in this order.
    Steps {
        /// `COM_INIT_DB` with this schema first.
        schema: Option<Text>,
        /// A `SET` statement with all assignments.
        set: Option<String>,
        /// True when the SET cannot fail on a server that accepted it before, so the statement may follow it in the
        /// same write.
        sure: bool,
    },
    /// Only a reset (and then steps from the fresh state) gets there.
    Reset {
        /// The schema must be unset too, which only COM_CHANGE_USER does.
        change_user: bool,
    },
}

/// Variables whose assignment needs no privilege and cannot fail once the server has accepted the value.
const SURE: &[&str] = &[
    "autocommit",
    "character_set_client",
    "character_set_connection",
    "character_set_results",
    "collation_connection",
    "foreign_key_checks",
    "group_concat_max_len",
    "innodb_lock_wait_timeout",
    "lock_wait_timeout",
    "max_execution_time",
    "max_statement_time",
    "net_read_timeout",
    "net_write_timeout",
    "sql_auto_is_null",
    "sql_mode",
    "sql_safe_updates",
    "sql_select_limit",
    "time_zone",
    "transaction_isolation",
    "transaction_read_only",
    "tx_isolation",
    "tx_read_only",
    "unique_checks",
    "wait_timeout",
];

/// Variables that choosing a schema sets.
const OF_THE_SCHEMA: [&str; 2] = ["character_set_database", "collation_database"];

/// Session variables that have no global value to go back to.
const NO_GLOBAL: &[&str] = &["timestamp", "sql_log_bin", "insert_id", "gtid_next", "skip_parallel_replication", "skip_replication"];

/// Variables whose value is NULL where a server tells of none: it refuses the empty text for them.
const NULLABLE: &[&str] = &[
    "character_set_results",
    "default_tmp_storage_engine",
    "enforce_storage_engine",
    "external_table_secondary_storage_engine",
    "external_table_storage_engine",
    "innodb_ft_user_stopword_table",
    "innodb_tmpdir",
];

/// Is it NULL where a server tells of no value?
pub fn is_nullable(name: &str) -> bool {
    NULLABLE.contains(&name)
}

/// Variables whose values are text though they may look like numbers.
const TEXTS: &[&str] = &["default_master_connection"];

/// A name, and the one that a variable has too, which is kept: every version that has the one has the other.
const ALIASES: &[(&str, &str)] = &[
    ("log_slow_min_examined_row_limit", "min_examined_row_limit"),
    ("log_slow_query", "slow_query_log"),
    ("log_slow_query_time", "long_query_time"),
    ("max_insert_delayed_threads", "max_delayed_threads"),
    ("storage_engine", "default_storage_engine"),
    ("tmp_memory_table_size", "tmp_table_size"),
];
/// The same of servers before MySQL 8: of later ones `tx_isolation` is no variable.
const TX_ALIASES: &[(&str, &str)] = &[("transaction_isolation", "tx_isolation"), ("transaction_read_only", "tx_read_only")];

/// The name under which a variable is kept that has two.
pub fn canonical(name: &str, family: Family) -> &str {
    let of_family = if family == Family::MySql { &[] } else { TX_ALIASES };
    // MySQL's old_alter_table is another one, and so is that of early MariaDB.
    if name == "old_alter_table" && matches!(family, Family::MariaDb | Family::MariaDbUca1400) {
        return "alter_algorithm";
    }
    ALIASES.iter().chain(of_family).find(|(alias, _)| *alias == name).map_or(name, |(_, kept)| kept)
}

/// The name under which this server is told of a variable: for the old one of a pair, late MariaDB has a warning.
fn spelled<'a>(name: &'a str, info: &ServerInfo) -> &'a str {
    let new = TX_ALIASES.iter().find(|(_, old)| *old == name).map(|(new, _)| *new);
    new.filter(|_| info.prefers_transaction_names()).unwrap_or(name)
}

/// The other variable that shows what this one decides as well: only what was assigned last is kept. Those of the connection are
/// kept both.
pub fn displaced_by(name: &str) -> Option<&'static str> {
    PAIRS.iter().find_map(|(charset, collation)| match name {
        name if name == *charset => Some(*collation),
        name if name == *collation => Some(*charset),
        _ => None,
    })
}

/// Character sets and their collations, which are one value.
pub(crate) const PAIRS: [(&str, &str); 2] =
    [("character_set_server", "collation_server"), ("character_set_database", "collation_database")];

/// A variable, and another one that its assignment changes; assigned alone, that has the last word. Both are kept.
const FOLLOWERS: &[(&str, &str)] = &[
    ("character_set_connection", "collation_connection"),
    ("log_queries_not_using_indexes", "log_slow_filter"),
    ("log_slow_admin_statements", "log_slow_disabled_statements"),
    ("log_slow_slave_statements", "log_slow_disabled_statements"),
    ("max_join_size", "sql_big_selects"),
    ("old", "old_mode"),
    ("wsrep_causal_reads", "wsrep_sync_wait"),
];

/// The variable that the assignment of this one changes too.
pub fn follower_of(name: &str) -> Option<&'static str> {
    FOLLOWERS.iter().find(|(leader, _)| *leader == name).map(|(_, follower)| *follower)
}

/// The place of an assignment among others. What goes back to its default comes first, as it may be another name of what is assigned.
/// What others change comes last, as do collations, which character sets change.
pub fn assignment_rank(name: &str, is_reset: bool) -> u8 {
    let follows = FOLLOWERS.iter().any(|(_, follower)| *follower == name) || PAIRS.iter().any(|(_, collation)| *collation == name);
    u8::from(follows) + if is_reset { 0 } else { 2 }
}

/// The pure comparison; see [`Diff`]. `defaults` are those of the connection that differ from its server's global variables, and `info`
/// is what the server is.
pub fn diff(want: &State, have: &State, defaults: &Variables, info: &ServerInfo) -> Diff {
    if want == have {
        return Diff::Identical;
    }
    if want.schema.is_none() && have.schema.is_some() {
        return Diff::Reset { change_user: true };
    }
    let left_over = have.user_variables.entries().iter().any(|(name, _)| want.user_variables.get(name).is_none());
    if left_over {
        return Diff::Reset { change_user: false };
    }
    let differs = |name: &&str| want.variables.get(name) != have.variables.get(name);
    let left_by_schema = OF_THE_SCHEMA.iter().any(|name| differs(name) && want.variables.get(name).is_none());
    if left_by_schema && want.schema.is_none() {
        // Nothing is to be entered that would set them.
        return Diff::Reset { change_user: false };
    }
    if want.schema == have.schema && !left_by_schema {
        let (set, sure) = set_statement(want, have, defaults, info);
        return Diff::Steps { schema: None, set, sure };
    }
    let schema = want.schema.clone();
    let mut have = have.clone();
    have.enter_schema(schema.clone());
    let (set, sure) = set_statement(want, &have, defaults, info);
    Diff::Steps { schema, set, sure }
}

/// Whether a variable would have to go back to its default that has no global value.
pub fn lacks_way_back(want: &State, have: &State) -> bool {
    have.variables.entries().iter().any(|(name, _)| NO_GLOBAL.contains(&&**name) && want.variables.get(name).is_none())
}

/// A measure for choosing the nearest backend: 0 is identical, a reset is far.
pub fn distance(want: &State, have: &State) -> usize {
    if want == have {
        return 0;
    }
    let schema = usize::from(want.schema != have.schema) * 2;
    let variables = want.variables.distance(&have.variables);
    let user_variables = want.user_variables.distance(&have.user_variables) * 8;
    let unset = if want.schema.is_none() && have.schema.is_some() { 64 } else { 0 };
    1 + schema + variables + user_variables + unset
}

/// The statement that gives these variables these values; None for none.
pub fn assign(variables: &Variables, info: &ServerInfo) -> Option<String> {
    let want = State { variables: variables.clone(), ..State::default() };
    set_statement(&want, &State::default(), &Variables::default(), info).0
}

fn set_statement(want: &State, have: &State, defaults: &Variables, info: &ServerInfo) -> (Option<String>, bool) {
    // Text is read in the connection's character set; a few variables do not take it in one where ASCII is not itself.
    let is_wide = have.variables.get("character_set_connection").is_some_and(|charset| is_wide(charset));
    let introducer = if is_wide { "_latin1" } else { "" };
    let mut sure = true;
    let mut changes: Vec<(&str, Option<&[u8]>)> = Vec::new();
    for (name, value) in want.variables.entries() {
        if have.variables.get(name) != Some(value) {
            changes.push((name, Some(value)));
        }
    }
    for (name, _) in have.variables.entries() {
        if want.variables.get(name).is_none() {
            changes.push((name, None));
        }
    }
    let mut sql = String::new();
    if let Some(names) = changes.iter().any(|(name, _)| CHARSETS.contains(name)).then(|| names(want)).flatten() {
        sql = names;
        changes.retain(|(name, _)| !CHARSETS.contains(name));
    }
    changes.retain(|(name, _)| ![CLIENT_COLLATION, RESULTS_COLLATION].contains(name) && is_variable_name(name.as_bytes()));
    // What the server changes along with another is said again.
    for (leader, follower) in FOLLOWERS {
        let is_changed = |name: &str| changes.iter().any(|(changed, _)| *changed == name);
        let value = want.variables.get(follower);
        if is_changed(leader) && !is_changed(follower) && (value.is_some() || want.variables.get(leader).is_none()) {
            changes.push((follower, value.map(|value| &**value)));
        }
    }
    changes.sort_by_key(|(name, value)| assignment_rank(name, value.is_none()));
    for (name, value) in changes {
        sure &= SURE.contains(&name);
        sql.push_str(if sql.is_empty() { "SET " } else { "," });
        let spelled = spelled(name, info);
        let _ = write!(sql, "@@session.{spelled}=");
        match value.or_else(|| defaults.get(name).map(|value| &**value)) {
            Some(value) => push_value(&mut sql, name, value, introducer),
            // Not `DEFAULT`: MySQL takes that for OFF where foreign_key_checks and unique_checks are concerned.
            None if NO_GLOBAL.contains(&name) => sql.push_str("DEFAULT"),
            None => {
                let _ = write!(sql, "@@global.{spelled}");
            }
        }
    }
    for (name, literal) in want.user_variables.entries() {
        if have.user_variables.get(name) != Some(literal) {
            sql.push_str(if sql.is_empty() { "SET " } else { "," });
            let _ = write!(sql, "@`{}`={}", name.replace('`', "``"), String::from_utf8_lossy(literal));
        }
    }
    if sql.is_empty() { (None, true) } else { (Some(sql), sure) }
}

/// What puts sql_mode back to its default.
const DEFAULT_MODE: &str = "@@session.sql_mode=@@global.sql_mode";

/// The SET for a connection that logged in with CLIENT_IGNORE_SPACE, which is part of sql_mode there from the start.
pub fn keeping_ignore_space(set: &str) -> String {
    set.replacen(DEFAULT_MODE, "@@session.sql_mode=CONCAT(@@global.sql_mode,',IGNORE_SPACE')", 1)
}

/// What SET NAMES sets.
pub const CHARSETS: &[&str] = &[
    "character_set_client",
    "character_set_connection",
    "character_set_results",
    "collation_connection",
    CLIENT_COLLATION,
    RESULTS_COLLATION,
];

/// Is it a character set in which ASCII is not itself? A client cannot have it, so SET NAMES refuses it.
pub fn is_wide(charset: &[u8]) -> bool {
    matches!(charset, b"ucs2" | b"utf16" | b"utf16le" | b"utf32")
}

/// Can a character set or a collation be called so? Such a name may stand in a statement as it is.
pub fn is_charset_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The SET that gives all that text depends on, where all of it is known. What a login or SET NAMES gave, only SET NAMES gives
/// again, so it comes first; what was assigned alone is assigned alone again, though the name may be the same.
pub(crate) fn names(want: &State) -> Option<String> {
    let plain = |t: &&str| is_charset_name(t);
    let text = |name| want.variables.get(name).and_then(|v| std::str::from_utf8(v).ok());
    let client = text("character_set_client").filter(plain)?;
    let connection = text("character_set_connection").filter(plain)?;
    let collation = text("collation_connection").filter(plain)?;
    let results = text("character_set_results").filter(|t| t.is_empty() || plain(t))?;
    let of_client = text(CLIENT_COLLATION).filter(plain);
    let of_results = text(RESULTS_COLLATION).filter(plain).filter(|_| plain(&results));
    let base = of_client.or(of_results);
    let charset = if of_client.is_some() { client } else { results };
    // Each character set has a default of its own.
    let is_base = |of: &str, collation: &str| base == Some(collation) && (collation != SERVERS_OWN || of == charset);
    let mut sql = String::new();
    let _ = match base {
        Some(SERVERS_OWN) => write!(sql, ",NAMES '{charset}'"),
        Some(base) => write!(sql, ",NAMES '{charset}' COLLATE '{base}'"),
        None => Ok(()),
    };
    if of_client.is_none() {
        let _ = write!(sql, ",@@session.character_set_client='{client}'");
    }
    if results.is_empty() {
        sql.push_str(",@@session.character_set_results=NULL");
    } else if of_results.is_none_or(|collation| !is_base(results, collation)) {
        let _ = write!(sql, ",@@session.character_set_results='{results}'");
    }
    if !is_base(connection, collation) {
        let _ = match collation {
            SERVERS_OWN => write!(sql, ",@@session.character_set_connection='{connection}'"),
            // It brings its character set along.
            collation => write!(sql, ",@@session.collation_connection='{collation}'"),
        };
    }
    sql.replace_range(..1, "SET ");
    Some(sql)
}

/// Writes a variable's value as the server reported it, as an SQL literal that gives it back.
fn push_value(sql: &mut String, name: &str, value: &[u8], introducer: &str) {
    if value.is_empty() && is_nullable(name) {
        sql.push_str("NULL");
    } else if is_number(value) && !TEXTS.contains(&name) {
        sql.push_str(&String::from_utf8_lossy(value));
    } else if value.iter().all(|b| matches!(b, b' '..=b'~') && !matches!(b, b'\'' | b'\\')) {
        let _ = write!(sql, "{introducer}'{}'", String::from_utf8_lossy(value));
    } else {
        // Hexadecimal is read alike under every sql_mode and character set.
        sql.push_str("0x");
        for b in value {
            let _ = write!(sql, "{b:02x}");
        }
    }
}

fn is_number(value: &[u8]) -> bool {
    let digits = value.strip_prefix(b"-").unwrap_or(value);
    let dots = digits.iter().filter(|b| **b == b'.').count();
    digits.first().is_some_and(u8::is_ascii_digit) && dots <= 1 && digits.iter().all(|b| b.is_ascii_digit() || *b == b'.')
}

/// For the literal of a NULL, that of its type.
pub fn type_of_null(literal: &str) -> Option<&str> {
    // No other literal ends so.
    literal.strip_suffix("`=NULL")?.rsplit_once(",@`").map(|(of_type, _)| of_type)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bed::info;
    use wire::charset::Flavor;

    fn diff(want: &State, have: &State) -> Diff {
        super::diff(want, have, &Variables::default(), &info(Flavor::MySql, "8.4.0"))
    }

    #[test]
    fn each_server_is_told_of_the_isolation_level_by_its_own_name() {
        let want = state(None, &[("tx_isolation", "SERIALIZABLE")], &[]);
        for (version, there, back) in [
            (
                "11.8.2-MariaDB",
                "SET @@session.transaction_isolation='SERIALIZABLE'",
                "SET @@session.transaction_isolation=@@global.transaction_isolation",
            ),
            (
                "11.1.1-MariaDB",
                "SET @@session.transaction_isolation='SERIALIZABLE'",
                "SET @@session.transaction_isolation=@@global.transaction_isolation",
            ),
            ("11.0.6-MariaDB", "SET @@session.tx_isolation='SERIALIZABLE'", "SET @@session.tx_isolation=@@global.tx_isolation"),
            ("10.11.6-MariaDB", "SET @@session.tx_isolation='SERIALIZABLE'", "SET @@session.tx_isolation=@@global.tx_isolation"),
        ] {
            let info = info(Flavor::MariaDb, version);
            for (want, have, expected) in [(&want, &State::default(), there), (&State::default(), &want, back)] {
                let Diff::Steps { set, sure, .. } = super::diff(want, have, &Variables::default(), &info) else { panic!() };
                assert_eq!((set.as_deref(), sure), (Some(expected), true), "{version}");
            }
        }
    }

    fn state(schema: Option<&str>, variables: &[(&str, &str)], user: &[(&str, &str)]) -> State {
        let mut s = State { schema: schema.map(|s| s.as_bytes().into()), ..State::default() };
        for (n, v) in variables {
            s.variables.set(n, Some(v.as_bytes()));
        }
        for (n, v) in user {
            s.user_variables.set(n, Some(v.as_bytes()));
        }
        s
    }

    #[test]
    fn all_variables_take_room() {
        assert_eq!(state(Some("a"), &[("sql_mode", "ANSI")], &[("x", "12345")]).bytes(), 8 + 4 + 1 + 5);
        assert_eq!(State::default().bytes(), 0);
    }

    #[test]
    fn equal_states_need_nothing() {
        let a = state(Some("a"), &[("sql_mode", "ANSI")], &[]);
        assert_eq!(diff(&a, &a.clone()), Diff::Identical);
        assert_eq!(distance(&a, &a.clone()), 0);
    }

    #[test]
    fn what_the_backend_has_too_much_goes_back_to_default() {
        let want = state(Some("a"), &[("time_zone", "+02:00")], &[]);
        let have = state(Some("b"), &[("sql_mode", "ANSI")], &[]);
        let Diff::Steps { schema, set, sure } = diff(&want, &have) else { panic!() };
        assert_eq!(schema.as_deref(), Some(&b"a"[..]));
        assert_eq!(set.unwrap(), "SET @@session.sql_mode=@@global.sql_mode,@@session.time_zone='+02:00'");
        assert!(sure);
    }

    #[test]
    fn a_schema_brings_its_character_set() {
        let schema = Some("s");
        let set = [("character_set_database", "latin1")];
        let back = diff(&state(schema, &[], &[]), &state(schema, &set, &[]));
        assert_eq!(back, Diff::Steps { schema: Some(b"s"[..].into()), set: None, sure: true });
        let elsewhere = diff(&state(Some("t"), &set, &[]), &state(schema, &set, &[]));
        let Diff::Steps { schema: Some(_), set: Some(set), .. } = elsewhere else { panic!("{elsewhere:?}") };
        assert_eq!(set, "SET @@session.character_set_database='latin1'");
    }

    #[test]
    fn without_a_schema_only_a_reset_unsets_its_character_set() {
        let set = [("collation_database", "latin1_bin")];
        assert_eq!(diff(&State::default(), &state(None, &set, &[])), Diff::Reset { change_user: false });
        let Diff::Steps { schema: None, set: Some(set), .. } = diff(&state(None, &set, &[]), &State::default()) else { panic!() };
        assert_eq!(set, "SET @@session.collation_database='latin1_bin'");
    }

    #[test]
    fn character_sets_that_differ_from_each_other() {
        let set = |want: &[(&str, &str)]| {
            let Diff::Steps { set, sure, .. } = diff(&state(None, want, &[]), &State::default()) else { panic!() };
            assert!(sure);
            set.unwrap()
        };
        let all = |client: &'static str, connection, collation, results, of_client, of_results| {
            let all = [
                ("character_set_client", client),
                ("character_set_connection", connection),
                ("collation_connection", collation),
                ("character_set_results", results),
                (CLIENT_COLLATION, of_client),
                (RESULTS_COLLATION, of_results),
            ];
            let known: Vec<_> = all.into_iter().filter(|(name, value)| !value.is_empty() || *name == "character_set_results").collect();
            set(&known)
        };
        let unicode = "utf8mb4_unicode_ci";
        for (state, sql) in [
            (
                ("latin1", "utf8mb4", "utf8mb4_bin", "utf8mb4", "", unicode),
                "SET NAMES 'utf8mb4' COLLATE 'utf8mb4_unicode_ci',@@session.character_set_client='latin1',@@session.collation_connection='utf8mb4_bin'",
            ),
            (
                ("latin1", "latin1", "latin1_bin", "", "latin1_bin", ""),
                "SET NAMES 'latin1' COLLATE 'latin1_bin',@@session.character_set_results=NULL",
            ),
            (
                ("latin1", "utf8mb4", "utf8mb4_bin", "utf16", "", ""),
                "SET @@session.character_set_client='latin1',@@session.character_set_results='utf16',@@session.collation_connection='utf8mb4_bin'",
            ),
            (("utf8mb4", "utf8mb4", unicode, "utf8mb4", unicode, unicode), "SET NAMES 'utf8mb4' COLLATE 'utf8mb4_unicode_ci'"),
            // The same names, assigned alone.
            (
                ("utf8mb4", "utf8mb4", unicode, "utf8mb4", unicode, ""),
                "SET NAMES 'utf8mb4' COLLATE 'utf8mb4_unicode_ci',@@session.character_set_results='utf8mb4'",
            ),
            (
                ("utf8mb4", "utf8mb4", unicode, "utf8mb4", "", unicode),
                "SET NAMES 'utf8mb4' COLLATE 'utf8mb4_unicode_ci',@@session.character_set_client='utf8mb4'",
            ),
        ] {
            let (client, connection, collation, results, of_client, of_results) = state;
            assert_eq!(all(client, connection, collation, results, of_client, of_results), sql);
        }
    }

    #[test]
    fn collation_follows_character_set() {
        let want = state(
            None,
            &[("character_set_connection", "latin1"), ("collation_connection", "latin1_bin"), ("character_set_results", "")],
            &[],
        );
        let have = state(None, &[("collation_connection", "latin1_bin")], &[]);
        let Diff::Steps { set, .. } = diff(&want, &have) else { panic!() };
        assert_eq!(
            set.unwrap(),
            "SET @@session.character_set_connection='latin1',@@session.character_set_results=NULL,@@session.collation_connection='latin1_bin'"
        );
    }

    #[test]
    fn set_names_where_it_says_all() {
        let all = [
            ("character_set_client", "latin1"),
            ("character_set_connection", "latin1"),
            ("character_set_results", "latin1"),
            ("collation_connection", "latin1_bin"),
            (CLIENT_COLLATION, "latin1_bin"),
            (RESULTS_COLLATION, "latin1_bin"),
            ("time_zone", "UTC"),
        ];
        let Diff::Steps { set, sure, .. } = diff(&state(None, &all, &[]), &State::default()) else { panic!() };
        assert_eq!(set.unwrap(), "SET NAMES 'latin1' COLLATE 'latin1_bin',@@session.time_zone='UTC'");
        assert!(sure);
    }

    #[test]
    fn user_variables_are_carried_and_never_left_behind() {
        let want = state(None, &[], &[("a`b", "'x'")]);
        let Diff::Steps { set, .. } = diff(&want, &State::default()) else { panic!() };
        assert_eq!(set.unwrap(), "SET @`a``b`='x'");
        assert_eq!(diff(&State::default(), &want), Diff::Reset { change_user: false });
    }

    #[test]
    fn only_change_user_unsets_a_schema() {
        assert_eq!(diff(&State::default(), &state(Some("a"), &[], &[])), Diff::Reset { change_user: true });
    }

    #[test]
    fn odd_values_become_hexadecimal_and_numbers_stay_bare() {
        let want = state(None, &[("init_connect", "it's"), ("max_join_size", "100"), ("sql_log_bin", "OFF")], &[]);
        let Diff::Steps { set, sure, .. } = diff(&want, &State::default()) else { panic!() };
        assert_eq!(set.unwrap(), "SET @@session.init_connect=0x69742773,@@session.max_join_size=100,@@session.sql_log_bin='OFF'");
        assert!(!sure);
    }

    #[test]
    fn no_value_is_null_where_the_empty_text_is_none() {
        let want = state(None, &[("innodb_tmpdir", ""), ("sql_mode", ""), ("default_master_connection", "123")], &[]);
        let Diff::Steps { set, .. } = diff(&want, &State::default()) else { panic!() };
        assert_eq!(set.unwrap(), "SET @@session.default_master_connection='123',@@session.innodb_tmpdir=NULL,@@session.sql_mode=''");
    }

    #[test]
    fn what_another_changes_has_the_last_word() {
        let set = |want: &[(&str, &str)], have: &[(&str, &str)]| {
            let Diff::Steps { set, .. } = diff(&state(None, want, &[]), &state(None, have, &[])) else { panic!() };
            set.unwrap()
        };
        let (limited, unlimited) =
            ([("max_join_size", "10"), ("sql_big_selects", "OFF")], [("max_join_size", "10"), ("sql_big_selects", "ON")]);
        let all = "SET @@session.max_join_size=10,@@session.sql_big_selects='OFF'";
        assert_eq!(set(&limited, &[]), all);
        assert_eq!(set(&limited, &[("sql_big_selects", "OFF")]), all);
        assert_eq!(set(&limited, &unlimited), "SET @@session.sql_big_selects='OFF'");
        let back = "SET @@session.max_join_size=@@global.max_join_size,@@session.sql_big_selects=";
        assert_eq!(set(&[], &limited), format!("{back}@@global.sql_big_selects"));
        assert_eq!(set(&[], &[("max_join_size", "10")]), format!("{back}@@global.sql_big_selects"));
        assert_eq!(set(&[("sql_big_selects", "ON")], &unlimited), format!("{back}'ON'"));
        assert_eq!(set(&[("sql_big_selects", "OFF")], &[]), "SET @@session.sql_big_selects='OFF'");
    }

    #[test]
    fn two_names_are_one_variable() {
        assert_eq!(canonical("storage_engine", Family::MySql5), "default_storage_engine");
        assert_eq!(canonical("transaction_isolation", Family::MariaDb), "tx_isolation");
        assert_eq!(canonical("transaction_isolation", Family::MySql5), "tx_isolation");
        assert_eq!(canonical("transaction_isolation", Family::MySql), "transaction_isolation");
        assert_eq!(canonical("old_alter_table", Family::MySql), "old_alter_table");
        assert_eq!(canonical("old_alter_table", Family::MariaDbUca1400), "alter_algorithm");
        assert_eq!(canonical("old_alter_table", Family::MariaDb), "alter_algorithm");
        assert_eq!(canonical("old_alter_table", Family::MariaDbEarly), "old_alter_table");
        assert_eq!(canonical("sql_mode", Family::MariaDb), "sql_mode");
    }

    #[test]
    fn defaults_come_before_what_is_wanted() {
        let want = state(None, &[("character_set_server", "latin1")], &[]);
        let have = state(None, &[("collation_server", "utf8mb4_bin")], &[]);
        let Diff::Steps { set, .. } = diff(&want, &have) else { panic!() };
        assert_eq!(set.unwrap(), "SET @@session.collation_server=@@global.collation_server,@@session.character_set_server='latin1'");
        let Diff::Steps { set, .. } = diff(&have, &want) else { panic!() };
        assert_eq!(
            set.unwrap(),
            "SET @@session.character_set_server=@@global.character_set_server,@@session.collation_server='utf8mb4_bin'"
        );
    }

    #[test]
    fn only_names_are_written_as_names() {
        let charsets =
            [("character_set_client", "utf8mb4',@q='1"), ("character_set_connection", "utf8mb4"), ("character_set_results", "utf8mb4")];
        let want = state(None, &[("sql_mode='';DROP TABLE t;SET @q", "1"), ("collation_connection", "a',@q='1")], &[]);
        let Diff::Steps { set, .. } = diff(&want, &State::default()) else { panic!() };
        assert_eq!(set.unwrap(), "SET @@session.collation_connection=0x61272c40713d2731");
        let Diff::Steps { set, .. } = diff(&state(None, &charsets, &[]), &State::default()) else { panic!() };
        assert!(set.unwrap().starts_with("SET @@session.character_set_client=0x"));
    }

    #[test]
    fn a_variable_without_a_global_value_has_no_way_back() {
        let none = State::default();
        for name in ["timestamp", "sql_log_bin", "insert_id"] {
            let set = state(None, &[(name, "1")], &[]);
            assert!(lacks_way_back(&none, &set) && !lacks_way_back(&set, &set) && !lacks_way_back(&set, &none), "{name}");
        }
        assert!(!lacks_way_back(&none, &state(None, &[("sql_mode", "ANSI")], &[])));
    }

    #[test]
    fn nearer_is_smaller() {
        let want = state(Some("a"), &[("sql_mode", "ANSI")], &[]);
        let near = state(Some("a"), &[], &[]);
        let far = state(Some("b"), &[], &[]);
        assert!(distance(&want, &near) < distance(&want, &far));
    }
}
