//! The cost of routing: `cargo run --release -p routing --example route_bench`.
//!
//! A thousand digests, known after the first round, under rule sets of several sizes and shapes.
#![allow(clippy::unwrap_used)] // a measurement may panic

use std::hint::black_box;
use std::time::Instant;

use model::HostgroupId;
use model::snapshot::{Modifiers, QueryRule, RuleConfig};
use routing::{KnownDigest, Memo, Options, Request, RuleSet};

const DIGESTS: usize = 1_000;
const ROUNDS: usize = 200;

struct Statement {
    text: Vec<u8>,
    digest_text: Vec<u8>,
    hash: u64,
    key: u64,
}

fn statement(text: String) -> Statement {
    let mut digest_text = Vec::new();
    sql::digest_text(text.as_bytes(), &sql::DigestOptions::default(), &mut digest_text);
    let hash = sql::spooky_hash64(&digest_text, 0);
    let key = sql::analyze(text.as_bytes(), sql::LexMode::default()).digest;
    Statement { text: text.into_bytes(), digest_text, hash, key }
}

type Shape = fn(u32) -> QueryRule;

/// The columns that the rules of a set use.
const SHAPES: &[(&str, Shape)] = &[
    ("match_digest", |n| QueryRule { match_digest: Some(format!(r"^SELECT .* FROM table_{n} WHERE").into()), ..QueryRule::default() }),
    ("match_digest, PCRE only", |n| QueryRule {
        match_digest: Some(format!(r"^SELECT (?!x).* FROM table_{n} WHERE").into()),
        ..QueryRule::default()
    }),
    ("digest", |n| QueryRule { digest: Some(u64::from(n)), ..QueryRule::default() }),
    ("match_pattern", |n| QueryRule { match_pattern: Some(format!(r"^SELECT .* FROM table_{n} WHERE").into()), ..QueryRule::default() }),
    ("username", |n| QueryRule { username: Some(format!("user_{n}").into()), ..QueryRule::default() }),
];

fn rule_set(count: u32, shape: Shape) -> RuleSet {
    let rule = |n: u32| QueryRule {
        rule_id: n,
        destination_hostgroup: Some(HostgroupId(n % 7)),
        modifiers: Modifiers { caseless: true, global: false },
        apply: true,
        ..shape(n)
    };
    RuleSet::compile(&RuleConfig { rules: (0..count).map(rule).collect(), ..RuleConfig::default() }, Options::default()).unwrap()
}

/// ns a statement.
fn round(set: &RuleSet, memo: &mut Memo, statements: &[Statement]) -> f64 {
    let began = Instant::now();
    for statement in statements {
        let digest = KnownDigest { hash: statement.hash, text: &statement.digest_text };
        let request = Request {
            user: b"app",
            schema: b"shop",
            client_addr: Some("10.1.2.3"),
            proxy_addr: "0.0.0.0",
            proxy_port: 6033,
            digest_key: statement.key,
            digest: &digest,
            text: &statement.text,
            flag_in: 0,
            comment: None,
        };
        black_box(set.route(black_box(&request), memo, 1));
    }
    began.elapsed().as_nanos() as f64 / statements.len() as f64
}

fn main() {
    let same: Vec<Statement> = (0..DIGESTS).map(|n| statement(format!("SELECT a, b FROM table_{n} WHERE id = 5"))).collect();
    println!("{:<26} {:>7} {:>10} {:>12} {:>12} {:>12}", "rules", "count", "LOAD ms", "first ns", "known ns", "new text ns");
    for (name, shape) in SHAPES {
        for count in [0, 100, 10_000, 100_000] {
            let began = Instant::now();
            let set = rule_set(count, *shape);
            let load_ms = began.elapsed().as_secs_f64() * 1e3;
            let mut memo = Memo::new();
            let first = round(&set, &mut memo, &same);
            let known = (0..ROUNDS).map(|_| round(&set, &mut memo, &same)).fold(f64::INFINITY, f64::min);
            let new: Vec<Statement> = (0..DIGESTS).map(|n| statement(format!("SELECT a, b FROM table_{n} WHERE id = 77{n}"))).collect();
            let new_text = round(&set, &mut memo, &new);
            println!("{name:<26} {count:>7} {load_ms:>10.1} {first:>12.0} {known:>12.1} {new_text:>12.0}");
        }
    }
}
