//! Switchover of a group. With a single primary, the group elects the member that it is told to elect (MySQL 8.0.13 and later). In
//! multi-primary mode the proxy's preference decides, as with Galera.

use std::time::Duration;

use topology::CheckKind;

use super::control::Control;
use super::switchover::{OTHERS_LIMIT, Switchover};
use super::undo::Done;
use super::{LOOK_AGAIN, galera, replication};
use crate::client::Fault;
use crate::statements;
use wire::codes;

/// Longest that an election that was called off is waited for. Where it waits for transactions itself, KILL does not end it (seen
/// on MySQL 9.7).
const ELECTION_LIMIT: Duration = Duration::from_secs(1);

const SINGLE_PRIMARY: &str = "SELECT @@global.group_replication_single_primary_mode";

/// The group's refusals of an election that has not begun: another one runs, or its members cannot hold one.
const REFUSALS: [&str; 4] = ["already a configuration action", "primary election is occurring", "member is joining", "does not support"];

/// A group with a single primary, of a version that can be told, and by us; or one whose members all write, and would.
pub(super) async fn prepare(work: &mut Switchover) -> Result<(), String> {
    if work.new.value(SINGLE_PRIMARY).await? == "0" {
        if let [_, others @ ..] = work.plan.held.as_slice()
            && !others.is_empty()
        {
            let several =
                "the group is in multi-primary mode and the old writer writes in several hostgroups, each with its own preference";
            return Err(format!("{several}: {}", work.plan.held.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")));
        }
        work.is_by_preference = true;
        return galera::would_write(work, CheckKind::Group).await;
    }
    if !work.new.version().is_mysql_since((8, 0, 13)) {
        return Err("choosing the primary of a group needs MySQL 8.0.13 or later".into());
    }
    // The old one is asked if this has to be undone.
    may_elect(&mut work.old).await?;
    may_elect(&mut work.new).await?;
    work.old.look(CheckKind::Group).await?;
    work.new.look(CheckKind::Group).await.map(drop)
}

/// The group itself waits until the new primary has applied everything.
pub(super) async fn change(work: &mut Switchover) -> Result<(), String> {
    if work.is_by_preference {
        replication::catch_up(work).await?;
        return galera::choose(work, CheckKind::Group).await;
    }
    let uuid = uuid(&mut work.new).await?;
    let connection = work.new.id().await?;
    stop_channels(work).await?;
    work.will(Done::Elected { connection, uuid: uuid.clone() });
    if let Err(failure) = elect(&mut work.new, &uuid).await {
        if failure.is_refusal {
            work.done.pop();
        }
        return Err(failure.why);
    }
    let new = work.plan.new.key.addr();
    work.note(format!("the group has elected {new}"));
    work.see(CheckKind::Group).await
}

/// Stops the primary's channels from other clusters: MySQL refuses an election while one runs. Afterwards the proxy that keeps the channel
/// starts it on the primary again.
async fn stop_channels(work: &mut Switchover) -> Result<(), String> {
    for channel in &work.monitor.snapshot().channels {
        if !channel.is_active || !work.plan.held.contains(&channel.writer) {
            continue;
        }
        match work.old.try_ask(&statements::stop(work.old.version(), &channel.name)).await {
            Ok(_) => work.note(format!("channel '{}' is stopped", channel.name)),
            Err(fault) if fault.code() == Some(codes::REPLICA_CHANNEL_DOES_NOT_EXIST) => {}
            Err(fault) => return Err(format!("{}: channel '{}' cannot be stopped: {fault}", work.old.addr, channel.name)),
        }
    }
    Ok(())
}

/// Undoes the election of `new`. A running election is ended first: it waits for the primary's transactions and would otherwise continue. A
/// primary that another program has had elected since stays.
pub(super) async fn elect_old(work: &Switchover, connection: u64, new: &str) -> Result<(), String> {
    let mut old = work.fresh(&work.plan.old).await?;
    let ended = tokio::time::timeout(ELECTION_LIMIT, end_election(work, &mut old, connection)).await;
    ended.unwrap_or_else(|_| Err(format!("an election of {} is under way", work.plan.new.key.addr())))?;
    let uuid = uuid(&mut old).await?;
    let primary = old.value("SELECT MEMBER_ID FROM performance_schema.replication_group_members WHERE MEMBER_ROLE = 'PRIMARY'").await?;
    match primary {
        primary if primary == uuid => Ok(()),
        primary if primary.is_empty() || primary == new => elect(&mut old, &uuid).await.map_err(|failure| failure.why),
        other => Err(format!("the group elected {other} in the meantime; {other} stays the primary")),
    }
}

async fn end_election(work: &Switchover, old: &mut Control, connection: u64) -> Result<(), String> {
    // The new writer asked for the election. It may be lost, and its connection too.
    if let Ok(Ok(mut new)) = tokio::time::timeout(OTHERS_LIMIT, work.fresh(&work.plan.new)).await {
        replication::end(&mut new, connection).await?;
    }
    // Until the group would begin another election.
    while may_elect(old).await.is_err() {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Ok(())
}

async fn uuid(server: &mut Control) -> Result<String, String> {
    server.plain("SELECT @@global.server_uuid", "-").await
}

/// Asks for an election that must fail. A server checks the privilege, and whether the group can elect now, before it rejects the UUID.
async fn may_elect(server: &mut Control) -> Result<(), String> {
    match elect(server, "nobody").await {
        Err(failure) if !failure.why.to_ascii_lowercase().contains("uuid is not valid") => Err(failure.why),
        _ => Ok(()),
    }
}

/// Why no election took place, as far as is known.
struct NotElected {
    why: String,
    /// The election has not begun, and will not.
    is_refusal: bool,
}

async fn elect(server: &mut Control, uuid: &str) -> Result<(), NotElected> {
    let sql = format!("SELECT group_replication_set_as_primary('{uuid}')");
    server.try_ask(&sql).await.map(drop).map_err(|fault| {
        let lacks_right = lacks_right(&fault);
        let needed = if lacks_right { "; the monitor's user needs GROUP_REPLICATION_ADMIN" } else { "" };
        NotElected { why: format!("{}: {sql}: {fault}{needed}", server.addr), is_refusal: lacks_right || is_refusal(&fault.to_string()) }
    })
}

fn lacks_right(fault: &Fault) -> bool {
    match fault.code() {
        Some(codes::DBACCESS_DENIED | codes::ACCESS_DENIED | codes::SPECIFIC_ACCESS_DENIED | codes::PROCACCESS_DENIED) => true,
        Some(codes::CANT_INITIALIZE_UDF) => fault.to_string().contains("GROUP_REPLICATION_ADMIN"),
        _ => false,
    }
}

fn is_refusal(text: &str) -> bool {
    REFUSALS.iter().any(|refusal| text.contains(refusal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_election_that_was_refused_is_told_from_one_that_may_have_begun() {
        let said = |text: &str| is_refusal(&format!("The function 'group_replication_set_as_primary' failed. {text} (error 3910)"));
        assert!(said("There is already a configuration action being executed. Wait for it to finish."));
        assert!(said("There is already a configuration action being proposed locally. Wait for it to finish."));
        assert!(said("A primary election is occurring in the group. Wait for it to end."));
        assert!(said("A member is joining the group, wait for it to be ONLINE."));
        assert!(!said("This group configuration operation was killed."));
        assert!(!said("The group coordination process is terminating."));
    }
}
