//! Prepared statements: the answer to a prepare, executes and bulk executes, and their rewriting.

use wire::Capabilities;
use wire::prepared::{BulkHeader, ExecuteHeader, ExecuteParams, PrepareOk, binary_values_may_equal, put_stmt_id, rewrite_execute, stmt_id};

use crate::input::Input;

/// The input: a byte (bit 0: CLIENT_QUERY_ATTRIBUTES, bit 1: CLIENT_OPTIONAL_RESULTSET_METADATA), one for the number of
/// parameters, 8 for an id to look for, then the payload.
pub fn check(data: &[u8]) {
    let mut input = Input::new(data);
    let (flags, params, id) = (input.byte(), u16::from(input.byte()), input.u64());
    let mut caps = Capabilities::default();
    caps.set(Capabilities::QUERY_ATTRIBUTES, flags & 1 != 0);
    caps.set(Capabilities::OPTIONAL_RESULTSET_METADATA, flags & 2 != 0);
    let payload = input.rest();
    prepare_ok(payload, caps);
    execute(payload, params, caps, id);
    bulk(payload);
}

fn prepare_ok(payload: &[u8], caps: Capabilities) {
    let Ok(mut ok) = PrepareOk::parse(payload, caps) else { return };
    let mut out = Vec::new();
    ok.write(&mut out, caps);
    if caps.contains(Capabilities::OPTIONAL_RESULTSET_METADATA) {
        ok.metadata = Some(ok.metadata.unwrap_or(1));
    }
    assert_eq!(PrepareOk::parse(&out, caps), Ok(ok));
}

fn execute(payload: &[u8], stmt_params: u16, caps: Capabilities, id: u64) {
    let _ = ExecuteHeader::parse(payload).map(|header| header.opens_cursor());
    let Ok(params) = ExecuteParams::parse(payload, stmt_params, caps) else { return };
    let mut out = b"before".to_vec();
    rewrite_execute(payload, 77, params.as_ref(), None, &mut out).expect("what was read can be rewritten");
    assert_eq!((&out[..6], stmt_id(&out[6..]), out.len()), (&b"before"[..], Ok(77), payload.len() + 6));
    let Some(params) = params else { return };
    let part = |range: &std::ops::Range<usize>| &payload[range.clone()];
    let (types, values, nulls) = (part(&params.types), part(&params.values), part(&params.null_bitmap));
    assert!(nulls.len() == params.count.div_ceil(8) && params.new_types != types.is_empty());
    let _ = binary_values_may_equal(types, params.named, values, nulls, id);
    let fitting = fitting_types(params.count, params.named);
    let types = if params.new_types { types } else { &fitting };
    out.clear();
    rewrite_execute(payload, 78, Some(&params), Some(types), &mut out).expect("what was read can be rewritten");
    let again = ExecuteParams::parse(&out, stmt_params, caps).expect("an execute that we wrote").expect("its parameters");
    assert_eq!((again.count, again.named, again.new_types), (params.count, params.named, true));
    assert_eq!((&out[again.types], &out[again.values], &out[again.null_bitmap]), (types, values, nulls));
}

/// A types block for so many parameters: all BIGINT.
fn fitting_types(count: usize, named: bool) -> Vec<u8> {
    if named { b"\x08\0\x01n".repeat(count) } else { b"\x08\0".repeat(count) }
}

fn bulk(payload: &[u8]) {
    let Ok(header) = BulkHeader::parse(payload) else { return };
    let mut changed = payload.to_vec();
    put_stmt_id(&mut changed, 79).expect("a header was read");
    assert_eq!(BulkHeader::parse(&changed), Ok(BulkHeader { stmt_id: 79, ..header }));
}
