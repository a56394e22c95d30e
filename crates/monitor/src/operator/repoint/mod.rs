//! SWITCHOVER and replication (`mysql-switchover_repoints`): the old writer and the other replicas follow the new writer.
//!
//! First everything is read and every privilege checked, without a change. The new writer's channel is stopped before the writer is opened,
//! and started again if the switchover fails. After sessions continue, all servers are pointed at the new writer at the same time. A server
//! that does not follow is put back to its old source and named in the answer. Last, the new writer forgets its channel, but only if the
//! settings name the same account, by which the old writer follows.
//!
//! INVARIANT: nothing is reset before the new writer writes, and an account that exists nowhere else is never reset.

mod channel;
mod follow;
mod judge;
mod semi_sync;

use std::sync::Arc;

use model::ServerAddr;
use model::snapshot::Server;
use tokio::task::JoinSet;
use topology::{Event, EventKind};

use super::control::Control;
use super::replication;
use super::switchover::{OTHERS_LIMIT, Switchover};
use super::undo::Done;
use crate::monitor::Monitor;
use crate::statements::{self, Credentials};
use follow::Job;
use judge::{Part, Scene};
use wire::codes;

pub(super) use channel::{Channel, Node, all as channels};
pub(super) use follow::{NotDone, Pointer, Returning};
pub(super) use judge::{Move, Was};
pub(super) use semi_sync::{Acks, SemiSync};

/// The plan for the servers' replication.
#[derive(Debug)]
pub(super) struct Repoint {
    /// The servers by which the parts were judged.
    scene: Arc<Scene>,
    /// The channel by which the new writer follows the old one.
    taken: Channel,
    credentials: Option<Credentials>,
    /// The new writer's, where its source side is to be switched on; and the old one's.
    semi_sync: Option<(SemiSync, SemiSync)>,
    /// The old writer first.
    parts: Vec<(Arc<Server>, Part)>,
}

impl Repoint {
    /// Whether the new writer stops to follow the old one: not where both follow each other.
    fn takes_off(&self) -> bool {
        self.parts.first().is_some_and(|(_, old)| matches!(old, Part::Moves(_)))
    }

    /// Whether the account of the new writer's channel is the one of the settings, and works: the old writer follows by it. Why not.
    fn has_its_account(&self, outcomes: &[(ServerAddr, Result<(), String>)]) -> Result<(), &'static str> {
        let Some(credentials) = &self.credentials else { return Err("mysql-replication_username is not set") };
        if self.taken.user.as_ref() != Some(&credentials.user) {
            return Err("its account is not known to be mysql-replication_username");
        }
        let made = self.parts.first().filter(|(_, part)| matches!(part, Part::Moves(to) if to.was.is_none()));
        let made = made.map(|(old, _)| old.key.addr());
        if outcomes.iter().any(|(server, outcome)| made.as_ref() == Some(server) && outcome.is_ok()) {
            Ok(())
        } else {
            Err("no new channel has shown that mysql-replication_username works")
        }
    }

    /// Whether any server replicates from the new writer in the end.
    fn is_followed(&self, outcomes: &[(ServerAddr, Result<(), String>)]) -> bool {
        self.parts.iter().any(|(_, part)| *part == Part::Follows) || outcomes.iter().any(|(_, outcome)| outcome.is_ok())
    }

    /// Servers about which this module says what there is to say.
    fn spoken_for(&self) -> Vec<ServerAddr> {
        self.parts.iter().filter(|(_, part)| *part != Part::Follows).map(|(server, _)| server.key.addr()).collect()
    }
}

/// Reads everything and asks for every privilege; None where replication is not ours to change.
pub(super) async fn prepare(work: &mut Switchover) -> Result<Option<Repoint>, String> {
    let (is_wanted, credentials, user) = work.monitor.consult(|snapshot, _| {
        let vars = &snapshot.vars;
        let credentials = (!vars.replication_username.is_empty())
            .then(|| Credentials { user: vars.replication_username.clone(), password: vars.replication_password.clone() });
        (snapshot.effective_in(work.plan.writer).switchover_repoints, credentials, vars.monitor_username.clone())
    });
    if !is_wanted {
        return Ok(None);
    }
    let found = look(work, credentials, &user).await;
    found.map(Some).map_err(|why| {
        format!(
            "{why}. If replication is to stay as it is: SET mysql-switchover_repoints='false' and LOAD MYSQL VARIABLES TO RUNTIME; \
             nothing was changed"
        )
    })
}

async fn look(work: &mut Switchover, credentials: Option<Credentials>, user: &str) -> Result<Repoint, String> {
    let (old, new) = (node(&mut work.old).await?, node(&mut work.new).await?);
    if new.addr.port == 0 {
        return Err(format!("{} is a Unix socket, which no server can follow", new.addr));
    }
    for server in [&mut work.old, &mut work.new] {
        may_repoint(server, credentials.is_some(), user).await?;
    }
    logs_what_it_receives(&mut work.new).await?;
    let members: Vec<ServerAddr> =
        work.plan.others.iter().map(|server| server.key.addr()).chain([old.addr.clone(), new.addr.clone()]).collect();
    let snapshot = work.monitor.snapshot();
    let listed = snapshot.channels.iter().filter(|channel| work.plan.held.contains(&channel.writer));
    let foreign: Vec<Arc<str>> = listed.map(|channel| Arc::clone(&channel.name)).collect();
    let scene = Scene { old, new, members, foreign };
    let taken = judge::taken(&scene, &channel::all(&work.new.channels().await?))?;
    let old_part = judge::old_writer(&scene, &channel::all(&work.old.channels().await?), &taken, credentials.is_some())?;
    let semi_sync = semi_sync_of(work, user).await?;
    let mut parts = vec![(Arc::clone(&work.plan.old), old_part)];
    for mut other in std::mem::take(&mut work.others) {
        let Some(server) = work.plan.others.iter().find(|server| server.key.addr() == other.addr).cloned() else { continue };
        let asked = async {
            may_repoint(&mut other, false, user).await?;
            Ok::<_, String>(judge::replica(&scene, &channel::all(&other.channels().await?)))
        };
        let part = match tokio::time::timeout(OTHERS_LIMIT, asked).await {
            Ok(part) => {
                work.others.push(other);
                part?
            }
            Err(_) => {
                // Its answer may still arrive, and must not be read as another statement's answer.
                drop(other);
                let again = tokio::time::timeout(OTHERS_LIMIT, work.fresh(&server)).await;
                work.others.extend(again.ok().and_then(Result::ok));
                Part::Left(format!("it has not answered in {} ms", OTHERS_LIMIT.as_millis()))
            }
        };
        parts.push((server, part));
    }
    Ok(Repoint { scene: Arc::new(scene), taken, credentials, semi_sync, parts })
}

pub(super) async fn node(server: &mut Control) -> Result<Node, String> {
    Ok(Node { addr: server.addr.clone(), id: replication::identity(server).await? })
}

/// An error that names the missing GRANT.
pub(super) async fn may_repoint(server: &mut Control, forgets: bool, user: &str) -> Result<(), String> {
    let missing = missing_rights(server, forgets).await?;
    if missing.is_empty() {
        return Ok(());
    }
    let grants: Vec<String> = missing.iter().map(|privilege| format!("GRANT {privilege} TO the monitor's user ({user})")).collect();
    Err(format!("the monitor's user may not change replication on {}: {}", server.addr, grants.join("; ")))
}

/// The privileges that are missing to point the server at another one, and with `forgets` to end its replication. The statements name a
/// channel that cannot exist, so they change nothing. An error if the server does not answer.
pub(super) async fn missing_rights(server: &mut Control, forgets: bool) -> Result<Vec<&'static str>, String> {
    let version = server.version().clone();
    let mut asked: Vec<(String, &str)> =
        statements::may_change(&version).into_iter().map(|sql| (sql, statements::privilege(&version))).collect();
    if forgets {
        asked.push((statements::may_forget(&version), statements::FORGET_PRIVILEGE));
    }
    let mut missing = Vec::new();
    for (sql, privilege) in asked {
        match server.try_ask(&sql).await {
            Err(fault) if fault.code() == Some(codes::SPECIFIC_ACCESS_DENIED) => missing.push(privilege),
            Err(fault) if fault.breaks_connection() => return Err(format!("{}: {fault}", server.addr)),
            _ => {}
        }
    }
    missing.dedup();
    Ok(missing)
}

/// Replicated changes must be in the new writer's binary log: its replicas read them there.
async fn logs_what_it_receives(new: &mut Control) -> Result<(), String> {
    const SHOW: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('log_bin', 'log_slave_updates', 'log_replica_updates')";
    let rows = new.ask(SHOW).await?;
    let is_on = |name| rows.named(name).is_some_and(crate::client::is_on);
    if is_on("log_bin") && (is_on("log_slave_updates") || is_on("log_replica_updates")) {
        return Ok(());
    }
    let setting = if new.version().is_mariadb { "log_slave_updates" } else { "log_replica_updates" };
    Err(format!("{} does not log replicated changes ({setting}), so no replica could follow this server", new.addr))
}

/// Both sides, where they are to change.
async fn semi_sync_of(work: &mut Switchover, user: &str) -> Result<Option<(SemiSync, SemiSync)>, String> {
    let (old, new) = (SemiSync::of(&mut work.old).await?, SemiSync::of(&mut work.new).await?);
    let (Some(of_old), Some(of_new)) = (old, new) else { return Ok(None) };
    if !SemiSync::moves(old, new) {
        return Ok(None);
    }
    of_new.may_set(&mut work.new, user).await?;
    of_old.may_set(&mut work.old, user).await?;
    Ok(Some((of_new, of_old)))
}

/// Stops the new writer's channel, and makes it wait for acknowledgements as the old one did. It has everything, and is not open yet.
pub(super) async fn take_off(work: &mut Switchover) -> Result<(), String> {
    let Some(repoint) = work.repoint.as_ref().filter(|repoint| repoint.takes_off()) else { return Ok(()) };
    let (name, semi_sync) = (repoint.taken.link.name.clone(), repoint.semi_sync.map(|(new, _)| new));
    let connection = work.new.id().await?;
    work.will(Done::TakenOff { connection, name: name.clone(), semi_sync });
    let stop = statements::stop(work.new.version(), &name);
    work.new.tell(&stop, "its channel is stopped").await?;
    if let Some(semi_sync) = semi_sync {
        semi_sync.set_source(&mut work.new, true).await?;
    }
    work.note(format!("{} follows nobody", work.new.addr));
    Ok(())
}

/// Undoes [`take_off`].
pub(super) async fn put_on(work: &Switchover, connection: u64, name: &str, semi_sync: Option<SemiSync>) -> Result<(), String> {
    let mut new = work.fresh(&work.plan.new).await?;
    replication::end(&mut new, connection).await?;
    if let Some(semi_sync) = semi_sync {
        semi_sync.set_source(&mut new, false).await?;
    }
    let start = statements::start(new.version(), name);
    new.tell(&start, "its channel is started").await
}

/// Points all servers at the new writer, which writes by now. Returns warnings about servers that do not follow.
pub(super) async fn follow(work: &mut Switchover) -> Vec<String> {
    let Some(repoint) = work.repoint.take() else { return Vec::new() };
    work.spoken_for = repoint.spoken_for();
    let mut jobs = JoinSet::new();
    let mut outcomes = Vec::new();
    for (server, part) in &repoint.parts {
        match part {
            Part::Follows | Part::Chain => {}
            Part::Left(why) => outcomes.push((server.key.addr(), Err(why.clone()))),
            Part::Moves(to) => {
                let pointer = Pointer {
                    monitor: Arc::clone(&work.monitor),
                    server: Arc::clone(server),
                    new: repoint.scene.new.clone(),
                    to: to.clone(),
                    taken: repoint.taken.clone(),
                    credentials: repoint.credentials.clone(),
                    semi_sync: repoint.semi_sync.map(|(_, old)| old),
                    settles: follow::SETTLED,
                    tenure: None,
                    returning: None,
                };
                let job = Job { pointer, new_server: Arc::clone(&work.plan.new), scene: Arc::clone(&repoint.scene) };
                jobs.spawn(async move { (job.pointer.server.key.addr(), job.run().await) });
            }
        }
    }
    outcomes.extend(jobs.join_all().await);
    let has_account = repoint.has_its_account(&outcomes);
    let unfollowed = repoint.semi_sync.map(|(new, _)| new).filter(|_| repoint.takes_off() && !repoint.is_followed(&outcomes));
    outcomes.sort_by(|(one, _), (other, _)| one.cmp(other));
    let mut warnings = Vec::new();
    let new = &repoint.scene.new.addr;
    for (server, outcome) in outcomes {
        work.monitor.note_follower(work, &server, &outcome);
        match outcome {
            Ok(()) => work.note(format!("{server} follows {new}")),
            Err(why) => warnings.push(format!("{server} does not follow {new}: {why}")),
        }
    }
    if let Some(semi_sync) = unfollowed {
        warnings.push(wait_for_nobody(work, semi_sync).await);
    }
    warnings.extend(forget(work, &repoint, has_account).await);
    warnings
}

/// No replica would acknowledge the new writer's commits, so the source side is switched off. Returns the warning.
async fn wait_for_nobody(work: &Switchover, semi_sync: SemiSync) -> String {
    let new = work.plan.new.key.addr();
    let told = async { semi_sync.set_source(&mut work.fresh(&work.plan.new).await?, false).await };
    let told = tokio::time::timeout(OTHERS_LIMIT, told).await;
    match told.unwrap_or_else(|_| Err(format!("{new} has not answered in {} ms", OTHERS_LIMIT.as_millis()))) {
        Ok(()) => format!("no server follows {new}, so its semi-synchronous replication is off: switch it on when a replica follows"),
        Err(why) => format!("no server follows {new}, so its commits may wait for acknowledgements: {why}"),
    }
}

/// The new writer forgets its stopped channel, which a restart would start. Not where its account may exist nowhere else.
async fn forget(work: &mut Switchover, repoint: &Repoint, has_account: Result<(), &str>) -> Option<String> {
    if !repoint.takes_off() {
        return None;
    }
    let (new, name) = (&repoint.scene.new.addr, &repoint.taken.link.name);
    if let Err(why) = has_account {
        work.note(format!("channel '{name}' of {new} stays there, stopped, as {why}"));
        return None;
    }
    let told = async {
        // The connection from before may have been idle for too long.
        let mut server = work.fresh(&work.plan.new).await?;
        let sql = statements::forget(server.version(), name);
        server.tell(&sql, "its stopped channel is forgotten").await
    };
    let told = tokio::time::timeout(follow::LIMIT, told).await;
    match told.unwrap_or_else(|_| Err(format!("{new} has not answered in {} s", follow::LIMIT.as_secs()))) {
        Ok(()) => None,
        Err(why) => Some(format!("{why}; a restart of {new} would start channel '{name}': RESET it")),
    }
}

impl Monitor {
    /// Whether a server follows the new writer.
    fn note_follower(&self, work: &Switchover, server: &ServerAddr, outcome: &Result<(), String>) {
        let new = work.plan.new.key.addr();
        let to = if outcome.is_ok() { format!("follows {new}") } else { format!("does not follow {new}") };
        let seen = outcome.as_ref().err().cloned().unwrap_or_default();
        let kind = EventKind::Order;
        let event = self.order_event(Some(work.plan.writer), "", &to);
        self.note(vec![Event { server: Some(server.clone()), kind, seen, ..event }]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::server;

    fn repoint(user: Option<&str>, was: Option<Was>) -> Repoint {
        let old = server("old", 1);
        let to = Move { name: String::new(), was, is_old: true };
        let node = |host: &str| Node { addr: ServerAddr { host: host.into(), port: 1 }, id: format!("id-{host}") };
        let scene = Scene { old: node("old"), new: node("new"), members: Vec::new(), foreign: Vec::new() };
        Repoint {
            scene: Arc::new(scene),
            taken: Channel { user: user.map(str::to_owned), ..Channel::default() },
            credentials: Some(Credentials { user: "repl".into(), password: "x".into() }),
            semi_sync: None,
            parts: vec![(old, Part::Moves(to))],
        }
    }

    #[test]
    fn a_writer_without_followers_is_known() {
        let old = ServerAddr { host: "old".into(), port: 1 };
        let mut repoint = repoint(None, None);
        assert!(repoint.is_followed(&[(old.clone(), Ok(()))]));
        let refused = [(old, Err("no".to_owned()))];
        assert!(!repoint.is_followed(&refused));
        repoint.parts.push((server("c", 1), Part::Chain));
        assert!(!repoint.is_followed(&refused));
        repoint.parts.push((server("d", 1), Part::Follows));
        assert!(repoint.is_followed(&refused));
    }

    #[test]
    fn a_channel_is_forgotten_only_if_its_account_is_seen_to_work() {
        let old = ServerAddr { host: "old".into(), port: 1 };
        let follows = [(old.clone(), Ok(()))];
        assert_eq!(repoint(Some("repl"), None).has_its_account(&follows), Ok(()));
        let refused = [(old.clone(), Err("no".to_owned()))];
        assert!(repoint(Some("repl"), None).has_its_account(&refused).is_err(), "the account does not work");
        assert!(repoint(Some("repl"), None).has_its_account(&[]).is_err());
        assert!(repoint(Some("other"), None).has_its_account(&follows).is_err(), "another account");
        assert!(repoint(None, None).has_its_account(&follows).is_err(), "an unknown account");
        let was = Was { source: old, runs: false };
        assert!(repoint(Some("repl"), Some(was)).has_its_account(&follows).is_err(), "an account of its own");
        let without = Repoint { credentials: None, ..repoint(Some("repl"), None) };
        assert_eq!(without.has_its_account(&follows), Err("mysql-replication_username is not set"));
    }
}
