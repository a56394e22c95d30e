//! Configurations of Tidegate whose costs are compared: data, and the rows that each adds.
//!
//! All rule sets decide the same for the measured statement, whatever their size: only the last rule matches it, and names the user's own
//! hostgroup. So the statement's way through the proxy is the same, and only the decision differs.

use super::plan::Point;
use super::work::Work;
use crate::server::Server;
use crate::tidegate::{Builder, Setting};

/// How long an answer may be given from the cache: longer than any run, in milliseconds.
const CACHE_TTL_MS: i64 = 600_000;

/// The part of a statement that a rule reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// `match_digest`: the statement without its values.
    Digest,
    /// `match_pattern`: the statement as it came.
    Text,
}

impl Look {
    fn column(self) -> &'static str {
        match self {
            Look::Digest => "match_digest",
            Look::Text => "match_pattern",
        }
    }
}

/// The features of one configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrangement {
    /// Default settings, no rules.
    NoRules,
    /// So many rules, of which the last matches.
    Rules(Look, u32),
    /// No statistics by digest or by command, no query log.
    NothingCounted,
    /// Statistics by digest and by command: the default.
    Counted,
    /// The same, and each query in the query log, in this `eventslog_format`.
    Logged(LogForm),
    /// A rule with `cache_ttl` for the measured statement.
    Cached,
    /// A rehearsal repeats the reads of so many percent of the sessions on a second server.
    Rehearsed(u32),
    /// A capture writes down all sessions, sealed to a public key.
    Captured,
}

/// Hostgroup of the second server.
const SHADOW: i64 = 9;
/// Longer than any run, seconds.
const COPYING_S: u32 = 3_600;

/// Values of `mysql-eventslog_format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogForm {
    /// 1
    Binary,
    /// 2
    Json,
}

impl Arrangement {
    /// Its name in reports.
    pub fn name(self) -> String {
        match self {
            Arrangement::NoRules => "no rules".to_owned(),
            Arrangement::Rules(look, count) => format!("{count} rules, {}", look.column()),
            Arrangement::NothingCounted => "nothing counted".to_owned(),
            Arrangement::Counted => "digests and commands".to_owned(),
            Arrangement::Logged(LogForm::Binary) => "and query log, binary".to_owned(),
            Arrangement::Logged(LogForm::Json) => "and query log, JSON".to_owned(),
            Arrangement::Cached => "cached".to_owned(),
            Arrangement::Rehearsed(percent) => format!("{percent} % rehearsed"),
            Arrangement::Captured => "all captured, sealed".to_owned(),
        }
    }

    /// Whether it needs a second server, which refuses writes.
    pub fn needs_shadow(self) -> bool {
        matches!(self, Arrangement::Rehearsed(_))
    }

    /// The order on the admin port that begins it. `key` is the path of a public key.
    pub fn order(self, key: &str) -> Option<String> {
        match self {
            Arrangement::Rehearsed(_) => Some(format!("START REHEARSAL 'bench' FOR {COPYING_S} SECONDS")),
            Arrangement::Captured => Some(format!("CAPTURE START 'bench' FOR {COPYING_S} SECONDS MAX 4096 MB TO PUBLIC KEY '{key}'")),
            _ => None,
        }
    }

    /// Adds it to a configuration. `shadow` is the second server, if there is one.
    pub fn apply(self, to: Builder, shadow: Option<&Server>) -> Builder {
        match self {
            Arrangement::Rehearsed(percent) => {
                let row = [("name", "bench".into()), ("source_hostgroup", 0.into()), ("shadow_hostgroup", SHADOW.into())];
                let more = [("percent", percent.to_string().as_str().into()), ("warmup_s", 0.into())];
                shadow.into_iter().fold(to, |to, shadow| to.backend(SHADOW, shadow)).row("mysql_rehearsals", &[&row[..], &more].concat())
            }
            Arrangement::NoRules | Arrangement::Counted | Arrangement::Captured => to,
            Arrangement::Rules(look, count) => rules(to, look, count),
            Arrangement::NothingCounted => to.variable("query_digests", false).variable("commands_stats", false),
            Arrangement::Logged(form) => {
                let format = if form == LogForm::Binary { 1 } else { 2 };
                to.variable("eventslog_filename", "queries").variable("eventslog_default_log", 1).variable("eventslog_format", format)
            }
            Arrangement::Cached => rule(to, 1, Look::Digest, MATCHING, &[("cache_ttl", CACHE_TTL_MS.into())]),
        }
    }
}

/// Matches the point select's text and its digest.
const MATCHING: &str = "^SELECT c FROM sbtest1 WHERE";

fn rules(to: Builder, look: Look, count: u32) -> Builder {
    let others = (1..count).fold(to, |to, id| rule(to, id, look, &other_pattern(id), &[]));
    rule(others, count, look, MATCHING, &[])
}

/// A pattern that does not match the point select, though it begins like it.
pub fn other_pattern(id: u32) -> String {
    format!("^SELECT .* FROM table_{id} WHERE")
}

fn rule(to: Builder, id: u32, look: Look, pattern: &str, more: &[(&str, Setting)]) -> Builder {
    let mut fields: Vec<(&str, Setting)> = vec![("rule_id", i64::from(id).into()), ("active", 1.into()), (look.column(), pattern.into())];
    fields.extend([("destination_hostgroup", 0.into()), ("apply", 1.into())]);
    fields.extend(more.iter().cloned());
    to.row("mysql_query_rules", &fields)
}

/// Configurations under the same load; the others are compared with the first.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The load, with the comparison's name.
    pub point: Point,
    /// The configurations that take turns.
    pub arrangements: Vec<Arrangement>,
}

/// The comparisons of a run; `point` makes a load. Copies are compared at `pace`: the second server works on the same processors.
pub fn comparisons(pace: u32, point: impl Fn(&'static str, &Work, usize) -> Point) -> Vec<Comparison> {
    let (digest, text) = (Look::Digest, Look::Text);
    let mut rules = vec![Arrangement::NoRules];
    rules.extend([100, 10_000].map(|count| Arrangement::Rules(digest, count)));
    rules.extend([100, 10_000].map(|count| Arrangement::Rules(text, count)));
    let statistics =
        vec![Arrangement::NothingCounted, Arrangement::Counted, Arrangement::Logged(LogForm::Binary), Arrangement::Logged(LogForm::Json)];
    let cache = vec![Arrangement::NoRules, Arrangement::Cached];
    let copies = vec![Arrangement::NoRules, Arrangement::Rehearsed(10), Arrangement::Rehearsed(100), Arrangement::Captured];
    vec![
        Comparison { point: point("query rules", &Work::PointText, 64), arrangements: rules },
        Comparison { point: point("statistics", &Work::PointText, 64), arrangements: statistics },
        Comparison { point: point("query cache, text", &Work::PointHot, 64), arrangements: cache.clone() },
        Comparison { point: point("query cache, prepared", &Work::PointHotPrepared, 64), arrangements: cache },
        Comparison { point: point("rehearsal and capture", &Work::PointText, 64).paced(pace), arrangements: copies },
    ]
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::tidegate::Tidegate;

    fn text(arrangement: Arrangement) -> String {
        let orders = arrangement.order("key").unwrap_or_default();
        arrangement.apply(Tidegate::builder(), None).config(1, 2, Path::new("/d")) + &orders
    }

    #[test]
    fn the_last_rule_alone_matches() {
        let config = text(Arrangement::Rules(Look::Text, 100));
        assert_eq!(config.matches("match_pattern=").count(), 100);
        assert_eq!(config.matches(MATCHING).count(), 1);
        assert!(config.contains(&format!("rule_id=100, active=1, match_pattern=\"{MATCHING}\"")));
    }

    #[test]
    fn arrangements_of_a_comparison_differ() {
        let point = |name, work: &Work, clients| Point::new(name, work, clients, std::time::Duration::ZERO, std::time::Duration::ZERO);
        for comparison in comparisons(1, point) {
            let mut configs: Vec<String> = comparison.arrangements.iter().map(|a| text(*a)).collect();
            configs.sort();
            configs.dedup();
            assert_eq!(configs.len(), comparison.arrangements.len(), "{}", comparison.point.name);
        }
    }
}
