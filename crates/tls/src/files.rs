//! Reads PEM files: certificates, keys, revocation lists. Every error names the setting and the file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use model::snapshot::TlsParams;
use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::outgoing;

/// The files of trusted CAs of distributions: Debian, Red Hat, SUSE, Alpine.
const SYSTEM_ROOTS: [&str; 4] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"];

/// Most files of one directory that a stamp has: it is taken for each connection.
const STAMPED_MAX: usize = 1_000;

/// Each file that parameters lead to, with its modification time and size in bytes, to notice a replaced one.
pub(super) type Stamp = Vec<(PathBuf, Option<(SystemTime, u64)>)>;

/// The stamp of all files of `params`, as they are now. A directory's own time does not change when a file in it is written over.
pub(super) fn stamp(params: &TlsParams) -> Stamp {
    let named = [&params.ca, &params.capath, &params.cert, &params.key, &params.crl, &params.crlpath];
    let directories = [&params.capath, &params.crlpath].into_iter().flatten();
    let listed = directories.flat_map(|directory| entries(directory).unwrap_or_default().into_iter().take(STAMPED_MAX));
    let of_system = if outgoing::uses_system_roots(params) { system_file() } else { None };
    let paths = named.into_iter().flatten().cloned().chain(listed).chain(of_system);
    let state = |path: &Path| {
        let meta = fs::metadata(path).ok()?;
        Some((meta.modified().ok()?, meta.len()))
    };
    paths
        .map(|path| {
            let state = state(&path);
            (path, state)
        })
        .collect()
}

/// All certificates of one file; none is an error.
pub(super) fn certificates(setting: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    at_least_one(setting, path, "certificate", read(setting, path)?)
}

/// All revocation lists of one file; none is an error.
pub(super) fn revocation_lists(setting: &str, path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
    at_least_one(setting, path, "revocation list", read(setting, path)?)
}

/// The private key of one file: PKCS#8, PKCS#1 or SEC1, not encrypted.
pub(super) fn private_key(setting: &str, path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let at = |why: String| format!("{setting}: {}: {why}", path.display());
    PrivateKeyDer::from_pem_file(path).map_err(|e| match e {
        pem::Error::NoItemsFound => at("no unencrypted private key in it".into()),
        e => at(cause(e)),
    })
}

/// The objects in the files of a directory, in the order of the files' names. OpenSSL wants hashed names there. Here any name will do, and
/// files with other content are ignored.
pub(super) fn in_directory<T: PemObject>(setting: &str, directory: &Path, what: &str) -> Result<Vec<T>, String> {
    let paths = entries(directory).map_err(|e| format!("{setting}: {}: {e}", directory.display()))?;
    let files = paths.iter().filter(|path| path.is_file());
    let found = files.filter_map(|path| read::<T>(setting, path).ok()).flatten().collect();
    at_least_one(setting, directory, what, found)
}

/// What is in a directory, in the order of the names.
fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// The file of the CAs that the system trusts.
fn system_file() -> Option<PathBuf> {
    SYSTEM_ROOTS.iter().map(PathBuf::from).find(|path| path.is_file())
}

/// The CAs that the system trusts, and the file they came from.
pub(super) fn system_roots() -> Result<(Vec<CertificateDer<'static>>, PathBuf), String> {
    let path = system_file().ok_or_else(|| {
        let looked = SYSTEM_ROOTS.join(", ");
        format!("mysql-backend_ssl_verify needs a CA, but ssl_ca is not set and the system has none (looked for {looked})")
    })?;
    Ok((certificates("the system's CAs", &path)?, path))
}

/// A certificate chain and its key, which must belong together. X.509 v1 certificates are as good as any, which they
/// would not be with rustls' own check.
pub(super) fn certified_key(
    provider: &CryptoProvider,
    (cert_setting, cert): (&str, &Path),
    (key_setting, key): (&str, &Path),
) -> Result<CertifiedKey, String> {
    let chain = certificates(cert_setting, cert)?;
    let loaded = provider.key_provider.load_private_key(private_key(key_setting, key)?);
    let loaded = loaded.map_err(|e| format!("{key_setting}: {}: cannot be used: {e}", key.display()))?;
    let (_, leaf) =
        X509Certificate::from_der(&chain[0]).map_err(|e| format!("{cert_setting}: {}: not a certificate: {e}", cert.display()))?;
    match loaded.public_key() {
        Some(public) if public.as_ref() != leaf.public_key().raw => {
            Err(format!("{key_setting}: {} is not the key of {cert_setting}: {}", key.display(), cert.display()))
        }
        _ => Ok(CertifiedKey::new(chain, loaded)),
    }
}

fn read<T: PemObject>(setting: &str, path: &Path) -> Result<Vec<T>, String> {
    let at = |e| format!("{setting}: {}: {}", path.display(), cause(e));
    T::pem_file_iter(path).map_err(at)?.collect::<Result<Vec<_>, _>>().map_err(at)
}

fn cause(error: pem::Error) -> String {
    match error {
        pem::Error::Io(e) => e.to_string(),
        e => e.to_string(),
    }
}

fn at_least_one<T>(setting: &str, path: &Path, what: &str, found: Vec<T>) -> Result<Vec<T>, String> {
    if found.is_empty() { Err(format!("{setting}: {}: no {what} in it", path.display())) } else { Ok(found) }
}
