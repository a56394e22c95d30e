#![allow(clippy::unwrap_used)]

use super::*;
use crate::session::bed::{Bed, error, ok, packet_of, result_of};
use session_state::insert_id::Word;
use session_state::pins::PinReason;
use session_state::question::KeptFact;
use session_state::views::SchemaTable;
use sql::Routine;
use std::fmt::Write as _;
use wire::charset::Flavor::{self, MariaDb, MySql};
use wire::reframe::ReplyFacts;
use wire::reply::ReplyKind;

/// What lives as long as the tests.
fn kept<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

/// Each question with its name, and the servers that may be asked it.
fn every() -> Vec<(&'static str, &'static [Flavor], Question<'static>)> {
    let (both, mysql, mariadb) = (&[MariaDb, MySql][..], &[MySql][..], &[MariaDb][..]);
    let gtid = "3e11fa47-71ca-11e1-9e33-c80aa9429562:7";
    let (expressions, names) = (kept(["@@session.sql_mode".to_owned()]), kept(["a".to_owned()]));
    let routine = kept(Routine { schema: Some("test".into()), name: "nothing".into(), is_procedure: true });
    let table = kept(SchemaTable { schema: "information_schema".into(), name: "TABLES".into() });
    let schema = kept(Text::from(&b"information_schema"[..]));
    let waits = "SELECT WAIT_FOR_EXECUTED_GTID_SET('3e11fa47-71ca-11e1-9e33-c80aa9429562:1',0.001)";
    let claim = "SELECT GTID_SUBSET('3e11fa47-71ca-11e1-9e33-c80aa9429562:1',@@GLOBAL.gtid_executed),@@GLOBAL.read_only";
    vec![
        ("warnings", both, Question::Warnings),
        ("insert id", both, Question::InsertId),
        ("insert id and found rows", both, Question::InsertIdAndFoundRows),
        ("row count", mariadb, Question::RowCount),
        ("values", both, Question::Values { expressions, as_bytes: true }),
        ("character sets", both, Question::Charsets),
        ("user variables", both, Question::UserVariables { names, max: 9 }),
        ("body", both, Question::Body(routine)),
        ("tables", both, Question::Tables(kept([table]))),
        ("server name", mysql, Question::ServerName(MySql)),
        ("server name", mariadb, Question::ServerName(MariaDb)),
        ("GTIDs", mysql, Question::Gtids(MySql)),
        ("GTIDs", mariadb, Question::Gtids(MariaDb)),
        ("is applied", mysql, Question::IsApplied(gtid)),
        ("wait", mysql, Question::Wait(waits)),
        ("wait", mariadb, Question::Wait("SELECT MASTER_GTID_WAIT('0-99-1',0.001)")),
        ("status", both, Question::Status),
        ("schema", both, Question::Enter(schema)),
        ("variables", both, Question::Set("SET @@session.sql_mode=DEFAULT,@b=1")),
        ("given insert id", both, Question::GiveInsertId(4)),
        ("transaction", both, Question::Transaction("COMMIT AND NO CHAIN NO RELEASE")),
        ("own error", both, Question::Raise("SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO=9001, MESSAGE_TEXT='late'")),
        ("claim", mysql, Question::Claim(claim)),
    ]
}

/// Fails to compile when a question is new: it gets a line in [`every`].
fn is_listed(question: &Question<'_>) {
    match question {
        Question::Warnings | Question::InsertId | Question::InsertIdAndFoundRows | Question::RowCount | Question::Values { .. } => {}
        Question::Charsets | Question::UserVariables { .. } | Question::Body(_) | Question::Tables(_) | Question::ServerName(_) => {}
        Question::Gtids(_) | Question::IsApplied(_) | Question::Wait(_) | Question::Status | Question::Enter(_) | Question::Set(_) => {}
        Question::GiveInsertId(_) | Question::Transaction(_) | Question::Raise(_) | Question::Claim(_) => {}
    }
}

/// What is sent: a statement, or the name of another command.
fn sent(question: Question<'_>) -> String {
    match question {
        Question::Status => "Some(Ping)".to_owned(),
        Question::Enter(schema) => format!("InitDb {}", String::from_utf8_lossy(schema)),
        _ => question.text().into_owned(),
    }
}

/// `questions.tsv` is what real servers are asked, to see what they forget: the test `session_facts` of the crate `lab`.
#[test]
fn the_table_for_real_servers_has_every_question() {
    let mut table = String::from("flavors\tquestion\tsent\tclobbers\n");
    for (name, flavors, question) in every() {
        is_listed(&question);
        let flavors: Vec<&str> = flavors.iter().map(|flavor| if *flavor == MySql { "mysql" } else { "mariadb" }).collect();
        let clobbers: Vec<String> = question.clobbers().iter().map(|kept| format!("{kept:?}")).collect();
        let _ = writeln!(table, "{}\t{name}\t{}\t{}", flavors.join(","), sent(question), clobbers.join(","));
    }
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/session/questions.tsv");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &table).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap_or_default(), table, "UPDATE_DOCS=1 writes it");
}

#[tokio::test]
async fn what_a_question_clobbers_is_read_before_it_is_asked() {
    for (name, _, question) in every() {
        let loses = |kept| question.clobbers().contains(&kept);
        let counts = loses(KeptFact::FoundRows) || loses(KeptFact::InsertId);
        let warnings = loses(KeptFact::Warnings) || counts;
        let mut bed = knows_nothing();
        let last = if question.reply_kind() == ReplyKind::Simple { packet_of(&ok()) } else { result_of(&[&["1"]]) };
        let answers = [
            warnings.then(|| ("SHOW WARNINGS".to_owned(), result_of(&[&["Warning", "1292", "bad"]]))),
            counts.then(|| ("SELECT LAST_INSERT_ID(),FOUND_ROWS()".to_owned(), result_of(&[&["9", "8"]]))),
            Some((sent(question), last)),
        ];
        let (expected, answers): (Vec<String>, Vec<Vec<u8>>) = answers.into_iter().flatten().unzip();
        bed.answers(&answers);
        match question {
            Question::Enter(schema) => bed.door().enter(schema).await.unwrap(),
            _ => bed.door().ask(question).await.unwrap(),
        };
        assert_eq!(bed.sent(), expected, "{name}");
        let unread = bed.facts.unread();
        assert_eq!((unread.warnings, unread.found_rows), (!warnings, !counts), "{name}");
        assert_eq!(bed.facts.is_with_backend(sql::Fact::RowCount), !loses(KeptFact::RowCount) && !warnings, "{name}");
        assert_eq!(bed.facts.numbers().1, if counts { 8 } else { 4 }, "{name}");
    }
}

#[tokio::test]
async fn nothing_is_read_from_a_backend_that_ran_nothing_of_the_session() {
    let mut bed = knows_nothing();
    bed.at.backend.as_mut().unwrap().core.held.ran_for(99);
    bed.answers(&[result_of(&[&["7"]])]);
    bed.door().ask(Question::InsertId).await.unwrap();
    assert_eq!(bed.sent(), ["SELECT LAST_INSERT_ID()"]);
    assert!(bed.facts.unread().found_rows, "another session's number is none");
}

#[tokio::test]
async fn the_warnings_of_a_reply_that_is_not_noted_are_read_first() {
    for (reply, reads) in [(ReplyFacts { warnings: 1, warned: true, ..ok() }, true), (error(1062), true), (ok(), false)] {
        // The statement before left warnings that are gone by now.
        let mut bed = Bed::new("").on(MySql);
        bed.facts.set_numbers((0, 0, 1, 0));
        {
            let session = &mut *bed;
            session.at.backend.note_answered(session.handle.id, &mut session.facts, &reply)
        };
        let answers = [result_of(&[&["Warning", "1292", "bad"]]), result_of(&[&["7"]])];
        bed.answers(&answers[usize::from(!reads)..]);
        bed.door().ask(Question::InsertId).await.unwrap();
        assert_eq!(bed.sent().len(), 1 + usize::from(reads), "{reply:?}");
        let insert = bed.analysis("INSERT INTO t VALUES (1)");
        bed.remember(&insert, &reply, |_, _| true);
        assert!(!bed.facts.unread().warnings, "{reply:?}: they were read");
        assert_eq!(bed.facts.diagnostics().is_some(), reads, "{reply:?}");
    }
}

#[tokio::test]
async fn a_connection_that_fails_while_it_is_asked_is_of_no_use_any_more() {
    let mut bed = knows_nothing();
    bed.ends.truncate(1);
    assert!(bed.door().ask(Question::Set("SET @a=1")).await.is_err());
    assert!(bed.facts.unread().warnings, "they were not read");
}

#[tokio::test]
async fn what_an_answer_leaves_is_noted_at_the_door() {
    for (flavor, question) in [(MySql, Question::InsertId), (MariaDb, Question::RowCount), (MySql, Question::Gtids(MySql))] {
        let mut bed = Bed::new("").on(flavor);
        bed.answers(&[result_of(&[])]);
        bed.door().ask(question).await.unwrap();
        assert_eq!(bed.sent(), [question.text()]);
        assert!(!bed.at.backend.as_ref().unwrap().core.held.has_warnings());
        bed.answers(&[packet_of(&error(1227))]);
        assert!(bed.door().ask(question).await.unwrap().error.is_some(), "what the server refuses is an answer");
        assert!(bed.at.backend.as_ref().unwrap().core.held.has_warnings(), "the error stands in the diagnostics area");
    }
}

#[tokio::test]
async fn without_a_backend_there_is_no_answer() {
    let mut bed = Bed::new("").on(MySql);
    bed.at.backend = None;
    assert!(bed.door().ask(Question::InsertId).await.is_err());
}

/// A session of whose last statement only its backend knows anything.
fn knows_nothing() -> Bed {
    let mut bed = Bed::new("").on(MySql);
    bed.pin(&[PinReason::UserLock]);
    bed.facts.set_numbers((3, 4, 1, 0));
    bed.facts.leave_found_rows();
    bed.facts.leave_row_count();
    let calls = Word { id: 0, changes_unseen: true, inserts: false, failed: false, is_certain: false };
    bed.facts.insert_id.replied(calls, None);
    bed
}

/// Files that send commands to the backend at hand otherwise: what a client sent, what goes with it in one write, and a replay.
const SENDERS: [&str; 8] =
    ["assigned_gtid.rs", "assigned_gtid_run.rs", "infile.rs", "long_data.rs", "prepared.rs", "door.rs", "relay.rs", "replay.rs"];

#[test]
fn the_proxy_asks_by_the_door_alone() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/session");
    let mut seen = 0;
    for handle in std::fs::read_dir(folder).unwrap() {
        let path = handle.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !name.ends_with(".rs") || name.ends_with("tests.rs") || name == "bed.rs" {
            continue;
        }
        seen += 1;
        let text = std::fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for call in [".query(", ".query_all(", ".send_query("] {
            assert!(!code.contains(&format!("backend{call}")), "{name}: {call}");
        }
        let exchanges = code.contains("start_exchange(") || code.contains(".collect(ReplyKind::") || code.contains("backend.send(");
        assert!(!exchanges || SENDERS.contains(&&*name), "{name}");
    }
    assert!(seen > 50, "{seen}");
}
