//! Clusters whose servers change roles: one row of `mysql_replication_hostgroups`, `mysql_galera_hostgroups`,
//! `mysql_group_replication_hostgroups` or `mysql_aws_aurora_hostgroups`.
//!
//! A row claims its hostgroups, and the monitor decides which server is in which of them. This module only holds the operator's request.

use std::sync::Arc;

use super::hostgroup::number;
use crate::config::{Config, Row};
use crate::ids::HostgroupId;

/// One active row of the four tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleGroup {
    /// How roles are found out.
    pub kind: RoleKind,
    /// The hostgroup of the servers that take writes.
    pub writer: HostgroupId,
    /// Servers that could write, beyond `max_writers`. Galera and Group Replication only.
    pub backup_writer: Option<HostgroupId>,
    /// The hostgroup of the servers that take reads.
    pub reader: HostgroupId,
    /// Servers that are out. Galera and Group Replication only.
    pub offline: Option<HostgroupId>,
    /// Most servers that write at a time; `u32::MAX` where nothing limits them.
    pub max_writers: u32,
    /// Whether writers or backup writers take reads too.
    pub writer_reads: WriterReads,
    /// Transactions that a server may be behind; 0 is no limit for Group Replication and Galera. Other kinds have 0.
    pub max_transactions_behind: u32,
    /// The operator's remark.
    pub comment: Box<str>,
}

impl RoleGroup {
    /// Whether the cluster's servers that do not write stand there.
    pub fn is_beside_writer(&self, hostgroup: HostgroupId) -> bool {
        self.reader == hostgroup || self.backup_writer == Some(hostgroup)
    }

    /// All hostgroups that the row names.
    pub fn hostgroups(&self) -> impl Iterator<Item = HostgroupId> + use<> {
        [Some(self.writer), self.backup_writer, Some(self.reader), self.offline].into_iter().flatten()
    }
}

/// How the roles of a cluster are found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RoleKind {
    /// Asynchronous replication: the server that is not read-only writes.
    Replication(ReadOnlyCheck),
    /// Galera, Percona XtraDB Cluster.
    Galera,
    /// Group Replication, InnoDB Cluster.
    GroupReplication,
    /// With the columns that only its table has.
    Aurora(Aurora),
}

impl RoleKind {
    /// As events and metrics name it.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Replication(_) => "replication",
            Self::Galera => "galera",
            Self::GroupReplication => "group_replication",
            Self::Aurora(_) => "aurora",
        }
    }
}

/// `check_type` of `mysql_replication_hostgroups`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReadOnlyCheck {
    /// `@@global.read_only`.
    ReadOnly,
    /// `@@global.innodb_read_only`, which Aurora's instances report.
    InnodbReadOnly,
    /// `@@global.super_read_only`, which MariaDB lacks.
    SuperReadOnly,
    /// Either of `read_only` and `innodb_read_only`.
    Either,
    /// Both `read_only` and `innodb_read_only`.
    Both,
}

impl ReadOnlyCheck {
    /// The SQL expression that is 0 for a writer.
    pub fn expression(self) -> &'static str {
        match self {
            Self::ReadOnly => "@@global.read_only",
            Self::InnodbReadOnly => "@@global.innodb_read_only",
            Self::SuperReadOnly => "@@global.super_read_only",
            Self::Either => "@@global.read_only|@@global.innodb_read_only",
            Self::Both => "@@global.read_only&@@global.innodb_read_only",
        }
    }

    fn of(row: &Row) -> Self {
        match row.text("check_type").unwrap_or_default().to_ascii_lowercase().as_str() {
            "innodb_read_only" => Self::InnodbReadOnly,
            "super_read_only" => Self::SuperReadOnly,
            "read_only|innodb_read_only" => Self::Either,
            "read_only&innodb_read_only" => Self::Both,
            _ => Self::ReadOnly,
        }
    }
}

/// The column `writer_is_also_reader`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriterReads {
    /// 0: writers do not read.
    No,
    /// 1: writers read too.
    Yes,
    /// 2: backup writers read; writers only while there is no backup writer.
    Backups,
}

/// The columns of `mysql_aws_aurora_hostgroups` alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aurora {
    /// Port of every instance.
    pub port: u16,
    /// The part of an instance's host name behind its id; begins with a dot.
    pub domain_name: Box<str>,
    /// Replicas that lag more are not read from, ms.
    pub max_lag_ms: u32,
    /// Time between probes, ms.
    pub check_interval_ms: u32,
    /// Longest that one probe may take, ms.
    pub check_timeout_ms: u32,
    /// Weight of replicas that are found.
    pub new_reader_weight: u32,
    /// Added to each measured lag, ms.
    pub add_lag_ms: u32,
    /// Smallest lag that is assumed of a replica, ms.
    pub min_lag_ms: u32,
    /// Samples whose largest lag counts.
    pub lag_num_checks: u32,
}

/// Every active row, in the order of the tables.
pub(super) fn compile(config: &Config) -> Vec<Arc<RoleGroup>> {
    let active =
        |table: &str| config.rows(table).iter().filter(|row| row.cell("active").is_none() || row.flag("active")).collect::<Vec<_>>();
    let mut groups: Vec<RoleGroup> = active("mysql_replication_hostgroups").into_iter().map(|row| replication(row, config)).collect();
    groups.extend(active("mysql_galera_hostgroups").into_iter().map(|row| clustered(row, RoleKind::Galera)));
    groups.extend(active("mysql_group_replication_hostgroups").into_iter().map(|row| clustered(row, RoleKind::GroupReplication)));
    groups.extend(active("mysql_aws_aurora_hostgroups").into_iter().map(aurora));
    groups.into_iter().map(Arc::new).collect()
}

fn base(row: &Row, kind: RoleKind) -> RoleGroup {
    RoleGroup {
        kind,
        writer: HostgroupId(number(row, "writer_hostgroup")),
        backup_writer: None,
        reader: HostgroupId(number(row, "reader_hostgroup")),
        offline: None,
        max_writers: u32::MAX,
        writer_reads: WriterReads::No,
        max_transactions_behind: 0,
        comment: row.text("comment").unwrap_or_default().into(),
    }
}

fn replication(row: &Row, config: &Config) -> RoleGroup {
    let writer_reads = if config.mysql.monitor_writer_is_also_reader { WriterReads::Yes } else { WriterReads::No };
    RoleGroup { writer_reads, ..base(row, RoleKind::Replication(ReadOnlyCheck::of(row))) }
}

fn clustered(row: &Row, kind: RoleKind) -> RoleGroup {
    RoleGroup {
        backup_writer: Some(HostgroupId(number(row, "backup_writer_hostgroup"))),
        offline: Some(HostgroupId(number(row, "offline_hostgroup"))),
        max_writers: number(row, "max_writers"),
        writer_reads: writer_reads(row),
        max_transactions_behind: number(row, "max_transactions_behind"),
        ..base(row, kind)
    }
}

fn aurora(row: &Row) -> RoleGroup {
    let kind = RoleKind::Aurora(Aurora {
        port: number(row, "aurora_port"),
        domain_name: row.text("domain_name").unwrap_or_default().into(),
        max_lag_ms: number(row, "max_lag_ms"),
        check_interval_ms: number(row, "check_interval_ms"),
        check_timeout_ms: number(row, "check_timeout_ms"),
        new_reader_weight: number(row, "new_reader_weight"),
        add_lag_ms: number(row, "add_lag_ms"),
        min_lag_ms: number(row, "min_lag_ms"),
        lag_num_checks: number(row, "lag_num_checks"),
    });
    RoleGroup { max_writers: 1, writer_reads: writer_reads(row), ..base(row, kind) }
}

fn writer_reads(row: &Row) -> WriterReads {
    match row.integer("writer_is_also_reader") {
        Some(1) => WriterReads::Yes,
        Some(2) => WriterReads::Backups,
        _ => WriterReads::No,
    }
}
