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
