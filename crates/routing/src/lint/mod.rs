//! What is suspicious about rules that are valid.
//!
//! Three kinds of remarks: columns that do nothing, rules that no statement reaches (`reach`), and regex read/write
//! splits that send the wrong statements to a reader (`split`), found by routing typical statements.

mod reach;
mod split;

use model::Snapshot;
use model::snapshot::QueryRule;

use crate::ruleset::{Options, RuleSet};

/// A remark on one rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lint {
    /// The rule.
    pub rule_id: u32,
    /// The column that is to blame.
    pub column: &'static str,
    /// What to know, one line.
    pub text: String,
}

/// Remarks on the rules of a configuration, by rule. Rules that do not compile get none on where statements go.
pub fn lint(snapshot: &Snapshot) -> Vec<Lint> {
    let config = &*snapshot.rules;
    let options = Options::from_variables(&snapshot.vars);
    let mut lints: Vec<Lint> = config.rules.iter().flat_map(inert).collect();
    lints.extend(reach::flags(&config.rules, options.iterations));
    if options.iterations == 0 {
        lints.extend(reach::shadowed(&config.rules));
    }
    if let Ok(rules) = RuleSet::compile(config, options) {
        lints.extend(split::misrouted(snapshot, &rules));
    }
    lints.sort();
    lints.dedup();
    lints
}

/// Columns that are kept and do nothing.
fn inert(rule: &QueryRule) -> impl Iterator<Item = Lint> + use<> {
    let columns = [
        ("cache_timeout", rule.cache_timeout.is_some()),
        ("sticky_conn", rule.sticky_conn.is_some()),
        ("reconnect", rule.reconnect.is_some()),
    ];
    let rule_id = rule.rule_id;
    let text = "has no effect, as in ProxySQL";
    columns.into_iter().filter(|(_, given)| *given).map(move |(column, _)| Lint { rule_id, column, text: text.to_owned() })
}
