//! Certificates for tests: an authority and a server certificate for `localhost` and `127.0.0.1`, fresh each time.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use crate::error::{IoContext, LabError};

/// The paths of the files of [`write_server_files`].
#[derive(Clone, Debug)]
pub struct ServerFiles {
    /// The authority's certificate.
    pub ca: PathBuf,
    /// The same as PEM text.
    pub ca_pem: String,
    /// The server's certificate, signed by the authority.
    pub certificate: PathBuf,
    /// The server's private key.
    pub key: PathBuf,
}

/// Makes an authority and a server certificate and writes them as PEM files into `dir`.
pub fn write_server_files(dir: &Path) -> Result<ServerFiles, LabError> {
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.distinguished_name.push(DnType::CommonName, "lab authority");
    let issuer = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
    let mut server = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])?;
    server.distinguished_name.push(DnType::CommonName, "lab server");
    let key = KeyPair::generate()?;
    let certificate = server.signed_by(&key, &issuer)?;
    let ca_pem = issuer.pem();
    Ok(ServerFiles {
        ca: write(dir, "ca.pem", &ca_pem)?,
        ca_pem,
        certificate: write(dir, "server-cert.pem", &certificate.pem())?,
        key: write(dir, "server-key.pem", &key.serialize_pem())?,
    })
}

fn write(dir: &Path, name: &str, text: &str) -> Result<PathBuf, LabError> {
    let path = dir.join(name);
    fs::write(&path, text).context(|| format!("write {}", path.display()))?;
    Ok(path)
}
