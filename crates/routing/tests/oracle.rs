//! Generated rules and statements: the rule set must decide what trying every rule in order with plain expressions
//! decides, whatever it remembers and passes over. And no input may make it panic.
#![allow(clippy::unwrap_used)] // tests, helpers included, may panic

mod common;

use common::{Sender, digest, hostgroup, route, with_request};
use model::HostgroupId;
use model::snapshot::{AddressPattern, FastRoute, Modifiers, QueryRule, RuleConfig, WeightedFlag};
use proptest::prelude::*;
use proptest::sample::select;
use routing::{Engine, Memo, Options, RuleSet};

const PATTERNS: &[&str] = &[
    "^SELECT",
    "^SELECT.*FOR UPDATE$",
    "FOR UPDATE",
    "orders",
    "orders|users",
    "^(INSERT|UPDATE)",
    "a++b",
    r"\borders\b",
    "^(?!SELECT)",
    "id = 7",
    r"id = (\d+)",
    "",
    "$",
    "(?i)USERS",
    "[^a-z]{3}",
    r"\?",
    "FROM (orders|items) WHERE",
    r"(\w+) \1",
];

const TEXTS: &[&str] = &[
    "SELECT 1",
    "SELECT * FROM orders WHERE id = 7",
    "select * from orders where id = 8 for update",
    "SELECT * FROM users\n",
    "INSERT INTO orders VALUES (1)",
    "UPDATE items SET a = 7 WHERE id = 7",
    "DELETE FROM items WHERE items items",
    "SELECT a FROM items WHERE id = 7 FOR UPDATE\n",
    "",
    "SELECT '\u{e9}' FROM aab",
];

fn some<T: Clone + std::fmt::Debug + 'static>(values: &'static [T]) -> impl Strategy<Value = Option<T>> {
    prop_oneof![3 => Just(None), 1 => select(values).prop_map(Some)]
}

fn text(values: &'static [&'static str]) -> impl Strategy<Value = Option<Box<str>>> {
    some(values).prop_map(|text| text.map(Box::from))
}

fn address() -> impl Strategy<Value = Option<AddressPattern>> {
    let pattern = |text: &str| match text.strip_suffix('%') {
        Some("") => AddressPattern::Any,
        Some(prefix) => AddressPattern::Prefix(prefix.into()),
        None => AddressPattern::Exact(text.into()),
    };
    prop::option::of(select(&["%", "10.%", "10.1.%", "10.1.2.3", "::1"][..])).prop_map(move |text| text.map(pattern))
}

fn rule() -> impl Strategy<Value = QueryRule> {
    let who = (text(&["app", "root"]), text(&["shop", "blog"]), address(), some(&[6033_u16, 6034]), 0..3_u32);
    let what = (text(PATTERNS), text(PATTERNS), any::<bool>(), any::<(bool, bool)>(), some(TEXTS));
    let then =
        (some(&[0_u32, 1, 2, 3]), some(&[0_u32, 1, 2]), some(&["x", "", "FOR UPDATE", "[\\0]"]), 0..9_u32, prop::bool::weighted(0.3));
    (who, what, then).prop_map(|(who, what, then)| QueryRule {
        username: who.0,
        schemaname: who.1,
        client_addr: who.2,
        proxy_port: who.3,
        flag_in: if who.4 == 2 { 1 } else { 0 },
        match_digest: what.0,
        replace_pattern: what.1.is_some().then_some(then.2).flatten().map(Box::from),
        match_pattern: what.1,
        negate_match_pattern: what.2 && what.3.0,
        modifiers: Modifiers { caseless: what.3.0, global: what.3.1 },
        digest: what.4.map(|text| digest(text.as_bytes()).1),
        flag_out: then.0,
        flag_outs: then.1.map(|flag| WeightedFlag { flag, weight: 2 }).into_iter().collect(),
        destination_hostgroup: (then.3 > 3).then_some(HostgroupId(then.3)),
        timeout_ms: (then.3 == 2).then_some(then.3),
        apply: then.4,
        ..QueryRule::default()
    })
}

fn config() -> impl Strategy<Value = RuleConfig> {
    let fast = (select(vec!["", "app"]), select(vec!["shop", "blog"]), 0..3_u32, 20..23_u32);
    let fast = fast.prop_map(|(user, schema, flag_in, destination)| FastRoute {
        username: user.into(),
        schemaname: schema.into(),
        flag_in,
        destination: HostgroupId(destination),
    });
    (prop::collection::vec(rule(), 0..12), prop::collection::vec(fast, 0..3)).prop_map(|(mut rules, fast_routes)| {
        for (id, rule) in (10..).zip(&mut rules) {
            rule.rule_id = id;
        }
        RuleConfig { rules, fast_routes, ..RuleConfig::default() }
    })
}

fn sender() -> impl Strategy<Value = Sender> {
    let who = (
        select(vec!["app", "root", "x"]),
        select(vec!["shop", "blog", ""]),
        select(vec![None, Some("10.1.2.3"), Some("10.9.9.9"), Some("::1")]),
    );
    (who, select(vec![6033_u16, 6034]), 0..2_u32).prop_map(|((user, schema, client_addr), proxy_port, flag_in)| Sender {
        user,
        schema,
        client_addr,
        proxy_port,
        flag_in,
        ..Sender::default()
    })
}

/// Few texts and many senders, so that remembered answers of one sender could reach another.
fn statements() -> impl Strategy<Value = Vec<(Sender, &'static str)>> {
    let texts = prop::sample::subsequence(TEXTS, 2);
    texts.prop_flat_map(|texts| prop::collection::vec((sender(), select(texts)), 1..32))
}

/// The outcome of a statement's walk through the rules.
#[derive(Debug, PartialEq, Eq)]
struct Decision {
    hostgroup: i64,
    timeout_ms: Option<u32>,
    matched: Vec<u32>,
    flag: u32,
    text: Vec<u8>,
}

/// Every rule in order, every expression with PCRE2, nothing remembered.
fn naive(config: &RuleConfig, iterations: u32, sender: &Sender, original: &[u8]) -> Decision {
    let (digest_text, hash) = digest(original);
    let mut decision = Decision { hostgroup: -1, timeout_ms: None, matched: Vec::new(), flag: sender.flag_in, text: original.to_vec() };
    let (mut at, mut left, mut applied) = (0, iterations, false);
    while at < config.rules.len() && !applied {
        let rule = &config.rules[at];
        at += 1;
        if !naive_matches(rule, sender, &decision, &digest_text, hash) {
            continue;
        }
        decision.matched.push(rule.rule_id);
        decision.hostgroup = rule.destination_hostgroup.map_or(decision.hostgroup, |id| i64::from(id.0));
        decision.timeout_ms = rule.timeout_ms.or(decision.timeout_ms);
        if let Some(replacement) = &rule.replace_pattern {
            decision.text = naive_replace(rule, replacement, &decision.text);
        }
        let flag = rule.flag_out.or(rule.flag_outs.first().map(|choice| choice.flag));
        decision.flag = flag.unwrap_or(decision.flag);
        applied = rule.apply;
        if flag.is_some() && left > 0 {
            left -= 1;
            at = 0;
        }
    }
    let fast = |user: &str| {
        config.fast_routes.iter().rfind(|row| &*row.username == user && &*row.schemaname == sender.schema && row.flag_in == decision.flag)
    };
    if let (false, Some(row)) = (applied, fast(sender.user).or_else(|| fast(""))) {
        decision.hostgroup = i64::from(row.destination.0);
    }
    decision
}

fn naive_matches(rule: &QueryRule, sender: &Sender, decision: &Decision, digest_text: &[u8], hash: u64) -> bool {
    let text = |wanted: &Option<Box<str>>, is: &str| wanted.as_ref().is_none_or(|wanted| **wanted == *is);
    let address = match (&rule.client_addr, sender.client_addr) {
        (None | Some(AddressPattern::Any), _) => true,
        (Some(AddressPattern::Exact(wanted)), Some(is)) => **wanted == *is,
        (Some(AddressPattern::Prefix(prefix)), Some(is)) => is.starts_with(&**prefix),
        (Some(_), None) => false,
    };
    let pattern = |pattern: &Option<Box<str>>, text: &[u8]| {
        pattern.as_ref().is_none_or(|pattern| expression(pattern, rule).is_match(text).unwrap() != rule.negate_match_pattern)
    };
    rule.flag_in == decision.flag
        && text(&rule.username, sender.user)
        && text(&rule.schemaname, sender.schema)
        && address
        && rule.proxy_port.is_none_or(|port| port == sender.proxy_port)
        && rule.digest.is_none_or(|digest| digest == hash)
        && pattern(&rule.match_digest, digest_text)
        && pattern(&rule.match_pattern, &decision.text)
}

fn expression(pattern: &str, rule: &QueryRule) -> pcre2::bytes::Regex {
    pcre2::bytes::RegexBuilder::new().caseless(rule.modifiers.caseless).build(pattern).unwrap()
}

/// The generated replacements know `\0` only.
fn naive_replace(rule: &QueryRule, replacement: &str, text: &[u8]) -> Vec<u8> {
    let expression = expression(rule.match_pattern.as_deref().unwrap(), rule);
    let (mut out, mut copied) = (Vec::new(), 0);
    for found in expression.find_iter(text).take(if rule.modifiers.global { usize::MAX } else { 1 }) {
        let found = found.unwrap();
        out.extend_from_slice(&text[copied..found.start()]);
        let parts: Vec<&[u8]> = replacement.split("\\0").map(str::as_bytes).collect();
        out.extend(parts.join(&text[found.start()..found.end()]));
        copied = found.end();
    }
    out.extend_from_slice(&text[copied..]);
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn decides_as_trying_every_rule_does(
        config in config(),
        iterations in select(vec![0_u32, 0, 0, 1, 3]),
        statements in statements(),
    ) {
        let set = RuleSet::compile(&config, Options { engine: Engine::Pcre, iterations }).unwrap();
        let mut memo = Memo::new();
        let mut hits = std::collections::BTreeMap::new();
        for (sender, text) in statements {
            let decided = route(&set, &mut memo, &sender, text.as_bytes());
            let is = Decision {
                hostgroup: hostgroup(&decided),
                timeout_ms: decided.timeout_ms,
                matched: decided.matched.to_vec(),
                flag: decided.final_flag,
                text: decided.rewritten.as_deref().unwrap_or(text.as_bytes()).to_vec(),
            };
            for id in &is.matched {
                *hits.entry(*id).or_insert(0) += 2;
            }
            prop_assert_eq!(is, naive(&config, iterations, &sender, text.as_bytes()));
        }
        for (id, count) in set.hits() {
            prop_assert_eq!(count, hits.get(&id).copied().unwrap_or(0));
        }
    }

    #[test]
    fn no_input_panics(
        patterns in prop::collection::vec("[ -~\u{e9}]{0,12}", 3),
        replacement in r"[a\\0-9]{0,6}",
        texts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..4),
        flags in any::<(bool, bool, bool)>(),
        comment in "[a-z_=;0-9 :-]{0,40}",
    ) {
        let rule = QueryRule {
            match_digest: Some(patterns[0].as_str().into()),
            match_pattern: Some(patterns[1].as_str().into()),
            replace_pattern: flags.0.then(|| replacement.as_str().into()),
            modifiers: Modifiers { caseless: flags.1, global: flags.2 },
            ..QueryRule::default()
        };
        let second = QueryRule { rule_id: 1, match_pattern: Some(patterns[2].as_str().into()), negate_match_pattern: flags.0, ..QueryRule::default() };
        let config = RuleConfig { rules: vec![rule, second], ..RuleConfig::default() };
        for engine in [Engine::Pcre, Engine::Re2] {
            let Ok(set) = RuleSet::compile(&config, Options { engine, iterations: 1 }) else {
                continue;
            };
            let mut memo = Memo::new();
            for text in &texts {
                let decided = with_request(&Sender::default(), text, |request| {
                    let request = routing::Request { comment: Some(comment.as_bytes()), ..*request };
                    set.route(&request, &mut memo, 1)
                });
                prop_assert!(decided.matched.len() <= 4);
            }
        }
    }
}
