//! The TCP sockets of this machine towards one port, from `/proc/net/tcp` (proc(5)): connections as the kernel counts
//! them, whatever the two ends believe.

use std::collections::BTreeSet;
use std::fs;

use crate::error::{IoContext, LabError};

/// `st` of /proc/net/tcp: connected, and still connecting.
const OPEN: [&str; 2] = ["01", "02"];

/// The local ports of all sockets that are connected, or connecting, to `port` of this machine over IPv4.
pub fn towards(port: u16) -> Result<BTreeSet<u16>, LabError> {
    let path = "/proc/net/tcp";
    let text = fs::read_to_string(path).context(|| format!("read {path}"))?;
    Ok(parse(&text, port))
}

fn parse(text: &str, port: u16) -> BTreeSet<u16> {
    let mut found = BTreeSet::new();
    for line in text.lines().skip(1) {
        let mut fields = line.split_whitespace().skip(1);
        let (Some(local), Some(remote), Some(state)) = (fields.next(), fields.next(), fields.next()) else { continue };
        if OPEN.contains(&state) && port_of(remote) == Some(port) {
            found.extend(port_of(local));
        }
    }
    found
}

/// The port of `0100007F:1F90`.
fn port_of(address: &str) -> Option<u16> {
    u16::from_str_radix(address.rsplit(':').next()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_open_sockets_of_the_port() {
        let text = "  sl  local_address rem_address   st\n\
                    0: 0100007F:1F90 0100007F:0CEA 01 00000000:00000000\n\
                    1: 0100007F:0CEA 0100007F:1F90 01 00000000:00000000\n\
                    2: 0100007F:1F91 0100007F:0CEA 06 00000000:00000000\n\
                    3: 0100007F:1F92 0100007F:0CEA 02 00000000:00000000\n";
        assert_eq!(parse(text, 3306), BTreeSet::from([0x1f90, 0x1f92]));
    }
}
