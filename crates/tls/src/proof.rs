//! Proof that a peer holds the key of the certificate it showed: the signature over the handshake. Pure.
//!
//! rustls' own check parses the certificate with webpki, which refuses X.509 v1 even where no trust is asked for.
//! MySQL's and MariaDB's manuals and older servers make v1 certificates, so only the public key is taken from it here.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::sign::public_key_to_spki;
use rustls::{CertificateError, DigitallySignedStruct, Error, PeerMisbehaved};
use rustls_pki_types::{CertificateDer, SubjectPublicKeyInfoDer};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Parses a certificate that a peer has sent; bytes after it are an error.
pub(super) fn parse<'a>(cert: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, Error> {
    match X509Certificate::from_der(cert) {
        Ok(([], parsed)) => Ok(parsed),
        _ => Err(CertificateError::BadEncoding.into()),
    }
}

/// The signature of a TLS 1.2 handshake: any algorithm that fits both the scheme and the key may match (RFC 5246, 4.8).
pub(super) fn tls12(
    message: &[u8],
    cert: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, Error> {
    let parsed = parse(cert)?;
    let (spki, key) = (parsed.public_key().raw, &*parsed.public_key().subject_public_key.data);
    let offered = algorithms.mapping.iter().find(|(scheme, _)| *scheme == signed.scheme);
    let (_, candidates) = offered.ok_or(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)?;
    let fits_key = candidates.iter().filter(|a| public_key_to_spki(&a.public_key_alg_id(), key).as_ref() == spki);
    let mut checks = fits_key.map(|algorithm| algorithm.verify_signature(key, message, signed.signature()));
    if checks.any(|check| check.is_ok()) { Ok(HandshakeSignatureValid::assertion()) } else { Err(CertificateError::BadSignature.into()) }
}

/// The signature of a TLS 1.3 handshake (RFC 8446, 4.4.3).
pub(super) fn tls13(
    message: &[u8],
    cert: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, Error> {
    let parsed = parse(cert)?;
    let spki = SubjectPublicKeyInfoDer::from(parsed.public_key().raw);
    verify_tls13_signature_with_raw_key(message, &spki, signed, algorithms)
}
