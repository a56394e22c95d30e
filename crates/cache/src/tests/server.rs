//! Replies as a server would send them, written by hand and not with the cache's own code.

use wire::flags::{Capabilities, StatusFlags};
use wire::message::put_eof;
use wire::packet;

/// A backend that still sends EOF packets.
pub(super) const EOF_CAPS: Capabilities = Capabilities::PROTOCOL_41;
/// A modern backend.
pub(super) const TEXT_CAPS: Capabilities =
    Capabilities::PROTOCOL_41.union(Capabilities::DEPRECATE_EOF).union(Capabilities::SESSION_TRACK).union(Capabilities::TRANSACTIONS);

/// A column definition of this type, without flags.
pub(super) fn column(type_code: u8) -> Vec<u8> {
    super::super::columns::tests::definition(type_code, 0, 11, 0)
}

/// The same with the name of a data type, as MariaDB sends it under MARIADB_CLIENT_EXTENDED_METADATA; without a name empty.
pub(super) fn described_column(type_code: u8, type_name: &[u8]) -> Vec<u8> {
    let plain = column(type_code);
    let (names, fixed) = plain.split_at(plain.len() - 13);
    let (mut named, mut metadata) = (Vec::new(), Vec::new());
    if !type_name.is_empty() {
        metadata.push(0);
        wire::codec::put_lenenc_bytes(&mut metadata, type_name);
    }
    wire::codec::put_lenenc_bytes(&mut named, &metadata);
    [names, &named, fixed].concat()
}

/// A text row.
pub(super) fn text_row(values: &[Option<&[u8]>]) -> Vec<u8> {
    let mut row = Vec::new();
    for value in values {
        match value {
            None => row.push(0xfb),
            Some(bytes) => wire::codec::put_lenenc_bytes(&mut row, bytes),
        }
    }
    row
}

/// The end of a result.
pub(super) struct End {
    pub status: StatusFlags,
    pub warnings: u16,
    pub session_state: Vec<u8>,
}

impl Default for End {
    fn default() -> Self {
        Self { status: StatusFlags::AUTOCOMMIT, warnings: 0, session_state: Vec::new() }
    }
}

/// A whole result set.
pub(super) fn reply(columns: &[Vec<u8>], rows: &[Vec<u8>], caps: Capabilities) -> Vec<u8> {
    reply_with(columns, rows, caps, &End::default())
}

/// A whole result set with this end.
pub(super) fn reply_with(columns: &[Vec<u8>], rows: &[Vec<u8>], caps: Capabilities, end: &End) -> Vec<u8> {
    let (mut out, mut seq) = (Vec::new(), 1);
    let mut put = |payload: &[u8]| packet::put_packet(&mut out, &mut seq, payload);
    put(&[u8::try_from(columns.len()).unwrap()]);
    columns.iter().for_each(|definition| put(definition));
    let mut eof = Vec::new();
    put_eof(&mut eof, end.warnings, end.status);
    let modern = caps.contains(Capabilities::DEPRECATE_EOF);
    if !modern {
        put(&eof);
    }
    rows.iter().for_each(|row| put(row));
    if modern {
        let mut payload = vec![0xfe, 0, 0];
        let mut status = end.status;
        status.set(StatusFlags::SESSION_STATE_CHANGED, !end.session_state.is_empty());
        payload.extend_from_slice(&status.bits().to_le_bytes());
        payload.extend_from_slice(&end.warnings.to_le_bytes());
        if !end.session_state.is_empty() {
            payload.push(0);
            wire::codec::put_lenenc_bytes(&mut payload, &end.session_state);
        }
        put(&payload);
    } else {
        put(&eof);
    }
    out
}

/// The payloads of whole packets.
pub(super) fn payloads(mut packets: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Some((len, _)) = packet::header(packets) {
        all.push(packets[4..4 + len].to_vec());
        packets = &packets[4 + len..];
    }
    all
}
