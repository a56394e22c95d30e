//! Views behind which code writes: no text of a read shows it, so what a read names is looked up before it counts as harmless,
//! where that matters (a read that may have run already, a transaction that only read).
//!
//! Asked is the server, with the session's own rights: what is no view is harmless, and so is a view that calls nothing but
//! built-in functions, and whose own tables are. What cannot be seen is not. It is remembered for `prepared_metadata_max_age`, or until
//! a data definition. INVARIANT: no proof, no harmlessness.

use super::Session;
use super::command::Incoming;
use super::fault::Fault;
use super::frontend::Frontend;
use super::plan::Plan;
use super::question::{Door, Question};
use super::relay::Outgoing;
use super::statements::Statements;
use super::wants::Wants;
use crate::workers::shared::builtins_of;
use crate::workers::worker::Worker;
use session_state::certainty::{self, Refusal};
use sql::{Facts, Kind, LexMode, TableName};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wire::charset::Flavor;
use wire::codec::Reader;
use wire::reframe::ReplyError;

/// How deep views of views are looked into.
const DEEPEST: usize = 4;
/// Names that are asked for at a time.
const MOST: usize = 64;
/// NULL in a row of text.
const SQL_NULL: u8 = 0xfb;

/// A name that stands for a table, in a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SchemaTable {
    /// Its schema.
    pub schema: Box<str>,
    /// Its name there.
    pub name: Box<str>,
}

/// One of them that is asked for.
struct TableQuestion {
    table: SchemaTable,
    /// Which of those that the statement names leads to it.
    root: usize,
    /// It may be the name of something else than a table, which is in no schema.
    may_be_missing: bool,
}

/// What a name was found to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Found {
    /// Nothing that the user may see.
    #[default]
    Nothing,
    /// No view.
    Table,
    /// A view with this definition; empty where the user may not see it.
    View(Vec<u8>),
}

impl Session {
    /// Gets a backend for a read that may have run already, and asks there whether it may run again.
    pub(super) async fn may_read_again(&mut self, command: Incoming, plan: &Plan) -> Result<bool, Fault> {
        let Some(tables) = self.statements.tables_of(&self.client, &self.wants, &self.worker, command, plan) else { return Ok(false) };
        if tables.is_empty() {
            return Ok(true);
        }
        self.obtain().await?;
        if !self.hand.is_not_causal(&self.at) {
            // What it must see has to be there before the question begins a transaction (autocommit=0).
            let ahead = self.sync_causally(&plan.analysis).await?;
            self.send_statement(&ahead, Outgoing::Bytes(&[])).await?;
        }
        self.door().are_harmless(tables).await
    }
}

impl Door<'_> {
    /// Those of the tables of which it is not known that reading them runs no code that may write; an error where one is known that may.
    pub(super) fn unproven(&self, mut tables: Vec<SchemaTable>) -> Result<Vec<SchemaTable>, ()> {
        let at = &*self.at;
        let Some(info) = at.backend.as_ref().map(|backend| Arc::clone(&backend.core.info)) else { return Ok(tables) };
        let (epoch, now_ms) = (at.worker.shared.ddl_epoch.load(Ordering::Acquire), at.worker.clock.now_ms());
        let max_age_ms = at.worker.snapshot().vars.prepared_metadata_max_age;
        let (memory, place) = (at.worker.memory.borrow(), at.place(&info));
        let mut writes = false;
        tables.retain(|table| {
            let known = memory.is_harmless(&place, (&table.schema, &table.name), epoch, now_ms, max_age_ms);
            writes |= known == Some(false);
            known.is_none()
        });
        if writes { Err(()) } else { Ok(tables) }
    }
}

impl Statements {
    /// Whether the session reads texts as it did when it prepared this statement.
    pub(super) fn is_read_as_prepared(&self, client: &Frontend, wants: &Wants, worker: &Worker, id: u32) -> bool {
        self.get(id).is_none_or(|statement| *statement.key.mode == *client.mode(wants, worker))
    }

    /// What a read reads; None where that is not certain.
    pub(super) fn tables_of(
        &self,
        client: &Frontend,
        wants: &Wants,
        worker: &Worker,
        command: Incoming,
        plan: &Plan,
    ) -> Option<Vec<SchemaTable>> {
        let text = self.text_of(client, command, plan);
        // Only a SHOW with a condition may read what it names.
        if plan.analysis.kind == Kind::Show && !text.contains(&b'(') {
            return Some(Vec::new());
        }
        if plan.analysis.facts.contains(Facts::VERSIONED) {
            return None;
        }
        if plan.statement.is_some_and(|id| !self.is_read_as_prepared(client, wants, worker, id)) {
            return None;
        }
        let statement = plan.statement.and_then(|id| self.get(id));
        let own = statement.map_or(wants.state.schema.as_ref(), |statement| statement.key.schema.as_ref());
        located(sql::read_tables(text, wants.lex)?, own.map(|own| &**own))
    }
}

impl Door<'_> {
    /// Asks the backend at hand what these are; None where it does not tell.
    async fn look_up(&mut self, asked: &[TableQuestion]) -> Result<Option<Vec<Found>>, Fault> {
        let tables: Vec<&SchemaTable> = asked.iter().map(|one| &one.table).collect();
        let reply = match self.ask(Question::Tables(&tables)).await {
            Ok(reply) => reply,
            Err(e) => return Err(self.at.lost_before(&e)),
        };
        let Some(error) = &reply.error else { return Ok(found_in(&reply.rows, asked.len())) };
        let told = ReplyError { code: error.code, sqlstate: error.sqlstate, message: &error.message, unasked: reply.unasked };
        match certainty::refusal(&told) {
            // It says nothing of the tables: another server may.
            Some(Refusal::Leaving | Refusal::NeverRead | Refusal::NotReady) => {
                Err(self.at.lost_before(&io::Error::other(error.to_string())))
            }
            _ => Ok(None),
        }
    }

    /// Whether reading these runs no code that may write, as far as is known, or as the backend at hand says.
    pub(super) async fn are_harmless(&mut self, tables: Vec<SchemaTable>) -> Result<bool, Fault> {
        let Ok(tables) = self.unproven(tables) else { return Ok(false) };
        if tables.is_empty() {
            return Ok(true);
        }
        let Some(info) = self.at.backend.as_ref().map(|backend| Arc::clone(&backend.core.info)) else {
            return Err(self.at.pinned_backend_lost("no backend"));
        };
        let epoch = self.at.worker.shared.ddl_epoch.load(Ordering::Acquire);
        let mut harmless = vec![true; tables.len()];
        let of = |(root, table): (usize, &SchemaTable)| TableQuestion { table: table.clone(), root, may_be_missing: true };
        let mut asked: Vec<TableQuestion> = tables.iter().enumerate().map(of).collect();
        for _ in 0..=DEEPEST {
            if asked.is_empty() || asked.len() > MOST {
                break;
            }
            let Some(found) = self.look_up(&asked).await? else { return Ok(false) };
            let mut next = Vec::new();
            for (one, found) in asked.iter().zip(found) {
                let goes_on = match found {
                    Found::Nothing => one.may_be_missing,
                    Found::Table => true,
                    Found::View(definition) => match tables_behind(&definition, &one.table, info.flavor) {
                        Some(behind) => {
                            next.extend(behind.into_iter().map(|(table, may_be_missing)| TableQuestion {
                                table,
                                root: one.root,
                                may_be_missing,
                            }));
                            true
                        }
                        None => false,
                    },
                };
                if let Some(harmless) = harmless.get_mut(one.root) {
                    *harmless &= goes_on;
                }
            }
            // Of what is not harmless nothing more needs to be known.
            next.retain(|one: &TableQuestion| harmless.get(one.root) == Some(&true));
            asked = next;
        }
        for one in asked {
            if let Some(harmless) = harmless.get_mut(one.root) {
                *harmless = false;
            }
        }
        let now_ms = self.at.worker.clock.now_ms();
        let mut memory = self.at.worker.memory.borrow_mut();
        for (table, is_harmless) in tables.iter().zip(&harmless) {
            memory.learn_table(&self.at.place(&info), (&table.schema, &table.name), *is_harmless, epoch, now_ms);
        }
        Ok(harmless.iter().all(|is_harmless| *is_harmless))
    }

    /// The same as [`Self::are_harmless`], and since when (worker's clock, ms) that is known at least.
    pub(super) async fn are_harmless_since(&mut self, tables: Vec<SchemaTable>) -> Result<(bool, u64), Fault> {
        let is_harmless = self.are_harmless(tables.clone()).await?;
        let now_ms = self.at.worker.clock.now_ms();
        let Some(info) = self.at.backend.as_ref().map(|backend| Arc::clone(&backend.core.info)) else { return Ok((is_harmless, now_ms)) };
        let (memory, place) = (self.at.worker.memory.borrow(), self.at.place(&info));
        let known_ms = tables.iter().filter_map(|table| memory.harmless_since_ms(&place, (&table.schema, &table.name)));
        Ok((is_harmless, known_ms.min().unwrap_or(now_ms)))
    }
}

/// The tables with their schemas. A name without one, where there is no schema to look in, is not that of a table.
fn located(tables: Vec<TableName>, own: Option<&[u8]>) -> Option<Vec<SchemaTable>> {
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
fn tables_behind(definition: &[u8], view: &SchemaTable, flavor: Flavor) -> Option<Vec<(SchemaTable, bool)>> {
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
fn found_in(rows: &[Vec<u8>], asked: usize) -> Option<Vec<Found>> {
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
