//! Passwords that stand in files, as Kubernetes mounts them: links to a directory that is replaced as a whole.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use lab::tidegate::Builder;
use lab::{Client, Flavor, Options, Server, Tidegate, wait};

use crate::bed::{LIMIT, Operator, get};

/// A volume with a secret; each file is a link into the version that is current.
struct Volume(PathBuf);

impl Volume {
    fn new(server: &Server, name: &str, files: &[(&str, &str)]) -> Self {
        let volume = Self(server.datadir().with_file_name(name));
        fs::create_dir(&volume.0).unwrap();
        volume.update("v1", files);
        for (file, _) in files {
            symlink(Path::new("..data").join(file), volume.file(file)).unwrap();
        }
        volume
    }

    /// All files at once, as a kubelet does it.
    fn update(&self, version: &str, files: &[(&str, &str)]) {
        fs::create_dir(self.0.join(version)).unwrap();
        for (file, text) in files {
            fs::write(self.0.join(version).join(file), text).unwrap();
        }
        let scratch = self.0.join("..data_tmp");
        symlink(version, &scratch).unwrap();
        fs::rename(scratch, self.0.join("..data")).unwrap();
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn shown(&self, name: &str) -> String {
        self.file(name).display().to_string()
    }
}

fn until_logged(proxy: &Tidegate, what: &str) {
    wait::until(what, LIMIT, || proxy.log().contains(what).then_some(())).unwrap();
}

/// Waits until the monitor has logged in again since `since`, with the wanted result.
fn until_monitored(operator: &mut Operator, since: &str, wanted: &str) {
    let sql = format!(
        "SELECT MAX(connect_error IS NULL) || COALESCE(MAX(connect_error LIKE '%denied%'), 0) FROM mysql_server_connect_log WHERE time_start_us > {since}"
    );
    wait::until("a login of the monitor", LIMIT, || (operator.row(&sql) == wanted).then_some(())).unwrap();
}

fn before(server: &Server, volume: &Volume) -> Builder {
    let attributes = format!("{{\"password_file\": \"{}\"}}", volume.shown("app"));
    Tidegate::builder()
        .backend(0, server)
        .user_with("app", "unused", 0, &[("attributes", attributes.as_str().into())])
        .variable("threads", 1)
        .variable("monitor_connect_interval", 200)
        .variable("monitor_password_file", volume.shown("monitor").as_str())
        .admin_variable("admin_credentials_file", volume.shown("admin").as_str())
}

/// Rotated while clients are served: the server's password first, then the file.
fn rotation(flavor: Flavor) {
    let server = Server::start(flavor, &Options::new()).unwrap();
    let first = [("monitor", "monitor\n"), ("admin", "root:first\n"), ("app", "app-pass")];
    let volume = Volume::new(&server, "volume", &first);
    let mut proxy = before(&server, &volume).start().unwrap();
    let mut operator = Operator::login(&proxy, "root", "first").unwrap();
    assert!(Operator::login(&proxy, "admin", "admin").is_err(), "the file stands for the setting");
    until_monitored(&mut operator, "0", "10");
    let mut app = proxy.connect_app().unwrap();
    assert_eq!(get(&mut app, "SELECT 1"), "1");

    // The path is shown, not the secret.
    let shown =
        operator.rows("SELECT variable_value FROM runtime_global_variables WHERE variable_name LIKE '%monitor_password%' ORDER BY 1");
    assert_eq!(shown, [volume.shown("monitor").as_str(), "monitor"]);
    let dump = operator.row("SELECT CONFIG FILE");
    assert!(dump.contains(&volume.shown("admin")) && !dump.contains("root:first") && !dump.contains("app-pass"), "{dump}");
    assert!(operator.row("SELECT attributes FROM runtime_mysql_users LIMIT 1").contains(&volume.shown("app")));

    for user in ["monitor", "app"] {
        server.sql(&format!("ALTER USER '{user}'@'%' IDENTIFIED BY '{user}-second'")).unwrap();
    }
    let now = "SELECT MAX(time_start_us) FROM mysql_server_connect_log";
    let changed = operator.row(now);
    until_monitored(&mut operator, &changed, "01");
    volume.update("v2", &[("monitor", "monitor-second\n"), ("admin", "root:second\n"), ("app", "app-second\n")]);
    until_logged(&proxy, &format!("mysql-monitor_password_file: '{}' has changed; the new content is in force", volume.shown("monitor")));
    let read = operator.row(now);
    until_monitored(&mut operator, &read, "10");
    assert!(Operator::login(&proxy, "root", "first").is_err(), "the old login is refused");
    let mut operator = Operator::login(&proxy, "root", "second").unwrap();
    assert!(Client::connect(&proxy.options("app", "app-pass")).is_err());
    let mut again = Client::connect(&proxy.options("app", "app-second").database("test")).unwrap();
    assert_eq!((get(&mut again, "SELECT 2"), get(&mut app, "SELECT 3")), ("2".to_owned(), "3".to_owned()));

    // A missing secret file, and one with wrong contents, leave the loaded secret in force.
    volume.update("v3", &[("monitor", "monitor-second\n"), ("admin", "no login\n")]);
    until_logged(&proxy, "its earlier content stays in force");
    for (file, name) in [("admin", "admin-admin_credentials_file"), ("app", "password_file of user 'app'")] {
        until_logged(&proxy, &format!("{name}: cannot read '{}': ", volume.shown(file)));
    }
    let metric = |operator: &mut Operator| {
        let all = operator.row("SHOW PROMETHEUS METRICS");
        let line = all.lines().find(|line| line.starts_with("tidegate_secret_files_unreadable ")).unwrap().to_owned();
        line.rsplit(' ').next().unwrap().to_owned()
    };
    assert_eq!(metric(&mut operator), "2");
    operator.all(&["SET mysql-max_connections=77", "LOAD MYSQL VARIABLES TO RUNTIME", "LOAD ADMIN VARIABLES TO RUNTIME"]);
    drop(Operator::login(&proxy, "root", "second").unwrap());
    // A process that takes over has the secrets of the old one.
    let answer = operator.ok("PROXYSQL UPGRADE").info.clone();
    proxy.follow(&answer).unwrap();
    let mut operator = Operator::login(&proxy, "root", "second").unwrap();
    assert_eq!(metric(&mut operator), "2");
    Client::connect(&proxy.options("app", "app-second").database("test")).unwrap();

    volume.update("v4", &[("monitor", "monitor-second\n"), ("admin", "root:fourth\n"), ("app", "app-second\n")]);
    wait::until("the files to be read again", LIMIT, || (metric(&mut operator) == "0").then_some(())).unwrap();
    drop(Operator::login(&proxy, "root", "fourth").unwrap());
    let log = proxy.log();
    for secret in ["root:first", "root:second", "root:fourth", "-second", "no login", "app-pass"] {
        assert!(!log.contains(secret), "{secret} is in the log: {log}");
    }
}

lab::each!(rotation);

#[test]
fn a_file_that_cannot_be_read_is_refused() {
    let server = &crate::bed::servers()[0];
    let volume = Volume::new(server, "refused", &[("monitor", "monitor"), ("admin", "root:first"), ("app", "app-pass")]);
    let mut proxy = before(server, &volume).arg("--declarative").start().unwrap();
    let mut operator = Operator::login(&proxy, "root", "first").unwrap();
    let nowhere = volume.shown("nowhere");
    let refused = |operator: &mut Operator, module: &str, name: &str| {
        for sql in [format!("LOAD {module} TO RUNTIME"), format!("SAVE {module} TO DISK"), "CONFIG CHECK".to_owned()] {
            let text = operator.refused(&sql);
            assert!(text.contains(&format!("{name}: cannot read '{nowhere}': No such file")), "{sql}: {text}");
        }
    };
    operator.ok(&format!("SET admin-stats_credentials_file='{nowhere}'"));
    refused(&mut operator, "ADMIN VARIABLES", "admin-stats_credentials_file");
    operator.ok("SET admin-stats_credentials_file=''");
    operator.ok(&format!("UPDATE mysql_users SET attributes='{{\"password_file\":\"{nowhere}\"}}'"));
    refused(&mut operator, "MYSQL USERS", "mysql_users, username=app, backend=1, column attributes");
    // The file that is declared is another one, and its contents change.
    fs::write(volume.file("other"), "watch:one\n").unwrap();
    let file = proxy.config_file();
    let text = fs::read_to_string(&file).unwrap();
    let line = format!("admin_variables =\n{{\n    stats_credentials_file=\"{}\"", volume.shown("other"));
    fs::write(&file, text.replacen("admin_variables =\n{", &line, 1)).unwrap();
    for password in ["one", "two"] {
        fs::write(volume.file("other"), format!("watch:{password}\n")).unwrap();
        let login = || Operator::login(&proxy, "watch", password).ok();
        drop(wait::until("a login for statistics", LIMIT, login).unwrap());
    }
    assert_eq!(operator.ok("PROXYSQL RELOAD SECRETS").info, "4 files with secrets are read");
    // A start without the file says so.
    fs::remove_file(volume.file("other")).unwrap();
    drop(operator);
    assert!(proxy.start_again(&["--declarative"]).is_err());
    let log = proxy.log();
    assert!(log.contains(&format!("admin-stats_credentials_file: cannot read '{}': No such file", volume.shown("other"))), "{log}");
}
