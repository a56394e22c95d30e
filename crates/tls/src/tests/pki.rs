//! A throw-away CA, its certificates, a directory to keep them in, and handshakes in memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use model::ServerAddr;
use model::snapshot::{Server, TlsParams};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustls::crypto::aws_lc_rs;
use rustls::sign::CertifiedKey;
use rustls::{ClientConnection, ServerConfig, ServerConnection};

use crate::{ClientConfigs, client, files, listen};

/// A directory of its own for one test, removed at its end.
pub(super) struct Dir(pub PathBuf);

impl Dir {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("tidegate-tls-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(super) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(super) struct Ca {
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Ca {
    pub(super) fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = named(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Self { pem: params.self_signed(&key).unwrap().pem(), issuer: Issuer::new(params, key) }
    }

    /// Signs `params`; the chain and its key, as PEM.
    pub(super) fn sign(&self, params: &CertificateParams) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    /// A CA below this one.
    pub(super) fn intermediate(&self, name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = named(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.signed_by(&key, &self.issuer).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// Signed by this CA and able to sign, but not allowed to.
    pub(super) fn signed_non_ca(&self, name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let params = named(name);
        let pem = params.signed_by(&key, &self.issuer).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    pub(super) fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// A revocation list of one serial number, outdated at the start of `next_year`.
    pub(super) fn revoke(&self, serial: u64, next_year: i32) -> String {
        let revoked = RevokedCertParams {
            serial_number: SerialNumber::from(serial),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(next_year, 1, 1),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).unwrap().pem().unwrap()
    }
}

/// A certificate of one common name and nothing else.
pub(super) fn named(common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}

/// As [`named`], with alternative names.
pub(super) fn with_names(common_name: &str, names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let mut params = named(common_name);
    params.subject_alt_names = CertificateParams::new(names).unwrap().subject_alt_names;
    params
}

/// A server with `(chain, key)`, as strict as ours towards clients.
pub(super) fn server(dir: &Dir, (chain, key): &(String, String)) -> Arc<ServerConfig> {
    let (cert, key) = (dir.write("server-cert.pem", chain), dir.write("server-key.pem", key));
    server_of_files(&cert, &key)
}

pub(super) fn server_of_files(cert: &Path, key: &Path) -> Arc<ServerConfig> {
    let provider = aws_lc_rs::default_provider();
    let pair = files::certified_key(&provider, ("cert", cert), ("key", key)).unwrap();
    Arc::new(listen::with_key(provider, pair).unwrap())
}

/// A server that shows `chain` but signs with another key.
pub(super) fn mismatched_server(dir: &Dir, chain: &str, key: &str) -> Arc<ServerConfig> {
    let provider = aws_lc_rs::default_provider();
    let chain = files::certificates("cert", &dir.write("cert.pem", chain)).unwrap();
    let key = files::private_key("key", &dir.write("key.pem", key)).unwrap();
    let key = provider.key_provider.load_private_key(key).unwrap();
    Arc::new(listen::with_key(provider, CertifiedKey::new(chain, key)).unwrap())
}

/// A row of `mysql_servers` for `host` with these parameters.
pub(super) fn row(host: &str, params: &TlsParams) -> Server {
    let addr = ServerAddr { host: host.into(), port: 3306 };
    Server { use_ssl: true, tls: Arc::new(params.clone()), ..Server::at(&addr) }
}

/// Connects to `server` as the host `host`; the handshake's end as both sides see it.
pub(super) fn connect(host: &str, params: &TlsParams, server: &Arc<ServerConfig>) -> Result<(ClientConnection, ServerConnection), String> {
    let ours = client(&ClientConfigs::default(), &row(host, params), "app")?;
    handshake(ours, ServerConnection::new(server.clone()).unwrap())
}

pub(super) fn handshake(
    mut client: ClientConnection,
    mut server: ServerConnection,
) -> Result<(ClientConnection, ServerConnection), String> {
    for _ in 0..10 {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        feed(&bytes, |rest| server.read_tls(rest));
        server.process_new_packets().map_err(|e| format!("server: {e:?}"))?;
        bytes.clear();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        feed(&bytes, |rest| client.read_tls(rest));
        client.process_new_packets().map_err(|e| format!("client: {e:?}"))?;
    }
    if client.is_handshaking() || server.is_handshaking() { Err("did not end".into()) } else { Ok((client, server)) }
}

fn feed(mut bytes: &[u8], mut read: impl FnMut(&mut dyn std::io::Read) -> std::io::Result<usize>) {
    while !bytes.is_empty() {
        read(&mut bytes).unwrap();
    }
}

/// The files of MySQL's manual: an RSA CA, and an X.509 v1 certificate of `server1`, serial number 1, signed by it, as `ca.pem`,
/// `v1-cert.pem` and `v1-key.pem`. False if this machine has no `openssl`.
pub(super) fn make_v1(dir: &Dir) -> bool {
    let lines = [
        "req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=v1-ca -keyout ca-key.pem -out ca.pem",
        "req -newkey rsa:2048 -nodes -subj /CN=server1 -keyout v1-key.pem -out v1-req.pem",
        "x509 -req -in v1-req.pem -days 30 -CA ca.pem -CAkey ca-key.pem -set_serial 01 -out v1-cert.pem",
    ];
    lines.iter().all(|line| openssl(dir, line))
}

pub(super) fn openssl(dir: &Dir, line: &str) -> bool {
    match Command::new("openssl").args(line.split(' ')).current_dir(&dir.0).output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            true
        }
        Err(e) => {
            eprintln!("skipped: no openssl here ({e})");
            false
        }
    }
}
