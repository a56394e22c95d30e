//! What a server has executed, as GTIDs: how many transactions a replica lacks is counted from it.

use topology::GtidSet;

use crate::client::{Connection, Fault, Version};

/// What it has executed, and that in its own words.
pub(super) async fn look(connection: &mut Connection) -> Result<(GtidSet, String), Fault> {
    let sql = statement(connection.version());
    let rows = connection.query(sql).await?;
    let text = rows.scalar().unwrap_or_default().replace('\n', "");
    let set = GtidSet::parse(&text).ok_or_else(|| Fault::Protocol(format!("'{text}' is not a set of GTIDs")))?;
    Ok((set, text))
}

/// MariaDB notes what a server wrote and what it replicated in two places, and a replica need not have a binlog. The state of the binlog
/// says the last transaction of each server that wrote, a position only the last one of all.
fn statement(version: &Version) -> &'static str {
    if version.is_mariadb {
        "SELECT CONCAT_WS(',', @@global.gtid_binlog_state, @@global.gtid_slave_pos)"
    } else {
        "SELECT @@global.gtid_executed"
    }
}
