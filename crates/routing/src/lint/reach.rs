//! Rules that no statement reaches.

use std::collections::{BTreeSet, HashMap};

use model::snapshot::{AddressPattern, QueryRule};

use super::Lint;

/// Rules whose flagIN no statement has when it comes to them.
pub(super) fn flags(rules: &[QueryRule], iterations: u32) -> Vec<Lint> {
    let mut reached = first_flags(rules);
    walk(rules, &mut reached);
    if iterations > 0 {
        // Statements that begin again bring the flags of later rules; each round can only add.
        while walk(rules, &mut reached) {}
    }
    let mut at_rule = first_flags(rules);
    let mut lints = Vec::new();
    for rule in rules {
        let flags = if iterations > 0 { &reached } else { &at_rule };
        if !flags.contains(&rule.flag_in) {
            let later = rules.iter().find(|other| other.rule_id >= rule.rule_id && outs(other).any(|flag| flag == rule.flag_in));
            let text = match later {
                Some(later) => format!(
                    "never tried: flag {} is first set by rule {}, and evaluation goes on with higher rules only (mysql-query_processor_iterations is 0)",
                    rule.flag_in, later.rule_id
                ),
                None => format!("never tried: no rule that is reached sets flag {}", rule.flag_in),
            };
            lints.push(Lint { rule_id: rule.rule_id, column: "flagIN", text });
        } else {
            at_rule.extend(outs(rule));
        }
    }
    lints
}

/// Flags that statements begin with.
fn first_flags(rules: &[QueryRule]) -> BTreeSet<u32> {
    let given = rules.iter().flat_map(|rule| [rule.next_query_flag_in, rule.mirror_flag_out]).flatten();
    given.chain([0]).collect()
}

/// One way through the rules; true when it set a flag that was not known.
fn walk(rules: &[QueryRule], reached: &mut BTreeSet<u32>) -> bool {
    let before = reached.len();
    for rule in rules {
        if reached.contains(&rule.flag_in) {
            reached.extend(outs(rule));
        }
    }
    reached.len() > before
}

/// Flags that a rule sets for the rules after it.
fn outs(rule: &QueryRule) -> impl Iterator<Item = u32> {
    let weighted = rule.flag_outs.iter().filter(|choice| rule.flag_out.is_none() && choice.weight > 0).map(|choice| choice.flag);
    rule.flag_out.into_iter().chain(weighted).filter(|_| !rule.apply)
}

/// The columns that are conditions, as texts; `None` always holds.
type Conditions = [Option<String>; 8];

/// Rules that come after one with `apply=1` whose conditions hold wherever theirs do.
pub(super) fn shadowed(rules: &[QueryRule]) -> Vec<Lint> {
    let rewrites = rules.iter().any(|rule| rule.replace_pattern.is_some());
    let mut applied: HashMap<(u32, Conditions), u32> = HashMap::new();
    let mut lints = Vec::new();
    for rule in rules {
        let conditions = conditions(rule);
        if let Some(earlier) = earlier(rule, &conditions, &applied) {
            let text = format!("never reached: rule {earlier} applies to everything that this rule matches");
            lints.push(Lint { rule_id: rule.rule_id, column: "apply", text });
        }
        // What gets this flag only now did not pass the rules above with it.
        for flag in outs(rule) {
            applied.retain(|(flag_in, _), _| *flag_in != flag);
        }
        // A rewritten text is another text.
        if rule.apply && !(rewrites && rule.match_pattern.is_some()) {
            applied.entry((rule.flag_in, conditions)).or_insert(rule.rule_id);
        }
    }
    lints
}

/// An earlier rule whose conditions are some of these.
fn earlier(rule: &QueryRule, conditions: &Conditions, applied: &HashMap<(u32, Conditions), u32>) -> Option<u32> {
    if applied.is_empty() {
        return None;
    }
    let given: Vec<usize> = (0..conditions.len()).filter(|index| conditions[*index].is_some()).collect();
    (0..1_u32 << given.len()).find_map(|kept| {
        let mut some = conditions.clone();
        for (bit, index) in given.iter().enumerate() {
            if kept & (1 << bit) == 0 {
                some[*index] = None;
            }
        }
        applied.get(&(rule.flag_in, some)).copied()
    })
}

fn conditions(rule: &QueryRule) -> Conditions {
    let text = |text: &Option<Box<str>>| text.as_deref().map(str::to_owned);
    let pattern = |pattern: &Option<Box<str>>| {
        let pattern = pattern.as_deref().filter(|pattern| rule.negate_match_pattern || !matches_all(pattern))?;
        Some(format!("{} {} {pattern}", rule.negate_match_pattern, rule.modifiers.caseless))
    };
    let address = match &rule.client_addr {
        None | Some(AddressPattern::Any) => None,
        Some(AddressPattern::Exact(address)) => Some(format!("={address}")),
        Some(AddressPattern::Prefix(prefix)) => Some(format!("^{prefix}")),
    };
    [
        text(&rule.username),
        text(&rule.schemaname),
        address,
        text(&rule.proxy_addr),
        rule.proxy_port.map(|port| port.to_string()),
        rule.digest.map(|digest| digest.to_string()),
        pattern(&rule.match_digest),
        pattern(&rule.match_pattern),
    ]
}

fn matches_all(pattern: &str) -> bool {
    matches!(pattern, "" | "^" | ".*" | "^.*" | "^.*$" | ".*$")
}
