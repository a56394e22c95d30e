//! Session-track entries: the changes that a server reports inside an OK packet.
//!
//! Source: "OK_Packet", table "session state information". MariaDB may put several variables into one SYSTEM_VARIABLES entry; both shapes
//! read as one [`Change`] per variable.

use crate::codec::{Reader, put_lenenc_bytes};
use crate::error::{Result, WireError};

/// One thing that changed in the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<'a> {
    /// A tracked system variable and its new value.
    SystemVariable {
        /// As the server spells it.
        name: &'a [u8],
        /// As SHOW VARIABLES would show it.
        value: &'a [u8],
    },
    /// The current schema's new name; empty when there is none.
    Schema(&'a [u8]),
    /// `session_track_state_change`: something in the session changed.
    StateChange(bool),
    /// GTIDs of the transaction, as text.
    Gtids(&'a [u8]),
    /// The statements that would start the same transaction again; empty outside a transaction.
    TransactionCharacteristics(&'a [u8]),
    /// Eight letters, such as `T_______`.
    TransactionState(&'a [u8]),
    /// An entry of a kind that we do not know, uninterpreted.
    Other {
        /// The entry's type byte.
        kind: u8,
        /// Its data, less the length.
        data: &'a [u8],
    },
}

const SYSTEM_VARIABLES: u8 = 0;
const SCHEMA: u8 = 1;
const STATE_CHANGE: u8 = 2;
const GTIDS: u8 = 3;
const TRANSACTION_CHARACTERISTICS: u8 = 4;
const TRANSACTION_STATE: u8 = 5;

/// The entries of [`crate::message::OkPacket::session_state`]. Ends after the first malformed one, which is an error item.
#[must_use]
pub fn changes(session_state: &[u8]) -> Changes<'_> {
    Changes { entries: Reader::new(session_state), variables: Reader::new(&[]) }
}

/// Iterator over changes; see [`changes`].
#[derive(Debug, Clone)]
pub struct Changes<'a> {
    entries: Reader<'a>,
    /// Variables left in the current SYSTEM_VARIABLES entry.
    variables: Reader<'a>,
}

impl<'a> Changes<'a> {
    fn step(&mut self) -> Result<Option<Change<'a>>> {
        while self.variables.is_empty() {
            if self.entries.is_empty() {
                return Ok(None);
            }
            let kind = self.entries.u8()?;
            let data = self.entries.lenenc_bytes()?;
            if kind != SYSTEM_VARIABLES {
                return entry(kind, data).map(Some);
            }
            self.variables = Reader::new(data);
        }
        let (name, value) = (self.variables.lenenc_bytes()?, self.variables.lenenc_bytes()?);
        if !is_variable_name(name) {
            return Err(WireError::Malformed("name of a system variable"));
        }
        Ok(Some(Change::SystemVariable { name, value }))
    }
}

impl<'a> Iterator for Changes<'a> {
    type Item = Result<Change<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step();
        if step.is_err() {
            *self = changes(&[]);
        }
        step.transpose()
    }
}

/// Can a system variable be called so? Such a name may stand in a statement as it is.
#[must_use]
pub fn is_variable_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'))
}

/// Reads one entry other than SYSTEM_VARIABLES.
fn entry(kind: u8, data: &[u8]) -> Result<Change<'_>> {
    let mut reader = Reader::new(data);
    Ok(match kind {
        SCHEMA => Change::Schema(reader.lenenc_bytes()?),
        STATE_CHANGE => Change::StateChange(state_changed(data)?),
        GTIDS => {
            reader.u8()?; // encoding specification: 0, text, is the only one
            Change::Gtids(reader.lenenc_bytes()?)
        }
        TRANSACTION_CHARACTERISTICS => Change::TransactionCharacteristics(reader.lenenc_bytes()?),
        TRANSACTION_STATE => Change::TransactionState(reader.lenenc_bytes()?),
        kind => Change::Other { kind, data },
    })
}

/// The protocol page shows a length-encoded string here; servers (MySQL 5.7 to 9.7, MariaDB) send the bare digit.
fn state_changed(data: &[u8]) -> Result<bool> {
    match data {
        [digit] | [1, digit] => Ok(*digit == b'1'),
        _ => Err(WireError::Malformed("state change entry")),
    }
}

/// Appends one entry, in MySQL's shape (one variable an entry).
pub fn put_change(out: &mut Vec<u8>, change: &Change<'_>) {
    let mut data = Vec::new();
    let kind = match change {
        Change::SystemVariable { name, value } => {
            put_lenenc_bytes(&mut data, name);
            put_lenenc_bytes(&mut data, value);
            SYSTEM_VARIABLES
        }
        Change::Schema(name) => put_text(&mut data, name, SCHEMA),
        Change::StateChange(changed) => {
            data.push(if *changed { b'1' } else { b'0' });
            STATE_CHANGE
        }
        Change::Gtids(gtids) => {
            data.push(0);
            put_text(&mut data, gtids, GTIDS)
        }
        Change::TransactionCharacteristics(text) => put_text(&mut data, text, TRANSACTION_CHARACTERISTICS),
        Change::TransactionState(text) => put_text(&mut data, text, TRANSACTION_STATE),
        Change::Other { kind, data: raw } => {
            data.extend_from_slice(raw);
            *kind
        }
    };
    out.push(kind);
    put_lenenc_bytes(out, &data);
}

/// Appends one string and gives `kind` back.
fn put_text(data: &mut Vec<u8>, text: &[u8], kind: u8) -> u8 {
    put_lenenc_bytes(data, text);
    kind
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_kind_round_trips() {
        let all = [
            Change::SystemVariable { name: b"autocommit", value: b"OFF" },
            Change::Schema(b"test"),
            Change::StateChange(true),
            Change::Gtids(b"0-1-7"),
            Change::TransactionCharacteristics(b"START TRANSACTION;"),
            Change::TransactionState(b"T_______"),
            Change::Other { kind: 9, data: b"xyz" },
        ];
        let mut out = Vec::new();
        all.iter().for_each(|change| put_change(&mut out, change));
        assert_eq!(changes(&out).collect::<Result<Vec<_>>>().unwrap(), all);
    }

    #[test]
    fn a_reply_of_mariadb_10_11_to_init_db() {
        let got = changes(b"\x01\x05\x04test\x02\x011").collect::<Result<Vec<_>>>().unwrap();
        assert_eq!(got, [Change::Schema(b"test"), Change::StateChange(true)]);
    }

    #[test]
    fn several_variables_in_one_entry() {
        let mut data = Vec::new();
        for text in [&b"a"[..], b"1", b"b", b"2"] {
            put_lenenc_bytes(&mut data, text);
        }
        let mut out = vec![SYSTEM_VARIABLES];
        put_lenenc_bytes(&mut out, &data);
        put_change(&mut out, &Change::Schema(b"x"));
        let got = changes(&out).collect::<Result<Vec<_>>>().unwrap();
        assert_eq!(
            got,
            [Change::SystemVariable { name: b"a", value: b"1" }, Change::SystemVariable { name: b"b", value: b"2" }, Change::Schema(b"x")]
        );
    }

    #[test]
    fn malformed_ends_with_one_error() {
        let got: Vec<_> = changes(&[1, 9, 1]).collect();
        assert_eq!(got.len(), 1);
        assert!(got[0].is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            changes(&bytes).for_each(drop);
        }
    }
}
