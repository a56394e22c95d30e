//! The PROXY header: what is decided early stays decided.

use wire::proxy_protocol::{Parsed, parse};

/// The input: what a balancer sends first.
pub fn check(data: &[u8]) {
    let mut decided = None;
    for len in 0..=data.len() {
        let parsed = parse(&data[..len]);
        if let Parsed::Header { consumed, .. } = parsed {
            assert!(consumed <= len && consumed > 0);
        }
        match decided {
            None if parsed != Parsed::NeedMore => decided = Some(parsed),
            Some(before) => assert_eq!(parsed, before, "changed its mind after {len} bytes"),
            None => {}
        }
    }
}
