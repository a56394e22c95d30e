//! Hostgroups that clusters claim: each may belong to one row, in one role.
//!
//! If two rows filled a hostgroup, one would empty it while the other fills it. Such rows are refused, in whatever tables they are. Rows
//! with `active=0` claim nothing.

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

/// A row's hostgroups: column and number.
pub(super) fn claimed(config: &Config) -> impl Iterator<Item = (&Row, Vec<(&'static str, i64)>)> {
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

#[cfg(test)]
mod tests {
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
}
