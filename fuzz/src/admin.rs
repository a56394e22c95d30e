//! What an operator's client sends to the admin port: statements, and parameters that are written into them.

use crate::admin_front::prepared::Statements;
use crate::admin_front::split::{placeholders, statements};
use crate::admin_front::statement::{Statement, literal, unquoted};
use crate::input::Input;
use wire::Capabilities;

/// COM_STMT_EXECUTE.
const EXECUTE: u8 = 0x17;
/// COM_STMT_SEND_LONG_DATA.
const LONG_DATA: u8 = 0x18;

/// Any text: its statements are parts of it, in order, and each is one; tokens are what stands at their places.
pub fn statement(data: &[u8]) {
    let mut from = data.as_ptr() as usize;
    for part in statements(data) {
        assert_eq!(statements(part), [part], "one statement is one");
        assert!(part.as_ptr() as usize >= from, "in order");
        from = part.as_ptr() as usize + part.len();
    }
    assert!(placeholders(data).iter().all(|at| data[*at] == b'?'));
    let text = String::from_utf8_lossy(data);
    let statement = Statement::parse(&text);
    let mut end = 0;
    for (index, token) in statement.head.iter().enumerate() {
        assert!(end <= token.start && token.start < token.end, "tokens do not overlap: {token:?}");
        let written = &statement.text[token.start..token.end];
        assert!(token.is_quoted || written == token.text, "{token:?}");
        assert!(statement.text.ends_with(statement.rest(index + 1)));
        end = token.end;
    }
    assert_eq!(unquoted(&literal(&text)), text, "what is quoted reads as it was");
}

/// A statement, then payloads: parameters end no statement and begin none. The input: the statement as a piece, then payloads as
/// pieces, of which the first byte's lowest bit says whether it is long data.
pub fn parameters(data: &[u8]) {
    let mut input = Input::new(data);
    let sql = input.piece().unwrap_or_default();
    let mut prepared = Statements::default();
    let Ok((id, count)) = prepared.prepare(sql) else { return };
    assert_eq!(usize::from(count), placeholders(sql).len());
    while let Some(piece) = input.piece() {
        let (kind, body) = piece.split_first().map_or((0, piece), |(kind, body)| (*kind, body));
        let mut payload = vec![if kind & 1 == 1 { LONG_DATA } else { EXECUTE }];
        payload.extend_from_slice(&id.to_le_bytes());
        if kind & 1 == 1 {
            payload.extend_from_slice(body);
            prepared.long_data(&payload);
            continue;
        }
        // No cursor, one iteration.
        payload.extend_from_slice(&[0, 1, 0, 0, 0]);
        payload.extend_from_slice(body);
        if let Ok(filled) = prepared.execute(&payload, Capabilities::PROTOCOL_41) {
            let text = String::from_utf8_lossy(&filled).into_owned();
            assert!(placeholders(&filled).is_empty(), "nothing is left open: {text}");
            assert_eq!(statements(&filled).len(), statements(sql).len(), "parameters are values only: {text}");
        }
    }
}
