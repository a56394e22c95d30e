//! The proxy's translation of replies: the same bytes and facts whatever the cut, and a reply as the client agreed to it.

use wire::reframe::{Patch, Reframe, ReplyFacts, TrackFilter};
use wire::reply::{ReplyKind, Tracker};
use wire::{Capabilities, WireError};

use crate::input::{Input, pieces};
use crate::replies::{self, STATUS};
use crate::reply::KINDS;

/// What came of a reply: the bytes for the client and what was noted, as text; or the error.
type Outcome = Result<(Vec<u8>, String), WireError>;

/// One reply's setting.
struct Setting {
    kind: ReplyKind,
    from: Capabilities,
    to: Capabilities,
    filter: Option<TrackFilter>,
    patches: Vec<Option<Patch>>,
}

impl Setting {
    /// From two bytes: the kind; bit 0 and 1: CLIENT_DEPRECATE_EOF of server and client, 2 and 3: CLIENT_SESSION_TRACK of
    /// them, 4: a patch, 5: a binary one, 6 and 7: what the client tracks.
    fn read(input: &mut Input<'_>) -> Self {
        let (kind, flags) = (input.byte(), input.byte());
        let on = |bit: u8| flags >> bit & 1 == 1;
        let caps = |eof: bool, track: bool| {
            let mut caps = Capabilities::PROTOCOL_41;
            caps.set(Capabilities::DEPRECATE_EOF, eof);
            caps.set(Capabilities::SESSION_TRACK, track);
            caps
        };
        let variables = if on(6) { vec!["autocommit".to_owned()] } else { Vec::new() };
        Self {
            kind: KINDS[usize::from(kind) % KINDS.len()],
            from: caps(on(0), on(2)),
            to: caps(on(1), on(3)),
            filter: on(3).then_some(TrackFilter { system_variables: variables, schema: on(7), ..TrackFilter::default() }),
            patches: vec![on(4).then_some(Patch::Number { value: -42, binary: on(5) })],
        }
    }

    /// Translates the reply that comes in these pieces. What comes after its end is not looked at.
    fn run<'a>(&self, arriving: impl Iterator<Item = &'a [u8]>) -> Outcome {
        let mut reframe =
            Reframe::new(self.kind, self.from, self.to, self.filter.as_ref(), STATUS).with_patches(&self.patches).with_file(true);
        let (mut facts, mut input, mut client) = (ReplyFacts::default(), Vec::new(), Vec::new());
        for piece in arriving {
            input.extend_from_slice(piece);
            loop {
                let mut out = Vec::new();
                let processed = reframe.process(&mut input, &mut out, &mut facts)?;
                client.extend_from_slice(if processed.direct { &input[..processed.consumed] } else { &out });
                input.drain(..processed.consumed);
                if reframe.is_done() {
                    return Ok((client, format!("{facts:?}")));
                }
                if !reframe.wants_infile() {
                    assert!(input.len() < processed.needs, "has {}, needs {}", input.len(), processed.needs);
                    break;
                }
                // The client's empty packet takes one sequence id.
                reframe.infile_sent(reframe.next_seq().wrapping_add(1));
            }
        }
        Ok((client, format!("{facts:?} and more to come")))
    }
}

/// Any bytes from the server. The input: see [`Setting::read`], then 8 bytes for where it is cut, then payloads as pieces.
pub fn bytes(data: &[u8]) {
    let mut input = Input::new(data);
    let (setting, cuts, mut stream, mut seq) = (Setting::read(&mut input), input.u64(), Vec::new(), 1);
    while let Some(payload) = input.piece() {
        wire::packet::put_packet(&mut stream, &mut seq, payload);
    }
    let whole = setting.run([&stream[..]].into_iter());
    let parts = setting.run(pieces(&stream, cuts));
    match (&whole, &parts) {
        (Ok(whole), Ok(parts)) => assert_eq!(whole, parts),
        _ => assert_eq!(whole.err(), parts.err()),
    }
}

/// A reply that a server may send must become the one that it would send to the client itself. The input: see
/// [`Setting::read`], then 8 bytes for where it is cut, then what the reply is made of (see [`replies`]).
pub fn replies(data: &[u8]) {
    let mut input = Input::new(data);
    let (mut setting, cuts) = (Setting::read(&mut input), input.u64());
    setting.patches.clear();
    let reply = replies::Reply::read(setting.kind, &mut input);
    let sent = reply.write(setting.from, setting.from, None);
    let expected = reply.write(setting.to, setting.from, setting.filter.as_ref());
    let parts = setting.run(pieces(&sent, cuts)).expect("a good reply");
    assert_eq!(setting.run([&sent[..]].into_iter()), Ok(parts.clone()));
    assert_eq!(parts.0, expected, "{reply:?}");
    assert!(!parts.1.contains("more to come"), "not over: {reply:?}");
    follow(&setting, &expected);
}

/// The client's own reading of the reply must come to its end with the last byte.
fn follow(setting: &Setting, mut reply: &[u8]) {
    let mut tracker = Tracker::new(setting.kind, setting.to);
    while let Some((len, _)) = wire::packet::header(reply) {
        let (frame, rest) = reply[wire::packet::HEADER..].split_at(len);
        tracker.frame(len, frame).expect("a good reply");
        if tracker.wants_infile() {
            tracker.infile_sent();
        }
        reply = rest;
    }
    assert!(tracker.is_done());
}
