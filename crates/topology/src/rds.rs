//! RDS Multi-AZ DB clusters: asynchronous replication; each of the three instances lists all of them in `mysql.rds_topology`.
//!
//! The table tells the members; `read_only` tells the writer, as in any other cluster. INVARIANT: while a configured server can list the
//! members, a found server does not vouch for itself.

use std::collections::BTreeSet;

use model::ServerAddr;
use model::settings::MysqlVariables;
use model::snapshot::Snapshot;

use crate::facts::Facts;
use crate::judgement::Scene;
use crate::member::Member;
use crate::observation::RdsView;

/// The last part of the host names of instances and clusters.
const DOMAIN: &str = ".rds.amazonaws.com";
/// A view that is older than so many intervals between checks is not fresh.
const STALE_AFTER_CHECKS: u64 = 3;

/// Whether this is a name of RDS.
pub(crate) fn is_rds(host: &str) -> bool {
    let at = host.len().saturating_sub(DOMAIN.len());
    at > 0 && host.get(at..).is_some_and(|end| end.eq_ignore_ascii_case(DOMAIN))
}

/// Time between two looks at a server's table, ms; None when nothing is to be found.
pub(crate) fn interval_ms(vars: &MysqlVariables) -> Option<u64> {
    let rounds = vars.monitor_aws_rds_topology_discovery_interval;
    (rounds > 0).then(|| rounds.saturating_mul(vars.monitor_read_only_interval))
}

/// Whether this server can have been found: a server with a row anywhere was configured.
pub(crate) fn may_be_found(snapshot: &Snapshot, addr: &ServerAddr) -> bool {
    let is_written = || snapshot.hostgroups.values().flat_map(|h| &h.servers).any(|row| row.key.addr().is_same(addr));
    interval_ms(&snapshot.vars).is_some() && !is_written()
}

/// The instances that fresh views name, as this configuration calls them, when `reporter` gave one that counts.
pub(crate) fn named(scene: Scene<'_>, snapshot: &Snapshot, reporter: &ServerAddr) -> Option<BTreeSet<ServerAddr>> {
    let views: Vec<(&ServerAddr, &Member, &RdsView)> = fresh(scene).collect();
    let can_tell = |member: &Member| !member.configured.is_empty();
    let is_told = views.iter().any(|(_, member, _)| can_tell(member));
    let counts = |member: &Member| can_tell(member) == is_told;
    if !views.iter().any(|(addr, member, _)| *addr == reporter && counts(member)) {
        return None;
    }
    let instances = views.iter().filter(|(_, member, _)| counts(member)).flat_map(|(_, _, view)| view.instances());
    let own_name = |addr: &ServerAddr| {
        let member = scene.members.keys().find(|member| member.is_same(addr));
        member.or_else(|| may_be_found(snapshot, addr).then_some(addr)).cloned()
    };
    Some(instances.filter_map(own_name).collect())
}

fn fresh<'a>(scene: Scene<'a>) -> impl Iterator<Item = (&'a ServerAddr, &'a Member, &'a RdsView)> {
    let limit_ms = interval_ms(scene.vars).map(|ms| ms.saturating_mul(STALE_AFTER_CHECKS));
    let is_fresh = move |facts: &Facts| {
        let is_young = limit_ms.is_some_and(|limit_ms| facts.rds.at_ms.saturating_add(limit_ms) >= scene.now_ms);
        is_young && !facts.rds.is_troubled() && !facts.rds.is_denied
    };
    scene.known().filter_map(move |(addr, member, facts)| Some((addr, member, facts.rds.last.as_ref().filter(|_| is_fresh(facts))?)))
}

/// The instance that an endpoint is: its cluster's name, its number, and the domain.
fn instance(host: &str) -> Option<(&str, u8, &str)> {
    let is_label = |label: &str| !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let (label, domain) = host.split_once('.').filter(|_| is_rds(host) && host.split('.').all(is_label))?;
    let (cluster, number) = label.rsplit_once("-instance-")?;
    Some((cluster, ["1", "2", "3"].iter().zip(1..).find(|(word, _)| **word == number)?.1, domain))
}

/// The instances of one Multi-AZ DB cluster, if that is what these endpoints and ports are.
pub(crate) fn instances<'a>(rows: impl IntoIterator<Item = (&'a str, u64)>) -> Option<BTreeSet<ServerAddr>> {
    let addr = |(host, port): (&str, u64)| {
        let port = u16::try_from(port).ok().filter(|port| *port > 0)?;
        Some(ServerAddr { host: host.to_ascii_lowercase().into(), port })
    };
    let rows: Vec<ServerAddr> = rows.into_iter().map(addr).collect::<Option<_>>()?;
    let parts: Vec<(&str, u8, &str)> = rows.iter().map(|addr| instance(&addr.host)).collect::<Option<_>>()?;
    let numbers: BTreeSet<u8> = parts.iter().map(|(_, number, _)| *number).collect();
    let clusters: BTreeSet<(&str, &str)> = parts.iter().map(|(cluster, _, domain)| (*cluster, *domain)).collect();
    (parts.len() == 3 && numbers.len() == 3 && clusters.len() == 1).then(|| rows.iter().cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rows: &[(&str, u64)]) -> Option<Vec<String>> {
        Some(instances(rows.iter().copied())?.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn names_of_rds() {
        for host in ["db.abc.eu-west-1.rds.amazonaws.com", "DB.ABC.EU-WEST-1.RDS.AMAZONAWS.COM"] {
            assert!(is_rds(host), "{host}");
        }
        for host in
            ["", "db", ".rds.amazonaws.com", "rds.amazonaws.com", "db.xrds.amazonaws.com", "db.rds.amazonaws.com.evil", "é.rds.amazonaws"]
        {
            assert!(!is_rds(host), "{host}");
        }
    }

    #[test]
    fn three_instances_of_one_cluster() {
        const ONE: &str = "c-instance-1.x.rds.amazonaws.com";
        const TWO: &str = "C-Instance-2.x.rds.amazonaws.com";
        const THREE: &str = "c-instance-3.x.rds.amazonaws.com";
        let all = ["c-instance-1.x", "c-instance-2.x", "c-instance-3.x"].map(|name| format!("{name}.rds.amazonaws.com:3306"));
        assert_eq!(of(&[(THREE, 3306), (ONE, 3306), (TWO, 3306)]), Some(all.to_vec()));
        // Something else: too few, too many, twice the same, no number, no port.
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[(ONE, 3306), (TWO, 3306)]), None);
        assert_eq!(of(&[(ONE, 3306), (TWO, 3306), (THREE, 3306), ("c-instance-4.x.rds.amazonaws.com", 3306)]), None);
        assert_eq!(of(&[(ONE, 3306), (TWO, 3306), (ONE, 3307)]), None);
        assert_eq!(of(&[(ONE, 3306), (TWO, 3306), ("c-instance-4.x.rds.amazonaws.com", 3306)]), None);
        for port in [0, 65_536] {
            assert_eq!(of(&[(ONE, 3306), (TWO, 3306), (THREE, port)]), None);
        }
        // Names that are none, or of something else.
        for odd in [
            "c-instance-3.x.example.com",
            "c-instance-3.rds.amazonaws.com.x",
            "c instance-3.x.rds.amazonaws.com",
            "c-instance-3..rds.amazonaws.com",
            "c-instance-3.y.rds.amazonaws.com",
            "d-instance-3.x.rds.amazonaws.com",
            "c.cluster-x.rds.amazonaws.com",
            "10.0.0.3",
            "",
        ] {
            assert_eq!(of(&[(ONE, 3306), (TWO, 3306), (odd, 3306)]), None, "{odd}");
        }
    }

    /// Both sides are in the same table, and one of them must not serve yet.
    #[test]
    fn a_blue_green_deployment_is_no_cluster() {
        let blue_green = [("db.x.rds.amazonaws.com", 3306), ("db-green-abc123.x.rds.amazonaws.com", 3306)];
        assert_eq!(of(&blue_green), None);
        let names = ["c-instance-1", "c-instance-2", "c-instance-3"].into_iter();
        let both: Vec<String> = names.flat_map(|name| [name.to_owned(), format!("{name}-green-abc123")]).collect();
        let both: Vec<String> = both.iter().map(|name| format!("{name}.x.rds.amazonaws.com")).collect();
        assert_eq!(of(&both.iter().map(|name| (name.as_str(), 3306)).collect::<Vec<_>>()), None);
    }
}
