//! OK, ERR, EOF and the session state inside OK.

use wire::message::{EOF, ErrPacket, OkPacket};
use wire::session_state::{changes, put_change};
use wire::{Capabilities, StatusFlags};

/// The input: 4 bytes of capabilities, then a payload. What was read must read the same again when written.
pub fn check(data: &[u8]) {
    let (caps, payload) = data.split_first_chunk().unwrap_or((&[0; 4], data));
    let caps = Capabilities::from_parts(u32::from_le_bytes(*caps), 0);
    ok(payload, caps);
    err(payload, caps);
    session_state(payload);
}

fn ok(payload: &[u8], caps: Capabilities) {
    let Ok(mut ok) = OkPacket::parse(payload, caps) else { return };
    session_state(ok.session_state);
    let mut out = Vec::new();
    ok.write(&mut out, EOF, caps);
    // What is written says that there is session state when there is some.
    ok.status.set(StatusFlags::SESSION_STATE_CHANGED, !ok.session_state.is_empty());
    let (mut expected, mut found) = (ok, OkPacket::parse(&out, caps).expect("an OK packet that we wrote"));
    if !caps.intersects(Capabilities::PROTOCOL_41.union(Capabilities::TRANSACTIONS)) {
        // Without status flags nothing says that session state follows.
        (expected.status, expected.session_state, found.session_state) = (StatusFlags::empty(), b"", b"");
    }
    assert_eq!(found, expected);
}

fn err(payload: &[u8], caps: Capabilities) {
    let Ok(err) = ErrPacket::parse(payload, caps) else { return };
    let caps = caps | Capabilities::PROTOCOL_41;
    let mut out = Vec::new();
    err.write(&mut out, caps);
    assert_eq!(ErrPacket::parse(&out, caps), Ok(err));
}

fn session_state(bytes: &[u8]) {
    let mut met = 0;
    for change in changes(bytes).inspect(|_| met += 1) {
        let Ok(change) = change else { continue };
        let mut out = Vec::new();
        put_change(&mut out, &change);
        assert_eq!(changes(&out).collect::<Vec<_>>(), [Ok(change)]);
    }
    assert!(met <= bytes.len() + 1, "more entries than bytes");
}
