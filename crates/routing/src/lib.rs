//! Decides where statements go: query rules, fast routing, comment directives, the firewall's whitelist, and the
//! read/write split that needs no rules.
//!
//! [`RuleSet`] is compiled once from the configuration and shared by all workers; each brings a [`Memo`] and a random
//! number. Everything else is a pure function of its arguments. Nothing here sends, waits or keeps a clock.
//!
//! Meaning of the rules: ProxySQL's documentation, "Query Rules" and "Main runtime: mysql_query_rules"; where Tidegate
//! differs, docs/reference/proxysql-differences.md says so.

mod backtracking;
mod before;
mod dialect;
mod directives;
mod explain;
mod facets;
mod fast;
mod firewall;
mod gate;
mod lint;
mod literals;
mod memo;
mod pattern;
mod plan;
mod prefilter;
mod request;
mod rewrite;
mod route;
mod rule;
mod ruleset;
mod split;

pub use before::precedes_rules;
pub use dialect::Engine;
pub use directives::{misread, obey};
pub use explain::{ExplainedRule, Explanation};
pub use firewall::{Firewall, Verdict};
pub use lint::{dead, lint};
pub use memo::Memo;
pub use request::{Digest, KnownDigest, Request};
pub use route::{Decider, Route};
pub use ruleset::{DIGEST_TOO_LONG, Options, RuleSet};
pub use split::{SessionFacts, Side, Statement, Transaction, calls_are_safe, side, split_of};
