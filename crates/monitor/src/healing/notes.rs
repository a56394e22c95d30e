//! What makes a promotion slower or riskier, and does not forbid it, in words.

use topology::healing::Channel;

use super::look::{HEARTBEATS_GRANT, Sight};

/// Slower heartbeats delay the look at a writer that froze, ms.
const HEARTBEAT_MAX_MS: u64 = 2_000;
/// A receiver that waits longer for a writer that is gone keeps it connected for so long, s.
const NET_TIMEOUT_MAX_S: u64 = 10;

/// Of a replica, with its channel from the primary.
pub(super) fn of(sight: &Sight, channel: Option<&Channel>, user: &str) -> Vec<String> {
    let is_mariadb = sight.version.is_mariadb;
    let (period, timeout) =
        if is_mariadb { ("MASTER_HEARTBEAT_PERIOD", "slave_net_timeout") } else { ("SOURCE_HEARTBEAT_PERIOD", "replica_net_timeout") };
    let mut notes = Vec::new();
    if sight.hides_heartbeats {
        notes.push(format!("heartbeats are not visible: GRANT {HEARTBEATS_GRANT} TO the monitor's user ({user})"));
    }
    let heartbeat_ms = channel.filter(|_| !sight.hides_heartbeats).map(|channel| channel.heartbeat_ms);
    match heartbeat_ms {
        Some(None) => notes.push(format!("its channel has no heartbeats, so it notices late that the writer froze: set {period}=1")),
        Some(Some(ms)) if ms > HEARTBEAT_MAX_MS => {
            let (seconds, tenths) = (ms / 1_000, ms % 1_000 / 100);
            notes.push(format!("heartbeats come every {seconds}.{tenths} s, so it notices late that the writer froze: set {period}=1"));
        }
        _ => {}
    }
    if let Some(seconds) = sight.net_timeout_s.filter(|seconds| *seconds > NET_TIMEOUT_MAX_S) {
        notes.push(format!("{timeout} is {seconds} s, so it notices late that the writer is gone: set it to {NET_TIMEOUT_MAX_S} or less"));
    }
    if is_mariadb && !sight.is_strict {
        notes.push("gtid_strict_mode is OFF, so a server with other transactions can join without an error: set it to ON".to_owned());
    }
    if sight.reorders {
        notes.push("replica_preserve_commit_order is OFF, so its transactions can have gaps: set it to ON".to_owned());
    }
    if !sight.is_read_only {
        notes.push("it is writable (read_only=0): a client could write there, and the server could then not follow".to_owned());
    }
    notes
}
