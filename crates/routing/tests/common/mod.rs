//! Rules from the text of a configuration file, and statements with their digests.
#![allow(dead_code, clippy::unwrap_used)] // each test uses a part; tests may panic

use model::Snapshot;
use routing::{Explanation, KnownDigest, Memo, Options, Request, Route, RuleSet};
use sql::{DigestOptions, LexMode};

/// A compiled configuration.
pub(crate) fn snapshot(text: &str) -> Snapshot {
    let (config, _) = model::parse(text, "p.cnf").unwrap_or_else(|errors| panic!("{text}: {errors:#?}"));
    Snapshot::compile(&config).unwrap()
}

/// Rows of `mysql_query_rules`, all active, one a line.
pub(crate) fn rules(rows: &str) -> String {
    let rows: Vec<String> = rows.lines().filter(|row| !row.trim().is_empty()).map(|row| format!("{{ active=1 {} }}", row.trim())).collect();
    format!("mysql_query_rules = ( {} )\n", rows.join(", "))
}

/// The rules of a configuration.
pub(crate) fn rule_set(text: &str) -> RuleSet {
    let snapshot = snapshot(text);
    RuleSet::compile(&snapshot.rules, Options::from_variables(&snapshot.vars)).unwrap_or_else(|errors| panic!("{errors:#?}"))
}

/// The sender of a statement.
#[derive(Debug, Clone)]
pub(crate) struct Sender {
    pub user: &'static str,
    pub schema: &'static str,
    pub client_addr: Option<&'static str>,
    pub proxy_addr: &'static str,
    pub proxy_port: u16,
    pub flag_in: u32,
    pub comment: Option<&'static str>,
    pub random: u64,
}

impl Default for Sender {
    fn default() -> Self {
        Self {
            user: "app",
            schema: "shop",
            client_addr: Some("10.1.2.3"),
            proxy_addr: "0.0.0.0",
            proxy_port: 6033,
            flag_in: 0,
            comment: None,
            random: 0,
        }
    }
}

/// The digest's text and hash.
pub(crate) fn digest(text: &[u8]) -> (Vec<u8>, u64) {
    let mut digest = Vec::new();
    sql::digest_text(text, &DigestOptions::default(), &mut digest);
    let hash = sql::spooky_hash64(&digest, 0);
    (digest, hash)
}

/// Calls `then` with the request.
pub(crate) fn with_request<T>(sender: &Sender, text: &[u8], then: impl FnOnce(&Request<'_>) -> T) -> T {
    let (digest, hash) = digest(text);
    let known = KnownDigest { hash, text: &digest };
    then(&Request {
        user: sender.user.as_bytes(),
        schema: sender.schema.as_bytes(),
        client_addr: sender.client_addr,
        proxy_addr: sender.proxy_addr,
        proxy_port: sender.proxy_port,
        digest_key: sql::analyze(text, LexMode::default()).digest,
        digest: &known,
        text,
        flag_in: sender.flag_in,
        comment: sender.comment.map(str::as_bytes),
    })
}

/// Routes twice, so that the second answer is from memory, and explains; all three must agree.
pub(crate) fn route(rules: &RuleSet, memo: &mut Memo, sender: &Sender, text: &[u8]) -> Route {
    with_request(sender, text, |request| {
        let first = rules.route(request, memo, sender.random);
        let again = rules.route(request, memo, sender.random);
        let Explanation { route: explained, .. } = rules.explain(request, sender.random);
        assert_eq!(first, again, "remembered: {}", text.escape_ascii());
        assert_eq!(first, explained, "explained: {}", text.escape_ascii());
        first
    })
}

/// The number of the destination, -1 for none.
pub(crate) fn hostgroup(route: &Route) -> i64 {
    route.destination_hostgroup.map_or(-1, |id| i64::from(id.0))
}
