//! Switchover of asynchronous replication: `read_only` on the old writer, the new one has everything, `read_only` off there.
//!
//! Who replicates from whom is not touched: with replication both ways (or none back), that is the operator's own.

use std::time::{Duration, Instant};

use model::snapshot::ReadOnlyCheck;
use topology::CheckKind;

use super::LOOK_AGAIN;
use super::control::Control;
use super::plan::Hand;
use super::switchover::{Done, Switchover};
use crate::client::is_on;

/// What the monitor's user needs to set `read_only`.
const NEEDED: &str = "the monitor's user needs READ_ONLY ADMIN (MariaDB), SYSTEM_VARIABLES_ADMIN and CONNECTION_ADMIN (MySQL)";

/// The new one follows the old one, and is not far behind: then the hold will be short.
pub(super) async fn prepare(work: &mut Switchover, check: ReadOnlyCheck, hand: Hand) -> Result<(), String> {
    let (old, new) = (&mut work.old, &mut work.new);
    if is_read_only(old, check).await? {
        return Err(format!("{} is read-only: there is nobody to switch from", old.addr));
    }
    if hand == Hand::Ours && !is_read_only(new, check).await? {
        return Err(format!("{} is not read-only: it is no replica, or somebody writes there", new.addr));
    }
    if hand == Hand::Ours {
        // Both are so already: nothing changes, but the server says whether we may.
        set(old, OPEN).await?;
        set(new, "SET GLOBAL read_only=1").await?;
    }
    follows(old, new).await?;
    let position = position(old).await?;
    let until = Instant::now() + work.deadline.saturating_duration_since(Instant::now()) / 4;
    reach(new, &position, until).await.map_err(|why| format!("{why}; nothing was changed"))
}

/// Whether the new one has within `limit` all that the old one has by now.
pub(super) async fn is_near(work: &mut Switchover, limit: Duration) -> Result<bool, String> {
    let position = position(&mut work.old).await?;
    has(&mut work.new, &position, limit).await
}

/// Everything that touches something.
pub(super) async fn change(work: &mut Switchover, check: ReadOnlyCheck, hand: Hand) -> Result<(), String> {
    match hand {
        Hand::Ours => close_old(work).await?,
        Hand::Theirs => wait_for_old(work, check).await?,
    }
    // Told at once, so that nobody is taken for a second writer.
    work.old.look(CheckKind::ReadOnly(check)).await?;
    let old = work.old.addr.clone();
    work.note(format!("{old} is read-only"));
    let position = position(&mut work.old).await?;
    reach(&mut work.new, &position, work.deadline).await?;
    let new = work.new.addr.clone();
    work.note(format!("{new} has everything ({position})"));
    match hand {
        Hand::Ours => open_new(work).await?,
        Hand::Theirs => wait_for_new(work, check).await?,
    }
    work.see(CheckKind::ReadOnly(check)).await
}

async fn is_read_only(server: &mut Control, check: ReadOnlyCheck) -> Result<bool, String> {
    let value = server.value(&format!("SELECT {}", check.expression())).await?;
    Ok(is_on(&value))
}

/// The new one replicates from the old one, and both of its threads run.
async fn follows(old: &mut Control, new: &mut Control) -> Result<(), String> {
    let is_mariadb = new.version().is_mariadb;
    let (sql, id, id_column) = match is_mariadb {
        true => ("SHOW ALL SLAVES STATUS", "SELECT @@global.server_id", "master_server_id"),
        false if new.version().is_mysql_since((8, 0, 22)) => ("SHOW REPLICA STATUS", "SELECT @@global.server_uuid", "source_uuid"),
        false => ("SHOW SLAVE STATUS", "SELECT @@global.server_uuid", "master_uuid"),
    };
    let source = old.value(id).await?;
    let channels = new.ask(sql).await?;
    let (old, new) = (&old.addr, &new.addr);
    let Some(channel) = channels.iter().find(|row| row.text(id_column) == Some(&*source)) else {
        return Err(format!("{new} is no replica of {old}"));
    };
    for names in [["slave_io_running", "replica_io_running"], ["slave_sql_running", "replica_sql_running"]] {
        let state = names.iter().find_map(|name| channel.text(name)).unwrap_or("unknown");
        if !is_on(state) {
            return Err(format!("{new} does not replicate from {old}: {} is {state}", names[1]));
        }
    }
    Ok(())
}

/// All that a server has written; empty when that is nothing.
async fn position(server: &mut Control) -> Result<String, String> {
    let (has_gtids, position) = match server.version().is_mariadb {
        true => {
            ("SELECT @@global.log_bin", "SELECT IF(@@global.gtid_binlog_pos = '', @@global.gtid_current_pos, @@global.gtid_binlog_pos)")
        }
        false => ("SELECT @@global.gtid_mode = 'ON'", "SELECT @@global.gtid_executed"),
    };
    if server.value(has_gtids).await? != "1" {
        return Err(format!("{} writes no GTIDs: it cannot be known when a replica has caught up", server.addr));
    }
    Ok(server.value(position).await?.replace('\n', ""))
}

/// Waits until a replica has everything up to `position`.
async fn reach(server: &mut Control, position: &str, until: Instant) -> Result<(), String> {
    let limit = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(10));
    match has(server, position, limit).await? {
        true => Ok(()),
        false => Err(format!("{} does not catch up: after {} ms it has not got {position}", server.addr, limit.as_millis())),
    }
}

/// Whether a replica has everything up to `position`, or gets it within `limit`.
async fn has(server: &mut Control, position: &str, limit: Duration) -> Result<bool, String> {
    if position.is_empty() {
        return Ok(true);
    }
    let sql = match server.version().is_mariadb {
        true => format!("SELECT MASTER_GTID_WAIT('{position}', {:.3})", limit.as_secs_f64()),
        false => format!("SELECT WAIT_FOR_EXECUTED_GTID_SET('{position}', {:.3})", limit.as_secs_f64()),
    };
    Ok(server.value(&sql).await? == "0")
}

/// Sets `read_only` on the old writer. It waits for writes that are being committed, so its wait is bounded too.
async fn close_old(work: &mut Switchover) -> Result<(), String> {
    let connection = work.old.value("SELECT CONNECTION_ID()").await?;
    let left_s = work.deadline.saturating_duration_since(Instant::now()).as_secs().max(1);
    work.old.ask(&format!("SET SESSION lock_wait_timeout={left_s}")).await?;
    work.will(Done::OldClosed(connection));
    close(&mut work.old).await
}

async fn open_new(work: &mut Switchover) -> Result<(), String> {
    let is_mariadb = work.new.version().is_mariadb;
    let was_super = !is_mariadb && is_on(&work.new.value("SELECT @@global.super_read_only").await?);
    let before = if was_super { "SET GLOBAL super_read_only=1" } else { "SET GLOBAL read_only=1" };
    work.will(Done::NewOpened { before });
    set(&mut work.new, OPEN).await
}

/// On MySQL also for those with privileges; that sets `read_only` as well.
async fn close(server: &mut Control) -> Result<(), String> {
    let sql = if server.version().is_mariadb { "SET GLOBAL read_only=1" } else { "SET GLOBAL super_read_only=1" };
    set(server, sql).await
}

/// On MySQL this takes `super_read_only` off too.
const OPEN: &str = "SET GLOBAL read_only=0";

async fn set(server: &mut Control, sql: &str) -> Result<(), String> {
    let outcome = server.try_ask(sql).await;
    outcome.map(drop).map_err(|fault| match fault.code() {
        Some(1044 | 1045 | 1227 | 1142) => format!("{}: {sql}: {fault}; {NEEDED}", server.addr),
        _ => format!("{}: {sql}: {fault}", server.addr),
    })
}

async fn wait_for_old(work: &mut Switchover, check: ReadOnlyCheck) -> Result<(), String> {
    let old = work.old.addr.clone();
    work.note(format!("waits for somebody to make {old} read-only"));
    wait_for(&mut work.old, check, true).await
}

async fn wait_for_new(work: &mut Switchover, check: ReadOnlyCheck) -> Result<(), String> {
    let new = work.new.addr.clone();
    work.note(format!("waits for somebody to make {new} writable"));
    wait_for(&mut work.new, check, false).await
}

async fn wait_for(server: &mut Control, check: ReadOnlyCheck, is_read_only_wanted: bool) -> Result<(), String> {
    while is_read_only(server, check).await? != is_read_only_wanted {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Ok(())
}

/// Undoes [`close_old`], also if it still waits.
pub(super) async fn reopen_old(work: &Switchover, connection: &str) -> Result<(), String> {
    let mut old = work.fresh(&work.plan.old).await?;
    // Gone, mostly.
    let _ = old.try_ask(&format!("KILL {connection}")).await;
    set(&mut old, OPEN).await
}

/// Undoes [`open_new`].
pub(super) async fn close_new(work: &Switchover, before: &str) -> Result<(), String> {
    set(&mut work.fresh(&work.plan.new).await?, before).await
}
