//! What is captured, what is refused, and what a client of any kind then gets.

use super::server::{EOF_CAPS, End, described_column, payloads, reply_with};
use super::*;
use proptest::prelude::*;
use wire::flags::{Capabilities, StatusFlags};
use wire::reframe::{Reframe, ReplyFacts, TrackFilter};
use wire::reply::ReplyKind;

const EXTENDED: Capabilities = Capabilities::MARIADB_CLIENT_EXTENDED_METADATA;

fn refusal(bytes: &[u8], caps: Capabilities) -> NotCached {
    let cache = cache(|_| {});
    let Look::Lead(mut fill) = look(&cache, "q", 0) else { panic!() };
    fill.feed(bytes);
    fill.finish(caps, 0).unwrap_err()
}

fn ended(end: &End, caps: Capabilities) -> Vec<u8> {
    reply_with(&[column(253)], &[text_row(&[Some(b"a")])], caps, end)
}

#[test]
fn what_is_refused() {
    let status = |status| End { status: StatusFlags::AUTOCOMMIT | status, ..End::default() };
    for caps in [EOF_CAPS, TEXT_CAPS] {
        assert_eq!(refusal(b"\x07\0\0\x01\0\0\0\x02\0\0\0", caps), NotCached::NoResultSet);
        assert_eq!(refusal(b"\x09\0\0\x01\xff\x7a\x04#42S02", caps), NotCached::Error(1146));
        assert_eq!(refusal(b"\x02\0\0\x01\xfbf", caps), NotCached::NoResultSet);
        assert_eq!(refusal(&ended(&status(StatusFlags::MORE_RESULTS), caps), caps), NotCached::MoreResults);
        assert_eq!(refusal(&ended(&status(StatusFlags::IN_TRANS), caps), caps), NotCached::InTransaction);
        assert_eq!(refusal(&ended(&status(StatusFlags::PS_OUT_PARAMS), caps), caps), NotCached::Cursor);
        assert_eq!(refusal(&ended(&End { warnings: 1, ..End::default() }, caps), caps), NotCached::Warnings);
        let whole = ended(&End::default(), caps);
        for cut in 0..whole.len() {
            assert_eq!(refusal(&whole[..cut], caps), NotCached::Malformed, "{cut}");
        }
        assert_eq!(refusal(&[&whole[..], b"\0"].concat(), caps), NotCached::Malformed);
    }
    let cursor = reply_with(&[column(253)], &[], EOF_CAPS, &status(StatusFlags::CURSOR_EXISTS));
    assert_ne!(refusal(&cursor, EOF_CAPS), NotCached::NoResultSet);
    let changed = End { session_state: b"\x00\x0f\x0atime_zone_\x03UTC".to_vec(), ..End::default() };
    assert_eq!(refusal(&ended(&changed, TEXT_CAPS), TEXT_CAPS), NotCached::ChangesSession);
}

#[test]
fn results_with_warnings_are_kept_without_them_where_that_is_wanted() {
    let cache = cache(|settings| settings.keeps_warnings = true);
    let bytes = ended(&End { warnings: 3, ..End::default() }, TEXT_CAPS);
    let entry = fill(look(&cache, "q", 0), &bytes, 0).unwrap();
    let mut out = Vec::new();
    entry.write_reply(ResultProtocol::Text, StatusFlags::AUTOCOMMIT, &mut out).unwrap();
    assert_eq!(payloads(&out).last().unwrap(), b"\xfe\0\0\x02\0\0\0");
}

/// What a client with these capabilities gets of `entry`.
fn seen_by(entry: &Entry, form: ResultProtocol, to: Capabilities) -> Vec<u8> {
    let (mut packets, mut out, mut facts) = (Vec::new(), Vec::new(), ReplyFacts::default());
    entry.write_reply(form, StatusFlags::AUTOCOMMIT, &mut packets).unwrap();
    let filter = TrackFilter::default();
    let filter = to.contains(Capabilities::SESSION_TRACK).then_some(&filter);
    let mut reframe = Reframe::new(ReplyKind::Results, entry.caps(), to, filter, StatusFlags::AUTOCOMMIT);
    let processed = reframe.process(&mut packets, &mut out, &mut facts).unwrap();
    assert!(reframe.is_done());
    assert_eq!(facts.rows, Some(entry.rows()));
    if processed.direct { packets } else { out }
}

proptest! {
    /// Whatever the backend and the client had agreed to, and however the bytes came, the client sees what a server that had
    /// agreed to the client's framing would have sent.
    #[test]
    fn clients_see_what_a_server_would_send(
        values in proptest::collection::vec(proptest::collection::vec(proptest::option::of(".{0,40}"), 3), 0..20),
        modern_backend: bool,
        modern_client: bool,
        extended_backend: bool,
        extended_client: bool,
        type_name in ".{0,8}",
        chunk in 1usize..200,
    ) {
        let extended = |is_extended| if is_extended { EXTENDED } else { Capabilities::default() };
        let kind = |modern, is_extended| if modern { TEXT_CAPS | extended(is_extended) } else { EOF_CAPS | extended(is_extended) };
        let (from, to) = (kind(modern_backend, extended_backend), kind(modern_client, extended_client));
        // As a server would describe the columns to the client, which is told nothing that the proxy was not told.
        let columns = |described: bool, as_told: bool| [253, 254, 252].map(|type_code| match (described, as_told) {
            (false, _) => column(type_code),
            (true, true) => described_column(type_code, type_name.as_bytes()),
            (true, false) => described_column(type_code, b""),
        });
        let rows: Vec<_> =
            values.iter().map(|row| text_row(&row.iter().map(|v| v.as_ref().map(|v| v.as_bytes())).collect::<Vec<_>>())).collect();
        let cache = cache(|_| {});
        let Look::Lead(mut fill) = look(&cache, "q", 0) else { panic!() };
        for part in reply(&columns(extended_backend, true), &rows, from).chunks(chunk) {
            fill.feed(part);
        }
        let entry = fill.finish(from, 0).unwrap();
        prop_assert_eq!(entry.rows(), rows.len() as u64);
        let columns = columns(extended_client, extended_backend);
        let expected = reply(&columns, &rows, to);
        prop_assert_eq!(seen_by(&entry, ResultProtocol::Text, to), expected);
        if entry.answers(ResultProtocol::Binary) {
            let binary = payloads(&seen_by(&entry, ResultProtocol::Binary, to));
            prop_assert_eq!(&binary[1..=columns.len()], columns);
        }
    }

    #[test]
    fn no_bytes_panic(bytes: Vec<u8>, caps: u64, columns in 0u8..4) {
        let _ = super::super::reply::Captured::read(bytes.clone(), Capabilities(caps));
        let definitions: Vec<_> = (0..columns).map(|_| column(253)).collect();
        let framed = reply(&definitions, &[bytes], TEXT_CAPS);
        let cache = cache(|_| {});
        if let Ok(entry) = fill(look(&cache, "q", 0), &framed, 0) {
            let _ = entry.answers(ResultProtocol::Binary);
        }
    }
}
