//! What a captured text is, for a replay: whether it only reads, whether it may change data, and whether answers can be compared.

use super::session::autocommit_of;
use capture::{Command, Turn, What};
use rehearsal::Traits;
use routing::{SessionFacts, Side, Statement, side};
use sql::{Analysis, DigestOptions, Facts, Kind, LexMode, Lexer, TokenKind};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Facts of a SELECT that may change data, or takes locks.
const MAY_CHANGE: Facts = Facts::LOCKING_READ
    .union(Facts::GET_LOCK)
    .union(Facts::RELEASE_LOCK)
    .union(Facts::INTO_FILE)
    .union(Facts::MULTI)
    .union(Facts::UNKNOWN_CODE);

/// Texts that are remembered.
const MAX_KNOWN: usize = 20_000;
/// Longest text that is remembered, and longest digest text that is kept, bytes.
const MAX_TEXT: usize = 4096;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    /// Kind and facts.
    pub analysis: Analysis,
    /// What its text says of its answer.
    pub traits: Traits,
    /// The digest's hash, as tables show it.
    pub digest: u64,
    /// The digest's text.
    pub text: Box<[u8]>,
    /// It certainly reads only.
    pub is_read: bool,
    /// It may change data, or end a transaction that has.
    pub is_write: bool,
    /// A replay of reads sends it too: it sets up the session, or begins or ends a transaction.
    pub is_state: bool,
}

/// Texts that were read.
#[derive(Default)]
pub(crate) struct Known(Mutex<HashMap<Box<[u8]>, Arc<Said>>>);

impl Known {
    /// Reads a text, or remembers it.
    pub(crate) fn read(&self, text: &[u8]) -> Arc<Said> {
        if text.len() > MAX_TEXT {
            return Arc::new(Said::of(text));
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(said) = known.get(text) {
            return Arc::clone(said);
        }
        drop(known);
        let said = Arc::new(Said::of(text));
        known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(text.into(), Arc::clone(&said));
        said
    }
}

/// Follows over the records of a file which statement each session has prepared, and whether it has a transaction open.
#[derive(Default)]
pub(crate) struct Follower {
    prepared: HashMap<(u64, u32), Arc<Said>>,
    open: HashMap<u64, OpenedBy>,
}

/// What keeps a session's transaction open.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OpenedBy {
    Begin,
    /// autocommit is off.
    Autocommit,
}

impl Follower {
    /// What the statement of a command is; None for a command that is no statement. It is a write where it commits what is open.
    pub(crate) fn said(&mut self, command: &Command<'_>, known: &Known) -> Option<Arc<Said>> {
        let session = command.session;
        match &command.what {
            What::Query(text) => {
                let said = known.read(text);
                let commits = self.commits(command, &said, autocommit_of_set(&said, text));
                Some(if commits { Arc::new(Said { is_write: true, ..Said::clone(&said) }) } else { said })
            }
            What::Prepare { statement, text } => {
                let said = known.read(text);
                self.prepared.insert((session, *statement), Arc::clone(&said));
                Some(said)
            }
            What::Execute { statement, .. } => self.prepared.get(&(session, *statement)).cloned(),
            What::Withheld { digest, .. } => Some(known.read(digest)),
            What::Reset(_) | What::ChangeUser { .. } => {
                self.open.remove(&session);
                None
            }
            _ => None,
        }
    }

    /// Whether a text commits what its session has open, as far as texts show that. `is_on`: what it sets autocommit to.
    fn commits(&mut self, command: &Command<'_>, said: &Said, is_on: Option<bool>) -> bool {
        let (session, open) = (command.session, self.open.get(&command.session).copied());
        if command.reply.as_ref().is_some_and(|reply| reply.error.is_some()) {
            return false;
        }
        match (said.analysis.kind, is_on) {
            (Kind::Begin, _) => {
                self.open.entry(session).or_insert(OpenedBy::Begin);
                open.is_some()
            }
            (Kind::Set, Some(true)) if open == Some(OpenedBy::Autocommit) => self.open.remove(&session).is_some(),
            (Kind::Set, Some(false)) => {
                self.open.insert(session, OpenedBy::Autocommit);
                false
            }
            (Kind::Commit | Kind::Rollback | Kind::Ddl, _) if open == Some(OpenedBy::Begin) => {
                self.open.remove(&session);
                false
            }
            _ => false,
        }
    }

    /// The session is over.
    pub(crate) fn forget(&mut self, session: u64) {
        self.prepared.retain(|(of, _), _| *of != session);
        self.open.remove(&session);
    }
}

fn autocommit_of_set(said: &Said, text: &[u8]) -> Option<bool> {
    if said.analysis.kind == Kind::Set { autocommit_of(text) } else { None }
}

/// The turn of a command among writes, if it is one. A PREPARE writes nothing.
pub(crate) fn turn_of(command: &Command<'_>, said: Option<&Said>) -> Option<Turn> {
    let is_run = matches!(command.what, What::Query(_) | What::Execute { .. });
    let said = said.filter(|said| is_run && said.is_write)?;
    Some(match said.analysis.kind {
        Kind::Commit | Kind::Rollback => Turn::of_release(command.timing.after),
        // Writes only where they commit what is open.
        Kind::Begin if !said.analysis.facts.contains(Facts::MULTI) => Turn::of_release(command.timing.after),
        Kind::Set if said.is_state => Turn::of_release(command.timing.after),
        _ => Turn::of_write(command.timing.seq),
    })
}

impl Said {
    fn of(text: &[u8]) -> Self {
        let lex = LexMode::default();
        let analysis = sql::analyze(text, lex);
        let statement = Statement { text, mode: lex, analysis };
        let is_read = analysis.kind == Kind::Select && side(&statement, &SessionFacts::default(), &[]) == Side::Reader;
        let is_state = is_state(text, &analysis);
        let reads_only = matches!(analysis.kind, Kind::Show | Kind::ShowWarnings | Kind::ShowErrors | Kind::Explain | Kind::Empty);
        let begins = matches!(analysis.kind, Kind::Begin | Kind::Savepoint | Kind::Use | Kind::SetTransaction);
        let sets = analysis.kind == Kind::Set && is_state;
        let selects = analysis.kind == Kind::Select && !analysis.facts.intersects(MAY_CHANGE);
        let mut traits = rehearsal::traits(text, lex);
        if reads_only || analysis.facts.contains(Facts::VARIABLES) || names_variable(text) {
            traits.noise.get_or_insert("it shows the server's own state");
        }
        let digested = sql::digest(text, &DigestOptions { max_query_length: MAX_TEXT, ..DigestOptions::default() });
        Self {
            analysis,
            traits,
            digest: digested.hash,
            text: digested.text.into(),
            is_read,
            is_write: analysis.facts.contains(Facts::MULTI) || !is_read && !reads_only && !begins && !sets && !selects,
            is_state,
        }
    }
}

/// Whether it sets up the session, or begins or ends a transaction, and cannot change what is read only.
fn is_state(text: &[u8], analysis: &Analysis) -> bool {
    if analysis.facts.contains(Facts::MULTI) {
        return false;
    }
    match analysis.kind {
        Kind::Use | Kind::Commit | Kind::Rollback | Kind::Savepoint | Kind::RollbackTo | Kind::ReleaseSavepoint => true,
        Kind::Begin | Kind::Set | Kind::SetTransaction => !names_write(text) && !analysis.facts.contains(Facts::UNKNOWN_FUNCTION),
        _ => false,
    }
}

/// READ WRITE, a variable of that, GLOBAL, PERSIST, PASSWORD, a subquery.
fn names_write(text: &[u8]) -> bool {
    const WORDS: [&str; 8] = ["write", "global", "persist", "persist_only", "password", "select", "transaction_read_only", "tx_read_only"];
    let mut lexer = Lexer::new(text, LexMode::default());
    loop {
        let token = lexer.token();
        let name = token.text(text);
        let name = name.rsplit(|byte| matches!(byte, b'@' | b'.')).next().unwrap_or(name);
        let name = match name.first() {
            Some(b'`' | b'"') => sql::unquote_name(name),
            _ => name.into(),
        };
        let is_scope = |scope: &[u8]| {
            token.text(text).get(2..).is_some_and(|rest| rest.len() >= scope.len() && rest[..scope.len()].eq_ignore_ascii_case(scope))
        };
        match token.kind {
            TokenKind::End => return false,
            TokenKind::Word | TokenKind::QuotedName | TokenKind::SystemVariable
                if WORDS.iter().any(|word| name.eq_ignore_ascii_case(word.as_bytes())) =>
            {
                return true;
            }
            TokenKind::SystemVariable if is_scope(b"global") || is_scope(b"persist") => return true,
            _ => {}
        }
    }
}

fn names_variable(text: &[u8]) -> bool {
    let mut lexer = Lexer::new(text, LexMode::default());
    loop {
        match lexer.token().kind {
            TokenKind::End => return false,
            TokenKind::SystemVariable => return true,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use capture::Timing;
    use rehearsal::Answer;

    #[test]
    fn reads_writes_and_state_are_told_apart() {
        for (text, is_read, is_write, is_state) in [
            ("SELECT a FROM t", true, false, false),
            ("SELECT a FROM t FOR UPDATE", false, true, false),
            ("SELECT LAST_INSERT_ID(), @@version", false, false, false),
            ("SELECT f(a) FROM t", false, true, false),
            ("UPDATE t SET a = 1", false, true, false),
            ("CREATE TABLE t (a INT)", false, true, false),
            ("CALL p()", false, true, false),
            ("BEGIN", false, false, true),
            ("START TRANSACTION READ WRITE", false, false, false),
            ("COMMIT", false, true, true),
            ("SET NAMES latin1", false, false, true),
            ("SET @a = 1", false, false, true),
            ("SET @a = (SELECT MAX(a) FROM t)", false, true, false),
            ("SET GLOBAL max_connections = 5", false, true, false),
            ("SET @@global.max_connections = 5", false, true, false),
            ("SET transaction_read_only = 0", false, true, false),
            ("SET `transaction_read_only` = 0", false, true, false),
            ("SET @@session.`tx_read_only` = 0", false, true, false),
            ("SET SESSION TRANSACTION READ WRITE", false, true, false),
            ("SET SESSION TRANSACTION READ ONLY", false, false, true),
            ("USE shop", false, false, true),
            ("SHOW TABLES", false, false, false),
            ("SELECT 1; DELETE FROM t", false, true, false),
            ("BEGIN; DELETE FROM t", false, true, false),
            ("SHOW TABLES; DELETE FROM t", false, true, false),
        ] {
            let said = Said::of(text.as_bytes());
            assert_eq!((said.is_read, said.is_write, said.is_state), (is_read, is_write, is_state), "{text}");
        }
    }

    #[test]
    fn what_commits_an_open_transaction_has_the_turn_of_a_release() {
        let (mut follower, known) = (Follower::default(), Known::default());
        for (text, error, is_release) in [
            ("BEGIN", None, false),
            ("BEGIN", Some(1290), false),
            ("START TRANSACTION", None, true),
            ("COMMIT", None, true),
            ("BEGIN", None, false),
            ("ROLLBACK", None, true),
            ("SET autocommit=1", None, false),
            ("SET autocommit=0", None, false),
            ("COMMIT", None, true),
            ("SET autocommit=1", None, true),
            ("SET autocommit=1", None, false),
        ] {
            let reply = error.map(Answer::of_error);
            let command =
                Command { session: 1, timing: Timing { after: 5, seq: 9, ..Timing::default() }, what: What::Query(text.as_bytes()), reply };
            let said = follower.said(&command, &known);
            assert_eq!(turn_of(&command, said.as_deref()), is_release.then(|| Turn::of_release(5)), "{text}");
        }
    }

    #[test]
    fn what_is_the_servers_own_is_noise() {
        let noise = |text: &str| Said::of(text.as_bytes()).traits.noise.is_some();
        assert!(["SELECT @@version", "SHOW VARIABLES LIKE 'x'", "EXPLAIN SELECT 1", "SELECT UUID()"].map(noise).iter().all(|is| *is));
        assert!(!noise("SELECT a FROM t WHERE b = @c"));
    }

    #[test]
    fn a_text_is_read_once() {
        let known = Known::default();
        assert!(Arc::ptr_eq(&known.read(b"SELECT 1"), &known.read(b"SELECT 1")));
        assert_eq!(known.read(b"SELECT 1").digest, known.read(b"SELECT 2").digest);
    }
}
