//! Packet framing: a 3-byte length and a 1-byte sequence id before every payload.
//!
//! A payload of 0xff_ff_ff bytes or more goes out in several packets; the last is shorter than that, empty if need be.
//! Source: "MySQL Packets".

/// The longest payload of one packet, in bytes.
pub const MAX_PAYLOAD: usize = 0xff_ff_ff;
/// Length of a packet's header, in bytes.
pub const HEADER: usize = 4;

/// The payload length in bytes and the sequence id of the packet that begins at `buf`; `None` until 4 bytes are there.
#[inline]
#[must_use]
pub fn header(buf: &[u8]) -> Option<(usize, u8)> {
    let &[a, b, c, seq] = buf.first_chunk::<HEADER>()?;
    Some((usize::from(a) | usize::from(b) << 8 | usize::from(c) << 16, seq))
}

/// Appends `payload` as one packet, or as several when it is 16 MiB or longer. `seq` is the first packet's sequence id
/// and comes back as the next one (it wraps at 255).
pub fn put_packet(out: &mut Vec<u8>, seq: &mut u8, payload: &[u8]) {
    let mut chunks = payload.chunks_exact(MAX_PAYLOAD);
    for chunk in chunks.by_ref() {
        put_one(out, seq, chunk);
    }
    put_one(out, seq, chunks.remainder());
}

/// Starts a packet whose payload is then appended to `out`; give the returned offset to [`finish_packet`].
#[must_use]
pub fn begin_packet(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER]);
    start
}

/// Ends the packet that [`begin_packet`] started at `start`: fills in the header, and splits a payload of 16 MiB or more.
/// A `start` that is not one (beyond the end of `out`) changes nothing.
pub fn finish_packet(out: &mut Vec<u8>, start: usize, seq: &mut u8) {
    let Some(len) = out.len().checked_sub(start.saturating_add(HEADER)) else { return };
    if len >= MAX_PAYLOAD {
        let payload = out.split_off(start + HEADER);
        out.truncate(start);
        return put_packet(out, seq, &payload);
    }
    out[start..start + HEADER].copy_from_slice(&head(len, *seq));
    *seq = seq.wrapping_add(1);
}

/// One packet; `payload` is at most [`MAX_PAYLOAD`] long.
fn put_one(out: &mut Vec<u8>, seq: &mut u8, payload: &[u8]) {
    out.reserve(HEADER + payload.len());
    out.extend_from_slice(&head(payload.len(), *seq));
    out.extend_from_slice(payload);
    *seq = seq.wrapping_add(1);
}

/// The four header bytes.
fn head(len: usize, seq: u8) -> [u8; HEADER] {
    let bytes = len.to_le_bytes();
    [bytes[0], bytes[1], bytes[2], seq]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_packet() {
        let (mut out, mut seq) = (Vec::new(), 255);
        put_packet(&mut out, &mut seq, b"abc");
        assert_eq!(out, [3, 0, 0, 255, b'a', b'b', b'c']);
        assert_eq!(seq, 0);
        assert_eq!(header(&out), Some((3, 255)));
        assert_eq!(header(&out[..3]), None);
    }

    #[test]
    fn a_full_packet_is_followed_by_an_empty_one() {
        for (len, lens) in
            [(MAX_PAYLOAD - 1, vec![MAX_PAYLOAD - 1]), (MAX_PAYLOAD, vec![MAX_PAYLOAD, 0]), (MAX_PAYLOAD + 5, vec![MAX_PAYLOAD, 5])]
        {
            let payload = vec![7; len];
            let (mut whole, mut seq) = (Vec::new(), 1);
            put_packet(&mut whole, &mut seq, &payload);
            let (mut in_place, mut seq2) = (vec![9], 1);
            let start = begin_packet(&mut in_place);
            in_place.extend_from_slice(&payload);
            finish_packet(&mut in_place, start, &mut seq2);
            assert_eq!(in_place[1..], whole);
            assert_eq!(seq, seq2);
            let mut at = 0;
            for (n, len) in lens.iter().enumerate() {
                assert_eq!(header(&whole[at..]), Some((*len, n as u8 + 1)));
                at += HEADER + len;
            }
            assert_eq!(at, whole.len());
        }
    }
}
