//! The client's prepared statements: its ids, and what each stands for.

use super::backends::Backends;
use super::command::Incoming;
use super::frontend::Frontend;
use crate::backends::backend::Numbers;
use crate::statements::stmt_cache::{Apart, Prepared, StatementCache};
use crate::workers::worker::Worker;
use meter::prepared::{Holder, Side};
use model::HostgroupId;
use model::snapshot::User;
use serde::{Deserialize, Serialize};
use session_state::collected::ServerError;
use session_state::state::Text;
use session_state::statement_key::{Meaning, StatementKey};
use session_state::words::contains;
use slab::Slab;
use sql::{Analysis, Fact, LexMode};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use traces::Parent;
use wire::WireError;
use wire::flags::Capabilities;
use wire::prepared::{ExecuteParams, rewrite_execute, stmt_id};

/// One statement as the client sees it.
pub(super) struct ClientStatement {
    /// What it is the same as, on any backend.
    pub key: Arc<StatementKey>,
    /// The same as the held backend knows it, since the last execution.
    pub on_backend: Arc<StatementKey>,
    /// What its text says.
    pub analysis: Analysis,
    /// How that was read.
    pub lex: LexMode,
    /// What the client prepared, where servers have another text.
    pub original: Option<Arc<Original>>,
    /// Parameters.
    pub params: u16,
    /// Types the client bound last; servers that have not seen them are told.
    pub types: Vec<u8>,
    /// Where a server settles types by executions: those that the values have had, NULL aside.
    pub settled_types: Option<Text>,
    /// It is `SELECT` of just this fact, which the session knows.
    pub fact: Option<Fact>,
    /// What it has with a backend's statement.
    pub marks: Marks,
    /// That one, while it has something with it: no other statement is executed with it.
    pub apart: Option<Apart>,
    /// Why long data could not be passed on: said at the execution, as servers do.
    pub failed: Option<ServerError>,
    /// The client's span that was lifted out of its text. It does not go along to another process.
    pub parent: Option<Parent>,
    /// Its place in the list of prepared statements.
    pub holder: Option<Holder>,
}

/// What a client's statement has with the one of a backend; changed by [`Statements::mark`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Marks {
    /// COM_STMT_SEND_LONG_DATA was sent since the last execution.
    pub long_data: bool,
    /// Its cursor is open, in this hostgroup.
    pub cursor: Option<HostgroupId>,
}

impl Marks {
    /// It has nothing there.
    pub(super) fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// A client's own text in the place of which servers have another: rules are asked with this one.
pub(super) struct Original {
    /// The text.
    pub text: Text,
    /// What it says.
    pub analysis: Analysis,
}

/// A session's statements, for another process.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StatementsRecord {
    each: Vec<StatementRecord>,
    last: u32,
    is_latest: bool,
    behind: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StatementRecord {
    id: u32,
    meaning: Meaning,
    /// The same as the held backend knows it, where that differs.
    on_backend: Option<Meaning>,
    original: Option<Text>,
    params: u16,
    types: Vec<u8>,
    settled_types: Option<Text>,
    marks: Marks,
    apart: Option<Apart>,
    failed: Option<ServerError>,
    columns: u16,
}

impl ClientStatement {
    fn record(&self, id: u32) -> StatementRecord {
        let Self {
            key,
            on_backend,
            analysis: _,
            lex: _,
            original,
            params,
            types,
            settled_types,
            fact: _,
            marks,
            apart,
            failed,
            parent: _,
            holder,
        } = self;
        StatementRecord {
            id,
            meaning: Meaning::clone(key),
            on_backend: (on_backend != key).then(|| Meaning::clone(on_backend)),
            original: original.as_ref().map(|original| Arc::clone(&original.text)),
            params: *params,
            types: types.clone(),
            settled_types: settled_types.clone(),
            marks: *marks,
            apart: *apart,
            failed: failed.clone(),
            columns: holder.as_ref().map_or(0, |holder| holder.listed.shape.0),
        }
    }
}

impl StatementRecord {
    fn statement(self, worker: &Worker, user: &User, lex: LexMode, numbers: &Numbers) -> Result<(u32, ClientStatement), String> {
        let Self { id, meaning, on_backend, original, params, types, settled_types, marks, apart, failed, columns } = self;
        let lex = lex_at(&meaning.mode, lex);
        let intern = |meaning: Meaning| worker.memory.borrow_mut().intern_statement(meaning.taken_over().into());
        let key = intern(meaning);
        let on_backend = on_backend.map_or_else(|| Arc::clone(&key), intern);
        let said = original.as_ref().unwrap_or(&key.text);
        let fact = sql::single_fact_select(said, lex);
        let analysis = worker.analyze(&key.text, lex);
        let original = original.map(|text| Arc::new(Original { analysis: worker.analyze(&text, lex), text }));
        let apart = match apart {
            None => None,
            Some(before) => Some(*numbers.get(&before).ok_or("a statement's cursor or long data is on no connection of the session")?),
        };
        let listed = worker.meter.list_prepared(&user.name, &key, lex, (columns, params));
        let holder = Some(listed.hold(Side::Client));
        let statement = ClientStatement {
            key,
            on_backend,
            analysis,
            lex,
            original,
            params,
            types,
            settled_types,
            fact,
            marks,
            apart,
            failed,
            parent: None,
            holder,
        };
        Ok((id, statement))
    }
}

/// How a text was read at its PREPARE, by the settings of then; `now` is how the session reads texts now.
pub(super) fn lex_at(mode: &[u8], now: LexMode) -> LexMode {
    let then = now.under(|word| contains(mode, word.as_bytes()));
    LexMode { ignore_space: now.ignore_space || then.ignore_space, ..then }
}

impl StatementsRecord {
    /// The statements of a session that reads texts by `lex`.
    pub(super) fn statements(self, worker: &Worker, user: &User, lex: LexMode, numbers: &Numbers) -> Result<Statements, String> {
        let Self { each, last, is_latest, behind } = self;
        let mut statements = Statements::default();
        for record in each {
            let (id, statement) = record.statement(worker, user, lex, numbers)?;
            statements.put(id, statement);
        }
        (statements.last, statements.is_latest) = (last, is_latest);
        statements.count_behind(behind);
        Ok(statements)
    }
}

impl ClientStatement {
    /// Whether its long data or its cursor is with a backend's statement.
    pub(super) fn is_bound(&self) -> bool {
        !self.marks.is_none()
    }

    /// The same statement of a backend with these.
    pub(super) fn of<'a>(&self, prepared: &'a mut StatementCache) -> Option<&'a mut Prepared> {
        match self.apart {
            Some(apart) => prepared.get_apart(apart),
            None => prepared.get(&self.on_backend),
        }
    }

    /// Appends an execution that says its types, whether the client sent them with this one or with one before.
    pub(super) fn put_whole(&self, payload: &[u8], caps: Capabilities, out: &mut Vec<u8>) -> Result<(), WireError> {
        let params = ExecuteParams::parse(payload, self.params, caps)?;
        rewrite_execute(payload, 0, params.as_ref(), Some(&self.types), out)
    }

    /// Bytes of its texts.
    fn bytes(&self) -> usize {
        self.key.bytes() + self.original.as_ref().map_or(0, |original| original.text.len())
    }

    /// Is it the same for backends as the client has it, with the types it binds?
    pub(super) fn is_on_backend_as_bound(&self) -> bool {
        self.on_backend.types == self.settled_types && Arc::ptr_eq(&self.on_backend.text, &self.key.text)
    }
}

/// The statements of a session; ids are never used twice.
#[derive(Default)]
pub(super) struct Statements {
    /// None when there are none: most clients prepare nothing.
    held: Option<Box<StatementList>>,
    /// The highest id.
    last: u32,
    /// It is that of the last PREPARE: none has failed since.
    is_latest: bool,
}

#[derive(Default)]
struct StatementList {
    all: Slab<ClientStatement>,
    /// Where in `all` the statement with an id is.
    by_id: HashMap<u32, usize, foldhash::fast::FixedState>,
    /// The same of the id that was asked for last: one command asks several times.
    latest: Cell<Option<(u32, usize)>>,
    /// How many have marks.
    marked: usize,
    /// Bytes of their texts.
    bytes: usize,
    /// The one behind whose cursor the rows are that FOUND_ROWS() counts; 0 for none.
    behind: u32,
}

impl StatementList {
    fn place(&self, id: u32) -> Option<usize> {
        if let Some((latest, place)) = self.latest.get()
            && latest == id
        {
            return Some(place);
        }
        let place = *self.by_id.get(&id)?;
        self.latest.set(Some((id, place)));
        Some(place)
    }
}

/// MariaDB: "the statement prepared last".
pub(super) const LAST_PREPARED: u32 = u32::MAX;

impl Statements {
    /// Adds a statement; returns the client's id.
    pub(super) fn insert(&mut self, statement: ClientStatement) -> u32 {
        self.last = self.last.wrapping_add(1).max(1);
        self.remove(self.last);
        self.put(self.last, statement);
        self.is_latest = true;
        self.last
    }

    fn put(&mut self, id: u32, statement: ClientStatement) {
        let held = self.held.get_or_insert_default();
        held.bytes += statement.bytes();
        held.marked += usize::from(statement.is_bound());
        held.by_id.insert(id, held.all.insert(statement));
    }

    /// What another process needs of them.
    pub(super) fn record(&self) -> StatementsRecord {
        let Self { held, last, is_latest } = self;
        let (each, behind) = match held.as_deref() {
            None => (Vec::new(), 0),
            Some(StatementList { all, by_id, latest: _, marked: _, bytes: _, behind }) => {
                let record = |(id, place): (&u32, &usize)| Some(all.get(*place)?.record(*id));
                (by_id.iter().filter_map(record).collect(), *behind)
            }
        };
        StatementsRecord { each, last: *last, is_latest: *is_latest, behind }
    }

    /// A PREPARE began: nothing is the one prepared last until it has succeeded.
    pub(super) fn forget_latest(&mut self) {
        self.is_latest = false;
    }

    /// The id of [`LAST_PREPARED`]; 0 for none.
    pub(super) fn last_prepared(&self) -> u32 {
        if self.is_latest { self.last } else { 0 }
    }

    /// The statement with this id.
    pub(super) fn get(&self, id: u32) -> Option<&ClientStatement> {
        let held = self.held.as_deref()?;
        held.all.get(held.place(id)?)
    }

    /// The statement with this id, to change it.
    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut ClientStatement> {
        let held = self.held.as_deref_mut()?;
        held.all.get_mut(held.place(id)?)
    }

    /// Changes the marks of the statement with this id.
    pub(super) fn mark<T>(&mut self, id: u32, change: impl FnOnce(&mut Marks) -> T) -> Option<T> {
        let held = self.held.as_deref_mut()?;
        let statement = held.all.get_mut(held.place(id)?)?;
        held.marked -= usize::from(statement.is_bound());
        let answer = change(&mut statement.marks);
        held.marked += usize::from(statement.is_bound());
        Some(answer)
    }

    /// FOUND_ROWS() counts the rows behind this one's cursor from now on; 0: behind none.
    pub(super) fn count_behind(&mut self, id: u32) {
        if let Some(held) = self.held.as_deref_mut() {
            held.behind = id;
        }
    }

    /// The statement of which that is so, or 0.
    pub(super) fn counted_behind(&self) -> u32 {
        self.held.as_ref().map_or(0, |held| held.behind)
    }

    /// The cursors of a hostgroup are gone.
    pub(super) fn lose_cursors(&mut self, hostgroup: HostgroupId) {
        let Some(held) = self.held.as_deref_mut() else { return };
        for (_, statement) in held.all.iter_mut().filter(|(_, statement)| statement.marks.cursor == Some(hostgroup)) {
            (statement.marks.cursor, statement.apart) = (None, None);
            held.marked -= usize::from(!statement.is_bound());
        }
    }

    /// Forgets a statement.
    pub(super) fn remove(&mut self, id: u32) -> Option<ClientStatement> {
        let held = self.held.as_deref_mut()?;
        let gone = held.all.try_remove(held.by_id.remove(&id)?)?;
        held.bytes -= gone.bytes();
        held.marked -= usize::from(gone.is_bound());
        held.latest.set(None);
        if held.by_id.is_empty() {
            self.clear();
        }
        Some(gone)
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.held = None;
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.held.as_ref().map_or(0, |held| held.all.len())
    }

    /// Bytes of their texts.
    pub(super) fn bytes(&self) -> usize {
        self.held.as_ref().map_or(0, |held| held.bytes)
    }

    /// Is a cursor of this statement open?
    pub(super) fn has_cursor(&self, id: u32) -> bool {
        self.get(id).is_some_and(|statement| statement.marks.cursor.is_some())
    }

    /// Is a cursor open in a hostgroup?
    pub(super) fn any_cursor(&self, hostgroup: HostgroupId) -> bool {
        self.any_marked(|marks| marks.cursor == Some(hostgroup))
    }

    /// Has any statement long data waiting?
    pub(super) fn any_long_data(&self) -> bool {
        self.any_marked(|marks| marks.long_data)
    }

    fn any_marked(&self, is_so: impl Fn(Marks) -> bool) -> bool {
        let marked = self.held.as_ref().filter(|held| held.marked > 0);
        marked.is_some_and(|held| held.all.iter().any(|(_, statement)| is_so(statement.marks)))
    }

    /// The statement that the client means by this id: on MySQL that very one.
    pub(super) fn meant_statement(&self, at: &Backends, id: u32) -> u32 {
        match id {
            LAST_PREPARED if !at.worker.shared.serves_mysql() => self.last_prepared(),
            id => id,
        }
    }

    /// The statement a COM_STMT_ command names.
    pub(super) fn named_statement(&self, at: &Backends, client: &Frontend, command: Incoming) -> Option<u32> {
        let id = self.meant_statement(at, stmt_id(client.payload(command)).ok()?);
        self.get(id).map(|_| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use session_state::statement_key::Meaning;
    use sql::LexMode;

    fn statement(text: &str) -> ClientStatement {
        let meaning = Meaning { schema: None, mode: b""[..].into(), user_variables: None, text: text.as_bytes().into(), types: None };
        let key = Arc::new(StatementKey::from(meaning));
        ClientStatement {
            on_backend: Arc::clone(&key),
            key,
            analysis: sql::analyze(text.as_bytes(), LexMode::default()),
            lex: LexMode::default(),
            original: None,
            params: 0,
            types: Vec::new(),
            settled_types: None,
            fact: None,
            marks: Marks::default(),
            apart: None,
            failed: None,
            parent: None,
            holder: None,
        }
    }

    #[test]
    fn statements_are_found_and_their_marks_counted() {
        let mut statements = Statements::default();
        let ids: Vec<u32> = (0..4).map(|n| statements.insert(statement(&format!("SELECT {n}")))).collect();
        assert_eq!((ids.as_slice(), statements.bytes(), statements.last_prepared()), (&[1, 2, 3, 4][..], 32, 4));
        let text = |statements: &Statements, id| statements.get(id).map(|s| String::from_utf8(s.key.text.to_vec()).unwrap());
        for id in [1, 1, 3, 2, 2, 1] {
            assert_eq!(text(&statements, id), Some(format!("SELECT {}", id - 1)));
        }
        let here = HostgroupId(1);
        for _ in 0..2 {
            statements.mark(2, |marks| marks.cursor = Some(here));
            statements.mark(3, |marks| marks.long_data = true);
        }
        assert!(statements.any_cursor(here) && !statements.any_cursor(HostgroupId(2)) && statements.any_long_data());
        statements.mark(3, std::mem::take);
        assert!(!statements.any_long_data() && statements.any_cursor(here));
        statements.remove(2);
        assert!(!statements.any_cursor(here) && statements.get(2).is_none() && statements.mark(2, |_| ()).is_none());
        statements.mark(1, |marks| marks.cursor = Some(here));
        statements.lose_cursors(HostgroupId(2));
        assert!(statements.any_cursor(here));
        statements.lose_cursors(here);
        assert!(!statements.any_cursor(here) && statements.mark(1, std::mem::take).is_some_and(Marks::is_none));
        // Its place is another's now.
        let next = statements.insert(statement("DO 1"));
        assert_eq!((next, text(&statements, 2), text(&statements, 5)), (5, None, Some("DO 1".into())));
        statements.forget_latest();
        assert_eq!((statements.len(), statements.last_prepared()), (4, 0));
        for id in [1, 3, 4, 5] {
            assert!(statements.remove(id).is_some());
        }
        assert_eq!((statements.len(), statements.bytes(), statements.insert(statement("DO 2"))), (0, 0, 6));
    }
}
