#![allow(clippy::unwrap_used)]

use super::*;
use wire::charset::Flavor::{MariaDb, MySql};

fn text(text: &str) -> Text {
    text.as_bytes().into()
}

fn variables(all: &[(&str, &str)]) -> Variables {
    let mut variables = Variables::default();
    all.iter().for_each(|(name, value)| variables.set(name, Some(value.as_bytes())));
    variables
}

/// A connection that a session has used in every way.
fn used() -> Held {
    let mut held = Held::logged_in(StatusFlags::AUTOCOMMIT);
    held.began_tracking(Tracking::Ours);
    held.named_itself(Some("member".into()));
    held.was_set("SET @a=1", &State { variables: variables(&[("time_zone", "UTC")]), ..State::default() });
    held.user_variable_changed("a", "1");
    held.entered(Some(text("s")));
    held.refused(&text("gone"));
    held.asked_for_gtids();
    held.has_insert_id(7);
    held.failed();
    held.ran_unseen();
    held.ran_lasting();
    held
}

#[test]
fn a_fresh_connection_has_nothing_of_anybody() {
    let held = Held::logged_in(StatusFlags::AUTOCOMMIT);
    assert_eq!((held.state(), held.status(), held.last_insert_id()), (&State::default(), StatusFlags::AUTOCOMMIT, Some(0)));
    assert!(!held.has_warnings() && !held.must_reset() && !held.outlives_reset() && !held.tells_gtids() && !held.tracks());
    assert!(held.member().is_none() && !held.has_refused(&text("s")));
}

#[test]
fn a_reset_leaves_the_schema_and_a_login_does_not() {
    let (mut reset, mut fresh) = (used(), used());
    reset.was_reset();
    fresh.logged_in_again();
    assert_eq!((reset.state().schema.as_ref(), fresh.state().schema.as_ref()), (Some(&text("s")), None));
    for name in CHARSETS.iter().chain(&[SCHEMA_COLLATION]) {
        assert_eq!(reset.state().variables.get(name).map(|value| &**value), Some(UNKNOWN), "{name} is set before the next statement");
    }
    assert!(reset.state().variables.get("time_zone").is_none() && fresh.state().variables.is_empty());
    for held in [reset, fresh] {
        assert!(held.state().user_variables.is_empty() && held.last_insert_id() == Some(0));
        assert!(!held.has_warnings() && !held.must_reset() && !held.tells_gtids());
        assert!(held.outlives_reset() && held.tracks(), "a reset takes neither back");
        assert_eq!(held.member().map(|member| &**member), Some("member"), "it is the same server");
    }
    let mut without = Held::logged_in(StatusFlags::AUTOCOMMIT);
    without.was_reset();
    assert!(without.state().variables.get(SCHEMA_COLLATION).is_none(), "there is no schema to enter again");
}

#[test]
fn a_reply_decides_whether_there_are_warnings() {
    let (good, failed) = (ReplyFacts::default(), ReplyFacts { error: Some(1062), ..ReplyFacts::default() });
    // Those of an earlier statement of the text may still stand.
    let warned = ReplyFacts { warned: true, ..ReplyFacts::default() };
    for (flavor, before, reply, expected) in [
        (MySql, false, &good, false),
        (MySql, false, &failed, true),
        (MySql, false, &warned, true),
        (MySql, true, &good, false),
        (MariaDb, false, &good, false),
        (MariaDb, false, &failed, true),
        (MariaDb, false, &warned, true),
        // The statement may have read no table.
        (MariaDb, true, &good, true),
    ] {
        let mut held = Held::logged_in(StatusFlags::AUTOCOMMIT);
        if before {
            held.failed();
        }
        held.answered(reply, flavor);
        assert_eq!(held.has_warnings(), expected, "{flavor:?}, {before} before, {:?}", (reply.error, reply.warned));
    }
}

#[test]
fn warnings_of_the_proxys_own_statements_stand_until_they_are_cleared() {
    let mut held = Held::logged_in(StatusFlags::AUTOCOMMIT);
    held.succeeded(0);
    assert!(!held.has_warnings());
    held.succeeded(1);
    held.succeeded(0);
    assert!(held.has_warnings(), "MariaDB keeps them over statements without tables");
    held.warnings_cleared();
    assert!(!held.has_warnings());
}

#[test]
fn a_set_gives_the_variables_and_not_the_schema() {
    let mut held = used();
    let want =
        State { schema: Some(text("other")), variables: variables(&[("sql_mode", "ANSI")]), user_variables: variables(&[("b", "2")]) };
    held.was_set("SET @@session.sql_mode='ANSI'", &want);
    assert_eq!((&held.state().variables, &held.state().user_variables), (&want.variables, &want.user_variables));
    assert_eq!(held.state().schema, Some(text("s")));
    assert!(held.tells_gtids());
    held.was_set("SET @@session.session_track_gtids='OFF'", &want);
    assert!(!held.tells_gtids(), "the session's own setting is in force");
}

#[test]
fn a_schema_brings_its_character_set() {
    let mut held = used();
    held.variable_changed(SCHEMA_COLLATION, Some(b"latin1_bin"), &Variables::default());
    held.entered(Some(text("other")));
    assert!(held.state().variables.get(SCHEMA_COLLATION).is_none());
}

#[test]
fn one_copy_of_equal_variables_is_kept() {
    let mut held = used();
    let wanted = variables(&[("sql_mode", "ANSI"), ("time_zone", "UTC")]);
    held.variable_changed("sql_mode", Some(b"ANSI"), &wanted);
    assert!(std::ptr::eq(held.state().variables.entries(), wanted.entries()));
    held.variable_changed("time_zone", None, &wanted);
    assert_eq!(held.state().variables, wanted, "the session's variables have the value already");
}

#[test]
fn who_set_the_tracker_decides_whether_gtids_are_reported() {
    for (tracking, sets_gtids, expected) in
        [(Tracking::Clients, false, true), (Tracking::Clients, true, false), (Tracking::Ours, false, false), (Tracking::Ours, true, false)]
    {
        let mut held = used();
        held.tracks_as(tracking, sets_gtids);
        assert_eq!((held.tracking(), held.tells_gtids()), (tracking, expected), "{tracking:?} {sets_gtids}");
    }
    let mut held = used();
    held.client_chose_gtids();
    assert!(!held.tells_gtids());
    held.client_chose_tracking();
    assert_eq!(held.tracking(), Tracking::Clients);
}

#[test]
fn an_insert_id_is_told_from_the_one_before() {
    let mut held = Held::logged_in(StatusFlags::AUTOCOMMIT);
    assert_eq!(held.has_insert_id(5), Some(0));
    held.insert_id_changed_unseen();
    assert_eq!(held.last_insert_id(), None);
    assert_eq!(held.has_insert_id(6), None, "whose it is has to be found out");
}

#[test]
fn only_the_schema_that_was_refused_last_counts() {
    let mut held = used();
    assert!(held.has_refused(&text("gone")) && !held.has_refused(&text("s")));
    held.refused(&text("s"));
    assert!(held.has_refused(&text("s")) && !held.has_refused(&text("gone")));
}
