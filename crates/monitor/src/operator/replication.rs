//! Switchover of asynchronous replication: set `read_only` on the old writer, wait until the new one has everything, clear `read_only`
//! there.
//!
//! [`super::repoint`] changes the servers' replication sources. The answer names each server that does not replicate from the new writer.
//!
//! INVARIANT: `read_only` is changed only if its value is the one found, or our own: another program's value is a fence. No server is
//! opened while another one may write.

use std::sync::Arc;
use std::time::{Duration, Instant};

use model::ServerAddr;
use model::snapshot::ReadOnlyCheck;
use tokio::task::JoinSet;
use topology::{CheckKind, GtidSet};

use super::LOOK_AGAIN;
use super::control::Control;
use super::gate::{Gate, is_still, may_set};
use super::heal_lock;
use super::plan::Hand;
use super::repoint;
use super::switchover::{OTHERS_LIMIT, Switchover};
use super::undo::Done;
use crate::client::is_on;
use crate::probe;
use crate::statements;

/// How much of its time a switchover waits for a new writer that is behind, before anybody waits; the rest is for what comes then.
const TO_CATCH_UP: f64 = 0.75;

/// The values at the check. They must be the same when they are changed.
#[derive(Debug, Clone)]
pub(super) struct Gates {
    old: Gate,
    new: Gate,
}

/// The new one follows the old one, and is not far behind: then the hold will be short. Nothing is written.
pub(super) async fn prepare(work: &mut Switchover, check: ReadOnlyCheck, hand: Hand) -> Result<(), String> {
    let (old, new) = (&mut work.old, &mut work.new);
    only_one(old).await?;
    if is_read_only(old, check).await? {
        return Err(format!("{} is read-only: there is no writer to switch from", old.addr));
    }
    if hand == Hand::Ours {
        if !is_read_only(new, check).await? {
            return Err(format!("{} is not read-only: it is not a replica, or something writes there", new.addr));
        }
        work.gates = Some(Gates { old: Gate::of(old).await?, new: Gate::of(new).await? });
        may_set(old).await?;
        may_set(new).await?;
    }
    follows(old, new).await?;
    if hand == Hand::Ours {
        let reached = work.ask_others(&[], |server| async move { Ok(server) }).await;
        work.others = reached.into_iter().filter_map(|(_, server)| server.ok()).collect();
        nobody_else_writes(work, check).await?;
        work.repoint = repoint::prepare(work).await?;
    }
    let position = position(&mut work.old).await?;
    let limit = work.deadline.saturating_duration_since(Instant::now()).mul_f64(TO_CATCH_UP).max(Duration::from_millis(10));
    let (new, ms) = (work.new.addr.clone(), limit.as_millis());
    match has(&mut work.new, &position, limit).await {
        Ok(true) => Ok(()),
        Ok(false) => {
            Err(format!("{new} does not catch up: after {ms} ms of TIMEOUT it still lacks {}; nothing was changed", position.text))
        }
        Err(why) => Err(format!("{why}; nothing was changed")),
    }
}

/// Other proxies, and clusters that have this server under another name, know nothing of our claims; the server does. It forgets
/// when the connection ends, which may be in a moment, after the order before this one.
async fn only_one(old: &mut Control) -> Result<(), String> {
    if old.value("SELECT GET_LOCK('tidegate.switchover', 1)").await? != "1" {
        return Err(format!("another proxy, or a command with another name of the server, already switches over from {}", old.addr));
    }
    match old.value(&format!("SELECT IS_FREE_LOCK('{}')", heal_lock::ANY)).await?.as_str() {
        "1" => Ok(()),
        _ => Err(format!("another proxy lets a server follow {} (mysql_healing): repeat the command in a moment", old.addr)),
    }
}

/// Whether the new one has within `limit` all that the old one has by now.
pub(super) async fn is_near(work: &mut Switchover, limit: Duration) -> Result<bool, String> {
    let position = position(&mut work.old).await?;
    has(&mut work.new, &position, limit).await
}

/// Everything that touches something.
pub(super) async fn change(work: &mut Switchover, check: ReadOnlyCheck, hand: Hand) -> Result<(), String> {
    let gates = work.gates.clone();
    match (hand, &gates) {
        (Hand::Ours, Some(gates)) => close_old(work, gates).await?,
        _ => wait_for_old(work, check).await?,
    }
    // Reported at once, so that the new writer is not taken for a second one.
    work.old.look(CheckKind::ReadOnly(check)).await?;
    let old = work.old.addr.clone();
    work.note(format!("{old} is read-only"));
    let position = position(&mut work.old).await?;
    reach(&mut work.new, &position, work.deadline).await?;
    let new = work.new.addr.clone();
    work.note(format!("{new} has everything ({})", position.text));
    match (hand, &gates) {
        (Hand::Ours, Some(gates)) => {
            repoint::take_off(work).await?;
            open_new(work, check, gates).await?;
        }
        _ => wait_for_new(work, check).await?,
    }
    work.see(CheckKind::ReadOnly(check)).await
}

async fn is_read_only(server: &mut Control, check: ReadOnlyCheck) -> Result<bool, String> {
    let sql = format!("SELECT {}", check.expression());
    let rows = server.ask(&sql).await?;
    rows.scalar().map(probe::is_read_only).ok_or_else(|| format!("{}: {sql}: the value is missing", server.addr))
}

/// The new one replicates from the old one, and both of its threads run.
pub(super) async fn follows(old: &mut Control, new: &mut Control) -> Result<(), String> {
    let source = identity(old).await?;
    is_replica(new, &old.addr, &source).await
}

/// The id by which its replicas name a server: `server_uuid` or `server_id`.
pub(super) async fn identity(server: &mut Control) -> Result<String, String> {
    server.value(if server.version().is_mariadb { "SELECT @@global.server_id" } else { "SELECT @@global.server_uuid" }).await
}

/// This server replicates from the one with this identity, and both of its threads run.
async fn is_replica(replica: &mut Control, source: &ServerAddr, identity: &str) -> Result<(), String> {
    let id_columns = if replica.version().is_mariadb { ["master_server_id"; 2] } else { ["source_uuid", "master_uuid"] };
    let channels = replica.channels().await?;
    let replica = &replica.addr;
    let Some(channel) = channels.iter().find(|row| id_columns.iter().any(|id| row.text(id) == Some(identity))) else {
        return Err(format!("{replica} is not a replica of {source}"));
    };
    for names in [["slave_io_running", "replica_io_running"], ["slave_sql_running", "replica_sql_running"]] {
        let state = names.iter().find_map(|name| channel.text(name)).unwrap_or("unknown");
        if !is_on(state) {
            return Err(format!("{replica} does not replicate from {source}: {} is {state}", names[1]));
        }
    }
    Ok(())
}

/// Servers of the cluster that do not replicate from the new writer, or do not say so, each with the reason.
pub(super) async fn strays(work: &Switchover) -> Vec<String> {
    let new = work.new.addr.clone();
    // A new connection: the old one may have timed out, this question may block, and the order's deadline has passed.
    let asked = async { identity(&mut work.fresh(&work.plan.new).await?).await };
    let asked = tokio::time::timeout(OTHERS_LIMIT, asked).await;
    let identity = match asked.unwrap_or_else(|_| Err(format!("{new} has not answered in {} ms", OTHERS_LIMIT.as_millis()))) {
        Ok(identity) => identity,
        Err(why) => return vec![format!("the replicas of {new} are unknown: {why}")],
    };
    let ask = move |mut server| {
        let (new, identity) = (new.clone(), identity.clone());
        async move { is_replica(&mut server, &new, &identity).await }
    };
    let answers = work.ask_others(&[&work.plan.old], ask).await;
    answers.into_iter().filter(|(server, _)| !work.spoken_for.contains(server)).filter_map(|(_, answer)| answer.err()).collect()
}

/// How many of a server's own transactions another server lacks. Received ones do not count, as it may receive them again.
pub(super) async fn own_writes_missing(writer: &mut Control, other: &mut Control) -> Result<u64, String> {
    const SET: &str = "SELECT @@global.gtid_executed";
    let id = identity(writer).await?;
    if writer.version().is_mariadb {
        let logged = writer.value("SELECT @@global.gtid_binlog_state").await?;
        let own: Vec<&str> = logged.split(',').filter(|gtid| gtid.trim().split('-').nth(1) == Some(id.as_str())).collect();
        let (own, has) = (GtidSet::parse(&own.join(",")), set(other).await?);
        return own
            .zip(has)
            .map(|(own, has)| own.missing_in(&has))
            .ok_or_else(|| format!("{}: '{logged}' is no set of GTIDs", writer.addr));
    }
    let [wrote, has] = [writer.value(SET).await?, other.value(SET).await?].map(|text| GtidSet::parse(&text));
    let missing = wrote.zip(has).map(|(wrote, has)| wrote.of_source(&id).missing_in(&has));
    missing.ok_or_else(|| format!("{}: {SET}: not a known answer", writer.addr))
}

/// The GTIDs of a server at one moment, to wait for on another one.
pub(super) struct Position {
    /// In words of which a statement for another server may be made; empty when it has nothing.
    pub(super) text: String,
    /// MariaDB only, which waits for numbers: the last number of each server that wrote.
    set: Option<GtidSet>,
}

pub(super) async fn position(server: &mut Control) -> Result<Position, String> {
    // In this order while the server takes writes: a server that has the position then has the set too.
    let set = set(server).await?;
    Ok(Position { text: position_in_words(server).await?, set })
}

/// MariaDB's GTIDs by the server that wrote them; None for MySQL, whose sets are exact.
async fn set(server: &mut Control) -> Result<Option<GtidSet>, String> {
    const SET: &str = "SELECT CONCAT_WS(',', @@global.gtid_binlog_state, @@global.gtid_slave_pos)";
    if !server.version().is_mariadb {
        return Ok(None);
    }
    let text = server.value(SET).await?;
    GtidSet::parse(&text).map(Some).ok_or_else(|| format!("{}: '{text}' is not a set of GTIDs", server.addr))
}

async fn position_in_words(server: &mut Control) -> Result<String, String> {
    let (has_gtids, position) = if server.version().is_mariadb {
        ("SELECT @@global.log_bin", "SELECT IF(@@global.gtid_binlog_pos = '', @@global.gtid_current_pos, @@global.gtid_binlog_pos)")
    } else {
        ("SELECT @@global.gtid_mode = 'ON'", "SELECT @@global.gtid_executed")
    };
    if server.value(has_gtids).await? != "1" {
        return Err(format!("{} writes no GTIDs, so the proxy cannot know when a replica has caught up", server.addr));
    }
    Ok(server.plain(position, "-:,_ \n").await?.replace('\n', ""))
}

/// The new one gets all that the old one has.
pub(super) async fn catch_up(work: &mut Switchover) -> Result<(), String> {
    let position = position(&mut work.old).await?;
    reach(&mut work.new, &position, work.deadline).await?;
    work.note(format!("{} has everything", work.new.addr));
    Ok(())
}

/// Waits until a replica has everything up to `position`.
pub(super) async fn reach(server: &mut Control, position: &Position, until: Instant) -> Result<(), String> {
    let limit = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(10));
    if has(server, position, limit).await? {
        Ok(())
    } else {
        Err(format!("{} does not catch up: after {} ms it still lacks {}", server.addr, limit.as_millis(), position.text))
    }
}

/// Whether a replica has everything up to `position`, or gets it within `limit`. An error when it has gone on without a part of it.
async fn has(server: &mut Control, position: &Position, limit: Duration) -> Result<bool, String> {
    if position.text.is_empty() {
        return Ok(true);
    }
    let text = &position.text;
    let sql = statements::wait(server.version(), text, format_args!("{:.3}", limit.as_secs_f64()));
    if server.value(&sql).await? != "0" {
        return Ok(false);
    }
    // MariaDB accepts any transaction of the domain with this number or a higher one, from any server.
    if let (Some(wanted), Some(has)) = (&position.set, set(server).await?) {
        let lacks = wanted.missing_in(&has);
        if lacks > 0 {
            return Err(format!(
                "{} lacks {lacks} transactions but has higher numbers, so it got writes of its own. The writer has {wanted}; it has {has}",
                server.addr
            ));
        }
    }
    Ok(true)
}

/// Sets `read_only` on the old writer. It waits for writes that are being committed, so its wait is bounded too.
async fn close_old(work: &mut Switchover, gates: &Gates) -> Result<(), String> {
    let connection = work.old.id().await?;
    let left_s = work.deadline.saturating_duration_since(Instant::now()).as_secs().max(1);
    work.old.ask(&format!("SET SESSION lock_wait_timeout={left_s}")).await?;
    // Time has passed since the check. If another program closed it meanwhile, that is a fence.
    is_still(&mut work.old, &gates.old).await?;
    work.will(Done::OldClosed { connection, before: gates.old.clone() });
    Gate::closed(&work.old).set(&mut work.old).await
}

async fn open_new(work: &mut Switchover, check: ReadOnlyCheck, gates: &Gates) -> Result<(), String> {
    let connection = work.new.id().await?;
    nobody_else_writes(work, check).await?;
    let closed = Gate::closed(&work.old);
    is_still(&mut work.old, &closed).await?;
    is_still(&mut work.new, &gates.new).await?;
    work.will(Done::NewOpened { connection, before: gates.new.clone() });
    Gate::open().set(&mut work.new).await
}

/// An error if a third server of the cluster may write. A server that stops answering is not asked again.
async fn nobody_else_writes(work: &mut Switchover, check: ReadOnlyCheck) -> Result<(), String> {
    let (mut asked, deadline) = (JoinSet::new(), work.deadline);
    for mut server in std::mem::take(&mut work.others) {
        let (monitor, known) = (Arc::clone(&work.monitor), work.plan.others.iter().find(|other| other.key.addr() == server.addr).cloned());
        asked.spawn(async move {
            let answer = async {
                match (is_read_only(&mut server, check).await, known) {
                    // The connection may have ended, and the server lives.
                    (Err(_), Some(known)) => {
                        server = Control::open(&monitor, &known, deadline).await?;
                        is_read_only(&mut server, check).await
                    }
                    (answer, _) => answer,
                }
            };
            let answer = tokio::time::timeout(OTHERS_LIMIT, answer).await;
            (server, answer.ok().and_then(Result::ok))
        });
    }
    for (server, answer) in asked.join_all().await {
        match answer {
            Some(true) => work.others.push(server),
            Some(false) => return Err(format!("{} is still writable: the proxy makes no second writer", server.addr)),
            None => {}
        }
    }
    Ok(())
}

/// An error when any server of the cluster but the old one may write, as far as they answer.
async fn nobody_writes(work: &Switchover, check: ReadOnlyCheck) -> Result<(), String> {
    let ask = move |mut server| async move { is_read_only(&mut server, check).await };
    let answers = work.ask_others(&[&work.plan.new], ask).await;
    match answers.into_iter().find(|(_, answer)| *answer == Ok(false)) {
        Some((writable, _)) => Err(format!("{writable} is writable")),
        None => Ok(()),
    }
}

async fn wait_for_old(work: &mut Switchover, check: ReadOnlyCheck) -> Result<(), String> {
    let old = work.old.addr.clone();
    work.note(format!("waiting until {old} is read-only"));
    wait_for(&mut work.old, check, true).await
}

async fn wait_for_new(work: &mut Switchover, check: ReadOnlyCheck) -> Result<(), String> {
    let new = work.new.addr.clone();
    work.note(format!("waiting until {new} is writable"));
    wait_for(&mut work.new, check, false).await
}

async fn wait_for(server: &mut Control, check: ReadOnlyCheck, is_read_only_wanted: bool) -> Result<(), String> {
    while is_read_only(server, check).await? != is_read_only_wanted {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Ok(())
}

/// Undoes [`close_old`], even while it still waits. Not beside another server that may write, and not over another program's value.
pub(super) async fn reopen_old(work: &Switchover, connection: u64, before: &Gate) -> Result<(), String> {
    let mut old = work.fresh(&work.plan.old).await?;
    end(&mut old, connection).await?;
    let now = Gate::of(&mut old).await?;
    if now == *before {
        return Ok(());
    }
    if now != Gate::closed(&old) {
        return Err(format!("{} is left as it is: another program changed its read_only in the meantime", old.addr));
    }
    if let CheckKind::ReadOnly(check) = work.plan.kind() {
        nobody_writes(work, check).await.map_err(|why| format!("{} stays read-only: {why}", old.addr))?;
    }
    before.set(&mut old).await
}

/// Undoes [`open_new`].
pub(super) async fn close_new(work: &Switchover, connection: u64, before: &Gate) -> Result<(), String> {
    let mut new = work.fresh(&work.plan.new).await?;
    end(&mut new, connection).await?;
    if Gate::of(&mut new).await? == *before { Ok(()) } else { before.set(&mut new).await }
}

/// Ends a connection of ours, and waits until nothing that it was told can happen any more.
pub(super) async fn end(server: &mut Control, connection: u64) -> Result<(), String> {
    // Gone, mostly.
    let _ = server.try_ask(&format!("KILL {connection}")).await;
    let id = connection.to_string();
    while server.ask("SHOW PROCESSLIST").await?.iter().any(|row| row.text("id") == Some(id.as_str())) {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Ok(())
}
