//! One change of semi-synchronous replication that the proxy sets up (`mysql_healing`, `semi_sync` is `managed`).
//!
//! Each change is made under the claim of the cluster and the lock of the server, after a fresh look at that server. A receiver that is
//! stopped is written down before, so that another process starts it.
//! INVARIANT: the source side is switched on only after the source itself has counted enough replicas that acknowledge.

use std::sync::Arc;
use std::time::{Duration, Instant};

use model::snapshot::Server;
use model::{HostgroupId, ServerAddr};
use topology::healing::{AckStep, Record, Setting, Stopped};
use wire::codes;

use super::claim::{Claim, Work};
use super::control::Control;
use super::gate::Gate;
use super::plan::writers;
use super::promote::{Tenure, within};
use super::repoint;
use crate::channels::ThreadState;
use crate::monitor::Monitor;
use crate::statements;

/// Longest until a server lets the proxy in.
const REACHED: Duration = Duration::from_secs(2);
/// Longest for one statement.
const STEP: Duration = Duration::from_secs(5);
/// Longest until a receiver that was restarted acknowledges, and until a source counts it.
const CONNECTED: Duration = Duration::from_secs(5);
/// Time between looks.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Attempts to start a receiver that was stopped.
const STARTS: u32 = 3;
/// Both flavors log it, and it touches no data: the server opens its error log again, and so do its replicas.
const HARMLESS: &str = "FLUSH ERROR LOGS";

/// A change that is due.
#[derive(Debug)]
pub(crate) struct SetAcks {
    pub(crate) hostgroup: HostgroupId,
    /// The server that is changed.
    pub(crate) server: Arc<Server>,
    /// The channel by which it replicates from the writer; empty for the writer.
    pub(crate) channel: String,
    /// The server that writes.
    pub(crate) writer: ServerAddr,
    pub(crate) step: AckStep,
}

/// Why a change was not made.
#[derive(Debug)]
pub(crate) enum NotSet {
    /// Somebody else is at work, or it is not wanted any more.
    Postponed(String),
    /// The server refuses it, or does not do what it should.
    Failed(String),
}

impl From<String> for NotSet {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// See the module. On the monitor's thread. Returns what was done, in words.
pub(crate) async fn run(monitor: &Arc<Monitor>, work: SetAcks) -> Result<String, NotSet> {
    let _claim = Claim::take(monitor, work.hostgroup, Work::Acks).map_err(NotSet::Postponed)?;
    let tenure = Tenure::new(monitor, work.hostgroup);
    let deadline = Instant::now() + STEP * 4;
    let mut control = within(REACHED, Control::open(monitor, &work.server, deadline)).await?;
    // Not by force: the return of a server may be at work there.
    within(REACHED, tenure.take_lock(&mut control, false)).await.map_err(NotSet::Postponed)?;
    work.is_wanted(monitor, &tenure).map_err(NotSet::Postponed)?;
    let is_open = within(REACHED, Gate::of(&mut control)).await?.is_open();
    let writes = work.server.key.addr() == work.writer;
    if is_open != writes {
        return Err(NotSet::Postponed(format!("{} has changed its role", control.addr)));
    }
    match &work.step {
        AckStep::Release(_) => {
            let name = Names::of(&mut control, Side::Source).await?;
            within(STEP, set(&mut control, &format!("SET GLOBAL {}=0", name.enabled()))).await?;
            Ok("its source side is off, so that its applier waits for nobody".to_owned())
        }
        AckStep::Acknowledge(_) => {
            work.set_replica(monitor, &tenure, &mut control, true).await?;
            Ok("it acknowledges commits from now on".to_owned())
        }
        AckStep::Quit(_) => {
            work.set_replica(monitor, &tenure, &mut control, false).await?;
            Ok("it acknowledges no commits any more: its word would be of no use".to_owned())
        }
        AckStep::Source(_, setting) => {
            set_source(&mut control, setting).await?;
            Ok(format!("its commits wait for acknowledgements: {}", setting.told()))
        }
        AckStep::Nudge(_) => {
            within(STEP, set(&mut control, HARMLESS)).await?;
            Ok(format!("an acknowledgement was lost: {HARMLESS} was logged, and its acknowledgement stands for all before it"))
        }
    }
}

impl SetAcks {
    fn is_wanted(&self, monitor: &Monitor, tenure: &Tenure) -> Result<(), String> {
        let (is_wanted, now) = monitor.consult(|snapshot, layout| {
            let is_wanted = snapshot.healing.get(&self.hostgroup).is_some_and(|row| row.manages_acks());
            (is_wanted, writers(layout, self.hostgroup))
        });
        let is_alone = now.len() == 1 && now.iter().all(|server| server.key.addr() == self.writer);
        match () {
            () if !is_wanted => Err("mysql_healing does not ask for it any more".to_owned()),
            () if !monitor.keeps_files() => Err("another process of this proxy is in charge".to_owned()),
            () if !is_alone => Err("another server writes now".to_owned()),
            () if *monitor.stopping.borrow() => Err("the monitor stops".to_owned()),
            () if let Some(why) = monitor.suspended(self.hostgroup) => Err(why),
            () => tenure.holds(),
        }
    }

    /// Switches the replica side, and has the receiver connect again: it takes effect then.
    async fn set_replica(&self, monitor: &Arc<Monitor>, tenure: &Tenure, control: &mut Control, is_on: bool) -> Result<(), NotSet> {
        let channels = repoint::channels(&within(STEP, control.channels()).await?);
        let own = channels.iter().find(|channel| channel.link.name.eq_ignore_ascii_case(&self.channel));
        let runs = own.filter(|channel| channel.link.receiver.state == ThreadState::Runs && channel.is_at(&self.writer));
        let Some(source) = runs.map(|channel| channel.link.source.clone()) else {
            return Err(NotSet::Postponed(format!("{} does not receive from {} now", control.addr, self.writer)));
        };
        let name = Names::of(control, Side::Replica).await?;
        within(STEP, set(control, &format!("SET GLOBAL {}={}", name.enabled(), u8::from(is_on)))).await?;
        self.is_wanted(monitor, tenure).map_err(NotSet::Postponed)?;
        self.reconnect(monitor, tenure, control, source).await?;
        let status = if name.is_new { "Rpl_semi_sync_replica_status" } else { "Rpl_semi_sync_slave_status" };
        let begun = Instant::now();
        while begun.elapsed() < CONNECTED {
            let shown = within(STEP, control.ask(&format!("SHOW GLOBAL STATUS LIKE '{status}'"))).await?;
            if shown.named(status).is_some_and(crate::client::is_on) == is_on {
                return Ok(());
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        let seconds = CONNECTED.as_secs();
        Err(NotSet::Failed(format!("{}: {status} is not {} after {seconds} s", control.addr, if is_on { "ON" } else { "OFF" })))
    }

    /// Once it is stopped it is started whatever happens, by this process or by the one that reads what is written down.
    /// INVARIANT: it is started only while this proxy holds the lease and the locks: another healer counts on receivers that stand still.
    async fn reconnect(
        &self,
        monitor: &Arc<Monitor>,
        tenure: &Tenure,
        control: &mut Control,
        source: Option<ServerAddr>,
    ) -> Result<(), String> {
        let stopped = Stopped::receiver(control.addr.clone(), self.channel.clone(), source);
        self.write_down(monitor, tenure, Some(stopped)).await?;
        let version = control.version().clone();
        let (stop, start) = (statements::stop_receiver(&version, &self.channel), statements::start_receiver(&version, &self.channel));
        let mut outcome = within(STEP, control.tell(&stop, "its receiver is stopped")).await;
        for _ in 0..STARTS {
            tenure.holds()?;
            let again = if outcome.is_err() { None } else { Some(within(STEP, control.tell(&start, "its receiver is started")).await) };
            match again {
                Some(Ok(())) => return self.write_down(monitor, tenure, None).await,
                Some(Err(why)) => outcome = Err(why),
                // Over a new connection: a late answer must not be read as another statement's. STOP may take effect yet.
                None => {
                    let fresh = within(REACHED, Control::open(monitor, &self.server, Instant::now() + STEP * 4)).await;
                    if let Ok(mut fresh) = fresh {
                        within(REACHED, tenure.take_lock(&mut fresh, false)).await?;
                        *control = fresh;
                        outcome = within(STEP, control.tell(&stop, "its receiver is stopped")).await;
                    }
                }
            }
        }
        outcome
    }

    /// That this receiver is stopped; None: it runs again.
    async fn write_down(&self, monitor: &Arc<Monitor>, tenure: &Tenure, stopped: Option<Stopped>) -> Result<(), String> {
        let (hostgroup, server, channel) = (self.hostgroup, self.server.key.addr(), self.channel.clone());
        let noted = move |all: &mut Vec<Stopped>| {
            all.retain(|one| !one.is_about(&server, &channel));
            all.extend(stopped.clone());
        };
        if tenure.is_shared() {
            let change = move |record: &mut Record| {
                noted(&mut record.stopped);
                Ok(())
            };
            return monitor.write_record(hostgroup, true, change).await;
        }
        let monitor = Arc::clone(monitor);
        let written = tokio::task::spawn_blocking(move || {
            let mut all = monitor.healing.orders.stopped(hostgroup);
            noted(&mut all);
            monitor.healing.orders.stop(hostgroup, all)
        });
        written.await.unwrap_or_else(|e| Err(e.to_string()))
    }
}

/// Sets the source side of a server, after it has counted the replicas.
pub(super) async fn set_source(control: &mut Control, setting: &Setting) -> Result<(), String> {
    let name = Names::of(control, Side::Source).await?;
    let begun = Instant::now();
    loop {
        let connected = if setting.needs > 0 { name.connected(control).await? } else { 0 };
        if connected >= setting.needs {
            break;
        }
        if begun.elapsed() >= CONNECTED {
            let needs = setting.needs;
            return Err(format!("{}: {connected} replicas are connected to acknowledge, and {needs} must", control.addr));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    within(STEP, set(control, &name.statement(setting))).await
}

/// So many replicas are connected to acknowledge.
pub(super) async fn connected(control: &mut Control) -> Result<u64, String> {
    Names::of(control, Side::Source).await?.connected(control).await
}

/// Has a replica acknowledge from its next connect on.
pub(super) async fn will_acknowledge(control: &mut Control) -> Result<(), String> {
    let name = Names::of(control, Side::Replica).await?;
    within(STEP, set(control, &format!("SET GLOBAL {}=1", name.enabled()))).await
}

/// The rights that the monitor's user lacks there; None if it has them all. An error if the server did not say.
pub(crate) async fn lacks_right_to_acks(monitor: &Arc<Monitor>, server: &Arc<Server>) -> Result<Option<String>, String> {
    let user = monitor.snapshot().vars.monitor_username.clone();
    let mut control = within(REACHED, Control::open(monitor, server, Instant::now() + STEP * 2)).await?;
    for side in [Side::Source, Side::Replica] {
        // One that is not installed is said elsewhere.
        let Ok(name) = Names::of(&mut control, side).await else { continue };
        let sql = format!("SET GLOBAL {}='whether this user may'", name.enabled());
        let asked = tokio::time::timeout(STEP, control.try_ask(&sql)).await.map_err(|_| format!("{}: no answer", control.addr))?;
        if let Err(fault) = asked
            && fault.code() == Some(codes::SPECIFIC_ACCESS_DENIED)
        {
            let needed = match (control.version().is_mariadb, side) {
                (true, Side::Source) => "REPLICATION MASTER ADMIN",
                (true, Side::Replica) => "REPLICATION SLAVE ADMIN",
                (false, _) => "SYSTEM_VARIABLES_ADMIN",
            };
            return Ok(Some(format!("semi-synchronous replication cannot be set: GRANT {needed} ON *.* TO the monitor's user ({user})")));
        }
    }
    let Err(why) = within(STEP, repoint::may_repoint(&mut control, true, &user)).await else { return Ok(None) };
    // Its connection lasts where only a right is missing.
    within(REACHED, control.ask("DO 0")).await?;
    Ok(Some(why))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Source,
    Replica,
}

/// The names that a server has for its settings: MySQL has new words since 8.0.26, by the plugin that is installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Names {
    side: Side,
    is_new: bool,
}

impl Names {
    async fn of(control: &mut Control, side: Side) -> Result<Self, String> {
        let [new, old] = [true, false].map(|is_new| Self { side, is_new });
        let sql = format!("SHOW GLOBAL VARIABLES WHERE Variable_name IN ('{}', '{}')", new.enabled(), old.enabled());
        let shown = within(STEP, control.ask(&sql)).await?;
        let found = [new, old].into_iter().find(|names| shown.named(&names.enabled()).is_some());
        found.ok_or_else(|| format!("{}: semi-synchronous replication is not installed", control.addr))
    }

    fn prefix(self) -> &'static str {
        match (self.side, self.is_new) {
            (Side::Source, true) => "rpl_semi_sync_source",
            (Side::Source, false) => "rpl_semi_sync_master",
            (Side::Replica, true) => "rpl_semi_sync_replica",
            (Side::Replica, false) => "rpl_semi_sync_slave",
        }
    }

    fn enabled(self) -> String {
        format!("{}_enabled", self.prefix())
    }

    /// A source counts them also while its source side is off.
    async fn connected(self, control: &mut Control) -> Result<u64, String> {
        let name = if self.is_new { "Rpl_semi_sync_source_clients" } else { "Rpl_semi_sync_master_clients" };
        let shown = within(STEP, control.ask(&format!("SHOW GLOBAL STATUS LIKE '{name}'"))).await?;
        Ok(shown.named(name).and_then(|count| count.parse().ok()).unwrap_or(0))
    }

    /// All of a setting by one statement; the switch comes last.
    fn statement(self, setting: &Setting) -> String {
        let prefix = self.prefix();
        let (alone, count) =
            if self.is_new { ("wait_no_replica", "wait_for_replica_count") } else { ("wait_no_slave", "wait_for_slave_count") };
        let parts = [
            setting.after_sync.then(|| format!("GLOBAL {prefix}_wait_point='AFTER_SYNC'")),
            setting.timeout_ms.map(|ms| format!("GLOBAL {prefix}_timeout={ms}")),
            setting.keep_waiting.then(|| format!("GLOBAL {prefix}_{alone}=1")),
            setting.acks.map(|acks| format!("GLOBAL {prefix}_{count}={acks}")),
            setting.switch_on.then(|| format!("GLOBAL {prefix}_enabled=1")),
        ];
        format!("SET {}", parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

async fn set(control: &mut Control, sql: &str) -> Result<(), String> {
    control.tell_setting(sql).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_comes_last_in_each_servers_words() {
        let setting = Setting { after_sync: true, timeout_ms: Some(7), keep_waiting: true, acks: Some(2), switch_on: true, needs: 2 };
        assert_eq!(
            Names { side: Side::Source, is_new: true }.statement(&setting),
            "SET GLOBAL rpl_semi_sync_source_wait_point='AFTER_SYNC', GLOBAL rpl_semi_sync_source_timeout=7, \
             GLOBAL rpl_semi_sync_source_wait_no_replica=1, GLOBAL rpl_semi_sync_source_wait_for_replica_count=2, \
             GLOBAL rpl_semi_sync_source_enabled=1"
        );
        let mariadb = Setting { acks: None, after_sync: false, ..setting };
        assert_eq!(
            Names { side: Side::Source, is_new: false }.statement(&mariadb),
            "SET GLOBAL rpl_semi_sync_master_timeout=7, GLOBAL rpl_semi_sync_master_wait_no_slave=1, GLOBAL rpl_semi_sync_master_enabled=1"
        );
        assert_eq!(Names { side: Side::Replica, is_new: false }.enabled(), "rpl_semi_sync_slave_enabled");
    }
}
