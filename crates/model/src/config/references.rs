//! Hostgroups that clusters claim: each may belong to one row, in one role.
//!
//! A hostgroup that two rows fill would be emptied by one while the other fills it, so such rows are refused, whatever tables
//! they are in. Rows with `active=0` claim nothing.

use std::collections::BTreeMap;

use super::{Config, Row};
use crate::error::{ConfigError, ErrorKind};

/// Tables whose rows claim hostgroups, and the columns that name them.
const CLAIMS: &[(&str, &[&str])] = &[
    ("mysql_replication_hostgroups", &["writer_hostgroup", "reader_hostgroup"]),
    ("mysql_group_replication_hostgroups", GROUP),
    ("mysql_galera_hostgroups", GROUP),
    ("mysql_aws_aurora_hostgroups", &["writer_hostgroup", "reader_hostgroup"]),
];

const GROUP: &[&str] = &["writer_hostgroup", "backup_writer_hostgroup", "reader_hostgroup", "offline_hostgroup"];

/// How many users a notice names.
const NAMED_USERS: usize = 5;

/// A row's hostgroups: column and number.
fn claimed(config: &Config) -> impl Iterator<Item = (&Row, Vec<(&'static str, i64)>)> {
    let rows = CLAIMS.iter().flat_map(|(table, columns)| config.rows(table).iter().map(move |row| (row, *columns)));
    let active = rows.filter(|(row, _)| row.cell("active").is_none() || row.flag("active"));
    active.map(|(row, columns)| (row, columns.iter().filter_map(|column| Some((*column, row.integer(column)?))).collect()))
}

/// Finds hostgroups that two rows claim. All faults are added to `errors`, at the later row.
pub fn check(config: &Config, errors: &mut Vec<ConfigError>) {
    let mut owners: BTreeMap<i64, (&Row, &str)> = BTreeMap::new();
    for (row, hostgroups) in claimed(config) {
        for (column, hostgroup) in hostgroups {
            // Twice in one row is that table's own rule.
            match owners.get(&hostgroup) {
                Some((owner, _)) if std::ptr::eq(*owner, row) => {}
                Some((owner, role)) => {
                    let text = format!("hostgroup {hostgroup} is {role} of {} already ({})", owner.table.name, owner.at.row_name());
                    errors.push(ConfigError::new(row.position(column), format!("{}.{column}", row.table.name), ErrorKind::Claimed(text)));
                }
                None => drop(owners.insert(hostgroup, (row, column))),
            }
        }
    }
}

/// Users who would find no server: nothing in their `default_hostgroup`, nor in a hostgroup of the same cluster. One line each
/// for the first few, and one for the others.
pub fn users_without_servers(config: &Config) -> Vec<String> {
    let has_server = |hostgroup: i64| config.rows("mysql_servers").iter().any(|server| server.integer("hostgroup_id") == Some(hostgroup));
    let clusters: Vec<Vec<i64>> =
        claimed(config).map(|(_, hostgroups)| hostgroups.into_iter().map(|(_, hostgroup)| hostgroup).collect()).collect();
    let is_served =
        |hostgroup: i64| has_server(hostgroup) || clusters.iter().any(|all| all.contains(&hostgroup) && all.iter().any(|h| has_server(*h)));
    let mut known: BTreeMap<i64, bool> = BTreeMap::new();
    let mut lines = Vec::new();
    let mut others = 0;
    for user in config.rows("mysql_users").iter().filter(|user| user.flag("active") && user.flag("frontend")) {
        let Some(hostgroup) = user.integer("default_hostgroup") else { continue };
        if *known.entry(hostgroup).or_insert_with(|| is_served(hostgroup)) {
            continue;
        }
        match lines.len() < NAMED_USERS {
            true => {
                let name = user.text("username").unwrap_or_default();
                lines.push(format!("mysql_users, username={name}: default_hostgroup {hostgroup} has no servers"));
            }
            false => others += 1,
        }
    }
    if others > 0 {
        lines.push(format!("{others} more users whose default_hostgroup has no servers"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        super::super::parse(text, "test.cnf").unwrap().0
    }

    /// Reading a file checks it too.
    fn faults(text: &str) -> Vec<String> {
        let errors = super::super::parse(text, "test.cnf").err().unwrap_or_default();
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_hostgroup_belongs_to_one_row() {
        let pairs = "mysql_replication_hostgroups = (\n{ writer_hostgroup=1, reader_hostgroup=2 },\n";
        assert!(faults(&format!("{pairs}{{ writer_hostgroup=3, reader_hostgroup=4 }} )")).is_empty());
        let found = faults(&format!("{pairs}{{ writer_hostgroup=2, reader_hostgroup=4 }} )"));
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("test.cnf:3:") && found[0].contains("mysql_replication_hostgroups.writer_hostgroup: "), "{found:?}");
        assert!(
            found[0].ends_with("hostgroup 2 is reader_hostgroup of mysql_replication_hostgroups already (the row at line 2)"),
            "{found:?}"
        );
        let group = |active: u8| {
            {
                format!(
                    "{pairs} )\nmysql_galera_hostgroups = ({{ writer_hostgroup=10, backup_writer_hostgroup=1, reader_hostgroup=12, \
                 offline_hostgroup=2, active={active} }})"
                )
            }
            .replace("},\n )", "} )")
        };
        assert_eq!(faults(&group(1)).len(), 2);
        assert!(faults(&group(0)).is_empty());
    }

    #[test]
    fn users_with_nowhere_to_go_are_named() {
        let text = "mysql_servers = ({ hostgroup=2, address=\"db\" })\n\
             mysql_replication_hostgroups = ({ writer_hostgroup=1, reader_hostgroup=2 })\n\
             mysql_users = ({ username=\"a\", default_hostgroup=1 }, { username=\"b\", default_hostgroup=2 }, \
             { username=\"c\", default_hostgroup=3, active=0 }, ";
        assert!(users_without_servers(&config(&format!("{text} {{ username=\"d\", default_hostgroup=2 }})"))).is_empty());
        let many: Vec<String> = (0..7).map(|n| format!("{{ username=\"u{n}\", default_hostgroup=9 }}")).collect();
        let lines = users_without_servers(&config(&format!("{text} {})", many.join(", "))));
        assert_eq!(lines.len(), 6);
        assert_eq!(lines[0], "mysql_users, username=u0: default_hostgroup 9 has no servers");
        assert_eq!(lines[5], "2 more users whose default_hostgroup has no servers");
    }
}
