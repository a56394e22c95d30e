//! What follows the opening: sessions go on, the other replicas follow, acknowledgements, the channel that is forgotten. Forward only.

use std::sync::Arc;
use std::time::{Duration, Instant};

use model::snapshot::Loss;
use tokio::task::JoinSet;
use topology::CheckKind;
use topology::healing::Act;

use super::{Healer, LIMIT, REACHED, Ready, WATCH_EVERY, is_among, within};
use crate::client::{Access, open};
use crate::operator::LOOK_AGAIN;
use crate::operator::control::Control;
use crate::operator::plan::writers;
use crate::operator::repoint::{self, Acks, Channel, Move, NotDone, Pointer, SemiSync, Was};
use crate::statements::{self, Credentials};

/// Longest for each of the steps, beside following.
pub(super) const STEP: Duration = Duration::from_secs(5);
/// Longest until replicas that follow are connected to acknowledge.
pub(super) const ACKNOWLEDGES: Duration = Duration::from_secs(2);
/// Longest until the proxy's own checks see the new writer.
pub(super) const SEEN: Duration = Duration::from_secs(10);
/// A server that was pointed at the new writer follows if no error comes in this time.
const SETTLES: Duration = Duration::from_millis(500);

impl Healer {
    /// Sessions go on, the other replicas follow, and the new writer forgets its channel. Returns warnings. Each statement that changes
    /// something asks for the lease first, and nothing is waited for without it.
    pub(super) async fn after(&self, ready: &mut Ready, begun: Instant) -> Vec<String> {
        let mut warnings = Vec::new();
        let heir = ready.server.key.addr();
        if !is_planned(ready) {
            // Before sessions go there: their commits would wait for nobody.
            let stopped = within(STEP, self.while_held(self.stop_waiting(ready))).await;
            self.renew(ready, stopped.is_err()).await;
            warnings.extend(stopped.err());
        }
        match tokio::time::timeout(SEEN, self.while_held(self.see(ready))).await {
            Ok(Ok(())) => self.note(&heir, "writes", &format!("{} ms after the plan began", begun.elapsed().as_millis())),
            Ok(Err(why)) => warnings.push(format!("the proxy does not see {heir} as the writer: {why}")),
            Err(_) => {
                warnings.push(format!("the proxy does not see {heir} as the writer after {} s", SEEN.as_secs()));
                self.renew(ready, true).await;
            }
        }
        let (followers, lost) = self.follow(ready).await;
        warnings.extend(lost);
        let acks = within(STEP, self.while_held(self.set_acks(ready, followers))).await;
        self.renew(ready, acks.is_err()).await;
        warnings.extend(acks.err());
        warnings.extend(within(STEP, self.while_held(self.forget(ready))).await.err());
        warnings
    }

    /// The steps, or an error once the lease is lost: the proxy that heals next goes on from here.
    async fn while_held<T>(&self, steps: impl Future<Output = Result<T, String>>) -> Result<T, String> {
        let lost = async {
            loop {
                if let Some(why) = self.lease().refusal() {
                    return why;
                }
                tokio::time::sleep(WATCH_EVERY).await;
            }
        };
        tokio::select! {
            biased;
            why = lost => Err(why),
            outcome = steps => outcome,
        }
    }

    /// A new connection to the new writer where a step failed: a late answer must not be read as another statement's.
    pub(super) async fn renew(&self, ready: &mut Ready, has_failed: bool) {
        if has_failed && let Ok(control) = within(REACHED, Control::open(&self.monitor, &ready.server, Instant::now() + LIMIT)).await {
            ready.candidate = control;
        }
    }

    /// The proxy's own check sees the new writer, and no other one.
    async fn see(&self, ready: &mut Ready) -> Result<(), String> {
        let heir = ready.server.key.addr();
        loop {
            if ready.candidate.look(CheckKind::ReadOnly(self.promote.check)).await.is_err() {
                ready.candidate = Control::open(&self.monitor, &ready.server, Instant::now() + SEEN).await?;
            }
            let now = self.monitor.consult(|_, layout| writers(layout, self.promote.hostgroup));
            if now.len() == 1 && now.iter().all(|server| server.key.addr() == heir) {
                return Ok(());
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Points the other replicas at the new writer. Returns how many follow, and why others do not.
    async fn follow(&self, ready: &mut Ready) -> (usize, Vec<String>) {
        let new = match within(STEP, repoint::node(&mut ready.candidate)).await {
            Ok(new) => new,
            Err(why) => {
                self.renew(ready, true).await;
                return (0, vec![format!("no replica was pointed at the new writer: {why}")]);
            }
        };
        let mut jobs = JoinSet::new();
        let (mut followers, mut warnings) = (0, Vec::new());
        for step in &ready.plan.steps {
            let Act::Follow { channel, before, .. } = &step.act else { continue };
            let Ok(server) = self.server(&step.server) else { continue };
            if !is_among(&ready.ran, &step.server, channel) {
                self.note(&step.server, "left", "its replication was stopped before the plan began");
                continue;
            }
            let was = Some(Was { source: before.clone(), runs: true });
            let to = Move { name: channel.clone(), was, is_old: false };
            let (monitor, taken, tenure) = (Arc::clone(&self.monitor), Channel::default(), Some(self.tenure.clone()));
            let (new, credentials, semi_sync, settles, returning) = (new.clone(), None, None, SETTLES, None);
            let pointer = Pointer { monitor, server, new, to, taken, credentials, semi_sync, settles, tenure, returning };
            jobs.spawn(async move { (pointer.server.key.addr(), pointer.follow().await) });
        }
        for (server, outcome) in jobs.join_all().await {
            match outcome {
                Ok(()) => {
                    followers += 1;
                    self.note(&server, "follows", &format!("the new writer {}", new.addr));
                }
                Err(why) => {
                    self.note(&server, "does not follow", &why);
                    warnings.push(format!("{server} does not follow {}: {why}", new.addr));
                }
            }
        }
        for (server, why) in ready.plan.steps.iter().filter_map(|step| match &step.act {
            Act::Leave { why } if step.server != self.promote.old.key.addr() => Some((&step.server, why)),
            _ => None,
        }) {
            self.note(server, "left", why);
        }
        (followers, warnings)
    }

    /// Whether the new writer waits for acknowledgements, now that its replicas are there.
    async fn set_acks(&self, ready: &mut Ready, followers: usize) -> Result<(), String> {
        let managed = self.managed();
        match followers {
            // Commits that wait would return, though the operator wants no loss.
            0 if managed.as_ref().is_some_and(|policy| policy.loss == Loss::None) && is_planned(ready) => self.warn_of_waiting(ready).await,
            0 => self.stop_waiting(ready).await,
            _ if let Some(policy) = &managed => self.settle_acks(ready, policy, followers).await,
            _ if ready.was_semi_sync => self.wait_for_acks(ready).await,
            _ => Ok(()),
        }
    }

    /// Commits of a server that nobody follows would wait for nobody. An error where that was so, as it is a warning.
    async fn stop_waiting(&self, ready: &mut Ready) -> Result<(), String> {
        let heir = ready.candidate.addr.clone();
        let Some(own) = SemiSync::of(&mut ready.candidate).await? else { return Ok(()) };
        if own.is_source() {
            if Acks::of(&mut ready.candidate).await?.are_enough() {
                return Ok(());
            }
            self.tenure.holds()?;
            own.set_source(&mut ready.candidate, false).await?;
        } else if !ready.was_semi_sync {
            return Ok(());
        }
        Err(format!("no server follows {heir}, so its semi-synchronous replication is off: switch it on when a replica follows"))
    }

    /// The new writer waits for acknowledgements as the old one did, if enough replicas are connected to give them.
    async fn wait_for_acks(&self, ready: &mut Ready) -> Result<(), String> {
        let heir = ready.candidate.addr.clone();
        let own = SemiSync::of(&mut ready.candidate).await?;
        let own = own.ok_or_else(|| format!("{heir} has no semi-synchronous replication"))?;
        if own.is_source() {
            return Ok(());
        }
        let until = Instant::now() + ACKNOWLEDGES;
        loop {
            let acks = Acks::of(&mut ready.candidate).await?;
            if acks.are_enough() {
                break;
            }
            if Instant::now() >= until {
                return Err(format!("{acks}, so semi-synchronous replication of {heir} is off: switch it on when there are enough"));
            }
            tokio::time::sleep(WATCH_EVERY).await;
        }
        self.tenure.holds()?;
        own.set_source(&mut ready.candidate, true).await?;
        self.note(&heir, "semi-synchronous", "its commits wait for acknowledgements from now on");
        Ok(())
    }

    /// A restart would start a channel that is not forgotten. It stays where its account may exist nowhere else.
    async fn forget(&self, ready: &mut Ready) -> Result<(), String> {
        let (heir, name) = (ready.candidate.addr.clone(), &ready.taken.link.name);
        let credentials = self.monitor.consult(|snapshot, _| {
            let vars = &snapshot.vars;
            Credentials { user: vars.replication_username.clone(), password: vars.replication_password.clone() }
        });
        let stays = |why: &str| Err(format!("channel '{name}' of {heir} stays there, stopped, as {why}: RESET it, or a restart starts it"));
        if credentials.user.is_empty() || ready.taken.user.as_ref() != Some(&credentials.user) {
            return stays("its account is not known to be mysql-replication_username");
        }
        let access = Access {
            server: Arc::clone(&ready.server),
            user: credentials.user.as_str().into(),
            password: credentials.password.clone(),
            wait_timeout_s: None,
        };
        match tokio::time::timeout(REACHED, open(&self.monitor.connector, &access)).await {
            Ok(Ok(_)) => {}
            _ => return stays("mysql-replication_username cannot log in there"),
        }
        let forget = statements::forget(ready.candidate.version(), name);
        self.tenure.holds()?;
        ready.candidate.tell(&forget, "its channel is forgotten").await
    }
}

/// Whether any server was to follow.
fn is_planned(ready: &Ready) -> bool {
    ready.plan.steps.iter().any(|step| matches!(step.act, Act::Follow { .. }))
}

impl Pointer {
    /// Points the server and watches it; puts it back if it does not follow.
    async fn follow(&self) -> Result<(), String> {
        let work = async {
            let mut server = self.open(&self.server).await.map_err(NotDone::Untouched)?;
            self.point_and_watch(&mut server).await.map_err(NotDone::Touched)
        };
        match self.limited(work).await {
            Ok(()) => Ok(()),
            Err(NotDone::Untouched(why)) => Err(why),
            Err(NotDone::Touched(why)) => match self.holds() {
                Ok(()) => Err(self.undo(why).await),
                Err(lost) if lost == why => Err(format!("{why}; the next healer continues from here")),
                Err(lost) => Err(format!("{why}; {lost}; the next healer continues from here")),
            },
        }
    }
}
