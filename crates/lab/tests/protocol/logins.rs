//! Logins: every plugin that a client may begin with against every one that the proxy may, with and without a password.

use super::common::{proxy_with, server};
use super::proxied_only;
use lab::flavor::Installation;
use lab::{Client, ConnectOptions, Flavor, Tidegate};
use wire::Capabilities;
use wire::auth::hash::{certificate_proof, native_stored, sha256};

/// Plugins that the proxy may announce.
const DEFAULTS: [&str; 2] = ["mysql_native_password", "caching_sha2_password"];
/// Users of the port for applications and of the admin port, with their passwords.
const APPLICATIONS: [(&str, &str); 2] = [("empty", ""), ("app", "app-pass")];
const OPERATORS: [(&str, &str); 2] = [("nobody", ""), ("admin", "admin")];

/// Plugins with which clients can begin a login.
const PLUGINS: [&str; 6] =
    ["mysql_native_password", "caching_sha2_password", "sha256_password", "mysql_clear_password", "client_ed25519", "dialog"];

/// Whether the flavor's client supports the plugin.
///
/// MySQL's client has no mysql_native_password since 9.0. It is asked for the announced plugin if its own proves nothing without TLS.
fn is_able(flavor: Flavor, default: &str, plugin: &str, tls: bool) -> bool {
    flavor == Flavor::Mariadb
        || plugin == "caching_sha2_password"
        || ["sha256_password", "mysql_clear_password"].contains(&plugin) && (tls || default != "mysql_native_password")
}

fn proxy(default: &str) -> Tidegate {
    proxy_with(server(Flavor::Mariadb), 4, |builder| {
        builder
            .user("empty", "", 0)
            .variable("default_authentication_plugin", default)
            .admin_variable("admin_credentials", "admin:admin;nobody:")
    })
}

/// Logs in with the flavor's own client; returns its output and its error.
fn logs_in(flavor: Flavor, port: u16, (user, password): (&str, &str), plugin: &str, tls: bool) -> (String, String) {
    let mut command = Installation::find(flavor).unwrap().client_command();
    command.args(["-h127.0.0.1", &format!("-P{port}"), "-N", "-B", &format!("--default-auth={plugin}"), "-e", "SELECT 'in'"]);
    command.args([format!("-u{user}"), format!("--password={password}")]);
    match (flavor, tls) {
        (Flavor::Mariadb, true) => command.args(["--ssl", "--skip-ssl-verify-server-cert"]),
        (Flavor::Mariadb, false) => command.arg("--skip-ssl"),
        (Flavor::Mysql, true) => command.args(["--ssl-mode=REQUIRED", "--enable-cleartext-plugin"]),
        (Flavor::Mysql, false) => command.args(["--ssl-mode=DISABLED", "--get-server-public-key", "--enable-cleartext-plugin"]),
    };
    let ended = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&ended.stdout), text(&ended.stderr))
}

#[test]
fn every_plugin_of_the_command_line_clients() {
    if !proxied_only() {
        return;
    }
    for default in DEFAULTS {
        let proxy = proxy(default);
        let ports = [(proxy.port(), APPLICATIONS), (proxy.admin_port(), OPERATORS)];
        for flavor in [Flavor::Mariadb, Flavor::Mysql] {
            for (plugin, tls) in PLUGINS.into_iter().flat_map(|plugin| [(plugin, false), (plugin, true)]) {
                if !is_able(flavor, default, plugin, tls) {
                    continue;
                }
                for (port, users) in ports {
                    for user in users {
                        let (out, err) = logs_in(flavor, port, user, plugin, tls);
                        assert_eq!(out, "in\n", "{default}, {flavor:?} {plugin} {user:?}, TLS {tls}: {err}");
                    }
                    let (_, err) = logs_in(flavor, port, (users[0].0, "wrong"), plugin, tls);
                    assert!(err.contains("ERROR 1045"), "{default}, {flavor:?} {plugin} {users:?}, TLS {tls}: {err}");
                }
            }
        }
    }
}

#[test]
fn every_plugin_of_a_change_of_user() {
    if !proxied_only() {
        return;
    }
    for default in DEFAULTS {
        let proxy = proxy(default);
        let ports = [(proxy.address(), APPLICATIONS), (format!("127.0.0.1:{}", proxy.admin_port()), OPERATORS)];
        for plugin in PLUGINS {
            for tls in [false, true] {
                for (address, users) in &ports {
                    let options = |(user, password)| {
                        let options = ConnectOptions::tcp(address, user, password).plugin(plugin);
                        if tls { options.tls() } else { options }
                    };
                    let mut client = Client::connect(&options(users[1])).unwrap();
                    for user in [users[0], users[1], users[0]] {
                        client.change_user(&options(user)).unwrap_or_else(|e| panic!("{default} {plugin} {user:?}, TLS {tls}: {e}"));
                        assert_eq!(client.scalar("SELECT 'in'").unwrap().as_deref(), Some("in"), "{default} {plugin} {user:?}");
                    }
                    let wrong = client.change_user(&options((users[0].0, "wrong")));
                    assert_eq!(wrong.unwrap_err().code(), Some(1045), "{default} {plugin} {users:?}, TLS {tls}");
                }
            }
        }
    }
}

/// Whether the login's OK proves the certificate to a client that knows this password. The OK has no other information.
fn is_certificate_proven(client: &Client, password: &str) -> bool {
    let Some(certificate) = client.certificate() else {
        assert_eq!(client.login_status().info, "");
        return false;
    };
    let hash = native_stored(password.as_bytes());
    let proof = certificate_proof(&hash, &client.greeting().scramble, &sha256(&[certificate]));
    let said = client.login_status().info.as_bytes();
    assert!(said.is_empty() || said == proof, "{said:?}");
    !said.is_empty()
}

/// Whether the MariaDB of these tests is one that proves certificates (11.4 and later).
fn has_certificate_proof() -> bool {
    let client = server(Flavor::Mariadb).root().unwrap();
    let version = String::from_utf8_lossy(client.greeting().version()).into_owned();
    let mut numbers = version.split('.').map(|part| part.parse::<u32>().unwrap_or_default());
    (numbers.next(), numbers.next()) >= (Some(11), Some(4))
}

/// mariadb-java-client 4.0.0 with its default settings believes in the proxy's own certificate by nothing else (MDEV-31855).
#[test]
fn the_certificate_is_proven_to_clients_of_mariadb() {
    if !proxied_only() {
        return;
    }
    for version in ["", "8.0.36"] {
        let hashed = native("hashed-pass");
        let proxy = proxy_with(server(Flavor::Mariadb), 8, |builder| {
            builder.variable("server_version", version).user("empty", "", 0).user("hashed", &hashed, 0).user_with(
                "native",
                "native-pass",
                0,
                &[("fast_forward", 1.into())],
            )
        });
        let mut admin = proxy.admin().unwrap();
        admin.query(r#"UPDATE mysql_users SET attributes='{"additional_password": "new-pass"}' WHERE username='app'"#).unwrap();
        admin.query("LOAD MYSQL USERS TO RUNTIME").unwrap();
        let options = |user: &str, password: &str| proxy.options(user, password).without(Capabilities::LONG_PASSWORD);
        for (user, password) in [("app", "app-pass"), ("app", "new-pass"), ("hashed", "hashed-pass"), ("native", "native-pass")] {
            for tls in [options(user, password).tls(), options(user, password).tls12(), options(user, password).plugin("dialog").tls()] {
                let client = Client::connect(&tls).unwrap();
                assert!(is_certificate_proven(&client, password), "{version} {user} {password}");
            }
            assert!(!is_certificate_proven(&Client::connect(&options(user, password)).unwrap(), password), "{version} {user}");
        }
        // A client of MySQL is told nothing that it would not be told by MySQL.
        let of_mysql = Client::connect(&proxy.options("app", "app-pass").with(Capabilities::LONG_PASSWORD).tls()).unwrap();
        assert_eq!(is_certificate_proven(&of_mysql, "app-pass"), version.is_empty());
        // No password, or one that went over the wire, proves nothing.
        assert!(!is_certificate_proven(&Client::connect(&options("empty", "").tls()).unwrap(), ""));
        for plugin in ["mysql_clear_password", "caching_sha2_password"] {
            let mut client = Client::connect(&options("app", "app-pass").plugin(plugin).tls()).unwrap();
            assert!(!is_certificate_proven(&client, "app-pass"), "{plugin}");
            let changed = client.change_user(&options("app", "app-pass").plugin("mysql_native_password").tls()).unwrap();
            assert_eq!(changed.info, "");
        }
        // MariaDB's own client believes in 127.0.0.1 without a proof, but in no name.
        if has_certificate_proof() {
            let mut command = Installation::find(Flavor::Mariadb).unwrap().client_command();
            let port = format!("-P{}", proxy.port());
            command.args([
                "-hlocalhost",
                "--protocol=TCP",
                &port,
                "-uapp",
                "-papp-pass",
                "--ssl-verify-server-cert",
                "-NBe",
                "SELECT 'in'",
            ]);
            let ended = command.output().unwrap();
            assert_eq!(ended.stdout, b"in\n", "{}", String::from_utf8_lossy(&ended.stderr));
        }
        // From here on the proxy has another certificate.
        let before = Client::connect(&options("app", "app-pass").tls()).unwrap();
        for kind in ["ca", "cert", "key"] {
            std::fs::remove_file(proxy.dir().join(format!("proxysql-{kind}.pem"))).unwrap();
        }
        admin.query("PROXYSQL RELOAD TLS").unwrap();
        let after = Client::connect(&options("app", "app-pass").tls()).unwrap();
        assert_ne!(before.certificate().unwrap(), after.certificate().unwrap());
        assert!(is_certificate_proven(&after, "app-pass"));
    }
}

/// A password hashed by the functions of the admin port lets its user in.
#[test]
fn passwords_that_the_admin_port_hashed() {
    if !proxied_only() {
        return;
    }
    let proxy = proxy("mysql_native_password");
    let mut admin = proxy.admin().unwrap();
    let enters = |password: &str| {
        let mut client = Client::connect(&proxy.options("app", password).tls())?;
        client.scalar("SELECT 'in'")
    };
    for hash in
        ["MYSQL_NATIVE_PASSWORD('hashed')", "CACHING_SHA2_PASSWORD('hashed')", "CACHING_SHA2_PASSWORD('hashed', 'abcdefghijklmnopqrst')"]
    {
        admin.query(format!("UPDATE mysql_users SET password={hash} WHERE username='app'")).unwrap();
        admin.query("LOAD MYSQL USERS TO RUNTIME").unwrap();
        assert_eq!(enters("wrong").unwrap_err().code(), Some(1045), "{hash}");
        Client::connect(&proxy.options("app", "hashed").tls()).unwrap();
    }
    admin.query("UPDATE mysql_users SET password=MYSQL_NATIVE_PASSWORD('app-pass') WHERE username='app'").unwrap();
    admin.query("LOAD MYSQL USERS TO RUNTIME").unwrap();
    assert_eq!(enters("app-pass").unwrap().as_deref(), Some("in"));
}

/// A user with two passwords: either lets in by every plugin, on a change of user too; servers get the first.
#[test]
fn either_of_two_passwords() {
    if !proxied_only() {
        return;
    }
    for default in DEFAULTS {
        let proxy = proxy(default);
        let mut admin = proxy.admin().unwrap();
        for stored in ["new-pass".to_owned(), native("new-pass"), caching_sha2("new-pass")] {
            let attributes = format!(r#"{{"additional_password": "{stored}"}}"#);
            admin.query(format!("UPDATE mysql_users SET attributes='{attributes}' WHERE username='app'")).unwrap();
            let shown = format!("{:?}", admin.query("CONFIG DIFF").unwrap().table().unwrap());
            assert!(shown.contains("***") && !shown.contains(&stored), "{shown}");
            admin.query("LOAD MYSQL USERS TO RUNTIME").unwrap();
            for (plugin, tls) in PLUGINS.into_iter().flat_map(|plugin| [(plugin, false), (plugin, true)]) {
                let options = |password: &str| {
                    let options = ConnectOptions::tcp(proxy.address(), "app", password).plugin(plugin);
                    if tls { options.tls() } else { options }
                };
                let case = format!("{default}, {stored}, {plugin}, TLS {tls}");
                for password in ["app-pass", "new-pass", "new-pass", "app-pass"] {
                    let mut client = Client::connect(&options(password)).unwrap_or_else(|e| panic!("{case}, {password}: {e}"));
                    assert_eq!(client.scalar("SELECT 'in'").unwrap().as_deref(), Some("in"), "{case}, {password}");
                    client.change_user(&options("new-pass")).unwrap_or_else(|e| panic!("{case}: {e}"));
                }
                assert_eq!(Client::connect(&options("wrong")).unwrap_err().code(), Some(1045), "{case}");
                assert_eq!(Client::connect(&options("")).unwrap_err().code(), Some(1045), "{case}");
            }
        }
        // Knowledge from a login with the old password is used only as long as that password is valid.
        let hashed = native("app-pass");
        admin.query(format!("UPDATE mysql_users SET password='{hashed}', attributes='' WHERE username='app'")).unwrap();
        admin.query("LOAD MYSQL USERS TO RUNTIME").unwrap();
        assert_eq!(Client::connect(&proxy.options("app", "new-pass")).unwrap_err().code(), Some(1045));
        Client::connect(&proxy.options("app", "app-pass")).unwrap();
        admin.query(r#"UPDATE mysql_users SET attributes='{"additional_password": "new-pass"}' WHERE username='app'"#).unwrap();
        admin.query("LOAD MYSQL USERS TO RUNTIME").unwrap();
        let mut client = Client::connect(&proxy.options("app", "new-pass")).unwrap();
        assert_eq!(client.scalar("SELECT 'in'").unwrap().as_deref(), Some("in"), "{default}");
        assert!(!proxy.log().contains("new-pass"));
    }
}

fn native(password: &str) -> String {
    let digits: String = wire::auth::hash::native_stored(password.as_bytes()).iter().map(|byte| format!("{byte:02X}")).collect();
    format!("*{digits}")
}

fn caching_sha2(password: &str) -> String {
    wire::auth::crypt::generate(password.as_bytes(), b"0123456789abcdefghij")
}
