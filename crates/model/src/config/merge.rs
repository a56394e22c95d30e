//! Two changes of one configuration, laid together row by row.

use std::collections::{BTreeMap, BTreeSet};

use super::row::{Cell, Row};
use super::shared::{is_local, set};
use super::{Config, TABLES, Table};

/// The side whose row wins if both have changed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefer {
    /// Neither side: it is a conflict.
    Nobody,
    /// The row of `mine`; the change of `theirs` is lost.
    Mine,
    /// The row of `theirs`; the change of `mine` is lost.
    Theirs,
}

/// `theirs` with what `mine` changed of `base`, in these tables and in the shared variables of these modules. Local variables are
/// those of `mine`.
///
/// # Errors
/// The rows that both have changed, by table and key.
pub fn merge(
    base: &Config,
    mine: &Config,
    theirs: &Config,
    tables: &[&str],
    modules: &[&str],
    prefer: Prefer,
) -> Result<Config, Vec<String>> {
    let (mut merged, mut conflicts) = (mine.clone(), Vec::new());
    for table in TABLES.iter().filter(|table| tables.contains(&table.name)) {
        let rows = merge_rows(table, base.rows(table.name), mine.rows(table.name), theirs.rows(table.name), prefer, &mut conflicts);
        merged.tables.insert(table.name, rows);
    }
    let values = |config: &Config| -> BTreeMap<String, String> {
        config.mysql.iter().chain(config.admin.iter()).map(|(setting, value)| (setting.full_name(), value)).collect()
    };
    let (base, theirs) = (values(base), values(theirs));
    for (setting, mine) in mine.mysql.iter().chain(mine.admin.iter()) {
        if is_local(setting) || !modules.contains(&setting.module) {
            continue;
        }
        let name = setting.full_name();
        let (base, theirs) = (base.get(&name), theirs.get(&name));
        if let Some(value) = chosen(base, Some(&mine), theirs, prefer, || format!("global_variables, variable_name={name}"), &mut conflicts)
        {
            // A value that another configuration has is one.
            let _ = set(&mut merged, setting, value);
        }
    }
    if conflicts.is_empty() { Ok(merged) } else { Err(conflicts) }
}

/// The merged value of one row or variable; `None` if it is removed.
fn chosen<'a, T: PartialEq + ?Sized>(
    base: Option<&'a T>,
    mine: Option<&'a T>,
    theirs: Option<&'a T>,
    prefer: Prefer,
    name: impl Fn() -> String,
    conflicts: &mut Vec<String>,
) -> Option<&'a T> {
    if mine == base || mine == theirs {
        return theirs;
    }
    if theirs == base {
        return mine;
    }
    match prefer {
        Prefer::Mine => mine,
        Prefer::Theirs => theirs,
        Prefer::Nobody => {
            conflicts.push(name());
            theirs
        }
    }
}

fn merge_rows(table: &Table, base: &[Row], mine: &[Row], theirs: &[Row], prefer: Prefer, conflicts: &mut Vec<String>) -> Vec<Row> {
    let keyed = |rows: &[Row]| -> BTreeMap<Vec<Option<Vec<u8>>>, Row> { rows.iter().map(|row| (key(table, row), row.clone())).collect() };
    let (base, mine_by_key, theirs_by_key) = (keyed(base), keyed(mine), keyed(theirs));
    let mut seen = BTreeSet::new();
    let mut merged = Vec::new();
    for row in theirs.iter().chain(mine) {
        let key = key(table, row);
        if !seen.insert(key.clone()) {
            continue;
        }
        let cells = |rows: &'_ BTreeMap<_, Row>| rows.get(&key).map(|row: &Row| row.cells.clone());
        let (b, m, t) = (cells(&base), cells(&mine_by_key), cells(&theirs_by_key));
        let name = || format!("{}, {}", table.name, shown(table, &key));
        let kept = chosen(b.as_ref(), m.as_ref(), t.as_ref(), prefer, name, conflicts).cloned();
        let is_kept = |row: &&Row| Some(&row.cells) == kept.as_ref();
        merged.extend(theirs_by_key.get(&key).filter(is_kept).or_else(|| mine_by_key.get(&key).filter(is_kept)).cloned());
    }
    merged
}

fn key(table: &Table, row: &Row) -> Vec<Option<Vec<u8>>> {
    let columns = table.keys.first().copied().unwrap_or_default();
    columns.iter().map(|name| table.column_index(name).and_then(|index| row.cells.get(index)).and_then(Cell::to_sql)).collect()
}

fn shown(table: &Table, key: &[Option<Vec<u8>>]) -> String {
    let columns = table.keys.first().copied().unwrap_or_default();
    let value = |value: &Option<Vec<u8>>| value.as_deref().map_or("NULL".into(), |bytes| String::from_utf8_lossy(bytes).into_owned());
    columns.iter().zip(key).map(|(name, one)| format!("{name}={}", value(one))).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users(rows: &[(&str, u32)]) -> Config {
        let rows: Vec<String> = rows.iter().map(|(name, group)| format!("{{ username=\"{name}\", default_hostgroup={group} }}")).collect();
        super::super::parse(&format!("mysql_users = ( {} )", rows.join(", ")), "test").unwrap().0
    }

    fn merged(
        base: &[(&str, u32)],
        mine: &[(&str, u32)],
        theirs: &[(&str, u32)],
        prefer: Prefer,
    ) -> Result<Vec<(String, i64)>, Vec<String>> {
        let merged = merge(&users(base), &users(mine), &users(theirs), &["mysql_users"], &[], prefer)?;
        let row = |row: &Row| (row.text("username").unwrap().to_owned(), row.integer("default_hostgroup").unwrap());
        Ok(merged.rows("mysql_users").iter().map(row).collect())
    }

    #[test]
    fn changes_of_different_rows_are_laid_together() {
        let base = [("anna", 1), ("bert", 1), ("cleo", 1), ("dora", 1)];
        let mine = [("anna", 2), ("bert", 1), ("cleo", 1), ("emil", 5)];
        let theirs = [("anna", 1), ("bert", 3), ("dora", 1), ("finn", 6)];
        let wanted = [("anna".into(), 2), ("bert".into(), 3), ("finn".into(), 6), ("emil".into(), 5)];
        assert_eq!(merged(&base, &mine, &theirs, Prefer::Nobody).unwrap(), wanted);
    }

    #[test]
    fn a_row_that_both_have_changed_is_a_conflict_until_somebody_is_preferred() {
        let (base, mine, theirs) = ([("anna", 1), ("bert", 1)], [("anna", 2)], [("anna", 3), ("bert", 4)]);
        let conflicts = merged(&base, &mine, &theirs, Prefer::Nobody).unwrap_err();
        assert_eq!(conflicts.len(), 2, "{conflicts:?}");
        assert!(conflicts[0].contains("anna"));
        assert_eq!(merged(&base, &mine, &theirs, Prefer::Mine).unwrap(), [("anna".into(), 2)]);
        assert_eq!(merged(&base, &mine, &theirs, Prefer::Theirs).unwrap(), [("anna".into(), 3), ("bert".into(), 4)]);
        assert_eq!(merged(&base, &theirs, &theirs, Prefer::Nobody).unwrap().len(), 2, "the same change twice is none");
    }

    #[test]
    fn variables_are_merged_one_by_one_and_local_ones_are_mine() {
        let config = |text: &str| super::super::parse(text, "test").unwrap().0;
        let base = config("");
        let mine = config("mysql_variables = { max_connections=7, threads=3 }");
        let theirs = config("mysql_variables = { default_schema=\"x\", threads=5 }");
        let merged = merge(&base, &mine, &theirs, &[], &["mysql"], Prefer::Nobody).unwrap();
        assert_eq!((merged.mysql.max_connections, merged.mysql.default_schema.as_str(), merged.mysql.threads), (7, "x", 3));
    }
}
