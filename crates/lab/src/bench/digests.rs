//! How fast statements are read: analysis and digests of a small corpus, in megabytes a second of one thread. No IO.
//!
//! The proxy analyses every statement; it makes a digest's text only for statements that it has not met.

use std::hint::black_box;
use std::time::{Duration, Instant};

use sql::{DigestOptions, LexMode};

use super::summary::median;

/// Times each figure is taken, of which the median is told.
const REPEATS: usize = 5;
/// The clock is read once in so many bytes, so that reading it does not count.
const SLICE_BYTES: usize = 64 * 1024;
/// Bytes of the long INSERT, about.
const INSERT_BYTES: usize = 10_000;

const JOIN: &str = "SELECT o.id, o.created_at, c.name, SUM(i.price * i.quantity) AS total FROM orders o \
    JOIN customers c ON c.id = o.customer_id LEFT JOIN order_items i ON i.order_id = o.id \
    WHERE o.status IN ('paid', 'shipped') AND o.created_at >= '2024-01-01 00:00:00' AND c.country = 'NL' AND i.price > 9.99 \
    GROUP BY o.id, o.created_at, c.name HAVING total > 100 ORDER BY o.created_at DESC LIMIT 20 OFFSET 40";

/// One statement's figures, in millions of bytes a second.
#[derive(Clone, Copy, Debug)]
pub struct DigestSpeed {
    /// The statement in words.
    pub name: &'static str,
    /// Its length.
    pub bytes: usize,
    /// Kind, facts and the key for everything remembered: the hot path.
    pub analyze_mb: f64,
    /// The digest's text and its hash.
    pub digest_mb: f64,
}

/// Measures the corpus; each figure takes `window`, five times.
pub fn measure(window: Duration) -> Vec<DigestSpeed> {
    let corpus =
        [("point select", "SELECT c FROM sbtest1 WHERE id=12345".to_owned()), ("join", JOIN.to_owned()), ("10 KB insert", insert())];
    corpus.iter().map(|(name, text)| speed(name, text.as_bytes(), window)).collect()
}

fn speed(name: &'static str, text: &[u8], window: Duration) -> DigestSpeed {
    let options = DigestOptions::default();
    let mut out = Vec::new();
    let analyze_mb = megabytes(text, window, |text| {
        black_box(sql::analyze(text, LexMode::default()));
    });
    let digest_mb = megabytes(text, window, |text| {
        out.clear();
        sql::digest_text(text, &options, &mut out);
        black_box(sql::spooky_hash64(&out, 0));
    });
    DigestSpeed { name, bytes: text.len(), analyze_mb, digest_mb }
}

/// Median rate of `work` on `text`.
fn megabytes(text: &[u8], window: Duration, mut work: impl FnMut(&[u8])) -> f64 {
    let rounds = (SLICE_BYTES / text.len().max(1)).max(1);
    let rates = (0..REPEATS).map(|_| {
        let (began, mut bytes) = (Instant::now(), 0);
        while began.elapsed() < window {
            for _ in 0..rounds {
                work(black_box(text));
            }
            bytes += rounds * text.len();
        }
        bytes as f64 / 1e6 / began.elapsed().as_secs_f64()
    });
    median(rates.collect())
}

fn insert() -> String {
    let mut text = "INSERT INTO events (id, kind, payload, created_at) VALUES ".to_owned();
    for id in 0.. {
        text.push_str(&format!("({id}, 'click', 'it''s payload number {id} of many', '2024-05-06 07:08:09')"));
        if text.len() >= INSERT_BYTES {
            return text;
        }
        text.push_str(", ");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_whole_corpus() {
        let speeds = measure(Duration::from_micros(100));
        assert_eq!(speeds.len(), 3);
        assert!(speeds.iter().all(|speed| speed.analyze_mb > 0.0 && speed.digest_mb > 0.0));
        assert!((INSERT_BYTES..INSERT_BYTES + 200).contains(&speeds[2].bytes));
    }
}
