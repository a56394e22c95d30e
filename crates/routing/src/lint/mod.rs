//! Suspicious parts of valid rules.
//!
//! There are four kinds of remarks. Columns without effect; rules and flags that no statement reaches (`reach`); patterns that no digest
//! matches (`literal`); and regex read/write splits that send the wrong statements to a reader (`split`). The last kind is found by routing
//! typical statements. References to missing rows are `model`'s to find.

mod literal;
mod reach;
mod split;

use model::snapshot::QueryRule;
use model::{About, Remark, RowName, Snapshot};

use crate::ruleset::{Options, RuleSet};

/// With more rules than this no statements are tried: it would take a minute, and such sets are not written by hand.
const MOST_TRIED: usize = 10_000;

/// Remarks on the rules of a configuration, by rule. Rules that do not compile get none on where statements go.
pub fn lint(snapshot: &Snapshot) -> Vec<Remark> {
    let config = &*snapshot.rules;
    let mut remarks = dead(snapshot);
    remarks.extend(config.rules.iter().flat_map(inert));
    if config.rules.len() <= MOST_TRIED
        && let Ok(rules) = RuleSet::compile(config, Options::from_variables(&snapshot.vars))
    {
        remarks.extend(split::misrouted(snapshot, &rules));
    }
    in_order(remarks)
}

/// Remarks on rules and columns without any effect, which each LOAD reports.
pub fn dead(snapshot: &Snapshot) -> Vec<Remark> {
    let config = &*snapshot.rules;
    let options = Options::from_variables(&snapshot.vars);
    let mut remarks = reach::flags(config, options.iterations);
    remarks.extend(reach::ends(config, options.iterations));
    if options.iterations == 0 {
        remarks.extend(reach::shadowed(&config.rules));
    }
    // A comment may hold anything.
    if !snapshot.vars.query_digests_keep_comment {
        remarks.extend(config.rules.iter().filter_map(|rule| literal::in_digest(rule, options.engine)));
    }
    in_order(remarks)
}

fn in_order(mut remarks: Vec<Remark>) -> Vec<Remark> {
    remarks.sort();
    remarks.dedup();
    remarks
}

/// The remark names the rule and one column.
fn remark(rule_id: u32, column: &'static str, about: About, text: String) -> Remark {
    Remark { table: "mysql_query_rules", row: RowName::numbered("rule_id", rule_id), column, about, text }
}

/// Columns that are kept and do nothing.
fn inert(rule: &QueryRule) -> impl Iterator<Item = Remark> + use<> {
    let columns = [
        ("cache_timeout", rule.cache_timeout.is_some()),
        ("sticky_conn", rule.sticky_conn.is_some()),
        ("reconnect", rule.reconnect.is_some()),
    ];
    let rule_id = rule.rule_id;
    let text = "has no effect, as in ProxySQL";
    columns.into_iter().filter(|(_, given)| *given).map(move |(column, _)| remark(rule_id, column, About::Advice, text.to_owned()))
}
