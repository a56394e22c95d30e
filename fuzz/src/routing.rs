//! Query rules: any pattern is refused or obeyed, and what is remembered decides as the first time.

use model::HostgroupId;
use model::snapshot::{Modifiers, QueryRule, RuleConfig};
use routing::{Engine, KnownDigest, Memo, Options, Request, RuleSet};

use crate::input::Input;

/// The input: a byte of flags, then as pieces the pattern of the digest, the pattern of the text, its replacement, the schema;
/// the rest is the statement. Flags, from the lowest: CASELESS, GLOBAL, negate, whether there is a pattern of the
/// digest, of the text, a replacement, and whether another rule follows that has the patterns in turn.
pub fn rules(data: &[u8]) {
    let mut input = Input::new(data);
    let flags = input.byte();
    let on = |bit: u8| flags >> bit & 1 == 1;
    let mut text = || String::from_utf8_lossy(input.piece().unwrap_or_default()).into_owned().into_boxed_str();
    let (digest, pattern, replacement, schema) = (text(), text(), text(), text());
    let statement = input.rest();
    let rule = |rule_id, match_digest, match_pattern, replace_pattern| QueryRule {
        rule_id,
        match_digest,
        match_pattern,
        replace_pattern,
        negate_match_pattern: on(2),
        modifiers: Modifiers { caseless: on(0), global: on(1) },
        destination_hostgroup: Some(HostgroupId(rule_id)),
        apply: rule_id == 2,
        ..QueryRule::default()
    };
    let mut rules = vec![rule(1, on(3).then(|| digest.clone()), on(4).then(|| pattern.clone()), on(5).then_some(replacement))];
    if on(6) {
        rules.push(rule(2, Some(pattern), Some(digest), None));
    }
    for engine in [Engine::Pcre, Engine::Re2] {
        let options = Options { engine, ..Options::default() };
        let Ok(set) = RuleSet::compile(&RuleConfig { rules: rules.clone(), ..RuleConfig::default() }, options) else { continue };
        let mut memo = Memo::new();
        let first = route(&set, statement, &schema, &mut memo);
        assert_eq!(route(&set, statement, &schema, &mut memo), first, "remembered");
        assert_eq!(route(&set, statement, &schema, &mut Memo::new()), first, "of another worker");
    }
}

fn route(set: &RuleSet, statement: &[u8], schema: &str, memo: &mut Memo) -> routing::Route {
    let mut text = Vec::new();
    ::sql::digest_text(statement, &::sql::DigestOptions::default(), &mut text);
    let digest = KnownDigest { hash: ::sql::spooky_hash64(&text, 0), text: &text };
    let request = Request {
        user: b"app",
        schema: schema.as_bytes(),
        client_addr: Some("10.1.2.3"),
        proxy_addr: "0.0.0.0",
        proxy_port: 6033,
        digest_key: ::sql::analyze(statement, ::sql::LexMode::default()).digest,
        digest: &digest,
        text: statement,
        flag_in: 0,
        comment: None,
    };
    set.route(&request, memo, 1)
}
