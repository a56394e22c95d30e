//! Statements about replication channels, in the words of each version: the only place that spells them. Pure.
//!
//! Versions decide by number: MySQL has new words from 8.0.22 (SHOW), 8.0.23 (CHANGE) on, MariaDB has the old ones.
//! <https://dev.mysql.com/doc/refman/8.4/en/change-replication-source-to.html>, <https://mariadb.com/kb/en/change-master-to/>.
//! INVARIANT: a password is in the text of [`point`] alone. Such a text goes to a server, never to an error, an event or the log.

use model::{Secret, ServerAddr};

use crate::client::{Connection, Fault, Version};
use wire::codes;

/// Attempts to reach a source, one each `retry_s`. MySQL's default of newer versions ends after ten.
const RETRIES: u32 = 86_400;
/// A name that no channel has.
const NOBODYS: &str = "tidegate_may_this_user";

/// The account by which a server logs in to its source.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Credentials {
    pub(crate) user: String,
    pub(crate) password: Secret,
}

/// The position from which a channel continues at its new source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The channel's present position.
    Kept,
    /// By GTID, after the transactions that the server has received.
    Gtid,
    /// By GTID, after all transactions of the server, its own writes too: it was a primary.
    Demoted,
}

/// The options of a changed channel. Options without a field stay: filters and delay.
#[derive(Debug)]
pub(crate) struct Pointing<'a> {
    /// The channel; empty for the one without a name.
    pub(crate) name: &'a str,
    /// The new source.
    pub(crate) source: &'a ServerAddr,
    /// Time between attempts to connect, s; None leaves it.
    pub(crate) retry_s: Option<u64>,
    /// None leaves the account.
    pub(crate) credentials: Option<&'a Credentials>,
    /// TLS options by the end of their name (`SSL_CA`), with their values as SQL.
    pub(crate) tls: &'a [(&'static str, String)],
    /// The position from which it continues.
    pub(crate) place: Place,
}

/// Waits until a server has applied everything up to `position`; the answer is 0 then. `seconds` is a number with decimals or without.
pub(crate) fn wait(version: &Version, position: &str, seconds: impl std::fmt::Display) -> String {
    let function = if version.is_mariadb { "MASTER_GTID_WAIT" } else { "WAIT_FOR_EXECUTED_GTID_SET" };
    format!("SELECT {function}('{position}', {seconds})")
}

/// Stops both threads.
pub(crate) fn stop(version: &Version, name: &str) -> String {
    verb(version, "STOP", name)
}

/// Stops the receiver. The applier continues, and received transactions are kept. Only MySQL lets the source be changed meanwhile.
pub(crate) fn stop_receiver(version: &Version, name: &str) -> String {
    receiver(version, "STOP", name)
}

/// Starts the receiver.
pub(crate) fn start_receiver(version: &Version, name: &str) -> String {
    receiver(version, "START", name)
}

/// Starts both threads.
pub(crate) fn start(version: &Version, name: &str) -> String {
    verb(version, "START", name)
}

/// Forgets a channel and its account; it must be stopped.
pub(crate) fn forget(version: &Version, name: &str) -> String {
    match words(version) {
        Words::Mariadb => format!("RESET SLAVE {} ALL", quoted(name)),
        Words::Mysql { replica, .. } => format!("RESET {replica} ALL FOR CHANNEL {}", quoted(name)),
    }
}

/// Points a stopped channel at a source; a channel that is not there is made.
pub(crate) fn point(version: &Version, to: &Pointing<'_>) -> String {
    let words = words(version);
    let prefix = match words {
        Words::Mariadb => "MASTER",
        Words::Mysql { source, .. } => source,
    };
    let mut parts = vec![format!("{prefix}_HOST={}", quoted(&to.source.host)), format!("{prefix}_PORT={}", to.source.port)];
    parts.extend(to.retry_s.map(|seconds| format!("{prefix}_CONNECT_RETRY={seconds}")));
    if let Some(Credentials { user, password }) = to.credentials {
        parts.push(format!("{prefix}_USER={}", quoted(user)));
        parts.push(format!("{prefix}_PASSWORD={}", quoted(&password.expose_text())));
        if version.is_mysql_since((8, 0, 4)) {
            parts.push(format!("GET_{prefix}_PUBLIC_KEY=1"));
        }
    }
    parts.extend(to.tls.iter().map(|(option, value)| format!("{prefix}_{option}={value}")));
    parts.extend(place(version, prefix, to.place));
    if to.retry_s.is_some() && !version.is_mariadb {
        parts.push(format!("{prefix}_RETRY_COUNT={RETRIES}"));
    }
    let (list, name) = (parts.join(", "), quoted(to.name));
    match words {
        Words::Mariadb => format!("CHANGE MASTER {name} TO {list}"),
        Words::Mysql { change, .. } => format!("{change} TO {list} FOR CHANNEL {name}"),
    }
}

/// MariaDB takes over its own writes into `gtid_slave_pos` from 10.10 on; before, `current_pos` counts them.
fn place(version: &Version, prefix: &str, place: Place) -> Vec<String> {
    match (place, version.is_mariadb) {
        (Place::Kept, _) => Vec::new(),
        (_, false) => vec![format!("{prefix}_AUTO_POSITION=1")],
        (Place::Demoted, true) if version.number >= (10, 10, 0) => {
            vec!["MASTER_USE_GTID=slave_pos".to_owned(), "MASTER_DEMOTE_TO_SLAVE=1".to_owned()]
        }
        (Place::Demoted, true) => vec!["MASTER_USE_GTID=current_pos".to_owned()],
        (Place::Gtid, true) => vec!["MASTER_USE_GTID=slave_pos".to_owned()],
    }
}

/// A statement that changes nothing and fails; without [`privilege`], the server refuses it for that. None where no statement shows it
/// (MySQL 5.7, where setting `read_only` needs the same privilege).
pub(crate) fn may_change(version: &Version) -> Option<String> {
    match version.is_mariadb {
        true => Some(format!("SET GLOBAL gtid_slave_pos='{NOBODYS}'")),
        false if version.number >= (8, 0, 0) => {
            Some(format!("CHANGE REPLICATION FILTER REPLICATE_DO_DB=({NOBODYS}) FOR CHANNEL '{NOBODYS}'"))
        }
        false => None,
    }
}

/// The same for [`forget`], which needs RELOAD.
pub(crate) fn may_forget(version: &Version) -> String {
    forget(version, NOBODYS)
}

/// The privilege to stop, start and point channels.
pub(crate) fn privilege(version: &Version) -> &'static str {
    match version.is_mariadb {
        true if version.number >= (10, 5, 2) => "REPLICATION SLAVE ADMIN ON *.*",
        false if version.number >= (8, 0, 0) => "REPLICATION_SLAVE_ADMIN ON *.*",
        _ => "SUPER ON *.*",
    }
}

/// The privileges for `SET GLOBAL read_only`.
pub(crate) fn read_only_privilege(version: &Version) -> &'static str {
    match version.is_mariadb {
        true if version.number >= (10, 5, 2) => "READ_ONLY ADMIN ON *.*",
        false if version.number >= (8, 0, 0) => "SYSTEM_VARIABLES_ADMIN, CONNECTION_ADMIN ON *.*",
        _ => "SUPER ON *.*",
    }
}

/// The privilege for [`forget`].
pub(crate) const FORGET_PRIVILEGE: &str = "RELOAD ON *.*";

/// Has a server do it. The error has neither the statement nor a password in it: with `has_secret`, nothing of the server's text.
pub(crate) async fn tell(connection: &mut Connection, sql: &str, needs: &str, has_secret: bool) -> Result<(), String> {
    connection.query(sql).await.map(drop).map_err(|fault| refusal(fault, needs, has_secret))
}

/// The fault in words. Servers quote the text that they did not understand, which may hold a password.
fn refusal(fault: Fault, needs: &str, has_secret: bool) -> String {
    match fault {
        Fault::Server { code: codes::PARSE, .. } => format!("the server does not understand the statement (error {})", codes::PARSE),
        Fault::Server { code, .. } if has_secret => {
            Fault::Server { code, text: "the server refuses the statement".to_owned() }.with_hint(needs).to_string()
        }
        fault => fault.with_hint(needs).to_string(),
    }
}

/// Texts of SQL are escaped in one way from now on, whatever the server's default is; before [`point`].
pub(crate) async fn plain_texts(connection: &mut Connection) -> Result<(), String> {
    connection.query("SET SESSION sql_mode=''").await.map(drop).map_err(|fault| fault.to_string())
}

/// A text as an SQL literal, for sessions in which a backslash has one meaning ([`plain_texts`]).
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

enum Words {
    Mariadb,
    Mysql { replica: &'static str, source: &'static str, change: &'static str },
}

fn words(version: &Version) -> Words {
    match version.is_mariadb {
        true => Words::Mariadb,
        false if version.number >= (8, 0, 23) => Words::Mysql { replica: "REPLICA", source: "SOURCE", change: "CHANGE REPLICATION SOURCE" },
        false => Words::Mysql { replica: "SLAVE", source: "MASTER", change: "CHANGE MASTER" },
    }
}

fn receiver(version: &Version, verb: &str, name: &str) -> String {
    match words(version) {
        Words::Mariadb => format!("{verb} SLAVE {} IO_THREAD", quoted(name)),
        Words::Mysql { replica, .. } => format!("{verb} {replica} IO_THREAD FOR CHANNEL {}", quoted(name)),
    }
}

fn verb(version: &Version, verb: &str, name: &str) -> String {
    match words(version) {
        Words::Mariadb => format!("{verb} SLAVE {}", quoted(name)),
        Words::Mysql { replica, .. } => format!("{verb} {replica} FOR CHANNEL {}", quoted(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARIADB: [(u32, u32, u32); 2] = [(10, 11, 6), (10, 5, 29)];
    const MYSQL: [(u32, u32, u32); 4] = [(9, 7, 0), (8, 0, 23), (8, 0, 22), (5, 7, 44)];

    fn version(is_mariadb: bool, number: (u32, u32, u32)) -> Version {
        Version { is_mariadb, number }
    }

    #[test]
    fn threads_are_told_in_each_servers_words() {
        let old = version(false, (8, 0, 22));
        let [mariadb, new] = [version(true, MARIADB[0]), version(false, MYSQL[0])];
        assert_eq!([stop(&mariadb, ""), start(&mariadb, "it's")], ["STOP SLAVE ''", "START SLAVE 'it''s'"]);
        assert_eq!([stop(&new, "a"), start(&new, "")], ["STOP REPLICA FOR CHANNEL 'a'", "START REPLICA FOR CHANNEL ''"]);
        assert_eq!([stop(&old, "a"), start(&old, "")], ["STOP SLAVE FOR CHANNEL 'a'", "START SLAVE FOR CHANNEL ''"]);
        assert_eq!(stop_receiver(&new, "a FOR b"), "STOP REPLICA IO_THREAD FOR CHANNEL 'a FOR b'");
        assert_eq!(
            [stop_receiver(&old, ""), start_receiver(&old, "a")],
            ["STOP SLAVE IO_THREAD FOR CHANNEL ''", "START SLAVE IO_THREAD FOR CHANNEL 'a'"]
        );
        assert_eq!(stop_receiver(&mariadb, "a"), "STOP SLAVE 'a' IO_THREAD");
        assert_eq!(forget(&mariadb, ""), "RESET SLAVE '' ALL");
        assert_eq!(forget(&new, ""), "RESET REPLICA ALL FOR CHANNEL ''");
        assert_eq!(forget(&old, "a"), "RESET SLAVE ALL FOR CHANNEL 'a'");
    }

    #[test]
    fn a_replica_keeps_all_but_its_source() {
        let source = ServerAddr { host: "10.0.0.2".into(), port: 3306 };
        let to = Pointing { name: "", source: &source, retry_s: None, credentials: None, tls: &[], place: Place::Kept };
        for number in MARIADB {
            assert_eq!(point(&version(true, number), &to), "CHANGE MASTER '' TO MASTER_HOST='10.0.0.2', MASTER_PORT=3306");
        }
        let said = MYSQL.map(|number| point(&version(false, number), &to));
        let new = "CHANGE REPLICATION SOURCE TO SOURCE_HOST='10.0.0.2', SOURCE_PORT=3306 FOR CHANNEL ''";
        let old = "CHANGE MASTER TO MASTER_HOST='10.0.0.2', MASTER_PORT=3306 FOR CHANNEL ''";
        assert_eq!(said, [new, new, old, old]);
    }

    #[test]
    fn a_former_primary_goes_on_behind_its_own_writes() {
        let source = ServerAddr { host: "b".into(), port: 1 };
        let credentials = Credentials { user: "repl".into(), password: Secret::from("a'b\\c") };
        let tls = [("SSL", "1".to_owned()), ("SSL_CA", quoted("/ca.pem"))];
        let to =
            Pointing { name: "", source: &source, retry_s: Some(1), credentials: Some(&credentials), tls: &tls, place: Place::Demoted };
        let said = |is_mariadb, number| point(&version(is_mariadb, number), &to);
        let mariadb = "CHANGE MASTER '' TO MASTER_HOST='b', MASTER_PORT=1, MASTER_CONNECT_RETRY=1, MASTER_USER='repl', \
                       MASTER_PASSWORD='a''b\\\\c', MASTER_SSL=1, MASTER_SSL_CA='/ca.pem', ";
        assert_eq!(said(true, MARIADB[0]), format!("{mariadb}MASTER_USE_GTID=slave_pos, MASTER_DEMOTE_TO_SLAVE=1"));
        assert_eq!(said(true, MARIADB[1]), format!("{mariadb}MASTER_USE_GTID=current_pos"));
        assert_eq!(
            said(false, MYSQL[0]),
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST='b', SOURCE_PORT=1, SOURCE_CONNECT_RETRY=1, SOURCE_USER='repl', \
             SOURCE_PASSWORD='a''b\\\\c', GET_SOURCE_PUBLIC_KEY=1, SOURCE_SSL=1, SOURCE_SSL_CA='/ca.pem', SOURCE_AUTO_POSITION=1, \
             SOURCE_RETRY_COUNT=86400 FOR CHANNEL ''"
        );
        let old = said(false, MYSQL[3]);
        assert!(old.starts_with("CHANGE MASTER TO MASTER_HOST='b'") && !old.contains("PUBLIC_KEY"), "{old}");
        assert!(said(false, MYSQL[2]).contains("GET_MASTER_PUBLIC_KEY=1, MASTER_SSL=1"));
        assert_eq!(format!("{credentials:?}"), "Credentials { user: \"repl\", password: *** }");
    }

    #[test]
    fn a_refusal_repeats_no_secret() {
        let fault = |code| Fault::Server { code, text: "Incorrect value: 'a\nsecret'".into() };
        assert_eq!(refusal(fault(1525), "SUPER", true), "the server refuses the statement (error 1525)");
        let denied = refusal(fault(codes::SPECIFIC_ACCESS_DENIED), "SUPER", true);
        assert_eq!(denied, "the server refuses the statement (the monitor's user needs SUPER) (error 1227)");
        assert_eq!(refusal(fault(1525), "SUPER", false), "Incorrect value: 'a\nsecret' (error 1525)");
        assert!(!refusal(fault(codes::PARSE), "SUPER", false).contains("secret"));
    }

    #[test]
    fn what_asks_for_a_privilege_changes_nothing() {
        assert_eq!(may_change(&version(true, MARIADB[1])).unwrap(), "SET GLOBAL gtid_slave_pos='tidegate_may_this_user'");
        assert!(may_change(&version(false, MYSQL[2])).unwrap().starts_with("CHANGE REPLICATION FILTER"));
        assert_eq!(may_change(&version(false, MYSQL[3])), None);
        assert_eq!(may_forget(&version(true, MARIADB[0])), "RESET SLAVE 'tidegate_may_this_user' ALL");
        let needed = [(true, (10, 4, 9)), (true, (10, 5, 2)), (false, (5, 7, 9)), (false, (8, 0, 0))]
            .map(|(is_mariadb, number)| privilege(&version(is_mariadb, number)));
        let [super_, slave, replication] = ["SUPER ON *.*", "REPLICATION SLAVE ADMIN ON *.*", "REPLICATION_SLAVE_ADMIN ON *.*"];
        assert_eq!(needed, [super_, slave, super_, replication]);
    }
}
