//! Configurations that were in force, kept compressed in `disk`.
//!
//! A configuration equal to the newest one is not kept again, so a LOAD every minute pushes no older one out. Limited by
//! `admin-config_history_size` in number and by [`MAX_BYTES`] in size; the oldest go first.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use model::Config;
use model::config::diff::{Sheet, diff, summary};
use model::config::text::to_text;
use rusqlite::{Connection, OptionalExtension, params};

use super::layout::HISTORY_TABLE;
use super::{checksum, rows};
use crate::clock::now;
use crate::error::AdminError;

/// Most bytes that the kept configurations take, compressed.
const MAX_BYTES: u64 = 64 << 20;
/// Most bytes of one configuration.
const MAX_TEXT: u64 = 1 << 30;
/// Most changes that its line names.
pub(crate) const NAMED_CHANGES: usize = 8;

/// Keeps the configuration that is now in force, with the user and the command.
pub(crate) fn remember(db: &Connection, config: &Config, user: &str, command: &str) -> Result<(), AdminError> {
    let size = config.admin.config_history_size;
    rows::transaction(db, || {
        if size > 0 {
            keep(db, config, user, command)?;
        }
        // Counted from the newest: those that are too many, and those behind too many bytes. The newest always stays.
        let sql = format!(
            "DELETE FROM disk.{HISTORY_TABLE} WHERE id IN (SELECT id FROM (SELECT id, \
             ROW_NUMBER() OVER (ORDER BY id DESC) AS place, SUM(LENGTH(config)) OVER (ORDER BY id DESC) AS bytes \
             FROM disk.{HISTORY_TABLE}) WHERE place > ?1 OR (bytes > ?2 AND place > 1))"
        );
        db.execute(&sql, params![i64::try_from(size).unwrap_or(i64::MAX), i64::try_from(MAX_BYTES).unwrap_or(i64::MAX)])?;
        Ok(())
    })
}

/// Adds a configuration, unless it is the newest one.
fn keep(db: &Connection, config: &Config, user: &str, command: &str) -> Result<(), AdminError> {
    let sum = checksum::of_everything(config);
    let newest = format!("SELECT checksum, config FROM disk.{HISTORY_TABLE} ORDER BY id DESC LIMIT 1");
    let newest: Option<(String, Vec<u8>)> = db.query_row(&newest, [], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    if newest.as_ref().map(|(newest, _)| newest) != Some(&sum) {
        let columns = "time, user, command, checksum, config, changes";
        let sql = format!("INSERT INTO disk.{HISTORY_TABLE} ({columns}) VALUES (?1, ?2, ?3, ?4, ?5, ?6)");
        let command: String = command.chars().take(200).collect();
        let changes = newest.and_then(|(_, kept)| changes(&kept, config));
        db.execute(&sql, params![now(), user, command, sum, compress(to_text(config).as_bytes())?, changes])?;
    }
    Ok(())
}

/// The differences from the previous revision; None if the previous revision cannot be read.
fn changes(before: &[u8], config: &Config) -> Option<String> {
    let (before, _) = model::parse(&expand(before).ok()?, "the configuration before").ok()?;
    Some(summary(&diff(&Sheet::of(&before), &Sheet::of(config)), NAMED_CHANGES))
}

fn compress(bytes: &[u8]) -> Result<Vec<u8>, AdminError> {
    let failed = |error: std::io::Error| AdminError::Refused(format!("compressing: {error}"));
    let mut out = ZlibEncoder::new(Vec::new(), Compression::fast());
    out.write_all(bytes).map_err(failed)?;
    out.finish().map_err(failed)
}

fn expand(bytes: &[u8]) -> Result<String, AdminError> {
    let mut text = String::new();
    let read = ZlibDecoder::new(bytes).take(MAX_TEXT).read_to_string(&mut text);
    read.map_err(|error| AdminError::Refused(format!("a configuration of CONFIG HISTORY cannot be read: {error}")))?;
    Ok(text)
}

/// The text of a kept configuration; None where there is none with this id.
pub(crate) fn text_of(db: &Connection, id: i64) -> Result<Option<String>, AdminError> {
    let sql = format!("SELECT config FROM disk.{HISTORY_TABLE} WHERE id = ?1");
    let kept: Option<Vec<u8>> = db.query_row(&sql, [id], |row| row.get(0)).optional()?;
    kept.map(|kept| expand(&kept)).transpose()
}
