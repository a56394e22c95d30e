//! A Group Replication member's state and view: MySQL 5.7 and later.

use std::collections::HashMap;

use model::ServerAddr;
use topology::{GroupView, Identity};

use crate::client::{Connection, Fault, Row, Rows, is_on};

const PRIVILEGE: &str = "SELECT ON performance_schema.*";

/// From 8.0 on: roles are in the members' table, and every member knows the queues of all.
const MEMBERS: &str = "SELECT m.MEMBER_ID, m.MEMBER_HOST, m.MEMBER_PORT, m.MEMBER_STATE, m.MEMBER_ROLE, \
     m.MEMBER_ID = @@server_uuid AS IS_ME, s.VIEW_ID, s.COUNT_TRANSACTIONS_REMOTE_IN_APPLIER_QUEUE AS BEHIND, \
     @@global.read_only AS READ_ONLY, @@global.super_read_only AS SUPER_READ_ONLY, (SELECT VARIABLE_VALUE \
     FROM performance_schema.global_variables WHERE VARIABLE_NAME = 'group_replication_group_name') AS GROUP_NAME \
     FROM performance_schema.replication_group_members m \
     LEFT JOIN performance_schema.replication_group_member_stats s ON s.MEMBER_ID = m.MEMBER_ID AND s.CHANNEL_NAME = m.CHANNEL_NAME";

/// 5.7: the primary is a status variable, and the lag is received minus executed transactions.
const MEMBERS_57: &str = "SELECT m.MEMBER_ID, m.MEMBER_HOST, m.MEMBER_PORT, m.MEMBER_STATE, \
     IF(m.MEMBER_ID = (SELECT VARIABLE_VALUE FROM performance_schema.global_status WHERE VARIABLE_NAME = 'group_replication_primary_member'), \
     'PRIMARY', 'SECONDARY') AS MEMBER_ROLE, m.MEMBER_ID = @@server_uuid AS IS_ME, s.VIEW_ID, \
     GTID_SUBTRACT((SELECT RECEIVED_TRANSACTION_SET FROM performance_schema.replication_connection_status \
     WHERE CHANNEL_NAME = 'group_replication_applier'), @@global.gtid_executed) AS MISSING, \
     @@global.read_only AS READ_ONLY, @@global.super_read_only AS SUPER_READ_ONLY, (SELECT VARIABLE_VALUE \
     FROM performance_schema.global_variables WHERE VARIABLE_NAME = 'group_replication_group_name') AS GROUP_NAME \
     FROM performance_schema.replication_group_members m \
     LEFT JOIN performance_schema.replication_group_member_stats s ON s.MEMBER_ID = m.MEMBER_ID";

/// One member, as the one that was asked sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    /// `MEMBER_ID`: the server's UUID.
    pub(crate) id: String,
    /// `MEMBER_HOST` and `MEMBER_PORT`.
    pub(crate) addr: ServerAddr,
    /// `MEMBER_STATE`, for example ONLINE or RECOVERING.
    pub(crate) state: String,
    /// `MEMBER_ROLE` is PRIMARY.
    pub(crate) is_primary: bool,
}

/// A member's answer about itself and its group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    /// The UUID of the member that was asked; empty when it is in no group.
    pub(crate) me: String,
    /// `read_only` or `super_read_only` is set.
    pub(crate) read_only: bool,
    /// Transactions in its applier's queue.
    pub(crate) behind: u64,
    /// The view's id; empty when it is not known.
    pub(crate) view_id: String,
    /// `group_replication_group_name`; empty when it is not set.
    pub(crate) name: String,
    /// All members of its view, itself included.
    pub(crate) members: Vec<Member>,
}

/// Reads the view. An error for MariaDB, and for a version without the tables.
pub(crate) async fn look(connection: &mut Connection) -> Result<Group, Fault> {
    if connection.version().is_mariadb {
        return Err(Fault::Unfit("MariaDB has no Group Replication".into()));
    }
    let sql = if connection.version().is_mysql_since((8, 0, 0)) { MEMBERS } else { MEMBERS_57 };
    let rows = connection.query(sql).await.map_err(|fault| fault.with_hint(PRIVILEGE))?;
    Ok(group(&rows))
}

fn group(rows: &Rows) -> Group {
    let me = rows.iter().find(|row| row.text("is_me") == Some("1"));
    let is_set = |column: &str| rows.first().and_then(|row| row.text(column)).is_some_and(is_on);
    Group {
        me: me.and_then(|row| row.text("member_id")).unwrap_or_default().to_owned(),
        read_only: is_set("read_only") || is_set("super_read_only"),
        behind: me.map_or(0, |row| behind(&row)),
        view_id: me.and_then(|row| row.text("view_id")).unwrap_or_default().to_owned(),
        name: rows.first().and_then(|row| row.text("group_name")).unwrap_or_default().to_ascii_lowercase(),
        members: rows.iter().filter_map(|row| member(&row)).collect(),
    }
}

fn behind(row: &Row<'_>) -> u64 {
    if row.has("missing") { row.text("missing").map_or(0, transactions) } else { row.number("behind").unwrap_or_default() }
}

fn member(row: &Row<'_>) -> Option<Member> {
    // A server on which Group Replication is off has one row, of itself, without an id.
    let id = row.text("member_id").filter(|id| !id.is_empty())?.to_owned();
    let port = u16::try_from(row.number("member_port")?).ok()?;
    Some(Member {
        id,
        addr: ServerAddr { host: row.text("member_host")?.into(), port },
        state: row.text("member_state").unwrap_or_default().to_owned(),
        is_primary: row.text("member_role") == Some("PRIMARY"),
    })
}

/// Transactions of a GTID set: `uuid:1-5:7, uuid:tag:3`.
fn transactions(set: &str) -> u64 {
    let intervals = set.split(',').flat_map(|part| part.split(':').skip(1));
    let count = |interval: &str| {
        let (first, last) = interval.trim().split_once('-').unwrap_or((interval, interval));
        let (first, last): (u64, u64) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        Some(last.saturating_sub(first).saturating_add(1))
    };
    intervals.filter_map(count).fold(0, u64::saturating_add)
}

/// The view as `topology` takes it. `known` gives the configured address by UUID, because members may use other names among each other.
pub(crate) fn view(group: &Group, known: &HashMap<String, ServerAddr>) -> GroupView {
    let addr = |member: &Member| known.get(&member.id).unwrap_or(&member.addr).clone();
    let viable = is_viable(group);
    GroupView {
        viable,
        read_only: group.read_only,
        transactions_behind: group.behind,
        primary: only_primary(group).map(addr),
        members: group.members.iter().map(|member| (addr(member), member.state.clone())).collect(),
        view_id: group.view_id.clone(),
        identity: Identity::new(&group.name).filter(|_| viable),
        uuid: group.me.clone(),
        uuids: group.members.iter().map(|member| (member.id.clone(), addr(member))).collect(),
    }
}

/// None in multi-primary mode, where every member has the role, and while the only one is not ONLINE.
fn only_primary(group: &Group) -> Option<&Member> {
    let mut primaries = group.members.iter().filter(|member| member.is_primary);
    let first = primaries.next().filter(|_| primaries.next().is_none())?;
    (first.state == "ONLINE").then_some(first)
}

/// ONLINE, and fewer than half of the members cannot be counted on.
fn is_viable(group: &Group) -> bool {
    let is_online = group.members.iter().any(|member| member.id == group.me && member.state == "ONLINE");
    let lost = group.members.iter().filter(|member| !matches!(&*member.state, "ONLINE" | "RECOVERING")).count();
    is_online && lost * 2 < group.members.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[&str] = &[
        "MEMBER_ID",
        "MEMBER_HOST",
        "MEMBER_PORT",
        "MEMBER_STATE",
        "MEMBER_ROLE",
        "IS_ME",
        "VIEW_ID",
        "BEHIND",
        "READ_ONLY",
        "SUPER_READ_ONLY",
        "GROUP_NAME",
    ];

    fn three(states: [&str; 3]) -> Group {
        let row = |n: usize| {
            let role = if n == 0 { "PRIMARY" } else { "SECONDARY" };
            let (id, port) = (["a", "b", "c"][n], ["1", "2", "3"][n]);
            let is_me = if n == 1 { "1" } else { "0" };
            [id, "db", port, states[n], role, is_me, "v:7", "4", "1", "1", "7D1D-AA"].map(Some)
        };
        let rows: Vec<_> = (0..3).map(row).collect();
        group(&Rows::of(COLUMNS, &rows.iter().map(|row| row.as_slice()).collect::<Vec<_>>()))
    }

    #[test]
    fn a_secondary_says_who_is_primary() {
        let seen = view(&three(["ONLINE", "ONLINE", "ONLINE"]), &HashMap::new());
        assert_eq!(seen.primary, Some(ServerAddr { host: "db".into(), port: 1 }));
        assert_eq!((seen.viable, seen.read_only, seen.transactions_behind, &*seen.view_id), (true, true, 4, "v:7"));
        assert_eq!(seen.members.len(), 3);
        assert_eq!(seen.identity, Identity::new("7d1d-aa"));
    }

    #[test]
    fn where_all_are_primaries_none_is_the_primary() {
        let mut group = three(["ONLINE", "ONLINE", "ONLINE"]);
        group.members.iter_mut().for_each(|member| member.is_primary = true);
        assert_eq!(view(&group, &HashMap::new()).primary, None);
        for state in ["UNREACHABLE", "RECOVERING"] {
            group.members[0].state = state.to_owned();
            group.members[2].is_primary = false;
            assert_eq!(view(&group, &HashMap::new()).primary, None, "{state}");
        }
        let lost = three(["UNREACHABLE", "ONLINE", "ONLINE"]);
        assert_eq!(view(&lost, &HashMap::new()).primary, None);
    }

    #[test]
    fn a_minority_is_not_viable() {
        let viable = |states| view(&three(states), &HashMap::new()).viable;
        assert!(viable(["UNREACHABLE", "ONLINE", "ONLINE"]));
        assert!(!viable(["UNREACHABLE", "ONLINE", "UNREACHABLE"]));
        assert_eq!(view(&three(["UNREACHABLE", "ONLINE", "UNREACHABLE"]), &HashMap::new()).identity, None);
        assert!(!viable(["ONLINE", "RECOVERING", "ONLINE"]));
        assert!(viable(["RECOVERING", "ONLINE", "RECOVERING"]));
    }

    #[test]
    fn members_have_the_names_that_the_operator_gave_them() {
        let known = HashMap::from([("a".to_owned(), ServerAddr { host: "10.0.0.1".into(), port: 3306 })]);
        let seen = view(&three(["ONLINE", "ONLINE", "ONLINE"]), &known);
        assert_eq!(seen.primary, Some(ServerAddr { host: "10.0.0.1".into(), port: 3306 }));
        assert_eq!(seen.members[1].0, ServerAddr { host: "db".into(), port: 2 });
        assert_eq!((&*seen.uuid, &seen.uuids["a"], &seen.uuids["b"]), ("b", &seen.members[0].0, &seen.members[1].0));
    }

    #[test]
    fn a_server_without_a_group_is_not_viable() {
        let off = Rows::of(
            COLUMNS,
            &[&[Some(""), Some(""), None, Some("OFFLINE"), Some(""), Some("0"), None, None, Some("0"), Some("0"), Some("7d1d-aa")]],
        );
        let seen = view(&group(&off), &HashMap::new());
        assert_eq!((seen.viable, seen.members.len()), (false, 0));
    }

    #[test]
    fn gtid_sets_are_counted() {
        assert_eq!(transactions("3E11FA47-71CA-11E1-9E33-C80AA9429562:1-5:11-18, 3E11FA47:tag:7"), 5 + 8 + 1);
        assert_eq!(transactions(""), 0);
        assert_eq!(transactions("nonsense"), 0);
    }
}
