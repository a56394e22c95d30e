//! START REHEARSAL: whether the shadow replicates. In mode `all` a replica leaves replication at a known position and takes writes, while
//! the sessions of its cluster wait.
//!
//! The steps: check everything that can be checked without a change. Hold the source's hostgroup until nothing runs there. Let the shadow
//! apply what the writer has, stop its channel, make it writable, begin. If a step fails, the steps before are undone in reverse.
//! INVARIANT: after a success the shadow's channel is never started by the proxy: the shadow is a database of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use model::fleet::{Layout, ShadowOrder, ShadowState, Told};
use model::snapshot::{RoleKind, Server, ServerStatus, Snapshot};
use model::{HostgroupId, ServerAddr};
use topology::Event;

use super::claim::{Claim, Work};
use super::control::Control;
use super::gate::{Gate, may_set};
use super::repoint::{channels, may_repoint};
use super::switchover::BRIEF;
use super::{HoldGuard, LOOK_AGAIN, Reason, replication};
use crate::clock::unix_us;
use crate::monitor::{Monitor, Running, lock};
use crate::statements;

/// The state that the event of a shadow has which left replication.
const LEFT: &str = "left replication";
/// How long a look at a shadow's replication may take.
const LOOK_WITHIN: Duration = Duration::from_secs(5);
/// How long undoing may take.
const UNDO_WITHIN: Duration = Duration::from_secs(10);
/// Looks at a session that keeps its connection, before it counts as an obstacle.
const LOOKS: u32 = 5;
/// The part of its time for which sessions may wait.
const FOR_CLIENTS: u32 = 2;

/// The two servers of a rehearsal.
struct Pair {
    writer: Arc<Server>,
    shadow: Arc<Server>,
    user: String,
    /// How long sessions may wait.
    patience: Duration,
}

/// What was changed on the shadow.
#[derive(Default)]
struct Changed {
    /// The channel that was stopped.
    stopped: Option<String>,
    /// `read_only` before it was cleared.
    gate: Option<Gate>,
}

impl Monitor {
    /// Carries out the order. An event says what became of it.
    pub(super) async fn detach(self: &Arc<Self>, running: &Running, order: ShadowOrder) -> Result<Told, String> {
        let (source, hostgroup) = (order.source, order.shadow);
        let begun = Instant::now();
        let limit = self.timeout(None);
        let _claim = Claim::take(self, source, Work::Rehearsal)?;
        let pair = self.consult(|snapshot, layout| pair(snapshot, layout, source, hostgroup, limit))?;
        let deadline = begun + limit;
        let mut writer = Control::open(self, &pair.writer, deadline).await?;
        let mut shadow = Control::open(self, &pair.shadow, deadline).await?;
        let checked = tokio::time::timeout_at(deadline.into(), check(&mut writer, &mut shadow, &pair, deadline)).await;
        let channel = checked.unwrap_or_else(|_| Err(format!("the servers have not answered within {} ms", limit.as_millis())))?;
        if running.fleet.in_use(&shadow.addr, None) > 0 {
            return Err(format!("{} is in use: sessions run statements on it", shadow.addr));
        }
        self.is_unbound(running, source).await?;
        let held_since = Instant::now();
        let hold = HoldGuard::for_reason(self, &[source], Reason::Rehearsal)?;
        let until = (held_since + pair.patience).min(deadline);
        let mut changed = Changed::default();
        let steps = async {
            quiet(running, source, until).await?;
            leave(&mut writer, &mut shadow, &channel, until, &mut changed).await
        };
        let outcome = tokio::time::timeout_at((until + BRIEF).into(), steps).await;
        let outcome = outcome.unwrap_or_else(|_| Err(format!("not done while sessions could wait ({} ms)", pair.patience.as_millis())));
        let outcome = outcome.and_then(|position| (order.begin)().map(|text| (position, text)));
        let held_ms = held_since.elapsed().as_millis();
        let addr = shadow.addr.clone();
        let (position, text) = match outcome {
            Ok(done) => done,
            Err(why) => {
                // Sessions do not need the shadow.
                drop((shadow, hold));
                let undone = tokio::time::timeout(UNDO_WITHIN, self.undo(&pair.shadow, &changed)).await;
                return Err(match undone.unwrap_or_else(|_| Err("the server did not answer".to_owned())) {
                    Ok(()) => format!("{why}; everything is as before"),
                    Err(error) => format!("{why}; WARNING: {addr} is NOT as before: {error}"),
                });
            }
        };
        drop(hold);
        let seen = format!("{addr} left replication at {position}: rebuild it before it replicates again");
        let event = self.order_event(Some(source), "replicates", LEFT);
        self.note(vec![Event { server: Some(addr), seen: seen.clone(), why: "START REHEARSAL in mode all".to_owned(), ..event }]);
        Ok(Told { text: format!("{text}; sessions waited {held_ms} ms; WARNING: {seen}"), warnings: vec![seen] })
    }

    /// Whether the server of this hostgroup replicates.
    pub(super) async fn look_at_shadow(self: &Arc<Self>, hostgroup: HostgroupId) -> ShadowState {
        let server = self.consult(|_, layout| match &online(layout, hostgroup)[..] {
            [one] => Some(Arc::clone(one)),
            _ => None,
        });
        let Some(server) = server else {
            return ShadowState::Unknown(format!("hostgroup {hostgroup} has not exactly one ONLINE server"));
        };
        let deadline = Instant::now() + LOOK_WITHIN;
        let asked = async {
            let mut shadow = Control::open(self, &server, deadline).await?;
            let replicates = shadow.replicates().await?;
            let status = shadow.ask("SHOW GLOBAL STATUS LIKE 'Uptime'").await?;
            let uptime_s = status.first().and_then(|row| row.at(1)?.parse().ok());
            Ok::<_, String>(Looked { replicates, uptime_s })
        };
        let looked = tokio::time::timeout_at(deadline.into(), asked).await;
        let looked = looked.unwrap_or_else(|_| Err(format!("the server has not answered within {} s", LOOK_WITHIN.as_secs())));
        state(looked, self.left_replication(&server.key.addr()))
    }

    /// The last event of a server that left replication.
    fn left_replication(&self, addr: &ServerAddr) -> Option<LeftReplication> {
        let now_ms = unix_us() / 1_000;
        let history = lock(&self.history);
        let mut events = history.events().rev();
        let event = events.find(|noted| noted.to == LEFT && noted.host.as_deref() == Some(&*addr.host) && noted.port == Some(addr.port))?;
        Some(LeftReplication { ago_s: now_ms.saturating_sub(event.at_unix_ms) / 1_000, seen: event.seen.clone() })
    }

    /// An error for sessions that would keep their connections however long others wait. A session that holds a table for a moment only is
    /// no obstacle.
    async fn is_unbound(&self, running: &Running, source: HostgroupId) -> Result<(), String> {
        let mut bound = running.fleet.bound(source);
        for _ in 0..LOOKS {
            if bound.is_empty() {
                return Ok(());
            }
            tokio::time::sleep(BRIEF).await;
            let now = running.fleet.bound(source);
            bound.retain(|bound| now.contains(bound));
        }
        bound.first().map_or(Ok(()), |bound| {
            Err(format!(
                "session {} keeps its connection to hostgroup {source} for more than a transaction ({}). End the session or its pin: \
                 stats_tidegate_pins lists them",
                bound.session, bound.why
            ))
        })
    }

    async fn undo(self: &Arc<Self>, server: &Arc<Server>, changed: &Changed) -> Result<(), String> {
        if changed.stopped.is_none() && changed.gate.is_none() {
            return Ok(());
        }
        let mut shadow = Control::open(self, server, Instant::now() + UNDO_WITHIN).await?;
        let mut errors = Vec::new();
        if let Some(gate) = &changed.gate {
            errors.extend(gate.set(&mut shadow).await.err());
        }
        if let Some(channel) = &changed.stopped {
            let sql = statements::start(shadow.version(), channel);
            errors.extend(shadow.tell(&sql, "its channel is started again").await.err());
        }
        if errors.is_empty() { Ok(()) } else { Err(errors.join("; ")) }
    }
}

/// What a shadow says of itself.
struct Looked {
    replicates: bool,
    uptime_s: Option<u64>,
}

/// What an event says of a shadow.
struct LeftReplication {
    ago_s: u64,
    seen: String,
}

/// What is said of a shadow. One that was restarted since it left replication may have been rebuilt.
fn state(looked: Result<Looked, String>, left: Option<LeftReplication>) -> ShadowState {
    match (looked, left) {
        (Ok(Looked { replicates: true, .. }), _) => ShadowState::Replicates,
        (Ok(Looked { uptime_s: Some(uptime_s), .. }), Some(left)) if uptime_s < left.ago_s => {
            ShadowState::Alone(format!("{}. It was restarted since and does not replicate: has it been rebuilt?", left.seen))
        }
        (_, Some(left)) => ShadowState::Left(left.seen),
        (Ok(_), None) => ShadowState::Alone("the shadow does not replicate: rows that changed since it was copied differ".to_owned()),
        (Err(why), None) => ShadowState::Unknown(why),
    }
}

/// The ONLINE servers of a hostgroup.
fn online(layout: &Layout, hostgroup: HostgroupId) -> Vec<&Arc<Server>> {
    let placed = layout.hostgroups.get(&hostgroup).map_or(&[][..], |placed| placed);
    placed.iter().filter(|placed| placed.status == ServerStatus::Online).map(|placed| &placed.server).collect()
}

/// The servers, if their roles allow a rehearsal of all.
fn pair(snapshot: &Snapshot, layout: &Layout, source: HostgroupId, shadow: HostgroupId, limit: Duration) -> Result<Pair, String> {
    let writers = online(layout, source);
    let [writer] = writers[..] else {
        return Err(format!("hostgroup {source} has {} ONLINE servers, and mode 'all' copies from exactly one writer", writers.len()));
    };
    let shadows = online(layout, shadow);
    let [server] = shadows[..] else {
        return Err(format!("hostgroup {shadow} has {} ONLINE servers, and mode 'all' needs exactly one", shadows.len()));
    };
    let addr = server.key.addr();
    let group = snapshot.roles.iter().find(|group| group.hostgroups().any(|id| id == shadow));
    if let Some(group) = group {
        return Err(format!(
            "hostgroup {shadow} is one of the cluster with writer hostgroup {}: the shadow of mode 'all' needs a hostgroup of its own",
            group.writer
        ));
    }
    let elsewhere =
        layout.hostgroups.iter().find(|(id, placed)| **id != shadow && placed.iter().any(|placed| placed.server.key.addr() == addr));
    if let Some((id, _)) = elsewhere {
        return Err(format!("{addr} is in hostgroup {id} too: mode 'all' needs a server without clients. Remove its row there first"));
    }
    if let Some(user) = snapshot.users.values().find(|user| user.default_hostgroup == shadow) {
        return Err(format!("hostgroup {shadow} is the default_hostgroup of user '{}'", user.name));
    }
    if snapshot.rules.rules.iter().any(|rule| [rule.destination_hostgroup, rule.mirror_hostgroup].contains(&Some(shadow))) {
        return Err(format!("a row of mysql_query_rules sends statements to hostgroup {shadow}"));
    }
    if snapshot.rules.fast_routes.iter().any(|route| route.destination == shadow) {
        return Err(format!("a row of mysql_query_rules_fast_routing sends statements to hostgroup {shadow}"));
    }
    let is_other = |group: &&Arc<model::snapshot::RoleGroup>| group.writer == source && !matches!(group.kind, RoleKind::Replication { .. });
    if snapshot.roles.iter().any(|group| is_other(&group)) {
        return Err(format!("hostgroup {source} is not the writer hostgroup of asynchronous replication"));
    }
    let wait_ms = snapshot.effective_in(source).connect_timeout_server_max;
    let patience = if wait_ms == 0 { limit / FOR_CLIENTS } else { (limit / FOR_CLIENTS).min(Duration::from_millis(wait_ms) / FOR_CLIENTS) };
    Ok(Pair { writer: Arc::clone(writer), shadow: Arc::clone(server), user: snapshot.vars.monitor_username.clone(), patience })
}

/// Checks without a change; the name of the shadow's channel.
async fn check(writer: &mut Control, shadow: &mut Control, pair: &Pair, deadline: Instant) -> Result<String, String> {
    let found = replication::position(writer).await?;
    replication::follows(writer, shadow).await?;
    let [channel] = &channels(&shadow.channels().await?)[..] else {
        return Err(format!("{} has several replication channels, and would still receive from the others", shadow.addr));
    };
    may_repoint(shadow, false, &pair.user).await?;
    may_set(shadow).await?;
    if Gate::of(shadow).await?.is_open() {
        return Err(format!("{} has read_only=0, so it may have writes of its own: SET GLOBAL read_only=1 there first", shadow.addr));
    }
    replication::reach(shadow, &found, deadline).await?;
    Ok(channel.link.name.clone())
}

/// Waits until nothing runs in the hostgroup.
async fn quiet(running: &Running, source: HostgroupId, until: Instant) -> Result<(), String> {
    loop {
        let load = running.fleet.load(source);
        if load.in_use == 0 && load.in_transaction == 0 {
            return Ok(());
        }
        if Instant::now() >= until {
            let (in_use, in_transaction) = (load.in_use, load.in_transaction);
            return Err(format!("{in_use} sessions still use hostgroup {source}, {in_transaction} of them in a transaction"));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// The shadow leaves replication where the writer is, and takes writes. Each change is noted before it is made.
async fn leave(writer: &mut Control, shadow: &mut Control, channel: &str, until: Instant, changed: &mut Changed) -> Result<String, String> {
    let position = replication::position(writer).await?;
    replication::reach(shadow, &position, until).await?;
    changed.stopped = Some(channel.to_owned());
    let sql = statements::stop(shadow.version(), channel);
    shadow.tell(&sql, "its channel is stopped").await?;
    let now = replication::position(writer).await?;
    if now.text != position.text {
        return Err(format!("{} was written to while its hostgroup was held: something writes there past this proxy", writer.addr));
    }
    changed.gate = Some(Gate::of(shadow).await?);
    Gate::open().set(shadow).await?;
    Ok(position.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shadow_that_left_replication_must_be_rebuilt() {
        let looked = |replicates, uptime_s| Ok(Looked { replicates, uptime_s });
        let left = || Some(LeftReplication { ago_s: 100, seen: "db9 left replication at 0-1-5".to_owned() });
        let is_left = |looked| matches!(state(looked, left()), ShadowState::Left(seen) if seen.contains("at 0-1-5"));
        assert!(is_left(looked(false, Some(100))) && is_left(looked(false, None)) && is_left(Err("refused".to_owned())));
        assert_eq!(state(looked(true, Some(5_000)), left()), ShadowState::Replicates, "it was rebuilt");
        assert!(matches!(state(looked(false, Some(99)), left()), ShadowState::Alone(words) if words.contains("has it been rebuilt?")));
    }

    #[test]
    fn a_shadow_that_does_not_replicate_is_known() {
        assert!(matches!(state(Ok(Looked { replicates: false, uptime_s: Some(9) }), None), ShadowState::Alone(_)));
        assert_eq!(state(Err("refused".to_owned()), None), ShadowState::Unknown("refused".to_owned()));
    }
}
