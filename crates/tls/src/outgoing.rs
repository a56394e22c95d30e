//! The configuration towards servers, built from [`TlsParams`].

use std::sync::Arc;

use model::settings::BackendSslVerify;
use model::snapshot::TlsParams;
use rustls::ClientConfig;
use rustls::client::{Resumption, WantsClientCert};
use rustls::crypto::CryptoProvider;
use rustls::sign::SingleCertAndKey;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer};

use super::trust::{BackendVerifier, Chain, Trust};
use super::{ciphers, files};

/// Builds it; errors name the setting at fault.
pub(super) fn config(params: &TlsParams) -> Result<ClientConfig, String> {
    let provider = Arc::new(ciphers::provider(params.cipher.as_deref())?);
    let versions = ciphers::versions(params.tls_version.as_deref())?;
    let verifier = BackendVerifier::new(&provider, trust(params, &provider)?);
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&versions)
        .map_err(|e| format!("ssl_cipher and tls_version leave nothing to offer: {e}"))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = with_own_certificate(builder, params, &provider)?;
    // Sessions would be kept by host name alone, and servers of one host differ by port.
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// Whether the certificate has to name the host.
pub(super) fn checks_names(params: &TlsParams) -> bool {
    params.verify == BackendSslVerify::Identity
}

/// Our own certificate, if there is one. As in MySQL, certificate and key may share a file that only one of the two
/// settings names.
fn with_own_certificate(
    builder: rustls::ConfigBuilder<ClientConfig, WantsClientCert>,
    params: &TlsParams,
    provider: &CryptoProvider,
) -> Result<ClientConfig, String> {
    let (cert, key) = match (&params.cert, &params.key) {
        (Some(cert), Some(key)) => (("ssl_cert", cert), ("ssl_key", key)),
        (Some(both), None) => (("ssl_cert", both), ("ssl_cert (ssl_key is not set)", both)),
        (None, Some(both)) => (("ssl_key (ssl_cert is not set)", both), ("ssl_key", both)),
        (None, None) => return Ok(builder.with_no_client_auth()),
    };
    let pair = files::certified_key(provider, (cert.0, cert.1), (key.0, key.1))?;
    Ok(builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(pair))))
}

/// The trusted certificates. A configured CA is meant to be used: with one, `off` means `ca`.
fn trust(params: &TlsParams, provider: &Arc<CryptoProvider>) -> Result<Trust, String> {
    let has_ca = params.ca.is_some() || params.capath.is_some();
    match params.verify {
        BackendSslVerify::Off if !has_ca => refuse_useless_crl(params).map(|()| Trust::Anyone),
        BackendSslVerify::Off | BackendSslVerify::Ca => chain(params, provider).map(Trust::Chain),
        BackendSslVerify::Identity => chain(params, provider).map(Trust::ChainAndName),
    }
}

/// Revocation lists without a check would only seem to protect.
fn refuse_useless_crl(params: &TlsParams) -> Result<(), String> {
    if params.crl.is_some() || params.crlpath.is_some() {
        Err("ssl_crl or ssl_crlpath is set, but certificates are not checked: set ssl_ca or \
             mysql-backend_ssl_verify"
            .into())
    } else {
        Ok(())
    }
}

fn chain(params: &TlsParams, provider: &Arc<CryptoProvider>) -> Result<Chain, String> {
    Chain::new(anchors(params)?, revocation_lists(params)?, provider)
}

/// Whether certificates are checked, and only the system's CAs are trusted.
pub(super) fn uses_system_roots(params: &TlsParams) -> bool {
    params.verify != BackendSslVerify::Off && params.ca.is_none() && params.capath.is_none()
}

fn anchors(params: &TlsParams) -> Result<Vec<CertificateDer<'static>>, String> {
    if uses_system_roots(params) {
        return Ok(files::system_roots()?.0);
    }
    let mut anchors = Vec::new();
    if let Some(path) = &params.ca {
        anchors.extend(files::certificates("ssl_ca", path)?);
    }
    if let Some(path) = &params.capath {
        anchors.extend(files::in_directory("ssl_capath", path, "certificate")?);
    }
    Ok(anchors)
}

fn revocation_lists(params: &TlsParams) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
    let mut lists = Vec::new();
    if let Some(path) = &params.crl {
        lists.extend(files::revocation_lists("ssl_crl", path)?);
    }
    if let Some(path) = &params.crlpath {
        lists.extend(files::in_directory("ssl_crlpath", path, "revocation list")?);
    }
    Ok(lists)
}
