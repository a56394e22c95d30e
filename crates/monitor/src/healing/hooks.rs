//! Programs that healing runs (`mysql_healing_hooks`): what they are told, and what follows if they fail.
//!
//! INVARIANT: a program runs only where this proxy heals the cluster, and no longer than its limit.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use model::fleet::Program;
use model::snapshot::{HealingHook, HookMoment};
use model::{HostgroupId, ServerAddr};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use topology::healing::{Lease, Standing, Tended, Verdict};

use super::promote::Healed;
use crate::monitor::Monitor;

const NO_PROGRAMS: &str = "this proxy runs no programs";

/// What a program is told beside the moment and the cluster.
#[derive(Debug, Clone, Default)]
pub(crate) struct Told {
    /// The writer that is or was replaced.
    pub(crate) old: Option<ServerAddr>,
    /// The server that takes over, or writes.
    pub(crate) new: Option<ServerAddr>,
    /// The server that it is about.
    pub(crate) server: Option<ServerAddr>,
    /// Why.
    pub(crate) reason: String,
    /// What is known to be lost.
    pub(crate) lost: Option<u64>,
}

impl Told {
    fn environment(&self, monitor: &Monitor, writer: HostgroupId, moment: HookMoment) -> Vec<(&'static str, String)> {
        let mut all = vec![
            ("TIDEGATE_MOMENT", moment.as_str().to_owned()),
            ("TIDEGATE_WRITER_HOSTGROUP", writer.to_string()),
            ("TIDEGATE_PROXY", monitor.own_name()),
            ("TIDEGATE_EPOCH", monitor.record(writer).1.to_string()),
            ("TIDEGATE_REASON", self.reason.clone()),
        ];
        let mut add = |(host, port): (&'static str, &'static str), server: &Option<ServerAddr>| {
            if let Some(server) = server {
                all.extend([(host, server.host.to_string()), (port, server.port.to_string())]);
            }
        };
        add(("TIDEGATE_OLD_WRITER_HOST", "TIDEGATE_OLD_WRITER_PORT"), &self.old);
        add(("TIDEGATE_NEW_WRITER_HOST", "TIDEGATE_NEW_WRITER_PORT"), &self.new);
        add(("TIDEGATE_SERVER_HOST", "TIDEGATE_SERVER_PORT"), &self.server);
        all.extend(self.lost.map(|lost| ("TIDEGATE_LOST", lost.to_string())));
        // The system takes no text with a zero byte.
        all.into_iter().map(|(name, value)| (name, value.replace('\0', ""))).collect()
    }
}

fn listed(monitor: &Monitor, writer: HostgroupId, moment: HookMoment) -> Vec<HealingHook> {
    let all = Arc::clone(&monitor.snapshot().healing_hooks);
    all.iter().filter(|hook| hook.writer == writer && hook.moment == moment).cloned().collect()
}

/// Longest for all programs of these moments.
pub(crate) fn longest(monitor: &Monitor, writer: HostgroupId, moments: &[HookMoment]) -> Duration {
    let hooks = moments.iter().flat_map(|moment| listed(monitor, writer, *moment));
    // Ending one takes a moment too.
    hooks.map(|hook| Duration::from_millis(hook.timeout_ms) + Duration::from_secs(5)).sum()
}

/// Whether any program is listed for the cluster.
pub(super) fn has_any(monitor: &Monitor, writer: HostgroupId) -> bool {
    monitor.snapshot().healing_hooks.iter().any(|hook| hook.writer == writer)
}

/// The program of a moment. Its arguments may be secret, so only its name is shown.
fn name(hook: &HealingHook) -> &str {
    hook.command.first().map_or("", String::as_str)
}

fn program(monitor: &Monitor, hook: &HealingHook, environment: Vec<(&'static str, String)>) -> Program {
    let limit = Duration::from_millis(hook.timeout_ms);
    Program { directory: monitor.snapshot().healing_hooks_dir.clone(), command: hook.command.clone(), environment, limit }
}

/// Why every plan would fail: a program that must run before the opening cannot be started on this machine.
pub(super) fn obstacle(monitor: &Monitor, writer: HostgroupId) -> Option<String> {
    let before = [HookMoment::Before, HookMoment::Fence].into_iter().flat_map(|moment| listed(monitor, writer, moment));
    before.filter(|hook| hook.is_required).find_map(|hook| {
        let why = match monitor.programs.get() {
            Some(programs) => programs.check(&program(monitor, &hook, Vec::new())).err()?,
            None => NO_PROGRAMS.to_owned(),
        };
        Some(format!("hook {} ({}) cannot run: {why}", hook.moment.as_str(), name(&hook)))
    })
}

/// Runs the programs of a moment, one after the other. What fails is in the log; an error if one is required. Before the opening, nothing
/// runs after that one.
pub(crate) async fn run(monitor: &Arc<Monitor>, writer: HostgroupId, moment: HookMoment, told: &Told) -> Result<(), String> {
    let mut failed = Ok(());
    for hook in listed(monitor, writer, moment) {
        let name = name(&hook);
        let fault = run_one(monitor, &hook, told.environment(monitor, writer, moment)).await;
        let about = told.server.as_ref().or(told.new.as_ref()).or(told.old.as_ref());
        if let Some(about) = about {
            let result = fault.as_ref().map_or_else(|| "ok".to_owned(), Clone::clone);
            monitor.journal_says(writer, about, &format!("hook {} ({name})", moment.as_str()), &result);
        }
        match fault {
            None => tracing::info!("healing of hostgroup {writer}: hook {} ({name}): ok", moment.as_str()),
            Some(why) => {
                tracing::warn!("healing of hostgroup {writer}: hook {} ({name}): {why}", moment.as_str());
                if hook.is_required {
                    failed = failed.and_then(|()| Err(format!("hook {} ({name}): {why}", moment.as_str())));
                }
            }
        }
        if failed.is_err() && matches!(moment, HookMoment::Before | HookMoment::Fence) {
            break;
        }
    }
    failed
}

/// Why it failed, if it did. If this is given up, the program is ended.
async fn run_one(monitor: &Arc<Monitor>, hook: &HealingHook, environment: Vec<(&'static str, String)>) -> Option<String> {
    let Some(programs) = monitor.programs.get() else { return Some(NO_PROGRAMS.to_owned()) };
    let program = program(monitor, hook, environment);
    // Dropped with this, which ends the program.
    let (_keep, gone) = oneshot::channel::<()>();
    let stop = Box::pin(async move { drop(gone.await) });
    // In a task of its own, so that it ends the whole process group even then.
    let end = tokio::spawn(programs.run(program, stop)).await;
    let end = match end {
        Ok(end) => end,
        Err(e) => return Some(format!("the work has ended: {e}")),
    };
    for line in end.output.lines() {
        tracing::info!("hook {}: {line}", name(hook));
    }
    end.fault
}

/// Which moments were seen already, from round to round.
#[derive(Debug, Default)]
pub(super) struct Hooked {
    standings: BTreeMap<ServerAddr, Standing>,
    was_blocked: bool,
    work: Option<JoinHandle<()>>,
}

impl Hooked {
    /// Begins what is due: for a promotion that is blocked, an outcast, and errant transactions.
    pub(super) fn round(
        &mut self,
        monitor: &Arc<Monitor>,
        (writer, primary): (HostgroupId, Option<&ServerAddr>),
        (verdict, healed): (Verdict, Option<&Healed>),
        tended: &[Tended],
    ) {
        if self.work.as_ref().is_some_and(|work| !work.is_finished()) {
            return;
        }
        let is_healer = matches!(monitor.lease(writer), Lease::Alone | Lease::Own(1..)) && monitor.keeps_files();
        self.standings.retain(|addr, _| tended.iter().any(|one| one.addr == *addr && moment(one.standing).is_some()));
        let mut due = Vec::new();
        for one in tended {
            if let Some(moment) = moment(one.standing).filter(|_| self.standings.get(&one.addr) != Some(&one.standing) && is_healer) {
                self.standings.insert(one.addr.clone(), one.standing);
                let (new, server) = (primary.cloned(), Some(one.addr.clone()));
                due.push((moment, Told { new, server, reason: one.why.clone(), ..Told::default() }));
            }
        }
        // While time alone decides, nobody need be called.
        let blocked =
            healed.filter(|healed| verdict == Verdict::Dead && healed.next_ms.is_none()).and_then(|healed| healed.blocked.clone());
        match blocked {
            Some(reason) if is_healer && !self.was_blocked => {
                self.was_blocked = true;
                due.push((HookMoment::Blocked, Told { old: primary.cloned(), reason, ..Told::default() }));
            }
            _ if verdict == Verdict::Alive || healed.is_some_and(|healed| healed.is_under_way) => self.was_blocked = false,
            _ => {}
        }
        if due.is_empty() || !has_any(monitor, writer) {
            return;
        }
        let monitor = Arc::clone(monitor);
        self.work = Some(tokio::spawn(async move {
            for (moment, told) in due {
                // Nothing waits for these: the log has what failed.
                let _ = run(&monitor, writer, moment, &told).await;
            }
        }));
    }
}

fn moment(standing: Standing) -> Option<HookMoment> {
    match standing {
        Standing::Outcast => Some(HookMoment::Outcast),
        Standing::Errant => Some(HookMoment::Errant),
        _ => None,
    }
}
