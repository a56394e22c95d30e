//! A Galera node's state: MariaDB, Percona XtraDB Cluster 5.7 and later.
//!
//! One statement of names and values, so that a variable that a version lacks is a missing row and not an error.

use topology::{GaleraView, Identity};

use crate::client::{Connection, Fault, Rows, Version, is_on};
use wire::codes;

pub(super) async fn look(connection: &mut Connection) -> Result<GaleraView, Fault> {
    let sql = statement(connection.version());
    match connection.query(&sql).await {
        Ok(rows) => view(&rows).ok_or_else(|| Fault::Unfit("this server is not a Galera node: its wsrep status is missing".into())),
        Err(fault) if fault.code() == Some(codes::UNKNOWN_COM) => Ok(outside()),
        Err(fault) if fault.is_unfit() => Err(Fault::Unfit(format!("this server is not a Galera node: {fault}"))),
        Err(fault) => Err(fault.with_hint("SELECT ON performance_schema.*")),
    }
}

const STATUS: &str =
    "'wsrep_local_state', 'wsrep_local_recv_queue', 'wsrep_cluster_status', 'wsrep_cluster_size', 'wsrep_cluster_state_uuid'";
const VARIABLES: &str = "'read_only', 'wsrep_desync', 'wsrep_reject_queries', 'wsrep_sst_donor_rejects_queries', 'pxc_maint_mode', \
     'wsrep_provider_options', 'wsrep_cluster_name'";

fn statement(version: &Version) -> String {
    let schema = if version.is_mariadb { "information_schema" } else { "performance_schema" };
    format!(
        "SELECT VARIABLE_NAME, VARIABLE_VALUE FROM {schema}.global_status WHERE VARIABLE_NAME IN ({STATUS}) \
         UNION ALL SELECT VARIABLE_NAME, VARIABLE_VALUE FROM {schema}.global_variables WHERE VARIABLE_NAME IN ({VARIABLES})"
    )
}

/// A node that says no more than that it takes no part.
fn outside() -> GaleraView {
    GaleraView {
        local_state: 0,
        read_only: false,
        recv_queue: 0,
        desync: false,
        reject_queries: false,
        sst_donor_rejects_queries: false,
        primary_partition: false,
        maintenance: false,
        segment: 0,
        cluster_size: 0,
        identity: None,
    }
}

fn view(rows: &Rows) -> Option<GaleraView> {
    let is_set = |name: &str, rest: &str| rows.named(name).is_some_and(|value| !value.eq_ignore_ascii_case(rest));
    let number = |name: &str| rows.named(name).and_then(|value| value.parse().ok()).unwrap_or_default();
    let primary_partition = rows.named("wsrep_cluster_status")?.eq_ignore_ascii_case("Primary");
    let text = |name: &str| rows.named(name).unwrap_or_default();
    let identity = || Identity::of_galera(text("wsrep_cluster_state_uuid"), text("wsrep_cluster_name"));
    Some(GaleraView {
        local_state: rows.named("wsrep_local_state").and_then(|value| value.parse().ok()).unwrap_or_default(),
        read_only: is_set("read_only", "OFF") && rows.named("read_only") != Some("0"),
        recv_queue: rows.named("wsrep_local_recv_queue").and_then(|value| value.parse().ok()).unwrap_or_default(),
        desync: rows.named("wsrep_desync").is_some_and(is_on),
        reject_queries: is_set("wsrep_reject_queries", "NONE"),
        sst_donor_rejects_queries: rows.named("wsrep_sst_donor_rejects_queries").is_some_and(is_on),
        primary_partition,
        maintenance: is_set("pxc_maint_mode", "DISABLED"),
        segment: rows.named("wsrep_provider_options").map_or(0, segment),
        cluster_size: number("wsrep_cluster_size"),
        identity: primary_partition.then(identity).flatten(),
    })
}

/// `gmcast.segment` of `a = b; c = d; ...`.
fn segment(provider_options: &str) -> u32 {
    let mut pairs = provider_options.split(';').filter_map(|pair| pair.split_once('='));
    let value = pairs.find(|(name, _)| name.trim() == "gmcast.segment").map(|(_, value)| value.trim().parse());
    value.and_then(Result::ok).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(changes: &[(&'static str, &'static str)]) -> Rows {
        let mut all = vec![
            ("WSREP_CLUSTER_SIZE", "3"),
            ("WSREP_CLUSTER_STATE_UUID", "6f3c-01"),
            ("WSREP_CLUSTER_NAME", "prod"),
            ("WSREP_CLUSTER_STATUS", "Primary"),
            ("WSREP_LOCAL_RECV_QUEUE", "0"),
            ("WSREP_LOCAL_STATE", "4"),
            ("READ_ONLY", "OFF"),
            ("WSREP_DESYNC", "OFF"),
            ("WSREP_PROVIDER_OPTIONS", "base_dir = /x/; gmcast.segment = 2; gmcast.time_wait = PT5S"),
            ("WSREP_REJECT_QUERIES", "NONE"),
            ("WSREP_SST_DONOR_REJECTS_QUERIES", "OFF"),
        ];
        for (name, value) in changes {
            all.retain(|(n, _)| n != name);
            all.push((name, value));
        }
        let cells: Vec<[Option<&str>; 2]> = all.into_iter().map(|(n, v)| [Some(n), Some(v)]).collect();
        Rows::of(&["VARIABLE_NAME", "VARIABLE_VALUE"], &cells.iter().map(|row| row.as_slice()).collect::<Vec<_>>())
    }

    #[test]
    fn a_synced_node() {
        let identity = Identity::new("6f3c-01 prod");
        let synced = GaleraView { local_state: 4, primary_partition: true, segment: 2, cluster_size: 3, identity, ..outside() };
        assert_eq!(view(&rows(&[])), Some(synced));
    }

    #[test]
    fn each_value_is_read() {
        let one = |name, value| view(&rows(&[(name, value)])).unwrap();
        assert!(one("READ_ONLY", "ON").read_only);
        assert!(one("WSREP_DESYNC", "ON").desync);
        assert!(one("WSREP_REJECT_QUERIES", "ALL_KILL").reject_queries);
        assert!(one("WSREP_SST_DONOR_REJECTS_QUERIES", "ON").sst_donor_rejects_queries);
        assert!(one("pxc_maint_mode", "MAINTENANCE").maintenance);
        assert!(!one("pxc_maint_mode", "DISABLED").maintenance);
        assert!(!one("WSREP_CLUSTER_STATUS", "non-Primary").primary_partition);
        assert_eq!(one("WSREP_CLUSTER_STATUS", "non-Primary").identity, None, "what it is part of is not certain");
        assert_eq!(one("WSREP_CLUSTER_STATE_UUID", "00000000-0000-0000-0000-000000000000").identity, None);
        assert_eq!(one("WSREP_LOCAL_STATE", "2").local_state, 2);
        assert_eq!(one("WSREP_LOCAL_RECV_QUEUE", "17").recv_queue, 17);
    }

    #[test]
    fn a_server_without_wsrep_is_no_node() {
        assert_eq!(view(&Rows::of(&["VARIABLE_NAME", "VARIABLE_VALUE"], &[&[Some("READ_ONLY"), Some("OFF")]])), None);
        assert_eq!(segment("gmcast.segment=x"), 0);
        assert_eq!(segment(""), 0);
    }
}
