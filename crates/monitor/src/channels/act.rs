//! Steps as statements.

use model::snapshot::Channel;

use super::judge::Act;
use crate::client::{Connection, Version};
use crate::statements::{self, Credentials, Place, Pointing};

/// Between attempts of a server to reach its source, s. It is through a proxy mostly, which is there again at once.
const CONNECT_RETRY_S: u64 = 1;

pub(super) async fn act(
    connection: &mut Connection,
    channel: &Channel,
    act: &Act,
    credentials: Option<&Credentials>,
) -> Result<(), String> {
    if *act == Act::Point {
        statements::plain_texts(connection).await?;
    }
    let sql = statement(connection.version(), channel, act, credentials);
    let privilege = statements::privilege(connection.version());
    statements::tell(connection, &sql, privilege, *act == Act::Point && credentials.is_some()).await
}

fn statement(version: &Version, channel: &Channel, act: &Act, credentials: Option<&Credentials>) -> String {
    let name = &channel.name;
    match act {
        Act::Stop => statements::stop(version, name),
        Act::Start => statements::start(version, name),
        Act::Place(position) => format!("SET GLOBAL gtid_slave_pos='{position}'"),
        Act::Point => {
            let retry_s = Some(CONNECT_RETRY_S);
            statements::point(version, &Pointing { name, source: &channel.source, retry_s, credentials, tls: &[], place: Place::Gtid })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channels::position::Position;
    use model::{HostgroupId, Secret, ServerAddr};

    #[test]
    fn each_step_is_a_statement() {
        let source = ServerAddr { host: "10.0.0.9".into(), port: 6033 };
        let channel = Channel { writer: HostgroupId(10), name: "east".into(), source, is_active: true };
        let credentials = Credentials { user: "repl".into(), password: Secret::from("x") };
        let [mariadb, mysql] = [(true, (10, 11, 6)), (false, (9, 7, 0))].map(|(is_mariadb, number)| Version { is_mariadb, number });
        let say = |version: &Version, act: &Act| statement(version, &channel, act, Some(&credentials));
        assert_eq!([say(&mariadb, &Act::Stop), say(&mariadb, &Act::Start)], ["STOP SLAVE 'east'", "START SLAVE 'east'"]);
        let place = Act::Place(Position::parse("0-1-2,7-3-9").unwrap());
        assert_eq!(say(&mariadb, &place), "SET GLOBAL gtid_slave_pos='0-1-2,7-3-9'");
        assert_eq!(
            say(&mariadb, &Act::Point),
            "CHANGE MASTER 'east' TO MASTER_HOST='10.0.0.9', MASTER_PORT=6033, MASTER_CONNECT_RETRY=1, MASTER_USER='repl', \
             MASTER_PASSWORD='x', MASTER_USE_GTID=slave_pos"
        );
        assert_eq!(
            statement(&mysql, &channel, &Act::Point, None),
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST='10.0.0.9', SOURCE_PORT=6033, SOURCE_CONNECT_RETRY=1, SOURCE_AUTO_POSITION=1, \
             SOURCE_RETRY_COUNT=86400 FOR CHANNEL 'east'"
        );
    }
}
