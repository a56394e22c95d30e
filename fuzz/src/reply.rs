//! The reply tracker: the same answers however little of each frame is at hand.

use wire::Capabilities;
use wire::packet::MAX_PAYLOAD;
use wire::reply::{ReplyKind, Step, Tracker};

use crate::input::{Input, pieces};

/// The kinds of reply.
pub const KINDS: [ReplyKind; 7] =
    [ReplyKind::Results, ReplyKind::Cursor, ReplyKind::Prepare, ReplyKind::Fetch, ReplyKind::FieldList, ReplyKind::Simple, ReplyKind::Text];

/// The input: a byte for the kind, one for the capabilities (bit 0: CLIENT_DEPRECATE_EOF), 8 for where frames are cut, then
/// frames as pieces; one that begins with "MAX" stands for a frame of 16 MiB that begins with the rest.
pub fn check(data: &[u8]) {
    let mut input = Input::new(data);
    let kind = KINDS[usize::from(input.byte()) % KINDS.len()];
    let caps = if input.byte() & 1 == 1 { Capabilities::DEPRECATE_EOF } else { Capabilities::default() };
    let (cuts, mut whole) = (input.u64(), Tracker::new(kind, caps));
    while let Some(piece) = input.piece() {
        let big = piece.strip_prefix(b"MAX");
        let (len, frame) = big.map_or((piece.len(), piece), |frame| (MAX_PAYLOAD, frame));
        let (done, mut parts) = (whole.is_done(), whole.clone());
        let step = whole.frame(len, frame);
        assert!(!done || step.is_err(), "a frame after the end");
        match step {
            Ok(Step::Need(needed)) => {
                assert!(needed > frame.len() && needed <= len, "needs {needed} of {len}, has {}", frame.len());
                return;
            }
            Ok(Step::Frame(_)) => {}
            Err(_) => return,
        }
        assert_eq!(in_parts(&mut parts, len, frame, cuts), step);
        assert_eq!(format!("{parts:?}"), format!("{whole:?}"));
        assert!(!(whole.is_done() && whole.wants_infile()));
        if whole.wants_infile() {
            whole.infile_sent();
        }
    }
}

/// Shows the frame piece by piece, as a slow server would.
fn in_parts(tracker: &mut Tracker, len: usize, frame: &[u8], cuts: u64) -> Result<Step, wire::WireError> {
    let (mut at_hand, mut needed) = (0, 0);
    for piece in [&b""[..]].into_iter().chain(pieces(frame, cuts)) {
        at_hand += piece.len();
        if at_hand < needed {
            continue;
        }
        match tracker.frame(len, &frame[..at_hand])? {
            Step::Need(more) => {
                assert!(more > at_hand && more <= len, "needs {more} of {len}, has {at_hand}");
                needed = more;
            }
            step => return Ok(step),
        }
    }
    panic!("the whole frame was not enough");
}
