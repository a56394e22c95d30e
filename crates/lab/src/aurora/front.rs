//! The address of an instance of the stand-in: a relay that understands just enough of the protocol to see statements.
//!
//! It frames the client's packets. It rewrites the text of COM_QUERY and COM_STMT_PREPARE if this names something that an ordinary server
//! lacks. The server's bytes are copied. TLS and compression are not offered. It can refuse connects, cut all connections, and delay
//! questions for the topology.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use wire::packet::{HEADER, MAX_PAYLOAD, header};
use wire::{Capabilities, Command};

use crate::error::{IoContext, LabError};

/// Names that an ordinary server lacks, with their replacements. Lower case.
const REWRITES: &[(&[u8], &[u8])] = &[
    (TOPOLOGY, b"aurora.replica_host_status"),
    (b"@@global.innodb_read_only", b"@@global.read_only"),
    (b"@@innodb_read_only", b"@@read_only"),
];
/// The table that Aurora has.
const TOPOLOGY: &[u8] = b"information_schema.replica_host_status";
/// Bytes passed on at a time.
const CHUNK: usize = 64 * 1024;

/// A running front; all its connections are cut when it is dropped.
#[derive(Debug)]
pub struct Front {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    streams: Mutex<Vec<TcpStream>>,
    is_refusing: AtomicBool,
    is_over: AtomicBool,
    topology_delay_ms: AtomicU64,
}

impl Front {
    /// Listens on `address` and passes on to `target`, both `host:port` with numbers.
    pub(super) fn start(address: &str, target: &str) -> Result<Front, LabError> {
        let parse = |text: &str| text.parse::<SocketAddr>().map_err(|_| LabError::Protocol(format!("{text} is no address")));
        let (address, target) = (parse(address)?, parse(target)?);
        let listener = TcpListener::bind(address).context(|| format!("listen on {address}"))?;
        let shared = Arc::new(Shared {
            target,
            streams: Mutex::default(),
            is_refusing: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            topology_delay_ms: AtomicU64::new(0),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            while let Ok((near, _)) = listener.accept() {
                if accepting.is_over.load(Ordering::Acquire) {
                    return;
                }
                if !accepting.is_refusing.load(Ordering::Acquire) {
                    // A server that is down shows as a connection that is closed at once.
                    let _ = accepting.connect(near);
                }
            }
        });
        Ok(Front { address, shared })
    }

    /// Closes all connections.
    pub fn cut(&self) {
        for stream in self.shared.streams().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// New connections are closed at once, and those of now are cut; or it serves again.
    pub(super) fn refuse(&self, refuse: bool) {
        self.shared.is_refusing.store(refuse, Ordering::Release);
        if refuse {
            self.cut();
        }
    }

    /// Questions for the topology are passed on this much later.
    pub(super) fn slow_topology(&self, delay: Duration) {
        self.shared.topology_delay_ms.store(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX), Ordering::Release);
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        let _ = TcpStream::connect(self.address);
        self.cut();
    }
}

impl Shared {
    fn streams(&self) -> MutexGuard<'_, Vec<TcpStream>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connect(self: &Arc<Self>, near: TcpStream) -> io::Result<()> {
        let mut far = TcpStream::connect(self.target)?;
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        let greeting = without_options(read_packet(&mut far)?);
        (&near).write_all(&greeting)?;
        self.streams().extend([near.try_clone()?, far.try_clone()?]);
        let (up, down) = ((near.try_clone()?, far.try_clone()?), (far, near));
        let shared = Arc::clone(self);
        thread::spawn(move || end_of(shared.carry_commands(&up.0, &up.1), &up.0, &up.1));
        thread::spawn(move || end_of(carry_bytes(&down.0, &down.1), &down.0, &down.1));
        Ok(())
    }

    /// Client to server, packet by packet. The first packet of a command has the sequence number 0.
    fn carry_commands(&self, mut from: &TcpStream, mut to: &TcpStream) -> io::Result<()> {
        loop {
            let packet = read_packet(&mut from)?;
            match rewritten(&packet) {
                None => to.write_all(&packet)?,
                Some((packet, delayed)) => {
                    if delayed {
                        thread::sleep(Duration::from_millis(self.topology_delay_ms.load(Ordering::Acquire)));
                    }
                    to.write_all(&packet)?;
                }
            }
        }
    }
}

fn end_of(_carried: io::Result<()>, a: &TcpStream, b: &TcpStream) {
    let _ = a.shutdown(Shutdown::Both);
    let _ = b.shutdown(Shutdown::Both);
}

fn carry_bytes(mut from: &TcpStream, mut to: &TcpStream) -> io::Result<()> {
    let mut bytes = vec![0; CHUNK];
    loop {
        match from.read(&mut bytes)? {
            0 => return Ok(()),
            count => to.write_all(&bytes[..count])?,
        }
    }
}

/// One packet with its header.
fn read_packet(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut packet = vec![0; HEADER];
    from.read_exact(&mut packet)?;
    let length = header(&packet).map_or(0, |(length, _)| length);
    packet.resize(HEADER + length, 0);
    from.read_exact(&mut packet[HEADER..])?;
    Ok(packet)
}

/// The packet with what must be rewritten, and whether it asks for the topology; `None` when it can go as it is.
fn rewritten(packet: &[u8]) -> Option<(Vec<u8>, bool)> {
    let (length, seq) = header(packet)?;
    let command = *packet.get(HEADER)?;
    let has_text = command == Command::Query as u8 || command == Command::StmtPrepare as u8;
    if seq != 0 || !has_text || length == MAX_PAYLOAD {
        return None;
    }
    let mut payload = packet[HEADER..].to_vec();
    let topology = find(&payload, TOPOLOGY).is_some();
    let mut changed = false;
    for (from, to) in REWRITES {
        while let Some(at) = find(&payload, from) {
            payload.splice(at..at + from.len(), to.iter().copied());
            changed = true;
        }
    }
    changed.then(|| {
        let (mut out, mut seq) = (Vec::with_capacity(payload.len() + HEADER), seq);
        wire::packet::put_packet(&mut out, &mut seq, &payload);
        (out, topology)
    })
}

/// The offset of `wanted` (lower case), in any letter case.
fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window.eq_ignore_ascii_case(wanted))
}

/// A greeting without the offer of TLS and compression, which this relay could not look into. Source: "Protocol::HandshakeV10".
fn without_options(mut greeting: Vec<u8>) -> Vec<u8> {
    let version_end = greeting.iter().skip(HEADER + 1).position(|byte| *byte == 0).map(|at| HEADER + 1 + at);
    // Behind the version: connection id, 8 bytes of scramble, a filler.
    let Some(low) = version_end.map(|at| at + 1 + 4 + 8 + 1).filter(|low| low + 2 <= greeting.len()) else { return greeting };
    let offered = u16::from_le_bytes([greeting[low], greeting[low + 1]]);
    let hidden = (Capabilities::SSL | Capabilities::COMPRESS).bits();
    let kept = offered & !u16::try_from(hidden & 0xffff).unwrap_or(0);
    greeting[low..low + 2].copy_from_slice(&kept.to_le_bytes());
    greeting
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        wire::packet::put_packet(&mut out, &mut 0, payload);
        out
    }

    #[test]
    fn only_what_an_ordinary_server_lacks_is_rewritten() {
        let (out, topology) = rewritten(&packet(b"\x03SELECT * FROM INFORMATION_SCHEMA.replica_HOST_status")).unwrap();
        assert_eq!(out, packet(b"\x03SELECT * FROM aurora.replica_host_status"));
        assert!(topology);
        let (out, topology) = rewritten(&packet(b"\x03SELECT @@innodb_read_only")).unwrap();
        assert_eq!(out, packet(b"\x03SELECT @@read_only"));
        assert!(!topology);
        assert!(rewritten(&packet(b"\x03SELECT 1")).is_none());
        assert!(rewritten(&packet(b"\x02information_schema.replica_host_status")).is_none());
    }
}
