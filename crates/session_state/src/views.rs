//! Tables and views that a read names: what the server says of each, and what the definition of a view reads.

use crate::certainty;
use crate::server_info::builtins_of;
use sql::{Facts, Kind, LexMode, TableName};
use wire::charset::Flavor;
use wire::codec::Reader;

/// NULL in a row of text.
const SQL_NULL: u8 = 0xfb;

/// A name that stands for a table, in a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaTable {
    /// Its schema.
    pub schema: Box<str>,
    /// Its name there.
    pub name: Box<str>,
}

/// One of them that is asked for.
pub struct TableQuestion {
    /// Its name.
    pub table: SchemaTable,
    /// Which of those that the statement names leads to it.
    pub root: usize,
    /// It may be the name of something else than a table, which is in no schema.
    pub may_be_missing: bool,
}

/// What a name was found to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Found {
    /// Nothing that the user may see.
    #[default]
    Nothing,
    /// No view.
    Table,
    /// A view with this definition; empty where the user may not see it.
    View(Vec<u8>),
}

/// The tables with their schemas. A name without one, where there is no schema to look in, is not that of a table.
pub fn located(tables: Vec<TableName>, own: Option<&[u8]>) -> Option<Vec<SchemaTable>> {
    let mut all = Vec::with_capacity(tables.len());
    for TableName { schema, name } in tables {
        let schema = match (schema, own) {
            (Some(schema), _) => schema,
            (None, Some(own)) => plain(own)?.to_owned(),
            (None, None) => continue,
        };
        all.push(SchemaTable { schema: schema.into(), name: name.into() });
    }
    Some(all)
}

/// A schema's name that means the same within quotes, in every character set and under every `sql_mode`.
fn plain(schema: &[u8]) -> Option<&str> {
    let is_plain = schema.iter().all(|byte| (b' '..0x7f).contains(byte) && !matches!(byte, b'\'' | b'\\'));
    std::str::from_utf8(schema).ok().filter(|_| is_plain)
}

/// What a view reads, and whether it may be missing, if the view itself runs no code that may write. Definitions name tables with
/// their schemas; only what they make themselves (WITH) has none.
pub fn tables_behind(definition: &[u8], view: &SchemaTable, flavor: Flavor) -> Option<Vec<(SchemaTable, bool)>> {
    let read = |no_backslash_escapes| {
        let mode = LexMode { no_backslash_escapes, builtins: builtins_of(flavor), ..LexMode::default() };
        let analysis = sql::analyze(definition, mode);
        let is_read = analysis.kind == Kind::Select && certainty::is_plain_read(&analysis) && !analysis.facts.contains(Facts::VERSIONED);
        if is_read { sql::read_tables(definition, mode) } else { None }
    };
    let mut tables = read(false)?;
    if definition.contains(&b'\\') {
        // Under which `sql_mode` its strings were written is not told.
        tables.extend(read(true)?);
    }
    let may_be_missing: Vec<bool> = tables.iter().map(|table| table.schema.is_none()).collect();
    Some(located(tables, Some(view.schema.as_bytes()))?.into_iter().zip(may_be_missing).collect())
}

/// What the answer says of each; None where it is not understood.
pub fn found_in(rows: &[Vec<u8>], asked: usize) -> Option<Vec<Found>> {
    let mut all = vec![Found::default(); asked];
    for row in rows {
        let mut row = Reader::new(row);
        let n: usize = std::str::from_utf8(row.lenenc_bytes().ok()?).ok()?.parse().ok()?;
        let is_view = row.lenenc_bytes().ok()? == b"VIEW";
        let definition = if row.peek()? == SQL_NULL { &[][..] } else { row.lenenc_bytes().ok()? };
        let found = all.get_mut(n)?;
        match found {
            Found::View(known) if known.is_empty() && is_view => *known = definition.to_vec(),
            Found::View(_) => {}
            _ if is_view => *found = Found::View(definition.to_vec()),
            _ => *found = Found::Table,
        }
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn table(schema: &str, name: &str) -> SchemaTable {
        SchemaTable { schema: schema.into(), name: name.into() }
    }

    fn row(columns: [Option<&[u8]>; 3]) -> Vec<u8> {
        let mut row = Vec::new();
        for column in columns {
            match column {
                Some(column) => wire::codec::put_lenenc_bytes(&mut row, column),
                None => row.push(SQL_NULL),
            }
        }
        row
    }

    #[test]
    fn a_definition_tells_what_it_reads() {
        let behind = |definition: &str| tables_behind(definition.as_bytes(), &table("s", "v"), Flavor::MySql);
        let reads = "select `t`.`a` AS `a`,concat(`t`.`b`,'\\'') AS `c` from (`s`.`t` join `d`.`u` on((`t`.`a` = `u`.`a`))) \
                     group by `t`.`a`,`t`.`b` order by `t`.`a`,`t`.`b`";
        assert_eq!(behind(reads), Some(vec![(table("s", "t"), false), (table("d", "u"), false)]));
        assert_eq!(
            behind("with `c` as (select 1 AS `1` from `s`.`t`) select `c`.`1` AS `1` from `c`"),
            Some(vec![(table("s", "t"), false), (table("s", "c"), true)])
        );
        for calls in ["", "select `s`.`g`() AS `x`", "select `g`() AS `x`", "select get_lock('a',1) AS `x`"] {
            assert_eq!(behind(calls), None, "{calls}");
        }
    }

    #[test]
    fn a_view_is_what_either_table_calls_one() {
        let rows = vec![
            row([Some(b"0"), Some(b"BASE TABLE"), Some(b"")]),
            row([Some(b"1"), Some(b"VIEW"), Some(b"")]),
            row([Some(b"1"), Some(b"VIEW"), Some(b"select 1 AS `1`")]),
            row([Some(b"2"), Some(b"VIEW"), Some(b"")]),
            row([Some(b"3"), Some(b"VIEW"), None]),
            row([Some(b"4"), Some(b"SYSTEM VIEW"), Some(b"")]),
        ];
        let none = || Found::View(Vec::new());
        let expected = [Found::Table, Found::View(b"select 1 AS `1`".to_vec()), none(), none(), Found::Table, Found::Nothing];
        assert_eq!(found_in(&rows, 6), Some(expected.to_vec()));
        assert_eq!(found_in(&rows, 3), None, "it was not asked for");
        assert_eq!(found_in(&[b"\x020\0".to_vec()], 1), None);
    }
}
