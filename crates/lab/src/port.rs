//! Free TCP ports on loopback, so that no two test processes get the same one.
//!
//! A port is taken with a lock file that lives as long as the [`Port`] does. Its range is below the kernel's ephemeral ports, so an
//! outgoing connection cannot take it either. A server can be stopped and started again on it.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};

use crate::dirs;
use crate::error::{IoContext, LabError};

const FIRST: u16 = 20_000;
const LAST: u16 = 31_999;

/// A reserved port. Dropping it gives it back.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _lock: File,
}

impl Port {
    /// Reserves a port without a listener.
    pub fn reserve() -> Result<Port, LabError> {
        let dir = dirs::base().join("ports");
        fs::create_dir_all(&dir).context(|| format!("create {}", dir.display()))?;
        (FIRST..=LAST).find_map(|_| take(&dir, next_candidate())).ok_or(LabError::NoPort { first: FIRST, last: LAST })
    }

    /// Reserves this port if it is free, else any other.
    pub fn prefer(number: u16) -> Result<Port, LabError> {
        let any = Port::reserve()?;
        Ok(take(&dirs::base().join("ports"), number).unwrap_or(any))
    }

    /// The port number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

/// This port, if it is free.
fn take(dir: &Path, number: u16) -> Option<Port> {
    let lock = File::create(dir.join(number.to_string())).ok()?;
    lock.try_lock().ok()?;
    TcpListener::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
    Some(Port { number, _lock: lock })
}

/// Walks the range from a place that depends on the process, so parallel processes rarely ask for the same port.
fn next_candidate() -> u16 {
    static STEP: AtomicU16 = AtomicU16::new(0);
    let span = u32::from(LAST - FIRST) + 1;
    let step = u32::from(STEP.fetch_add(1, Ordering::Relaxed));
    let offset = process::id().wrapping_mul(37).wrapping_add(step) % span;
    FIRST + u16::try_from(offset).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_reservations_differ() {
        let (a, b) = (Port::reserve().unwrap(), Port::reserve().unwrap());
        assert_ne!(a.number(), b.number());
    }
}
