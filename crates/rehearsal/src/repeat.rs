//! What a copy of a statement does where the original's server has refused or stopped the statement: mode `all` and replays follow it.

use sql::{Analysis, Facts, Kind};
use wire::codes;

/// Errors that say nothing of the statement: a lock, KILL QUERY, a time limit. The server has rolled the statement back.
const STOPPED: [u16; 4] = [codes::LOCK_WAIT_TIMEOUT, codes::QUERY_INTERRUPTED, codes::QUERY_TIMEOUT, codes::STATEMENT_TIMEOUT];

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// The copy runs the statement.
    Run,
    /// The original's statement changed nothing: the copy does not run it.
    Skip,
    /// The original's server has rolled its transaction back: the copy sends ROLLBACK only.
    RollBack,
    /// A part of it may have run at the original: the copy cannot follow.
    Unknown,
}

impl Repeat {
    /// Of a statement that the original answered with this error. None: it succeeded, or its answer is not known.
    pub fn of(analysis: &Analysis, error: Option<u16>) -> Self {
        let Some(error) = error else { return Self::Run };
        let is_deadlock = error == codes::LOCK_DEADLOCK;
        let is_stopped = is_deadlock || STOPPED.contains(&error);
        let is_several = analysis.facts.contains(Facts::MULTI) || matches!(analysis.kind, Kind::Call | Kind::Compound);
        match () {
            () if is_stopped && (is_several || !is_of_rows(analysis.kind)) => Self::Unknown,
            () if is_of_read_only(error) && is_several => Self::Unknown,
            () if is_deadlock => Self::RollBack,
            () if is_stopped || is_of_read_only(error) => Self::Skip,
            () => Self::Run,
        }
    }
}

/// Whether a server has refused a statement because it takes no writes now (1290, 1836): the copy's server takes them.
pub fn is_of_read_only(error: u16) -> bool {
    matches!(error, codes::OPTION_PREVENTS_STATEMENT | codes::READ_ONLY_MODE)
}

/// Whether one statement of this kind leaves the open transaction as it is if it fails.
pub fn is_of_rows(kind: Kind) -> bool {
    matches!(kind, Kind::Select | Kind::Insert | Kind::Replace | Kind::Update | Kind::Delete | Kind::LoadData)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sql::LexMode;

    #[test]
    fn what_the_original_did_not_do_is_not_repeated() {
        let of = |text: &str, error| Repeat::of(&sql::analyze(text.as_bytes(), LexMode::default()), error);
        for error in [1205, 1317, 1969, 3024] {
            assert_eq!(of("UPDATE t SET a = 1", Some(error)), Repeat::Skip, "{error}");
            for text in ["CALL p()", "ALTER TABLE t ADD b INT", "COMMIT", "UPDATE t SET a = 1; UPDATE t SET a = 2"] {
                assert_eq!(of(text, Some(error)), Repeat::Unknown, "{text} {error}");
            }
        }
        for error in [1290, 1836] {
            assert_eq!(["UPDATE t SET a = 1", "BEGIN"].map(|text| of(text, Some(error))), [Repeat::Skip; 2], "{error}");
            assert_eq!(of("CALL p()", Some(error)), Repeat::Unknown, "{error}");
        }
        assert_eq!(["INSERT INTO t VALUES (1)", "COMMIT"].map(|text| of(text, Some(1213))), [Repeat::RollBack, Repeat::Unknown]);
        assert_eq!([None, Some(1062)].map(|error| of("INSERT INTO t VALUES (1)", error)), [Repeat::Run; 2]);
    }
}
