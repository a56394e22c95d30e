#![allow(clippy::unwrap_used)]

use super::*;
use crate::bed::{Table, at_once, rows};
use crate::insert_id::Word;
use wire::charset::Flavor;

const PLAIN: StatusFlags = StatusFlags::AUTOCOMMIT;

/// A session of whose last statement only its backend knows anything.
fn knows_nothing() -> SessionFacts {
    let mut facts = SessionFacts::default();
    facts.set_numbers((3, 4, 1, 0));
    facts.leave_found_rows();
    facts.leave_row_count();
    facts.insert_id.replied(Word { id: 0, changes_unseen: true, inserts: false, failed: false, is_certain: false }, None);
    facts
}

/// Asks at this door. Returns whether it was answered.
fn ask(at: &mut Table, facts: &mut SessionFacts, status: &mut StatusFlags, question: Question<'_>) -> bool {
    at_once(Asker { at, facts, status }.ask(question)).is_ok()
}

fn warning() -> Collected {
    rows(&[&["Warning", "1292", "bad"]], PLAIN)
}

#[test]
fn what_a_question_clobbers_is_read_before_it_is_asked() {
    let (warnings, counts) = ("SHOW WARNINGS", "SELECT LAST_INSERT_ID(),FOUND_ROWS()");
    for (question, rescues) in [
        (Question::Status, &[][..]),
        (Question::Set("SET @a=1"), &[warnings]),
        (Question::Transaction("COMMIT"), &[warnings]),
        (Question::GiveInsertId(4), &[warnings, counts]),
        (Question::RowCount, &[warnings, counts]),
        (Question::Gtids(Flavor::MySql), &[warnings, counts]),
    ] {
        let (mut facts, mut status) = (knows_nothing(), PLAIN);
        let mut at = Table::new(&[]);
        let answers = [(!rescues.is_empty()).then(warning), rescues.contains(&counts).then(|| rows(&[&["9", "8"]], PLAIN))];
        at.answers.extend(answers.into_iter().flatten().chain([rows(&[&["1"]], PLAIN)]));
        assert!(ask(&mut at, &mut facts, &mut status, question), "{}", question.text());
        assert_eq!(at.asked, [rescues, &[&*question.text()]].concat(), "{}", question.text());
        let unread = facts.unread();
        assert_eq!((unread.warnings, unread.found_rows), (rescues.is_empty(), !rescues.contains(&counts)), "{}", question.text());
        let loses_id = question.clobbers().contains(&KeptFact::InsertId);
        assert_eq!(facts.insert_id.known().is_some(), loses_id, "{}", question.text());
        assert!(!facts.is_with_backend(sql::Fact::RowCount), "each question clobbers it: {}", question.text());
    }
}

#[test]
fn several_questions_are_rescued_once() {
    let (mut facts, mut status) = (knows_nothing(), PLAIN);
    let mut at = Table::new(&[warning(), rows(&[], PLAIN), rows(&[], PLAIN)]);
    let questions = [Question::Set("SET @a=1"), Question::Set("SET @b=2")];
    let replies = at_once(Asker { at: &mut at, facts: &mut facts, status: &mut status }.ask_all(&questions)).unwrap();
    assert_eq!((replies.len(), &*at.asked), (2, &["SHOW WARNINGS", "SET @a=1", "SET @b=2"].map(str::to_owned)[..]));
}

#[test]
fn nothing_is_read_from_a_backend_that_ran_nothing_of_the_session() {
    let (mut facts, mut status) = (knows_nothing(), PLAIN);
    let mut at = Table { ran_last: false, ..Table::new(&[rows(&[&["7"]], PLAIN)]) };
    assert!(ask(&mut at, &mut facts, &mut status, Question::InsertId));
    assert_eq!(at.asked, ["SELECT LAST_INSERT_ID()"]);
    assert!(facts.unread().found_rows, "another session's number is none");
}

#[test]
fn a_question_is_not_asked_if_what_it_clobbers_cannot_be_read() {
    let (mut facts, mut status, mut at) = (knows_nothing(), PLAIN, Table::new(&[]));
    assert!(!ask(&mut at, &mut facts, &mut status, Question::Set("SET @a=1")));
    assert_eq!(at.asked, ["SHOW WARNINGS"]);
    assert!(facts.unread().warnings, "they were not read");
}

#[test]
fn an_answer_shows_the_transaction_that_an_error_left_open() {
    for (before, now, pins) in [
        (StatusFlags::default(), StatusFlags::IN_TRANS, &[PinReason::Transaction][..]),
        (StatusFlags::IN_TRANS, StatusFlags::default(), &[]),
    ] {
        let (mut facts, mut status) = (knows_nothing(), before);
        let mut at = Table::new(&[rows(&[], now), rows(&[], PLAIN)]);
        assert!(ask(&mut at, &mut facts, &mut status, Question::Set("SET @a=1")));
        assert_eq!((status, at.pins.set().iter().collect::<Vec<_>>()), (now, pins.to_vec()), "{before:?}");
    }
}

#[test]
fn a_backend_that_is_given_back_is_read_or_lost() {
    for (answers, handles_warnings, expected) in [
        (vec![warning(), rows(&[&["9", "8"]], PLAIN)], true, (true, 2, true)),
        // FOUND_ROWS() and the id are wanted without the warnings.
        (vec![rows(&[&["9", "8"]], PLAIN)], false, (true, 1, true)),
        (vec![], true, (false, 2, false)),
    ] {
        let (mut facts, mut status) = (knows_nothing(), PLAIN);
        let mut at = Table { handles_warnings, ..Table::new(&answers) };
        let is_read = at_once(Asker { at: &mut at, facts: &mut facts, status: &mut status }.read_or_lose());
        assert_eq!((is_read, at.asked.len(), at.held.is_some()), expected, "{handles_warnings}: {:?}", at.asked);
        assert!(!facts.unread().any(), "{handles_warnings}");
    }
}
