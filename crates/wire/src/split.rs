//! Cuts the bytes that answer several statements, sent together on one connection, into one reply for each.
//!
//! Pure: bytes in, lengths out. Rows pass undecoded, and nothing is buffered: the caller keeps the bytes of the reply at hand, or drops
//! them. INVARIANT: the replies come out in the order of the statements, and each byte belongs to exactly one of them.
//!
//! Sources: as for [`crate::reply`]. A server reads one command after the other from its socket, and answers each as a whole.

use crate::WireError;
use crate::codec::Reader;
use crate::flags::{Capabilities, StatusFlags};
use crate::packet::{self, HEADER};
use crate::reply::{Frame, ReplyKind, Step, Tracker};

/// How a reply ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Status flags of its last OK or EOF packet.
    pub status: StatusFlags,
    /// The number of the error that ended it.
    pub error: Option<u16>,
    /// The server sent that error before it had read the statement: its sequence id is 0.
    pub unasked: bool,
    /// Some result had warnings.
    pub warned: bool,
    /// How many results there were: result sets and OKs.
    pub results: u32,
    /// The last result was a result set.
    pub had_rows: bool,
}

/// What [`Splitter::take`] made of its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// So many bytes at the front belong to the reply at hand.
    pub consumed: usize,
    /// The reply ends with them.
    pub ended: Option<Ended>,
    /// Where it does not end: so many bytes must be there behind those consumed to go on.
    pub needs: usize,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Splitter {
    caps: Capabilities,
    tracker: Tracker,
    /// Bytes left of a frame that was understood before it was all there.
    skip: usize,
    ended: Ended,
}

impl Splitter {
    /// For replies to statements (COM_QUERY, COM_STMT_EXECUTE without a cursor) on a connection with these capabilities.
    #[must_use]
    pub fn new(caps: Capabilities) -> Self {
        Self { caps, tracker: Tracker::new(ReplyKind::Results, caps), skip: 0, ended: Ended::default() }
    }

    /// Nothing was seen of the reply that comes next.
    #[cfg(test)]
    fn is_at_start(&self) -> bool {
        self.skip == 0 && self.ended == Ended::default() && self.tracker.is_at_start()
    }

    /// Deals with what is at hand of one reply, and stops behind it.
    ///
    /// # Errors
    /// [`WireError`] when the server breaks the protocol, or asks for a file: what follows is of no use.
    pub fn take(&mut self, input: &[u8]) -> Result<Taken, WireError> {
        let mut pos = 0;
        loop {
            let passed = self.skip.min(input.len() - pos);
            pos += passed;
            self.skip -= passed;
            if self.skip > 0 {
                return Ok(Taken { consumed: pos, ended: None, needs: 1 });
            }
            if self.tracker.is_done() {
                let ended = self.ended;
                *self = Self::new(self.caps);
                return Ok(Taken { consumed: pos, ended: Some(ended), needs: 0 });
            }
            let rest = input.get(pos..).unwrap_or_default();
            let Some((len, seq)) = packet::header(rest) else {
                return Ok(Taken { consumed: pos, ended: None, needs: HEADER });
            };
            let body = rest.get(HEADER..(HEADER + len).min(rest.len())).unwrap_or_default();
            match self.tracker.frame(len, body)? {
                Step::Need(n) => return Ok(Taken { consumed: pos, ended: None, needs: HEADER + n }),
                Step::Frame(frame) => self.note(frame, seq, body)?,
            }
            pos += HEADER + body.len();
            self.skip = len - body.len();
        }
    }

    fn note(&mut self, frame: Frame, seq: u8, body: &[u8]) -> Result<(), WireError> {
        match frame {
            Frame::LocalInfile => return Err(WireError::Malformed("a request for a client's file among several replies")),
            Frame::Ok | Frame::ResultEnd => {
                self.ended.status = self.tracker.status();
                self.ended.warned |= self.tracker.warnings() > 0;
                self.ended.results += 1;
                self.ended.had_rows = frame == Frame::ResultEnd;
            }
            Frame::Err => {
                self.ended.error = Some(Reader::new(body.get(1..).unwrap_or_default()).u16()?);
                self.ended.unasked = seq == 0;
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{EOF, ErrPacket, OK, OkPacket};
    use crate::packet::put_packet;
    use proptest::prelude::*;

    const CLASSIC: Capabilities = Capabilities::PROTOCOL_41;

    fn deprecating() -> Capabilities {
        Capabilities::PROTOCOL_41 | Capabilities::DEPRECATE_EOF
    }

    fn end(caps: Capabilities, header: u8, warnings: u16, status: StatusFlags) -> Vec<u8> {
        let mut payload = Vec::new();
        if header == EOF && !caps.contains(Capabilities::DEPRECATE_EOF) {
            payload.push(EOF);
            payload.extend(warnings.to_le_bytes());
            payload.extend(status.bits().to_le_bytes());
        } else {
            OkPacket { affected_rows: 0, last_insert_id: 0, status, warnings, info: b"", session_state: b"" }.write(
                &mut payload,
                header,
                caps,
            );
        }
        payload
    }

    fn packets(payloads: &[Vec<u8>]) -> Vec<u8> {
        let (mut out, mut seq) = (Vec::new(), 1);
        payloads.iter().for_each(|payload| put_packet(&mut out, &mut seq, payload));
        out
    }

    /// A result set of one column.
    fn rows(caps: Capabilities, rows: &[&[u8]], warnings: u16, status: StatusFlags) -> Vec<u8> {
        let mut payloads = vec![vec![1], b"\x03def\0\0\0\x01c\0\x0c\x2d\0\xff\0\0\0\xfd\0\0\0\0\0".to_vec()];
        if !caps.contains(Capabilities::DEPRECATE_EOF) {
            payloads.push(end(caps, EOF, 0, status));
        }
        for row in rows {
            let mut payload = Vec::new();
            crate::codec::put_lenenc_bytes(&mut payload, row);
            payloads.push(payload);
        }
        payloads.push(end(caps, EOF, warnings, status));
        packets(&payloads)
    }

    /// The same of an execution: rows begin with 0 and the bits of NULLs.
    fn binary_rows(caps: Capabilities, values: &[&[u8]]) -> Vec<u8> {
        let rows_of: Vec<Vec<u8>> = values
            .iter()
            .map(|value| {
                let mut row = vec![0, 0];
                crate::codec::put_lenenc_bytes(&mut row, value);
                row
            })
            .collect();
        let mut text = rows(caps, &[], 0, StatusFlags::AUTOCOMMIT);
        let ending = end(caps, EOF, 0, StatusFlags::AUTOCOMMIT);
        text.truncate(text.len() - HEADER - ending.len());
        let mut seq = text_seq(&text);
        rows_of.iter().chain([&ending]).for_each(|payload| put_packet(&mut text, &mut seq, payload));
        text
    }

    /// The sequence id behind these packets.
    fn text_seq(packets: &[u8]) -> u8 {
        let (mut at, mut next) = (0, 1);
        while let Some((len, seq)) = packet::header(&packets[at..]) {
            (at, next) = (at + HEADER + len, seq + 1);
        }
        next
    }

    fn error(code: u16, caps: Capabilities) -> Vec<u8> {
        let mut payload = Vec::new();
        ErrPacket { code, sqlstate: *b"HY000", message: b"no" }.write(&mut payload, caps);
        packets(&[payload])
    }

    #[test]
    fn each_reply_says_how_it_ended() {
        let status = StatusFlags::AUTOCOMMIT;
        for caps in [CLASSIC, deprecating()] {
            let set = Ended { status, results: 1, had_rows: true, ..Ended::default() };
            let table = [
                (rows(caps, &[b"a", b"b"], 0, status), set),
                (rows(caps, &[], 0, status), set),
                (rows(caps, &[b"a"], 2, status), Ended { warned: true, ..set }),
                (packets(&[end(caps, OK, 0, status)]), Ended { had_rows: false, ..set }),
                (error(1064, caps), Ended { error: Some(1064), ..Ended::default() }),
                (
                    [rows(caps, &[b"a"], 0, status | StatusFlags::MORE_RESULTS), rows(caps, &[b"b"], 0, status)].concat(),
                    Ended { results: 2, ..set },
                ),
                (
                    rows(caps, &[b"a"], 0, status | StatusFlags::NO_BACKSLASH_ESCAPES),
                    Ended { status: status | StatusFlags::NO_BACKSLASH_ESCAPES, ..set },
                ),
            ];
            let all: Vec<u8> = table.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
            let (mut splitter, mut at) = (Splitter::new(caps), 0);
            for (bytes, ended) in table {
                assert!(splitter.is_at_start());
                let taken = splitter.take(&all[at..]).unwrap();
                assert_eq!(taken, Taken { consumed: bytes.len(), ended: Some(ended), needs: 0 });
                at += taken.consumed;
            }
            assert_eq!(splitter.take(&[]).unwrap(), Taken { consumed: 0, ended: None, needs: HEADER });
        }
    }

    #[test]
    fn an_error_that_came_before_the_statement_is_told_apart() {
        let mut bytes = error(1927, CLASSIC);
        bytes[3] = 0;
        assert!(Splitter::new(CLASSIC).take(&bytes).unwrap().ended.unwrap().unasked);
    }

    #[test]
    fn who_asks_for_a_file_breaks_the_protocol() {
        assert!(Splitter::new(CLASSIC).take(&packets(&[b"\xfb/etc/passwd".to_vec()])).is_err());
        assert!(Splitter::new(CLASSIC).take(&packets(&[vec![]])).is_err());
    }

    #[test]
    fn a_long_row_is_passed_before_it_is_all_there() {
        let (long, status) = (vec![b'x'; 70_000], StatusFlags::AUTOCOMMIT);
        let all = rows(CLASSIC, &[&long], 0, status);
        let (mut splitter, mut at) = (Splitter::new(CLASSIC), 0);
        let taken = splitter.take(&all[..1000]).unwrap();
        assert_eq!((taken.consumed, taken.ended, taken.needs), (1000, None, 1));
        at += taken.consumed;
        assert!(!splitter.is_at_start());
        assert_eq!(splitter.take(&all[at..]).unwrap().consumed, all.len() - at);
    }

    proptest! {
        /// However the bytes arrive, the same replies come out, and not a byte of one in another.
        #[test]
        fn replies_do_not_depend_on_how_their_bytes_arrive(
            shapes in prop::collection::vec((0u8..5, prop::collection::vec(prop::collection::vec(any::<u8>(), 0..400), 0..4)), 1..9),
            cuts in prop::collection::vec(1usize..600, 1..40),
            deprecates in any::<bool>(),
        ) {
            let caps = if deprecates { deprecating() } else { CLASSIC };
            let status = StatusFlags::AUTOCOMMIT;
            let replies: Vec<Vec<u8>> = shapes.iter().map(|(shape, values)| {
                let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
                match shape {
                    0 => error(1064, caps),
                    1 => packets(&[end(caps, OK, 0, status)]),
                    2 => binary_rows(caps, &values),
                    _ => rows(caps, &values, u16::from(*shape == 3), status),
                }
            }).collect();
            let all: Vec<u8> = replies.concat();
            let (mut splitter, mut input, mut fed) = (Splitter::new(caps), Vec::new(), 0);
            let (mut at_hand, mut out) = (Vec::new(), Vec::new());
            let mut cuts = cuts.iter().cycle();
            while out.len() < replies.len() {
                let taken = splitter.take(&input).unwrap();
                at_hand.extend(input.drain(..taken.consumed));
                match taken.ended {
                    Some(_) => out.push(std::mem::take(&mut at_hand)),
                    None => {
                        let wanted = (input.len() + *cuts.next().unwrap()).max(taken.needs) - input.len();
                        let next = (fed + wanted).min(all.len());
                        prop_assert!(next > fed, "more is wanted than there is");
                        input.extend_from_slice(&all[fed..next]);
                        fed = next;
                    }
                }
            }
            prop_assert_eq!(out, replies);
            prop_assert!(fed == all.len() && input.is_empty() && splitter.is_at_start());
        }
    }
}
