//! Additions to an answer: orders that a LOAD does not end, and the table that the statement probably meant.

use model::stats::{Reading, Value};

use super::Engine;
use crate::reply::Role;

/// No table has a longer name, bytes.
const LONGEST_NAME: usize = 64;

impl Engine {
    /// Hostgroups that an order pauses, which a LOAD does not end.
    pub(super) fn paused(&self) -> Option<String> {
        let holds = self.live.read_stats("stats_tidegate_holds", Reading::Keep)?;
        let paused = holds.iter().filter_map(|hold| match hold.as_slice() {
            [Value::Integer(hostgroup), Value::Text(reason), ..] if reason == "pause" => Some(hostgroup),
            _ => None,
        });
        let told: Vec<String> =
            paused.map(|hostgroup| format!("hostgroup {hostgroup} stays paused until RESUME HOSTGROUP {hostgroup}")).collect();
        (!told.is_empty()).then(|| told.join(", "))
    }

    /// The table that was meant by a name that is none, among those that `who` may read.
    pub(crate) fn nearest_table(&self, who: Role, name: &str) -> Option<String> {
        let bare = name.rsplit('.').next().unwrap_or(name);
        let live = self.live.tables().iter().filter(|table| who == Role::Admin || table.schema != "main").map(|table| &*table.name);
        let own = model::config::TABLES.iter().map(|table| table.name).chain(["global_variables"]).filter(|_| who == Role::Admin);
        let limit = (bare.len() / 3).clamp(1, 4);
        // Comparing takes time by the product of both lengths, on the engine's only thread.
        if bare.len() > LONGEST_NAME {
            return None;
        }
        let near = live.chain(own).map(|known| (model::edits(bare, known), known)).filter(|(edits, _)| *edits <= limit);
        near.min().map(|(_, known)| known.to_owned())
    }
}

/// The column that was meant by a name that is none, among those of the configuration's tables that `sql` names.
pub(crate) fn nearest_column(sql: &str, name: &str) -> Option<String> {
    let bare = name.rsplit('.').next().unwrap_or(name);
    if bare.len() > LONGEST_NAME {
        return None;
    }
    let sql = sql.to_ascii_lowercase();
    let tables = model::config::TABLES.iter().filter(|table| sql.contains(table.name));
    let columns = tables.flat_map(|table| table.columns.iter().map(|column| column.name));
    let limit = (bare.len() / 3).clamp(1, 4);
    // What a column begins with was meant for it, however much is missing.
    let rank = |known: &&str| if known.starts_with(bare) { 0 } else { model::edits(bare, known) };
    let near = columns.map(|known| (rank(&known), known)).filter(|(edits, _)| *edits <= limit);
    near.min().map(|(_, known)| known.to_owned())
}

#[cfg(test)]
mod tests {
    use super::nearest_column;

    #[test]
    fn the_column_that_was_meant() {
        let meant = |sql, name| nearest_column(sql, name);
        assert_eq!(meant("UPDATE mysql_servers SET max_conn=1", "max_conn").as_deref(), Some("max_connections"));
        assert_eq!(meant("SELECT * FROM main.MYSQL_USERS WHERE usernam='a'", "usernam").as_deref(), Some("username"));
        assert_eq!(meant("UPDATE mysql_servers SET usernam=1", "usernam"), None);
        assert_eq!(meant("SELECT nonsense", "nonsense"), None);
    }
}
