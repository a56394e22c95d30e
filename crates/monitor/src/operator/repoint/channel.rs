//! A replication channel as its server shows it: the values that are needed to point it elsewhere and back.

use model::ServerAddr;

use crate::channels::{Link, ThreadState, is_of_group, link};
use crate::client::{Row, Rows};
use crate::statements::quoted;

/// Columns of the status, behind `source_` or `master_`, with the option that sets them.
const TLS: [(&str, &str); 10] = [
    ("ssl_allowed", "SSL"),
    ("ssl_ca_file", "SSL_CA"),
    ("ssl_ca_path", "SSL_CAPATH"),
    ("ssl_cert", "SSL_CERT"),
    ("ssl_cipher", "SSL_CIPHER"),
    ("ssl_key", "SSL_KEY"),
    ("ssl_crl", "SSL_CRL"),
    ("ssl_crlpath", "SSL_CRLPATH"),
    ("ssl_verify_server_cert", "SSL_VERIFY_SERVER_CERT"),
    ("tls_version", "TLS_VERSION"),
];

/// A server, by its address and by what its replicas call it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::operator) struct Node {
    /// Host and port as configured.
    pub(in crate::operator) addr: ServerAddr,
    /// `server_uuid` of MySQL, `server_id` of MariaDB.
    pub(in crate::operator) id: String,
}

impl Node {
    /// Whether its id is unique: a `server_uuid` is, a `server_id` is a number that an administrator chose.
    pub(super) fn is_id_unique(&self) -> bool {
        self.id.parse::<u64>().is_err()
    }
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(in crate::operator) struct Channel {
    /// Name, source, threads.
    pub(in crate::operator) link: Link,
    /// The source's own id at the last connect; empty if it never connected.
    pub(super) source_id: String,
    /// The account by which it logs in; None where the status does not show it.
    pub(in crate::operator) user: Option<String>,
    /// It finds its place by GTIDs, of whatever kind.
    pub(in crate::operator) is_by_gtid: bool,
    /// Time between attempts to connect, s.
    pub(super) retry_s: Option<u64>,
    /// TLS options, as [`crate::statements::Pointing`] has them.
    pub(super) tls: Vec<(&'static str, String)>,
}

impl Channel {
    /// Whether it receives from this server. Names of hosts may differ; identities do not.
    pub(in crate::operator) fn is_from(&self, node: &Node) -> bool {
        if self.source_id.is_empty() { self.is_at(&node.addr) } else { self.source_id == node.id }
    }

    /// Whether its receiver runs or tries to.
    pub(in crate::operator) fn receives(&self) -> bool {
        self.link.receiver.state != ThreadState::Stopped
    }

    /// Whether it receives from this address.
    pub(in crate::operator) fn is_at(&self, addr: &ServerAddr) -> bool {
        self.link.source.as_ref().is_some_and(|source| source.is_same(addr))
    }
}

/// The channels of a server, without a group's own.
pub(in crate::operator) fn all(rows: &Rows) -> Vec<Channel> {
    rows.iter().map(|row| channel(&row)).filter(|channel| !is_of_group(&channel.link)).collect()
}

fn channel(row: &Row<'_>) -> Channel {
    let text = |column: &str| row.text(&format!("source_{column}")).or_else(|| row.text(&format!("master_{column}"))).unwrap_or_default();
    let id = match text("uuid") {
        "" => text("server_id"),
        uuid => uuid,
    };
    let is_by_gtid = row.text("using_gtid").is_some_and(|kind| !kind.eq_ignore_ascii_case("no")) || row.text("auto_position") == Some("1");
    Channel {
        link: link(row),
        source_id: if id == "0" { String::new() } else { id.to_owned() },
        user: Some(text("user")).filter(|user| !user.is_empty()).map(str::to_owned),
        is_by_gtid,
        retry_s: row.number("connect_retry"),
        tls: TLS.iter().filter_map(|(column, option)| Some((*option, value(option, text(column))?))).collect(),
    }
}

/// The value as SQL; None if it is not set.
fn value(option: &str, shown: &str) -> Option<String> {
    match option {
        "SSL" | "SSL_VERIFY_SERVER_CERT" if shown.eq_ignore_ascii_case("yes") => Some("1".to_owned()),
        "SSL" | "SSL_VERIFY_SERVER_CERT" if shown.eq_ignore_ascii_case("no") => Some("0".to_owned()),
        "SSL" | "SSL_VERIFY_SERVER_CERT" => None,
        _ => (!shown.is_empty()).then(|| quoted(shown)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(columns: &[&str], values: &[Option<&str>]) -> Channel {
        all(&Rows::of(columns, &[values])).remove(0)
    }

    #[test]
    fn channels_are_read_in_both_flavors_words() {
        let columns = &[
            "Channel_Name",
            "Source_Host",
            "Source_Port",
            "Source_User",
            "Source_UUID",
            "Auto_Position",
            "Connect_Retry",
            "Source_SSL_Allowed",
        ];
        let new = one(columns, &[Some(""), Some("A"), Some("1"), Some("repl"), Some("aa"), Some("1"), Some("60"), Some("Yes")]);
        assert_eq!(new.user.as_deref(), Some("repl"));
        assert_eq!((new.source_id.as_str(), new.is_by_gtid, new.retry_s), ("aa", true, Some(60)));
        assert_eq!(new.tls, [("SSL", "1".to_owned())]);
        let columns = &["Connection_name", "Master_Host", "Master_Port", "Master_Server_Id", "Using_Gtid", "Master_SSL_CA_File"];
        let old = one(columns, &[Some("x"), Some("A"), Some("1"), Some("0"), Some("Current_Pos"), Some("/it's")]);
        assert_eq!((old.link.name.as_str(), old.source_id.as_str(), old.is_by_gtid), ("x", "", true));
        assert_eq!(old.user, None);
        assert_eq!(old.tls, [("SSL_CA", "'/it''s'".to_owned())]);
        let node = |id: &str| Node { addr: ServerAddr { host: "a".into(), port: 1 }, id: id.into() };
        assert!(old.is_from(&node("7")), "it never connected: its address is all there is");
        assert!(new.is_from(&node("aa")) && !new.is_from(&node("bb")), "another server is at that address by now");
    }
}
