//! Read/write split without rules: where it is switched on, and its two hostgroups.
//!
//! `mysql_users.attributes` may say `"read_write_split": true | false | {"writer": 10, "reader": 20}`;
//! `mysql_hostgroup_attributes.hostgroup_settings` may say `"read_write_split": true | false | {"reader_hostgroup": 20}`. A missing
//! hostgroup is taken from the tables of clusters. The data plane decides which statements are reads.

use serde_json::Value;

use super::hostgroup::number;
use crate::config::Config;
use crate::error::ErrorKind;
use crate::ids::HostgroupId;

/// The two hostgroups between which statements are split: one for writes, one for reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadWriteSplit {
    /// Takes writes, transactions, and whatever is not certain to be a read.
    pub writer: HostgroupId,
    /// Takes plain reads.
    pub reader: HostgroupId,
}

/// The split that `mysql_users.attributes` chooses for a user, in front of the hostgroup's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UserSplit {
    /// Nothing: the hostgroup decides.
    #[default]
    Unset,
    /// `false`: no split, whatever the hostgroup says.
    Off,
    /// Between these.
    On(ReadWriteSplit),
}

/// The key in both JSON columns.
pub(super) const KEY: &str = "read_write_split";

/// Pairs of writer and reader that the tables of hostgroups name.
pub(super) struct Pairs(Vec<ReadWriteSplit>);

impl Pairs {
    /// Reads the tables; rows with `active=0` do not count.
    pub(super) fn of(config: &Config) -> Self {
        const TABLES: [&str; 4] = [
            "mysql_replication_hostgroups",
            "mysql_group_replication_hostgroups",
            "mysql_galera_hostgroups",
            "mysql_aws_aurora_hostgroups",
        ];
        let rows = TABLES.iter().flat_map(|table| config.rows(table));
        let active = rows.filter(|row| row.integer("active") != Some(0));
        let pair = |row| ReadWriteSplit {
            writer: HostgroupId(number(row, "writer_hostgroup")),
            reader: HostgroupId(number(row, "reader_hostgroup")),
        };
        Self(active.map(pair).collect())
    }

    fn reader_of(&self, writer: HostgroupId) -> Result<HostgroupId, ErrorKind> {
        let pair = self.0.iter().find(|pair| pair.writer == writer);
        let text = || format!("'{KEY}': no hostgroups table names a reader for writer hostgroup {writer}: give the reader's number");
        pair.map(|pair| pair.reader).ok_or_else(|| ErrorKind::BadJson(text()))
    }
}

/// Reads the value of a user's key. `default` is the user's default hostgroup, which is the writer's if none is named.
pub(super) fn of_user(value: Option<&Value>, default: HostgroupId, pairs: &Pairs) -> Result<UserSplit, ErrorKind> {
    let object = match value {
        None | Some(Value::Null) => return Ok(UserSplit::Unset),
        Some(Value::Bool(false)) => return Ok(UserSplit::Off),
        Some(Value::Bool(true)) => &serde_json::Map::new(),
        Some(Value::Object(object)) => object,
        Some(_) => return Err(ErrorKind::BadJson(format!("'{KEY}' must be true, false or an object"))),
    };
    let writer = hostgroup(object.get("writer"), "writer")?.unwrap_or(default);
    let reader = match hostgroup(object.get("reader"), "reader")? {
        Some(reader) => reader,
        None => pairs.reader_of(writer)?,
    };
    Ok(UserSplit::On(ReadWriteSplit { writer, reader }))
}

/// Reads the value of a hostgroup's key: the hostgroup that takes the reads of `writer`.
pub(super) fn of_hostgroup(value: Option<&Value>, writer: HostgroupId, pairs: &Pairs) -> Result<Option<HostgroupId>, ErrorKind> {
    match value {
        None | Some(Value::Null | Value::Bool(false)) => Ok(None),
        Some(Value::Bool(true)) => pairs.reader_of(writer).map(Some),
        Some(Value::Object(object)) => match hostgroup(object.get("reader_hostgroup"), "reader_hostgroup")? {
            Some(reader) => Ok(Some(reader)),
            None => pairs.reader_of(writer).map(Some),
        },
        Some(_) => Err(ErrorKind::BadJson(format!("'{KEY}' must be true, false or an object"))),
    }
}

fn hostgroup(value: Option<&Value>, key: &str) -> Result<Option<HostgroupId>, ErrorKind> {
    let Some(value) = value else {
        return Ok(None);
    };
    let id = value.as_u64().and_then(|id| u32::try_from(id).ok()).filter(|id| *id <= HostgroupId::MAX);
    match id {
        Some(id) => Ok(Some(HostgroupId(id))),
        None => Err(ErrorKind::BadJson(format!("'{KEY}': '{key}' must be the number of a hostgroup"))),
    }
}
