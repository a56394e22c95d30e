//! The answers of model servers, as bytes.

use wire::codec::{put_lenenc, put_lenenc_bytes, put_u16, put_u32};
use wire::flags::{Capabilities, StatusFlags};
use wire::message::{EOF, ErrPacket, OK, OkPacket, put_eof};
use wire::packet::put_packet;

/// Values as text; None is NULL.
pub(super) type Row = Vec<Option<String>>;

/// A statement's answer.
#[derive(Clone, Debug, Default)]
pub(super) struct Answer {
    /// Rows changed.
    pub affected: u64,
    /// The generated id.
    pub insert_id: u64,
    /// Session-track entries.
    pub changes: Vec<u8>,
    /// Warnings left.
    pub warnings: u16,
    /// Column names and rows; None is an OK.
    pub rows: Option<(Vec<String>, Vec<Row>)>,
    /// An error instead: number, SQLSTATE, text.
    pub error: Option<(u16, &'static [u8; 5], String)>,
}

impl Answer {
    pub(super) fn error(code: u16, sqlstate: &'static [u8; 5], text: impl Into<String>) -> Self {
        Self { error: Some((code, sqlstate, text.into())), ..Self::default() }
    }

    /// The packets, from this sequence id on; `is_binary` gives rows as executions have them.
    pub(super) fn write(&self, seq: u8, status: StatusFlags, caps: Capabilities, is_binary: bool) -> Vec<u8> {
        let (mut out, mut seq) = (Vec::new(), seq);
        if let Some((code, sqlstate, text)) = &self.error {
            let mut payload = Vec::new();
            ErrPacket { code: *code, sqlstate: **sqlstate, message: text.as_bytes() }.write(&mut payload, caps);
            put_packet(&mut out, &mut seq, &payload);
            return out;
        }
        let ok = OkPacket {
            affected_rows: self.affected,
            last_insert_id: self.insert_id,
            status,
            warnings: self.warnings,
            info: b"",
            session_state: &self.changes,
        };
        let Some((columns, rows)) = &self.rows else {
            let mut payload = Vec::new();
            ok.write(&mut payload, OK, caps);
            put_packet(&mut out, &mut seq, &payload);
            return out;
        };
        let mut payload = Vec::new();
        put_lenenc(&mut payload, columns.len() as u64);
        put_packet(&mut out, &mut seq, &payload);
        for name in columns {
            put_packet(&mut out, &mut seq, &definition(name));
        }
        let short = caps.contains(Capabilities::DEPRECATE_EOF);
        if !short {
            put_packet(&mut out, &mut seq, &eof(self.warnings, status));
        }
        for row in rows {
            put_packet(&mut out, &mut seq, &if is_binary { binary_row(row) } else { text_row(row) });
        }
        if short {
            let mut payload = Vec::new();
            ok.write(&mut payload, EOF, caps);
            put_packet(&mut out, &mut seq, &payload);
        } else {
            put_packet(&mut out, &mut seq, &eof(self.warnings, status));
        }
        out
    }
}

fn eof(warnings: u16, status: StatusFlags) -> Vec<u8> {
    let mut payload = Vec::new();
    put_eof(&mut payload, warnings, status);
    payload
}

/// A column definition: all columns are VARCHAR.
pub(super) fn definition(name: &str) -> Vec<u8> {
    let mut payload = Vec::new();
    for text in ["def", "", "", "", name, ""] {
        put_lenenc_bytes(&mut payload, text.as_bytes());
    }
    payload.push(0x0c);
    put_u16(&mut payload, 45);
    put_u32(&mut payload, 1024);
    payload.push(0xfd);
    payload.extend_from_slice(&[0; 5]);
    payload
}

fn text_row(row: &[Option<String>]) -> Vec<u8> {
    let mut payload = Vec::new();
    for value in row {
        match value {
            Some(text) => put_lenenc_bytes(&mut payload, text.as_bytes()),
            None => payload.push(0xfb),
        }
    }
    payload
}

fn binary_row(row: &[Option<String>]) -> Vec<u8> {
    let mut payload = vec![0];
    let mut nulls = vec![0_u8; (row.len() + 9) / 8];
    for (i, value) in row.iter().enumerate() {
        if let Some(byte) = nulls.get_mut((i + 2) / 8).filter(|_| value.is_none()) {
            *byte |= 1 << ((i + 2) % 8);
        }
    }
    payload.extend_from_slice(&nulls);
    row.iter().flatten().for_each(|text| put_lenenc_bytes(&mut payload, text.as_bytes()));
    payload
}
