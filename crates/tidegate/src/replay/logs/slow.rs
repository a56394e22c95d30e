//! Slow logs of MySQL and MariaDB, and of the proxy.
//!
//! ```text
//! # Time: 2026-11-28T10:00:00.123456Z        MariaDB: 261128 10:00:00, at the first entry of a second
//! # User@Host: app[app] @ host [10.0.0.1]  Id: 8
//! # Thread_id: 8  Schema: shop  QC_hit: No   MariaDB
//! # Query_time: 0.001000  Lock_time: 0.000000 Rows_sent: 1  Rows_examined: 1
//! use shop;
//! SET timestamp=1764324000;
//! SELECT ...;
//! ```

use super::{Entered, Entries, Entry, MAX_TEXT, read_line};
use anyhow::{Result, bail};
use jiff::Timestamp;
use std::fs::File;
use std::io::BufReader;

/// Whether a file that begins like this is a slow log.
pub(super) fn is_front(front: &[u8]) -> bool {
    let has = |text: &[u8]| front.windows(text.len()).any(|part| part == text);
    (front.starts_with(b"# Time: ") || front.starts_with(b"# User@Host: ") || has(b"started with:\n")) && has(b"# Query_time: ")
        || has(b"started with:\n") && has(b"Id Command    Argument")
}

/// See the module.
#[derive(Default)]
pub(super) struct SlowLog {
    /// The first line of the next entry, which was read with the one before.
    ahead: Option<Vec<u8>>,
    /// The schema that the file has named last, where entries do not name theirs.
    schema: Option<Vec<u8>>,
    /// Starts of the server: its sessions have the same numbers again.
    starts: u64,
}

/// The head of an entry, as far as it was read.
#[derive(Default)]
struct Head {
    thread: Option<u64>,
    user: Vec<u8>,
    /// The schema of this entry alone.
    schema: Option<Vec<u8>>,
    time_us: Option<u64>,
    /// From `# Time`, Unix us.
    end_us: Option<u64>,
    /// From SET timestamp, Unix us.
    begin_us: Option<u64>,
    insert_id: Option<u64>,
    /// MariaDB: a statement within a stored program, whose CALL has an entry of its own.
    is_of_routine: bool,
}

impl Entries for SlowLog {
    fn next(&mut self, from: &mut BufReader<File>) -> Result<Option<Entry>> {
        loop {
            let mut head = Head::default();
            let Some(text) = self.read(from, &mut head)? else { return Ok(None) };
            if let Some(entry) = self.entry(head, text) {
                return Ok(Some(entry));
            }
        }
    }
}

impl SlowLog {
    /// Reads an entry's head, and returns its text; None at the end of the file.
    fn read(&mut self, from: &mut BufReader<File>, head: &mut Head) -> Result<Option<Vec<u8>>> {
        let (mut line, mut text, mut is_read) = (Vec::new(), Vec::new(), false);
        // The statement stands behind SET timestamp.
        let mut has_text = false;
        loop {
            match self.ahead.take() {
                Some(ahead) => line = ahead,
                None if !read_line(from, &mut line)? => break,
                None => {}
            }
            let is_head = line.starts_with(b"# Time: ") || line.starts_with(b"# User@Host: ");
            let is_start = line.ends_with(b"started with:");
            // Servers end each statement so. A statement may have lines that look like a head.
            let is_whole = text.is_empty() || text.ends_with(b";");
            if has_text && is_whole && (is_head || is_start) {
                self.ahead = Some(line);
                return Ok(Some(text));
            }
            is_read = true;
            match () {
                () if is_start && !has_text => self.starts += 1,
                () if has_text => {
                    if !text.is_empty() {
                        text.push(b'\n');
                    }
                    text.extend_from_slice(&line);
                    if text.len() as u64 > MAX_TEXT {
                        bail!("a statement is longer than {MAX_TEXT} bytes");
                    }
                }
                () if line.starts_with(b"# ") => head.note(&line),
                () if line.len() > 5 && line[..4].eq_ignore_ascii_case(b"use ") && head.time_us.is_some() => {
                    self.schema = sql::parse_use(line.strip_suffix(b";").unwrap_or(&line), sql::LexMode::default());
                }
                () if line.starts_with(b"SET ") && head.time_us.is_some() => {
                    head.note_set(&line);
                    has_text = head.begin_us.is_some();
                }
                () => {}
            }
        }
        // A log that is being written may end within a statement.
        Ok((is_read && (text.is_empty() || text.ends_with(b";"))).then_some(text))
    }

    /// None for what is no entry, such as the lines of a server that starts.
    fn entry(&self, head: Head, mut text: Vec<u8>) -> Option<Entry> {
        let (time_us, stated_us) = (head.time_us?, head.begin_us?);
        let begin_us = head.end_us.map_or(stated_us, |end_us| end_us.saturating_sub(time_us));
        if text.last() == Some(&b';') {
            text.pop();
        }
        let what = match text.strip_prefix(b"# administrator command: ") {
            Some(command) if command.starts_with(b"Quit") => Entered::Quit,
            Some(_) => Entered::Other,
            None if text.is_empty() || head.is_of_routine => Entered::Other,
            None => Entered::Query(text),
        };
        let thread = head.thread?.wrapping_add(self.starts << 40);
        Some(Entry {
            thread,
            user: head.user,
            schema: head.schema.or_else(|| self.schema.clone()),
            begin_us,
            time_us,
            insert_id: head.insert_id,
            what,
        })
    }
}

impl Head {
    /// Takes a line that begins with `# `.
    fn note(&mut self, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        let mut words = line.split_whitespace().skip(1).peekable();
        while let Some(word) = words.next() {
            // A key without a value is followed by the next key.
            let value = words.peek().copied().filter(|value| !value.ends_with(':')).unwrap_or_default();
            match word {
                // MariaDB names seconds of local time, and SET timestamp has them too.
                "Time:" => self.end_us = value.parse().ok().and_then(|at: Timestamp| u64::try_from(at.as_microsecond()).ok()),
                "User@Host:" => self.user = value.split('[').next().unwrap_or_default().as_bytes().to_vec(),
                "Id:" | "Thread_id:" => self.thread = value.parse().ok().or(self.thread),
                "Schema:" => self.schema = Some(value.as_bytes().to_vec()),
                "Query_time:" => self.time_us = seconds_us(value),
                "Stored_routine:" => self.is_of_routine = true,
                _ => {}
            }
        }
    }

    /// Takes `SET last_insert_id=1,insert_id=2,timestamp=3;`.
    fn note_set(&mut self, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        let assignments = line.trim_start_matches("SET ").trim_end_matches(';');
        for (name, value) in assignments.split(',').filter_map(|one| one.split_once('=')) {
            match name.trim() {
                "timestamp" => self.begin_us = seconds_us(value),
                "insert_id" => self.insert_id = value.parse().ok(),
                _ => {}
            }
        }
    }
}

/// Seconds with a fraction, in us.
fn seconds_us(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let us: u64 = format!("{fraction:0<6}").get(..6)?.parse().ok()?;
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(us)
}
