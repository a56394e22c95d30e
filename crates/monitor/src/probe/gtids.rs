//! A server's executed GTIDs, from which a replica's missing transactions are counted.

use topology::GtidSet;

use crate::client::{Connection, Fault, Version};

/// The executed GTIDs, and the server's own text of them.
pub(super) async fn look(connection: &mut Connection) -> Result<(GtidSet, String), Fault> {
    let sql = statement(connection.version());
    let rows = connection.query(sql).await?;
    let text = rows.scalar().unwrap_or_default().replace('\n', "");
    let set = GtidSet::parse(&text).ok_or_else(|| Fault::Protocol(format!("'{text}' is not a set of GTIDs")))?;
    Ok((set, text))
}

/// MariaDB records own and replicated transactions in two places, and a replica need not have a binary log. The log's state gives the last
/// transaction of each server that wrote; a position only gives the last one of all.
fn statement(version: &Version) -> &'static str {
    if version.is_mariadb {
        "SELECT CONCAT_WS(',', @@global.gtid_binlog_state, @@global.gtid_slave_pos)"
    } else {
        "SELECT @@global.gtid_executed"
    }
}
