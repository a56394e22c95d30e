//! What an answer says beside what was asked: orders that a LOAD does not end.

use model::stats::{Reading, Value};

use super::Engine;

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
}
