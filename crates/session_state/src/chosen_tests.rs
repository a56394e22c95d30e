use super::*;
use crate::bed::info;
use crate::held::Held;
use crate::state::{Diff, Variables, diff};
use sql::LexMode;
use wire::flags::StatusFlags;

/// A session whose login had this id, on the original that is of this version, after these SETs; each with the collation that the original
/// has given then.
fn session(original: &ServerInfo, id: u16, sets: &[(&str, &str)]) -> (Chosen, State) {
    let (mut chosen, mut state) = (Chosen::by_login(id), State::default());
    if let Some(collation) = original.login_collation(id) {
        state.variables.set_names(collation);
    }
    for (sql, collation) in sets {
        let assignments = sql::parse_set(sql.as_bytes(), LexMode::default()).unwrap_or_default();
        chosen.note(Decided::by(&assignments));
        let known = charset::by_name(collation).unwrap();
        if sql.contains("NAMES") {
            state.variables.set_names(known);
        } else {
            state.variables.set("character_set_connection", Some(known.charset.as_bytes()));
            state.variables.set("collation_connection", Some(known.name.as_bytes()));
        }
    }
    (chosen, state)
}

/// The SET that a shadow of this version gets for a session in such a state.
fn told(original: &ServerInfo, shadow: &ServerInfo, (chosen, mut state): (Chosen, State)) -> String {
    chosen.settle(Some(original), &mut state).leave_to(shadow, &mut state);
    match diff(&state, &State::default(), &Variables::default(), shadow) {
        Diff::Steps { set: Some(set), .. } => set,
        other => format!("{other:?}"),
    }
}

const NONE: &[(&str, &str)] = &[];
const GENERAL: &str = "utf8mb4_general_ci";
const PLAIN: &str = "SET NAMES 'utf8mb4'";
const RESOLVED: &str = "SET NAMES 'utf8mb4' COLLATE 'utf8mb4_general_ci'";

#[test]
fn a_shadow_chooses_what_the_client_left_to_the_server() {
    let (original, shadow) = (info(Flavor::MariaDb, "10.11.19-MariaDB"), info(Flavor::MariaDb, "11.8.6-MariaDB"));
    for (id, sets, expected) in [
        // By the login alone.
        (45, NONE, PLAIN),
        (46, &[], "SET NAMES 'utf8mb4' COLLATE 'utf8mb4_bin'"),
        (45, &[("SET NAMES utf8mb4", GENERAL)], PLAIN),
        (8, &[("SET NAMES utf8mb4", GENERAL)], PLAIN),
        (45, &[("SET NAMES utf8mb4 COLLATE utf8mb4_general_ci", GENERAL)], RESOLVED),
        (45, &[("SET NAMES utf8mb4 COLLATE utf8mb4_general_ci", GENERAL), ("SET NAMES utf8mb4", GENERAL)], PLAIN),
        (
            45,
            &[("SET NAMES utf8mb4", GENERAL), ("SET collation_connection = utf8mb4_general_ci", GENERAL)],
            "SET NAMES 'utf8mb4',@@session.collation_connection='utf8mb4_general_ci'",
        ),
        (
            45,
            &[("SET NAMES latin1", "latin1_swedish_ci"), ("SET character_set_connection = utf8mb4", GENERAL)],
            "SET NAMES 'latin1',@@session.character_set_connection='utf8mb4'",
        ),
        (
            45,
            &[("SET NAMES utf8mb4 COLLATE utf8mb4_bin", "utf8mb4_bin"), ("SET character_set_connection = utf8mb4", GENERAL)],
            "SET NAMES 'utf8mb4' COLLATE 'utf8mb4_bin',@@session.character_set_connection='utf8mb4'",
        ),
        // Others have done it.
        (45, &[("CALL p(NAMES)", GENERAL)], PLAIN),
        (45, &[("CALL p(NAMES)", "utf8mb4_bin")], "SET NAMES 'utf8mb4' COLLATE 'utf8mb4_bin'"),
    ] {
        assert_eq!(told(&original, &shadow, session(&original, id, sets)), expected, "{id} {sets:?}");
    }
}

#[test]
fn mysql_takes_a_logins_collation_as_it_is() {
    let mysql = ["5.7.44", "8.4.6"].map(|version| info(Flavor::MySql, version));
    let mariadb = info(Flavor::MariaDb, "11.8.6-MariaDB");
    let of_8 = "SET NAMES 'utf8mb4' COLLATE 'utf8mb4_0900_ai_ci'";
    for (original, shadow, id, sets, expected) in [
        (&mysql[0], &mysql[1], 45, NONE, RESOLVED),
        (&mysql[0], &mysql[1], 45, &[("SET NAMES utf8mb4", GENERAL)], PLAIN),
        (&mysql[0], &mysql[1], 45, &[("SET NAMES utf8mb4 COLLATE utf8mb4_general_ci", GENERAL)], RESOLVED),
        // The original does not know the id.
        (&mysql[0], &mysql[1], 255, &[], of_8),
        (&mysql[1], &mysql[1], 255, &[], of_8),
        (&mysql[1], &mariadb, 45, &[], PLAIN),
        (&mariadb, &mysql[1], 45, &[], RESOLVED),
    ] {
        assert_eq!(told(original, shadow, session(original, id, sets)), expected, "{} {id} {sets:?}", shadow.version);
    }
}

/// As of a session that came from a process that did not note who chose.
#[test]
fn what_is_not_known_goes_by_the_defaults_of_the_original() {
    let (original, shadow) = (info(Flavor::MariaDb, "10.11.19-MariaDB"), info(Flavor::MariaDb, "11.8.6-MariaDB"));
    let of = |id| (Chosen::default(), session(&original, id, &[]).1);
    assert_eq!(told(&original, &shadow, of(45)), PLAIN);
    assert_eq!(told(&original, &shadow, of(224)), "SET NAMES 'utf8mb4' COLLATE 'utf8mb4_unicode_ci'");
    // Where the client has chosen the defaults, they are not the server's.
    let (chosen, mut state) = session(&original, 45, &[("SET NAMES utf8mb4", GENERAL)]);
    state.variables.set("character_set_collations", Some(b"utf8mb4=utf8mb4_general_ci"));
    let set = told(&original, &shadow, (chosen, state));
    assert!(set.starts_with(RESOLVED), "{set}");
    // A state without all character sets stays as it is.
    let mut state = State::default();
    state.variables.set("collation_connection", Some(GENERAL.as_bytes()));
    let set = told(&original, &shadow, (Chosen::default(), state));
    assert_eq!(set, "SET @@session.collation_connection='utf8mb4_general_ci'");
}

#[test]
fn defaults_of_schema_and_server_are_left_to_the_shadow() {
    let (original, shadow) = (info(Flavor::MariaDb, "10.11.19-MariaDB"), info(Flavor::MariaDb, "11.8.6-MariaDB"));
    for (collation, expected) in
        [(GENERAL, "SET @@session.character_set_server='utf8mb4'"), ("utf8mb4_bin", "SET @@session.collation_server='utf8mb4_bin'")]
    {
        let mut state = State::default();
        state.variables.set("collation_server", Some(collation.as_bytes()));
        assert_eq!(told(&original, &shadow, (Chosen::default(), state)), expected);
    }
}

/// A connection in the one state is not taken for one in the other.
#[test]
fn a_connection_is_known_by_who_chose() {
    let (original, shadow) = (info(Flavor::MariaDb, "10.11.19-MariaDB"), info(Flavor::MariaDb, "11.8.6-MariaDB"));
    let (chosen, resolved) = session(&original, 45, &[]);
    let mut own = resolved.clone();
    chosen.settle(Some(&original), &mut own).leave_to(&shadow, &mut own);
    let mut held = Held::logged_in(StatusFlags::AUTOCOMMIT);
    held.began_with(shadow.login_collation(45).unwrap());
    for (want, expected) in [(&own, Some(PLAIN)), (&own, None), (&resolved, Some(RESOLVED)), (&own, Some(PLAIN))] {
        let set = match diff(want, held.state(), &Variables::default(), &shadow) {
            Diff::Steps { set, .. } => set,
            Diff::Identical => None,
            Diff::Reset { .. } => panic!("no reset is needed"),
        };
        assert_eq!(set.as_deref(), expected);
        if let Some(set) = &set {
            held.was_set(set, want);
        }
    }
}
