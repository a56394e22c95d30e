//! The configuration in force, with what is compiled from it once and shared by all workers.

use meter::digest::DigestRules;
use model::ConfigError;
use model::snapshot::{Snapshot, UserSplit};
use routing::{Firewall, Options, RuleSet};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

/// See the module. A copy shares what is large.
#[derive(Clone)]
pub(crate) struct InForce {
    /// The configuration.
    pub snapshot: Arc<Snapshot>,
    /// Its rules.
    pub rules: Arc<RuleSet>,
    /// Its firewall's whitelist.
    pub firewall: Arc<Firewall>,
    /// How digests are made.
    pub digests: DigestRules,
    /// Whether a read/write split is switched on for anybody.
    pub splits: bool,
    plain: bool,
}

impl InForce {
    /// Compiles `snapshot`. Rules that are those of `before` are kept with what was counted and remembered of them.
    ///
    /// # Errors
    /// Each pattern that cannot be used, by rule and column.
    pub(crate) fn compile(snapshot: Arc<Snapshot>, before: Option<&Self>) -> Result<Self, Vec<ConfigError>> {
        let options = Options::from_variables(&snapshot.vars);
        let digests = DigestRules::from_variables(&snapshot.vars);
        let is_same =
            |b: &&Self| b.snapshot.rules == snapshot.rules && Options::from_variables(&b.snapshot.vars) == options && b.digests == digests;
        let same = before.filter(is_same);
        let (rules, firewall) = match same {
            Some(before) => (Arc::clone(&before.rules), Arc::clone(&before.firewall)),
            None => {
                let rules = RuleSet::compile(&snapshot.rules, options)?;
                (Arc::new(rules), Arc::new(Firewall::new(&snapshot.rules.firewall)))
            }
        };
        let of_users = snapshot.users.values().any(|u| matches!(u.attributes.read_write_split, UserSplit::On(_)));
        let splits = of_users || snapshot.hostgroups.values().any(|h| h.attributes.split_reader.is_some());
        let no_rules = snapshot.rules.rules.is_empty() && snapshot.rules.fast_routes.is_empty();
        let obeys = snapshot.users.values().any(|u| u.attributes.comment_directives);
        let plain = no_rules && !splits && !obeys && !snapshot.vars.firewall_whitelist_enabled;
        Ok(Self { digests, snapshot, rules, firewall, splits, plain })
    }

    /// Only the configuration, for whoever needs no more.
    pub(crate) fn only_snapshot(self: Rc<Self>) -> SnapshotInForce {
        SnapshotInForce(self)
    }

    /// Whether every statement goes to its user's `default_hostgroup`.
    pub(crate) fn is_plain(&self) -> bool {
        self.plain
    }
}

/// A worker's hold on the configuration in force: counted without touching what other workers touch.
pub(crate) struct SnapshotInForce(Rc<InForce>);

impl Deref for SnapshotInForce {
    type Target = Snapshot;

    fn deref(&self) -> &Snapshot {
        &self.0.snapshot
    }
}
