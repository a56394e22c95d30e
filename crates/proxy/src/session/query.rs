//! COM_QUERY: what is sent for a text, and what its reply says.

use super::Session;
use super::backends::Backends;
use super::command::Incoming;
use super::door::door;
use super::frontend::Frontend;
use super::hand::AtHand;
use super::pipeline::{Form, Statement};
use super::plan::Plan;
use super::route::{Router, packets_of};
use super::substituted::{patch, patches, several_kept, substituted};
use crate::backends::backend::put_command;
use crate::workers::worker::is_long;
use session_state::charsets;
use session_state::facts::{SessionFacts, leaves_out_rows};
use session_state::setting::teaches;
use session_state::tableless::reads_table;
use session_state::wants::Wants;
use session_state::words::contains;
use sql::{Analysis, Facts, Kind, LexMode, Offset};
use traces::Parent;
use wire::codec::put_lenenc_bytes;
use wire::command::Command;
use wire::flags::Capabilities;
use wire::packet::put_packet;
use wire::query::split_query;
use wire::reframe::{Patch, ReplyFacts};

impl Session {
    /// Notes what a text did, by its reply.
    pub(super) async fn note_text(&mut self, command: Incoming, start: usize, plan: &Plan, reply: &ReplyFacts) {
        let analysis = &plan.analysis;
        self.effects().note_effects(command, start, analysis, reply);
        if self.recovery.may_transcribe(&self.client, analysis.kind) {
            self.scribe().transcribe_text(command, plan, reply);
        }
        if analysis.facts.contains(Facts::MULTI) {
            let (warnings, found_rows) = several_kept(&self.facts, &self.at, &self.wants, self.client.sql_text(command, start));
            self.facts.several_keep(warnings, found_rows || self.client.is_refused_whole(analysis, reply));
        } else if self.facts.has_diagnostics() {
            self.facts.keep_warnings(self.facts.leaves_warnings(
                self.worker.shared.flavor(),
                analysis,
                self.client.sql_text(command, start),
            ));
        }
        self.statements.note_counts_of(&mut self.facts, analysis, reply);
        if leaves_out_rows(analysis, reply) {
            let offset = text_offset(self.client.sql_text(command, start), self.wants.lex);
            self.facts.skipped_rows(offset);
        }
        if self.recovery.lacks_first_insert_id(&self.at, &self.facts) {
            Box::pin(self.recovery.learn_first_insert_id(&mut door!(self))).await;
        }
        if teaches(analysis, reply) {
            let sql = self.client.sql_text(command, start).to_vec();
            if let Some(untold) = Box::pin(self.effects().learn_set(&sql, analysis, reply)).await {
                self.effects().remember_set(&sql, analysis, reply, &untold);
            }
        }
    }
}

/// Rows that a LIMIT leaves out at the front.
pub(super) fn text_offset(text: &[u8], lex: LexMode) -> Offset {
    // A long text would be read in one turn: the server is asked instead.
    if is_long(text) { Offset::Unclear } else { sql::offset(text, lex) }
}

impl Frontend {
    /// Does nothing in the text look like the id that came back?
    pub(super) fn text_insert_id_is_certain(&self, wants: &Wants, command: Incoming, start: usize, insert_id: u64) -> bool {
        sql::insert_id_is_certain(self.sql_text(command, start), wants.lex, insert_id)
    }
}

impl Frontend {
    /// Is the command a text that is read in turns ([`Self::read_long_text`])?
    pub(super) fn is_long_text(&self, kind: Command, command: Incoming) -> bool {
        kind == Command::Query && is_long(self.payload(command))
    }

    /// The command without its trace, and where its text begins.
    fn place_text(&mut self, at: &Backends, hand: &mut AtHand, wants: &Wants, command: Incoming) -> Option<(Incoming, usize)> {
        let start = if self.caps.contains(Capabilities::QUERY_ATTRIBUTES) {
            split_query(self.payload(command), self.caps).ok()?.sql.start - 1
        } else {
            0
        };
        let may_lift = Parent::may_be_in(self.sql_text(command, start));
        let command = if may_lift { self.lift_trace(at, hand, wants, command, start).0 } else { command };
        Some((command, start))
    }

    /// The statement of a COM_QUERY; None where the command is malformed.
    pub(super) fn read_text(&mut self, at: &Backends, hand: &mut AtHand, wants: &Wants, command: Incoming) -> Option<Statement> {
        let (command, start) = self.place_text(at, hand, wants, command)?;
        let analysis = at.worker.analyze(self.sql_text(command, start), wants.lex);
        Some(Statement { command, analysis, form: Form::Text { start } })
    }

    /// The same, while others are served.
    pub(super) async fn read_long_text(&mut self, at: &Backends, hand: &mut AtHand, wants: &Wants, command: Incoming) -> Option<Statement> {
        let (command, start) = self.place_text(at, hand, wants, command)?;
        let analysis = at.worker.analyze_in_turns(self.sql_text(command, start), wants.lex).await;
        Some(Statement { command, analysis, form: Form::Text { start } })
    }
}

impl Router<'_> {
    /// Puts what only the session knows into the statement: CONNECTION_ID(), FOUND_ROWS(), ROW_COUNT(), counts.
    fn substitute(&self, facts: &SessionFacts, command: Incoming, start: usize, plan: &mut Plan) {
        let Router { at, client, wants, .. } = self;
        let several = plan.analysis.facts.contains(Facts::MULTI);
        if !asks_for_facts(&plan.analysis) {
            return;
        }
        let sql = client.sql_text(command, start);
        if several {
            plan.patches = patches(facts, at, wants, sql, &plan.analysis);
            if !plan.analysis.facts.intersects(OWN) {
                return;
            }
        } else if let Some(patch) = patch(facts, at, wants, sql, plan.analysis.kind) {
            plan.patches = vec![Some(patch)];
            return;
        } else if sql::single_fact_select(sql, wants.lex).is_some() || !asks_now(plan.analysis.kind) {
            return;
        }
        let text = substituted(facts, at, wants, sql, &plan.analysis);
        let prefix = client.body(command).get(..start).unwrap_or_default();
        let mut out = Vec::with_capacity(text.len() + prefix.len() + 8);
        put_command(&mut out, Command::Query, &[prefix, &text].concat());
        plan.rewritten = Some(out);
    }

    /// What is sent for a text.
    pub(super) fn plan_text(&self, facts: &SessionFacts, command: Incoming, start: usize, plan: &mut Plan) {
        self.substitute(facts, command, start, plan);
        if command.rewritten && plan.rewritten.is_none() {
            plan.rewritten = Some(packets_of(self.client.payload(command)));
        }
    }
}

/// The row of a number as MariaDB writes it in a character set in which ASCII is not itself.
pub(super) fn wide_row(value: i64, charset: &[u8]) -> Patch {
    let digits = charsets::widened(&value.to_string(), charset);
    let (mut row, mut packets) = (Vec::with_capacity(digits.len() + 1), Vec::new());
    put_lenenc_bytes(&mut row, &digits);
    put_packet(&mut packets, &mut 0, &row);
    Patch::Rows { columns: 1, packets }
}

/// What the session knows better than its backend, where a statement asks for it by name.
const OWN: Facts = Facts::CONNECTION_ID.union(Facts::FOUND_ROWS).union(Facts::ROW_COUNT).union(Facts::DIAGNOSTICS);

/// Does the statement ask for what the session may know better than its backend?
pub(super) fn asks_for_facts(analysis: &Analysis) -> bool {
    analysis.facts.intersects(OWN) || shows_diagnostics(analysis.kind)
}

/// Does a statement of this kind ask for facts as it runs? Stored code asks later, of whatever session calls it.
pub(super) fn asks_now(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Select
            | Kind::Insert
            | Kind::Replace
            | Kind::Update
            | Kind::Delete
            | Kind::Set
            | Kind::SetStatement
            | Kind::Do
            | Kind::Call
            | Kind::Show
            | Kind::Explain
            | Kind::Kill
            | Kind::LoadData
            // CREATE TABLE ... SELECT.
            | Kind::Ddl
            | Kind::CreateTemporaryTable
    )
}

/// Do the values of a statement reach the client or a variable, and nothing else? Where tables are read or written the connection's id is the
/// server's: that is the one that its own tables know. KILL of the session's own id finds no thread, and ends no connection.
pub(super) fn is_answer(sql: &[u8], kind: Kind) -> bool {
    kind == Kind::Kill || matches!(kind, Kind::Select | Kind::Set) && !reads_table(sql)
}

/// Are its rows the diagnostics of the statement before, or their number?
pub(super) fn shows_diagnostics(kind: Kind) -> bool {
    matches!(kind, Kind::ShowWarnings | Kind::ShowErrors | Kind::ShowCountWarnings | Kind::ShowCountErrors)
}

/// Does a statement among others leave FOUND_ROWS() as it was? Alone it is judged by its reply.
pub(super) fn leaves_found_rows(analysis: &Analysis, sql: &[u8]) -> bool {
    let leaves = matches!(
        analysis.kind,
        Kind::ShowWarnings
            | Kind::ShowErrors
            | Kind::Insert
            | Kind::Replace
            | Kind::Update
            | Kind::Delete
            | Kind::Set
            | Kind::Use
            | Kind::Begin
            | Kind::Commit
            | Kind::Rollback
    );
    leaves && !analysis.facts.intersects(Facts::UNKNOWN_CODE) && !contains(sql, b"select")
}

#[cfg(test)]
mod tests {
    use super::*;
    use sql::LexMode;

    fn analysis(text: &str) -> Analysis {
        sql::analyze(text.as_bytes(), LexMode::default())
    }

    #[test]
    fn the_session_answers_for_its_connection_id_where_no_table_learns_it() {
        for (text, expected) in [
            ("SELECT CONNECTION_ID()", true),
            ("SET @a = CONNECTION_ID()", true),
            ("KILL CONNECTION_ID()", true),
            ("SELECT CONNECTION_ID() FROM t", false),
            ("INSERT INTO t VALUES (CONNECTION_ID())", false),
        ] {
            assert_eq!(is_answer(text.as_bytes(), analysis(text).kind), expected, "{text}");
        }
    }

    #[test]
    fn facts_are_asked_for_by_name_or_by_the_kind_of_statement() {
        for text in [
            "SELECT FOUND_ROWS()",
            "SELECT ROW_COUNT()",
            "SELECT CONNECTION_ID()",
            "SELECT @@warning_count",
            "SHOW WARNINGS",
            "SHOW COUNT(*) ERRORS",
        ] {
            assert!(asks_for_facts(&analysis(text)), "{text}");
        }
        for text in ["SELECT 1", "SELECT 'FOUND_ROWS()'", "SHOW TABLES", "INSERT INTO t VALUES (1)"] {
            assert!(!asks_for_facts(&analysis(text)), "{text}");
        }
    }

    #[test]
    fn what_is_only_prepared_or_hidden_in_a_name_asks_for_nothing_now() {
        for (text, expected) in [
            ("CREATE TABLE t SELECT FOUND_ROWS() a", true),
            ("CALL p(FOUND_ROWS())", true),
            ("DO ROW_COUNT()", true),
            ("EXECUTE s", false),
            ("PREPARE s FROM 'SELECT FOUND_ROWS()'", false),
        ] {
            assert_eq!(asks_now(analysis(text).kind), expected, "{text}");
        }
    }

    #[test]
    fn among_others_a_statement_without_a_query_leaves_found_rows_alone() {
        for (text, expected) in [
            ("INSERT INTO t VALUES (1)", true),
            ("SET @a = 1", true),
            ("COMMIT", true),
            ("SHOW WARNINGS", true),
            ("INSERT INTO t SELECT a FROM u", false),
            ("SET @a = (SELECT 1)", false),
            ("UPDATE t SET a = f()", false),
            ("SELECT 1", false),
            ("CALL p()", false),
        ] {
            assert_eq!(leaves_found_rows(&analysis(text), text.as_bytes()), expected, "{text}");
        }
    }
}

#[cfg(test)]
#[path = "query_tests.rs"]
mod query_tests;
