//! Cutting the replies to several statements apart: each comes out as it was written, wherever the bytes are cut.

use wire::Capabilities;
use wire::reply::ReplyKind;
use wire::split::Splitter;

use crate::input::{Input, pieces};
use crate::replies::Reply;

/// More replies than that are not made.
const MAX_REPLIES: usize = 8;

/// The input: a byte for the capabilities (bit 0: CLIENT_DEPRECATE_EOF, bit 1: CLIENT_SESSION_TRACK, bit 2: the rest is what a server
/// sends, as it is), a byte for how many replies there are, 8 for where they are cut, then replies as [`Reply::read`] has them.
pub fn check(data: &[u8]) {
    let mut input = Input::new(data);
    let flags = input.byte();
    let mut caps = Capabilities::PROTOCOL_41;
    caps.set(Capabilities::DEPRECATE_EOF, flags & 1 == 1);
    caps.set(Capabilities::SESSION_TRACK, flags & 2 == 2);
    let (count, cuts) = (1 + usize::from(input.byte()) % MAX_REPLIES, input.u64());
    if flags & 4 == 4 {
        let bytes = input.rest();
        assert_eq!(cut(bytes, caps, pieces(bytes, cuts)), cut(bytes, caps, std::iter::once(bytes)), "the cut shows");
        return;
    }
    let replies: Vec<Vec<u8>> = (0..count).map(|_| Reply::read(ReplyKind::Results, &mut input).write(caps, caps, None)).collect();
    let all = replies.concat();
    match cut(&all, caps, pieces(&all, cuts)) {
        (out, true) => assert_eq!(out, replies, "what was written comes out"),
        // A request for a file ends it.
        (out, false) => assert!(out.len() < replies.len() && replies.starts_with(&out)),
    }
}

/// The replies in these pieces, and whether no rule was broken.
fn cut<'a>(bytes: &[u8], caps: Capabilities, arriving: impl Iterator<Item = &'a [u8]>) -> (Vec<Vec<u8>>, bool) {
    let (mut splitter, mut input, mut reply, mut out) = (Splitter::new(caps), Vec::new(), Vec::new(), Vec::new());
    let mut all = 0;
    for piece in arriving {
        input.extend_from_slice(piece);
        loop {
            let Ok(taken) = splitter.take(&input) else { return (out, false) };
            assert!(taken.consumed <= input.len());
            all += taken.consumed;
            reply.extend(input.drain(..taken.consumed));
            match taken.ended {
                Some(_) => out.push(std::mem::take(&mut reply)),
                None => {
                    assert!(taken.needs > 0 && (taken.needs > input.len() || input.is_empty()), "it can go on");
                    break;
                }
            }
        }
    }
    assert!(all + input.len() == bytes.len(), "no byte is lost");
    (out, true)
}
