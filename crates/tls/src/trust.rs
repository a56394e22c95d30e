//! Whether a server's certificate is trusted: its signer, its dates, its revocation, its name. Pure.
//!
//! webpki checks chains. It refuses two kinds of certificates that MySQL's users have; those are checked here. They are X.509 v1
//! certificates, which a configured CA must have signed directly, and self-signed ones that are configured as the CA. As in RFC 5280,
//! 6.1.1, the dates of a CA that the operator configured are not checked.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, UnixTime};
use x509_parser::oid_registry::{OID_PKCS1_SHA1WITHRSA, OID_SHA1_WITH_RSA, OID_X509_EXT_SUBJECT_ALT_NAME};
use x509_parser::prelude::{ASN1Time, CertificateRevocationList, FromDer, X509Certificate, X509Version};
use x509_parser::x509::AlgorithmIdentifier;

use super::proof;

/// The rule for servers' certificates.
#[derive(Debug)]
pub(super) enum Trust {
    /// Any server.
    Anyone,
    /// Servers whose certificate leads to a CA.
    Chain(Chain),
    /// Servers whose certificate also names the host.
    ChainAndName(Chain),
}

/// Checks servers' certificates for rustls.
#[derive(Debug)]
pub(super) struct BackendVerifier {
    algorithms: WebPkiSupportedAlgorithms,
    trust: Trust,
}

impl BackendVerifier {
    pub(super) fn new(provider: &CryptoProvider, trust: Trust) -> Self {
        Self { algorithms: provider.signature_verification_algorithms, trust }
    }
}

impl ServerCertVerifier for BackendVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match &self.trust {
            Trust::Anyone => {}
            Trust::Chain(chain) => chain.check(leaf, intermediates, now)?,
            Trust::ChainAndName(chain) => {
                chain.check(leaf, intermediates, now)?;
                check_name(leaf, server_name)?;
            }
        }
        Ok(ServerCertVerified::assertion())
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

/// The trusted CAs and their revocations.
#[derive(Debug)]
pub(super) struct Chain {
    anchors: Vec<CertificateDer<'static>>,
    revocation_lists: Vec<CertificateRevocationListDer<'static>>,
    webpki: Arc<WebPkiServerVerifier>,
}

impl Chain {
    /// Anchors that cannot be read are passed over, as some of the system's may be; none left is an error. With
    /// revocation lists, a certificate of a CA that has none, or only an outdated one, is not trusted, as in MySQL.
    pub(super) fn new(
        anchors: Vec<CertificateDer<'static>>,
        revocation_lists: Vec<CertificateRevocationListDer<'static>>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        if roots.add_parsable_certificates(anchors.iter().cloned()).0 == 0 {
            return Err("ssl_ca: none of its certificates can be used as a CA".into());
        }
        let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let webpki = builder
            .with_crls(revocation_lists.iter().cloned())
            .enforce_revocation_expiration()
            .build()
            .map_err(|e| format!("ssl_crl: a revocation list cannot be used: {e}"))?;
        Ok(Self { anchors, revocation_lists, webpki })
    }

    fn check(&self, leaf: &CertificateDer<'_>, intermediates: &[CertificateDer<'_>], now: UnixTime) -> Result<(), Error> {
        let parsed = proof::parse(leaf)?;
        if self.anchors.iter().any(|anchor| anchor.as_ref() == leaf.as_ref()) {
            return check_dates(&parsed, asn1_time(now)?);
        }
        match parsed.version() {
            X509Version::V3 => self.check_v3(leaf, intermediates, now),
            _ => self.check_v1(&parsed, asn1_time(now)?),
        }
    }

    /// webpki checks the name last and there is no way to leave that out, so a wrong name here means a good chain.
    fn check_v3(&self, leaf: &CertificateDer<'_>, intermediates: &[CertificateDer<'_>], now: UnixTime) -> Result<(), Error> {
        let any_name = ServerName::IpAddress(std::net::Ipv4Addr::UNSPECIFIED.into());
        match self.webpki.verify_server_cert(leaf, intermediates, &any_name, &[], now) {
            Ok(_) => Ok(()),
            Err(Error::InvalidCertificate(CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. })) => Ok(()),
            Err(e) => Err(e),
        }
    }

    fn check_v1(&self, leaf: &X509Certificate<'_>, now: ASN1Time) -> Result<(), Error> {
        refuse_sha1(&leaf.signature_algorithm)?;
        let parsed = self.anchors.iter().filter_map(|anchor| proof::parse(anchor).ok());
        let mut named = parsed.filter(|anchor| anchor.subject().as_raw() == leaf.issuer().as_raw());
        let issuer = named.find(|anchor| leaf.verify_signature(Some(anchor.public_key())).is_ok());
        let issuer = issuer.ok_or(CertificateError::UnknownIssuer)?;
        check_dates(leaf, now)?;
        self.check_revocation_v1(leaf, &issuer, now)
    }

    fn check_revocation_v1(&self, leaf: &X509Certificate<'_>, issuer: &X509Certificate<'_>, now: ASN1Time) -> Result<(), Error> {
        if self.revocation_lists.is_empty() {
            return Ok(());
        }
        let parsed = self.revocation_lists.iter().filter_map(|der| CertificateRevocationList::from_der(der).ok());
        let mut of_issuer = parsed
            .map(|(_, list)| list)
            .filter(|list| list.issuer().as_raw() == issuer.subject().as_raw() && list.verify_signature(issuer.public_key()).is_ok());
        let list = of_issuer.next().ok_or(CertificateError::UnknownRevocationStatus)?;
        refuse_sha1(&list.signature_algorithm)?;
        if list.next_update().is_none_or(|next| next < now) {
            return Err(CertificateError::UnknownRevocationStatus.into());
        }
        if list.iter_revoked_certificates().any(|revoked| revoked.raw_serial() == leaf.raw_serial()) {
            Err(CertificateError::Revoked.into())
        } else {
            Ok(())
        }
    }
}

/// x509-parser would take SHA-1, which can be forged; webpki does not either.
fn refuse_sha1(algorithm: &AlgorithmIdentifier<'_>) -> Result<(), Error> {
    if [OID_PKCS1_SHA1WITHRSA, OID_SHA1_WITH_RSA].contains(&algorithm.algorithm) {
        Err(CertificateError::BadSignature.into())
    } else {
        Ok(())
    }
}

fn asn1_time(now: UnixTime) -> Result<ASN1Time, Error> {
    let secs = i64::try_from(now.as_secs()).map_err(|_| Error::FailedToGetCurrentTime)?;
    ASN1Time::from_timestamp(secs).map_err(|_| Error::FailedToGetCurrentTime)
}

fn check_dates(cert: &X509Certificate<'_>, now: ASN1Time) -> Result<(), Error> {
    let validity = cert.validity();
    if now < validity.not_before {
        return Err(CertificateError::NotValidYet.into());
    }
    if now > validity.not_after { Err(CertificateError::Expired.into()) } else { Ok(()) }
}

/// The alternative names decide where there are any; else the common name does, as with MySQL's VERIFY_IDENTITY.
fn check_name(leaf: &CertificateDer<'_>, wanted: &ServerName<'_>) -> Result<(), Error> {
    let parsed = proof::parse(leaf)?;
    if parsed.extensions().iter().any(|extension| extension.oid == OID_X509_EXT_SUBJECT_ALT_NAME) {
        return verify_server_name(&ParsedCertificate::try_from(leaf)?, wanted);
    }
    let mut common_names = parsed.subject().iter_common_name().filter_map(|name| name.as_str().ok());
    if common_names.any(|name| common_name_matches(name, wanted)) { Ok(()) } else { Err(CertificateError::NotValidForName.into()) }
}

/// Names are compared without case; `*` may stand for the whole first label of three or more (RFC 6125, 6.4.3).
fn common_name_matches(pattern: &str, wanted: &ServerName<'_>) -> bool {
    let wanted = wanted.to_str();
    let wanted = wanted.trim_end_matches('.');
    if pattern.eq_ignore_ascii_case(wanted) {
        return true;
    }
    let is_address = wanted.parse::<std::net::IpAddr>().is_ok();
    match (pattern.strip_prefix("*."), wanted.split_once('.')) {
        (Some(rest), Some((_, parent))) if !is_address && parent.contains('.') => rest.eq_ignore_ascii_case(parent),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, wanted: &str) -> bool {
        common_name_matches(pattern, &ServerName::try_from(wanted).unwrap())
    }

    #[test]
    fn common_names_match_as_host_names_do() {
        assert!(matches("DB1.example", "db1.EXAMPLE"));
        assert!(matches("*.db.example", "one.db.example"));
        assert!(matches("10.0.0.1", "10.0.0.1"));
        assert!(!matches("*.db.example", "a.one.db.example"));
        assert!(!matches("*.db.example", "db.example"));
        assert!(!matches("*.example", "db.example"));
        assert!(!matches("*.0.0.1", "10.0.0.1"));
        assert!(!matches("*", "db.example"));
        assert!(!matches("", "db.example"));
    }
}
