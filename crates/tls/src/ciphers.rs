//! The settings `ssl_cipher` and `tls_version` in rustls' terms. Pure.
//!
//! OpenSSL's rule is kept: a list of TLS 1.2 ciphers says nothing about TLS 1.3, whose suites then all stay.
//! <https://docs.openssl.org/3.0/man3/SSL_CTX_set_cipher_list/>

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, ProtocolVersion, SupportedProtocolVersion};

/// OpenSSL's names for the suites that rustls has.
const CIPHERS: [(&str, CipherSuite); 9] = [
    ("TLS_AES_256_GCM_SHA384", CipherSuite::TLS13_AES_256_GCM_SHA384),
    ("TLS_AES_128_GCM_SHA256", CipherSuite::TLS13_AES_128_GCM_SHA256),
    ("TLS_CHACHA20_POLY1305_SHA256", CipherSuite::TLS13_CHACHA20_POLY1305_SHA256),
    ("ECDHE-ECDSA-AES256-GCM-SHA384", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-ECDSA-AES128-GCM-SHA256", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("ECDHE-RSA-AES256-GCM-SHA384", CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-RSA-AES128-GCM-SHA256", CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-RSA-CHACHA20-POLY1305", CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
];

/// The provider reduced to the ciphers of `ssl_cipher` (separated by `:`, commas or spaces), in that order; all of
/// them without the setting.
pub(super) fn provider(setting: Option<&str>) -> Result<CryptoProvider, String> {
    let mut provider = aws_lc_rs::default_provider();
    let Some(setting) = setting else {
        return Ok(provider);
    };
    let names = setting.split([':', ',', ' ']).filter(|name| !name.is_empty());
    let mut wanted = names.map(suite).collect::<Result<Vec<_>, _>>()?;
    if wanted.is_empty() {
        return Ok(provider);
    }
    let all = std::mem::take(&mut provider.cipher_suites);
    let is_tls13 = |suite: CipherSuite| all.iter().any(|s| s.suite() == suite && s.tls13().is_some());
    if !wanted.iter().any(|&suite| is_tls13(suite)) {
        let tls13 = all.iter().filter(|suite| suite.tls13().is_some());
        wanted.splice(0..0, tls13.map(|suite| suite.suite()));
    }
    let find = |wanted: &CipherSuite| all.iter().find(|suite| suite.suite() == *wanted).copied();
    provider.cipher_suites = wanted.iter().filter_map(find).collect();
    Ok(provider)
}

fn suite(name: &str) -> Result<CipherSuite, String> {
    let found = CIPHERS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    found.map(|(_, suite)| *suite).ok_or_else(|| {
        let known = CIPHERS.map(|(known, _)| known).join(", ");
        format!("ssl_cipher: '{name}' is not supported; known are {known}")
    })
}

/// The versions of `tls_version` (separated by commas); TLS 1.2 and 1.3 without the setting.
pub(super) fn versions(setting: Option<&str>) -> Result<Vec<&'static SupportedProtocolVersion>, String> {
    let names = setting.unwrap_or_default().split([',', ':', ' ']).filter(|name| !name.is_empty());
    let listed = names.map(version).collect::<Result<Vec<_>, _>>()?;
    let (tls13, tls12) = (has(&listed, ProtocolVersion::TLSv1_3), has(&listed, ProtocolVersion::TLSv1_2));
    Ok(match (tls13, tls12) {
        (true, false) => vec![&TLS13],
        (false, true) => vec![&TLS12],
        _ => vec![&TLS13, &TLS12],
    })
}

fn has(versions: &[&SupportedProtocolVersion], version: ProtocolVersion) -> bool {
    versions.iter().any(|supported| supported.version == version)
}

fn version(name: &str) -> Result<&'static SupportedProtocolVersion, String> {
    match name.to_ascii_lowercase().as_str() {
        "tlsv1.2" => Ok(&TLS12),
        "tlsv1.3" => Ok(&TLS13),
        "sslv3" | "tlsv1" | "tlsv1.0" | "tlsv1.1" => {
            Err(format!("tls_version: {name} is too old to be safe and is not supported; use TLSv1.2,TLSv1.3"))
        }
        _ => Err(format!("tls_version: '{name}' is unknown; known are TLSv1.2, TLSv1.3")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls12_ciphers_leave_tls13_alone() {
        let suites = provider(Some("ECDHE-RSA-AES128-GCM-SHA256")).unwrap().cipher_suites;
        let names: Vec<_> = suites.iter().map(|s| s.suite()).collect();
        assert_eq!(names.len(), 4);
        assert_eq!(names[3], CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256);
    }

    #[test]
    fn tls13_ciphers_are_taken_as_they_stand() {
        let suites = provider(Some("TLS_AES_128_GCM_SHA256")).unwrap().cipher_suites;
        assert_eq!(suites.len(), 1);
    }

    #[test]
    fn every_known_cipher_exists() {
        for (name, suite) in CIPHERS {
            assert!(provider(Some(name)).unwrap().cipher_suites.iter().any(|s| s.suite() == suite), "{name}");
        }
    }

    #[test]
    fn unknown_ciphers_are_refused_with_the_known_ones() {
        let error = provider(Some("ECDHE-RSA-AES128-GCM-SHA256:AES128-SHA")).unwrap_err();
        assert!(error.contains("'AES128-SHA'") && error.contains("ECDHE-RSA-AES256-GCM-SHA384"), "{error}");
    }

    #[test]
    fn versions_are_read_in_any_order() {
        let read = |text| versions(Some(text)).unwrap().iter().map(|v| v.version).collect::<Vec<_>>();
        assert_eq!(read("TLSv1.2"), [ProtocolVersion::TLSv1_2]);
        assert_eq!(read("TLSv1.3"), [ProtocolVersion::TLSv1_3]);
        assert_eq!(read("TLSv1.2, TLSv1.3"), [ProtocolVersion::TLSv1_3, ProtocolVersion::TLSv1_2]);
        assert_eq!(read(""), [ProtocolVersion::TLSv1_3, ProtocolVersion::TLSv1_2]);
    }

    #[test]
    fn old_and_unknown_versions_are_refused() {
        assert!(versions(Some("TLSv1.1,TLSv1.2")).unwrap_err().contains("TLSv1.1 is too old"));
        assert!(versions(Some("TLSv9")).unwrap_err().contains("unknown"));
    }
}
