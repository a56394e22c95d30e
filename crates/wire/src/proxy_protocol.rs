//! The PROXY header, versions 1 and 2, by which a balancer names the real client.
//!
//! Only the bytes; the listener decides which peers to believe. Incremental: pass all bytes read so far. Source: haproxy's "The PROXY
//! protocol", sections 2.1 and 2.2. TLVs are skipped.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::codec::Reader;

/// First bytes of version 1.
const V1: &[u8] = b"PROXY ";
/// First bytes of version 2.
const V2: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// The longest version 1 line, in bytes, with its CR LF.
const V1_MAX: usize = 107;
/// Length of version 2's fixed part, in bytes.
const V2_FIXED: usize = 16;
/// The longest version 2 address block that is accepted, in bytes: addresses and a few TLVs.
const V2_MAX: usize = 4096;

/// The header at the start of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed {
    /// A header may be there; read on.
    NeedMore,
    /// A whole header of `consumed` bytes; the protocol follows.
    Header {
        /// The client's address, or the balancer itself.
        origin: Origin,
        /// Length of the header, in bytes.
        consumed: usize,
    },
    /// Not a header, or a broken one. The text names the fault.
    Invalid(&'static str),
}

/// The origin of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The balancer relays a client.
    Relayed {
        /// The client's address and port.
        src: SocketAddr,
        /// The address that the client connected to.
        dst: SocketAddr,
    },
    /// The balancer itself (LOCAL, UNKNOWN, or a family that has no IP address): use the socket's own address.
    Local,
}

/// Whether `bytes` begins as a header does, complete or not.
#[must_use]
pub fn is_one(bytes: &[u8]) -> bool {
    bytes.starts_with(V1) || bytes.starts_with(V2)
}

/// Reads the header at the start of `bytes`.
#[must_use]
pub fn parse(bytes: &[u8]) -> Parsed {
    if may_start(bytes, V2) {
        return parse_v2(bytes);
    }
    if may_start(bytes, V1) {
        return parse_v1(bytes);
    }
    Parsed::Invalid("no PROXY header")
}

/// True when `bytes` begins with `magic`, as far as it goes.
fn may_start(bytes: &[u8], magic: &[u8]) -> bool {
    bytes.iter().zip(magic).all(|(left, right)| left == right)
}

fn parse_v1(bytes: &[u8]) -> Parsed {
    let window = &bytes[..bytes.len().min(V1_MAX)];
    let Some(end) = memchr::memmem::find(window, b"\r\n") else {
        return if bytes.len() < V1_MAX { Parsed::NeedMore } else { Parsed::Invalid("PROXY line is too long") };
    };
    match std::str::from_utf8(&window[..end]).ok().and_then(v1_origin) {
        Some(origin) => Parsed::Header { origin, consumed: end + 2 },
        None => Parsed::Invalid("PROXY line is malformed"),
    }
}

/// The addresses of a version 1 line, less its CR LF.
fn v1_origin(line: &str) -> Option<Origin> {
    let mut words = line.split(' ').skip(1);
    let family = words.next()?;
    if family == "UNKNOWN" {
        return Some(Origin::Local);
    }
    let (src, dst): (IpAddr, IpAddr) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let (src_port, dst_port) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let fits = match family {
        "TCP4" => src.is_ipv4() && dst.is_ipv4(),
        "TCP6" => src.is_ipv6() && dst.is_ipv6(),
        _ => false,
    };
    let origin = Origin::Relayed { src: SocketAddr::new(src, src_port), dst: SocketAddr::new(dst, dst_port) };
    (fits && words.next().is_none()).then_some(origin)
}

fn parse_v2(bytes: &[u8]) -> Parsed {
    let Some(fixed) = bytes.first_chunk::<V2_FIXED>() else { return Parsed::NeedMore };
    let (version_command, family, len) = (fixed[12], fixed[13], usize::from(u16::from_be_bytes([fixed[14], fixed[15]])));
    if version_command >> 4 != 2 || version_command & 15 > 1 {
        return Parsed::Invalid("PROXY version or command is unknown");
    }
    if len > V2_MAX {
        return Parsed::Invalid("PROXY header is too long");
    }
    let Some(block) = bytes.get(V2_FIXED..V2_FIXED + len) else { return Parsed::NeedMore };
    let origin = if version_command & 15 == 0 { Some(Origin::Local) } else { v2_origin(family, block) };
    match origin {
        Some(origin) => Parsed::Header { origin, consumed: V2_FIXED + len },
        None => Parsed::Invalid("PROXY address block is too short"),
    }
}

/// The addresses of a version 2 block; `None` when it is too short for its family.
fn v2_origin(family: u8, block: &[u8]) -> Option<Origin> {
    let mut reader = Reader::new(block);
    let (src, dst): (IpAddr, IpAddr) = match family >> 4 {
        1 => (Ipv4Addr::from(reader.array::<4>().ok()?).into(), Ipv4Addr::from(reader.array::<4>().ok()?).into()),
        2 => (Ipv6Addr::from(reader.array::<16>().ok()?).into(), Ipv6Addr::from(reader.array::<16>().ok()?).into()),
        _ => return Some(Origin::Local),
    };
    let (src_port, dst_port) = (u16::from_be_bytes(reader.array().ok()?), u16::from_be_bytes(reader.array().ok()?));
    Some(Origin::Relayed { src: SocketAddr::new(src, src_port), dst: SocketAddr::new(dst, dst_port) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn relayed(src: &str, dst: &str) -> Origin {
        Origin::Relayed { src: src.parse().unwrap(), dst: dst.parse().unwrap() }
    }

    fn v2(command: u8, family: u8, block: &[u8]) -> Vec<u8> {
        let mut bytes = V2.to_vec();
        bytes.extend_from_slice(&[0x20 | command, family, 0, block.len() as u8]);
        bytes.extend_from_slice(block);
        bytes
    }

    #[test]
    fn version_1() {
        let cases = [
            (&b"PROXY TCP4 10.0.0.1 10.0.0.2 4000 3306\r\nrest"[..], relayed("10.0.0.1:4000", "10.0.0.2:3306")),
            (b"PROXY TCP6 ::1 ::2 1 2\r\n", relayed("[::1]:1", "[::2]:2")),
            (b"PROXY UNKNOWN\r\n", Origin::Local),
            (b"PROXY UNKNOWN anything at all\r\n", Origin::Local),
        ];
        for (bytes, origin) in cases {
            let end = memchr::memchr(b'\n', bytes).unwrap() + 1;
            assert_eq!(parse(bytes), Parsed::Header { origin, consumed: end });
            for cut in 0..end {
                assert_eq!(parse(&bytes[..cut]), Parsed::NeedMore, "{cut}");
            }
        }
    }

    #[test]
    fn version_2() {
        let with_tlv = [10, 0, 0, 1, 10, 0, 0, 2, 0x0f, 0xa0, 0x0c, 0xea, 4, 0, 1, 9];
        let cases = [
            (v2(1, 0x11, &with_tlv), relayed("10.0.0.1:4000", "10.0.0.2:3306")),
            (v2(0, 0, &[]), Origin::Local),
            (v2(1, 0x31, &[0; 216]), Origin::Local),
        ];
        for (bytes, origin) in cases {
            assert_eq!(parse(&bytes), Parsed::Header { origin, consumed: bytes.len() });
            for cut in 0..bytes.len() {
                assert_eq!(parse(&bytes[..cut]), Parsed::NeedMore, "{cut}");
            }
        }
    }

    #[test]
    fn broken_ones() {
        let long = [V1, &[b'x'; 200]].concat();
        let broken: [&[u8]; 6] = [
            b"GET / HTTP",
            b"PROXY TCP4 ::1 ::2 1 2\r\n",
            b"PROXY TCP4 1.2.3.4 1.2.3.4 1 70000\r\n",
            b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2 3\r\n",
            &long,
            &v2(1, 0x11, &[1, 2, 3]),
        ];
        for bytes in broken {
            assert!(matches!(parse(bytes), Parsed::Invalid(_)), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>, version: bool) {
            let _ = parse(&bytes);
            let magic: &[u8] = if version { V1 } else { V2 };
            let _ = parse(&[magic, &bytes].concat());
        }
    }
}
