//! When certificates for clients were read, and which: what operators look at after they were renewed.

use crate::workers::clock::unix_us;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tls::{Certificate, ClientConfigs, ServerTls};

/// See the module. One for the process.
#[derive(Default)]
pub(crate) struct TlsLoads(Mutex<Loads>);

/// What is known.
#[derive(Default)]
pub(crate) struct Loads {
    /// How often they were read with success.
    pub count: u64,
    /// When they were last read, with success or without, Unix seconds; 0 for never.
    pub last_s: u64,
    /// Whether that was a success.
    pub was_ok: bool,
    /// Certificate, CA and key, as they were last read with success.
    pub files: Option<[PathBuf; 3]>,
    /// The certificates that were.
    pub certificates: Vec<Certificate>,
    /// When that was, Unix seconds.
    pub loaded_s: u64,
}

impl TlsLoads {
    /// Reads the files of `datadir`, and notes it. A failure leaves what was read before.
    pub(crate) fn load(&self, datadir: &Path, configs: &ClientConfigs) -> Result<Arc<ServerTls>, String> {
        let outcome = tls::server(datadir, configs.keys());
        let certificates = outcome.is_ok().then(|| tls::certificates(datadir));
        let mut loads = self.get();
        loads.last_s = unix_us() / 1_000_000;
        loads.was_ok = outcome.is_ok();
        if let Some(certificates) = certificates {
            loads.count += 1;
            loads.loaded_s = loads.last_s;
            loads.files = Some(tls::server_files(datadir));
            loads.certificates = certificates;
        }
        drop(loads);
        outcome
    }

    /// What is known now.
    pub(crate) fn get(&self) -> MutexGuard<'_, Loads> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
