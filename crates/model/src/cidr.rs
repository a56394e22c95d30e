//! Sets of IP networks, as `mysql-proxy_protocol_networks` lists them: `10.0.0.0/8, fd00::/8`, or `*` for all.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// One network: an address and how many of its leading bits count (0..=32 for IPv4, 0..=128 for IPv6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix_bits: u8,
}

impl Network {
    /// Whether `address` lies in this network. An IPv4 address written as IPv6 (`::ffff:10.0.0.1`) counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => same_prefix(&ours.octets(), &theirs.octets(), self.prefix_bits),
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => same_prefix(&ours.octets(), &theirs.octets(), self.prefix_bits),
            _ => false,
        }
    }
}

/// Why a network list cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// The part before `/` is no IP address.
    #[error("'{0}' is not an IP address")]
    Address(String),
    /// The part after `/` is no number, or larger than the address has bits.
    #[error("'{text}' is not a prefix length 0..{max}")]
    Prefix {
        /// As written, for messages.
        text: String,
        /// The most bits of a prefix: 32 for IPv4, 128 for IPv6.
        max: u8,
    },
}

impl FromStr for Network {
    type Err = NetworkError;

    /// Reads `address/bits`, or a bare address, which stands for itself alone.
    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.trim().parse().map_err(|_| NetworkError::Address(address.to_owned()))?;
        let max = if address.is_ipv4() { 32 } else { 128 };
        let prefix_bits = match bits.map(str::trim) {
            None => max,
            Some(bits) => {
                bits.parse().ok().filter(|bits| *bits <= max).ok_or_else(|| NetworkError::Prefix { text: bits.to_owned(), max })?
            }
        };
        Ok(Self { address, prefix_bits })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_bits)
    }
}

/// Networks whose members are treated alike. The default contains no address.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum NetworkSet {
    /// No address.
    #[default]
    Empty,
    /// Every address (`*`).
    All,
    /// The members of these networks.
    Networks(Vec<Network>),
}

impl NetworkSet {
    /// Whether `address` is a member.
    pub fn contains(&self, address: IpAddr) -> bool {
        match self {
            Self::Empty => false,
            Self::All => true,
            Self::Networks(networks) => networks.iter().any(|network| network.contains(address)),
        }
    }
}

impl FromStr for NetworkSet {
    type Err = NetworkError;

    /// Reads a list separated by commas; blanks around entries are ignored, `''` is empty, `*` is all.
    fn from_str(text: &str) -> Result<Self, NetworkError> {
        match text.trim() {
            "" => Ok(Self::Empty),
            "*" => Ok(Self::All),
            list => list.split(',').map(|entry| entry.trim().parse()).collect::<Result<_, _>>().map(Self::Networks),
        }
    }
}

fn same_prefix(left: &[u8], right: &[u8], bits: u8) -> bool {
    let (whole, rest) = (usize::from(bits / 8), bits % 8);
    let mask = !(0xff_u8.checked_shr(u32::from(rest)).unwrap_or(0));
    left[..whole] == right[..whole] && (rest == 0 || left[whole] & mask == right[whole] & mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn membership() {
        let cases = [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/12", "10.15.0.1", true),
            ("10.0.0.0/12", "10.16.0.1", false),
            ("0.0.0.0/0", "9.9.9.9", true),
            ("0.0.0.0/0", "::1", false),
            ("10.1.2.3", "10.1.2.3", true),
            ("10.1.2.3", "10.1.2.4", false),
            ("10.0.0.0/8", "::ffff:10.1.1.1", true),
            ("fd00::/8, 192.168.0.0/16", "fdff::1", true),
            ("fd00::/8, 192.168.0.0/16", "192.168.9.9", true),
            ("*", "::1", true),
            ("", "127.0.0.1", false),
        ];
        for (set, address, expected) in cases {
            let parsed: NetworkSet = set.parse().unwrap();
            assert_eq!(parsed.contains(address.parse().unwrap()), expected, "{set} {address}");
        }
    }

    #[test]
    fn refusals_name_the_part() {
        let cases = [
            ("10.0.0/8", "'10.0.0' is not an IP address"),
            ("10.0.0.0/33", "'33' is not a prefix length 0..32"),
            ("::/129", "'129' is not a prefix length 0..128"),
            ("10.0.0.0/8,,", "'' is not an IP address"),
        ];
        for (set, message) in cases {
            assert_eq!(set.parse::<NetworkSet>().unwrap_err().to_string(), message, "{set}");
        }
    }
}
