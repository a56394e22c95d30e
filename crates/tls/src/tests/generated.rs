//! The files in the data directory: generated once, kept, refused when incomplete.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use model::settings::BackendSslVerify;
use model::snapshot::TlsParams;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::pki::{Ca, Dir, connect, named};
use crate::server;

const FILES: [&str; 3] = ["proxysql-ca.pem", "proxysql-cert.pem", "proxysql-key.pem"];

fn contents(dir: &Dir) -> Vec<String> {
    FILES.iter().map(|name| fs::read_to_string(dir.path(name)).unwrap()).collect()
}

fn trusting_generated(dir: &Dir) -> TlsParams {
    TlsParams { ca: Some(dir.path(FILES[0])), verify: BackendSslVerify::Identity, ..TlsParams::default() }
}

#[test]
fn generated_files_survive_a_second_start() {
    let dir = Dir::new();
    let first = server(&dir.0, &Arc::default()).unwrap();
    let before = contents(&dir);
    let second = server(&dir.0, &Arc::default()).unwrap();
    assert_eq!(before, contents(&dir));
    assert_eq!(fs::read_dir(&dir.0).unwrap().count(), 3, "nothing else is left behind");
    let shown = super::super::certificates(&dir.0);
    let fingerprint = |server: &super::super::ServerTls| server.fingerprint.map(|byte| format!("{byte:02x}")).join(":");
    assert_eq!(shown.iter().find(|one| one.kind == "server").unwrap().fingerprint.to_lowercase(), fingerprint(&first));
    for server in [first, second] {
        connect("any", &TlsParams::default(), &server.config).unwrap();
        let trusting = TlsParams { verify: BackendSslVerify::Ca, ..trusting_generated(&dir) };
        connect("any", &trusting, &server.config).unwrap();
    }
}

#[test]
fn generated_files_are_what_they_should_be() {
    let dir = Dir::new();
    server(&dir.0, &Arc::default()).unwrap();
    let mode = |name: &str| fs::metadata(dir.path(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("proxysql-key.pem"), 0o600);
    let names = ["Tidegate_Auto_Generated_CA_Certificate", "Tidegate_Auto_Generated_Server_Certificate"];
    for (file, name) in FILES.iter().zip(names) {
        let der = CertificateDer::from_pem_file(dir.path(file)).unwrap();
        let (_, cert) = X509Certificate::from_der(&der).unwrap();
        assert_eq!(cert.subject().to_string(), format!("CN={name}"));
        assert_eq!(cert.issuer().to_string(), format!("CN={}", names[0]));
        let validity = cert.validity();
        let days = (validity.not_after.timestamp() - validity.not_before.timestamp()) / 86_400;
        assert_eq!(days, 3_651);
        assert!(validity.is_valid());
    }
}

#[test]
fn incomplete_files_are_refused_and_left_alone() {
    for missing in FILES {
        let dir = Dir::new();
        server(&dir.0, &Arc::default()).unwrap();
        fs::remove_file(dir.path(missing)).unwrap();
        let error = server(&dir.0, &Arc::default()).unwrap_err();
        assert!(error.contains(&format!("lacks {missing}")), "{error}");
        assert!(!dir.path(missing).exists());
    }
}

#[test]
fn unfit_files_are_refused_by_name() {
    let dir = Dir::new();
    server(&dir.0, &Arc::default()).unwrap();
    let (cert, key) = Ca::new("ca").sign(&named("proxy"));
    dir.write(FILES[2], &key);
    assert!(server(&dir.0, &Arc::default()).unwrap_err().contains("is not the key of"));
    dir.write(FILES[1], &cert);
    assert!(server(&dir.0, &Arc::default()).is_ok(), "an operator's own certificate");
    dir.write(FILES[0], "rubbish");
    assert!(server(&dir.0, &Arc::default()).unwrap_err().contains("proxysql-ca.pem: no certificate"));
    assert!(server(&dir.path("no-such-directory"), &Arc::default()).unwrap_err().contains("cannot write"));
}

#[test]
fn no_tickets_and_both_versions() {
    let dir = Dir::new();
    let config = &server(&dir.0, &Arc::default()).unwrap().config;
    assert_eq!(config.send_tls13_tickets, 0);
    assert!(!config.ticketer.enabled() && !config.session_storage.can_cache());
    for version in ["TLSv1.2", "TLSv1.3"] {
        let params = TlsParams { tls_version: Some(version.into()), ..TlsParams::default() };
        connect("any", &params, config).unwrap();
    }
}

#[test]
fn what_clients_are_shown_is_told() {
    let dir = Dir::new();
    assert_eq!(crate::certificates(&dir.0), [], "nothing is there yet");
    server(&dir.0, &Arc::default()).unwrap();
    let told = crate::certificates(&dir.0);
    let names = |kind: &str| told.iter().find(|one| one.kind == kind).map(|one| (one.subject.as_str(), one.issuer.as_str()));
    let ca = "Tidegate_Auto_Generated_CA_Certificate";
    assert_eq!(names("server"), Some(("Tidegate_Auto_Generated_Server_Certificate", ca)));
    assert_eq!(names("ca"), Some((ca, ca)));
    for one in &told {
        assert!(one.not_before < one.not_after && one.file.is_file(), "{one:?}");
        assert_eq!((one.fingerprint.len(), one.serial.is_empty()), (95, false), "{one:?}");
    }
    assert_ne!(told[0].fingerprint, told[1].fingerprint);
}
