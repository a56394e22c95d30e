//! Steps as statements. INVARIANT: the password is in the statement alone, never in an error or an event.

use model::Secret;
use model::snapshot::Channel;

use super::judge::Act;
use crate::client::{Connection, Fault, Version};
use wire::codes;

/// Whom a server is to log in to the source as.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Credentials {
    pub(super) user: String,
    pub(super) password: Secret,
}

/// Between attempts of a server to reach its source, s. It is through a proxy mostly, which is there again at once.
const CONNECT_RETRY_S: u32 = 1;
/// Attempts, a second each: MySQL's default of newer versions ends after ten.
const RETRIES: u32 = 86_400;

/// Does it.
pub(super) async fn act(
    connection: &mut Connection,
    channel: &Channel,
    act: &Act,
    credentials: Option<&Credentials>,
) -> Result<(), String> {
    // Texts are escaped in one way then, whatever the server's default is.
    if *act == Act::Point {
        connection.query("SET SESSION sql_mode=''").await.map_err(|fault| fault.to_string())?;
    }
    let sql = statement(connection.version(), channel, act, credentials);
    let privilege = privilege(connection.version());
    match connection.query(&sql).await {
        Ok(_) => Ok(()),
        // A server repeats what it did not understand.
        Err(Fault::Server { code: codes::PARSE, .. }) => {
            Err(format!("the server does not understand the statement (error {})", codes::PARSE))
        }
        Err(fault) => Err(fault.with_hint(privilege).to_string()),
    }
}

/// The statement that stops a channel.
pub(crate) fn stop(version: &Version, channel: &Channel) -> String {
    statement(version, channel, &Act::Stop, None)
}

/// What it takes.
fn privilege(version: &Version) -> &'static str {
    match version.is_mariadb {
        true => "REPLICATION SLAVE ADMIN ON *.*",
        false if version.number >= (8, 0, 0) => "REPLICATION_SLAVE_ADMIN ON *.*",
        false => "SUPER ON *.*",
    }
}

fn statement(version: &Version, channel: &Channel, act: &Act, credentials: Option<&Credentials>) -> String {
    let name = &channel.name;
    let is_new = version.is_mysql_since((8, 0, 23));
    let replica = if is_new { "REPLICA" } else { "SLAVE" };
    match act {
        Act::Stop | Act::Start => {
            let verb = if *act == Act::Stop { "STOP" } else { "START" };
            if version.is_mariadb { format!("{verb} SLAVE '{name}'") } else { format!("{verb} {replica} FOR CHANNEL '{name}'") }
        }
        Act::Place(position) => format!("SET GLOBAL gtid_slave_pos='{position}'"),
        Act::Point => {
            let source = if is_new { "SOURCE" } else { "MASTER" };
            let (host, port) = (&channel.source.host, channel.source.port);
            let mut parts = vec![
                format!("{source}_HOST='{host}'"),
                format!("{source}_PORT={port}"),
                format!("{source}_CONNECT_RETRY={CONNECT_RETRY_S}"),
            ];
            if let Some(Credentials { user, password }) = credentials {
                parts.push(format!("{source}_USER={}", quoted(user)));
                parts.push(format!("{source}_PASSWORD={}", quoted(&password.expose_text())));
                if is_new {
                    parts.push("GET_SOURCE_PUBLIC_KEY=1".to_owned());
                }
            }
            if version.is_mariadb {
                parts.push("MASTER_USE_GTID=slave_pos".to_owned())
            } else {
                parts.extend([format!("{source}_AUTO_POSITION=1"), format!("{source}_RETRY_COUNT={RETRIES}")])
            }
            let list = parts.join(", ");
            match version.is_mariadb {
                true => format!("CHANGE MASTER '{name}' TO {list}"),
                false if is_new => format!("CHANGE REPLICATION SOURCE TO {list} FOR CHANNEL '{name}'"),
                false => format!("CHANGE MASTER TO {list} FOR CHANNEL '{name}'"),
            }
        }
    }
}

/// A text of SQL, where no mode changes what a backslash is.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channels::position::Position;
    use model::{HostgroupId, ServerAddr};

    #[test]
    fn each_server_is_told_in_its_own_words() {
        let source = ServerAddr { host: "10.0.0.9".into(), port: 6033 };
        let channel = Channel { writer: HostgroupId(10), name: "east".into(), source, is_active: true };
        let credentials = Credentials { user: "repl".into(), password: Secret::from("a'b\\c") };
        let [mariadb, new, old] =
            [(true, (10, 11, 6)), (false, (9, 7, 0)), (false, (8, 0, 22))].map(|(is_mariadb, number)| Version { is_mariadb, number });
        let say = |version: &Version, act: &Act| statement(version, &channel, act, Some(&credentials));
        assert_eq!(say(&mariadb, &Act::Stop), "STOP SLAVE 'east'");
        assert_eq!(say(&new, &Act::Start), "START REPLICA FOR CHANNEL 'east'");
        assert_eq!(say(&old, &Act::Start), "START SLAVE FOR CHANNEL 'east'");
        let place = Act::Place(Position::parse("0-1-2,7-3-9").unwrap());
        assert_eq!(say(&mariadb, &place), "SET GLOBAL gtid_slave_pos='0-1-2,7-3-9'");
        assert_eq!(
            say(&mariadb, &Act::Point),
            "CHANGE MASTER 'east' TO MASTER_HOST='10.0.0.9', MASTER_PORT=6033, MASTER_CONNECT_RETRY=1, MASTER_USER='repl', \
             MASTER_PASSWORD='a''b\\\\c', MASTER_USE_GTID=slave_pos"
        );
        assert_eq!(
            statement(&new, &channel, &Act::Point, None),
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST='10.0.0.9', SOURCE_PORT=6033, SOURCE_CONNECT_RETRY=1, SOURCE_AUTO_POSITION=1, \
             SOURCE_RETRY_COUNT=86400 FOR CHANNEL 'east'"
        );
        assert!(say(&new, &Act::Point).contains("GET_SOURCE_PUBLIC_KEY=1"));
        assert!(say(&old, &Act::Point).starts_with("CHANGE MASTER TO MASTER_HOST='10.0.0.9'"));
        assert_eq!(format!("{credentials:?}"), "Credentials { user: \"repl\", password: *** }");
    }
}
