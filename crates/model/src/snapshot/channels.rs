//! Replication channels that bring the writes of another cluster: `mysql_replication_channels`.

use std::sync::Arc;

use super::hostgroup::number;
use super::roles::{RoleGroup, RoleKind};
use crate::config::{Config, Row};
use crate::error::{ConfigError, ErrorKind};
use crate::ids::{HostgroupId, ServerAddr};

/// One row of `mysql_replication_channels`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channel {
    /// The receiving cluster, by its writer hostgroup.
    pub writer: HostgroupId,
    /// Its name on the servers (MariaDB: connection name). In letters, digits and `_-.`, so it can stand in statements.
    pub name: Arc<str>,
    /// The source's address. The host has only letters, digits and `_-.:`.
    pub source: ServerAddr,
    /// Whether it is to run.
    pub is_active: bool,
}

impl Channel {
    /// Whether a server means this channel by `name`.
    pub fn is_called(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

/// Every row, also those that are not active: such a channel is stopped. Adds faults that a table's own rules cannot see.
pub(super) fn compile(config: &Config, roles: &[Arc<RoleGroup>], errors: &mut Vec<ConfigError>) -> Vec<Arc<Channel>> {
    let rows = config.rows("mysql_replication_channels");
    let channels: Vec<(&Row, Arc<Channel>)> = rows.iter().map(|row| (row, Arc::new(of(row)))).collect();
    for (index, (row, channel)) in channels.iter().enumerate() {
        let earlier = channels.iter().take(index).find(|(_, other)| other.writer == channel.writer && channel.is_called(&other.name));
        let group = roles.iter().find(|group| group.writer == channel.writer);
        if let Some((column, text)) = fault(config, channel, group, earlier.map(|(row, _)| *row)) {
            errors.push(ConfigError::new(row.position(column), format!("{}.{column}", row.table.name), ErrorKind::Claimed(text)));
        }
    }
    channels.into_iter().map(|(_, channel)| channel).collect()
}

fn of(row: &Row) -> Channel {
    Channel {
        writer: HostgroupId(number(row, "writer_hostgroup")),
        name: row.text("channel_name").unwrap_or_default().into(),
        source: ServerAddr { host: row.text("source_hostname").unwrap_or_default().into(), port: number(row, "source_port") },
        is_active: row.flag("active"),
    }
}

/// Why a row cannot be, and the column to blame.
fn fault(config: &Config, channel: &Channel, group: Option<&Arc<RoleGroup>>, earlier: Option<&Row>) -> Option<(&'static str, String)> {
    if let Some(earlier) = earlier {
        return Some((
            "channel_name",
            format!("servers compare names in any letter case, and {} has the same name", earlier.at.row_name()),
        ));
    }
    let group = group?;
    match group.kind {
        RoleKind::Aurora(_) => Some(("writer_hostgroup", "Aurora's servers take no statements that change a source".to_owned())),
        RoleKind::Replication(_) if channel.name.is_empty() => Some((
            "channel_name",
            "servers of mysql_replication_hostgroups replicate from each other by the channel without a name".to_owned(),
        )),
        _ if is_of(config, group, &channel.source) => {
            Some(("source_hostname", format!("{} is a server of the receiving cluster itself (mysql_servers)", channel.source)))
        }
        _ => None,
    }
}

/// Whether the configuration has this server in a hostgroup of the cluster.
fn is_of(config: &Config, group: &RoleGroup, server: &ServerAddr) -> bool {
    let is_it = |row: &&Row| {
        row.text("hostname").is_some_and(|host| host.eq_ignore_ascii_case(&server.host)) && row.integer("port") == Some(server.port.into())
    };
    let mut rows = config.rows("mysql_servers").iter().filter(is_it);
    rows.any(|row| group.hostgroups().any(|id| row.integer("hostgroup_id") == Some(id.0.into())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Snapshot;

    const CLUSTERS: &str = r#"
        mysql_servers = ( { address="db1", port=3306, hostgroup=10 } )
        mysql_replication_hostgroups = ( { writer_hostgroup=10, reader_hostgroup=20 } )
        mysql_galera_hostgroups = ( { writer_hostgroup=30, backup_writer_hostgroup=31, reader_hostgroup=32, offline_hostgroup=33 } )
        mysql_aws_aurora_hostgroups = ( { writer_hostgroup=40, reader_hostgroup=41, domain_name=".x" } )"#;

    fn compiled(rows: &str) -> Result<Snapshot, String> {
        let text = format!("{CLUSTERS}\nmysql_replication_channels = ( {rows} )");
        let said = |errors: Vec<ConfigError>| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let (config, _) = crate::config::parse(&text, "test.cnf").map_err(said)?;
        Snapshot::compile(&config).map_err(said)
    }

    #[test]
    fn rows_say_what_they_are() {
        let snapshot = compiled(
            r#"{ writer_hostgroup=10, channel_name="east", source_hostname="10.0.0.9", source_port=6033, comment="x" },
               { writer_hostgroup=30, source_address="::1", active=0 }"#,
        );
        let channels = snapshot.unwrap().channels;
        assert_eq!((channels[0].writer, &*channels[0].name, channels[0].is_active), (HostgroupId(10), "east", true));
        assert_eq!(channels[0].source, ServerAddr { host: "10.0.0.9".into(), port: 6033 });
        assert_eq!((&*channels[1].name, channels[1].source.port, channels[1].is_active), ("", 3306, false));
        assert!(channels[0].is_called("EAST") && !channels[0].is_called("east2"));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (row, error) in [
            (r#"{ writer_hostgroup=10, channel_name="", source_hostname="a" }"#, "by the channel without a name"),
            (r#"{ writer_hostgroup=10, channel_name="a'b", source_hostname="a" }"#, "channel_name: must be at most 64"),
            (r#"{ writer_hostgroup=10, channel_name="Group_Replication_applier", source_hostname="a" }"#, "must be at most 64"),
            (r#"{ writer_hostgroup=10, channel_name="a", source_hostname="" }"#, "source_hostname: must be a host name"),
            (r#"{ writer_hostgroup=10, channel_name="a", source_hostname="a', x='" }"#, "must be a host name"),
            (r#"{ writer_hostgroup=10, channel_name="a", source_hostname="DB1" }"#, "DB1:3306 is a server of the receiving cluster itself"),
            (r#"{ writer_hostgroup=10, channel_name="a", source_hostname="b", source_port=0 }"#, "source_port"),
            (r#"{ writer_hostgroup=40, channel_name="a", source_hostname="b" }"#, "Aurora's servers"),
            (
                r#"{ writer_hostgroup=10, channel_name="a", source_hostname="b" }, { writer_hostgroup=10, channel_name="A", source_hostname="b" }"#,
                "in any letter case",
            ),
        ] {
            let found = compiled(row).map(drop).unwrap_err();
            assert!(found.contains(error), "{row}: {found}");
        }
        assert!(compiled(r#"{ writer_hostgroup=77, channel_name="a", source_hostname="b" }"#).is_ok(), "a remark says it");
    }
}
