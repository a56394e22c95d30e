//! Whole packets over a socket, with or without TLS.
//!
//! An answer's size is limited: a probe's answer is small, and a peer that sends more is no server of ours.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use wire::packet;

use super::fault::Fault;

/// Longest packet that is read, bytes. `wsrep_provider_options` and GTID sets are the longest values there are.
const PACKET_MAX: usize = 1 << 20;
/// Read at a time, bytes.
const READ_SIZE: usize = 4 << 10;

/// Anything that bytes pass through both ways.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send + Sync {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send + Sync> Duplex for T {}

/// Cuts the socket's bytes into packets, and counts their sequence.
pub(super) struct Packets {
    stream: Box<dyn Duplex>,
    input: Vec<u8>,
    sequence: u8,
    /// Longest packet that is read, bytes.
    limit: usize,
}

impl Packets {
    pub(super) fn new(stream: impl Duplex + 'static) -> Self {
        Self { stream: Box::new(stream), input: Vec::new(), sequence: 0, limit: PACKET_MAX }
    }

    /// The stream alone, for TLS to go on with; None when more has been read than was used.
    pub(super) fn into_stream(self) -> Option<(Box<dyn Duplex>, u8)> {
        self.input.is_empty().then_some((self.stream, self.sequence))
    }

    /// Goes on over another stream.
    pub(super) fn resume(stream: impl Duplex + 'static, sequence: u8) -> Self {
        Self { sequence, ..Self::new(stream) }
    }

    /// Packets of this length are read too, bytes.
    pub(super) fn allow(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// A new command begins.
    pub(super) fn restart(&mut self) {
        self.sequence = 0;
    }

    /// Sends one packet.
    pub(super) async fn send(&mut self, payload: &[u8]) -> Result<(), Fault> {
        let mut out = Vec::with_capacity(payload.len() + packet::HEADER);
        packet::put_packet(&mut out, &mut self.sequence, payload);
        self.stream.write_all(&out).await?;
        self.stream.flush().await?;
        Ok(())
    }

    /// The next packet.
    pub(super) async fn receive(&mut self) -> Result<Vec<u8>, Fault> {
        loop {
            if let Some(payload) = self.take()? {
                return Ok(payload);
            }
            if self.read().await? == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection").into());
            }
        }
    }

    /// Waits until the server says something or goes, though nothing was asked. Safe to give up.
    pub(super) async fn disturbed(&mut self) {
        if self.input.is_empty() {
            // The result of the last read does not matter: the connection is over.
            let _ = self.read().await;
        }
    }

    async fn read(&mut self) -> io::Result<usize> {
        self.input.reserve(READ_SIZE);
        self.stream.read_buf(&mut self.input).await
    }

    /// The first packet in the buffer, if it is complete.
    fn take(&mut self) -> Result<Option<Vec<u8>>, Fault> {
        let Some((len, sequence)) = packet::header(&self.input) else { return Ok(None) };
        if len > self.limit {
            return Err(Fault::Protocol(format!("a packet of {len} bytes exceeds the limit of {} bytes", self.limit)));
        }
        let end = packet::HEADER + len;
        let Some(payload) = self.input.get(packet::HEADER..end) else { return Ok(None) };
        let payload = payload.to_vec();
        self.input.drain(..end);
        self.sequence = sequence.wrapping_add(1);
        Ok(Some(payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().unwrap()
    }

    #[test]
    fn packets_that_come_in_pieces_and_together() {
        runtime().block_on(async {
            let (ours, mut theirs) = tokio::io::duplex(3);
            let mut packets = Packets::new(ours);
            let sender = async {
                theirs.write_all(&[2, 0, 0, 7, b'a', b'b', 0, 0, 0, 8]).await.unwrap();
            };
            let receiver = async {
                assert_eq!(packets.receive().await.unwrap(), b"ab");
                assert_eq!(packets.receive().await.unwrap(), b"");
                assert_eq!(packets.sequence, 9);
            };
            tokio::join!(sender, receiver);
        });
    }

    #[test]
    fn too_long_a_packet_and_an_end_are_faults() {
        runtime().block_on(async {
            let (ours, mut theirs) = tokio::io::duplex(64);
            theirs.write_all(&[0xff, 0xff, 0xff, 0]).await.unwrap();
            assert!(matches!(Packets::new(ours).receive().await, Err(Fault::Protocol(_))));
            let (ours, theirs) = tokio::io::duplex(64);
            drop(theirs);
            assert!(matches!(Packets::new(ours).receive().await, Err(Fault::Io(_))));
        });
    }
}
