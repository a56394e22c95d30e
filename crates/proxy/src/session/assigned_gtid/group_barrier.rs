//! The question of [`crate::session::assigned_gtid::lost_write`] to the member of a group (Group Replication) that writes now.
//!
//! A group does not refuse a GTID that is used, as one might think. Seen on MySQL 9.7: a member that has received a transaction and
//! not applied it commits another one under the same GTID; the other members refuse that one ("was already used"), and their
//! data differ from then on, without an error. So nothing is committed under the GTID in doubt before it is certain that the
//! member has not received it, and cannot receive it any more. INVARIANT: in this order, of which each step rests on the last,
//!
//! 1. the member that was lost is out of the group, as the member that is asked sees it: from then on nothing of it is delivered;
//! 2. an empty transaction with a GTID of its own, the fence, is committed through the group: as all members take all transactions
//!    in one order, everything that came before is received now, and the new primary holds it until its backlog is applied
//!    (`BEFORE_ON_PRIMARY_FAILOVER`);
//! 3. the GTID in doubt is neither received nor applied.
//!
//! The member that was lost may be the one that is asked: then the connection owns the GTID there, after whoever had it.

use crate::backends::backend::Backend;
use crate::hostgroups::gtid_source::{AssignedGtid, GtidSource};
use crate::net::buffer::BufferPool;
use crate::session::assigned_gtid::lost_write::{Finding, Opening, claim, numbers};
use crate::session::assigned_gtid::set_to;
use session_state::collected::Collected;
use std::io;

/// Statements of the fence.
const FENCE: usize = 3;

/// Asks for the assigned GTID, which was lost on the member `lost_on`; owns it if it is not applied.
pub(in crate::session) async fn ask_member(
    backend: &mut Backend,
    gtid: &AssignedGtid,
    lost_on: &str,
    opening: Opening,
    gtids: &GtidSource,
    pool: &BufferPool,
) -> io::Result<Finding> {
    let Some(asked) = backend.core.held.member().cloned() else { return Ok(Finding::NotYet("the member's id is unknown")) };
    let questions = questions(gtid, lost_on, &asked);
    let at_once = found(&claim(backend, &questions, pool).await?);
    if at_once != Finding::Ours {
        return Ok(at_once);
    }
    let Some(fence) = gtids.take() else { return Ok(Finding::NotYet("no GTID")) };
    let mut statements = vec![set_to(&fence), "BEGIN".to_owned(), "COMMIT".to_owned(), set_to(gtid)];
    if opening == Opening::Begin {
        statements.push("BEGIN".to_owned());
    }
    statements.extend(questions);
    let replies = claim(backend, &statements, pool).await?;
    match replies.iter().take(FENCE).find_map(|reply| reply.error.as_ref()) {
        Some(error) => Ok(Finding::NotYet(match error.code {
            1290 => "the server is read-only",
            _ => "the group refused a transaction",
        })),
        None => Ok(found(replies.get(FENCE..).unwrap_or_default())),
    }
}

/// What is there, what may still come, and who is in the group.
fn questions(gtid: &AssignedGtid, lost_on: &str, asked: &str) -> [String; 3] {
    [
        format!("SELECT GTID_SUBSET('{gtid}',@@GLOBAL.gtid_executed),@@GLOBAL.read_only"),
        format!(
            "SELECT COUNT(*) FROM performance_schema.replication_connection_status WHERE GTID_SUBSET('{gtid}',RECEIVED_TRANSACTION_SET) \
             OR SERVICE_STATE<>'OFF' AND CHANNEL_NAME NOT IN ('group_replication_applier','group_replication_recovery')"
        ),
        // One that joins is not the one that was lost: that has left before.
        format!(
            "SELECT SUM(MEMBER_ID='{asked}' AND MEMBER_STATE='ONLINE'),\
             SUM(MEMBER_ID='{lost_on}' AND MEMBER_ID<>'{asked}' AND MEMBER_STATE<>'RECOVERING') \
             FROM performance_schema.replication_group_members"
        ),
    ]
}

/// What the answers say: to what went before, then to the questions.
fn found(replies: &[Collected]) -> Finding {
    let [before @ .., there, coming, members] = replies else { return Finding::NotYet("no answer") };
    if let Some(error) = before.iter().chain([there]).find_map(|reply| reply.error.as_ref()) {
        return Finding::Denied(error.to_string());
    }
    match numbers(there).as_slice() {
        [1, _] => return Finding::Applied,
        [0, 0] => {}
        _ => return Finding::NotYet("the server is read-only"),
    }
    if let Some(error) = coming.error.as_ref().or(members.error.as_ref()) {
        return Finding::Denied(error.to_string());
    }
    match (numbers(coming).as_slice(), numbers(members).as_slice()) {
        ([0], [1, 0]) => Finding::Ours,
        ([0], _) => Finding::NotYet("the lost member is still in the group, or this member is not"),
        _ => Finding::NotYet("the new primary still replicates from a server, or has not applied all that it received"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::backend::made::{error, row};

    fn finding(there: &[&str], coming: &[&str], members: &[&str]) -> Finding {
        found(&[row(there), row(coming), row(members)])
    }

    #[test]
    fn only_an_online_primary_that_the_lost_member_cannot_reach_proves_that_it_is_not_there() {
        assert_eq!(finding(&["0", "0"], &["0"], &["1", "0"]), Finding::Ours);
        assert!(matches!(finding(&["0", "1"], &["0"], &["1", "0"]), Finding::NotYet(_)), "read-only");
        assert!(matches!(finding(&["0", "0"], &["1"], &["1", "0"]), Finding::NotYet(_)), "received");
        assert!(matches!(finding(&["0", "0"], &["0"], &["1", "1"]), Finding::NotYet(_)), "the lost one is a member");
        assert!(matches!(finding(&["0", "0"], &["0"], &["0", "0"]), Finding::NotYet(_)), "it is out itself");
        assert!(matches!(found(&[row(&["0", "0"]), row(&["0"]), Collected::default()]), Finding::NotYet(_)), "no group");
        assert!(matches!(found(&[row(&["0", "0"]), row(&["0"]), error(1142)]), Finding::Denied(_)), "no right to see who is in it");
        assert!(matches!(found(&[error(1227), row(&["0", "0"]), row(&["0"]), row(&["1", "0"])]), Finding::Denied(_)));
    }

    #[test]
    fn what_is_there_is_applied_whatever_else() {
        assert_eq!(finding(&["1", "1"], &["1"], &["0", "1"]), Finding::Applied);
        assert_eq!(found(&[row(&["1", "0"]), error(1142), error(1142)]), Finding::Applied);
    }
}
