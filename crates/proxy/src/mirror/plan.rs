//! Which statements are copied, and what was said of the copy. Pure.
//!
//! A copy runs on its own: in the session's state, as a transaction of its own. So what only changes the session's state
//! or its transaction has no copy; state reaches the mirror with the next statement that has one.

use model::HostgroupId;
use routing::Route;
use sql::{Analysis, Facts, Kind};

/// Statements must be shorter than this (bytes) to be copied.
pub(crate) const MAX_TEXT: usize = 15 << 20;

/// What a rule or a comment says of a statement's copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MirrorWish {
    /// Where it goes, unless the rules for copies say something else.
    pub hostgroup: Option<HostgroupId>,
    /// The flag at which the rules for copies begin; without one they are not asked.
    pub flag: Option<u32>,
}

impl MirrorWish {
    pub(crate) fn of(route: &Route) -> Option<Self> {
        let wish = Self { hostgroup: route.mirror_hostgroup, flag: route.mirror_flag_out };
        (wish.hostgroup.is_some() || wish.flag.is_some()).then_some(wish)
    }
}

/// Whether the copy of such a statement would mean anything on a connection of its own.
pub(crate) fn is_copied(analysis: &Analysis) -> bool {
    let wants_clients_file = analysis.kind == Kind::LoadData;
    !wants_clients_file && !is_about_session(analysis.kind)
}

/// Changes or shows what belongs to the session or its connection.
fn is_about_session(kind: Kind) -> bool {
    match kind {
        Kind::Set | Kind::SetTransaction | Kind::SetRole | Kind::Use => true,
        Kind::Begin | Kind::Commit | Kind::Rollback | Kind::Savepoint | Kind::RollbackTo | Kind::ReleaseSavepoint | Kind::Xa => true,
        Kind::LockTables | Kind::UnlockTables | Kind::FlushReadLock | Kind::BackupLock | Kind::Handler => true,
        Kind::Prepare | Kind::Execute | Kind::Deallocate | Kind::CreateTemporaryTable => true,
        Kind::ShowWarnings | Kind::ShowErrors | Kind::ShowCountWarnings | Kind::ShowCountErrors | Kind::GetDiagnostics => true,
        // The number names another connection there.
        Kind::Kill | Kind::Empty => true,
        _ => false,
    }
}

/// Whether such a statement can leave nothing on its connection that another session must not meet.
pub(super) fn leaves_nothing(analysis: &Analysis) -> bool {
    let leaves = Facts::LAST_INSERT_ID_SET
        | Facts::RETURNING
        | Facts::USER_VARIABLE
        | Facts::USER_VARIABLE_ASSIGN
        | Facts::GET_LOCK
        | Facts::RELEASE_LOCK
        | Facts::MULTI
        | Facts::UNKNOWN_CODE
        | Facts::SESSION_TRACK
        | Facts::TEMPORARY;
    let plain =
        matches!(analysis.kind, Kind::Select | Kind::Insert | Kind::Replace | Kind::Update | Kind::Delete | Kind::Show | Kind::Explain);
    plain && !analysis.facts.intersects(leaves)
}

/// Whether such a statement, or the code that it runs, may set a role.
pub(crate) fn may_set_role(analysis: &Analysis) -> bool {
    let runs = Facts::MULTI | Facts::UNKNOWN_CODE | Facts::UNKNOWN_FUNCTION;
    matches!(analysis.kind, Kind::Call | Kind::Compound | Kind::SetStatement | Kind::SetRole) || analysis.facts.intersects(runs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sql::{LexMode, analyze};

    #[test]
    fn what_is_copied_and_what_it_leaves() {
        for (text, copied, clean) in [
            ("SELECT 1", true, true),
            ("INSERT INTO t VALUES (1)", true, true),
            ("UPDATE t SET a = 1", true, true),
            ("SELECT GET_LOCK('a', 0)", true, false),
            ("SELECT f(1)", true, false),
            ("SELECT @a := 1", true, false),
            ("SELECT 1 INTO @a", true, false),
            ("SELECT 1; SELECT 2", true, false),
            ("CALL p()", true, false),
            ("CREATE TABLE t (a INT)", true, false),
            ("BEGIN", false, false),
            ("COMMIT", false, false),
            ("SET autocommit=0", false, false),
            ("USE test", false, false),
            ("KILL 5", false, false),
            ("LOCK TABLES t WRITE", false, false),
            ("CREATE TEMPORARY TABLE t (a INT)", false, false),
            ("SHOW WARNINGS", false, false),
            ("LOAD DATA LOCAL INFILE 'x' INTO TABLE t", false, false),
        ] {
            let analysis = analyze(text.as_bytes(), LexMode::default());
            assert_eq!((is_copied(&analysis), leaves_nothing(&analysis)), (copied, clean), "{text}");
        }
    }
}
