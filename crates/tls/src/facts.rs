//! The facts about the certificates for clients, for tables and metrics.

use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA256, digest};
use x509_parser::prelude::{FromDer, X509Certificate, X509Name};

use super::files;
use super::generate::{CA_FILE, CERT_FILE, KEY_FILE};

/// One certificate of a file, as tables show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// `server` for what clients are shown, `ca` for the file beside it.
    pub kind: &'static str,
    /// The file that it was read from.
    pub file: PathBuf,
    /// Common name of its subject; empty if it has none.
    pub subject: String,
    /// Common name of its issuer.
    pub issuer: String,
    /// Its number, as bytes in hexadecimal with colons.
    pub serial: String,
    /// From when it is valid, Unix seconds.
    pub not_before: i64,
    /// Until when, Unix seconds.
    pub not_after: i64,
    /// SHA-256 of it, as bytes in hexadecimal with colons.
    pub fingerprint: String,
}

/// The files in `datadir` that TLS towards clients is made of: certificate, CA, key.
pub fn server_files(datadir: &Path) -> [PathBuf; 3] {
    [CERT_FILE, CA_FILE, KEY_FILE].map(|name| datadir.join(name))
}

/// The certificates in these files. What cannot be read is left out: [`super::server`] has said so.
pub fn certificates(datadir: &Path) -> Vec<Certificate> {
    let [cert, ca, _] = server_files(datadir);
    let mut found = Vec::new();
    for (kind, file) in [("server", cert), ("ca", ca)] {
        let read = files::certificates("TLS to clients", &file).unwrap_or_default();
        found.extend(read.iter().filter_map(|der| of(kind, &file, der)));
    }
    found
}

fn of(kind: &'static str, file: &Path, der: &[u8]) -> Option<Certificate> {
    let (_, read) = X509Certificate::from_der(der).ok()?;
    let common_name =
        |name: &X509Name<'_>| name.iter_common_name().next().and_then(|name| name.as_str().ok()).unwrap_or_default().to_owned();
    Some(Certificate {
        kind,
        file: file.to_path_buf(),
        subject: common_name(read.subject()),
        issuer: common_name(read.issuer()),
        serial: read.raw_serial_as_string(),
        not_before: read.validity().not_before.timestamp(),
        not_after: read.validity().not_after.timestamp(),
        fingerprint: digest(&SHA256, der).as_ref().iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":"),
    })
}
