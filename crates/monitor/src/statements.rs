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

/// The account by which a server logs in to its source.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Credentials {
    /// Its name.
    pub(crate) user: String,
    /// Its password.
    pub(crate) password: Secret,
}

/// What a channel is told; it finds its place by GTID. What is not named stays as it is: account, TLS options, filters, delay.
#[derive(Debug)]
pub(crate) struct Pointing<'a> {
    /// The channel; empty for the one without a name.
    pub(crate) name: &'a str,
    /// Where it receives from.
    pub(crate) source: &'a ServerAddr,
    /// Time between attempts to connect, s.
    pub(crate) retry_s: u64,
    /// None leaves the account.
    pub(crate) credentials: Option<&'a Credentials>,
}

/// Stops both threads.
pub(crate) fn stop(version: &Version, name: &str) -> String {
    verb(version, "STOP", name)
}

/// Starts both threads.
pub(crate) fn start(version: &Version, name: &str) -> String {
    verb(version, "START", name)
}

/// Points a stopped channel at a source; a channel that is not there is made.
pub(crate) fn point(version: &Version, to: &Pointing<'_>) -> String {
    let words = words(version);
    let prefix = match words {
        Words::Mariadb => "MASTER",
        Words::Mysql { source, .. } => source,
    };
    let mut parts = vec![format!("{prefix}_HOST={}", quoted(&to.source.host)), format!("{prefix}_PORT={}", to.source.port)];
    parts.push(format!("{prefix}_CONNECT_RETRY={}", to.retry_s));
    if let Some(Credentials { user, password }) = to.credentials {
        parts.push(format!("{prefix}_USER={}", quoted(user)));
        parts.push(format!("{prefix}_PASSWORD={}", quoted(&password.expose_text())));
        if version.is_mysql_since((8, 0, 4)) {
            parts.push(format!("GET_{prefix}_PUBLIC_KEY=1"));
        }
    }
    match words {
        Words::Mariadb => parts.push("MASTER_USE_GTID=slave_pos".to_owned()),
        Words::Mysql { .. } => parts.extend([format!("{prefix}_AUTO_POSITION=1"), format!("{prefix}_RETRY_COUNT={RETRIES}")]),
    }
    let (list, name) = (parts.join(", "), quoted(to.name));
    match words {
        Words::Mariadb => format!("CHANGE MASTER {name} TO {list}"),
        Words::Mysql { change, .. } => format!("{change} TO {list} FOR CHANNEL {name}"),
    }
}

/// What it takes to stop, start and point channels.
pub(crate) fn privilege(version: &Version) -> &'static str {
    match version.is_mariadb {
        true if version.number >= (10, 5, 2) => "REPLICATION SLAVE ADMIN ON *.*",
        false if version.number >= (8, 0, 0) => "REPLICATION_SLAVE_ADMIN ON *.*",
        _ => "SUPER ON *.*",
    }
}

/// Has a server do it. The error has neither the statement nor a password in it.
pub(crate) async fn tell(connection: &mut Connection, sql: &str, needs: &str) -> Result<(), String> {
    match connection.query(sql).await {
        Ok(_) => Ok(()),
        // A server repeats what it did not understand.
        Err(Fault::Server { code: codes::PARSE, .. }) => {
            Err(format!("the server does not understand the statement (error {})", codes::PARSE))
        }
        Err(fault) => Err(fault.with_hint(needs).to_string()),
    }
}

/// Texts of SQL are escaped in one way from now on, whatever the server's default is; before [`point`].
pub(crate) async fn plain_texts(connection: &mut Connection) -> Result<(), String> {
    connection.query("SET SESSION sql_mode=''").await.map(drop).map_err(|fault| fault.to_string())
}

/// A text of SQL, where no mode changes what a backslash is.
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

fn verb(version: &Version, verb: &str, name: &str) -> String {
    match words(version) {
        Words::Mariadb => format!("{verb} SLAVE {}", quoted(name)),
        Words::Mysql { replica, .. } => format!("{verb} {replica} FOR CHANNEL {}", quoted(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(is_mariadb: bool, number: (u32, u32, u32)) -> Version {
        Version { is_mariadb, number }
    }

    #[test]
    fn threads_are_told_in_each_servers_words() {
        let old = version(false, (8, 0, 22));
        let [mariadb, new] = [version(true, (10, 11, 6)), version(false, (9, 7, 0))];
        assert_eq!([stop(&mariadb, ""), start(&mariadb, "it's")], ["STOP SLAVE ''", "START SLAVE 'it''s'"]);
        assert_eq!([stop(&new, "a"), start(&new, "")], ["STOP REPLICA FOR CHANNEL 'a'", "START REPLICA FOR CHANNEL ''"]);
        assert_eq!([stop(&old, "a"), start(&old, "")], ["STOP SLAVE FOR CHANNEL 'a'", "START SLAVE FOR CHANNEL ''"]);
    }

    #[test]
    fn a_channel_is_pointed_in_each_servers_words() {
        let source = ServerAddr { host: "b".into(), port: 1 };
        let credentials = Credentials { user: "repl".into(), password: Secret::from("a'b\\c") };
        let to = Pointing { name: "", source: &source, retry_s: 1, credentials: Some(&credentials) };
        assert_eq!(
            point(&version(true, (10, 11, 6)), &to),
            "CHANGE MASTER '' TO MASTER_HOST='b', MASTER_PORT=1, MASTER_CONNECT_RETRY=1, MASTER_USER='repl', MASTER_PASSWORD='a''b\\\\c', \
             MASTER_USE_GTID=slave_pos"
        );
        let new = point(&version(false, (9, 7, 0)), &to);
        assert!(new.starts_with("CHANGE REPLICATION SOURCE TO SOURCE_HOST='b'") && new.contains("GET_SOURCE_PUBLIC_KEY=1"), "{new}");
        let old = point(&version(false, (5, 7, 44)), &to);
        assert!(old.starts_with("CHANGE MASTER TO MASTER_HOST='b'") && !old.contains("PUBLIC_KEY"), "{old}");
        assert_eq!(format!("{credentials:?}"), "Credentials { user: \"repl\", password: *** }");
    }

    #[test]
    fn privileges_have_each_versions_names() {
        let needed = [(true, (10, 4, 9)), (true, (10, 5, 2)), (false, (5, 7, 9)), (false, (8, 0, 0))]
            .map(|(is_mariadb, number)| privilege(&version(is_mariadb, number)));
        let [super_, slave, replication] = ["SUPER ON *.*", "REPLICATION SLAVE ADMIN ON *.*", "REPLICATION_SLAVE_ADMIN ON *.*"];
        assert_eq!(needed, [super_, slave, super_, replication]);
    }
}
