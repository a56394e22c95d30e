//! One configuration for many proxies: the revision that this proxy has in force, and how it gets the next one.
//!
//! [`shared_config`] talks to etcd. A LOAD is published there before it is in force here ([`publish`]). Revisions of other proxies are read
//! ([`follow`]) and put in force by the engine (`engine/take.rs`). A revision that cannot be put in force is refused, and the old one stays.
//!
//! INVARIANT: [`Standing`] names the revision of the configuration in force. This proxy's own variables do not count.

mod behind;
mod board;
mod follow;
mod healing;
mod orders;
pub(crate) mod peers;
mod publish;
mod rollout;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::Config;
use model::fleet::Operator;
use serde::{Deserialize, Serialize};
use shared_config::{Conflict, Head, Link, Manifest, ProxyLine, Revision, Seen, SharedConfig, Standing, Verdict, judge};

use crate::clock::now;
use crate::handle::WeakHandle;
use crate::take_over::Frozen;

pub(crate) use behind::{Behind, BehindModules, KeptBehind, differing};
pub(crate) use orders::Shared;
pub(crate) use publish::{Draft, ago};
pub(crate) use rollout::Band;

use rollout::Baseline;

/// A revision read from etcd, for the engine.
#[derive(Debug, Clone)]
pub(crate) struct Fetched {
    /// How this proxy stands once it is in force.
    pub standing: Standing,
    /// The manifest's entry.
    pub revision: Revision,
    /// The configuration's text, with passwords.
    pub text: String,
}

/// This proxy's part, behind a lock.
#[derive(Debug, Default)]
struct State {
    standing: Option<Standing>,
    fetched: Option<Fetched>,
    /// The id of a revision that was published here, and that the engine is putting in force.
    own: Option<String>,
    /// `admin-shared_config_error_band`.
    band: u64,
    /// Keys of lasting orders that hold on this proxy only: they were given while etcd was away, or before anything was shared.
    own_orders: BTreeSet<String>,
    /// The trial of a revision here.
    trial: Option<Baseline>,
}

/// The part of a process in sharing, for a process that takes over.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeptSharing {
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    own_orders: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trial: Option<Baseline>,
}

impl KeptSharing {
    /// Whether there is nothing to hand over.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// This proxy's part in a shared configuration. One a process.
#[derive(Debug)]
pub(crate) struct Sharing {
    shared: Arc<SharedConfig>,
    state: Mutex<State>,
}

impl Sharing {
    /// Starts to follow the shared configuration, once [`Sharing::configure`] gives its place. `kept` is from the process before.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn start(
        me: ProxyLine,
        (standing, kept): (Option<Standing>, KeptSharing),
        engine: WeakHandle,
        frozen: Frozen,
        operator: Option<Arc<dyn Operator>>,
    ) -> std::io::Result<Arc<Self>> {
        let shared = SharedConfig::start(me, frozen.flag())?;
        shared.report(|line| {
            line.stands_at(standing.as_ref());
            line.since = now();
        });
        let state = State { standing, own_orders: kept.own_orders, trial: kept.trial, ..State::default() };
        let sharing = Arc::new(Self { shared: Arc::clone(&shared), state: Mutex::new(state) });
        if let Some(operator) = &operator {
            operator.keep_company(Arc::new(orders::Others(Arc::clone(&sharing))));
            operator.keep_decider(Arc::new(healing::ByEtcd(Arc::clone(&shared))));
        }
        if let Some(operator) = operator {
            shared.spawn(orders::Orders::new(operator).follow(Arc::clone(&sharing), frozen.clone()));
        }
        shared.spawn(follow::follow(Arc::clone(&sharing), engine, frozen));
        Ok(sharing)
    }

    /// This proxy's part, for a process that takes over.
    pub(crate) fn keep(&self) -> KeptSharing {
        let state = self.lock();
        KeptSharing { own_orders: state.own_orders.clone(), trial: state.trial.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the place of the shared configuration.
    ///
    /// # Errors
    /// The variable at fault.
    pub(crate) fn configure(&self, config: &Config) -> Result<(), String> {
        self.lock().band = config.admin.shared_config_error_band;
        self.shared.configure(shared_config::Settings::read(&config.admin)?);
        Ok(())
    }

    /// Whether a configuration is shared.
    pub(crate) fn is_on(config: &Config) -> bool {
        !config.admin.shared_config_endpoints.is_empty()
    }

    /// How far the error rate of a revision on trial may exceed the rate before.
    pub(crate) fn band(&self) -> Band {
        Band(self.lock().band)
    }

    /// Stops the connection to etcd.
    pub(crate) fn stop(&self) {
        self.shared.stop();
    }

    /// The last state read from etcd.
    pub(crate) fn seen(&self) -> Arc<Seen> {
        self.shared.seen()
    }

    /// This proxy's line for the other proxies.
    pub(crate) fn me(&self) -> ProxyLine {
        self.shared.line()
    }

    /// The client of etcd.
    pub(crate) fn shared(&self) -> &Arc<SharedConfig> {
        &self.shared
    }

    /// The revision in force here.
    pub(crate) fn standing(&self) -> Option<Standing> {
        self.lock().standing.clone()
    }

    /// This revision is in force here from now on.
    pub(crate) fn stands_at(&self, standing: Standing) {
        self.shared.report(|line| {
            line.stands_at(Some(&standing));
            (line.wanted, line.since) = (standing.number, now());
            line.error.clear();
        });
        let mut state = self.lock();
        (state.standing, state.own) = (Some(standing), None);
    }

    /// Gives up putting the own revision in force directly: this proxy follows it like the others.
    pub(crate) fn follows_itself(&self) {
        self.lock().own = None;
        self.shared.report(|line| line.error.clear());
    }

    /// Whether this revision was published here, and is being put in force.
    fn is_under_way(&self, revision: &Revision) -> bool {
        self.lock().own.as_ref() == Some(&revision.id)
    }

    /// This proxy has no revision of the shared configuration any more.
    pub(crate) fn stands_nowhere(&self) {
        self.shared.report(|line| {
            line.stands_at(None);
            line.wanted = 0;
        });
        self.lock().standing = None;
    }

    /// The revision that was read last, once.
    pub(crate) fn fetched(&self) -> Option<Fetched> {
        self.lock().fetched.take()
    }

    /// Whether this proxy may get clients: it has its shared configuration, or knows that there is none.
    ///
    /// # Errors
    /// The event that it waits for.
    pub(crate) fn is_ready(&self) -> Result<(), String> {
        let seen = self.seen();
        match &seen.link {
            Link::Off => return Ok(()),
            _ if self.lock().standing.is_some() => return Ok(()),
            _ => {}
        }
        let error = self.me().error;
        match (&seen.link, &seen.head) {
            _ if !error.is_empty() => Err(format!("no revision of the shared configuration is in force: {error}")),
            (Link::Down(_, why), _) => Err(format!("this proxy has not read the shared configuration yet: {why}")),
            (_, None) if seen.is_known && seen.fault.is_none() => Ok(()),
            _ => Err("this proxy has not read the shared configuration yet".to_owned()),
        }
    }

    /// Whether etcd's revision does not descend from the one in force here, and why an operator must decide.
    pub(crate) fn conflict(&self, head: &Head) -> Option<(Conflict, String)> {
        match judge(&head.manifest, &self.me().uuid, self.standing().as_ref()) {
            Verdict::Conflict(conflict, why) => Some((conflict, why)),
            _ => None,
        }
    }

    /// Live proxies whose revision has a greater number than etcd's and is not among its ancestors. This happens if etcd was restored from
    /// a snapshot, and this proxy has read it since.
    fn ahead(&self, head: &Head) -> Vec<(String, Standing)> {
        let (seen, me) = (self.seen(), self.me().uuid);
        let others = seen.proxies.iter().filter(|line| line.uuid != me);
        let ahead = others.filter_map(|line| {
            let standing = line.standing().filter(|one| one.number > Self::wanted(head, &line.uuid).number)?;
            let verdict = judge(&head.manifest, &line.uuid, Some(&standing));
            matches!(verdict, Verdict::Conflict(Conflict::Older, _)).then(|| (line.name.clone(), standing))
        });
        ahead.collect()
    }

    /// Whether [`Self::ahead`] finds any proxy.
    pub(crate) fn is_behind_others(&self, head: &Head) -> bool {
        !self.ahead(head).is_empty()
    }

    /// The head, or the revision before it if this proxy takes no part in a trial.
    fn wanted(head: &Head, uuid: &str) -> Revision {
        head.manifest.wanted_by(uuid).clone()
    }
}

/// A revision's author, for people.
pub(crate) fn made_by(revision: &Revision) -> String {
    format!("{}@{}", revision.author, revision.proxy)
}

/// A revision in one line.
pub(crate) fn described(manifest: &Manifest) -> String {
    let revision = &manifest.revision;
    format!("{} (by {}, {}: {})", revision.number, made_by(revision), ago(now() - revision.time), revision.command)
}
