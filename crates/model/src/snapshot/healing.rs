//! What the monitor says about the death of a writer: `mysql_healing`, `mysql_healing_servers`.
//!
//! A row is of one replication cluster. A cluster without a row has mode [`HealingMode::Off`], and nothing is asked for its sake.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::hostgroup::number;
use super::roles::{ReadOnlyCheck, RoleGroup, RoleKind};
use crate::config::{Config, Row};
use crate::error::{ConfigError, ErrorKind};
use crate::ids::{HostgroupId, ServerAddr};
use crate::settings::SettingError;

/// One row of `mysql_healing`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Healing {
    /// The cluster, by its writer hostgroup.
    pub writer: HostgroupId,
    /// What is done.
    pub mode: HealingMode,
    /// The writer counts as dead when all witnesses have agreed for so long, ms.
    pub dead_ms: u64,
    /// Replicas that must answer; 0 is half of those that may be promoted, rounded up.
    pub votes: u64,
    /// Longest time for applying what was received, ms.
    pub apply_ms: u64,
    /// What a promotion may lose.
    pub loss: Loss,
    /// A replica that heard nothing of the writer for longer is not promoted, ms.
    pub max_lost_ms: u64,
    /// Where the promoted server may be.
    pub site: SiteRule,
    /// Other replicas that must be able to follow the promoted server.
    pub min_replicas: u64,
    /// No second promotion for so long, ms, unless an operator acknowledges the first one.
    pub block_ms: u64,
    /// Who sets semi-synchronous replication up.
    pub semi_sync: SemiSyncRule,
    /// With [`SemiSyncRule::Managed`]: replicas that must acknowledge a commit, at least one.
    pub acks: u64,
}

/// `mode`. Each one includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealingMode {
    /// Nothing.
    Off,
    /// Servers are asked, and the choice is shown. No server is changed.
    Advise,
    /// The same, and servers that are proved to have nothing else are made to follow the writer.
    Rejoin,
    /// The same, and a replica is promoted if the writer is dead.
    Full,
}

impl Healing {
    /// Whether the proxy sets semi-synchronous replication up: no server is changed with mode `advise`.
    pub fn manages_acks(&self) -> bool {
        self.semi_sync == SemiSyncRule::Managed && self.mode.takes_back()
    }
}

impl HealingMode {
    /// Servers that do not follow the writer are taken back; so a server may be changed.
    pub fn takes_back(self) -> bool {
        matches!(self, Self::Rejoin | Self::Full)
    }

    /// As the table has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Advise => "advise",
            Self::Rejoin => "rejoin",
            Self::Full => "full",
        }
    }
}

/// `loss`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// Nothing that was acknowledged: lossless semi-synchronous replication must prove it.
    None,
    /// What is shown.
    Reported,
    /// Anything.
    Any,
}

/// `semi_sync`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SemiSyncRule {
    /// The operator. A promotion gives the new writer what the old one had.
    Keep,
    /// The proxy that heals.
    Managed,
}

/// `site` of `mysql_healing`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SiteRule {
    /// The writer's own site only.
    Same,
    /// The writer's own site first.
    Prefer,
    /// Sites do not count.
    Any,
}

/// Whether a server is wanted as writer. Earlier ones are better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promotion {
    /// Before all others.
    Prefer,
    /// Like others.
    Neutral,
    /// After all others.
    Avoid,
    /// Not at all.
    Never,
}

impl Promotion {
    /// As the table has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prefer => "prefer",
            Self::Neutral => "neutral",
            Self::Avoid => "avoid",
            Self::Never => "never",
        }
    }
}

/// One row of `mysql_healing_servers`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealingServer {
    /// The server.
    pub server: ServerAddr,
    /// None is `auto`: its rows in `mysql_servers` and its replication decide.
    pub promotion: Option<Promotion>,
    /// Where it is; empty where nobody says.
    pub site: Arc<str>,
}

impl HealingServer {
    /// Whether it is about this server: letter case counts for nothing in names of hosts.
    pub fn is_about(&self, server: &ServerAddr) -> bool {
        self.server.is_same(server)
    }
}

/// Every row, also those with mode `off`. Adds faults that a table's own rules cannot see.
pub(super) fn compile(config: &Config, roles: &[Arc<RoleGroup>], errors: &mut Vec<ConfigError>) -> BTreeMap<HostgroupId, Arc<Healing>> {
    let rows = config.rows("mysql_healing");
    errors.extend(company(config));
    for row in rows {
        if row.text("mode") == Some("full") && !config.admin.healing_alone && config.admin.shared_config_endpoints.is_empty() {
            let text = "mode 'full' promotes servers, and two proxies must not promote two servers: \
                        SET admin-healing_alone='true' and LOAD ADMIN VARIABLES TO RUNTIME if no other proxy has these servers. \
                        Several proxies need a shared configuration in etcd (admin-shared_config_endpoints)"
                .to_owned();
            errors.push(ConfigError::new(row.position("mode"), format!("{}.mode", row.table.name), ErrorKind::Claimed(text)));
        }
        let writer = HostgroupId(number(row, "writer_hostgroup"));
        let kind = roles.iter().find(|group| group.writer == writer).map(|group| &group.kind);
        if row.text("mode") == Some("full")
            && let Some(RoleKind::Replication(check)) = kind
            && !matches!(check, ReadOnlyCheck::ReadOnly | ReadOnlyCheck::SuperReadOnly)
        {
            let text = format!("mode 'full' needs check_type read_only or super_read_only, and hostgroup {writer} has another one");
            errors.push(ConfigError::new(row.position("mode"), format!("{}.mode", row.table.name), ErrorKind::Claimed(text)));
        }
        let other = kind.filter(|kind| !matches!(kind, RoleKind::Replication(_)));
        if let Some(kind) = other {
            let text = format!(
                "hostgroup {writer} is a cluster of kind {}, whose members choose their writer: only clusters of mysql_replication_hostgroups can have a row",
                kind.as_str()
            );
            errors.push(ConfigError::new(
                row.position("writer_hostgroup"),
                format!("{}.writer_hostgroup", row.table.name),
                ErrorKind::Claimed(text),
            ));
        }
    }
    rows.iter().map(of).map(|healing| (healing.writer, Arc::new(healing))).collect()
}

/// A fault if `admin-healing_alone` says that there is no other proxy, and the configuration names others.
fn company(config: &Config) -> Option<ConfigError> {
    let others = match () {
        () if !config.admin.healing_alone => return None,
        () if !config.admin.shared_config_endpoints.is_empty() => "admin-shared_config_endpoints is set",
        () if !config.rows("proxysql_servers").is_empty() => "proxysql_servers has rows",
        () => return None,
    };
    let reason = format!("no other proxy may promote servers then, but {others}");
    let kind = ErrorKind::Setting(SettingError::BadText { text: "true".to_owned(), reason });
    Some(ConfigError { at: None, subject: "admin_variables.healing_alone".to_owned(), kind })
}

fn of(row: &Row) -> Healing {
    Healing {
        writer: HostgroupId(number(row, "writer_hostgroup")),
        mode: match row.text("mode") {
            Some("advise") => HealingMode::Advise,
            Some("rejoin") => HealingMode::Rejoin,
            Some("full") => HealingMode::Full,
            _ => HealingMode::Off,
        },
        dead_ms: number(row, "dead_ms"),
        votes: number(row, "votes"),
        apply_ms: number(row, "apply_ms"),
        loss: match row.text("loss") {
            Some("none") => Loss::None,
            Some("any") => Loss::Any,
            _ => Loss::Reported,
        },
        max_lost_ms: number(row, "max_lost_ms"),
        site: match row.text("site") {
            Some("any") => SiteRule::Any,
            Some("prefer") => SiteRule::Prefer,
            _ => SiteRule::Same,
        },
        min_replicas: number(row, "min_replicas"),
        block_ms: number(row, "block_ms"),
        semi_sync: match row.text("semi_sync") {
            Some("managed") => SemiSyncRule::Managed,
            _ => SemiSyncRule::Keep,
        },
        acks: number(row, "acks"),
    }
}

/// Every row of `mysql_healing_servers`.
pub(super) fn servers(config: &Config) -> Vec<HealingServer> {
    let of = |row: &Row| HealingServer {
        server: ServerAddr { host: row.text("hostname").unwrap_or_default().into(), port: number(row, "port") },
        promotion: match row.text("promotion") {
            Some("prefer") => Some(Promotion::Prefer),
            Some("neutral") => Some(Promotion::Neutral),
            Some("avoid") => Some(Promotion::Avoid),
            Some("never") => Some(Promotion::Never),
            _ => None,
        },
        site: row.text("site").unwrap_or_default().into(),
    };
    config.rows("mysql_healing_servers").iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Snapshot;

    const CLUSTERS: &str = r#"
        mysql_servers = ( { address="db1", port=3306, hostgroup=10 } )
        mysql_replication_hostgroups = ( { writer_hostgroup=10, reader_hostgroup=20 } )
        mysql_galera_hostgroups = ( { writer_hostgroup=30, backup_writer_hostgroup=31, reader_hostgroup=32, offline_hostgroup=33 } )"#;

    fn compiled(rows: &str, servers: &str) -> Result<Snapshot, String> {
        with("", rows, servers)
    }

    fn with(more: &str, rows: &str, servers: &str) -> Result<Snapshot, String> {
        let text = format!("{CLUSTERS}\n{more}\nmysql_healing = ( {rows} )\nmysql_healing_servers = ( {servers} )");
        let said = |errors: Vec<ConfigError>| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let (config, _) = crate::config::parse(&text, "test.cnf").map_err(said)?;
        Snapshot::compile(&config).map_err(said)
    }

    #[test]
    fn rows_say_what_they_are() {
        let servers = r#"{ address="db2", promotion="never" }, { hostname="DB3", port=3307, site="east" }"#;
        let snapshot = compiled(r#"{ writer_hostgroup=10, loss="none", dead_ms=2000 }"#, servers).unwrap();
        let healing = &snapshot.healing[&HostgroupId(10)];
        assert_eq!((healing.mode, healing.loss, healing.dead_ms, healing.apply_ms), (HealingMode::Advise, Loss::None, 2_000, 60_000));
        assert_eq!((healing.site, healing.max_lost_ms), (SiteRule::Same, 10_000));
        assert_eq!((healing.semi_sync, healing.acks, healing.manages_acks()), (SemiSyncRule::Keep, 1, false));
        let [never, east] = &snapshot.healing_servers[..] else { panic!("two rows") };
        assert_eq!((never.promotion, east.promotion, &*east.site), (Some(Promotion::Never), None, "east"));
        assert!(east.is_about(&ServerAddr { host: "db3".into(), port: 3307 }));
        assert!(compiled("", "").unwrap().healing.is_empty());
        let rejoin = compiled("{ writer_hostgroup=10, mode=\"rejoin\" }", "").unwrap();
        assert_eq!(rejoin.healing[&HostgroupId(10)].mode, HealingMode::Rejoin);
        let managed = |mode: &str| {
            let row = format!("{{ writer_hostgroup=10, mode=\"{mode}\", semi_sync=\"managed\", acks=2 }}");
            compiled(&row, "").unwrap().healing[&HostgroupId(10)].as_ref().clone()
        };
        assert_eq!((managed("rejoin").manages_acks(), managed("rejoin").acks), (true, 2));
        assert!(!managed("advise").manages_acks(), "it changes no server");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (row, error) in [
            ("{ writer_hostgroup=10, mode=\"full\" }", "SET admin-healing_alone='true'"),
            ("{ writer_hostgroup=10, mode=\"FULL\" }", "mode"),
            ("{ writer_hostgroup=10, mode=\"yes\" }", "mode"),
            ("{ writer_hostgroup=10, dead_ms=10 }", "dead_ms"),
            ("{ writer_hostgroup=10, loss=\"some\" }", "loss"),
            ("{ writer_hostgroup=10, semi_sync=\"on\" }", "semi_sync"),
            ("{ writer_hostgroup=10, acks=0 }", "acks"),
            ("{ writer_hostgroup=30 }", "kind galera, whose members choose their writer"),
        ] {
            let found = compiled(row, "").map(drop).unwrap_err();
            assert!(found.contains(error), "{row}: {found}");
        }
        assert!(compiled("{ writer_hostgroup=77 }", "").is_ok(), "a remark says it");
        let alone = |more: &str| {
            let rows = "{ writer_hostgroup=10, mode=\"full\", block_ms=0 }";
            with(&format!("admin_variables = {{ healing_alone=true {more} }}"), rows, "")
        };
        let full = alone("").unwrap();
        assert_eq!((full.healing[&HostgroupId(10)].mode, full.healing[&HostgroupId(10)].block_ms), (HealingMode::Full, 0));
        assert_eq!(full.healing_max_clusters, 2);
        let shared = alone(", shared_config_endpoints=\"http://127.0.0.1:2379\"").map(drop).unwrap_err();
        assert!(shared.contains("healing_alone") && shared.contains("admin-shared_config_endpoints is set"), "{shared}");
        let by_etcd =
            with("admin_variables = { shared_config_endpoints=\"http://127.0.0.1:2379\" }", "{ writer_hostgroup=10, mode=\"full\" }", "");
        assert!(by_etcd.unwrap().healing_is_shared && !full.healing_is_shared);
        let peers = with(
            "admin_variables = { healing_alone=true }\nproxysql_servers = ( { hostname=\"p2\", port=6032 } )",
            "{ writer_hostgroup=10 }",
            "",
        );
        let peers = peers.map(drop).unwrap_err();
        assert!(peers.contains("healing_alone") && peers.contains("proxysql_servers has rows"), "{peers}");
        assert!(compiled("", "{ address=\"db9\", promotion=\"maybe\" }").is_err());
    }
}
