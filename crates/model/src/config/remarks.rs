//! Dead ends: references to hostgroups without servers and to unknown users; and rows that never have their effect.
//!
//! A hostgroup counts as served if a server is in it, or in another hostgroup of the same cluster, because the monitor moves servers
//! between those.

use std::collections::HashSet;

use super::references::claimed;
use super::{Config, Row};
use crate::remark::{About, Remark, RowName, row_name};
use crate::snapshot::{QueryRule, Snapshot, UserSplit};

/// The effect on statements that are routed to a hostgroup without servers.
const WAITS: &str = "wait for one, then fail with error 9001";

/// Looks at rules, users, routes and clusters. `config` must be the source of `snapshot`.
pub fn references(config: &Config, snapshot: &Snapshot) -> Vec<Remark> {
    let served = Served::of(config);
    let mut found = clusters(config, &served);
    found.extend(claimed(config).filter_map(|(row, hostgroups)| nobody_writes(config, row, &hostgroups)));
    let attributes = config.rows("mysql_hostgroup_attributes").iter();
    found.extend(attributes.flat_map(|row| of_attributes(row, snapshot, &served)));
    found.extend(config.rows("mysql_users").iter().flat_map(|row| of_user(row, snapshot, &served)));
    let choosing = choosing(&snapshot.rules.rules);
    found.extend(snapshot.rules.rules.iter().flat_map(|rule| of_rule(rule, snapshot, &served, &choosing)));
    found.extend(super::mirror::rows(config, snapshot));
    found.extend(config.rows("mysql_query_rules_fast_routing").iter().flat_map(|row| of_fast_route(row, snapshot, &served)));
    found.extend(config.rows("mysql_replication_channels").iter().filter_map(|row| of_channel(row, snapshot)));
    found.extend(config.rows("mysql_healing").iter().filter_map(|row| of_healing(row, snapshot)));
    found.extend(config.rows("mysql_healing_servers").iter().filter_map(|row| of_healing_server(row, config)));
    found.extend(config.rows("mysql_rehearsals").iter().flat_map(|row| of_rehearsal(row, &served)));
    found.extend(super::futile::rows(config, snapshot));
    found
}

/// A remark on a channel of a cluster that is not there.
fn of_channel(row: &Row, snapshot: &Snapshot) -> Option<Remark> {
    let id = row.integer("writer_hostgroup").filter(|_| row.flag("active"))?;
    if snapshot.roles.iter().any(|group| i64::from(group.writer.0) == id) {
        return None;
    }
    let text = format!(
        "hostgroup {id} is not a cluster's writer_hostgroup, so the proxy does not manage this channel: add the cluster to mysql_replication_hostgroups, \
         mysql_group_replication_hostgroups or mysql_galera_hostgroups, or name another one"
    );
    Some(Remark { table: row.table.name, row: row_name(row), column: "writer_hostgroup", about: About::Dead, text })
}

/// A remark on advice that nobody gives.
fn of_healing(row: &Row, snapshot: &Snapshot) -> Option<Remark> {
    let id = row.integer("writer_hostgroup").filter(|_| row.text("mode") != Some("off"))?;
    let text = match () {
        () if !snapshot.roles.iter().any(|group| i64::from(group.writer.0) == id) => {
            format!(
                "hostgroup {id} is not a writer_hostgroup of mysql_replication_hostgroups, so the proxy gives no advice: add the cluster"
            )
        }
        () if !snapshot.vars.monitor_enabled => "mysql-monitor_enabled is false, so the proxy gives no advice".to_owned(),
        () => return None,
    };
    Some(Remark { table: row.table.name, row: row_name(row), column: "writer_hostgroup", about: About::Dead, text })
}

/// A remark on a server that no row of `mysql_servers` has. A server that is found by itself has none either, so it is advice.
fn of_healing_server(row: &Row, config: &Config) -> Option<Remark> {
    let (host, port) = (row.text("hostname")?, row.integer("port")?);
    let is_it =
        |server: &Row| server.text("hostname").is_some_and(|name| name.eq_ignore_ascii_case(host)) && server.integer("port") == Some(port);
    if config.rows("mysql_servers").iter().any(is_it) {
        return None;
    }
    let text = format!("{host}:{port} is not in mysql_servers: check the name and the port");
    Some(Remark { table: row.table.name, row: row_name(row), column: "hostname", about: About::Missing("mysql_servers"), text })
}

/// Remarks on hostgroups of a rehearsal that have no servers.
fn of_rehearsal(row: &Row, served: &Served) -> Vec<Remark> {
    let columns = ["source_hostgroup", "shadow_hostgroup"].into_iter().filter(|_| row.flag("active"));
    let miss =
        |column: &'static str| served.miss((row.table.name, &|| row_name(row)), column, row.integer(column)?, "START REHEARSAL fails");
    columns.filter_map(miss).collect()
}

/// Hostgroups that have servers, or may be given some.
struct Served(HashSet<i64>);

impl Served {
    fn of(config: &Config) -> Self {
        let mut served: HashSet<i64> = config.rows("mysql_servers").iter().filter_map(|row| row.integer("hostgroup_id")).collect();
        let clusters: Vec<Vec<i64>> = claimed(config).map(|(_, hostgroups)| hostgroups.into_iter().map(|(_, id)| id).collect()).collect();
        for cluster in clusters {
            if cluster.iter().any(|id| served.contains(id)) {
                served.extend(cluster);
            }
        }
        Self(served)
    }

    /// A remark where `hostgroup` is not served; `then` is what follows from that.
    fn miss(&self, (table, row): (&'static str, &dyn Fn() -> RowName), column: &'static str, hostgroup: i64, then: &str) -> Option<Remark> {
        let text = || format!("hostgroup {hostgroup} has no servers: {then}; add one to mysql_servers, or name another hostgroup");
        let about = About::Missing("mysql_servers");
        (!self.0.contains(&hostgroup)).then(|| Remark { table, row: row(), column, about, text: text() })
    }

    /// The same for a row of the configuration.
    fn miss_in(&self, row: &Row, column: &'static str, hostgroup: Option<i64>, then: &str) -> Option<Remark> {
        self.miss((row.table.name, &|| row_name(row)), column, hostgroup?, then)
    }
}

fn clusters(config: &Config, served: &Served) -> Vec<Remark> {
    let text = "no hostgroup of this cluster has servers: add one to mysql_servers, in any of its hostgroups";
    let about = About::Missing("mysql_servers");
    let is_empty = |hostgroups: &[(&'static str, i64)]| hostgroups.iter().all(|(_, id)| !served.0.contains(id));
    let empty = claimed(config).filter(|(_, hostgroups)| is_empty(hostgroups));
    empty
        .map(|(row, _)| Remark { table: row.table.name, row: row_name(row), column: "writer_hostgroup", about, text: text.to_owned() })
        .collect()
}

/// A remark on a cluster whose possible writers have weight 0, or that has no possible writer.
fn nobody_writes(config: &Config, row: &Row, hostgroups: &[(&'static str, i64)]) -> Option<Remark> {
    let table = row.table.name;
    if row.integer("max_writers") == Some(0) {
        let text = format!("max_writers is 0, so no server writes, and statements for the writer hostgroup {WAITS}: set 1");
        return Some(Remark { table, row: row_name(row), column: "max_writers", about: About::Dead, text });
    }
    let writer = row.integer("writer_hostgroup")?;
    let is_here = |server: &Row| hostgroups.iter().any(|(_, id)| server.integer("hostgroup_id") == Some(*id));
    let is_online = |server: &Row| server.text("status").is_none_or(|status| status.eq_ignore_ascii_case("ONLINE"));
    let servers: Vec<&Row> = config.rows("mysql_servers").iter().filter(|server| is_here(server) && is_online(server)).collect();
    let is_writer = |server: &&&Row| server.integer("hostgroup_id") == Some(writer);
    let address = |server: &Row| (server.text("hostname").map(str::to_owned), server.integer("port"));
    let written: HashSet<_> = servers.iter().filter(is_writer).map(|server| address(server)).collect();
    // In these kinds of clusters, the proxy chooses another writer.
    let has_others = table == "mysql_galera_hostgroups" && servers.iter().any(|server| !written.contains(&address(server)));
    let all_weigh_nothing = servers.iter().filter(is_writer).all(|server| server.integer("weight") == Some(0));
    (!written.is_empty() && all_weigh_nothing && !has_others).then(|| {
        let text =
            format!("every server of hostgroup {writer} has weight 0: if one of them writes, statements for it {WAITS}; give one a weight");
        Remark { table, row: row_name(row), column: "writer_hostgroup", about: About::Missing("mysql_servers"), text }
    })
}

fn of_attributes(row: &Row, snapshot: &Snapshot, served: &Served) -> Vec<Remark> {
    let id = row.integer("hostgroup_id");
    let split = id.and_then(|id| u32::try_from(id).ok()).and_then(|id| snapshot.hostgroup(crate::HostgroupId(id)));
    let reader = split.and_then(|hostgroup| hostgroup.attributes.split_reader).map(|reader| i64::from(reader.0));
    let nobody = served.miss_in(row, "hostgroup_id", id, "the row has no effect");
    nobody.into_iter().chain(served.miss_in(row, "hostgroup_settings", reader, &format!("reads of the split {WAITS}"))).collect()
}

fn of_user(row: &Row, snapshot: &Snapshot, served: &Served) -> Vec<Remark> {
    if !row.flag("active") || !row.flag("frontend") {
        return Vec::new();
    }
    let default = row.integer("default_hostgroup");
    let mut found: Vec<Remark> = served
        .miss_in(row, "default_hostgroup", default, &format!("statements that no rule sends elsewhere {WAITS}"))
        .into_iter()
        .collect();
    let user = row.text("username").and_then(|name| snapshot.users.get(name));
    if let Some(UserSplit::On(split)) = user.map(|user| user.attributes.read_write_split) {
        let writer = Some(i64::from(split.writer.0)).filter(|writer| Some(*writer) != default);
        found.extend(served.miss_in(row, "attributes", writer, &format!("writes of the split {WAITS}")));
        found.extend(served.miss_in(row, "attributes", Some(i64::from(split.reader.0)), &format!("reads of the split {WAITS}")));
    }
    found
}

/// Flags from which on a rule may choose a hostgroup.
fn choosing(rules: &[QueryRule]) -> HashSet<u32> {
    let mut found = HashSet::new();
    for rule in rules.iter().rev() {
        if rule.destination_hostgroup.is_some() || outs(rule).any(|flag| found.contains(&flag)) {
            found.insert(rule.flag_in);
        }
    }
    found
}

/// Flags that a rule sets for the rules after it.
fn outs(rule: &QueryRule) -> impl Iterator<Item = u32> {
    let weighted = rule.flag_outs.iter().filter(|_| rule.flag_out.is_none()).map(|choice| choice.flag);
    rule.flag_out.into_iter().chain(weighted).filter(|_| !rule.apply)
}

fn of_rule(rule: &QueryRule, snapshot: &Snapshot, served: &Served, choosing: &HashSet<u32>) -> Vec<Remark> {
    const TABLE: &str = "mysql_query_rules";
    let row = || RowName::numbered("rule_id", rule.rule_id);
    let statements = format!("statements of this rule {WAITS}");
    let named = [
        ("destination_hostgroup", rule.destination_hostgroup, statements.as_str()),
        ("mirror_hostgroup", rule.mirror_hostgroup, "every copy fails (Mirror_failed counts them)"),
        ("gtid_from_hostgroup", rule.gtid_from_hostgroup, "there is no transaction to wait for"),
    ];
    // A statement that a rule answers is not routed, and one that a later rule routes elsewhere does not get there.
    let is_answered = rule.error_msg.is_some() || rule.ok_msg.is_some();
    let is_used = |column| !is_answered && (column != "destination_hostgroup" || !outs(rule).any(|flag| choosing.contains(&flag)));
    let named = named.into_iter().filter(|(column, ..)| is_used(*column));
    let hostgroups = named.filter_map(|(column, id, then)| served.miss((TABLE, &row), column, i64::from(id?.0), then));
    let user = rule.username.as_deref().and_then(|name| stranger(snapshot, TABLE, row(), name, "the rule never matches"));
    hostgroups.chain(user).collect()
}

fn of_fast_route(row: &Row, snapshot: &Snapshot, served: &Served) -> Vec<Remark> {
    let hostgroup = row.integer("destination_hostgroup");
    let nowhere = served.miss_in(row, "destination_hostgroup", hostgroup, &format!("statements of this row {WAITS}"));
    let user = row.text("username").and_then(|name| stranger(snapshot, row.table.name, row_name(row), name, "the row never matches"));
    nowhere.into_iter().chain(user).collect()
}

/// A remark on a user that cannot log in. The empty name stands for any user.
fn stranger(snapshot: &Snapshot, table: &'static str, row: RowName, name: &str, then: &str) -> Option<Remark> {
    if name.is_empty() || snapshot.users.contains_key(name) {
        return None;
    }
    let text = format!(
        "'{name}' is not a client user (mysql_users with active=1 and frontend=1; letter case counts): {then}; add the user, or correct \
         the name"
    );
    Some(Remark { table, row, column: "username", about: About::Missing("mysql_users"), text })
}
