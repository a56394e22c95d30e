//! Switchover of a group with a single primary: the group elects whom it is told to. MySQL 8.0.13 and later.

use std::time::Duration;

use topology::CheckKind;

use super::control::Control;
use super::switchover::{OTHERS_LIMIT, Switchover};
use super::undo::Done;
use super::{LOOK_AGAIN, replication};

/// Longest that an election that was called off is waited for. Where it waits for transactions itself, KILL does not end it (seen
/// on MySQL 9.7).
const ELECTION_LIMIT: Duration = Duration::from_secs(1);

const SINGLE_PRIMARY: &str = "SELECT @@global.group_replication_single_primary_mode";

/// A group with a single primary, of a version that can be told, and by us.
pub(super) async fn prepare(work: &mut Switchover) -> Result<(), String> {
    if !work.new.version().is_mysql_since((8, 0, 13)) {
        return Err("a group elects whom it is told to only from MySQL 8.0.13 on".into());
    }
    if work.new.value(SINGLE_PRIMARY).await? != "1" {
        return Err("the group is in multi-primary mode: there is no primary to elect".into());
    }
    // The old one is asked if this has to be undone.
    may_elect(&mut work.old).await?;
    may_elect(&mut work.new).await?;
    work.old.look(CheckKind::Group).await?;
    work.new.look(CheckKind::Group).await.map(drop)
}

/// The group itself waits until the new primary has applied everything.
pub(super) async fn change(work: &mut Switchover) -> Result<(), String> {
    let uuid = uuid(&mut work.new).await?;
    let connection = work.new.value("SELECT CONNECTION_ID()").await?;
    work.will(Done::Elected { connection });
    elect(&mut work.new, &uuid).await?;
    let new = work.plan.new.key.addr();
    work.note(format!("the group has elected {new}"));
    work.see(CheckKind::Group).await
}

/// Undoes the election, also one that is under way: it waits for the primary's transactions, and goes on if it is not ended.
pub(super) async fn elect_old(work: &Switchover, connection: &str) -> Result<(), String> {
    let mut old = work.fresh(&work.plan.old).await?;
    let ended = tokio::time::timeout(ELECTION_LIMIT, end_election(work, &mut old, connection)).await;
    ended.unwrap_or_else(|_| Err(format!("an election of {} is under way", work.plan.new.key.addr())))?;
    let is_primary = "SELECT COUNT(*) FROM performance_schema.replication_group_members \
                      WHERE MEMBER_ID = @@server_uuid AND MEMBER_ROLE = 'PRIMARY'";
    if old.value(is_primary).await? == "1" {
        return Ok(());
    }
    let uuid = uuid(&mut old).await?;
    elect(&mut old, &uuid).await
}

async fn end_election(work: &Switchover, old: &mut Control, connection: &str) -> Result<(), String> {
    // Who asked may be lost, and the connection with it.
    if let Ok(Ok(mut new)) = tokio::time::timeout(OTHERS_LIMIT, work.fresh(&work.plan.new)).await {
        replication::end(&mut new, connection).await?;
    }
    // Until the group would begin another one.
    while may_elect(old).await.is_err() {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Ok(())
}

async fn uuid(server: &mut Control) -> Result<String, String> {
    server.value("SELECT @@global.server_uuid").await
}

/// Asks for what cannot be: a server says whether we may, and whether the group can elect now, before it says that this is no
/// UUID.
async fn may_elect(server: &mut Control) -> Result<(), String> {
    match elect(server, "nobody").await {
        Err(why) if !why.to_ascii_lowercase().contains("uuid is not valid") => Err(why),
        _ => Ok(()),
    }
}

async fn elect(server: &mut Control, uuid: &str) -> Result<(), String> {
    let sql = format!("SELECT group_replication_set_as_primary('{uuid}')");
    let needed = "the monitor's user needs GROUP_REPLICATION_ADMIN";
    server.try_ask(&sql).await.map(drop).map_err(|fault| match fault.code() {
        Some(1044 | 1045 | 1227 | 1370) => format!("{}: {sql}: {fault}; {needed}", server.addr),
        Some(1123) if fault.to_string().contains("GROUP_REPLICATION_ADMIN") => format!("{}: {sql}: {fault}; {needed}", server.addr),
        _ => format!("{}: {sql}: {fault}", server.addr),
    })
}
