//! Handshakes in memory between our two sides, for each way to check a certificate.

mod carried;
mod generated;
mod pki;

use std::path::PathBuf;
use std::sync::Arc;

use model::settings::BackendSslVerify::{self, Ca as VerifyCa, Identity, Off};
use model::snapshot::{Address, TlsParams};
use rcgen::date_time_ymd;
use rustls::{ProtocolVersion, ServerConfig};

use super::{ClientConfigs, client};
use pki::{Ca, Dir, connect, make_v1, named, openssl, row, server, server_of_files, with_names};

fn params(verify: BackendSslVerify, ca: Option<PathBuf>) -> TlsParams {
    TlsParams { verify, ca, ..TlsParams::default() }
}

/// Why a connection to `host` fails.
#[track_caller]
fn refusal(host: &str, params: &TlsParams, server: &Arc<ServerConfig>) -> String {
    connect(host, params, server).expect_err("should be refused")
}

#[track_caller]
fn assert_accepted(host: &str, params: &TlsParams, server: &Arc<ServerConfig>) {
    if let Err(e) = connect(host, params, server) {
        panic!("refused: {e}");
    }
}

#[test]
fn off_takes_unknown_and_expired_certificates() {
    let dir = Dir::new();
    let mut expired = named("old");
    expired.not_before = date_time_ymd(2001, 1, 1);
    expired.not_after = date_time_ymd(2002, 1, 1);
    let server = server(&dir, &Ca::new("ca").sign(&expired));
    assert_accepted("db.example", &params(Off, None), &server);
    assert_accepted("no_such name!", &params(Off, None), &server);
}

#[test]
fn off_with_a_ca_means_ca() {
    let dir = Dir::new();
    let (ca, other) = (Ca::new("ca"), Ca::new("other"));
    let server = server(&dir, &ca.sign(&named("db")));
    assert_accepted("db.example", &params(Off, Some(dir.write("ca.pem", &ca.pem))), &server);
    let error = refusal("db.example", &params(Off, Some(dir.write("other.pem", &other.pem))), &server);
    assert!(error.contains("UnknownIssuer"), "{error}");
}

#[test]
fn ca_wants_a_chain_and_no_name() {
    let dir = Dir::new();
    let (ca, other) = (Ca::new("ca"), Ca::new("other"));
    let server = server(&dir, &ca.sign(&named("MySQL_Server_8.0_Auto_Generated_Server_Certificate")));
    let both = dir.write("both.pem", &format!("{}{}", other.pem, ca.pem));
    assert_accepted("10.0.0.1", &params(VerifyCa, Some(both)), &server);
    let error = refusal("10.0.0.1", &params(VerifyCa, Some(dir.write("other.pem", &other.pem))), &server);
    assert!(error.contains("UnknownIssuer"), "{error}");
}

#[test]
fn ca_of_the_same_name_but_another_key_is_not_trusted() {
    let dir = Dir::new();
    let (ca, twin) = (Ca::new("ca"), Ca::new("ca"));
    let server = server(&dir, &ca.sign(&named("db")));
    refusal("db", &params(VerifyCa, Some(dir.write("ca.pem", &twin.pem))), &server);
}

#[test]
fn ca_refuses_expired_certificates() {
    let dir = Dir::new();
    let ca = Ca::new("ca");
    let mut expired = named("db");
    expired.not_after = date_time_ymd(2002, 1, 1);
    let server = server(&dir, &ca.sign(&expired));
    let error = refusal("db", &params(VerifyCa, Some(dir.write("ca.pem", &ca.pem))), &server);
    assert!(error.contains("Expired"), "{error}");
}

#[test]
fn ca_follows_intermediates() {
    let dir = Dir::new();
    let root = Ca::new("root");
    let middle = root.intermediate("middle");
    let (leaf, key) = middle.sign(&named("db"));
    let server = server(&dir, &(leaf + &middle.pem, key));
    assert_accepted("db", &params(VerifyCa, Some(dir.write("ca.pem", &root.pem))), &server);
}

#[test]
fn a_certificate_that_is_no_ca_cannot_sign() {
    let dir = Dir::new();
    let root = Ca::new("root");
    let impostor = root.signed_non_ca("impostor");
    let (leaf, key) = impostor.sign(&named("db"));
    let server = server(&dir, &(leaf + &impostor.pem, key));
    refusal("db", &params(VerifyCa, Some(dir.write("ca.pem", &root.pem))), &server);
}

#[test]
fn ca_without_a_file_means_the_systems() {
    let dir = Dir::new();
    let server = server(&dir, &Ca::new("ca").sign(&named("db")));
    let error = refusal("db", &params(VerifyCa, None), &server);
    assert!(error.contains("UnknownIssuer") || error.contains("ssl_ca is not set"), "{error}");
}

#[test]
fn ca_takes_a_directory() {
    let dir = Dir::new();
    let (ca, capath) = (Ca::new("ca"), Dir::new());
    capath.write("README", "not a certificate");
    capath.write("one.pem", &Ca::new("other").pem);
    capath.write("two.pem", &ca.pem);
    let server = server(&dir, &ca.sign(&named("db")));
    let params = TlsParams { capath: Some(capath.0.clone()), ..params(Off, None) };
    assert_accepted("db", &params, &server);
}

#[test]
fn a_self_signed_certificate_can_be_its_own_ca() {
    let dir = Dir::new();
    let (own, other) = (Ca::new("db1"), Ca::new("db1"));
    let server = server(&dir, &(own.pem.clone(), own.key_pem()));
    let pinned = dir.write("own.pem", &own.pem);
    assert_accepted("db1", &params(VerifyCa, Some(pinned.clone())), &server);
    assert_accepted("db1", &params(Identity, Some(pinned.clone())), &server);
    refusal("db2", &params(Identity, Some(pinned)), &server);
    refusal("db1", &params(VerifyCa, Some(dir.write("other.pem", &other.pem))), &server);
}

#[test]
fn identity_checks_alternative_names() {
    let dir = Dir::new();
    let ca = Ca::new("ca");
    let server = server(&dir, &ca.sign(&with_names("cn.example", &["db.example", "*.dbs.example", "10.0.0.1"])));
    let params = params(Identity, Some(dir.write("ca.pem", &ca.pem)));
    for good in ["db.example", "DB.example", "one.dbs.example", "10.0.0.1"] {
        assert_accepted(good, &params, &server);
    }
    for bad in ["cn.example", "other.example", "10.0.0.2"] {
        let error = refusal(bad, &params, &server);
        assert!(error.contains("NotValidForName"), "{error}");
    }
    assert!(refusal("no_such name!", &params, &server).contains("mysql-backend_ssl_verify"));
}

#[test]
fn identity_falls_back_on_the_common_name() {
    let dir = Dir::new();
    let ca = Ca::new("ca");
    let server = server(&dir, &ca.sign(&named("db.example")));
    let file = dir.write("ca.pem", &ca.pem);
    assert_accepted("db.example", &params(Identity, Some(file.clone())), &server);
    refusal("other.example", &params(Identity, Some(file)), &server);
    let other = dir.write("other.pem", &Ca::new("other").pem);
    assert!(refusal("db.example", &params(Identity, Some(other)), &server).contains("UnknownIssuer"));
}

#[test]
fn x509_v1_certificates_work_in_every_mode() {
    let dir = Dir::new();
    if !make_v1(&dir) {
        return;
    }
    let server = server_of_files(&dir.path("v1-cert.pem"), &dir.path("v1-key.pem"));
    let ca = Some(dir.path("ca.pem"));
    for version in ["TLSv1.2", "TLSv1.3"] {
        let at = |params: TlsParams| TlsParams { tls_version: Some(version.into()), ..params };
        assert_accepted("any", &at(params(Off, None)), &server);
        assert_accepted("any", &at(params(VerifyCa, ca.clone())), &server);
        assert_accepted("server1", &at(params(Identity, ca.clone())), &server);
        assert!(refusal("server2", &at(params(Identity, ca.clone())), &server).contains("NotValidForName"));
        let wrong = dir.write("wrong.pem", &Ca::new("v1-ca").pem);
        assert!(refusal("any", &at(params(VerifyCa, Some(wrong))), &server).contains("UnknownIssuer"));
    }
}

#[test]
fn x509_v1_certificates_expire_and_are_not_signed_with_sha1() {
    let dir = Dir::new();
    if !make_v1(&dir) {
        return;
    }
    let sign = "x509 -req -in v1-req.pem -CA ca.pem -CAkey ca-key.pem -set_serial 2";
    let ca = params(VerifyCa, Some(dir.path("ca.pem")));
    for (options, why) in [("-days -1", "Expired"), ("-days 30 -sha1", "BadSignature")] {
        openssl(&dir, &format!("{sign} {options} -out bad.pem"));
        let server = server_of_files(&dir.path("bad.pem"), &dir.path("v1-key.pem"));
        let error = refusal("any", &ca, &server);
        assert!(error.contains(why), "{error}");
        assert_accepted("any", &params(Off, None), &server);
    }
}

#[test]
fn x509_v1_certificates_can_be_revoked() {
    let dir = Dir::new();
    if !make_v1(&dir) {
        return;
    }
    let server = server_of_files(&dir.path("v1-cert.pem"), &dir.path("v1-key.pem"));
    dir.write(
        "ca.cnf",
        "[ca]\ndefault_ca = d\n[d]\ndatabase = index.txt\ndefault_md = sha256\ncrl_extensions = x\n[x]\nauthorityKeyIdentifier = keyid\n",
    );
    let list = |index: &str| {
        dir.write("index.txt", index);
        openssl(&dir, "ca -config ca.cnf -gencrl -crldays 30 -cert ca.pem -keyfile ca-key.pem -out crl.pem");
        TlsParams { crl: Some(dir.path("crl.pem")), ..params(VerifyCa, Some(dir.path("ca.pem"))) }
    };
    assert_accepted("any", &list(""), &server);
    let revoked = list("R\t301231000000Z\t200101000000Z\t01\tunknown\t/CN=server1\n");
    assert!(refusal("any", &revoked, &server).contains("Revoked"));
}

#[test]
fn revoked_certificates_are_refused() {
    let dir = Dir::new();
    let ca = Ca::new("ca");
    let mut cert = named("db");
    cert.serial_number = Some(7_u64.into());
    let server = server(&dir, &ca.sign(&cert));
    let file = dir.write("ca.pem", &ca.pem);
    let with = |list: &str| TlsParams { crl: Some(dir.write("crl.pem", list)), ..params(VerifyCa, Some(file.clone())) };
    assert_accepted("db", &with(&ca.revoke(8, 2049)), &server);
    assert!(refusal("db", &with(&ca.revoke(7, 2049)), &server).contains("Revoked"));
    assert!(refusal("db", &with(&ca.revoke(8, 2021)), &server).contains("ExpiredRevocationList"));
    assert!(refusal("db", &with(&Ca::new("x").revoke(8, 2049)), &server).contains("UnknownRevocationStatus"));
    assert!(refusal("db", &with("nothing"), &server).contains("ssl_crl"));
}

#[test]
fn revocation_lists_without_a_check_are_refused() {
    let dir = Dir::new();
    let server = server(&dir, &Ca::new("ca").sign(&named("db")));
    let params = TlsParams { crl: Some("/x".into()), ..TlsParams::default() };
    assert!(refusal("db", &params, &server).contains("ssl_crl"));
}

#[test]
fn our_own_certificate_is_shown() {
    let dir = Dir::new();
    let ca = Ca::new("ca");
    let server = server(&dir, &ca.sign(&named("db")));
    let (cert, key) = ca.sign(&named("app"));
    let both = dir.write("both.pem", &format!("{cert}{key}"));
    let (cert, key) = (dir.write("cert.pem", &cert), dir.write("key.pem", &key));
    let shown = |cert: Option<&PathBuf>, key: Option<&PathBuf>| {
        let params = TlsParams { cert: cert.cloned(), key: key.cloned(), ..TlsParams::default() };
        connect("db", &params, &server).map(|(_, server)| server.peer_certificates().map(<[_]>::len))
    };
    assert_eq!(shown(None, None), Ok(None));
    assert_eq!(shown(Some(&cert), Some(&key)), Ok(Some(1)));
    assert_eq!(shown(Some(&both), None), Ok(Some(1)));
    assert!(shown(Some(&cert), None).unwrap_err().contains("ssl_key"));
    let other = dir.write("other.pem", &ca.sign(&named("other")).1);
    assert!(shown(Some(&cert), Some(&other)).unwrap_err().contains("is not the key of"));
}

#[test]
fn a_v1_certificate_of_our_own_is_shown() {
    let dir = Dir::new();
    if !make_v1(&dir) {
        return;
    }
    let server = server(&dir, &Ca::new("ca").sign(&named("db")));
    let (cert, key) = (Some(dir.path("v1-cert.pem")), Some(dir.path("v1-key.pem")));
    let (_, server) = connect("db", &TlsParams { cert, key, ..TlsParams::default() }, &server).unwrap();
    assert!(server.peer_certificates().is_some());
}

#[test]
fn a_server_without_the_certificates_key_is_refused() {
    let dir = Dir::new();
    let ca = Ca::new("ca");
    let (cert, _) = ca.sign(&named("db"));
    let (_, stolen) = ca.sign(&named("db"));
    for version in ["TLSv1.2", "TLSv1.3"] {
        let server = pki::mismatched_server(&dir, &cert, &stolen);
        let params = TlsParams { tls_version: Some(version.into()), ..params(Off, None) };
        let error = refusal("db", &params, &server);
        assert!(error.contains("BadSignature"), "{version}: {error}");
    }
}

#[test]
fn versions_and_ciphers_are_honoured() {
    let dir = Dir::new();
    let server = server(&dir, &Ca::new("ca").sign(&named("db")));
    let with = |version: &str, cipher: &str| {
        let (tls_version, cipher) = (Some(version.into()), Some(cipher.into()));
        TlsParams { tls_version, cipher, ..TlsParams::default() }
    };
    let (ours, _) = connect("db", &with("TLSv1.2", "ECDHE-ECDSA-AES128-GCM-SHA256"), &server).unwrap();
    assert_eq!(ours.protocol_version(), Some(ProtocolVersion::TLSv1_2));
    let suite = ours.negotiated_cipher_suite().unwrap().suite();
    assert_eq!(suite, rustls::CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256);
    let (ours, _) = connect("db", &with("TLSv1.2,TLSv1.3", "ECDHE-ECDSA-AES128-GCM-SHA256"), &server).unwrap();
    assert_eq!(ours.protocol_version(), Some(ProtocolVersion::TLSv1_3));
    let nothing_left = refusal("db", &with("TLSv1.2", "TLS_AES_128_GCM_SHA256"), &server);
    assert!(nothing_left.contains("ssl_cipher and tls_version"), "{nothing_left}");
    assert!(refusal("db", &with("TLSv1.1", ""), &server).contains("TLSv1.1"));
    assert!(refusal("db", &with("", "AES128-SHA"), &server).contains("AES128-SHA"));
}

#[test]
fn missing_files_are_named_with_their_setting() {
    let dir = Dir::new();
    let server = server(&dir, &Ca::new("ca").sign(&named("db")));
    let error = refusal("db", &params(VerifyCa, Some("/nowhere/ca.pem".into())), &server);
    assert!(error.contains("ssl_ca: /nowhere/ca.pem: No such file"), "{error}");
    let capath = TlsParams { capath: Some(dir.0.join("none")), ..TlsParams::default() };
    assert!(refusal("db", &capath, &server).contains("ssl_capath"));
}

#[test]
fn a_replaced_file_is_used_by_the_next_connection() {
    let dir = Dir::new();
    let path = dir.write("ca.pem", "");
    let (configs, row) = (ClientConfigs::default(), row("db", &params(VerifyCa, Some(path))));
    assert!(client(&configs, &row, "app").is_err());
    dir.write("ca.pem", &Ca::new("ca").pem);
    assert!(client(&configs, &row, "app").is_ok());
    let first = configs.get(&row.tls).unwrap();
    assert!(Arc::ptr_eq(&first, &configs.get(&row.tls).unwrap()));
    dir.write("ca.pem", &Ca::new("another of another length").pem);
    assert!(!Arc::ptr_eq(&first, &configs.get(&row.tls).unwrap()));
}

#[test]
fn a_file_of_a_directory_that_is_written_over_is_used_by_the_next_connection() {
    let (capath, crlpath) = (Dir::new(), Dir::new());
    let (ca, other) = (Ca::new("ca"), Ca::new("another of another length"));
    capath.write("ca.pem", &ca.pem);
    crlpath.write("crl.pem", &ca.revoke(7, 2049));
    let params = TlsParams { capath: Some(capath.0.clone()), crlpath: Some(crlpath.0.clone()), ..params(VerifyCa, None) };
    let configs = ClientConfigs::default();
    let first = configs.get(&params).unwrap();
    assert!(Arc::ptr_eq(&first, &configs.get(&params).unwrap()));
    capath.write("ca.pem", &other.pem);
    let second = configs.get(&params).unwrap();
    assert!(!Arc::ptr_eq(&first, &second));
    crlpath.write("crl.pem", &other.revoke(7, 2049));
    assert!(!Arc::ptr_eq(&second, &configs.get(&params).unwrap()));
}

#[test]
fn an_incomplete_renewal_leaves_the_former_certificate_in_use() {
    let dir = Dir::new();
    let ca = Ca::new("ca");
    let (old, new) = (ca.sign(&named("app")), ca.sign(&named("another of another length")));
    let (cert, key) = (dir.write("cert.pem", &old.0), dir.write("key.pem", &old.1));
    let params = TlsParams { cert: Some(cert), key: Some(key), ..TlsParams::default() };
    let configs = ClientConfigs::default();
    let first = configs.get(&params).unwrap();
    assert!(configs.complaints().is_empty());
    dir.write("cert.pem", &new.0);
    for complaints in [1, 0] {
        assert!(Arc::ptr_eq(&first, &configs.get(&params).unwrap()));
        assert_eq!(configs.complaints().iter().filter(|line| line.contains("is not the key of")).count(), complaints);
    }
    dir.write("key.pem", &format!("{}\n", new.1));
    let second = configs.get(&params).unwrap();
    assert!(!Arc::ptr_eq(&first, &second) && configs.complaints().is_empty());
    assert!(ClientConfigs::default().get(&TlsParams { key: None, ..params }).is_err(), "nothing was read before");
}

#[test]
fn users_have_their_own_parameters() {
    let mut row = row("db", &TlsParams::default());
    let own = TlsParams { tls_version: Some("TLSv1".into()), ..TlsParams::default() };
    row.tls_by_user = vec![("old".into(), Arc::new(own))];
    assert!(client(&ClientConfigs::default(), &row, "app").is_ok());
    assert!(client(&ClientConfigs::default(), &row, "old").is_err());
    row.address = Address::Unix("/run/mysqld.sock".into());
    assert!(client(&ClientConfigs::default(), &row, "app").unwrap_err().contains("Unix"));
}
