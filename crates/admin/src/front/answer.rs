//! Replies of the engine as packets, in the text and the binary protocol.
//!
//! Every column is VAR_STRING in utf8mb3, as ProxySQL's are; the display width is that of the widest value, for drivers
//! that size buffers by it.

use std::io;

use wire::codec::{put_lenenc, put_lenenc_bytes, put_u16, put_u32};
use wire::message::{EOF, ErrPacket, OK, OkPacket, put_eof};
use wire::{Capabilities, StatusFlags};

/// The status flags of every answer. A backslash is an ordinary character in SQLite's dialect. Drivers that put parameters into the text
/// see this flag and double quotes instead.
pub(super) const STATUS: StatusFlags = StatusFlags::AUTOCOMMIT.union(StatusFlags::NO_BACKSLASH_ESCAPES);

use super::packets::Packets;
use crate::reply::Reply;

/// utf8_general_ci.
const CHARSET: u16 = 33;
/// Most bytes of a character in that charset.
const CHARSET_WIDTH: usize = 3;
/// MYSQL_TYPE_VAR_STRING.
const VAR_STRING: u8 = 253;
/// Least display width.
const MIN_WIDTH: usize = 15;
/// "No fixed number of decimals".
const DECIMALS: u8 = 31;
/// Length of a column definition's fixed part.
const FIXED_PART: u64 = 12;
/// NULL in a row of the text protocol.
const TEXT_NULL: u8 = 0xfb;
/// Unused bits at the begin of a binary row's NULL bitmap.
const BITMAP_OFFSET: usize = 2;

/// How rows go out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// COM_QUERY.
    Text,
    /// COM_STMT_EXECUTE.
    Binary,
}

/// Whether another result follows in the same answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Follows {
    Nothing,
    /// There is more.
    Another,
}

impl Follows {
    fn status(self) -> StatusFlags {
        match self {
            Self::Nothing => STATUS,
            Self::Another => STATUS | StatusFlags::MORE_RESULTS,
        }
    }
}

/// Puts a reply; the caller flushes.
pub(super) async fn put_reply(packets: &mut Packets, caps: Capabilities, reply: &Reply, form: Form, follows: Follows) -> io::Result<()> {
    match reply {
        Reply::Ok { affected, insert_id, info, warnings } => {
            let (status, warnings) = (follows.status(), u16::try_from(warnings.len()).unwrap_or(u16::MAX));
            let (affected_rows, last_insert_id, info) = (*affected, *insert_id, info.as_bytes());
            let ok = OkPacket { affected_rows, last_insert_id, status, warnings, info, ..OkPacket::default() };
            put_ok(packets, caps, OK, &ok).await
        }
        Reply::Err { code, sqlstate, text } => put_err(packets, caps, *code, sqlstate, &Reply::for_clients(*code, text)).await,
        Reply::Rows { columns, rows } => put_rows(packets, caps, columns, rows, form, follows).await,
    }
}

/// Puts an OK without anything to say.
pub(super) async fn put_done(packets: &mut Packets, caps: Capabilities) -> io::Result<()> {
    put_welcome(packets, caps, b"").await
}

/// Sends the OK that ends a login, with its proof of the certificate.
pub(super) async fn put_welcome(packets: &mut Packets, caps: Capabilities, info: &[u8]) -> io::Result<()> {
    put_ok(packets, caps, OK, &OkPacket { status: Follows::Nothing.status(), info, ..OkPacket::default() }).await
}

pub(super) async fn put_err(packets: &mut Packets, caps: Capabilities, code: u16, sqlstate: &str, text: &str) -> io::Result<()> {
    let sqlstate = sqlstate.as_bytes().first_chunk().copied().unwrap_or(ErrPacket::GENERAL);
    let mut payload = Vec::new();
    ErrPacket { code, sqlstate, message: text.as_bytes() }.write(&mut payload, caps);
    packets.put(&payload).await
}

/// Puts the packet that ends columns: nothing where the client deprecates EOF.
pub(super) async fn put_columns_end(packets: &mut Packets, caps: Capabilities, follows: Follows) -> io::Result<()> {
    if caps.contains(Capabilities::DEPRECATE_EOF) { Ok(()) } else { put_end(packets, caps, follows).await }
}

/// Puts a column's definition; `default` is what COM_FIELD_LIST adds.
pub(super) async fn put_column(packets: &mut Packets, name: &str, width: usize, default: Option<u8>) -> io::Result<()> {
    let mut payload = Vec::new();
    for text in ["def", "", "", "", name, ""] {
        put_lenenc_bytes(&mut payload, text.as_bytes());
    }
    put_lenenc(&mut payload, FIXED_PART);
    put_u16(&mut payload, CHARSET);
    put_u32(&mut payload, u32::try_from(width).unwrap_or(u32::MAX));
    payload.push(VAR_STRING);
    put_u16(&mut payload, 0);
    payload.push(DECIMALS);
    put_u16(&mut payload, 0);
    payload.extend(default);
    packets.put(&payload).await
}

/// Puts the packet that ends rows.
pub(super) async fn put_end(packets: &mut Packets, caps: Capabilities, follows: Follows) -> io::Result<()> {
    if caps.contains(Capabilities::DEPRECATE_EOF) {
        return put_ok(packets, caps, EOF, &OkPacket { status: follows.status(), ..OkPacket::default() }).await;
    }
    let mut payload = Vec::new();
    put_eof(&mut payload, 0, follows.status());
    packets.put(&payload).await
}

async fn put_ok(packets: &mut Packets, caps: Capabilities, header: u8, ok: &OkPacket<'_>) -> io::Result<()> {
    let mut payload = Vec::new();
    ok.write(&mut payload, header, caps);
    packets.put(&payload).await
}

async fn put_rows(
    packets: &mut Packets,
    caps: Capabilities,
    columns: &[String],
    rows: &[Vec<Option<Vec<u8>>>],
    form: Form,
    follows: Follows,
) -> io::Result<()> {
    let mut payload = Vec::new();
    put_lenenc(&mut payload, columns.len() as u64);
    packets.put(&payload).await?;
    for (index, name) in columns.iter().enumerate() {
        put_column(packets, name, width(rows, index), None).await?;
    }
    put_columns_end(packets, caps, follows).await?;
    for row in rows {
        payload.clear();
        match form {
            Form::Text => text_row(&mut payload, row),
            Form::Binary => binary_row(&mut payload, row),
        }
        packets.put(&payload).await?;
    }
    put_end(packets, caps, follows).await
}

/// The widest value of a column, in bytes that its charset may take.
fn width(rows: &[Vec<Option<Vec<u8>>>], index: usize) -> usize {
    let lengths = rows.iter().filter_map(|row| row.get(index)?.as_ref().map(Vec::len));
    (lengths.max().unwrap_or(0) * CHARSET_WIDTH).max(MIN_WIDTH)
}

fn text_row(payload: &mut Vec<u8>, row: &[Option<Vec<u8>>]) {
    for value in row {
        match value {
            Some(bytes) => put_lenenc_bytes(payload, bytes),
            None => payload.push(TEXT_NULL),
        }
    }
}

fn binary_row(payload: &mut Vec<u8>, row: &[Option<Vec<u8>>]) {
    payload.push(OK);
    let mut bitmap = vec![0u8; (row.len() + BITMAP_OFFSET).div_ceil(8)];
    for (index, value) in row.iter().enumerate() {
        let bit = index + BITMAP_OFFSET;
        if let Some(byte) = bitmap.get_mut(bit / 8).filter(|_| value.is_none()) {
            *byte |= 1 << (bit % 8);
        }
    }
    payload.extend(bitmap);
    row.iter().flatten().for_each(|bytes| put_lenenc_bytes(payload, bytes));
}
