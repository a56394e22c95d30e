//! The configuration towards clients.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme};
use rustls_pki_types::{CertificateDer, UnixTime};

use super::generate::{CA_FILE, CERT_FILE, KEY_FILE};
use super::{files, proof};

/// Builds it from the files of `datadir`. Returns also the certificate that clients see. The CA is only read to find faults early: a user's
/// row decides which client certificates are trusted.
pub(super) fn config(datadir: &Path) -> Result<(ServerConfig, CertificateDer<'static>), String> {
    let provider = aws_lc_rs::default_provider();
    files::certificates("TLS to clients", &datadir.join(CA_FILE))?;
    let (cert, key) = (datadir.join(CERT_FILE), datadir.join(KEY_FILE));
    let pair = files::certified_key(&provider, ("TLS to clients", &cert), ("TLS to clients", &key))?;
    // INVARIANT: a pair that was read has one certificate or more.
    let leaf = pair.cert.first().cloned().ok_or("TLS to clients: no certificate")?;
    Ok((with_key(provider, pair)?, leaf))
}

/// Tickets and sessions are off: they cost a packet a handshake, and would outlive the certificate they were made with.
pub(super) fn with_key(provider: CryptoProvider, pair: CertifiedKey) -> Result<ServerConfig, String> {
    let clients = Arc::new(AnyClient { algorithms: provider.signature_verification_algorithms });
    let builder = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(|e| format!("TLS to clients: {e}"))?;
    let resolver = Arc::new(SingleCertAndKey::from(pair));
    let mut config = builder.with_client_cert_verifier(clients).with_cert_resolver(resolver);
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(config)
}

/// Asks clients for a certificate, and takes whichever they show, or none.
#[derive(Debug)]
struct AnyClient {
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _leaf: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        proof::tls12(message, cert, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        proof::tls13(message, cert, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
