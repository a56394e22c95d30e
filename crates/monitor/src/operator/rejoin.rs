//! Takes one server back (`mysql_healing`, mode `rejoin`): a former writer is closed and its clients are ended; then the server is compared
//! with the writer, and only if it has nothing else it is pointed there and watched.
//!
//! INVARIANT: nothing is reset, and a server is pointed only after a proof that was read within the same claim and under the same locks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use model::snapshot::{HealingMode, Server};
use model::{HostgroupId, ServerAddr};
use topology::healing::{Holding, Proof, prove};
use topology::{Fork, GtidSet, ServerId};

use super::claim::{Claim, Work};
use super::control::Control;
use super::gate::{Gate, may_set};
use super::heal_lock::HealLock;
use super::plan::writers;
use super::repoint::{self, Channel, Move, NotDone, Pointer, Returning, SemiSync, Was};
use crate::channels::ThreadState;
use crate::healing::Sight;
use crate::monitor::Monitor;
use crate::statements::Credentials;
use wire::codes;

/// Longest that everything before the channel is pointed may take.
const LIMIT: Duration = Duration::from_secs(30);
/// A server that was pointed at the writer is watched for so long.
const WATCHED: Duration = Duration::from_secs(10);
/// Closing waits for a running write for so long at a time, s; then it is ended.
const CLOSE_WAIT_S: u32 = 2;
/// And for so long while they are ended, s.
const CLOSE_LONG_S: u32 = 10;
/// How often that is done.
const CLOSE_ATTEMPTS: u32 = 3;
/// Its GTIDs have to stand still for so long.
const STANDS_STILL: Duration = Duration::from_millis(500);
/// Time between looks at its sessions.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
const OPENED: &str = "another program has opened it (read_only=0) meanwhile";
const IS_SWITCHING: &str = "SELECT IS_FREE_LOCK('tidegate.switchover')";

/// A server to take back.
#[derive(Debug)]
pub(crate) struct Rejoin {
    pub(crate) hostgroup: HostgroupId,
    pub(crate) server: Arc<Server>,
    /// Whom it is to follow.
    pub(crate) writer: Arc<Server>,
    /// Other servers that answer and follow the writer: a new channel gets the TLS options of one of them.
    pub(crate) followers: Vec<Arc<Server>>,
    /// Other servers answer that have a channel within the cluster.
    pub(crate) has_replicas: bool,
    /// Another server was seen to take over from it. That it is kept out does not say so.
    pub(crate) has_stepped_down: bool,
    /// All servers of the cluster.
    pub(crate) members: Vec<ServerAddr>,
    /// What the other members call themselves.
    pub(crate) others: Vec<ServerId>,
    /// Channels from other clusters.
    pub(crate) foreign: Vec<Arc<str>>,
    /// It wrote under an earlier role: it is closed first.
    pub(crate) is_former: bool,
    /// What the writer had when it took over.
    pub(crate) fork: Option<Fork>,
    /// An operator ordered it: the mode does not count.
    pub(crate) is_ordered: bool,
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It follows the writer.
    Follows,
    /// It was closed and its clients were ended, and it is not proved clean: it stays out.
    Stays(Proof),
    /// Somebody else is at work: nothing was changed.
    Postponed(String),
    /// It does not follow; why. It may be closed by now.
    Failed(String),
}

impl From<NotYet> for Outcome {
    fn from(why: NotYet) -> Self {
        match why {
            NotYet::Postponed(why) => Self::Postponed(why),
            NotYet::Failed(why) => Self::Failed(why),
        }
    }
}

enum NotYet {
    Postponed(String),
    Failed(String),
}

impl From<String> for NotYet {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// See the module. On the monitor's thread.
pub(crate) async fn run(monitor: &Arc<Monitor>, rejoin: &Rejoin) -> Outcome {
    let _claim = match Claim::take(monitor, rejoin.hostgroup, Work::Rejoin) {
        Ok(claim) => claim,
        Err(why) => return Outcome::Postponed(why),
    };
    let prepared = tokio::time::timeout(LIMIT, prepare(monitor, rejoin)).await;
    let (mut server, _writer, pointer) = match prepared {
        Err(_) => return Outcome::Failed(format!("a server has not answered in {} s", LIMIT.as_secs())),
        Ok(Err(why)) => return why.into(),
        Ok(Ok(Err(proof))) => return Outcome::Stays(proof),
        Ok(Ok(Ok(prepared))) => prepared,
    };
    let work = async { pointer.point_and_watch(&mut server).await.map_err(NotDone::Touched) };
    match pointer.limited(work).await {
        Ok(()) => Outcome::Follows,
        Err(NotDone::Untouched(why)) => Outcome::Failed(why),
        Err(NotDone::Touched(why)) => {
            // It holds the locks, which a new connection takes.
            drop(server);
            Outcome::Failed(pointer.undo(why).await)
        }
    }
}

/// Everything before the channel is touched; the proof if it does not say that the server is clean. Both connections hold their lock.
async fn prepare(monitor: &Arc<Monitor>, rejoin: &Rejoin) -> Result<Result<(Control, Control, Pointer), Proof>, NotYet> {
    let deadline = Instant::now() + LIMIT * 2;
    let mut writer = Control::open(monitor, &rejoin.writer, deadline).await?;
    let mut server = Control::open(monitor, &rejoin.server, deadline).await?;
    // The writer too.
    let lock = HealLock::of(monitor, rejoin.hostgroup);
    for one in [&mut writer, &mut server] {
        if let Some(busy) = lock.take(one, None).await? {
            return Err(NotYet::Postponed(busy));
        }
    }
    still_writes(monitor, rejoin, &mut writer).await?;
    let (user, credentials) = accounts(monitor);
    let is_made = own_channels(rejoin, &repoint::channels(&server.channels().await?)).is_empty();
    repoint::may_repoint(&mut server, is_made, &user).await?;
    let was = Gate::of(&mut server).await?;
    if rejoin.is_former {
        may_set(&mut server).await?;
        has_witness(rejoin)?;
        close(monitor, rejoin, (&mut server, &mut writer), &user).await?;
        monitor.note_rejoin(rejoin.hostgroup, &rejoin.server.key.addr(), "closed", "it is read-only, and its clients are ended next");
        still_writes(monitor, rejoin, &mut writer).await?;
        end_clients(&mut server, &user, &AtomicBool::new(true)).await?;
    } else if was.is_open() {
        return Err(NotYet::Failed("it is writable (read_only=0), so it cannot be compared with the writer".to_owned()));
    }
    let proof = compare(rejoin, &mut server, &mut writer).await?;
    if proof != Proof::Clean {
        return Ok(Err(proof));
    }
    let (to, taken) = channel(rejoin, &mut server, credentials.is_some()).await?;
    let taken = if to.was.is_none() { like_others(monitor, rejoin, &mut writer, deadline).await } else { taken };
    let semi_sync = semi_sync(&mut server, &mut writer, &user).await?;
    still_writes(monitor, rejoin, &mut writer).await?;
    let new = repoint::node(&mut writer).await?;
    let now = Gate::of(&mut server).await?;
    if now.is_open() || (rejoin.is_former && !is_shut(&server, &now)) {
        return Err(NotYet::Failed(OPENED.to_owned()));
    }
    let returning = Some(Returning { lock, connection: server.id().await? });
    let (monitor, to_change, settles, tenure) = (Arc::clone(monitor), Arc::clone(&rejoin.server), WATCHED, None);
    let pointer = Pointer { monitor, server: to_change, new, to, taken, credentials, semi_sync, settles, tenure, returning };
    Ok(Ok((server, writer, pointer)))
}

fn accounts(monitor: &Monitor) -> (String, Option<Credentials>) {
    let snapshot = monitor.snapshot();
    let vars = &snapshot.vars;
    let credentials = (!vars.replication_username.is_empty())
        .then(|| Credentials { user: vars.replication_username.clone(), password: vars.replication_password.clone() });
    (vars.monitor_username.clone(), credentials)
}

/// A remembered writer is no writer: it must say so, the proxy must see no other one, and the operator must still want this.
async fn still_writes(monitor: &Monitor, rejoin: &Rejoin, writer: &mut Control) -> Result<(), NotYet> {
    let postponed = |why: &str| Err(NotYet::Postponed(why.to_owned()));
    let (is_wanted, now) = monitor.consult(|snapshot, layout| {
        let is_wanted = snapshot.healing.get(&rejoin.hostgroup);
        let is_wanted = is_wanted.is_some_and(|row| row.mode.takes_back() || (rejoin.is_ordered && row.mode != HealingMode::Off));
        (is_wanted, writers(layout, rejoin.hostgroup))
    });
    let is_alone = now.len() == 1 && now.iter().all(|server| server.key.addr() == writer.addr);
    match () {
        () if !is_wanted => return postponed("mysql_healing does not ask for it any more"),
        () if !is_alone => return postponed("another server writes now"),
        () if writer.value(IS_SWITCHING).await? != "1" => return postponed("another proxy switches over"),
        () => {}
    }
    if Gate::of(writer).await?.is_open() { Ok(()) } else { postponed("the writer is read-only now") }
}

/// A writer that none of the answering replicas follows may not be the cluster's. Without replicas, the server must have been seen to step
/// down: a proxy that is cut off keeps the promoted server out, not the old one.
fn has_witness(rejoin: &Rejoin) -> Result<(), NotYet> {
    let (server, writer) = (rejoin.server.key.addr(), rejoin.writer.key.addr());
    let why = match () {
        () if !rejoin.followers.is_empty() => return Ok(()),
        () if rejoin.has_replicas => format!("no replica that answers follows {writer}"),
        () if !rejoin.has_stepped_down => {
            format!("no replica follows {writer}, and the proxy did not see a server take over from {server}")
        }
        () => return Ok(()),
    };
    Err(NotYet::Postponed(why))
}

/// Whoever holds it up is ended: on a former writer nothing that begins now may be kept. Each step needs a writer that still writes.
async fn close(monitor: &Arc<Monitor>, rejoin: &Rejoin, (server, writer): (&mut Control, &mut Control), user: &str) -> Result<(), NotYet> {
    server.ask(&format!("SET SESSION lock_wait_timeout={CLOSE_WAIT_S}")).await?;
    let closed = Gate::closed(server);
    let mut why = String::new();
    let mut was_closed = false;
    for _ in 0..CLOSE_ATTEMPTS {
        let now = Gate::of(server).await?;
        if is_shut(server, &now) {
            return Ok(());
        }
        if was_closed && now.is_open() {
            return Err(NotYet::Postponed(OPENED.to_owned()));
        }
        still_writes(monitor, rejoin, writer).await?;
        let outcome = closed.set(server).await;
        was_closed = outcome.is_ok() || !now.is_open();
        if let Err(fault) = outcome {
            why = fault;
            still_writes(monitor, rejoin, writer).await?;
            close_beside(monitor, rejoin, server, user).await?;
        }
    }
    Err(NotYet::Failed(why))
}

/// Ends the clients that hold the closing up while it waits on another connection. A client that comes back meanwhile waits behind it and
/// finds a closed server. INVARIANT: commits that wait for acknowledgements return only where no client can write any more, and theirs are gone.
async fn close_beside(monitor: &Arc<Monitor>, rejoin: &Rejoin, server: &mut Control, user: &str) -> Result<(), NotYet> {
    let mut other = Control::open(monitor, &rejoin.server, Instant::now() + LIMIT).await?;
    other.ask(&format!("SET SESSION lock_wait_timeout={CLOSE_LONG_S}")).await?;
    let (id, closed, holds) = (other.id().await?, Gate::closed(server), AtomicBool::new(true));
    let closing = async {
        let outcome = closed.set(&mut other).await;
        holds.store(outcome.is_ok(), Ordering::Release);
        outcome
    };
    let ending = async {
        // The closing is the server's business for a second: it waits for those that are there, and nobody new writes.
        while holds.load(Ordering::Acquire) {
            let rows = server.ask("SHOW FULL PROCESSLIST").await?;
            let own = rows.iter().find(|row| row.number("id") == Some(id));
            if own.is_some_and(|row| row.text("command") == Some("Query") && row.number("time").is_some_and(|seconds| seconds >= 1)) {
                break;
            }
            let now = Gate::of(server).await?;
            if is_shut(server, &now) {
                return Ok(());
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        end_clients(server, user, &holds).await
    };
    // Where the closing failed, the caller tries again.
    tokio::join!(closing, ending).1
}

/// Closed as a former writer has to be. MariaDB has more words for it from 12 on.
fn is_shut(server: &Control, now: &Gate) -> bool {
    *now == Gate::closed(server) || (server.version().is_mariadb && !now.is_open())
}

/// Ends the sessions of all clients that are there now: those that come later find a closed server. Then it stands still.
/// `is_held`: no client can write, or will not be able to before a commit that waits for an acknowledgement returns.
async fn end_clients(server: &mut Control, user: &str, is_held: &AtomicBool) -> Result<(), NotYet> {
    let own = server.id().await?;
    let is_client = |row: &crate::client::Row<'_>| is_client(row.text("user"), row.text("command"), user);
    let rows = server.ask("SHOW FULL PROCESSLIST").await?;
    let ids: Vec<u64> = rows.iter().filter(is_client).filter_map(|row| row.number("id")).filter(|id| *id != own).collect();
    for id in &ids {
        match server.try_do("a client is ended", &format!("KILL {id}")).await {
            Ok(_) => {}
            Err(fault) if fault.code() == Some(codes::NO_SUCH_THREAD) => {}
            Err(fault) => {
                let needed = "CONNECTION ADMIN (MariaDB), CONNECTION_ADMIN and, for users who have it, SYSTEM_USER (MySQL)";
                return Err(NotYet::Failed(format!("{}: KILL {id}: {fault}; the monitor's user needs {needed}", server.addr)));
            }
        }
    }
    let mut is_released = false;
    loop {
        let rows = server.ask("SHOW FULL PROCESSLIST").await?;
        let left = || rows.iter().filter(|row| row.number("id").is_some_and(|id| ids.contains(&id)));
        if left().next().is_none() {
            return Ok(());
        }
        // MySQL: a session that waits for an acknowledgement ends only when it comes, or when nothing waits any more. Its client is gone.
        if !is_released
            && is_held.load(Ordering::Acquire)
            && left().all(|row| row.text("command").is_some_and(|command| command.eq_ignore_ascii_case("Killed")))
        {
            is_released = true;
            if let Some(own) = SemiSync::of(server).await?.filter(|own| own.is_source()) {
                own.set_source(server, false).await?;
            }
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Not one of the server's own threads, no replica, and not this or another proxy's monitor, which only reads.
fn is_client(user: Option<&str>, command: Option<&str>, monitor: &str) -> bool {
    let is_own = matches!(user, None | Some("" | "system user" | "event_scheduler")) || user == Some(monitor);
    let is_service = command.is_some_and(|command| command.starts_with("Binlog Dump") || command == "Daemon");
    !is_own && !is_service
}

/// The server first, when its GTIDs stand still; then the writer, so that what it has by then counts.
async fn compare(rejoin: &Rejoin, server: &mut Control, writer: &mut Control) -> Result<Proof, NotYet> {
    let mut has = server.sight().await?;
    loop {
        tokio::time::sleep(STANDS_STILL).await;
        let before = std::mem::replace(&mut has, server.sight().await?);
        // A replica goes on to apply what it received, which counts already.
        if !rejoin.is_former || before.executed == has.executed {
            break;
        }
    }
    let has = holding(&has, &rejoin.foreign, rejoin.is_former);
    let new = writer.sight().await?;
    let mut new = holding(&new, &rejoin.foreign, true);
    if new.version.is_mariadb {
        new.purged = purged(writer).await;
    }
    Ok(prove(&has, &new, rejoin.fork.as_ref(), &rejoin.others, rejoin.is_former))
}

/// What it received counts too: a channel that is pointed elsewhere forgets what is not applied. `wrote`: it takes writes, or took them.
fn holding(sight: &Sight, foreign: &[Arc<str>], wrote: bool) -> Holding {
    let is_own = |name: &str| !foreign.iter().any(|foreign| foreign.eq_ignore_ascii_case(name));
    let own = sight.channels.iter().filter(|line| is_own(&line.channel.name));
    Holding {
        id: sight.id.clone(),
        version: sight.version,
        executed: own.fold(sight.executed.clone(), |all, line| all.with(&line.received)),
        purged: sight.purged.clone(),
        tells: sight.has_gtids && (sight.logs || !(sight.version.is_mariadb || wrote)),
        is_strict: sight.is_strict,
    }
}

/// MariaDB: what happened before its oldest binary log begins, by the list at its head. Empty where it is not shown: a server that asks for
/// more gets error 1236 then, and is put back.
async fn purged(writer: &mut Control) -> GtidSet {
    let read = async {
        let logs = writer.ask("SHOW BINARY LOGS").await?;
        let name = logs.scalar().unwrap_or_default().to_owned();
        if !name.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c)) {
            return Ok(GtidSet::default());
        }
        let events = writer.ask(&format!("SHOW BINLOG EVENTS IN '{name}' LIMIT 4")).await?;
        let list = events.iter().find(|row| row.text("event_type") == Some("Gtid_list"));
        let list = list.and_then(|row| row.text("info").map(|info| info.trim_matches(['[', ']']).to_owned()));
        Ok::<_, String>(list.and_then(|list| GtidSet::parse(&list)).unwrap_or_default())
    };
    read.await.unwrap_or_default()
}

/// Channels that are not from other clusters.
fn own_channels<'a>(rejoin: &Rejoin, all: &'a [Channel]) -> Vec<&'a Channel> {
    let is_foreign = |channel: &&Channel| rejoin.foreign.iter().any(|name| name.eq_ignore_ascii_case(&channel.link.name));
    all.iter().filter(|channel| !is_foreign(channel)).collect()
}

/// The channel to be pointed: its only one within the cluster, or a new one without a name.
async fn channel(rejoin: &Rejoin, server: &mut Control, has_account: bool) -> Result<(Move, Channel), NotYet> {
    let all = repoint::channels(&server.channels().await?);
    let own = own_channels(rejoin, &all);
    let failed = |why: String| Err(NotYet::Failed(why));
    match own[..] {
        [] if all.iter().any(|channel| channel.link.name.is_empty()) => {
            failed("its channel without a name is from another cluster".to_owned())
        }
        [] if !has_account => failed(
            "it has no account to follow the writer with: set mysql-replication_username and mysql-replication_password to the account of \
             the replicas"
                .to_owned(),
        ),
        [] => Ok((Move { name: String::new(), was: None, is_old: true }, Channel::default())),
        [one] => {
            let source = one.link.source.clone().filter(|_| rejoin.members.iter().any(|member| one.is_at(member)));
            let Some(source) = source else {
                return failed(format!("its channel '{}' is from a server that is not of the cluster", one.link.name));
            };
            if one.link.applier.state == ThreadState::Stopped
                && let Some((code, text)) = &one.link.applier.error
            {
                return failed(format!("its applier has stopped: {text} (error {code})"));
            }
            // Naming the source resets a file and a position to the first log. A former writer goes over to GTIDs.
            if !one.is_by_gtid && !rejoin.is_former {
                return failed(format!("its channel '{}' works by file and position: switch it to GTIDs", one.link.name));
            }
            let runs = [&one.link.receiver, &one.link.applier].iter().all(|thread| thread.state != ThreadState::Stopped);
            let was = Some(Was { source, runs });
            Ok((Move { name: one.link.name.clone(), was, is_old: rejoin.is_former }, one.clone()))
        }
        _ => failed("it has several channels within the cluster".to_owned()),
    }
}

/// Retry interval and TLS options of a server that follows the writer already; those of a new channel where none does.
async fn like_others(monitor: &Arc<Monitor>, rejoin: &Rejoin, writer: &mut Control, deadline: Instant) -> Channel {
    let Ok(node) = repoint::node(writer).await else { return Channel::default() };
    for follower in &rejoin.followers {
        let Ok(mut follower) = Control::open(monitor, follower, deadline).await else { continue };
        let Ok(rows) = follower.channels().await else { continue };
        if let Some(channel) = repoint::channels(&rows).into_iter().find(|channel| channel.is_from(&node)) {
            return channel;
        }
    }
    Channel::default()
}

/// Its clients are ended by now: nobody gets a false acknowledgement.
async fn semi_sync(server: &mut Control, writer: &mut Control, user: &str) -> Result<Option<SemiSync>, NotYet> {
    let (Some(own), of_writer) = (SemiSync::of(server).await?, SemiSync::of(writer).await?) else { return Ok(None) };
    if !own.must_follow(of_writer) {
        return Ok(None);
    }
    own.may_set(server, user).await?;
    Ok(Some(own))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::server;

    #[test]
    fn a_server_that_is_only_kept_out_is_not_closed() {
        let why = |has_follower: bool, has_replicas, has_stepped_down| {
            let rejoin = Rejoin {
                hostgroup: HostgroupId(10),
                server: server("b", 1),
                writer: server("a", 1),
                followers: has_follower.then(|| server("c", 1)).into_iter().collect(),
                has_replicas,
                has_stepped_down,
                members: Vec::new(),
                others: Vec::new(),
                foreign: Vec::new(),
                is_former: true,
                fork: None,
                is_ordered: false,
            };
            match has_witness(&rejoin) {
                Ok(()) => String::new(),
                Err(NotYet::Postponed(why) | NotYet::Failed(why)) => why,
            }
        };
        for has_stepped_down in [false, true] {
            assert_eq!(why(true, true, has_stepped_down), "");
            assert_eq!(why(false, true, has_stepped_down), "no replica that answers follows a:1");
        }
        assert_eq!(why(false, false, true), "");
        assert_eq!(why(false, false, false), "no replica follows a:1, and the proxy did not see a server take over from b:1");
    }

    #[test]
    fn clients_are_told_from_services() {
        let is = |user, command| is_client(Some(user), Some(command), "monitor");
        assert!(is("app", "Sleep") && is("root", "Query") && is("unauthenticated user", "Connect"));
        assert!(!is("system user", "Slave_SQL") && !is("event_scheduler", "Daemon") && !is("monitor", "Sleep"));
        assert!(!is("repl", "Binlog Dump") && !is("repl", "Binlog Dump GTID"));
        assert!(!is_client(None, Some("Daemon"), "monitor"));
    }
}
