//! Remarks on a configuration: about references from `model`, about rules from the data plane, about scripts from here.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use model::config::remarks::references;
use model::config::{Config, Row, inert};
use model::control::DataPlane;
use model::fleet::Placement;
use model::remark::{by_kind, row_name};
use model::settings::SecondWriters;
use model::snapshot::{RoleGroup, RoleKind, ServerStatus};
use model::{About, Remark, Scope, ServerAddr, Snapshot};

use crate::reply::Reply;
use crate::sharing::peers::silence;
use crate::store::rows::Part;

/// How many remarks the text of an OK has; SHOW WARNINGS has more.
const NAMED: usize = 3;
/// Most remarks in the log of one LOAD.
pub const LOGGED: usize = 20;
/// How many SHOW WARNINGS has.
const KEPT: usize = 1_000;

/// Suspicious settings after these tables were loaded.
pub fn after_load(config: &Config, snapshot: &Snapshot, plane: &dyn DataPlane, loaded: &[Part]) -> Vec<Remark> {
    let variables = loaded.iter().filter_map(|part| part.variables).flat_map(|module| inert::variables(config, module));
    let mut variables: Vec<Remark> = variables.collect();
    let has_admin = loaded.iter().any(|part| part.variables == Some("admin"));
    if has_admin {
        variables.extend(inert::exposure(config));
    }
    let loaded: &[&str] = &loaded.iter().flat_map(|part| part.tables).copied().collect::<Vec<_>>();
    let mut remarks = references(config, snapshot);
    remarks.extend(inert::tables(config));
    remarks.retain(|remark| remark.follows_from(loaded));
    if loaded.contains(&"mysql_query_rules") {
        remarks.extend(plane.remarks(snapshot, Scope::Dead));
    }
    let own = scripts(config).into_iter().filter(|remark| remark.follows_from(loaded));
    remarks.extend(own);
    if has_admin || loaded.contains(&"proxysql_servers") {
        remarks.extend(silence(config));
    }
    remarks.extend(variables);
    remarks
}

/// Settings that are accepted and have no effect.
pub fn inert(config: &Config) -> Vec<Remark> {
    let mut remarks = inert::tables(config);
    remarks.extend(["mysql", "admin"].into_iter().flat_map(|module| inert::variables(config, module)));
    remarks
}

/// The servers whose roles differ from the rows of `mysql_servers` while the monitor is off; None if there are none.
pub fn frozen(snapshot: &Snapshot, placements: &[Placement]) -> Option<String> {
    if snapshot.vars.monitor_enabled {
        return None;
    }
    let mut stay = Vec::new();
    for group in &snapshot.roles {
        let rows = snapshot.hostgroup(group.writer).map_or(&[][..], |hostgroup| hostgroup.servers.as_slice());
        let wanted = rows.iter().filter(|row| row.status == ServerStatus::Online).map(|row| row.key.addr());
        let wanted: BTreeSet<ServerAddr> = wanted.collect();
        let online = placements.iter().filter(|p| p.server.key.hostgroup == group.writer && p.status == ServerStatus::Online);
        let writers: BTreeSet<ServerAddr> = online.map(|placement| placement.server.key.addr()).collect();
        stay.extend(writers.difference(&wanted).map(|addr| format!("{addr} writes for hostgroup {} without a row there", group.writer)));
        stay.extend(wanted.difference(&writers).map(|addr| format!("{addr} does not write for hostgroup {}", group.writer)));
    }
    (!stay.is_empty()).then(|| {
        let stay = stay.join(", ");
        format!(
            "mysql-monitor_enabled is false, so roles stay as last seen: {stay}; changed rows hold as written, but max_writers still counts"
        )
    })
}

/// Replication clusters of which several servers take writes, where the operator has not said that any may.
fn several_writers(snapshot: &Snapshot, placements: &[Placement]) -> impl Iterator<Item = String> {
    let is_told = |group: &&Arc<RoleGroup>| {
        let second_writers = snapshot.effective_in(group.writer).second_writers;
        matches!(group.kind, RoleKind::Replication(_)) && second_writers == SecondWriters::Configured
    };
    snapshot.roles.iter().filter(is_told).filter_map(|group| {
        let online = placements.iter().filter(|p| p.server.key.hostgroup == group.writer && p.status == ServerStatus::Online);
        let writers: BTreeSet<String> = online.map(|placement| placement.server.key.addr().to_string()).collect();
        let names = writers.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        (writers.len() > 1).then(|| format!("{} servers take writes in hostgroup {}: {names}", writers.len(), group.writer))
    })
}

/// Servers that an order keeps out of use although their rows are ONLINE: a LOAD does not undo a DRAIN.
fn kept_soft(placements: &[Placement]) -> Option<String> {
    let is_kept = |p: &&Placement| p.server.status == ServerStatus::Online && p.status == ServerStatus::OfflineSoft;
    let kept: BTreeSet<String> =
        placements.iter().filter(is_kept).map(|p| format!("{} stays OFFLINE_SOFT: {}", p.server.key.addr(), p.why)).collect();
    let mut named: Vec<String> = kept.iter().take(NAMED).cloned().collect();
    named.extend(kept.len().checked_sub(NAMED).filter(|count| *count > 0).map(more));
    (!named.is_empty()).then(|| named.join(", "))
}

/// The lasting states: [`frozen`] roles, drained servers, clusters with several writers, and hostgroups that begin nothing because more
/// servers are ONLINE than allowed.
pub fn standstill(snapshot: &Snapshot, placements: &[Placement]) -> Option<String> {
    let mut found: Vec<String> = frozen(snapshot, placements).into_iter().chain(kept_soft(placements)).collect();
    found.extend(several_writers(snapshot, placements));
    for hostgroup in snapshot.hostgroups.values() {
        let (id, most) = (hostgroup.id, hostgroup.attributes.max_num_online_servers);
        let online = placements.iter().filter(|p| p.server.key.hostgroup == id && p.status == ServerStatus::Online).count();
        if online > most as usize {
            found.push(format!("statements for hostgroup {id} wait: {online} servers are ONLINE, more than max_num_online_servers={most}"));
        }
    }
    (!found.is_empty()).then(|| found.join("; "))
}

/// Suspicious settings of a configuration that can be loaded, one remark for each kind.
pub fn all(config: &Config, snapshot: &Snapshot, plane: &dyn DataPlane, scope: Scope) -> Vec<Remark> {
    let mut remarks = references(config, snapshot);
    remarks.extend(plane.remarks(snapshot, scope));
    remarks.extend(scripts(config));
    remarks.extend(silence(config));
    if scope == Scope::All {
        remarks.extend(inert(config));
        remarks.extend(inert::advice(config));
    }
    by_kind(remarks)
}

/// An OK with `notes`, [`frozen`] roles and the first remarks. All of them are its warnings too.
pub fn told(notes: Vec<String>, frozen: Option<String>, remarks: &[Remark]) -> Reply {
    let notes: Vec<String> = notes.into_iter().chain(frozen).collect();
    let lines: Vec<String> = notes.iter().cloned().chain(named(remarks)).collect();
    let mut warnings: Vec<String> = notes.into_iter().chain(remarks.iter().take(KEPT).map(ToString::to_string)).collect();
    warnings.extend(remarks.len().checked_sub(KEPT).filter(|count| *count > 0).map(more));
    Reply::Ok { affected: 0, insert_id: 0, info: lines.join("; "), warnings }
}

fn more(count: usize) -> String {
    format!("and {count} more")
}

/// The first few of a list, and the number of the others.
fn named(all: &[impl ToString]) -> Vec<String> {
    let mut lines: Vec<String> = all.iter().take(NAMED).map(ToString::to_string).collect();
    if all.len() > NAMED {
        lines.push(format!("{} more: SHOW WARNINGS", all.len() - NAMED));
    }
    lines
}

/// An OK that first names `faults`, the ignored parts of a file; each is a warning too.
pub fn passed_over(reply: Reply, faults: &[String]) -> Reply {
    let Reply::Ok { affected, insert_id, info, warnings } = reply else { return reply };
    let mut lines = named(faults);
    lines.extend(Some(info).filter(|info| !info.is_empty()));
    let beyond = faults.len().checked_sub(KEPT).filter(|count| *count > 0).map(more);
    let warnings = faults.iter().take(KEPT).cloned().chain(beyond).chain(warnings).collect();
    Reply::Ok { affected, insert_id, info: lines.join("; "), warnings }
}

/// Scripts that cannot be run, and routes that no request reaches.
pub fn scripts(config: &Config) -> Vec<Remark> {
    let is_active = |row: &&Row| row.flag("active");
    let jobs = config.rows("scheduler").iter().filter(is_active);
    let routes = config.rows("restapi_routes").iter().filter(is_active);
    let mut remarks: Vec<Remark> = jobs.filter_map(|row| not_runnable(row, "filename", "each run fails with exit code 127")).collect();
    remarks.extend(routes.clone().filter_map(|row| not_runnable(row, "script", "each request gets an error")));
    let mut first: HashMap<(&str, &str), &Row> = HashMap::new();
    for row in routes {
        let method = row.text("method").unwrap_or_default();
        let uri = row.text("uri").unwrap_or_default().trim_matches('/');
        if let Some(served) = first.get(&(method, uri)) {
            let text = format!("never served: the row {} has {method} /sync/{uri} already; delete one of them", row_name(served));
            remarks.push(Remark { table: row.table.name, row: row_name(row), column: "uri", about: About::Dead, text });
        } else {
            first.insert((method, uri), row);
        }
    }
    remarks
}

fn not_runnable(row: &Row, column: &'static str, then: &str) -> Option<Remark> {
    let name = row.text(column).unwrap_or_default();
    let why = match fs::metadata(name) {
        _ if !Path::new(name).is_absolute() => "is not an absolute path; the proxy searches no directories".to_owned(),
        Err(error) => format!("cannot be run: {error}"),
        Ok(found) if !found.is_file() => "is not a file".to_owned(),
        Ok(found) if found.permissions().mode() & 0o111 == 0 => "is not executable (chmod +x)".to_owned(),
        Ok(_) => return None,
    };
    let text = format!("'{name}' {why}: {then}; name a program that can be run");
    Some(Remark { table: row.table.name, row: row_name(row), column, about: About::Dead, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_tells_of_drained_servers() {
        let text = "mysql_servers = ({ hostgroup=1, address=\"a\", port=3306 }, { hostgroup=2, address=\"a\", port=3306 }, \
                    { hostgroup=1, address=\"b\", port=3306, status=\"OFFLINE_SOFT\" })";
        let (config, _) = model::parse(text, "test.cnf").unwrap();
        let snapshot = Snapshot::compile(&config).unwrap();
        let servers: Vec<_> = snapshot.hostgroups.values().flat_map(|hostgroup| &hostgroup.servers).collect();
        let mut placements: Vec<Placement> = servers.into_iter().map(Placement::configured).collect();
        assert_eq!(standstill(&snapshot, &placements), None);
        for placement in placements.iter_mut().filter(|p| &*p.server.key.host == "a") {
            (placement.status, placement.why) = (ServerStatus::OfflineSoft, "drained by an operator's order".into());
        }
        assert_eq!(standstill(&snapshot, &placements).unwrap(), "a:3306 stays OFFLINE_SOFT: drained by an operator's order");
    }

    fn told_of(text: &str) -> Vec<String> {
        let (config, _) = model::parse(text, "test.cnf").unwrap();
        scripts(&config).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn scripts_that_cannot_run() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("script.sh");
        fs::write(&script, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o644)).unwrap();
        let script = script.display().to_string();
        for (name, active, why) in [
            ("/bin/true", 1, None),
            ("bin/true", 1, Some("'bin/true' is not an absolute path")),
            ("bin/true", 0, None),
            ("/nonexistent/x", 1, Some("'/nonexistent/x' cannot be run: No such file")),
            ("/tmp", 1, Some("'/tmp' is not a file")),
            (&script, 1, Some("is not executable")),
        ] {
            let job = told_of(&format!("scheduler = ({{ id=4, active={active}, interval_ms=100, filename=\"{name}\" }})"));
            let route =
                told_of(&format!("restapi = ({{ id=5, active={active}, timeout_ms=100, method=\"GET\", uri=\"u\", script=\"{name}\" }})"));
            assert_eq!((job.len(), route.len()), (usize::from(why.is_some()), usize::from(why.is_some())), "{name}: {job:?} {route:?}");
            if let Some(why) = why {
                assert!(job[0].starts_with("scheduler, id=4, column filename: ") && job[0].contains(why), "{job:?}");
                assert!(route[0].starts_with("restapi_routes, id=5, column script: ") && route[0].contains(why), "{route:?}");
            }
        }
    }

    #[test]
    fn routes_that_nobody_reaches() {
        let route = |id: u32, method: &str, uri: &str, active: u32| {
            format!("{{ id={id}, active={active}, timeout_ms=100, method=\"{method}\", uri=\"{uri}\", script=\"/bin/true\" }}")
        };
        let table = |rows: &[String]| told_of(&format!("restapi = ({})", rows.join(", ")));
        assert!(table(&[route(1, "GET", "a", 1), route(2, "POST", "a", 1), route(3, "GET", "b", 1), route(4, "GET", "a", 0)]).is_empty());
        assert_eq!(
            table(&[route(1, "GET", "a", 1), route(2, "get", "/a/", 1)]),
            ["restapi_routes, id=2, column uri: never served: the row id=1 has GET /sync/a already; delete one of them"]
        );
    }
}
