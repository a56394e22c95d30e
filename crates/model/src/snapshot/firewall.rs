//! The firewall's whitelist, as typed rows. Whether it counts is `mysql-firewall_whitelist_enabled`.

use super::hostgroup::number;
use super::rules::digest;
use crate::config::{Config, Row};
use crate::error::ConfigError;

/// The firewall's tables. Rows with `active=0` are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FirewallConfig {
    /// `mysql_firewall_whitelist_users`.
    pub users: Vec<FirewallUser>,
    /// `mysql_firewall_whitelist_rules`.
    pub rules: Vec<FirewallRule>,
    /// `mysql_firewall_whitelist_sqli_fingerprints`.
    pub sqli_fingerprints: Vec<Box<str>>,
}

/// One row of `mysql_firewall_whitelist_users`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirewallUser {
    /// With `client_address` the key of the row.
    pub username: Box<str>,
    /// The client's address; empty stands for any.
    pub client_address: Box<str>,
    /// The treatment of statements that are not on the list.
    pub mode: FirewallMode,
}

/// The firewall's act on a statement that is not on the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FirewallMode {
    /// All statements pass.
    Off,
    /// It passes and is logged.
    Detecting,
    /// It gets an error.
    Protecting,
}

/// A statement that is allowed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FirewallRule {
    /// The user to whose list the entry belongs.
    pub username: Box<str>,
    /// The address of the user's row, not the client's: empty where that is empty.
    pub client_address: Box<str>,
    /// The session's schema.
    pub schemaname: Box<str>,
    /// The flag at the end of the rules.
    pub flag_in: u32,
    /// The hash of the allowed statement's digest.
    pub digest: u64,
}

/// Reads the tables; faults are added to `errors`.
pub(super) fn compile(config: &Config, errors: &mut Vec<ConfigError>) -> FirewallConfig {
    let active = |table: &str| config.rows(table).iter().filter(|row| row.flag("active"));
    let text = |row: &Row, column: &str| -> Box<str> { row.text(column).unwrap_or_default().into() };
    let user = |row: &Row| FirewallUser { username: text(row, "username"), client_address: text(row, "client_address"), mode: mode(row) };
    let mut rules = Vec::new();
    for row in active("mysql_firewall_whitelist_rules") {
        match digest(row.text("digest").unwrap_or_default()) {
            Ok(digest) => rules.push(FirewallRule {
                username: text(row, "username"),
                client_address: text(row, "client_address"),
                schemaname: text(row, "schemaname"),
                flag_in: number(row, "flagIN"),
                digest,
            }),
            Err(kind) => errors.push(ConfigError::new(row.position("digest").clone(), "mysql_firewall_whitelist_rules.digest", kind)),
        }
    }
    FirewallConfig {
        users: active("mysql_firewall_whitelist_users").map(user).collect(),
        rules,
        sqli_fingerprints: active("mysql_firewall_whitelist_sqli_fingerprints").map(|row| text(row, "fingerprint")).collect(),
    }
}

fn mode(row: &Row) -> FirewallMode {
    match row.text("mode") {
        Some("DETECTING") => FirewallMode::Detecting,
        Some("PROTECTING") => FirewallMode::Protecting,
        _ => FirewallMode::Off,
    }
}
