//! The undoing of a plan that opened no server: at once by the process that made the changes, or later by what it had written down.

use std::sync::Arc;
use std::time::{Duration, Instant};

use model::ServerAddr;
use model::snapshot::Server;
use topology::healing::{Resume, Stopped};

use super::{Done, Healer, Promotion, Tenure};
use crate::monitor::{Monitor, lock};
use crate::operator::control::Control;
use crate::operator::gate::Gate;
use crate::statements::{self, Place, Pointing};

/// Longest until a change is undone.
const UNDONE: Duration = Duration::from_secs(15);

/// Puts back what a plan of an earlier process did to channels of a server, as a fresh look finds them. `is_forced`: this proxy has the lease
/// of the healer. Returns whether the server takes writes: then it is left as it is.
pub(crate) async fn resume(
    monitor: &Arc<Monitor>,
    tenure: &Tenure,
    server: &Arc<Server>,
    stopped: &[Stopped],
    is_forced: bool,
) -> Result<bool, String> {
    let work = async {
        let mut control = Control::open(monitor, server, Instant::now() + UNDONE).await?;
        tenure.take_lock(&mut control, is_forced).await?;
        let is_open = Gate::of(&mut control).await?.is_open();
        let sight = control.sight().await?;
        for one in stopped {
            let now = sight.channels.iter().map(|line| &line.channel).find(|now| now.name.eq_ignore_ascii_case(&one.channel));
            let version = control.version().clone();
            let start = match one.resume(now, is_open) {
                Resume::Nothing => continue,
                Resume::Receiver => statements::start_receiver(&version, &one.channel),
                Resume::Both => statements::start(&version, &one.channel),
                Resume::Back(before) => {
                    point(tenure, &mut control, &one.channel, &before).await?;
                    statements::start(&version, &one.channel)
                }
            };
            tenure.tell(&mut control, &start, "its channel is started").await?;
            tracing::info!("{}: channel '{}' is started: a plan that did not end had stopped it", one.server, one.channel);
        }
        Ok(is_open)
    };
    tokio::time::timeout(UNDONE, work).await.unwrap_or_else(|_| Err(format!("no answer within {} s", UNDONE.as_secs())))
}

impl Healer {
    /// Undoes all changes, the last one first. What may be open (`unknown`) stays as it is, and what was done to it stays written down.
    /// Returns what became of it.
    pub(super) async fn give_up(&self, why: String, unknown: Option<&ServerAddr>) -> Promotion {
        let old = self.promote.old.key.addr();
        let (mut faults, mut left) = (Vec::new(), Vec::from_iter(unknown.cloned()));
        let is_changed = !lock(&self.changes).is_empty();
        lock(&self.monitor.claims).undo(self.promote.hostgroup);
        loop {
            // Without the lease this is another healer's work, by what is written down.
            if let Some(lost) = self.lease().refusal() {
                return self.leave(&why, &lost, is_changed);
            }
            let Some(done) = lock(&self.changes).pop() else { break };
            let undone = tokio::time::timeout(UNDONE, self.undo(&done)).await;
            let undone = undone.unwrap_or_else(|_| Err(format!("no answer within {} s", UNDONE.as_secs())));
            if undone.is_err() {
                left.extend(done.server());
            }
            faults.extend(undone.err());
        }
        // What servers did not answer to is undone later.
        faults.extend(self.keep_undone(&why, &left, unknown.is_some()).await.err());
        let undone = if unknown.is_some() { "the other servers are as they were" } else { "everything is as it was" };
        let told = match (is_changed, faults.is_empty()) {
            (false, _) => format!("no server was promoted: {why}; nothing was changed"),
            (true, true) => format!("no server was promoted: {why}; {undone}"),
            (true, false) => format!("no server was promoted: {why}; NOT EVERYTHING COULD BE UNDONE: {}", faults.join(", ")),
        };
        self.note(&old, "plan failed", &told);
        Promotion::Failed(told)
    }

    /// The plan ends here, and its changes stay until a healer undoes them.
    fn leave(&self, why: &str, lost: &str, is_changed: bool) -> Promotion {
        let rest = if is_changed { "the proxy that heals next undoes what was done" } else { "nothing was changed" };
        let lost = if why == lost { String::new() } else { format!("; {lost}") };
        let told = format!("no server was promoted by this proxy: {why}{lost}; {rest}");
        if let Some(Done::Noted { heir }) = lock(&self.changes).iter().find(|done| matches!(done, Done::Noted { .. })) {
            self.monitor.decide(|topology, now_ms| topology.forget_fork(now_ms, self.promote.hostgroup, heir));
        }
        self.note(&self.promote.old.key.addr(), "plan left", &told);
        Promotion::Failed(told)
    }

    /// Over a new connection, under the lock: the present one may be in the middle of something. Of several proxies, each statement asks the
    /// lease first, and the lock ends the present connection.
    async fn undo(&self, done: &Done) -> Result<(), String> {
        let fresh = |server: &Arc<Server>| {
            let server = Arc::clone(server);
            async move {
                let mut control = Control::open(&self.monitor, &server, Instant::now() + UNDONE).await?;
                // Alone, the present connection may have the lock, and nobody else heals.
                if self.is_shared {
                    self.tenure.take_lock(&mut control, true).await?;
                }
                Ok::<_, String>(control)
            }
        };
        match done {
            Done::Frozen { server, channel } => {
                let mut control = fresh(server).await?;
                // An earlier STOP may still be waiting: this one ends after it.
                let stop = statements::stop_receiver(control.version(), channel);
                self.tenure.tell(&mut control, &stop, "its receiver is stopped").await?;
                let start = statements::start_receiver(control.version(), channel);
                self.tenure.tell(&mut control, &start, "its receiver is started").await
            }
            Done::Fetches { server, channel, before } => {
                let mut control = fresh(server).await?;
                point(&self.tenure, &mut control, channel, before).await
            }
            Done::Stopped { server, channel } => {
                let mut control = fresh(server).await?;
                let stop = statements::stop(control.version(), channel);
                self.tenure.tell(&mut control, &stop, "its channel is stopped").await?;
                let start = statements::start(control.version(), channel);
                self.tenure.tell(&mut control, &start, "its channel is started").await
            }
            // It takes no writes, and its applier would wait.
            Done::Waits { server, source } => source.set_source(&mut fresh(server).await?, false).await,
            Done::Noted { heir } => {
                self.monitor.decide(|topology, now_ms| topology.forget_fork(now_ms, self.promote.hostgroup, heir));
                // Of several proxies, their record has the promotion.
                if self.is_shared {
                    return Ok(());
                }
                self.write_own(|monitor, writer| monitor.healing.orders.was_not_opened(writer)).await
            }
        }
    }
}

/// Points a channel elsewhere and starts it. MySQL keeps what it received only beside a running applier.
pub(super) async fn point(tenure: &Tenure, control: &mut Control, channel: &str, source: &ServerAddr) -> Result<(), String> {
    let version = control.version().clone();
    let (stop, start) = if version.is_mariadb {
        (statements::stop(&version, channel), statements::start(&version, channel))
    } else {
        (statements::stop_receiver(&version, channel), statements::start_receiver(&version, channel))
    };
    tenure.tell(control, &stop, "its channel is stopped").await?;
    let to = Pointing { name: channel, source, retry_s: None, credentials: None, tls: &[], place: Place::Kept };
    tenure.may_change(control).await?;
    control.change(&to).await?;
    tenure.tell(control, &start, "its channel is started").await
}
