//! TLS: towards servers ([`client`]) and towards clients ([`server`]).
//!
//! Owns the certificates, keys and rules of trust; not the bytes, which `stream` moves. One [`ClientConfigs`] and one
//! server configuration a process, shared by all workers. The cryptography is aws-lc's, named wherever it is used: no
//! process-wide default is installed.
//!
//! INVARIANT: whatever is trusted, the peer has always proven that it holds the key of the certificate it showed.

mod carried;
mod ciphers;
mod facts;
mod files;
mod generate;
mod keys;
mod listen;
mod outgoing;
mod proof;
mod session;
mod trust;

#[cfg(test)]
mod tests;

pub use carried::{Carried, TlsRecord};
pub use facts::{Certificate, certificates, server_files};

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::digest::{SHA256, digest};
use model::snapshot::{Address, Server, TlsParams};
use rustls::{ClientConfig, ClientConnection, ServerConfig};
use rustls_pki_types::{CertificateDer, IpAddr, ServerName};

use files::Stamp;
pub use keys::KeyFile;
pub use session::{Begun, Session};

/// Most configurations kept; beyond it all are dropped and built again as they are needed.
const CONFIGS_MAX: usize = 1_024;

/// Most complaints that wait to be logged.
const COMPLAINTS_MAX: usize = 16;

/// The client configurations built so far, by the parameters they were built from.
///
/// A configuration is built again when one of its files has changed, so renewed certificates are used by the next
/// connection without a reload. While the changed files are unfit, the former configuration stays in use.
#[derive(Debug, Default)]
pub struct ClientConfigs {
    kept: Mutex<HashMap<TlsParams, Kept>>,
    complaints: Mutex<Vec<String>>,
    keys: Arc<KeyFile>,
}

/// A configuration, and what it was built from.
#[derive(Debug)]
struct Kept {
    stamp: Stamp,
    config: Arc<ClientConfig>,
    /// The files, as they were found unfit last.
    unfit: Option<Stamp>,
}

impl ClientConfigs {
    /// The file for the keys of these sessions.
    pub fn keys(&self) -> &Arc<KeyFile> {
        &self.keys
    }

    /// Takes the lines for the log: files that have changed are unfit, and connections use what was read before. There is one line for
    /// each change. Callers of [`client`] and [`towards`] ask for them afterwards.
    pub fn complaints(&self) -> Vec<String> {
        std::mem::take(&mut *self.complaints.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The configuration for `params`; errors name the setting at fault, and are not kept.
    fn get(&self, params: &TlsParams) -> Result<Arc<ClientConfig>, String> {
        let stamp = files::stamp(params);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = kept.get(params).filter(|known| known.stamp == stamp) {
            return Ok(Arc::clone(&known.config));
        }
        match outgoing::config(params) {
            Ok(mut config) => {
                config.key_log = self.keys.clone();
                config.enable_secret_extraction = true;
                let config = Arc::new(config);
                if kept.len() >= CONFIGS_MAX {
                    kept.clear();
                }
                kept.insert(params.clone(), Kept { stamp, config: Arc::clone(&config), unfit: None });
                Ok(config)
            }
            Err(why) => {
                // A certificate and its key are written one after the other.
                let Some(known) = kept.get_mut(params) else { return Err(why) };
                if known.unfit.as_ref() != Some(&stamp) {
                    known.unfit = Some(stamp);
                    self.complain(format!("TLS to servers: {why}: connections use the files as they were before"));
                }
                Ok(Arc::clone(&known.config))
            }
        }
    }

    fn complain(&self, text: String) {
        let mut complaints = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        if complaints.len() < COMPLAINTS_MAX {
            complaints.push(text);
        }
    }
}

/// Starts TLS towards `server` on behalf of `user`, as `mysql_servers_ssl_params` and `mysql-ssl_p2s_*` say.
///
/// `mysql-backend_ssl_verify` says how the certificate is checked. `off` accepts any, unless a CA is configured: then it means `ca`. `ca`
/// requires a chain to a configured CA, or to one of the system's if none is configured. `identity` also requires the host's name.
///
/// # Errors
/// A sentence for the operator that names the setting. Files are unreadable or unfit, ciphers or versions are unknown, or `identity` is set
/// and no certificate can name the host.
pub fn client(configs: &ClientConfigs, server: &Server, user: &str) -> Result<ClientConnection, String> {
    let (config, name) = towards(configs, server, user)?;
    let host = &server.key.host;
    ClientConnection::new(config, name).map_err(|e| format!("TLS to {host}: {e}"))
}

/// As [`client`], for callers that drive rustls through a library: the configuration, and the server's name.
///
/// # Errors
/// As those of [`client`].
pub fn towards(configs: &ClientConfigs, server: &Server, user: &str) -> Result<(Arc<ClientConfig>, ServerName<'static>), String> {
    let Address::Tcp { host, .. } = &server.address else {
        return Err("TLS is not used over Unix sockets".into());
    };
    let params = server.tls_for(user);
    let name = server_name(host, params)?;
    Ok((configs.get(params)?, name))
}

/// The name that the certificate must have. If names are not checked, an invalid host name is replaced by an address. This also keeps it
/// out of the handshake's server name extension.
fn server_name(host: &str, params: &TlsParams) -> Result<ServerName<'static>, String> {
    match ServerName::try_from(host.to_owned()) {
        Ok(name) => Ok(name),
        Err(_) if outgoing::checks_names(params) => {
            Err(format!("mysql-backend_ssl_verify is identity, but no certificate can name the host '{host}'"))
        }
        Err(_) => Ok(ServerName::IpAddress(IpAddr::from(std::net::Ipv4Addr::UNSPECIFIED))),
    }
}

/// TLS as clients are offered it.
#[derive(Debug)]
pub struct ServerTls {
    /// The configuration of handshakes.
    pub config: Arc<ServerConfig>,
    /// SHA-256 of the certificate that clients are shown.
    pub fingerprint: [u8; 32],
}

impl ServerTls {
    /// `config` shows `certificate` first.
    pub fn new(config: Arc<ServerConfig>, certificate: &CertificateDer<'_>) -> Self {
        let mut fingerprint = [0; 32];
        fingerprint.copy_from_slice(digest(&SHA256, certificate).as_ref());
        Self { config, fingerprint }
    }
}

/// TLS towards clients, with `proxysql-ca.pem`, `proxysql-cert.pem` and `proxysql-key.pem` of `datadir`. They are generated if none of them
/// exists. TLS 1.2 and 1.3, no session tickets; a client may show any certificate. The keys of sessions go to `keys`.
///
/// # Errors
/// Some of the files are missing, unreadable, or do not belong together, each by its path.
pub fn server(datadir: &Path, keys: &Arc<KeyFile>) -> Result<Arc<ServerTls>, String> {
    generate::ensure_files(datadir)?;
    let (mut config, certificate) = listen::config(datadir)?;
    config.key_log = keys.clone();
    config.enable_secret_extraction = true;
    Ok(Arc::new(ServerTls::new(Arc::new(config), &certificate)))
}

/// TLS towards a service other than a database server. Its certificate must name the host, and chain to the CA of `params` or to one of the
/// system's. Files are read at each call.
///
/// # Errors
/// Files that are unreadable or unfit, by the setting's last word (`ssl_ca`, `ssl_cert`, `ssl_key`).
pub fn to_service(params: &TlsParams) -> Result<Arc<ClientConfig>, String> {
    Ok(Arc::new(outgoing::config(params)?))
}
