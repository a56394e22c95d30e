//! Errors that servers gave, by server, user, schema and number: `stats_mysql_errors`.
//!
//! A worker's own table, bounded: an error whose key does not fit is counted as unlisted.

use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// The table's primary key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorKey {
    /// Hostgroup.
    pub hostgroup: u32,
    /// The server's host.
    pub host: Arc<str>,
    /// Its port.
    pub port: u16,
    /// The user.
    pub user: Box<str>,
    /// The session's schema; empty for none.
    pub schema: Box<[u8]>,
    /// MySQL error number.
    pub code: u16,
}

/// What is known of errors with one key. Times are process clock, ms.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorSums {
    /// How many.
    pub count: u64,
    /// The first.
    pub first_ms: u64,
    /// The last.
    pub last_ms: u64,
    /// The client that had the last one.
    pub client: Option<IpAddr>,
    /// The last one's text.
    pub text: Box<[u8]>,
}

impl ErrorSums {
    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.first_ms = self.first_ms.min(other.first_ms);
        if other.last_ms >= self.last_ms {
            (self.last_ms, self.client, self.text) = (other.last_ms, other.client, other.text);
        }
    }
}

/// Keys that a table may have.
const MAX_KEYS: usize = 4096;
/// Bytes of an error's text that are kept.
const MAX_TEXT: usize = 512;

/// See the module.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorTable {
    rows: HashMap<ErrorKey, ErrorSums>,
    unlisted: u64,
}

impl ErrorTable {
    /// One more error with this key, and its text (process clock, ms).
    pub fn count(&mut self, key: ErrorKey, client: Option<IpAddr>, text: &[u8], now_ms: u64) {
        let text = text.get(..MAX_TEXT).unwrap_or(text).into();
        self.add_one(key, ErrorSums { count: 1, first_ms: now_ms, last_ms: now_ms, client, text });
    }

    fn add_one(&mut self, key: ErrorKey, sums: ErrorSums) {
        if let Some(row) = self.rows.get_mut(&key) {
            row.add(sums);
        } else if self.rows.len() < MAX_KEYS {
            self.rows.insert(key, sums);
        } else {
            self.unlisted += sums.count;
        }
    }

    /// Adds what another worker counted.
    pub fn add(&mut self, other: Self) {
        self.unlisted += other.unlisted;
        other.rows.into_iter().for_each(|(key, sums)| self.add_one(key, sums));
    }

    /// What was counted since `earlier`. The first and the last time, and the text, are those of all errors with a key.
    pub fn since(&self, earlier: &Self) -> Self {
        let rows = self.rows.iter().map(|(key, sums)| {
            let before = earlier.rows.get(key).map_or(0, |before| before.count);
            (key.clone(), ErrorSums { count: sums.count.saturating_sub(before), ..sums.clone() })
        });
        Self { rows: rows.filter(|(_, sums)| sums.count > 0).collect(), unlisted: self.unlisted.saturating_sub(earlier.unlisted) }
    }

    /// The rows in order.
    pub fn rows(&self) -> Vec<(&ErrorKey, &ErrorSums)> {
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort_unstable_by_key(|(key, _)| *key);
        rows
    }

    /// Errors without a row.
    pub fn unlisted(&self) -> u64 {
        self.unlisted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(code: u16, user: &str) -> ErrorKey {
        ErrorKey { hostgroup: 1, host: "db1".into(), port: 3306, user: user.into(), schema: b"shop"[..].into(), code }
    }

    #[test]
    fn workers_add_up_and_the_last_text_stays() {
        let (mut a, mut b) = (ErrorTable::default(), ErrorTable::default());
        a.count(key(1146, "anna"), None, b"first", 10);
        a.count(key(1062, "anna"), None, b"dup", 11);
        b.count(key(1146, "anna"), None, b"second", 30);
        b.count(key(1146, "anna"), None, &[b'x'; 2000], 20);
        a.add(b);
        let rows = a.rows();
        assert_eq!(rows.len(), 2);
        let (key, sums) = rows[1];
        assert_eq!((key.code, sums.count, sums.first_ms, sums.last_ms), (1146, 3, 10, 30));
        assert_eq!(&*sums.text, b"second");
    }

    #[test]
    fn keys_are_bounded() {
        let mut table = ErrorTable::default();
        for n in 0..MAX_KEYS + 10 {
            table.count(key(1, &n.to_string()), None, b"", 0);
        }
        table.count(key(1, "0"), None, b"", 0);
        assert_eq!((table.rows().len(), table.unlisted()), (MAX_KEYS, 10));
    }
}
