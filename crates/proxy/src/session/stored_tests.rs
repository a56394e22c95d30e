use super::*;
use crate::session::bed::{Bed, error, ok, packet_of, result_of, rows};
use wire::charset::Flavor::{MariaDb, MySql};

/// SHOW CREATE's answer for a routine with this definition.
fn defined(text: &str) -> Vec<u8> {
    result_of(&[&["p", "", text, "utf8mb4", "utf8mb4_general_ci", "utf8mb4_general_ci"]])
}

/// The pins after this statement, when it was found out what its routines leave; and the questions.
async fn pins_after(bed: &mut Bed, text: &str, answers: &[Vec<u8>]) -> (Vec<&'static str>, Vec<String>) {
    bed.ran(text, &rows(1));
    bed.answers(answers);
    let analysis = bed.analysis(text);
    bed.door().read_stored_code(&analysis).await;
    (bed.pins(), bed.sent())
}

#[tokio::test]
async fn a_routine_keeps_the_backend_until_its_body_is_known() {
    let mut bed = Bed::new("").on(MySql);
    bed.ran("CALL p()", &ok());
    assert_eq!(bed.pins(), ["stored_code"]);
    for (body, expected) in [
        ("CREATE PROCEDURE `p`() SELECT 1", &[][..]),
        ("CREATE PROCEDURE `p`() UPDATE t SET a = 1", &[]),
        ("CREATE PROCEDURE `p`() BEGIN DECLARE x INT; SET x = 1; END", &[]),
        ("CREATE PROCEDURE `p`() SET @a = 1", &["session_state"]),
        // Servers tell of it: see `note_unexplained`.
        ("CREATE PROCEDURE `p`() CREATE TEMPORARY TABLE t (a INT)", &[]),
        ("CREATE PROCEDURE `p`() SELECT GET_LOCK('a', 1)", &["session_state"]),
        ("CREATE PROCEDURE `p`() SET ROLE r", &["session_state", "role"]),
    ] {
        let mut bed = Bed::new("").on(MySql);
        let (pins, asked) = pins_after(&mut bed, "CALL p()", &[defined(body)]).await;
        assert_eq!(pins, expected, "{body}");
        assert_eq!(asked, ["SHOW CREATE PROCEDURE `shop`.`p`"], "{body}");
        // It is remembered.
        let mut again = Bed::new("").on(MySql);
        std::mem::swap(&mut *again, &mut *bed);
        again.at.pins.clear();
        again.ran("CALL p()", &ok());
        assert_eq!(again.pins(), expected, "{body}");
    }
}

#[tokio::test]
async fn a_routine_that_defines_ends_what_is_remembered() {
    let no_rights = packet_of(&error(1044));
    for (answer, expected) in [
        (defined("CREATE PROCEDURE `p`() ALTER TABLE t ADD c INT"), 1),
        (defined("CREATE PROCEDURE `p`() INSERT INTO t VALUES (1)"), 0),
        (defined("CREATE PROCEDURE `p`() CREATE TEMPORARY TABLE u (a INT)"), 0),
        (no_rights, 0),
    ] {
        let mut bed = Bed::new("").on(MySql);
        let before = bed.worker.shared.ddl_epoch.load(Ordering::Acquire);
        pins_after(&mut bed, "CALL p()", &[answer]).await;
        assert_eq!(bed.worker.shared.ddl_epoch.load(Ordering::Acquire) - before, expected);
    }
}

#[tokio::test]
async fn what_cannot_be_read_may_leave_anything() {
    let no_rights = packet_of(&error(1044));
    let missing = packet_of(&error(codes::SP_DOES_NOT_EXIST));
    for (text, answer, expected) in [
        ("CALL p()", &no_rights, &["session_state"][..]),
        ("CALL p()", &missing, &["session_state"]),
        ("SELECT f()", &no_rights, &["session_state"]),
        // It is a loadable function, then.
        ("SELECT f()", &missing, &[]),
    ] {
        let mut bed = Bed::new("").on(MySql);
        let (pins, _) = pins_after(&mut bed, text, std::slice::from_ref(answer)).await;
        assert_eq!(pins, expected, "{text}");
    }
}

#[tokio::test]
async fn what_a_routine_calls_is_read_too() {
    let outer = defined("CREATE PROCEDURE `p`() CALL q()");
    for (inner, expected) in [("CREATE PROCEDURE `q`() SELECT 1", &[][..]), ("CREATE PROCEDURE `q`() SET @a = 1", &["session_state"])] {
        let mut bed = Bed::new("").on(MySql);
        let (pins, asked) = pins_after(&mut bed, "CALL p()", &[outer.clone(), defined(inner)]).await;
        assert_eq!((pins.as_slice(), asked.len()), (expected, 2), "{inner}: {asked:?}");
        assert_eq!(asked[1], "SHOW CREATE PROCEDURE `shop`.`q`");
    }
    let mut bed = Bed::new("").on(MySql);
    let (pins, asked) = pins_after(&mut bed, "CALL p()", &[defined("CREATE PROCEDURE `p`() CALL p()")]).await;
    assert_eq!((pins.len(), asked.len()), (0, 1), "one that calls itself is read once");
}

#[tokio::test]
async fn what_is_declared_safe_or_built_in_is_not_asked_for() {
    let anna = r#"{ username="anna", password="x", default_hostgroup=1, attributes="{\"safe_functions\": [\"f\", \"other.p\"]}" }"#;
    for (text, expected) in [
        ("SELECT f(1)", &[][..]),
        ("SELECT F(1)", &[]),
        ("CALL other.p()", &[]),
        ("CALL p()", &["stored_code"]),
        ("SELECT CONCAT('a', 1), NOW()", &[]),
        ("SELECT sys.f(1)", &["stored_code"]),
    ] {
        let mut bed = Bed::of_user(anna, "").on(MySql);
        bed.ran(text, &rows(1));
        assert_eq!(bed.pins(), expected, "{text}");
    }
}

#[tokio::test]
async fn calls_of_which_it_is_not_known_what_they_ran_are_session_state() {
    for (text, expected) in [
        // Which p it was cannot be known any more.
        ("CALL p(); DROP PROCEDURE p", "session_state"),
        ("CALL `p\u{e9}`()", "session_state"),
    ] {
        for flavor in [MySql, MariaDb] {
            let mut bed = Bed::new("").on(flavor);
            bed.ran(text, &ok());
            assert!(bed.pins().contains(&expected), "{flavor:?} {text}: {:?}", bed.pins());
        }
    }
    let mut bed = Bed::new("").on(MySql);
    bed.ran("CALL p()", &ok());
    let call = bed.analysis("CALL p()");
    bed.worker.shared.anything_was_defined();
    bed.answers(&[defined("CREATE PROCEDURE `p`() SELECT 1")]);
    bed.door().read_stored_code(&call).await;
    assert_eq!(bed.pins(), ["session_state"], "it may have been another one that ran");
}
