//! Asks the shadow one statement, compares the answers, and asks both servers again where they differ.
//!
//! Second questions are asked of the original's hostgroup too, as many in a second as `rechecks_per_s` says. Between the two servers'
//! answers the shadow catches up by GTID, where it replicates. INVARIANT: each question runs in a read-only transaction
//! ([`Mirrored::is_guarded`]), so nothing is written on either server.

use super::{Listener, Repeated, Shadow, plans};
use crate::mirror::{self, Failure, Mirrored};
use crate::workers::worker::Worker;
use meter::digest::Digest;
use model::HostgroupId;
use model::snapshot::RehearsalIgnore;
use rehearsal::{Answer, Class, Compared, Doubt, Finding, Form, GaveUp, Opinion, Round, Run, Sample, Skip, Traits};
use session_state::collected::ServerError;
use session_state::gtid;
use sql::LexMode;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use wire::codec::Reader;
use wire::codes;

/// How long is waited before each round of second questions, ms.
const ROUNDS_MS: [u64; 2] = [100, 1_000];
/// How long (s) the shadow may take to catch up for a second question.
const CATCH_UP_S: u32 = 5;
/// Bytes of a statement that a sample shows.
const SHOWN: usize = 1024;

/// What a server answered, and its error's text.
pub(super) struct Heard {
    pub answer: Answer,
    pub time_us: u64,
    pub error: String,
}

/// Repeats a read and counts what came of it.
pub(super) async fn judge(shadow: &Shadow, worker: &Rc<Worker>, mut repeated: Repeated) {
    let run = &shadow.run;
    let ignores = &run.plan.ignores;
    let schema = repeated.copy.state.schema.as_deref().unwrap_or_default();
    let left_out = rehearsal::left_out(ignores, repeated.digest.hash, schema);
    let heard = match ask_shadow(worker, &mut repeated.copy, &left_out, run.plan.shadow).await {
        Ok(heard) => heard,
        Err(failure) => return note_failure(shadow, &repeated.copy, &failure),
    };
    if run.is_warming(worker.shared.clock.now_ms()) {
        run.warming.fetch_add(1, Ordering::Relaxed);
        return;
    }
    if heard.answer.is_refused_write() && heard.answer.error != repeated.answer.error {
        return run.skip(Skip::Writes);
    }
    if !repeated.answer.is_whole || !heard.answer.is_whole {
        return run.skip(Skip::TooLong);
    }
    let rows = repeated.answer.rows.max(heard.answer.rows);
    let traits = rehearsal::traits(repeated.copy.text(), repeated.copy.lex).with_rows(rows);
    let first = rehearsal::compare(&repeated.answer, &heard.answer, traits.is_ordered).after([repeated.time_us, heard.time_us]);
    let opinion = run.findings().tally.opinion(repeated.digest.hash, first, traits);
    let schema = repeated.copy.state.schema.as_deref().unwrap_or_default();
    let ignored = rehearsal::ignored(ignores, first, repeated.digest.hash, schema);
    let (found, is_rechecked) = match opinion {
        _ if ignored.is_some() => (Ok(first), false),
        Opinion::Take(Class::Unchecked) => (Err(Doubt::TimeLimit), false),
        Opinion::Take(class) => (Ok(class), false),
        // It was asked again already.
        Opinion::Ask if heard.answer.error == Some(codes::SERVER_LOST) => (Ok(first), true),
        Opinion::Ask => (recheck(shadow, worker, &mut repeated.copy, &left_out, traits).await, true),
    };
    let (class, doubt) = (found.unwrap_or(Class::Unchecked), found.err());
    let (copy, original) = (&repeated.copy, (&repeated.answer, repeated.time_us));
    let (user, schema) = (&*copy.lane.user.name, copy.state.schema.as_deref().unwrap_or_default());
    let ignored = if class == first { ignored } else { rehearsal::ignored(ignores, class, repeated.digest.hash, schema) };
    let found = Difference { digest: &repeated.digest, text: copy.text(), lex: copy.lex, user, schema, original, heard: &heard, doubt };
    record(run, &found, class, ignored, is_rechecked);
    let class = if ignored.is_some() { Class::Ignored } else { class };
    let times_us = [repeated.time_us, heard.time_us];
    plans::ask(run, worker, &mut repeated, class, times_us).await;
}

/// Asks the shadow, a second time if the connection is lost. If that gets no answer either, the read may have ended the server.
async fn ask_shadow(worker: &Rc<Worker>, copy: &mut Mirrored, left_out: &[Box<str>], hostgroup: HostgroupId) -> Result<Heard, Failure> {
    match ask(worker, copy, left_out, hostgroup).await {
        Err(Failure::Lost(_)) => {}
        other => return other,
    }
    tokio::time::sleep(Duration::from_millis(ROUNDS_MS[0])).await;
    match ask(worker, copy, left_out, hostgroup).await {
        Err(failure @ (Failure::Lost(_) | Failure::NoBackend(_))) => {
            Ok(Heard { answer: Answer::of_error(codes::SERVER_LOST), time_us: 0, error: failure.to_string() })
        }
        other => other,
    }
}

/// Asks in this hostgroup. What the shadow refuses of the session's state is an answer: the upgrade would break the statement.
async fn ask(worker: &Rc<Worker>, copy: &mut Mirrored, left_out: &[Box<str>], hostgroup: HostgroupId) -> Result<Heard, Failure> {
    let form = if copy.execution.is_some() { Form::Binary } else { Form::Text };
    let mut listener = Listener::new(form, worker.shared.clock, left_out.to_vec());
    copy.lane.hostgroup = hostgroup;
    let of_error = |code, error: String| Heard { answer: Answer::of_error(code), time_us: 0, error };
    match mirror::attempt(worker, copy, worker.shared.clock.now_us(), &mut listener).await {
        Ok(reply) => match (listener.finish(), reply.error) {
            (Some((answer, time_us)), error) => {
                Ok(Heard { answer, time_us, error: error.map(|error| text_of(&error)).unwrap_or_default() })
            }
            (None, Some(error)) => Ok(of_error(error.code, text_of(&error))),
            (None, None) => Err(Failure::Lost(std::io::Error::other("the answer cannot be read"))),
        },
        Err(Failure::State(error)) => Ok(of_error(error.code, format!("the session's state was refused: {}", text_of(&error)))),
        Err(Failure::TimedOut(ms)) => {
            let error = format!("still running after {ms} ms");
            Ok(Heard { answer: Answer::of_error(codes::QUERY_TIMEOUT), time_us: ms.saturating_mul(1000), error })
        }
        Err(failure) => Err(failure),
    }
}

pub(super) fn text_of(error: &ServerError) -> String {
    String::from_utf8_lossy(&error.message).into_owned()
}

/// A failure. That of the session's state has an error of the server.
pub(super) fn told(failure: &Failure, shows_literals: bool) -> String {
    match failure {
        Failure::State(error) => format!("the session's state was refused: {}", shown(error, shows_literals)),
        failure => failure.to_string(),
    }
}

/// An error; its text may quote values of the statement.
pub(super) fn shown(error: &ServerError, shows_literals: bool) -> String {
    let text = text_of(error);
    let text = if shows_literals { text } else { String::from_utf8_lossy(&sql::without_quoted(text.as_bytes())).into_owned() };
    format!("error {}: {text}", error.code)
}

fn note_failure(shadow: &Shadow, copy: &Mirrored, failure: &Failure) {
    let user = &copy.lane.user.name;
    if let Failure::Login(text) = failure {
        let mut findings = shadow.run.findings();
        findings.error = format!("user '{user}' cannot log in to the shadow: {text}");
        findings.refused.insert(user.clone(), text.clone());
        drop(findings);
        return shadow.give_up(GaveUp::Login);
    }
    shadow.run.findings().error = failure.to_string();
    shadow.run.skip(Skip::Failed);
}

/// Asks both servers again, twice each; a second time where a server did not repeat itself. Returns why that is not possible.
async fn recheck(shadow: &Shadow, worker: &Rc<Worker>, copy: &mut Mirrored, left_out: &[Box<str>], traits: Traits) -> Result<Class, Doubt> {
    let mut unclear = 0;
    for wait_ms in ROUNDS_MS {
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        let Some(_turn) = shadow.run.turn() else { continue };
        if !shadow.run.may_ask(worker.shared.clock.now_ms()) {
            return Err(Doubt::UsedUp);
        }
        let round = round(shadow, worker, copy, left_out).await?;
        match rehearsal::recheck(&round, traits.is_ordered) {
            Finding::Timing => return Ok(Class::Timing),
            Finding::Real(class) => return Ok(class.under(traits)),
            Finding::Unclear => unclear += 1,
        }
    }
    if unclear == ROUNDS_MS.len() { Ok(Class::Noise) } else { Err(Doubt::Busy) }
}

/// Asks each server twice, in turn. An error: a server could not be asked or refused a write, or the shadow lags.
async fn round(shadow: &Shadow, worker: &Rc<Worker>, copy: &mut Mirrored, left_out: &[Box<str>]) -> Result<Round, Doubt> {
    let (source, target) = (shadow.run.plan.source, shadow.run.plan.shadow);
    let no_answer = |_: Failure| Doubt::NoAnswer;
    let original = ask(worker, copy, left_out, source).await.map_err(no_answer)?.answer;
    if original.is_refused_write() {
        return Err(Doubt::NoAnswer);
    }
    if !catch_up(shadow, worker, copy).await {
        return Err(Doubt::Lag);
    }
    let repeated = ask(worker, copy, left_out, target).await.map_err(no_answer)?.answer;
    let original_again = ask(worker, copy, left_out, source).await.map_err(no_answer)?.answer;
    let repeated_again = ask(worker, copy, left_out, target).await.map_err(no_answer)?.answer;
    Ok(Round { original: [original, original_again], shadow: [repeated, repeated_again] })
}

/// Waits until the shadow has what the original has now. True as well where that cannot be known: the servers are of two families, or
/// the shadow does not replicate.
async fn catch_up(shadow: &Shadow, worker: &Rc<Worker>, copy: &mut Mirrored) -> bool {
    let is_mariadb = |version: &str| version.contains("MariaDB");
    let run = &shadow.run;
    let family = is_mariadb(&run.original.version);
    if family != is_mariadb(&run.shadow.version) {
        return true;
    }
    copy.lane.hostgroup = run.plan.source;
    let position = if family { "SELECT @@GLOBAL.gtid_current_pos" } else { "SELECT @@GLOBAL.gtid_executed" };
    let Some(gtids) = value(worker, copy, position).await else { return true };
    let gtids: String = gtids.split_whitespace().collect();
    if !gtid::is_set(&gtids) {
        return true;
    }
    copy.lane.hostgroup = run.plan.shadow;
    let wait = if family {
        format!("SELECT IF(@@GLOBAL.gtid_slave_pos='',0,MASTER_GTID_WAIT('{gtids}',{CATCH_UP_S}))")
    } else {
        // Servers write a set in lines.
        let is_stranger = format!("REPLACE(GTID_SUBTRACT('{gtids}',@@GLOBAL.gtid_executed),CHAR(10),'')='{gtids}'");
        format!("SELECT IF({is_stranger},0,WAIT_FOR_EXECUTED_GTID_SET('{gtids}',{CATCH_UP_S}))")
    };
    value(worker, copy, &wait).await.is_none_or(|answer| answer == "0")
}

/// The first value of the answer; None for an error or NULL.
async fn value(worker: &Rc<Worker>, copy: &Mirrored, sql: &str) -> Option<String> {
    let reply = mirror::ask(worker, copy, sql).await.ok()?;
    let row = reply.rows.first().filter(|_| reply.error.is_none())?;
    let value = Reader::new(row).lenenc_bytes().ok()?;
    String::from_utf8(value.to_vec()).ok()
}

/// A statement with both answers.
pub(super) struct Difference<'a> {
    pub digest: &'a Digest,
    pub text: &'a [u8],
    pub lex: LexMode,
    pub user: &'a str,
    pub schema: &'a [u8],
    /// The original's answer, and how long its server took, us.
    pub original: (&'a Answer, u64),
    pub heard: &'a Heard,
    /// Why it is unchecked, if it is.
    pub doubt: Option<Doubt>,
}

/// Counts a comparison that this row ignores, if there is one; and keeps a sample where one is wanted. After the end nothing counts.
pub(super) fn record(run: &Run, found: &Difference<'_>, class: Class, ignored: Option<&RehearsalIgnore>, is_rechecked: bool) {
    let times_us = [found.original.1, found.heard.time_us];
    let digest = found.digest;
    let mut findings = run.findings();
    if findings.is_closed() {
        return;
    }
    findings.tally.add(&Compared { digest: digest.hash, text: &digest.text, class, ignored, is_rechecked, times_us });
    if let Some(doubt) = found.doubt {
        findings.tally.note_doubt(digest.hash, doubt);
    }
    if ignored.is_none() && class == Class::Columns {
        findings.tally.note_columns(digest.hash, found.original.0.columns.differ(&found.heard.answer.columns));
    }
    if ignored.is_none() && findings.tally.wants_sample(digest.hash, class, run.plan.samples) {
        let sample = sample(run, found, class);
        findings.tally.keep(sample);
    }
}

fn sample(run: &Run, found: &Difference<'_>, class: Class) -> Sample {
    let (shows, original, heard) = (run.plan.shows_literals, found.original.0, found.heard);
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes.get(..SHOWN).unwrap_or(bytes)).into_owned();
    let shows_text = shows && !sql::carries_password(found.text, found.lex);
    let error = if shows { heard.error.clone() } else { lossy(&sql::without_quoted(heard.error.as_bytes())) };
    let columns = original.columns.differences(&heard.answer.columns);
    let mut of_shadow = described(&heard.answer);
    if !error.is_empty() {
        of_shadow += &format!(": {error}");
    }
    if heard.answer.error.is_none() && original.error.is_none() && !columns.is_empty() {
        of_shadow += &format!("; other columns: {}", columns.join(", "));
    }
    Sample {
        digest: found.digest.hash,
        class,
        seen_at: crate::workers::clock::unix_us() / 1_000_000,
        user: found.user.to_owned(),
        schema: lossy(found.schema),
        text: lossy(if shows_text { found.text } else { &found.digest.text }),
        original: described(original),
        shadow: of_shadow,
    }
}

/// An answer in words, without any of its values.
fn described(answer: &Answer) -> String {
    match answer.error {
        Some(code) => format!("error {code}"),
        None if answer.columns.count > 0 => format!("{} rows, {} columns, {} warnings", answer.rows, answer.columns.count, answer.warnings),
        None => format!("{} rows changed, insert id {}, {} warnings", answer.affected, answer.insert_id, answer.warnings),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_state_shows_no_literals() {
        let message = b"Variable 'sql_mode' can't be set to the value of 'secret'".to_vec();
        let failure = Failure::State(ServerError { code: 1231, sqlstate: *b"42000", message });
        let hidden = told(&failure, false);
        assert!(hidden.starts_with("the session's state was refused: error 1231: ") && !hidden.contains("secret"), "{hidden}");
        assert!(told(&failure, true).contains("'secret'"));
        assert_eq!(told(&Failure::TimedOut(5000), false), "still running after 5000 ms");
    }
}
