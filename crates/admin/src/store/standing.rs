//! The revision of the shared configuration that was in force last, in `disk`: this proxy starts by it when etcd is away.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use rusqlite::{Connection, OptionalExtension, params};
use shared_config::{Ancestor, Standing, sum};

use super::layout::SHARED_TABLE;
use crate::error::AdminError;
use crate::sharing::peers::Descent;

/// Most bytes of a text.
const LONGEST: u64 = 1 << 30;

/// A revision in `disk`, for the next start.
#[derive(Debug)]
pub(crate) struct Kept {
    /// Its number, id and ancestors.
    pub standing: Standing,
    /// Of peers without etcd: where it came from.
    pub descent: Option<Descent>,
    /// The shared part of the configuration, as text.
    pub text: String,
}

/// Keeps it. The caller holds a transaction.
pub(crate) fn keep(db: &Connection, standing: &Standing, descent: Option<&Descent>, text: &str) -> Result<(), AdminError> {
    let failed = |error: std::io::Error| AdminError::Refused(format!("compressing: {error}"));
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(text.as_bytes()).map_err(failed)?;
    let packed = packed.finish().map_err(failed)?;
    let Standing { cluster, number, id, sha256, lineage } = standing;
    let number = i64::try_from(*number).unwrap_or(i64::MAX);
    let sql = format!("INSERT OR REPLACE INTO disk.{SHARED_TABLE} VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7)");
    // Older versions read an array as no descent.
    let descent = match descent {
        Some(descent) => serde_json::to_string(descent),
        None => serde_json::to_string(lineage),
    };
    let descent = descent.unwrap_or_default();
    db.execute(&sql, params![cluster, number, id, sha256, sum(text.as_bytes()), descent, packed])?;
    Ok(())
}

/// The kept revision, if there is one.
///
/// # Errors
/// It is damaged.
pub(crate) fn recall(db: &Connection) -> Result<Option<Kept>, AdminError> {
    let sql = format!("SELECT cluster, number, revision_id, sha256, text_sha256, descent, config FROM disk.{SHARED_TABLE}");
    let row = db.query_row(&sql, [], |row| {
        let standing = Standing {
            cluster: row.get(0)?,
            number: u64::try_from(row.get::<_, i64>(1)?).unwrap_or_default(),
            id: row.get(2)?,
            sha256: row.get(3)?,
            lineage: Vec::new(),
        };
        Ok((standing, row.get::<_, String>(4)?, row.get::<_, Option<String>>(5)?, row.get::<_, Vec<u8>>(6)?))
    });
    let Some((mut standing, expected, descent, packed)) = row.optional()? else { return Ok(None) };
    let mut text = String::new();
    let read = ZlibDecoder::new(packed.as_slice()).take(LONGEST).read_to_string(&mut text);
    match read {
        Ok(_) if sum(text.as_bytes()) == expected => {
            let descent = descent.unwrap_or_default();
            standing.lineage = serde_json::from_str::<Vec<Ancestor>>(&descent).unwrap_or_default();
            let descent = serde_json::from_str(&descent).ok();
            Ok(Some(Kept { standing, descent, text }))
        }
        _ => Err(AdminError::Refused(format!("{SHARED_TABLE}: revision {} that was kept is damaged", standing.number))),
    }
}
