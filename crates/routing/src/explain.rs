//! How a statement goes through the rules, rule by rule, for people. Nothing is remembered or counted.

use crate::plan::{Next, Outcome, Walk};
use crate::request::Request;
use crate::route::Route;
use crate::rule::Rule;
use crate::ruleset::{DIGEST_TOO_LONG, RuleSet};

/// One rule of the walk, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedRule {
    /// The rule, by its key in `mysql_query_rules`.
    pub rule_id: u32,
    /// True if all conditions of the rule held.
    pub matched: bool,
    /// The columns that it set, or the first condition that did not hold.
    pub why: String,
}

/// A statement's whole way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// Every rule tried, in the order of trying; a rule may be tried again when rules start over.
    pub rules: Vec<ExplainedRule>,
    /// The final decision, with fast routing and comments.
    pub route: Route,
}

impl RuleSet {
    /// Tries every rule, without the shortcuts of [`RuleSet::route`]; the decision is the same.
    pub fn explain(&self, request: &Request<'_>, random: u64) -> Explanation {
        let mut rules = Vec::new();
        let outcome = self.explained_walk(request, random, &mut rules);
        let mut route = outcome.route;
        self.after_rules(request, &mut route);
        Explanation { rules, route }
    }

    fn explained_walk(&self, request: &Request<'_>, random: u64, told: &mut Vec<ExplainedRule>) -> Outcome {
        if self.plan(&self.class_of(request), request, &mut Vec::new()).is_none() {
            let mut asks = self.rules.iter().filter(|rule| rule.match_digest.is_some()).map(|rule| rule.row.rule_id);
            told.extend(asks.next().map(|rule_id| ExplainedRule { rule_id, matched: false, why: DIGEST_TOO_LONG.to_owned() }));
            return Outcome::refused(request.flag_in);
        }
        let digest = request.digest.text().unwrap_or_default();
        let mut state = Walk::new(request.flag_in, self.iterations, random);
        let mut at = 0;
        while let Some(rule) = self.rules.get(at) {
            let rule_id = rule.row.rule_id;
            if let Some(why) = refusal(rule, request, &digest, &state) {
                told.push(ExplainedRule { rule_id, matched: false, why });
                at += 1;
                continue;
            }
            let (next, rewriting) = state.take(u32::try_from(at).unwrap_or(u32::MAX), rule, request.text);
            let limit = if rewriting.is_err() { "; the replacement took too many steps" } else { "" };
            told.push(ExplainedRule { rule_id, matched: true, why: format!("{}{limit}", actions(rule, &state)) });
            at = match next {
                Next::Onward => at + 1,
                Next::Restart => 0,
                Next::Stop => break,
            };
        }
        state.finish()
    }
}

/// The first condition that does not hold.
fn refusal(rule: &Rule, request: &Request<'_>, digest: &[u8], state: &Walk) -> Option<String> {
    let row = &rule.row;
    if row.flag_in != state.route.final_flag {
        return Some(format!("flagIN {} is not the flag reached, {}", row.flag_in, state.route.final_flag));
    }
    if let Some(column) = rule.refused_by(request, || request.digest.hash()) {
        return Some(format!("{column} is another"));
    }
    let patterns = [("match_digest", &rule.match_digest, digest), ("match_pattern", &rule.match_pattern, state.current(request.text))];
    patterns.into_iter().find_map(|(column, pattern, text)| {
        let word = match (rule.holds(pattern, text), row.negate_match_pattern) {
            (Ok(true), _) => return None,
            (Ok(false), false) => "does not match",
            (Ok(false), true) => "matches, and negate_match_pattern is 1",
            (Err(_), _) if rule.if_given_up() => return None,
            (Err(_), _) => "took too many steps, which is no match",
        };
        Some(format!("{column} {word}"))
    })
}

/// The columns that a matching rule has set.
fn actions(rule: &Rule, state: &Walk) -> String {
    let row = &rule.row;
    let number = |name: &str, value: Option<u64>| value.map(|value| format!("{name}={value}"));
    let flag = |name: &str, value: Option<bool>| number(name, value.map(u64::from));
    let flag_out = (row.flag_out.is_some() || !row.flag_outs.is_empty()).then(|| u64::from(state.route.final_flag));
    let set = [
        number("destination_hostgroup", row.destination_hostgroup.map(|id| u64::from(id.0))),
        number("flagOUT", flag_out),
        row.replace_pattern.as_ref().map(|_| "rewritten".to_owned()),
        row.error_msg.as_ref().map(|_| "error_msg".to_owned()),
        row.ok_msg.as_ref().map(|_| "OK_msg".to_owned()),
        number("cache_ttl", row.cache_ttl_ms.map(u64::from)),
        flag("cache_empty_result", row.cache_empty_result),
        number("timeout", row.timeout_ms.map(u64::from)),
        number("retries", row.retries.map(u64::from)),
        number("delay", row.delay_ms.map(u64::from)),
        number("max_queries_per_second", row.max_queries_per_second.map(u64::from)),
        number("next_query_flagIN", row.next_query_flag_in.map(u64::from)),
        number("mirror_hostgroup", row.mirror_hostgroup.map(|id| u64::from(id.0))),
        number("mirror_flagOUT", row.mirror_flag_out.map(u64::from)),
        number("gtid_from_hostgroup", row.gtid_from_hostgroup.map(|id| u64::from(id.0))),
        row.multiplex.map(|multiplex| format!("multiplex {multiplex:?}")),
        flag("log", row.log),
        row.apply.then(|| "apply".to_owned()),
    ];
    let set: Vec<String> = set.into_iter().flatten().collect();
    if set.is_empty() { "sets nothing".to_owned() } else { set.join(", ") }
}
