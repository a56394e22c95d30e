//! Rules that harm writes: copies for the servers that have the original, so that each write is done twice, and writes for readers.

use std::collections::BTreeSet;

use super::Config;
use super::references::claimed;
use crate::HostgroupId;
use crate::remark::{About, Remark, RowName};
use crate::snapshot::{QueryRule, Snapshot};

/// Words that begin a statement which writes nothing.
const READS: &[&str] = &["select", "show", "explain", "desc", "describe", "table", "values"];
/// Words that begin a statement which a server with `read_only` refuses.
const WRITES: &[&str] =
    &["insert", "update", "delete", "replace", "load", "create", "alter", "drop", "truncate", "rename", "grant", "revoke"];

/// Remarks on rules that copy writes to the servers that have done them, or send them to readers.
pub(super) fn rows(config: &Config, snapshot: &Snapshot) -> Vec<Remark> {
    let rules = || snapshot.rules.rules.iter().filter(|rule| rule.error_msg.is_none() && rule.ok_msg.is_none());
    let twice = rules().filter(|rule| may_write(rule)).filter_map(|rule| twice(config, snapshot, rule));
    twice.chain(rules().filter_map(|rule| to_readers(snapshot, rule))).collect()
}

/// A rule that matches nothing but writes, and names a hostgroup whose servers refuse them.
fn to_readers(snapshot: &Snapshot, rule: &QueryRule) -> Option<Remark> {
    let hostgroup = rule.destination_hostgroup?;
    let group = snapshot.roles.iter().find(|group| group.reader == hostgroup && group.writer != hostgroup)?;
    let patterns = [&rule.match_digest, &rule.match_pattern];
    let is_write = patterns.into_iter().flatten().any(|pattern| begins_with(pattern, WRITES));
    if rule.negate_match_pattern || !is_write {
        return None;
    }
    let text = format!(
        "hostgroup {hostgroup} is the reader_hostgroup of a cluster: its servers have read_only=1 and refuse these writes with error 1290. \
         The writer_hostgroup is {}",
        group.writer
    );
    let row = RowName::numbered("rule_id", rule.rule_id);
    Some(Remark { table: "mysql_query_rules", row, column: "destination_hostgroup", about: About::Harm("mysql_servers"), text })
}

fn twice(config: &Config, snapshot: &Snapshot, rule: &QueryRule) -> Option<Remark> {
    // With mirror_flagOUT other rules say where the copy goes.
    let mirror = rule.mirror_hostgroup.filter(|_| rule.mirror_flag_out.is_none())?;
    let mirrored = addresses(config, mirror);
    let is_same = |hostgroup: &HostgroupId| {
        *hostgroup == mirror || are_of_one_cluster(config, *hostgroup, mirror) || !mirrored.is_disjoint(&addresses(config, *hostgroup))
    };
    let original = destinations(snapshot, rule).into_iter().find(is_same)?;
    let text = format!(
        "mirror hostgroup {mirror} shares servers or a cluster with hostgroup {original}, so each matching write is done twice. Name a \
         hostgroup of other servers, or match reads only (match_digest='^SELECT')"
    );
    let row = RowName::numbered("rule_id", rule.rule_id);
    Some(Remark { table: "mysql_query_rules", row, column: "mirror_hostgroup", about: About::Harm("mysql_servers"), text })
}

/// The hostgroups of the mirrored statements, unless a later rule routes them elsewhere.
fn destinations(snapshot: &Snapshot, rule: &QueryRule) -> BTreeSet<HostgroupId> {
    let is_meant = |name: &str| rule.username.as_deref().is_none_or(|username| username == name);
    let users = snapshot.users.values().filter(|user| is_meant(&user.name)).map(|user| user.default_hostgroup);
    rule.destination_hostgroup.map_or_else(|| users.collect(), |hostgroup| BTreeSet::from([hostgroup]))
}

fn addresses(config: &Config, hostgroup: HostgroupId) -> BTreeSet<(&str, i64)> {
    let rows = config.rows("mysql_servers").iter().filter(|row| row.integer("hostgroup_id") == Some(i64::from(hostgroup.0)));
    rows.filter_map(|row| Some((row.text("hostname")?, row.integer("port")?))).collect()
}

/// Whether the monitor moves servers between them.
fn are_of_one_cluster(config: &Config, one: HostgroupId, other: HostgroupId) -> bool {
    let has = |hostgroups: &[(&str, i64)], wanted: HostgroupId| hostgroups.iter().any(|(_, id)| *id == i64::from(wanted.0));
    claimed(config).any(|(_, hostgroups)| has(&hostgroups, one) && has(&hostgroups, other))
}

/// Whether the rule may match a statement that writes: it does not ask for a word that begins a read.
fn may_write(rule: &QueryRule) -> bool {
    let patterns = [&rule.match_digest, &rule.match_pattern];
    rule.negate_match_pattern || !patterns.into_iter().flatten().any(|pattern| begins_with(pattern, READS))
}

/// Whether each alternative of a pattern begins with one of these words, as `^SELECT` and `^\s*(SELECT|SHOW)` do. A pattern that is not
/// anchored may match such a word anywhere.
fn begins_with(pattern: &str, words: &[&str]) -> bool {
    let plain = pattern.to_ascii_lowercase().replace("(?i)", "").replace("\\s*", "").replace("\\s+", "").replace("?:", "");
    let Some(rest) = plain.trim_start().strip_prefix('^') else { return false };
    let inner = rest.trim_start_matches('(');
    let outer = rest.len() - inner.len();
    let has_word = |alternative: &str| {
        let alternative = alternative.trim_start_matches(|letter: char| letter == '^' || letter == '(' || letter.is_whitespace());
        let word: String = alternative.chars().take_while(char::is_ascii_alphanumeric).collect();
        words.contains(&word.as_str())
    };
    let (mut depth, mut from) = (outer, 0);
    for (at, letter) in inner.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            // Further in, it is a part of a statement that has begun.
            '|' if depth <= outer => {
                if !has_word(&inner[from..at]) {
                    return false;
                }
                from = at + 1;
            }
            _ => {}
        }
    }
    has_word(&inner[from..])
}

#[cfg(test)]
mod tests {
    use super::{READS, WRITES, begins_with};
    use crate::Snapshot;

    #[test]
    fn patterns_that_match_reads_only() {
        for pattern in ["^SELECT", "^select a from (t1|t2)", "^(SELECT|SHOW)", "^\\s*(?:SELECT|SHOW)\\s", "^SELECT|^SHOW", "(?i)^SELECT"] {
            assert!(begins_with(pattern, READS), "{pattern}");
        }
        for pattern in ["^UPDATE", "SELECT", ".", "", "^(SELECT|UPDATE)", "^SELECT|UPDATE", "^SELECTED", "^(INSERT INTO t|SELECT)"] {
            assert!(!begins_with(pattern, READS), "{pattern}");
        }
    }

    #[test]
    fn writes_for_readers_are_remarked_on() {
        let remarks = |rule: &str| {
            let text = format!(
                "mysql_replication_hostgroups = ( {{ writer_hostgroup=0, reader_hostgroup=1 }} )\n\
                 mysql_servers = ( {{ hostgroup=0, address=\"a\" }} )\n\
                 mysql_query_rules = ( {{ rule_id=1, active=1, apply=1, {rule} }} )\n"
            );
            let (config, _) = crate::config::parse(&text, "proxysql.cnf").unwrap();
            super::rows(&config, &Snapshot::compile(&config).unwrap()).len()
        };
        for rule in ["match_digest=\"^INSERT\", destination_hostgroup=1", "match_pattern=\"^(UPDATE|DELETE)\", destination_hostgroup=1"] {
            assert_eq!(remarks(rule), 1, "{rule}");
        }
        for rule in [
            "match_digest=\"^INSERT\", destination_hostgroup=0",
            "match_digest=\"^INSERT\", negate_match_pattern=1, destination_hostgroup=1",
            "match_digest=\"^SELECT\", destination_hostgroup=1",
            "match_digest=\"^INSERT\", destination_hostgroup=1, error_msg=\"no\"",
            "destination_hostgroup=1",
        ] {
            assert_eq!(remarks(rule), 0, "{rule}");
        }
        assert!(begins_with("^INSERT INTO", WRITES) && !begins_with("^(INSERT|SELECT)", WRITES));
    }
}
