//! The modules: parts of the configuration that are loaded and saved as one.

use model::Config;
use model::config::text;
use rusqlite::Connection;

use super::rows::{self, Part};
use crate::error::AdminError;

/// A part of the configuration that is loaded and saved as one.
#[derive(Debug)]
pub(crate) struct Module {
    /// Its name in commands.
    pub words: &'static str,
    /// Its tables and variables.
    pub part: Part,
    /// Its line in `runtime_checksums_values`, or empty.
    pub checksum: &'static str,
}

impl Module {
    /// Whether the data plane works by it.
    pub(crate) fn is_for_plane(&self) -> bool {
        self.words.starts_with("MYSQL")
    }

    /// Whether it holds the admin variables.
    pub(crate) fn is_for_admin(&self) -> bool {
        self.part.variables == Some("admin")
    }
}

const fn tables(words: &'static str, tables: &'static [&'static str], checksum: &'static str) -> Module {
    Module { words, part: Part { tables, variables: None }, checksum }
}

const fn variables(words: &'static str, module: &'static str, checksum: &'static str) -> Module {
    Module { words, part: Part { tables: &[], variables: Some(module) }, checksum }
}

pub(crate) const MODULES: &[Module] = &[
    tables("MYSQL USERS", &["mysql_users", "mysql_ldap_mapping"], "mysql_users"),
    tables(
        "MYSQL SERVERS",
        &[
            "mysql_servers",
            "mysql_replication_hostgroups",
            "mysql_group_replication_hostgroups",
            "mysql_galera_hostgroups",
            "mysql_aws_aurora_hostgroups",
            "mysql_replication_channels",
            "mysql_healing",
            "mysql_healing_servers",
            "mysql_healing_hooks",
            "mysql_hostgroup_attributes",
            "mysql_servers_ssl_params",
        ],
        "mysql_servers",
    ),
    tables(
        "MYSQL QUERY RULES",
        &["mysql_query_rules", "mysql_query_rules_fast_routing", "mysql_rehearsals", "mysql_rehearsal_ignores"],
        "mysql_query_rules",
    ),
    variables("MYSQL VARIABLES", "mysql", "mysql_variables"),
    variables("ADMIN VARIABLES", "admin", "admin_variables"),
    tables(
        "MYSQL FIREWALL",
        &["mysql_firewall_whitelist_users", "mysql_firewall_whitelist_rules", "mysql_firewall_whitelist_sqli_fingerprints"],
        "",
    ),
    tables("SCHEDULER", &["scheduler"], ""),
    tables("RESTAPI", &["restapi_routes"], ""),
    tables("PROXYSQL SERVERS", &["proxysql_servers"], "proxysql_servers"),
    tables("COREDUMP", &["coredump_filters"], ""),
];

/// Lays a file's part over memory. Returns the number of rows and variables.
pub(crate) fn merge(db: &Connection, config: &Config, part: &Part) -> Result<u64, AdminError> {
    let mut read = 0;
    for table in part.tables.iter().filter_map(|name| rows::description(name)) {
        let given = config.rows(table.name);
        rows::insert(db, "main", table, given, "INSERT OR REPLACE")?;
        read += given.len();
    }
    let variables = config.mysql.iter().chain(config.admin.iter());
    let ours = variables.filter(|(setting, _)| Some(setting.module) == part.variables && !text::is_read_only(setting));
    for (setting, value) in ours.filter(|(setting, _)| config.given.contains(&setting.full_name())) {
        db.execute("INSERT OR REPLACE INTO main.global_variables VALUES (?1, ?2)", [setting.full_name(), value])?;
        read += 1;
    }
    Ok(u64::try_from(read).unwrap_or(u64::MAX))
}

/// Everything that a configuration is made of.
pub(crate) fn everything() -> Vec<Part> {
    MODULES.iter().map(|module| module.part).collect()
}

#[cfg(test)]
mod tests {
    use model::config::operator_tables;

    use super::*;

    #[test]
    fn every_table_is_in_one_module() {
        for table in operator_tables() {
            let count = everything().iter().flat_map(|part| part.tables).filter(|name| **name == table.name).count();
            assert_eq!(count, 1, "{}", table.name);
        }
    }
}
