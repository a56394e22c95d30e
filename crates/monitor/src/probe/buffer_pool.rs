//! Whether the buffer pool has been loaded since the start.

use crate::client::{Connection, Fault, Rows, is_on};

const STATUS: &str = "SHOW GLOBAL STATUS WHERE Variable_name IN ('Innodb_buffer_pool_load_status', 'Uptime')";
const IS_WANTED: &str = "SELECT @@global.innodb_buffer_pool_load_at_startup";
/// A load that was ordered begins within this time after the start, s.
const BEGINS_WITHIN_S: u64 = 60;

/// Whether it is loaded, and the uptime in s.
pub(super) async fn look(connection: &mut Connection) -> Result<(bool, u64), Fault> {
    let status = connection.query(STATUS).await?;
    let is_wanted = connection.query(IS_WANTED).await?.scalar().is_some_and(is_on);
    let uptime_s = status.named("Uptime").and_then(|text| text.parse().ok()).unwrap_or_default();
    Ok((is_loaded(&status, is_wanted, uptime_s), uptime_s))
}

/// While it loads, the status says "Loading ..." or "Loaded 3/200 pages". Whatever else is said once it has begun ("...
/// completed at", "... aborted", "Cannot open ...") will not change any more.
fn is_loaded(status: &Rows, is_wanted: bool, uptime_s: u64) -> bool {
    let text = status.named("Innodb_buffer_pool_load_status").unwrap_or_default().to_ascii_lowercase();
    let has_begun = !text.is_empty() && !text.contains("not started") && !text.contains("not yet started");
    if has_begun { !text.starts_with("loading") && !text.starts_with("loaded ") } else { !is_wanted || uptime_s > BEGINS_WITHIN_S }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(text: &str) -> Rows {
        Rows::of(&["Variable_name", "Value"], &[&[Some("Innodb_buffer_pool_load_status"), Some(text)], &[Some("Uptime"), Some("5")]])
    }

    #[test]
    fn loaded_is_what_will_not_change_any_more() {
        for (text, expected) in [
            ("Buffer pool(s) load completed at 261121  7:50:00", true),
            ("Loading buffer pool(s) from /data/ib_buffer_pool", false),
            ("Loaded 12/4000 pages", false),
            ("Buffer pool(s) load aborted on request", true),
            ("Cannot open '/data/ib_buffer_pool' for reading: No such file or directory", true),
            ("Loading of buffer pool not started", false),
        ] {
            assert_eq!(is_loaded(&status(text), true, 5), expected, "{text}");
        }
    }

    #[test]
    fn a_load_that_was_never_ordered_is_not_waited_for() {
        assert!(is_loaded(&status("Dumping of buffer pool not started"), false, 5));
        assert!(is_loaded(&status(""), true, 100));
    }
}
