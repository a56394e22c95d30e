//! Publishes a new revision, if etcd's head is still the one that it is based on.

use shared_config::{FORMAT, Head, Manifest, PublishError, Revision, Rollout, Standing, descend, new_id, sum};

use super::{Sharing, described};
use crate::clock::now;
use crate::error::AdminError;

/// Longest statement that is kept with a revision, characters.
const COMMAND: usize = 200;

/// A revision before it is published.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    /// The configuration's text.
    pub text: String,
    /// The administrator.
    pub author: String,
    /// The statement that makes it.
    pub command: String,
}

/// How long ago something was, for people.
pub(crate) fn ago(seconds: i64) -> String {
    match seconds.max(0) {
        s if s < 120 => format!("{s} s ago"),
        s if s < 7_200 => format!("{} min ago", s / 60),
        s if s < 172_800 => format!("{} h ago", s / 3_600),
        s => format!("{} days ago", s / 86_400),
    }
}

fn refused<T>(text: impl Into<String>) -> Result<T, AdminError> {
    Err(AdminError::Refused(text.into()))
}

impl Sharing {
    /// The head, for a change of it.
    ///
    /// # Errors
    /// etcd was not read, or its content cannot be.
    pub(crate) fn head(&self) -> Result<Option<std::sync::Arc<Head>>, AdminError> {
        let seen = self.seen();
        if !seen.is_known || seen.link != shared_config::Link::Up {
            let why = match &seen.link {
                shared_config::Link::Down(since, why) => format!("not reachable since {}: {why}", ago(now() - since)),
                _ => "not reached yet".to_owned(),
            };
            return refused(format!("the shared configuration is {why}. Nothing was changed"));
        }
        match &seen.fault {
            Some(fault) => refused(format!("the shared configuration: {fault}")),
            None => Ok(seen.head.clone()),
        }
    }

    /// Publishes a configuration before it is in force, unless the present revision has the same content. Returns the standing once it is
    /// in force.
    ///
    /// # Errors
    /// etcd's head is no longer this proxy's revision, or etcd cannot be reached. Nothing was changed.
    pub(crate) fn publish(&self, draft: Draft) -> Result<Option<Standing>, AdminError> {
        let standing = self.standing();
        if standing.as_ref().is_some_and(|standing| standing.sha256 == sum(draft.text.as_bytes())) {
            return Ok(None);
        }
        let head = self.head()?;
        let (Some(standing), Some(head)) = (&standing, &head) else {
            return match (standing, head) {
                (None, None) => {
                    self.refuse_newer(0)?;
                    self.put(draft, 1, None, &[], None).map(Some)
                }
                (_, Some(head)) => lost(Some(&head), None),
                (Some(standing), None) => refused(format!(
                    "etcd has lost the shared configuration, but revision {} is in force here: CONFIG SHARE stores it again",
                    standing.number
                )),
            };
        };
        if let Some(rollout) = &head.manifest.rollout {
            return refused(format!(
                "{1} of the proxies try revision {0}: run CONFIG PROMOTE or CONFIG ABORT first",
                head.manifest.revision.number,
                rollout.to.len()
            ));
        }
        if let Some((_, why)) = self.conflict(head) {
            return refused(format!("{why}. Nothing was changed"));
        }
        if head.manifest.revision.id != standing.id {
            return lost(Some(head), Some(standing.number));
        }
        self.refuse_ahead(head)?;
        self.put(draft, head.manifest.revision.number + 1, Some(head), &[], None).map(Some)
    }

    /// Checks that no live proxy has a newer revision than `own`, if etcd has none.
    ///
    /// # Errors
    /// One has: a publication by this proxy would replace it.
    pub(crate) fn refuse_newer(&self, own: u64) -> Result<(), AdminError> {
        let seen = self.seen();
        match seen.proxies.iter().filter(|proxy| proxy.applied > own).max_by_key(|proxy| proxy.applied) {
            None => Ok(()),
            Some(newer) => refused(format!(
                "{} has shared revision {}, which is newer than this proxy's {own}: run CONFIG SHARE there",
                newer.name, newer.applied
            )),
        }
    }

    /// A change of what etcd has would be in force everywhere.
    ///
    /// # Errors
    /// Live proxies have newer revisions, which etcd has lost.
    pub(crate) fn refuse_ahead(&self, head: &Head) -> Result<(), AdminError> {
        let ahead = self.ahead(head);
        let Some((name, standing)) = ahead.iter().max_by_key(|(_, standing)| standing.number) else { return Ok(()) };
        refused(format!(
            "{} of the proxies would refuse the change: {name} has revision {}, but etcd has only {}. Nothing was changed. CONFIG REBASE \
             MINE makes the configuration of the proxy that runs it the shared one; CONFIG REBASE SHARED on {name} takes the one in etcd",
            ahead.len(),
            standing.number,
            described(&head.manifest)
        ))
    }

    /// `CONFIG REBASE MINE` in a conflict: the configuration in force here holds everywhere. The revisions of etcd and of live proxies
    /// become its ancestors.
    ///
    /// # Errors
    /// See [`Sharing::publish`].
    pub(crate) fn overrule(&self, draft: Draft, head: &Head) -> Result<Standing, AdminError> {
        let mut ancestors: Vec<Standing> = self.standing().into_iter().collect();
        ancestors.extend(self.seen().proxies.iter().filter_map(|line| line.standing().filter(|one| one.cluster == head.manifest.cluster)));
        // Proxies of older versions go by numbers.
        let applied = self.seen().proxies.iter().map(|line| line.applied).max().unwrap_or(0);
        let known = ancestors.iter().map(|one| one.number).max().unwrap_or(0);
        let number = head.manifest.revision.number.max(known).max(applied) + 1;
        self.put(draft, number, Some(head), &ancestors, None)
    }

    /// Puts a revision there, behind `head` or as the first one. It comes from `more`, too.
    ///
    /// # Errors
    /// See [`Sharing::publish`].
    pub(crate) fn put(
        &self,
        draft: Draft,
        number: u64,
        head: Option<&Head>,
        more: &[Standing],
        rollout: Option<Rollout>,
    ) -> Result<Standing, AdminError> {
        let me = self.me();
        let cluster = head.map(|head| head.manifest.cluster.clone()).or_else(|| self.standing().map(|standing| standing.cluster));
        let revision = Revision {
            number,
            id: new_id(),
            sha256: String::new(),
            bytes: 0,
            parts: Vec::new(),
            author: draft.author,
            proxy: me.name,
            time: now(),
            command: draft.command.chars().take(COMMAND).collect(),
        };
        let cluster = cluster.unwrap_or_else(new_id);
        // A trial is an ancestor of what ends it: the proxies that try it take that.
        let before = head.map(standing_of);
        let lineage = descend(before.iter().chain(more));
        let manifest = Manifest { format: FORMAT, cluster, version: me.version, revision, rollout, lineage };
        self.lock().own = Some(manifest.revision.id.clone());
        let outcome = self.shared.publish(draft.text, manifest, head.map_or(0, |head| head.mod_revision));
        if outcome.is_err() {
            self.lock().own = None;
        }
        match outcome {
            Ok(head) => Ok(standing_of(&head)),
            Err(PublishError::Lost(now)) => lost(now.as_deref(), head.map(|head| head.manifest.revision.number)),
            Err(PublishError::Etcd(error)) => refused(format!(
                "the shared configuration: {error}. Nothing was changed here. If etcd stored the change all the same, it comes into \
                 force later"
            )),
        }
    }
}

/// The standing of a proxy with the head in force, published or on trial.
fn standing_of(head: &Head) -> Standing {
    let Manifest { cluster, revision, lineage, .. } = head.manifest.clone();
    Standing { cluster, number: revision.number, id: revision.id, sha256: revision.sha256, lineage }
}

/// The error after another proxy published first.
fn lost<T>(head: Option<&Head>, based_on: Option<u64>) -> Result<T, AdminError> {
    let yours = based_on.map_or_else(|| "this proxy has read no revision yet".to_owned(), |number| format!("yours is based on {number}"));
    match head {
        Some(head) => refused(format!(
            "the shared configuration is at {}, {yours}: nothing was changed. CONFIG DIFF SHARED shows the differences; repeat the command, \
             or CONFIG REBASE first where both have changed the same module",
            described(&head.manifest)
        )),
        None => refused("etcd has lost the shared configuration: nothing was changed. CONFIG SHARE stores it again"),
    }
}
