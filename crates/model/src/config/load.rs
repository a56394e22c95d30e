//! Walks a parsed file and fills a [`Config`]. Faults are collected, not stopped at.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::inert::NOT_YET;
use super::row::{Row, check_keys, given_again, latest_rows};
use super::tables::{TABLES, Table, TableEffect};
use super::{Config, Notice};
use crate::error::{ConfigError, ErrorKind, Origin};
use crate::libconfig::{self, Entry, Includes, LocalFiles, NoIncludes, Node, Position, Value};
use crate::settings::{AdminVariables, GlobalSettings, MysqlVariables, Setting, retired};
use crate::snapshot::Snapshot;
use crate::suggest;

/// Parts of ProxySQL's file that belong to things Tidegate does not have. Accepted and skipped.
const FOREIGN: &[&str] = &[
    "clickhouse_users",
    "clickhouse_variables",
    "debug_filters",
    "debug_levels",
    "ldap_variables",
    "pgsql_query_rules",
    "pgsql_servers",
    "pgsql_users",
    "pgsql_variables",
    "sqliteserver_variables",
];

/// The notice about them.
const SKIPPED: &str = "not part of this proxy, skipped";

/// Prefixes of `admin_variables` that belong to these modules.
const FOREIGN_ADMIN: &[&str] = &["checksum_pgsql_", "cluster_pgsql_", "pgsql_"];

/// Modules of ProxySQL that are not part of this proxy, by what their variables begin with in SQL.
const FOREIGN_MODULES: &[&str] = &["clickhouse", "ldap", "pgsql", "sqliteserver"];

/// The module, not part of this proxy, that owns the variable `name`: `pgsql` for `pgsql-threads`, and for `admin-pgsql_ifaces`.
pub fn foreign_module(name: &str) -> Option<&'static str> {
    let (module, bare) = name.split_once('-')?;
    let (module, bare) = (module.to_ascii_lowercase(), bare.to_ascii_lowercase());
    match module.as_str() {
        AdminVariables::MODULE if FOREIGN_ADMIN.iter().any(|start| bare.starts_with(start)) => Some("pgsql"),
        module => FOREIGN_MODULES.iter().find(|known| **known == module).copied(),
    }
}

/// A configuration with what its operator should know, or every fault of it.
pub(super) type Loaded = Result<(Config, Vec<Notice>), Vec<ConfigError>>;

/// Reads and checks the configuration file at `path` and the files it includes. It may be a pipe, which is read to its end;
/// those it includes may not.
pub fn load(path: &Path) -> Loaded {
    loaded(path, std::fs::read(path), Strictness::OfFile)
}

/// The same, and what ProxySQL would start with and pass over is refused, whatever the file's setting `strict` says.
pub fn load_strictly(path: &Path) -> Loaded {
    loaded(path, std::fs::read(path), Strictness::Strict)
}

/// The same for a caller that must not block: only a regular file is read.
pub fn load_regular(path: &Path) -> Loaded {
    loaded(path, libconfig::read_regular(path), Strictness::OfFile)
}

fn loaded(path: &Path, read: io::Result<Vec<u8>>, strictness: Strictness) -> Loaded {
    let name = path.display().to_string();
    match read {
        Ok(bytes) => parse_as(&bytes, &name, &mut LocalFiles, strictness),
        Err(error) => {
            let kind = ErrorKind::Unreadable { file: name, reason: error.to_string() };
            Err(vec![ConfigError { at: None, subject: String::new(), kind }])
        }
    }
}

/// Checks the configuration `text`; `name` stands for it in messages. It may not include files.
pub fn parse(text: &str, name: &str) -> Loaded {
    parse_with(text.as_bytes(), name, &mut NoIncludes)
}

/// The same, with unknown parts refused.
pub(super) fn parse_strictly(text: &str, name: &str) -> Loaded {
    parse_as(text.as_bytes(), name, &mut NoIncludes, Strictness::Strict)
}

/// Checks the configuration in `bytes`, reading included files with `includes`.
pub fn parse_with(bytes: &[u8], name: &str, includes: &mut dyn Includes) -> Loaded {
    parse_as(bytes, name, includes, Strictness::OfFile)
}

fn parse_as(bytes: &[u8], name: &str, includes: &mut dyn Includes, strictness: Strictness) -> Loaded {
    let entries = libconfig::parse(bytes, name, includes).map_err(|error| vec![error])?;
    let mut loader = Loader::default();
    loader.file(&entries);
    if let Err(errors) = Snapshot::compile(&loader.config) {
        loader.errors.extend(errors);
    }
    loader.outcome(strictness)
}

/// The faults among these notices, one line each: what `strict` refuses.
pub fn faults(notices: &[Notice]) -> Vec<String> {
    notices.iter().filter(|notice| notice.is_fault).map(ToString::to_string).collect()
}

/// Whether faults with which ProxySQL starts are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strictness {
    /// If the file's setting `strict` says so.
    OfFile,
    Strict,
}

#[derive(Default)]
struct Loader {
    config: Config,
    notices: Vec<Notice>,
    /// Faults of every kind; the values are read as if those that ProxySQL starts with were all.
    errors: Vec<ConfigError>,
}

impl Loader {
    /// The configuration, with a notice for each fault with which ProxySQL starts. These are errors if the file is `strict`.
    fn outcome(self, strictness: Strictness) -> Loaded {
        let Self { config, mut notices, errors } = self;
        let tolerated = |error: &ConfigError| {
            let text = error.kind.tolerated()?;
            Some(Notice { at: error.at.clone()?, subject: error.subject.clone(), text, is_fault: true })
        };
        let faults: Option<Vec<Notice>> = errors.iter().map(tolerated).collect();
        match faults {
            Some(faults) if faults.is_empty() || !(config.globals.strict || strictness == Strictness::Strict) => {
                notices.splice(0..0, faults);
                Ok((config, notices))
            }
            _ => Err(errors),
        }
    }

    fn file(&mut self, entries: &[Entry]) {
        let mut seen = BTreeMap::new();
        for entry in entries {
            if self.is_first(&entry.name, entry, seen.insert(canonical_name(&entry.name), entry)) {
                self.entry(entry);
            }
        }
    }

    /// Whether an entry may be read: the first of its name, or the later of two spellings. A duplicate is noted.
    fn is_first(&mut self, subject: &str, entry: &Entry, first: Option<&Entry>) -> bool {
        let kind = first.map(|first| given_again(first.name == entry.name, first.at.line));
        let is_first = kind.as_ref().is_none_or(|kind| kind.tolerated().is_some());
        if let Some(kind) = kind {
            self.refuse(&entry.at, subject, kind);
        }
        is_first
    }

    fn entry(&mut self, entry: &Entry) {
        let name = entry.name.as_str();
        if name == "mysql_variables" || name == "admin_variables" {
            self.variables(entry);
        } else if let Some(table) = Table::by_file_name(name) {
            self.table(table, entry);
        } else if FOREIGN.contains(&name) {
            self.notice(&entry.at, name, SKIPPED.to_owned());
        } else if GlobalSettings::find(name).is_some() {
            self.global(entry);
        } else {
            let kind = ErrorKind::Unknown { what: "group, table or setting", suggestion: suggest_top_level(name) };
            self.refuse(&entry.at, name, kind);
        }
    }

    fn global(&mut self, entry: &Entry) {
        let Some(text) = self.scalar(&entry.name, entry) else {
            return;
        };
        match self.config.globals.set(&entry.name, &text) {
            Ok(()) => {
                let setting = GlobalSettings::find(&entry.name);
                self.is_false(&entry.at, &entry.name, &text, setting);
                self.effect(&entry.at, &entry.name, setting);
            }
            Err(error) => self.refuse(&entry.at, &entry.name, error.into()),
        }
    }

    fn variables(&mut self, group: &Entry) {
        let Value::Group(entries) = &group.node.value else {
            return self.wrong_type(&group.node, &group.name, "a group { }");
        };
        let mut seen = BTreeMap::new();
        for entry in entries {
            let subject = format!("{}.{}", group.name, entry.name);
            if self.is_first(&subject, entry, seen.insert(entry.name.to_ascii_lowercase(), entry)) {
                self.variable(&group.name, &subject, entry);
            }
        }
    }

    fn variable(&mut self, group: &str, subject: &str, entry: &Entry) {
        let Some(text) = self.scalar(subject, entry) else {
            return;
        };
        let name = entry.name.to_ascii_lowercase();
        if group == "admin_variables" && FOREIGN_ADMIN.iter().any(|module| name.starts_with(module)) {
            return self.notice(&entry.at, subject, SKIPPED.to_owned());
        }
        let outcome = match group {
            "mysql_variables" => self.config.mysql.set(&entry.name, &text),
            _ => self.config.admin.set(&entry.name, &text),
        };
        let (module, setting) = match group {
            "mysql_variables" => (MysqlVariables::MODULE, MysqlVariables::find(&entry.name)),
            _ => (AdminVariables::MODULE, AdminVariables::find(&entry.name)),
        };
        self.config.given.extend(setting.map(Setting::full_name));
        match (outcome, retired(module, &entry.name)) {
            (Ok(()), Some(retired)) => self.notice(&entry.at, subject, retired.to_string()),
            (Ok(()), None) => {
                self.is_false(&entry.at, subject, &text, setting);
                self.effect(&entry.at, subject, setting);
            }
            (Err(error), _) => self.refuse(&entry.at, subject, error.into()),
        }
    }

    /// Adds a notice if the setting has no effect.
    fn effect(&mut self, at: &Position, subject: &str, setting: Option<&'static Setting>) {
        if let Some(text) = setting.and_then(|setting| setting.effect.told()) {
            self.notice(at, subject, text);
        }
    }

    fn table(&mut self, table: &'static Table, entry: &Entry) {
        let is_group = |entry: &Entry| matches!(entry.node.value, Value::Group(_));
        let nodes: Vec<&Node> = match &entry.node.value {
            Value::List(nodes) | Value::Array(nodes) => nodes.iter().collect(),
            Value::Group(entries) => {
                self.refuse(&entry.node.at, &entry.name, ErrorKind::GroupForList);
                if entries.is_empty() || entries.iter().any(is_group) {
                    entries.iter().map(|entry| &entry.node).collect()
                } else {
                    vec![&entry.node]
                }
            }
            _ => return self.wrong_type(&entry.node, &entry.name, "a list ( ) of groups { }"),
        };
        let mut rows = Vec::with_capacity(nodes.len());
        for node in nodes {
            match &node.value {
                Value::Group(columns) => rows.extend(Row::read(table, &node.at, columns, &mut self.errors)),
                _ => self.wrong_type(node, &entry.name, "a row, which is a group { }"),
            }
        }
        check_keys(table, &rows, &mut self.errors);
        let rows = latest_rows(table, rows);
        self.table_notices(table, &entry.at, &rows);
        self.config.tables.insert(table.name, rows);
    }

    /// One line for a table without effect, and one for each column without effect that is used.
    fn table_notices(&mut self, table: &'static Table, at: &Position, rows: &[Row]) {
        if let (TableEffect::NotYet(word), false) = (table.effect, rows.is_empty()) {
            let text = format!("{} {word} read; they have no effect yet", rows.len());
            self.notice(at, table.name, text);
        }
        let mut told = Vec::new();
        for row in rows {
            for column in row.inert_columns() {
                if !told.contains(&column.name) {
                    told.push(column.name);
                    let subject = format!("{}.{}", table.name, column.name);
                    self.notice(&row.position(column.name), &subject, NOT_YET.to_owned());
                }
            }
        }
    }

    /// The value of a setting as text, or a fault.
    fn scalar(&mut self, subject: &str, entry: &Entry) -> Option<String> {
        let text = entry.node.value.scalar_text();
        if text.is_none() {
            self.wrong_type(&entry.node, subject, "a single value");
        }
        text
    }

    /// Notes a `false` that was taken for a number.
    fn is_false(&mut self, at: &Position, subject: &str, text: &str, setting: Option<&'static Setting>) {
        if setting.is_some_and(|setting| setting.is_false_for_number(text)) {
            self.refuse(at, subject, ErrorKind::FalseForNumber);
        }
    }

    fn wrong_type(&mut self, node: &Node, subject: &str, expected: &'static str) {
        let kind = match &node.value {
            Value::Bytes(_) => ErrorKind::NotUtf8,
            other => ErrorKind::WrongType { expected, found: other.describe().to_owned() },
        };
        self.refuse(&node.at, subject, kind);
    }

    fn refuse(&mut self, at: &Position, subject: &str, kind: ErrorKind) {
        self.errors.push(ConfigError::new(at.clone(), subject, kind));
    }

    fn notice(&mut self, at: &(impl Into<Origin> + Clone), subject: &str, text: String) {
        self.notices.push(Notice { at: at.clone().into(), subject: subject.to_owned(), text, is_fault: false });
    }
}

/// One name for a table that has two, so that giving both is noticed.
fn canonical_name(name: &str) -> String {
    Table::by_file_name(name).map_or_else(|| name.to_owned(), |table| table.name.to_owned())
}

fn suggest_top_level(name: &str) -> Option<&'static str> {
    let tables = TABLES.iter().map(|table| table.file_name);
    let globals = GlobalSettings::SETTINGS.iter().map(|setting| setting.name);
    suggest::nearest(name, ["mysql_variables", "admin_variables"].into_iter().chain(tables).chain(globals))
}
