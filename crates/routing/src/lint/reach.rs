//! Rules that no statement reaches, and flags that lead nowhere.
//!
//! All of it is told at each LOAD, so none of it may cost more than the rules' number times a little.

use std::collections::{BTreeSet, HashMap, HashSet};

use model::snapshot::{AddressPattern, QueryRule, RuleConfig};
use model::{About, Remark};

use super::remark;

/// Rules whose flagIN no statement has when it comes to them.
pub(super) fn flags(config: &RuleConfig, iterations: u32) -> Vec<Remark> {
    let rules = &config.rules;
    let mut reached = first_flags(rules);
    walk(rules, &mut reached);
    if iterations > 0 {
        // Statements that begin again bring the flags of later rules; each round can only add.
        while walk(rules, &mut reached) {}
    }
    let setters = setters(rules);
    let mut at_rule = first_flags(rules);
    let mut remarks = Vec::new();
    for rule in rules {
        let flags = if iterations > 0 { &reached } else { &at_rule };
        if flags.contains(&rule.flag_in) {
            at_rule.extend(outs(rule));
            continue;
        }
        let setters = setters.get(&rule.flag_in).map_or(&[][..], Vec::as_slice);
        let later = setters.get(setters.partition_point(|setter| *setter < rule.rule_id));
        let text = match later {
            Some(later) => format!(
                "never tried: flag {} is first set by rule {later}, and evaluation goes on with higher rules only \
                 (mysql-query_processor_iterations is 0); give this rule a higher rule_id than that",
                rule.flag_in
            ),
            None => {
                format!("never tried: no rule before it sets flag {0}; set flagOUT={0} in one before it, or flagIN=0 here", rule.flag_in)
            }
        };
        remarks.push(remark(rule.rule_id, "flagIN", About::Dead, text));
    }
    remarks
}

/// Flags that no rule behind goes on with: the chain ends where its author meant it to go on.
pub(super) fn ends(config: &RuleConfig, iterations: u32) -> Vec<Remark> {
    let rules = &config.rules;
    let last_in: HashMap<u32, u32> = rules.iter().map(|rule| (rule.flag_in, rule.rule_id)).collect();
    let routes: HashSet<u32> = config.fast_routes.iter().map(|route| route.flag_in).collect();
    let firewall: HashSet<u32> = config.firewall.rules.iter().map(|rule| rule.flag_in).collect();
    let is_read = |flag: u32, after: Option<u32>| {
        let by_rule = last_in.get(&flag).is_some_and(|last| iterations > 0 || after.is_none_or(|rule_id| *last > rule_id));
        by_rule || routes.contains(&flag) || firewall.contains(&flag)
    };
    let mut remarks = Vec::new();
    for rule in rules {
        let mut tell = |column, text| remarks.push(remark(rule.rule_id, column, About::Dead, text));
        let column = if rule.flag_out.is_some() { "flagOUT" } else { "attributes" };
        for flag in outs(rule).filter(|flag| *flag != rule.flag_in && !is_read(*flag, Some(rule.rule_id))) {
            let text = "the chain ends here with this rule's result: give a following rule this flagIN, or set apply=1";
            tell(column, format!("no higher rule has flagIN={flag}: {text}"));
        }
        if let Some(flag) = rule.next_query_flag_in.filter(|flag| *flag != 0 && !is_read(*flag, None)) {
            let text = "the session's further statements match no rule: give following rules this flagIN";
            tell("next_query_flagIN", format!("no rule has flagIN={flag}: {text}"));
        }
        if let Some(flag) = rule.mirror_flag_out.filter(|flag| *flag != 0 && !is_read(*flag, None)) {
            let text = "the copy matches no rule: give following rules this flagIN";
            tell("mirror_flagOUT", format!("no rule has flagIN={flag}: {text}"));
        }
    }
    remarks
}

/// Flags that statements begin with.
fn first_flags(rules: &[QueryRule]) -> BTreeSet<u32> {
    let given = rules.iter().flat_map(|rule| [rule.next_query_flag_in, rule.mirror_flag_out]).flatten();
    given.chain([0]).collect()
}

/// The rules that set each flag, in ascending order.
fn setters(rules: &[QueryRule]) -> HashMap<u32, Vec<u32>> {
    let mut setters: HashMap<u32, Vec<u32>> = HashMap::new();
    for rule in rules {
        for flag in outs(rule) {
            setters.entry(flag).or_default().push(rule.rule_id);
        }
    }
    setters
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

const CONDITIONS: usize = 8;

/// The columns that are conditions, as numbers of texts; 0 always holds.
type Conditions = [usize; CONDITIONS];

/// Rules with `apply=1` of one flag: by which conditions they have, and by those.
type Applied = HashMap<u8, HashMap<Conditions, u32>>;

/// Rules that come after one with `apply=1` whose conditions hold wherever theirs do.
pub(super) fn shadowed(rules: &[QueryRule]) -> Vec<Remark> {
    let rewrites = rules.iter().any(|rule| rule.replace_pattern.is_some());
    let mut texts = Texts::default();
    let mut applied: HashMap<u32, Applied> = HashMap::new();
    let mut remarks = Vec::new();
    for rule in rules {
        let conditions = conditions(rule).map(|condition| condition.map_or(0, |text| texts.number(text)));
        if let Some(earlier) = applied.get(&rule.flag_in).and_then(|applied| earlier(&conditions, applied)) {
            let text = format!(
                "never reached: rule {earlier} applies to everything that this rule matches; give this rule a lower rule_id than that, or \
                 delete it"
            );
            remarks.push(remark(rule.rule_id, "apply", About::Dead, text));
        }
        // Statements that get this flag only here did not pass the rules above with it.
        for flag in outs(rule) {
            applied.remove(&flag);
        }
        // A rewritten text is another text.
        if rule.apply && !(rewrites && rule.match_pattern.is_some()) {
            let alike = applied.entry(rule.flag_in).or_default().entry(mask(&conditions)).or_default();
            alike.entry(conditions).or_insert(rule.rule_id);
        }
    }
    remarks
}

/// An earlier rule whose conditions are some of these.
fn earlier(conditions: &Conditions, applied: &Applied) -> Option<u32> {
    let given = mask(conditions);
    let some = applied.iter().filter(|(kept, _)| **kept & !given == 0);
    some.filter_map(|(kept, rules)| {
        let mut reduced = *conditions;
        for (index, condition) in reduced.iter_mut().enumerate() {
            if kept & (1 << index) == 0 {
                *condition = 0;
            }
        }
        rules.get(&reduced).copied()
    })
    .min()
}

/// Which conditions are given, one bit each.
fn mask(conditions: &Conditions) -> u8 {
    conditions.iter().enumerate().filter(|(_, condition)| **condition != 0).fold(0, |mask, (index, _)| mask | 1 << index)
}

/// Numbers of texts, from 1.
#[derive(Default)]
struct Texts(HashMap<String, usize>);

impl Texts {
    fn number(&mut self, text: String) -> usize {
        let next = self.0.len() + 1;
        *self.0.entry(text).or_insert(next)
    }
}

/// The conditions as texts; `None` always holds.
fn conditions(rule: &QueryRule) -> [Option<String>; CONDITIONS] {
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
    matches!(pattern, "" | "^" | "." | "^." | ".+" | "^.+" | ".*" | "^.*" | "^.*$" | ".*$")
}
