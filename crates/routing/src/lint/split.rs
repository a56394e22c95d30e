//! Finds regex read/write splits that misroute, by trying them.
//!
//! If rules route a plain SELECT and an UPDATE differently, statements that only look like plain reads are routed too. Plain reads that
//! look different are routed as well. The results show the faults.

use std::collections::BTreeMap;

use model::snapshot::User;
use model::{About, Remark, Snapshot};
use sql::{DigestOptions, LexMode};

use super::remark;
use crate::memo::Memo;
use crate::request::{KnownDigest, Request};
use crate::route::{Decider, Route};
use crate::ruleset::RuleSet;

/// A plain read and a plain write.
const READ: &str = "SELECT a FROM t WHERE b = 1";
const WRITE: &str = "UPDATE t SET a = 1 WHERE b = 1";
/// Users that are tried; the rest have the same rules mostly.
const MAX_USERS: usize = 64;

/// Statements that must be routed like writes, and their names in remarks.
const NOT_READS: &[(&str, &str)] = &[
    ("SELECT a FROM t WHERE b = 1 FOR UPDATE", "FOR UPDATE"),
    ("SELECT a FROM t WHERE b = 1 FOR UPDATE;", "FOR UPDATE with a ';' after it"),
    ("SELECT a\nFROM t\nWHERE b = 1\nFOR UPDATE", "FOR UPDATE after a line break, which '.' does not match"),
    ("SELECT a FROM t WHERE b = 1 FOR UPDATE /* c */", "FOR UPDATE with a comment after it"),
    ("SELECT a FROM t WHERE b = 1 FOR UPDATE SKIP LOCKED", "FOR UPDATE SKIP LOCKED"),
    ("SELECT a FROM t WHERE b = 1 FOR UPDATE NOWAIT", "FOR UPDATE NOWAIT"),
    ("SELECT a FROM t WHERE b = 1 FOR SHARE", "FOR SHARE"),
    ("SELECT a FROM t WHERE b = 1 LOCK IN SHARE MODE", "LOCK IN SHARE MODE"),
    ("SELECT GET_LOCK('a', 1)", "GET_LOCK()"),
    ("SELECT f(1)", "stored functions"),
    ("SELECT NEXTVAL(s)", "NEXTVAL()"),
    ("SELECT a FROM t INTO OUTFILE '/tmp/a'", "INTO OUTFILE"),
    ("SELECT @a := 1", "assignments of user variables"),
];

/// Plain reads that should go where plain reads go, and what hides them.
const READS: &[(&str, &str)] = &[
    ("(SELECT a FROM t WHERE b = 1) UNION (SELECT 1)", "a parenthesis"),
    ("\n  SELECT a FROM t WHERE b = 1", "blanks or a line break"),
    ("/* c */ SELECT a FROM t WHERE b = 1", "a comment"),
    ("WITH c AS (SELECT 1) SELECT a FROM c", "WITH"),
];

/// Remarks on every user's split.
pub(super) fn misrouted(snapshot: &Snapshot, rules: &RuleSet) -> Vec<Remark> {
    let mut trial = Trial { snapshot, rules, memo: Memo::new() };
    snapshot.users.values().take(MAX_USERS).flat_map(|user| trial.of_user(user)).collect()
}

/// The rules, and what routing typical statements has taught.
struct Trial<'a> {
    snapshot: &'a Snapshot,
    rules: &'a RuleSet,
    memo: Memo,
}

impl Trial<'_> {
    fn of_user(&mut self, user: &User) -> Vec<Remark> {
        let destination = |route: &Route| route.destination_hostgroup.unwrap_or(user.default_hostgroup);
        let read = self.route(user, READ);
        let reader = destination(&read);
        let Decider::Rule(read_rule) = read.decider else {
            return Vec::new();
        };
        if reader == destination(&self.route(user, WRITE)) {
            return Vec::new();
        }
        let mut strays: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
        let mut hidden: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
        for (text, name) in NOT_READS {
            let route = self.route(user, text);
            if let (true, Decider::Rule(rule_id)) = (destination(&route) == reader, route.decider) {
                strays.entry(rule_id).or_default().push(name);
            }
        }
        for (text, name) in READS {
            let hostgroup = destination(&self.route(user, text));
            if hostgroup != reader {
                hidden.entry(hostgroup.0).or_default().push(name);
            }
        }
        let strays = strays.into_iter().map(|(rule_id, names)| {
            let (count, names) = (names.len(), names.join(", "));
            let text = format!("{count} kinds of SELECT that lock or may write go to reader hostgroup {reader}: {names}");
            self.remark(rule_id, format!("{text}; the attribute read_write_split tells them from reads"))
        });
        let hidden = hidden.into_iter().map(|(hostgroup, names)| {
            let names = names.join(", ");
            let text = format!("reads that begin with these go to hostgroup {hostgroup}, not to reader hostgroup {reader}: {names}");
            self.remark(read_rule, text)
        });
        strays.chain(hidden).collect()
    }

    fn remark(&self, rule_id: u32, text: String) -> Remark {
        let rule = self.snapshot.rules.rules.iter().find(|rule| rule.rule_id == rule_id);
        let by_text = rule.is_some_and(|rule| rule.match_pattern.is_some());
        let by_digest = rule.is_some_and(|rule| rule.match_digest.is_some());
        let column = match (by_text, by_digest) {
            (true, _) => "match_pattern",
            (false, true) => "match_digest",
            (false, false) => "destination_hostgroup",
        };
        remark(rule_id, column, About::Advice, text)
    }

    fn route(&mut self, user: &User, text: &str) -> Route {
        let mut digest = Vec::new();
        sql::digest_text(text.as_bytes(), &DigestOptions::default(), &mut digest);
        let known = KnownDigest { hash: sql::spooky_hash64(&digest, 0), text: &digest };
        let request = Request {
            user: user.name.as_bytes(),
            schema: self.snapshot.default_schema(user).as_bytes(),
            client_addr: None,
            proxy_addr: "",
            proxy_port: 0,
            digest_key: sql::analyze(text.as_bytes(), LexMode::default()).digest,
            digest: &known,
            text: text.as_bytes(),
            flag_in: 0,
            comment: None,
        };
        self.rules.route(&request, &mut self.memo, 0)
    }
}
