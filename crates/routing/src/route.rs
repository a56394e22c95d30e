//! The decision about a statement.

use std::sync::Arc;

use model::HostgroupId;
use model::snapshot::{QueryRule, RuleMultiplex};

/// The origin of the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Decider {
    /// No rule, route or comment: the user's `default_hostgroup`, or the read/write split.
    #[default]
    Nobody,
    /// A query rule, by its id.
    Rule(u32),
    /// A row of `mysql_query_rules_fast_routing`.
    FastRouting,
    /// A directive in the statement's comment.
    Comment,
}

/// The decision about a statement. With `None`, a setting or its default holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Route {
    /// The hostgroup. It need not exist.
    pub destination_hostgroup: Option<HostgroupId>,
    /// The origin of `destination_hostgroup`.
    pub decider: Decider,
    /// The statement is killed after so many ms; 0 means `mysql-default_query_timeout`.
    pub timeout_ms: Option<u32>,
    /// How often it may be sent again.
    pub retries: Option<u32>,
    /// How long it waits first, ms.
    pub delay_ms: Option<u32>,
    /// A rule, and how many statements it lets through each second.
    pub pace: Option<(u32, u32)>,
    /// How long the result may be cached, ms, from 1.
    pub cache_ttl_ms: Option<u32>,
    /// Whether an empty result may be cached.
    pub cache_empty_result: Option<bool>,
    /// Whether the session's backend may be shared after the statement.
    pub multiplex: Option<RuleMultiplex>,
    /// Whether it is written to the query log.
    pub log: Option<bool>,
    /// The statement is answered with this error (1148, SQLSTATE 42000), unless `ok_msg` is set.
    pub error_msg: Option<Arc<str>>,
    /// The statement is answered with OK and this text.
    pub ok_msg: Option<Arc<str>>,
    /// The hostgroup that gets a copy of the statement.
    pub mirror_hostgroup: Option<HostgroupId>,
    /// The flag at which the copy begins its own way through the rules.
    pub mirror_flag_out: Option<u32>,
    /// The flag at which the session's further statements begin.
    pub next_query_flag_in: Option<u32>,
    /// A hostgroup whose last GTID the server must have executed.
    pub gtid_from_hostgroup: Option<HostgroupId>,
    /// The flag at the end of the rules; the firewall's rules name it.
    pub final_flag: u32,
    /// Whether a rule with `apply=1` ended the rules.
    pub applied: bool,
    /// The statement to send instead.
    pub rewritten: Option<Arc<[u8]>>,
    /// Ids of the rules that matched, in order; a rule that matched twice is in it twice.
    pub matched: Arc<[u32]>,
    /// Only servers whose replication lag is not larger, ms: a comment's `max_lag_ms`.
    pub max_lag_ms: Option<u32>,
    /// Only servers that have replicated everything committed at this time (Unix time, ms): a comment's `min_epoch_ms`.
    pub min_epoch_ms: Option<u64>,
    /// Only servers that have executed these GTIDs (`uuid:number` or `domain-server-number`): a comment's `min_gtid`, as it was
    /// written.
    pub min_gtid: Option<Arc<str>>,
    /// A new backend connection must be opened: a comment's `create_new_connection=1`.
    pub new_connection: bool,
    /// Something of a directive in the comment was not understood, and is passed over.
    pub is_comment_misread: bool,
}

impl Route {
    /// The same way, with nothing done on it.
    #[must_use]
    pub fn only_destination(&self) -> Self {
        let Self { destination_hostgroup, decider, final_flag, applied, .. } = *self;
        Self { destination_hostgroup, decider, final_flag, applied, ..Self::default() }
    }
}

impl Route {
    /// Adds a rule's actions; those of later rules replace those of earlier ones.
    pub(crate) fn take(&mut self, rule: &QueryRule) {
        if rule.destination_hostgroup.is_some() {
            self.decider = Decider::Rule(rule.rule_id);
        }
        replace(&mut self.destination_hostgroup, &rule.destination_hostgroup);
        replace(&mut self.timeout_ms, &rule.timeout_ms);
        replace(&mut self.retries, &rule.retries);
        replace(&mut self.delay_ms, &rule.delay_ms);
        replace(&mut self.pace, &rule.max_queries_per_second.map(|limit| (rule.rule_id, limit)));
        replace(&mut self.cache_ttl_ms, &rule.cache_ttl_ms);
        replace(&mut self.cache_empty_result, &rule.cache_empty_result);
        replace(&mut self.multiplex, &rule.multiplex);
        replace(&mut self.log, &rule.log);
        replace(&mut self.error_msg, &rule.error_msg);
        replace(&mut self.ok_msg, &rule.ok_msg);
        replace(&mut self.mirror_hostgroup, &rule.mirror_hostgroup);
        replace(&mut self.mirror_flag_out, &rule.mirror_flag_out);
        replace(&mut self.next_query_flag_in, &rule.next_query_flag_in);
        replace(&mut self.gtid_from_hostgroup, &rule.gtid_from_hostgroup);
    }
}

fn replace<T: Clone>(old: &mut Option<T>, new: &Option<T>) {
    if new.is_some() {
        old.clone_from(new);
    }
}
