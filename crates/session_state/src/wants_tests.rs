use super::*;
use crate::bed::{Table, at_once, rows};
use crate::charsets::Hidden;
use crate::door::{Asker, Door};
use crate::facts::SessionFacts;
use wire::flags::StatusFlags;

const PLAIN: StatusFlags = StatusFlags::AUTOCOMMIT;

fn value(wants: &Wants, name: &str) -> Option<String> {
    wants.state.variables.get(name).map(|value| String::from_utf8_lossy(value).into_owned())
}

#[test]
fn a_variable_that_was_set_is_wanted_and_had() {
    let (mut wants, mut at) = (Wants::default(), Table::new(&[]));
    wants.set_variable(&mut at, "character_set_server", Some(b"latin1"));
    wants.set_variable(&mut at, "wait_timeout", Some(b"30"));
    wants.set_variable(&mut at, "character_set_client", Some(b"gbk"));
    assert_eq!(at.idle_limit_ms, 30_000, "the session's own limit");
    assert!(wants.lex.multi_byte != sql::MultiByte::Plain, "texts are read in it");
    wants.set_variable(&mut at, "collation_server", Some(b"utf8mb4_bin"));
    assert_eq!(value(&wants, "character_set_server"), None, "the collation displaces it");
    assert!(at.held().is_some_and(|held| held.state().variables == wants.state.variables), "the connection has all of it");
    wants.enter_schema(&mut at, Some((*b"shop").into()));
    assert!(at.held().is_some_and(|held| held.state().schema == wants.state.schema));
    at.close_backend();
    wants.set_variable(&mut at, "time_zone", Some(b"UTC"));
    assert_eq!(value(&wants, "time_zone").as_deref(), Some("UTC"), "without a connection it is wanted all the same");
}

#[test]
fn character_sets_are_as_the_server_answers() {
    let answer = rows(&[&["utf8mb4", "latin1", "latin2", "utf8mb4", "latin2_bin"]], PLAIN);
    for (answers, hidden, expected) in [
        (vec![answer.clone()], Hidden::Names, (true, Some("latin1"), Some("latin2_bin"))),
        (vec![answer.clone()], Hidden::Of("latin1_bin"), (true, Some("latin1"), Some("latin1_bin"))),
        (vec![answer], Hidden::Alone, (true, Some("latin1"), None)),
        (vec![rows(&[], PLAIN)], Hidden::Names, (false, None, None)),
        (vec![], Hidden::Names, (false, None, None)),
    ] {
        let (mut wants, mut at, mut facts, mut status) = (Wants::default(), Table::new(&answers), SessionFacts::default(), PLAIN);
        let mut asker = Asker { at: &mut at, facts: &mut facts, status: &mut status };
        let is_known = at_once(wants.ask_for_charsets(&mut asker, &[hidden; 2]));
        let found = (value(&wants, "character_set_client"), value(&wants, crate::state::RESULTS_COLLATION));
        assert_eq!((is_known, found.0.as_deref(), found.1.as_deref()), expected, "{hidden:?}");
    }
}

#[test]
fn variables_are_asked_for_as_plain_bytes_where_results_may_be_in_any_character_set() {
    for (results, expected) in [
        ("utf8mb4", "SELECT @@session.autocommit,@@session.sql_mode"),
        ("utf16", "SELECT CAST(@@session.autocommit AS BINARY),CAST(@@session.sql_mode AS BINARY)"),
    ] {
        let (mut wants, mut facts, mut status) = (Wants::default(), SessionFacts::default(), PLAIN);
        let mut at = Table::new(&[rows(&[&["0", "ANSI"]], PLAIN)]);
        wants.state.variables.set("character_set_results", Some(results.as_bytes()));
        at.held_mut().iter_mut().for_each(|held| held.began_tracking(crate::held::Tracking::Ours));
        let names = ["autocommit", "sql_mode"].map(str::to_owned);
        let mut asker = Asker { at: &mut at, facts: &mut facts, status: &mut status };
        let told = at_once(wants.ask_for_variables(&mut asker, &names)).unwrap_or_default();
        let told: Vec<(&str, &[u8])> = told.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(told, [("autocommit", &b"OFF"[..]), ("sql_mode", b"ANSI")], "{results}");
        assert_eq!(at.asked, [expected], "{results}");
    }
}
