//! The test client against real servers: logins, replies, prepared statements, compression.

#![allow(clippy::unwrap_used)] // helpers of tests may panic

use std::sync::OnceLock;

use lab::client::{Compression, Encoding, Execution, Outcome, Param, Value};
use lab::{Client, ConnectOptions, Flavor, LabError, Options, Server};
use wire::{Capabilities, Command};

/// One server a flavor for all tests of this file; it dies with the process.
fn server(flavor: Flavor) -> &'static Server {
    static MARIADB: OnceLock<Server> = OnceLock::new();
    static MYSQL: OnceLock<Server> = OnceLock::new();
    let cell = match flavor {
        Flavor::Mariadb => &MARIADB,
        Flavor::Mysql => &MYSQL,
    };
    cell.get_or_init(|| Server::start(flavor, &Options::new().tls()).unwrap())
}

fn each_flavor(test: impl Fn(&'static Server)) {
    test(server(Flavor::Mariadb));
    test(server(Flavor::Mysql));
}

fn login(options: &ConnectOptions) -> Result<Client, LabError> {
    let mut client = Client::connect(options)?;
    let user = client.scalar("SELECT CURRENT_USER()")?;
    assert_eq!(user.unwrap(), format!("{}@%", options.user));
    Ok(client)
}

#[test]
fn every_user_logs_in() {
    each_flavor(|server| {
        let special: &[_] = match server.flavor() {
            Flavor::Mariadb => &[("native", "native-pass"), ("ed", "ed-pass")],
            Flavor::Mysql => &[("sha256", "sha256-pass")],
        };
        for (user, password) in special.iter().chain(&[("app", "app-pass"), ("empty", ""), ("monitor", "monitor")]) {
            // Logs in twice in clear: the second login uses caching_sha2_password's cache.
            for _ in 0..2 {
                login(&ConnectOptions::tcp(server.address(), user, password)).unwrap();
            }
            login(&ConnectOptions::tcp(server.address(), user, password).tls()).unwrap();
            login(&ConnectOptions::tcp(server.address(), user, password).plugin("mysql_native_password")).unwrap();
        }
        let tls = ConnectOptions::tcp(server.address(), "tls", "tls-pass");
        assert_eq!(login(&tls).unwrap_err().code(), Some(1045));
        login(&tls.tls()).unwrap();
        let wrong = login(&ConnectOptions::tcp(server.address(), "app", "wrong")).unwrap_err();
        assert_eq!(wrong.code(), Some(1045), "{wrong}");
    });
}

/// MDEV-31855: clients of MariaDB accept a certificate without a CA if the login's OK proves it.
#[test]
fn mariadb_proves_its_certificate_since_11_4() {
    use wire::auth::ed25519::public_key;
    use wire::auth::hash::{certificate_proof, native_stored, sha256};
    let server = server(Flavor::Mariadb);
    let number = |version: &[u8]| {
        let text = String::from_utf8_lossy(version).into_owned();
        let mut numbers = text.split('.').map(|part| part.parse::<u32>().unwrap_or_default());
        (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default())
    };
    let hash = |user, password: &str| match user {
        "ed" => public_key(password.as_bytes()).to_vec(),
        _ => native_stored(password.as_bytes()).to_vec(),
    };
    for (user, password) in [("native", "native-pass"), ("app", "app-pass"), ("ed", "ed-pass"), ("empty", "")] {
        let options = ConnectOptions::tcp(server.address(), user, password).tls();
        let mut client = Client::connect(&options).unwrap();
        let is_proven = number(client.greeting().version()) >= (11, 4) && user != "empty";
        let fingerprint = sha256(&[client.certificate().unwrap()]);
        // The greeting's scramble, also where the plugin was asked with a longer one of its own.
        let proof = certificate_proof(&hash(user, password), &client.greeting().scramble, &fingerprint);
        let expected: &[u8] = if is_proven { &proof } else { b"" };
        assert_eq!(client.login_status().info.as_bytes(), expected, "{user}");
        assert_eq!(client.change_user(&options).unwrap().info, "", "{user}");
    }
}

/// `$A$005$` is 5,000 rounds; MySQL 9.7 writes 10,000, in hexadecimal.
#[test]
fn mysql_9_7_hashes_with_ten_thousand_rounds() {
    let mut root = server(Flavor::Mysql).root().unwrap();
    let stored = root.scalar("SELECT LEFT(authentication_string, 7) FROM mysql.user WHERE user='app'").unwrap();
    assert_eq!(stored.as_deref(), Some("$A$00A$"));
}

/// Servers forget prepared statements at COM_CHANGE_USER. vertx executes those of before, and is told 1243.
#[test]
fn a_change_of_user_forgets_prepared_statements() {
    each_flavor(|server| {
        let options = ConnectOptions::app(server);
        let mut client = Client::connect(&options).unwrap();
        let statement = client.prepare("SELECT 1").unwrap();
        client.change_user(&options).unwrap();
        assert_eq!(client.execute(&statement, &[]).unwrap().err().unwrap().code, 1243);
    });
}

#[test]
fn replies_show_everything() {
    each_flavor(|server| {
        for caps in [ConnectOptions::MODERN, ConnectOptions::CLASSIC] {
            let options = ConnectOptions::app(server).capabilities(caps | Capabilities::MULTI_STATEMENTS);
            let mut client = Client::connect(&options).unwrap();
            client.run("CREATE TEMPORARY TABLE t(i INT PRIMARY KEY AUTO_INCREMENT, s VARCHAR(20))").unwrap();
            let ok = client.query("INSERT INTO t(s) VALUES('a'),(NULL)").unwrap();
            let ok = ok.ok().unwrap();
            assert_eq!((ok.affected_rows, ok.last_insert_id), (2, 1));
            assert!(ok.info.starts_with("Records: 2"), "{ok:?}");
            let rows = client.query("SELECT i, s FROM t ORDER BY i").unwrap();
            assert_eq!(rows.rows().unwrap().columns_end.is_some(), caps == ConnectOptions::CLASSIC);
            assert_eq!(rows.rows().unwrap().columns[1].org_name, "s");
            assert_eq!(rows.table().unwrap()[1], [Some("2".to_owned()), None]);
            let several = client.query("SELECT 1; DO 0; SELECT * FROM nowhere").unwrap();
            assert_eq!(several.results.len(), 3);
            assert_eq!(several.err().unwrap().code, 1146);
            assert!(client.query("BEGIN").unwrap().ok().unwrap().in_transaction());
        }
    });
}

#[test]
fn session_tracking_is_seen() {
    each_flavor(|server| {
        let mut client = Client::connect(&ConnectOptions::app(server)).unwrap();
        client.run("SET SESSION session_track_system_variables='*'").unwrap();
        let reply = client.run("SET sql_mode=''").unwrap();
        assert_eq!(reply.ok().unwrap().variable("sql_mode").as_deref(), Some(""));
    });
}

#[test]
fn prepared_statements() {
    each_flavor(|server| {
        for caps in [ConnectOptions::MODERN, ConnectOptions::CLASSIC, modern_with_attributes()] {
            let mut client = Client::connect(&ConnectOptions::app(server).capabilities(caps)).unwrap();
            let statement = client.prepare("SELECT CAST(? AS SIGNED) AS i, ? AS s, ? AS n").unwrap();
            assert_eq!((statement.params.len(), statement.columns.len()), (3, 3));
            let params = [Param::Int(-7), Param::Long, Param::Null];
            client.send_long_data(&statement, 1, b"long ").unwrap();
            client.send_long_data(&statement, 1, b"data").unwrap();
            let reply = client.execute(&statement, &params).unwrap();
            let values = &reply.rows().unwrap().rows[0].values;
            assert_eq!(*values, [Value::Int(-7), Value::Bytes(b"long data".to_vec()), Value::Null]);
            client.reset_statement(&statement).unwrap();
            let params = [Param::Int(9), Param::Text("x".to_owned()), Param::Null];
            let reply = client.execute_with(&statement, &params, Execution { reuse_types: true, cursor: false });
            assert_eq!(reply.unwrap().scalar().unwrap().as_deref(), Some("9"));
            client.close_statement(&statement).unwrap();
            let error = client.execute(&statement, &params).unwrap();
            assert_eq!(error.err().unwrap().code, 1243);
        }
    });
}

fn modern_with_attributes() -> Capabilities {
    ConnectOptions::MODERN | Capabilities::QUERY_ATTRIBUTES
}

#[test]
fn cursors() {
    each_flavor(|server| {
        for caps in [ConnectOptions::MODERN, ConnectOptions::CLASSIC] {
            let mut client = Client::connect(&ConnectOptions::app(server).capabilities(caps)).unwrap();
            let statement = client.prepare("SELECT 1 AS i UNION ALL SELECT 2 UNION ALL SELECT 3").unwrap();
            let how = Execution { cursor: true, reuse_types: false };
            let opened = client.execute_with(&statement, &[], how).unwrap();
            let set = opened.rows().unwrap();
            assert!(set.rows.is_empty(), "{set:?}");
            let first = client.fetch(&statement, &set.columns, 2).unwrap();
            assert_eq!(first.rows.len(), 2);
            let rest = client.fetch(&statement, &set.columns, 2).unwrap();
            assert_eq!((rest.rows.len(), rest.field(0, "i").as_deref()), (1, Some("3")));
            client.ping().unwrap().ok().unwrap();
        }
    });
}

#[test]
fn compression_and_large_packets() {
    each_flavor(|server| {
        let mut algorithms = vec![None, Some(Compression::Zlib)];
        if server.flavor() == Flavor::Mysql {
            algorithms.push(Some(Compression::Zstd(3)));
        }
        server.sql("SET GLOBAL max_allowed_packet=67108864").unwrap();
        for algorithm in algorithms {
            let mut options = ConnectOptions::app(server);
            options.compression = algorithm;
            let mut client = Client::connect(&options).unwrap();
            let long = "x".repeat(17 << 20);
            let reply = client.query(format!("SELECT '{long}' AS s, 1 AS i")).unwrap();
            let values = &reply.rows().unwrap().rows[0].values;
            assert!(values[0] == Value::Bytes(long.into_bytes()) && values[1] == Value::Bytes(b"1".to_vec()));
        }
    });
}

#[test]
fn local_files_pipelines_and_the_rest() {
    each_flavor(|server| {
        let options = ConnectOptions::app(server).with(Capabilities::LOCAL_FILES).attribute("program_name", "lab");
        let mut client = Client::connect(&options).unwrap();
        client.run("CREATE TEMPORARY TABLE f(s VARCHAR(20))").unwrap();
        client.set_infile_handler(Box::new(|name| (name == "here").then(|| b"one\ntwo\n".to_vec())));
        let loaded = client.run("LOAD DATA LOCAL INFILE 'here' INTO TABLE f").unwrap();
        assert_eq!(loaded.ok().unwrap().affected_rows, 2);
        for i in 0..3 {
            client.send_query(format!("SELECT {i}")).unwrap();
        }
        for i in 0..3 {
            let reply = client.recv_reply(Encoding::Text).unwrap();
            assert_eq!(reply.scalar().unwrap(), Some(i.to_string()));
        }
        assert!(client.statistics().unwrap().starts_with("Uptime"));
        client.init_db("test").unwrap().ok().unwrap();
        client.set_option(0).unwrap();
        assert!(matches!(client.reset_connection().unwrap().results[..], [Outcome::Ok(_)]));
        client.change_user(&ConnectOptions::tcp("", "empty", "")).unwrap();
        assert_eq!(client.scalar("SELECT CURRENT_USER()").unwrap().as_deref(), Some("empty@%"));
        assert_eq!(client.change_user(&ConnectOptions::app(server)).unwrap().header, 0);
        client.send_command(Command::Ping, b"").unwrap();
        assert_eq!(client.recv_packet().unwrap()[0], 0);
        client.quit().unwrap();
    });
}

#[test]
fn mariadb_extended_and_cached_metadata() {
    let extended = Capabilities::MARIADB_CLIENT_EXTENDED_METADATA | Capabilities::MARIADB_CLIENT_CACHE_METADATA;
    for caps in [ConnectOptions::MODERN, ConnectOptions::CLASSIC] {
        let options = ConnectOptions::app(server(Flavor::Mariadb)).capabilities(caps | extended);
        let mut client = Client::connect(&options).unwrap();
        assert!(client.capabilities().contains(extended));
        client.run("CREATE TEMPORARY TABLE j(d JSON)").unwrap();
        let reply = client.run("SELECT d FROM j").unwrap();
        assert!(!reply.rows().unwrap().columns[0].extended.is_empty());
        let statement = client.prepare("SELECT 'a' AS s, 1 AS i").unwrap();
        for _ in 0..2 {
            let reply = client.execute(&statement, &[]).unwrap();
            assert_eq!(reply.rows().unwrap().rows[0].values, [Value::Bytes(b"a".to_vec()), Value::Int(1)]);
        }
    }
}

#[test]
fn mysql_results_without_metadata() {
    for caps in [ConnectOptions::MODERN, ConnectOptions::CLASSIC] {
        let caps = caps | Capabilities::OPTIONAL_RESULTSET_METADATA;
        let options = ConnectOptions::app(server(Flavor::Mysql)).capabilities(caps);
        let mut client = Client::connect(&options).unwrap();
        let described = client.run("SELECT 1 AS i").unwrap();
        assert_eq!(described.rows().unwrap().columns[0].name, "i");
        client.run("SET resultset_metadata=NONE").unwrap();
        let bare = client.run("SELECT 1 AS i").unwrap();
        assert_eq!(bare.rows().unwrap().columns[0].name, "");
        assert_eq!(bare.scalar().unwrap().as_deref(), Some("1"));
    }
}

/// MySQL 9.7 reports the state of a transaction with tracking switched off; MariaDB is silent. A client that asked for nothing must get
/// nothing: the proxy strips it.
#[test]
fn mysql_reports_transactions_though_it_is_not_asked_to() {
    each_flavor(|server| {
        let mut client = Client::connect(&ConnectOptions::app(server)).unwrap();
        client.run("SET SESSION session_track_transaction_info=OFF").unwrap();
        for sql in ["BEGIN", "COMMIT"] {
            let reports = !client.run(sql).unwrap().ok().unwrap().session_state.is_empty();
            assert_eq!(reports, server.flavor() == Flavor::Mysql, "{sql}");
        }
    });
}
