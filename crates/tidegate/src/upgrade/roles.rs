//! Differences between the roles that the new and the old process see: a server in another hostgroup, used or not used.
//!
//! Health alone does not count as a role: a replica may lag at one check and not at the next. If a cluster's hostgroups differ in more than
//! that, the new process would route writes elsewhere.

use model::HostgroupId;
use std::collections::BTreeMap;

/// Differences that are named at most.
const NAMED_MAX: usize = 8;

/// One server in one hostgroup, as both see it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Difference {
    /// Hostgroup and server.
    key: String,
    before: Option<String>,
    now: Option<String>,
    is_of_cluster: bool,
}

impl Difference {
    /// Whether the difference concerns roles, not only health.
    pub(super) fn is_of_role(&self) -> bool {
        self.is_of_cluster && is_used(self.before.as_deref()) != is_used(self.now.as_deref())
    }
}

/// None where the server is not in the hostgroup.
fn is_used(status: Option<&str>) -> Option<bool> {
    status.map(|status| matches!(status, "ONLINE" | "SHUNNED_REPLICATION_LAG"))
}

/// The differences between two lists of [`placements`](super::placements). `clusters` are the hostgroups that have roles.
pub(super) fn differences(before: &[String], now: &[String], clusters: &[HostgroupId]) -> Vec<Difference> {
    let (before, now) = (by_key(before), by_key(now));
    let keys = before.keys().chain(now.keys().filter(|key| !before.contains_key(*key)));
    let differing = keys.filter(|key| before.get(*key) != now.get(*key));
    let status = |of: &BTreeMap<&str, &str>, key| of.get(key).map(|status| (*status).to_owned());
    let is_of_cluster = |key: &str| key.split_once('/').is_some_and(|(id, _)| clusters.iter().any(|hostgroup| hostgroup.to_string() == id));
    differing
        .map(|key| Difference {
            key: (*key).to_owned(),
            before: status(&before, key),
            now: status(&now, key),
            is_of_cluster: is_of_cluster(key),
        })
        .collect()
}

/// Statuses by hostgroup and server. A server that has left while its connections are being closed is in none.
fn by_key(placements: &[String]) -> BTreeMap<&str, &str> {
    placements.iter().filter_map(|word| word.rsplit_once(' ')).filter(|(_, status)| *status != "OFFLINE_HARD").collect()
}

pub(super) fn words(differences: &[Difference]) -> String {
    let absent = |status: &Option<String>| status.clone().unwrap_or_else(|| "absent".to_owned());
    let word = |one: &Difference| format!("{} is {} there and {} here", one.key, absent(&one.before), absent(&one.now));
    let mut words: Vec<String> = differences.iter().take(NAMED_MAX).map(word).collect();
    if differences.len() > NAMED_MAX {
        words.push(format!("and {} more", differences.len() - NAMED_MAX));
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(before: &[&str], now: &[&str]) -> (Vec<bool>, String) {
        let list = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let found = differences(&list(before), &list(now), &[HostgroupId(1), HostgroupId(2)]);
        (found.iter().map(Difference::is_of_role).collect(), words(&found))
    }

    #[test]
    fn roles_differ_by_hostgroup_and_use() {
        let cases: &[(&[&str], &[&str], &[bool])] = &[
            (&["1/a:1 ONLINE", "2/b:1 ONLINE"], &["1/a:1 ONLINE", "2/b:1 ONLINE"], &[]),
            (&["1/a:1 ONLINE"], &["1/b:1 ONLINE"], &[true, true]),
            (&["2/a:1 SHUNNED"], &["2/a:1 ONLINE"], &[true]),
            (&["2/a:1 SHUNNED_REPLICATION_LAG"], &["2/a:1 ONLINE"], &[false]),
            (&["2/a:1 SHUNNED"], &["2/a:1 OFFLINE_SOFT"], &[false]),
            // Its last connections are being closed.
            (&["1/a:1 OFFLINE_HARD", "1/b:1 ONLINE"], &["1/b:1 ONLINE"], &[]),
            // In no cluster there are no roles.
            (&["7/a:1 ONLINE"], &["7/a:1 SHUNNED"], &[false]),
            (&["1//run/my sql.sock ONLINE"], &[], &[true]),
        ];
        for (before, now, wanted) in cases {
            assert_eq!(of(before, now).0, *wanted, "{before:?} {now:?}");
        }
    }

    #[test]
    fn not_all_are_named() {
        assert_eq!(of(&["1/a:1 ONLINE"], &["1/a:1 SHUNNED"]).1, "1/a:1 is ONLINE there and SHUNNED here");
        let many: Vec<String> = (0..1_000).map(|port| format!("1/a:{port} ONLINE")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let (_, words) = of(&many, &[]);
        assert!(words.ends_with("and 992 more") && words.len() < 400, "{words}");
    }
}
