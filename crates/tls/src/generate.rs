//! The certificate for clients if the operator has not provided one.
//!
//! File names are ProxySQL's, so that the operator's existing files keep working. The key is ECDSA P-256: half the cost of an RSA
//! handshake. The CA's key is not kept: nothing is ever signed with it again.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, date_time_ymd};

/// CAs for clients' certificates.
pub(super) const CA_FILE: &str = "proxysql-ca.pem";
/// The certificate shown to clients, with its intermediates.
pub(super) const CERT_FILE: &str = "proxysql-cert.pem";
/// The private key of the certificate.
pub(super) const KEY_FILE: &str = "proxysql-key.pem";

const CA_NAME: &str = "Tidegate_Auto_Generated_CA_Certificate";
const SERVER_NAME: &str = "Tidegate_Auto_Generated_Server_Certificate";
const DAY: Duration = Duration::from_secs(86_400);
const VALID_DAYS: u32 = 3_650;

/// Text of the generated files.
struct Pems {
    ca: String,
    cert: String,
    key: String,
}

/// Leaves `datadir` with all three files: generates them when none exists.
///
/// # Errors
/// Some exist and some do not, naming those; or they cannot be written.
pub(super) fn ensure_files(datadir: &Path) -> Result<(), String> {
    let (present, missing): (Vec<&str>, Vec<&str>) =
        [CA_FILE, CERT_FILE, KEY_FILE].into_iter().partition(|name| exists(&datadir.join(name)));
    if missing.is_empty() {
        return Ok(());
    }
    if !present.is_empty() {
        let (missing, present) = (missing.join(", "), present.join(", "));
        let dir = datadir.display();
        return Err(format!("TLS to clients: {dir} has {present} but lacks {missing}: provide all three, or none to have them generated"));
    }
    let pems = generate(SystemTime::now()).map_err(|e| format!("TLS to clients: cannot generate a certificate: {e}"))?;
    write_all(datadir, &pems).map_err(|e| format!("TLS to clients: cannot write to {}: {e}", datadir.display()))
}

/// A dangling link is there too: it is the operator's, not to be written over.
fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

fn generate(now: SystemTime) -> Result<Pems, rcgen::Error> {
    let ca_key = KeyPair::generate()?;
    let mut ca = params(CA_NAME, now);
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let ca_cert = ca.self_signed(&ca_key)?;

    let key = KeyPair::generate()?;
    let mut server = params(SERVER_NAME, now);
    server.is_ca = IsCa::ExplicitNoCa;
    server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    server.use_authority_key_identifier_extension = true;
    let cert = server.signed_by(&key, &Issuer::from_params(&ca, &ca_key))?;
    Ok(Pems { ca: ca_cert.pem(), cert: cert.pem(), key: key.serialize_pem() })
}

/// Valid since yesterday, for clients whose clocks are behind.
fn params(name: &str, now: SystemTime) -> CertificateParams {
    let since_epoch = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now = date_time_ymd(1970, 1, 1) + since_epoch;
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = now - DAY;
    params.not_after = now + DAY * VALID_DAYS;
    params
}

/// Each file appears whole or not at all. If a crash leaves only some of them, the next start refuses them.
fn write_all(datadir: &Path, pems: &Pems) -> io::Result<()> {
    let files = [(CA_FILE, &pems.ca, 0o644), (CERT_FILE, &pems.cert, 0o644), (KEY_FILE, &pems.key, 0o600)];
    for (name, text, mode) in files {
        write_aside(&datadir.join(aside(name)), text, mode)?;
    }
    for (name, ..) in files {
        fs::rename(datadir.join(aside(name)), datadir.join(name))?;
    }
    File::open(datadir)?.sync_all()
}

fn aside(name: &str) -> String {
    format!(".{name}.new")
}

fn write_aside(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
