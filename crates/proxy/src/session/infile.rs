//! LOAD DATA LOCAL INFILE: the client's file, streamed to the server.

use super::Session;
use super::acquire::{Certainty, Fault};
use crate::reframe::Reframe;
use wire::packet::{self, HEADER, MAX_PAYLOAD};

impl Session {
    /// The server asked for a file and the client was told: passes the client's packets on until the empty one.
    /// The client's command is in the input before the file's packets.
    pub(super) async fn send_clients_file(&mut self, reframe: &mut Reframe<'_>) -> Result<(), Fault> {
        self.make_room_for_file();
        let mut server_seq = reframe.server_seq();
        let mut skip = 0_usize;
        let mut last = false;
        let mut next_seq = reframe.next_seq();
        while !last || skip > 0 {
            let (n, ended) = self.pass_frames(&mut server_seq, &mut skip, &mut next_seq);
            last |= ended;
            if n > 0 {
                self.write_infile(n).await?;
                self.input.consume(n);
                continue;
            }
            if last && skip == 0 {
                break;
            }
            // A server that answers early is dealt with when the client has sent its file.
            self.read_more(self.input.len() + HEADER).await?;
        }
        reframe.infile_sent(self.front.frame_seq().unwrap_or(next_seq));
        Ok(())
    }

    /// Takes the command out of the input: what follows it there is the file. Its text is kept for what is done when it has ended.
    /// After the first file of several statements nothing is left to take.
    fn make_room_for_file(&mut self) {
        if std::mem::replace(&mut self.streamed_input, true) {
            return;
        }
        let is_kept = !self.joined.is_empty();
        while let Some((len, _)) = packet::header(self.input.filled()) {
            if !is_kept {
                self.joined = self.input.filled().get(HEADER..HEADER + len).unwrap_or_default().to_vec();
            }
            self.input.consume((HEADER + len).min(self.input.len()));
            if len < MAX_PAYLOAD {
                break;
            }
        }
    }

    /// Looks over the frames at hand, renumbers them as the server counts; answers how many bytes may go, and whether
    /// the empty packet is among them.
    fn pass_frames(&mut self, server_seq: &mut u8, skip: &mut usize, next_seq: &mut u8) -> (usize, bool) {
        let bytes = self.input.filled_mut();
        let mut pos = 0;
        loop {
            let n = (*skip).min(bytes.len() - pos);
            pos += n;
            *skip -= n;
            if *skip > 0 {
                return (pos, false);
            }
            let Some((len, seq)) = bytes.get(pos..).and_then(packet::header) else { return (pos, false) };
            if let Some(byte) = bytes.get_mut(pos + 3) {
                *byte = *server_seq;
            }
            *server_seq = server_seq.wrapping_add(1);
            *next_seq = seq.wrapping_add(1);
            pos += HEADER;
            *skip = len;
            if len == 0 {
                return (pos, true);
            }
        }
    }

    async fn write_infile(&mut self, n: usize) -> Result<(), Fault> {
        let bytes = self.input.filled().get(..n).unwrap_or_default();
        let Some(backend) = self.backend.as_mut() else {
            return Err(self.pinned_backend_lost("no backend"));
        };
        match backend.link.write_all(bytes).await {
            Ok(()) => Ok(()),
            Err(e) => Err(self.lost_answering(&e)),
        }
    }

    fn lost_answering(&mut self, e: &std::io::Error) -> Fault {
        match self.lost_before(e) {
            Fault::Lost { text, pins, .. } => Fault::Lost { certainty: Certainty::Answering, text, pins },
            other => other,
        }
    }
}
