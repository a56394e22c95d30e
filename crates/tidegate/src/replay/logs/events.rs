//! Events logs, JSON and binary (docs/reference/query-log.md).

use super::{Entered, Entries, Entry, MAX_TEXT, read_line};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use wire::codec;

/// COM_QUERY, as binary logs have it.
const QUERY: u8 = 0;
/// COM_STMT_EXECUTE and COM_STMT_PREPARE.
const OF_PREPARED: [u8; 2] = [16, 17];
/// What a statement that reached no server has for its hostgroup.
const NO_HOSTGROUP: u64 = u64::MAX;

/// Whether a file that begins like this is a binary log: a record's length and an event.
pub(super) fn is_front(front: &[u8]) -> bool {
    let Some((length, rest)) = front.split_first_chunk() else { return false };
    let is_event = |event: &u8| *event == QUERY || OF_PREPARED.contains(event);
    (12..MAX_TEXT).contains(&u64::from_le_bytes(*length)) && rest.first().is_some_and(is_event) && {
        let mut record = codec::Reader::new(rest.get(1..).unwrap_or_default());
        // Session, user, schema, client.
        record.lenenc().is_ok() && (0..3).all(|_| record.lenenc_bytes().is_ok_and(|name| std::str::from_utf8(name).is_ok()))
    }
}

/// What an execution or a text says, if it can be sent.
fn entered(is_query: bool, text: Vec<u8>) -> Entered {
    if is_query { Entered::Query(text) } else { Entered::Incomplete(text) }
}

/// A line for each statement.
pub(super) struct JsonEvents;

impl Entries for JsonEvents {
    fn next(&mut self, from: &mut BufReader<File>) -> Result<Option<Entry>> {
        let mut line = Vec::new();
        while read_line(from, &mut line)? {
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let event: Value = match serde_json::from_slice(&line) {
                Ok(event) => event,
                // A log that is being written may end within a line.
                Err(_) if from.fill_buf()?.is_empty() => return Ok(None),
                Err(e) => return Err(e).context("a line is no JSON object"),
            };
            let text = |key: &str| event.get(key).and_then(Value::as_str).map(|text| text.as_bytes().to_vec());
            // Some versions write numbers as text.
            let number = |key: &str| event.get(key).and_then(|value| value.as_u64().or_else(|| value.as_str()?.parse().ok()));
            let kind = event.get("event").and_then(Value::as_str).unwrap_or_default();
            let (Some(thread), Some(begin_us)) = (number("thread_id"), number("starttime_timestamp_us")) else {
                bail!("a line has no thread_id or starttime_timestamp_us");
            };
            let until_us = || number("endtime_timestamp_us").map(|end_us| end_us.saturating_sub(begin_us));
            let what = match (kind, text("query")) {
                ("COM_QUERY", Some(query)) => entered(true, query),
                ("COM_STMT_EXECUTE", Some(query)) => entered(false, query),
                _ => Entered::Other,
            };
            return Ok(Some(Entry {
                thread,
                user: text("username").unwrap_or_default(),
                schema: text("schemaname"),
                begin_us,
                time_us: number("duration_us").or_else(until_us).unwrap_or(0),
                insert_id: number("last_insert_id").filter(|id| *id > 0),
                what,
            }));
        }
        Ok(None)
    }
}

/// A record for each statement.
pub(super) struct BinaryEvents;

impl Entries for BinaryEvents {
    fn next(&mut self, from: &mut BufReader<File>) -> Result<Option<Entry>> {
        let mut length = Vec::new();
        Read::by_ref(from).take(8).read_to_end(&mut length)?;
        // A log that is being written may end within a record.
        let Ok(length) = <[u8; 8]>::try_from(length) else { return Ok(None) };
        let length = u64::from_le_bytes(length);
        if length > MAX_TEXT {
            bail!("a record is longer than {MAX_TEXT} bytes");
        }
        let mut record = Vec::new();
        Read::by_ref(from).take(length).read_to_end(&mut record)?;
        if record.len() as u64 != length {
            return Ok(None);
        }
        entry(&mut codec::Reader::new(&record)).context("a record cannot be read").map(Some)
    }
}

fn entry(record: &mut codec::Reader<'_>) -> std::result::Result<Entry, wire::WireError> {
    let event = record.u8()?;
    let (thread, user, schema) = (record.lenenc()?, record.lenenc_bytes()?.to_vec(), record.lenenc_bytes()?.to_vec());
    record.lenenc_bytes()?;
    if record.lenenc()? != NO_HOSTGROUP {
        record.lenenc_bytes()?;
    }
    let (begin_us, end_us) = (record.lenenc()?, record.lenenc()?);
    if event != QUERY {
        record.lenenc()?;
    }
    record.lenenc()?;
    let insert_id = Some(record.lenenc()?).filter(|id| *id > 0);
    record.lenenc()?;
    record.lenenc()?;
    let text = record.lenenc_bytes()?.to_vec();
    let what = match event {
        QUERY => entered(true, text),
        16 => entered(false, text),
        _ => Entered::Other,
    };
    Ok(Entry { thread, user, schema: Some(schema), begin_us, time_us: end_us.saturating_sub(begin_us), insert_id, what })
}
