//! Makes copies of statements for [`mirror`]: decided here, with what the session knows, and run elsewhere.

use super::Session;
use super::command::Incoming;
use super::hand::AtHand;
use super::pipeline::{Form, Statement};
use super::route::{Router, RulesInput};
use super::statements::ClientStatement;
use crate::mirror::{self, MirrorWish, Mirrored, MirroredExecution};
use model::HostgroupId;
use routing::Route;
use session_state::class::{Class, LaneKey};
use session_state::state::{State, Text};
use sql::Analysis;
use std::sync::Arc;
use wire::command::Command;
use wire::flags::Capabilities;

const ATTRIBUTES: Capabilities = Capabilities::QUERY_ATTRIBUTES;

/// What is copied.
struct CopiedStatement<'a> {
    /// What follows the byte of COM_QUERY, and where in that the text begins.
    body: &'a [u8],
    start: usize,
    analysis: &'a Analysis,
    /// The schema in which names are looked up.
    schema: Option<&'a Text>,
    /// The execution with its types, where the text was prepared.
    execution: Option<MirroredExecution>,
}

impl CopiedStatement<'_> {
    fn text(&self) -> &[u8] {
        self.body.get(self.start..).unwrap_or_default()
    }
}

impl Session {
    /// Copies a statement that is about to run, if a rule or a comment wants it.
    pub(super) fn mirror_statement(&mut self, statement: &Statement) {
        let Some(wish) = self.hand.wish_for(&statement.analysis) else { return };
        match self.said(statement) {
            Some(Ok(said)) => {
                if let Some(copy) = self.router().copy_of(wish, said) {
                    let strand = self.beside.get_or_insert_default().strand.get_or_insert_default();
                    mirror::admit(&self.worker, strand, copy);
                }
            }
            Some(Err(why)) => mirror::drop_copy(&self.worker, why),
            None => {}
        }
    }

    /// A copy of a statement for another hostgroup, in the session's state as it is now; None where it cannot be made.
    pub(super) fn copy_for(&self, statement: &Statement, hostgroup: HostgroupId) -> Option<Mirrored> {
        let said = self.said(statement)?.ok()?;
        self.router().copy_of(MirrorWish { hostgroup: Some(hostgroup), flag: None }, said)
    }

    /// What a statement says, or why it cannot be copied. None where the client has no such prepared statement.
    fn said<'a>(&'a self, statement: &'a Statement) -> Option<Result<CopiedStatement<'a>, &'static str>> {
        match statement.form {
            Form::Text { start } => {
                let (body, schema) = (self.client.body(statement.command), self.wants.state.schema.as_ref());
                Some(Ok(CopiedStatement { body, start, analysis: &statement.analysis, schema, execution: None }))
            }
            Form::Execution { id, .. } | Form::Bulk { id } => {
                self.statements.get(id).map(|prepared| self.router().said_by(prepared, statement.command))
            }
        }
    }
}

impl Router<'_> {
    /// None where there is to be none.
    fn copy_of(&self, wish: MirrorWish, said: CopiedStatement<'_>) -> Option<Mirrored> {
        if said.text().len() + said.execution.as_ref().map_or(0, |execution| execution.payload.len()) >= mirror::MAX_TEXT {
            mirror::drop_copy(&self.at.worker, "the statement is too long");
            return None;
        }
        let route = self.route_of_copy(wish, &said)?;
        let hostgroup = route.destination_hostgroup.or(wish.hostgroup).unwrap_or(self.at.user.default_hostgroup);
        let (body, analysis) = match &route.rewritten {
            None => (said.body.to_vec(), *said.analysis),
            Some(text) => {
                let attributes = said.body.get(..said.start).unwrap_or_default();
                ([attributes, text].concat(), self.at.worker.analyze(text, self.wants.lex))
            }
        };
        let mut caps = self.client.caps;
        if said.execution.is_none() && caps.contains(ATTRIBUTES) && !self.at.worker.shared.hostgroup(hostgroup).has(ATTRIBUTES) {
            // A server without query attributes refuses this client's class. A text can do without them.
            caps.remove(ATTRIBUTES);
        }
        Some(Mirrored {
            body,
            start: said.start,
            execution: said.execution,
            analysis,
            lex: self.wants.lex,
            state: State { schema: said.schema.cloned(), ..state_of_copy(&self.wants.state) },
            lane: LaneKey { hostgroup, user: Arc::clone(&self.at.user), class: Class::of(caps) },
            collation: u8::try_from(self.client.collation).unwrap_or(0),
            chosen_in: None,
            timeout_ms: route.timeout_ms,
            client: self.client.ip(),
            is_guarded: false,
        })
    }

    /// What the rules say of the copy; None when it is not to run.
    fn route_of_copy(&self, wish: MirrorWish, said: &CopiedStatement<'_>) -> Option<Route> {
        let Some(flag) = wish.flag else { return Some(Route::default()) };
        let digest = self.at.worker.digest(said.text(), self.wants.lex, said.analysis);
        let asked = RulesInput { flag_in: flag, comment: None, schema: said.schema.map_or(&[][..], |schema| schema) };
        let route = self.ask_rules(&self.at.worker.in_force(), said.text(), said.analysis, &digest, asked);
        // A message has nobody to go to.
        (route.error_msg.is_none() && route.ok_msg.is_none()).then_some(route)
    }

    /// What an execution of a prepared statement says, or why it cannot be copied.
    fn said_by<'a>(&self, statement: &'a ClientStatement, command: Incoming) -> Result<CopiedStatement<'a>, &'static str> {
        let is_execution = command.byte == Command::StmtExecute as u8;
        if !is_execution || statement.marks.long_data {
            return Err("the statement has long data or rows of parameters");
        }
        if !self.client.reads_as_then(self.wants, &self.at.worker, &statement.key.mode) {
            return Err("the statement was prepared with other settings than it is executed with");
        }
        let payload = self.client.payload(command);
        let mut rewritten = Vec::with_capacity(payload.len() + statement.types.len() + 1);
        if statement.put_whole(payload, self.client.caps, &mut rewritten).is_err() {
            return Err("the execution cannot be read");
        }
        let execution = MirroredExecution { payload: rewritten, params: statement.params };
        let key = &statement.key;
        Ok(CopiedStatement {
            body: &key.text,
            start: 0,
            analysis: &statement.analysis,
            schema: key.schema.as_ref(),
            execution: Some(execution),
        })
    }
}

impl AtHand {
    fn wish_for(&self, analysis: &Analysis) -> Option<MirrorWish> {
        self.directions.mirror.filter(|_| mirror::is_copied(analysis))
    }
}

/// The session's state, but for its transactions: a copy is one of its own, and ends with its statement.
fn state_of_copy(state: &State) -> State {
    let mut state = state.clone();
    if state.variables.get("autocommit").is_some() {
        state.variables.set("autocommit", None);
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::bed::{Bed, OTHER, analysis};
    use wire::charset::Flavor;

    #[test]
    fn a_copy_has_the_sessions_state_and_commits_by_itself() {
        let mut state = State::default();
        state.variables.set("autocommit", Some(b"OFF"));
        state.variables.set("sql_mode", Some(b"ANSI"));
        let copy = state_of_copy(&state);
        assert_eq!(copy.variables.get("autocommit"), None);
        assert_eq!(copy.variables.get("sql_mode").map(|value| &**value), Some(&b"ANSI"[..]));
        assert!(state.variables.get("autocommit").is_some(), "the session keeps its own");
    }
    /// The hostgroup and the text of the copy of this statement; None where there is none.
    fn copied(bed: &Bed, text: &str, wish: MirrorWish) -> Option<(u32, String)> {
        let analysis = bed.analysis(text);
        let said = CopiedStatement {
            body: text.as_bytes(),
            start: 0,
            analysis: &analysis,
            schema: bed.wants.state.schema.as_ref(),
            execution: None,
        };
        let copy = bed.router().copy_of(wish, said)?;
        assert_eq!(copy.state.schema.as_deref(), Some(&b"shop"[..]), "names mean the same there");
        Some((copy.lane.hostgroup.0, String::from_utf8(copy.body).unwrap()))
    }

    #[tokio::test]
    async fn rules_for_copies_say_where_they_go_and_what_they_say() {
        let rules = r#"mysql_query_rules = (
            { rule_id=1, active=1, flagIN=7, match_pattern="old", replace_pattern="new", apply=1 },
            { rule_id=2, active=1, flagIN=7, match_digest="^UPDATE", destination_hostgroup=1, apply=1 },
            { rule_id=3, active=1, flagIN=7, match_digest="^DELETE", error_msg="none", apply=1 } )"#;
        let bed = Bed::new(rules);
        let plain = MirrorWish { hostgroup: Some(OTHER), flag: None };
        let asks = MirrorWish { hostgroup: Some(OTHER), flag: Some(7) };
        for (text, wish, expected) in [
            ("SELECT a FROM old", plain, Some((2, "SELECT a FROM old"))),
            ("SELECT a FROM old", asks, Some((2, "SELECT a FROM new"))),
            ("UPDATE t SET a = 1", asks, Some((1, "UPDATE t SET a = 1"))),
            // A message has nobody to go to.
            ("DELETE FROM t", asks, None),
            ("DELETE FROM t", plain, Some((2, "DELETE FROM t"))),
        ] {
            assert_eq!(copied(&bed, text, wish), expected.map(|(id, text)| (id, text.to_owned())), "{text}");
        }
        assert_eq!(copied(&bed, &format!("SELECT '{}'", "x".repeat(mirror::MAX_TEXT)), plain), None, "it is too long");
    }

    #[tokio::test]
    async fn texts_do_without_query_attributes_where_servers_lack_them() {
        let mut bed = Bed::new("");
        bed.client.caps.insert(ATTRIBUTES);
        let analysis = bed.analysis("SELECT 1");
        let class = |bed: &Bed, execution: Option<MirroredExecution>| {
            let said = CopiedStatement { body: b"\0\x01SELECT 1", start: 2, analysis: &analysis, schema: None, execution };
            let copy = bed.router().copy_of(MirrorWish { hostgroup: Some(OTHER), flag: None }, said).unwrap();
            copy.lane.class.capabilities()
        };
        let execution = || Some(MirroredExecution { payload: Vec::new(), params: 0 });
        assert!(class(&bed, None).contains(ATTRIBUTES), "nothing was heard of the server");
        let server = Arc::clone(&bed.worker.shared.hostgroup(OTHER).servers()[0]);
        bed.worker.shared.heard(&server, crate::bed::info(Flavor::MariaDb, "11.8.2-MariaDB"));
        assert!(!class(&bed, None).contains(ATTRIBUTES));
        assert!(class(&bed, execution()).contains(ATTRIBUTES), "its bytes have them");
    }

    #[test]
    fn what_is_about_the_session_is_not_copied() {
        let mut hand = AtHand::default();
        assert!(hand.wish_for(&analysis("SELECT 1")).is_none(), "nobody wants it");
        hand.directions.mirror = Some(MirrorWish { hostgroup: Some(OTHER), flag: None });
        for (text, expected) in [
            ("SELECT a FROM t", true),
            ("INSERT INTO t VALUES (1)", true),
            ("SET @a = 1", false),
            ("BEGIN", false),
            ("COMMIT", false),
            ("LOCK TABLES t READ", false),
            ("LOAD DATA LOCAL INFILE 'f' INTO TABLE t", false),
        ] {
            assert_eq!(hand.wish_for(&analysis(text)).is_some(), expected, "{text}");
        }
    }
}
