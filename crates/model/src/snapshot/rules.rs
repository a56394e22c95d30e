//! Query rules and fast routing, as typed rows.
//!
//! Every column but the regular expressions is read and checked here. Whether a pattern can be used depends on the dialect, and is found
//! where rules are compiled. As in ProxySQL, rows with `active=0` are left out, after their table's description has checked them.
//!
//! INVARIANT: rules are in ascending order of `rule_id`, and no two have the same.

use std::sync::Arc;

use super::firewall::{self, FirewallConfig};
use super::hostgroup::number;
use crate::config::{Config, Row};
use crate::error::{ConfigError, ErrorKind};
use crate::ids::HostgroupId;
use crate::suggest;

/// The name of the table of rules, as errors say it.
const RULES: &str = "mysql_query_rules";

/// Everything that decides where statements go, besides users and hostgroups.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RuleConfig {
    /// Active rows of `mysql_query_rules`, by ascending `rule_id`.
    pub rules: Vec<QueryRule>,
    /// Rows of `mysql_query_rules_fast_routing`, in the order of the file.
    pub fast_routes: Vec<FastRoute>,
    /// The `mysql_firewall_whitelist_*` tables.
    pub firewall: FirewallConfig,
}

/// One active row of `mysql_query_rules`. `None` was NULL: a condition that always holds, an action that is not taken.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueryRule {
    /// Its number. Rows without one get the numbers after the largest that is given.
    pub rule_id: u32,
    /// The user, exactly; never empty.
    pub username: Option<Box<str>>,
    /// The session's schema, exactly; never empty.
    pub schemaname: Option<Box<str>>,
    /// The flag that evaluation must have reached.
    pub flag_in: u32,
    /// See [`AddressPattern`].
    pub client_addr: Option<AddressPattern>,
    /// The address of the listener, exactly; never empty.
    pub proxy_addr: Option<Box<str>>,
    /// The port of the listener that the client connected to.
    pub proxy_port: Option<u16>,
    /// Hash of the statement's digest, as `stats_mysql_query_digest` shows it.
    pub digest: Option<u64>,
    /// Regular expression for the digest's text.
    pub match_digest: Option<Box<str>>,
    /// Regular expression for the statement.
    pub match_pattern: Option<Box<str>>,
    /// Whether `match_digest` and `match_pattern` hold where the expression does not match.
    pub negate_match_pattern: bool,
    /// The flags of `match_digest` and `match_pattern`: the column `re_modifiers`.
    pub modifiers: Modifiers,
    /// The flag from here on. If it is set, `flag_outs` do not count.
    pub flag_out: Option<u32>,
    /// Flags of which one is picked by weight: `flagOUTs` of the column `attributes`.
    pub flag_outs: Vec<WeightedFlag>,
    /// Statements that it lets through each second: `max_queries_per_second` of the column `attributes`.
    pub max_queries_per_second: Option<u32>,
    /// The text that replaces a match of `match_pattern`; `\0`..`\9` stand for its groups.
    pub replace_pattern: Option<Box<str>>,
    /// The statement's hostgroup, unless a later rule sets another one.
    pub destination_hostgroup: Option<HostgroupId>,
    /// How long the result may be cached, ms, from 1.
    pub cache_ttl_ms: Option<u32>,
    /// Whether an empty result may be cached.
    pub cache_empty_result: Option<bool>,
    /// Kept as ProxySQL keeps it; it has no effect there either.
    pub cache_timeout: Option<u32>,
    /// Kept as ProxySQL keeps it; it has no effect there either.
    pub reconnect: Option<bool>,
    /// The statement is killed after so many ms; 0 means `mysql-default_query_timeout`.
    pub timeout_ms: Option<u32>,
    /// How often it may be sent again, 0..=1000.
    pub retries: Option<u32>,
    /// How long it waits first, ms.
    pub delay_ms: Option<u32>,
    /// The flag at which the session's further statements begin.
    pub next_query_flag_in: Option<u32>,
    /// The flag at which the mirrored statement begins.
    pub mirror_flag_out: Option<u32>,
    /// The hostgroup that gets a copy of the statement.
    pub mirror_hostgroup: Option<HostgroupId>,
    /// The statement is answered with this error.
    pub error_msg: Option<Arc<str>>,
    /// The statement is answered with OK and this text.
    pub ok_msg: Option<Arc<str>>,
    /// Kept as ProxySQL keeps it; it has no effect there either.
    pub sticky_conn: Option<bool>,
    /// Whether the session's backend may be shared after this statement.
    pub multiplex: Option<RuleMultiplex>,
    /// A hostgroup whose last GTID a server must have executed.
    pub gtid_from_hostgroup: Option<HostgroupId>,
    /// Whether it is written to the query log.
    pub log: Option<bool>,
    /// Whether a match ends the evaluation.
    pub apply: bool,
    /// The operator's remark.
    pub comment: Option<Box<str>>,
}

/// A condition on the client's address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AddressPattern {
    /// `%`: every address, known or not.
    Any,
    /// Exactly this text.
    Exact(Box<str>),
    /// Addresses that begin so: `10.1.%`.
    Prefix(Box<str>),
}

/// The words of the column `re_modifiers`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Modifiers {
    /// `CASELESS`: letter case does not matter.
    pub caseless: bool,
    /// `GLOBAL`: every match is replaced, not only the first.
    pub global: bool,
}

/// One choice of `attributes.flagOUTs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WeightedFlag {
    /// As in [`QueryRule::flag_in`].
    pub flag: u32,
    /// Its share; 0 is never picked.
    pub weight: u32,
}

/// A rule's effect on multiplexing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RuleMultiplex {
    /// 0: the session keeps its backend, until a reset or a rule with 1.
    Off,
    /// 1: takes such a mark away.
    On,
    /// 2: user variables in this statement do not keep the backend.
    IgnoreVariables,
}

/// One row of `mysql_query_rules_fast_routing`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FastRoute {
    /// The user; empty stands for any.
    pub username: Box<str>,
    /// The session's schema.
    pub schemaname: Box<str>,
    /// The flag at the end of the rules.
    pub flag_in: u32,
    /// The hostgroup for this user, schema and flag.
    pub destination: HostgroupId,
}

/// Reads the tables of rules; faults are added to `errors`.
pub(super) fn compile(config: &Config, errors: &mut Vec<ConfigError>) -> RuleConfig {
    let rows = config.rows(RULES);
    let largest = rows.iter().filter_map(|row| row.integer("rule_id")).max().unwrap_or(0);
    let mut unnumbered = (largest + 1..).map(|id| u32::try_from(id).unwrap_or(u32::MAX));
    let mut rules = Vec::with_capacity(rows.len());
    for row in rows {
        let rule_id = match row.integer("rule_id") {
            Some(_) => number(row, "rule_id"),
            None => unnumbered.next().unwrap_or(u32::MAX),
        };
        if row.flag("active") {
            let mut reader = RuleReader { row, rule_id, errors };
            rules.push(reader.rule());
        }
    }
    rules.sort_by_key(|rule: &QueryRule| rule.rule_id);
    RuleConfig {
        rules,
        fast_routes: config.rows("mysql_query_rules_fast_routing").iter().map(fast_route).collect(),
        firewall: firewall::compile(config, errors),
    }
}

/// Reads the columns of one rule, and adds faults under the rule's number.
struct RuleReader<'a> {
    row: &'a Row,
    rule_id: u32,
    errors: &'a mut Vec<ConfigError>,
}

impl RuleReader<'_> {
    fn rule(&mut self) -> QueryRule {
        let (flag_outs, max_queries_per_second) = self.checked("attributes", attributes).unwrap_or_default();
        QueryRule {
            rule_id: self.rule_id,
            username: self.word("username"),
            schemaname: self.word("schemaname"),
            flag_in: number(self.row, "flagIN"),
            client_addr: self.checked("client_addr", address_pattern),
            proxy_addr: self.word("proxy_addr"),
            proxy_port: self.number("proxy_port"),
            digest: self.checked("digest", digest),
            match_digest: self.text("match_digest"),
            match_pattern: self.text("match_pattern"),
            negate_match_pattern: self.row.flag("negate_match_pattern"),
            modifiers: self.checked("re_modifiers", modifiers).unwrap_or_default(),
            flag_out: self.number("flagOUT"),
            flag_outs,
            max_queries_per_second,
            replace_pattern: self.text("replace_pattern"),
            destination_hostgroup: self.hostgroup("destination_hostgroup"),
            cache_ttl_ms: self.number("cache_ttl"),
            cache_empty_result: self.flag("cache_empty_result"),
            cache_timeout: self.number("cache_timeout"),
            reconnect: self.flag("reconnect"),
            timeout_ms: self.number("timeout"),
            retries: self.number("retries"),
            delay_ms: self.number("delay"),
            next_query_flag_in: self.number("next_query_flagIN"),
            mirror_flag_out: self.number("mirror_flagOUT"),
            mirror_hostgroup: self.hostgroup("mirror_hostgroup"),
            error_msg: self.row.text("error_msg").map(Arc::from),
            ok_msg: self.row.text("OK_msg").map(Arc::from),
            sticky_conn: self.flag("sticky_conn"),
            multiplex: self.row.integer("multiplex").map(multiplex),
            gtid_from_hostgroup: self.hostgroup("gtid_from_hostgroup"),
            log: self.flag("log"),
            apply: self.row.flag("apply"),
            comment: self.text("comment"),
        }
    }

    fn text(&self, column: &str) -> Option<Box<str>> {
        self.row.text(column).map(Box::from)
    }

    /// A text where empty means the same as NULL.
    fn word(&self, column: &str) -> Option<Box<str>> {
        self.text(column).filter(|text| !text.is_empty())
    }

    fn number<T: TryFrom<i64>>(&self, column: &str) -> Option<T> {
        self.row.integer(column).and_then(|value| T::try_from(value).ok())
    }

    fn flag(&self, column: &str) -> Option<bool> {
        self.row.integer(column).map(|value| value != 0)
    }

    fn hostgroup(&mut self, column: &str) -> Option<HostgroupId> {
        let value = self.row.integer(column)?;
        let id = u32::try_from(value).ok().filter(|id| *id <= HostgroupId::MAX);
        if id.is_none() {
            self.refuse(column, ErrorKind::OutOfRange { value, min: 0, max: i64::from(HostgroupId::MAX) });
        }
        id.map(HostgroupId)
    }

    /// A text that must be understood; empty means the same as NULL.
    fn checked<T>(&mut self, column: &str, read: fn(&str) -> Result<T, ErrorKind>) -> Option<T> {
        let text = self.row.text(column).filter(|text| !text.is_empty())?;
        match read(text) {
            Ok(value) => Some(value),
            Err(kind) => {
                self.refuse(column, kind);
                None
            }
        }
    }

    fn refuse(&mut self, column: &str, kind: ErrorKind) {
        let at = self.row.position(column).clone();
        self.errors.push(ConfigError::new(at, rule_subject(self.rule_id, column), kind));
    }
}

/// How errors name a column of a rule: `mysql_query_rules.match_digest of rule 7`.
pub fn rule_subject(rule_id: u32, column: &str) -> String {
    format!("{RULES}.{column} of rule {rule_id}")
}

/// A fault of a rule that was found after its file was read, with the place where its column was given.
pub fn located(error: ConfigError, config: &Config) -> ConfigError {
    let of_file = || config.rows(RULES).iter().filter(|row| row.at.position().is_some());
    let rules = || of_file().filter_map(|row| Some((row, u32::try_from(row.integer("rule_id")?).ok()?)));
    let column = || error.subject.strip_prefix(RULES)?.strip_prefix('.')?.split_once(' ').map(|(column, _)| column);
    let found = column().filter(|_| error.at.is_none());
    let row = found.and_then(|column| rules().find(|(_, id)| rule_subject(*id, column) == error.subject));
    match row.zip(found) {
        Some(((row, _), column)) => ConfigError { at: Some(row.position(column)), ..error },
        None => error,
    }
}

fn address_pattern(text: &str) -> Result<AddressPattern, ErrorKind> {
    match text.split_once('%') {
        None => Ok(AddressPattern::Exact(text.into())),
        Some(("", "")) => Ok(AddressPattern::Any),
        Some((prefix, "")) => Ok(AddressPattern::Prefix(prefix.into())),
        Some(_) => Err(ErrorKind::Rule("'%' may stand at the end only")),
    }
}

/// A digest as ProxySQL reads it: `0x` and hex digits, `0` and octal digits, or decimal digits.
pub(super) fn digest(text: &str) -> Result<u64, ErrorKind> {
    let text = text.trim();
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None if text.len() > 1 && text.starts_with('0') => (text, 8),
        None => (text, 10),
    };
    // `from_str_radix` would take a sign.
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let value = u64::from_str_radix(digits, radix).ok().filter(|_| is_plain);
    value.ok_or(ErrorKind::Rule("must be a digest of 64 bits, such as 0x1A2B3C4D5E6F7081"))
}

fn modifiers(text: &str) -> Result<Modifiers, ErrorKind> {
    let mut modifiers = Modifiers::default();
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        match word {
            word if word.eq_ignore_ascii_case("CASELESS") => modifiers.caseless = true,
            word if word.eq_ignore_ascii_case("GLOBAL") => modifiers.global = true,
            _ => return Err(ErrorKind::NotAllowed { text: word.to_owned(), allowed: &["CASELESS", "GLOBAL"] }),
        }
    }
    Ok(modifiers)
}

fn multiplex(value: i64) -> RuleMultiplex {
    match value {
        0 => RuleMultiplex::Off,
        1 => RuleMultiplex::On,
        _ => RuleMultiplex::IgnoreVariables,
    }
}

/// Flags to choose from, and how many statements a second.
type Attributes = (Vec<WeightedFlag>, Option<u32>);

fn attributes(text: &str) -> Result<Attributes, ErrorKind> {
    const KEYS: [&str; 2] = ["flagOUTs", "max_queries_per_second"];
    let bad = |what: &str| ErrorKind::BadJson(what.to_owned());
    let json: serde_json::Value = serde_json::from_str(text).map_err(|error| ErrorKind::BadJson(error.to_string()))?;
    let object = json.as_object().ok_or_else(|| bad("must be an object"))?;
    if let Some(key) = object.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(bad(&format!("unknown key '{key}'{}", suggest::hint(&suggest::nearest(key, KEYS)))));
    }
    let number = |value: &serde_json::Value| value.as_u64().and_then(|value| u32::try_from(value).ok());
    let limit = match object.get("max_queries_per_second") {
        None => None,
        Some(value) => match number(value) {
            Some(0) => None,
            Some(limit) => Some(limit),
            None => return Err(bad("'max_queries_per_second' must be a number from 0")),
        },
    };
    let Some(list) = object.get("flagOUTs") else {
        return Ok((Vec::new(), limit));
    };
    let list = list.as_array().ok_or_else(|| bad("'flagOUTs' must be an array"))?;
    let of = |entry: &serde_json::Value, key: &str| entry.get(key).and_then(number);
    let entry = |entry: &serde_json::Value| Some(WeightedFlag { flag: of(entry, "id")?, weight: of(entry, "weight")? });
    let flags: Option<Vec<WeightedFlag>> = list.iter().map(entry).collect();
    let flags = flags.ok_or_else(|| bad("each of 'flagOUTs' must be {\"id\": number, \"weight\": number}"))?;
    Ok((flags, limit))
}

fn fast_route(row: &Row) -> FastRoute {
    FastRoute {
        username: row.text("username").unwrap_or_default().into(),
        schemaname: row.text("schemaname").unwrap_or_default().into(),
        flag_in: number(row, "flagIN"),
        destination: HostgroupId(number(row, "destination_hostgroup")),
    }
}
