//! Causal reads, as data: what a hostgroup is to them, what a session wrote last, the question that a replica is asked.
//!
//! Pure. A session remembers the GTIDs of its last write on each cluster, those that it was told of, and which servers are known to
//! have them; a read from the cluster's readers asks the server first. INVARIANT: what is known of a server holds for as long as it is
//! the same process that answers: one that comes back may have less, whatever its address is. Only asynchronous replication and Group Replication are waited
//! for by themselves: Galera and Aurora have no GTID that a reader could be asked for.

use crate::gtid;
use model::settings::CausalReads;
use model::snapshot::{RoleGroup, RoleKind, Snapshot, User};
use model::{HostgroupId, ServerAddr, ServerKey};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::net::IpAddr;
use wire::charset::Flavor;

/// GTIDs kept of one server: one for each domain (MariaDB) or source (MySQL). Beyond it the oldest go.
const MAX_GTIDS: usize = 16;

/// What a hostgroup is to the causal reads of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CausalPart {
    /// Who its servers are.
    pub role: CausalRole,
    /// What its reads wait for by themselves. Off where nothing can be waited for.
    pub scope: CausalReads,
    /// Whether what is written here is remembered.
    pub writes: Writing,
    /// How long a server is waited for, ms.
    pub timeout_ms: u64,
}

/// The servers of a hostgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CausalRole {
    /// Those of no cluster.
    Others,
    /// A cluster's writers.
    Writers,
    /// A cluster's readers.
    Readers {
        /// The cluster's writers, who serve what no reader has in time.
        writer: HostgroupId,
    },
}

/// What becomes of the GTIDs of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writing {
    /// Nobody asks for them.
    Forgotten,
    /// The session remembers the last.
    Remembered,
}

impl CausalPart {
    /// As the settings of the readers' hostgroup have it, and as rules ask for it (`gtid_from_hostgroup`).
    pub fn of(snapshot: &Snapshot, user: &User, hostgroup: HostgroupId) -> Self {
        let of_rules = snapshot.rules.rules.iter().any(|rule| rule.gtid_from_hostgroup == Some(hostgroup));
        let cluster = snapshot.roles.iter().filter(|group| group.writer != group.reader);
        let cluster = cluster.clone().find(|group| group.writer == hostgroup || group.reader == hostgroup);
        let settings = snapshot.effective(user, cluster.map_or(hostgroup, |group| group.reader));
        let scope = if cluster.is_some_and(|group| has_gtids(group)) { settings.causal_reads } else { CausalReads::Off };
        let role = match cluster {
            None => CausalRole::Others,
            Some(group) if group.writer == hostgroup => CausalRole::Writers,
            Some(group) => CausalRole::Readers { writer: group.writer },
        };
        let of_scope = role == CausalRole::Writers && scope != CausalReads::Off;
        let writes = if of_scope || of_rules { Writing::Remembered } else { Writing::Forgotten };
        Self { role, scope, writes, timeout_ms: settings.causal_reads_timeout_ms }
    }

    /// Whether statements run here as if there were no causal reads, unless they ask for them themselves.
    pub fn is_none(&self) -> bool {
        let reads = matches!(self.role, CausalRole::Readers { .. }) && self.scope != CausalReads::Off;
        !reads && self.writes == Writing::Forgotten
    }
}

fn has_gtids(group: &RoleGroup) -> bool {
    matches!(group.kind, RoleKind::Replication(_) | RoleKind::GroupReplication)
}

/// A server as a connection has it.
#[derive(Clone, Copy, Debug)]
pub struct ConnectedServer<'a> {
    /// Which server.
    pub server: &'a ServerKey,
    /// Where its name led to.
    pub ip: Option<IpAddr>,
    /// Process clock (ms) since when it is one and the same process: the connection is that old, and nobody has taken the server for
    /// lost, or out of its role, since.
    pub since_ms: u64,
}

/// A server that had something at a time (process clock, ms).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GtidHolder {
    addr: ServerAddr,
    ip: Option<IpAddr>,
    at_ms: u64,
}

impl GtidHolder {
    fn new(end: &ConnectedServer, at_ms: u64) -> Self {
        Self { addr: end.server.addr(), ip: end.ip, at_ms: at_ms.max(end.since_ms) }
    }

    fn is_at(&self, server: &ServerKey) -> bool {
        self.addr.port == server.port && self.addr.host == server.host
    }

    /// Whether it is this server, not another one in its place.
    fn is(&self, end: &ConnectedServer) -> bool {
        self.is_at(end.server) && self.ip == end.ip && self.at_ms >= end.since_ms
    }
}

/// Where a session has GTIDs from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// Its own last write through the hostgroup.
    Own,
    /// A token that it was given for the cluster that writes through the hostgroup.
    Token,
    /// A comment of a statement for the hostgroup.
    Comment,
}

/// The GTIDs that a session knows of, one entry for each origin and hostgroup.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Writes {
    each: Vec<Written>,
    /// Definitions of tables and their like may be among them.
    pub has_definitions: bool,
}

impl Writes {
    /// The session wrote this through the hostgroup of this server, at `at_ms` or later. Text that is no GTID set is not remembered.
    pub fn note(&mut self, end: &ConnectedServer, at_ms: u64, flavor: Flavor, gtids: &[u8]) {
        let Some(gtids) = std::str::from_utf8(gtids).ok().filter(|text| gtid::is_set(text)) else { return };
        // What another server wrote before, and did not lose, the one that writes now had when it took over.
        let mut written = self.take_own(end, at_ms, flavor);
        for gtid in gtid::parts(gtids) {
            written.add(gtid);
        }
        written.is_open = false;
        self.each.push(written);
    }

    /// The session may have written something there of which the server tells no GTID: nobody else is known to have it until one
    /// is [noted](Self::note), or there turns out to be none (`wrote_nothing`).
    pub fn doubt(&mut self, end: &ConnectedServer, at_ms: u64, flavor: Flavor) {
        let mut written = self.take_own(end, at_ms, flavor);
        written.is_open = true;
        self.each.push(written);
    }

    /// Whether the GTID of what was written on this server is to be asked for.
    pub fn is_open(&self, server: &ServerKey) -> bool {
        self.known(Origin::Own, server.hostgroup).is_some_and(|w| w.is_open && w.was_written_at(server))
    }

    /// What was asked for: all that the server has of the session's. A set of more parts than are kept leaves it as it is.
    pub fn answered(&mut self, end: &ConnectedServer, at_ms: u64, flavor: Flavor, gtids: &str) {
        match gtid::parts(gtids).count() {
            0 => self.wrote_nothing(end.server),
            1..=MAX_GTIDS => self.note(end, at_ms, flavor, gtids.as_bytes()),
            _ => {}
        }
    }

    /// The server has no GTID to tell.
    fn wrote_nothing(&mut self, server: &ServerKey) {
        let Some(written) = self.take(Origin::Own, server.hostgroup) else { return };
        if !written.gtids.is_empty() {
            self.each.push(Written { is_open: false, ..written });
        }
    }

    /// The session was told of these GTIDs, which take the place of those it was told of before; empty text forgets them.
    /// False for text that is no GTID set.
    pub fn told(&mut self, origin: Origin, hostgroup: HostgroupId, gtids: &str) -> bool {
        let flavor = gtid::flavor_of(gtids);
        if !gtids.is_empty() && flavor.is_none() {
            return false;
        }
        let mut written = self.take(origin, hostgroup).filter(|known| known.gtids.iter().map(AsRef::as_ref).eq(gtid::parts(gtids)));
        if let Some(flavor) = flavor.filter(|_| written.is_none()) {
            let new = Written::new(origin, hostgroup, flavor);
            written = Some(Written { gtids: gtid::parts(gtids).map(Into::into).collect(), ..new });
        }
        self.each.extend(written);
        true
    }

    /// No token is owed to the client any more.
    pub fn forget_tokens(&mut self) {
        self.each.retain(|written| written.origin != Origin::Token);
    }

    /// What is known from there.
    pub fn known(&self, origin: Origin, hostgroup: HostgroupId) -> Option<&Written> {
        self.each.iter().find(|written| written.is(origin, hostgroup))
    }

    /// What is known from there is on the server, which was asked at `at_ms`.
    pub fn arrived(&mut self, origin: Origin, hostgroup: HostgroupId, end: &ConnectedServer, at_ms: u64) {
        if let Some(written) = self.each.iter_mut().find(|written| written.is(origin, hostgroup)) {
            written.servers.retain(|known| !(known.is_at(end.server) && known.ip == end.ip));
            written.servers.push(GtidHolder::new(end, at_ms));
        }
    }

    /// The session's tokens: by hostgroup, what it wrote there and was told of.
    pub fn tokens(&self) -> Vec<(HostgroupId, String)> {
        let known = self.each.iter().filter(|written| written.origin != Origin::Comment && !written.gtids.is_empty());
        let mut ids: Vec<HostgroupId> = known.clone().map(|written| written.hostgroup).collect();
        ids.sort();
        ids.dedup();
        let token = |id: HostgroupId| {
            let here = known.clone().filter(move |written| written.hostgroup == id);
            let flavor = here.clone().next().map_or(Flavor::MySql, |written| written.flavor);
            gtid::together(flavor, here.flat_map(|written| &written.gtids).map(AsRef::as_ref))
        };
        ids.into_iter().map(|id| (id, token(id))).collect()
    }

    /// What the session wrote on this server so far, with nothing else known of it than that it is there.
    fn take_own(&mut self, end: &ConnectedServer, at_ms: u64, flavor: Flavor) -> Written {
        let written = self.take(Origin::Own, end.server.hostgroup).filter(|written| written.was_written_at(end.server));
        let mut written = written.unwrap_or_else(|| Written::new(Origin::Own, end.server.hostgroup, flavor));
        written.writer = Some(GtidHolder::new(end, at_ms));
        written.servers.clear();
        written
    }

    fn take(&mut self, origin: Origin, hostgroup: HostgroupId) -> Option<Written> {
        self.each.iter().position(|written| written.is(origin, hostgroup)).map(|at| self.each.swap_remove(at))
    }
}

/// What was written to a cluster, and who is known to have it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Written {
    origin: Origin,
    hostgroup: HostgroupId,
    /// The server that wrote it, if that is known.
    writer: Option<GtidHolder>,
    flavor: Flavor,
    gtids: Vec<Box<str>>,
    /// More may have been written than these are of.
    is_open: bool,
    /// Servers that are known to have it, beside the one that wrote it.
    servers: Vec<GtidHolder>,
}

impl Written {
    fn new(origin: Origin, hostgroup: HostgroupId, flavor: Flavor) -> Self {
        Self { origin, hostgroup, writer: None, flavor, gtids: Vec::new(), is_open: false, servers: Vec::new() }
    }

    fn is(&self, origin: Origin, hostgroup: HostgroupId) -> bool {
        self.origin == origin && self.hostgroup == hostgroup
    }

    /// Takes the place of what is older of the same domain or source.
    fn add(&mut self, gtid: &str) {
        let flavor = self.flavor;
        self.gtids.retain(|old| gtid::stream(flavor, old) != gtid::stream(flavor, gtid));
        if self.gtids.len() >= MAX_GTIDS {
            self.gtids.remove(0);
        }
        self.gtids.push(gtid.into());
    }

    fn was_written_at(&self, server: &ServerKey) -> bool {
        self.writer.as_ref().is_some_and(|writer| writer.is_at(server))
    }

    /// Whether the server is known to have it.
    pub fn is_on(&self, end: &ConnectedServer) -> bool {
        self.writer.iter().chain(&self.servers).any(|known| known.is(end))
    }

    /// Whether a server can be asked to wait for it: its transaction has ended, so its GTIDs are known.
    pub fn can_be_asked_for(&self) -> bool {
        !self.is_open
    }

    /// The question to a server that waits until it has it: 0 is yes, everything else is no.
    pub fn question(&self, timeout_ms: u64) -> String {
        let mut text = match self.flavor {
            Flavor::MariaDb => {
                let gtids: Vec<String> = self.gtids.iter().map(|gtid| unless_written_there(gtid)).collect();
                format!("SELECT MASTER_GTID_WAIT(CONCAT_WS(',',{}),", gtids.join(","))
            }
            Flavor::MySql => format!("SELECT WAIT_FOR_EXECUTED_GTID_SET('{}',", self.gtids.join(",")),
        };
        let _ = write!(text, "{}.{:03})", timeout_ms / 1000, timeout_ms % 1000);
        text
    }
}

/// MariaDB waits for what came by replication: never for what the server has written itself, which only its binlog says.
/// <https://mariadb.com/kb/en/master_gtid_wait/>. Who asks was told that it is committed: it is, once it is in the binlog there.
fn unless_written_there(gtid: &str) -> String {
    let mut numbers = gtid.split('-').map(str::parse::<u64>);
    let (Some(Ok(domain)), Some(Ok(server)), Some(Ok(number)), None) = (numbers.next(), numbers.next(), numbers.next(), numbers.next())
    else {
        return format!("'{gtid}'");
    };
    let last = format!("REGEXP_SUBSTR(CONCAT(',',@@GLOBAL.gtid_binlog_pos),',{domain}-[0-9]+-[0-9]+')");
    let has_it = format!("CAST(CONCAT('0',SUBSTRING_INDEX({last},'-',-1)) AS UNSIGNED)>={number}");
    format!("IF(@@GLOBAL.server_id={server} AND {has_it},NULL,'{gtid}')")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bed::snapshot;

    const CLUSTERS: &str = r#"
mysql_replication_hostgroups = ( { writer_hostgroup=0, reader_hostgroup=1, comment="c" } )
mysql_galera_hostgroups = ( { writer_hostgroup=10, backup_writer_hostgroup=12, reader_hostgroup=11, offline_hostgroup=13, active=1,
                              max_writers=1, writer_is_also_reader=0, max_transactions_behind=10 } )
mysql_users = ( { username="u", password="p", default_hostgroup=0 } )
"#;

    fn key(port: u16) -> ServerKey {
        ServerKey { hostgroup: HostgroupId(0), host: "a".into(), port }
    }

    fn end(server: &ServerKey) -> ConnectedServer<'_> {
        ConnectedServer { server, ip: None, since_ms: 10 }
    }

    /// MariaDB's question for these.
    fn asks(gtids: &[&str], limit: &str) -> String {
        let gtids: Vec<String> = gtids.iter().map(|gtid| unless_written_there(gtid)).collect();
        format!("SELECT MASTER_GTID_WAIT(CONCAT_WS(',',{}),{limit})", gtids.join(","))
    }

    fn question(writes: &Writes) -> String {
        writes.known(Origin::Own, HostgroupId(0)).unwrap().question(1_050)
    }

    fn parts(variables: &str, rules: &str) -> Vec<CausalPart> {
        let snapshot = snapshot(&[(0, "a"), (1, "b")], &format!("{CLUSTERS}{rules}mysql_variables = {{ {variables} }}\n"));
        let user = snapshot.users.get("u").unwrap();
        [0, 1, 2, 10, 11].into_iter().map(|id| CausalPart::of(&snapshot, user, HostgroupId(id))).collect()
    }

    #[test]
    fn only_clusters_with_gtids_wait_by_themselves() {
        use CausalReads::{Off, Session, Token};
        use Writing::{Forgotten, Remembered};
        let readers = |writer| CausalRole::Readers { writer: HostgroupId(writer) };
        let roles = [CausalRole::Writers, readers(0), CausalRole::Others, CausalRole::Writers, readers(10)];
        let part = |role, scope, writes| CausalPart { role, scope, writes, timeout_ms: 70 };
        for (mode, scope, writes) in [("off", Off, Forgotten), ("session", Session, Remembered), ("token", Token, Remembered)] {
            let got = parts(&format!("causal_reads=\"{mode}\" causal_reads_timeout_ms=70"), "");
            let scopes = [(scope, writes), (scope, Forgotten), (Off, Forgotten), (Off, Forgotten), (Off, Forgotten)];
            let expected: Vec<_> = roles.into_iter().zip(scopes).map(|(role, (scope, writes))| part(role, scope, writes)).collect();
            assert_eq!(got, expected, "{mode}");
            let active: Vec<bool> = got.iter().map(|part| !part.is_none()).collect();
            assert_eq!(active, [scope != Off, scope != Off, false, false, false], "{mode}");
        }
    }

    #[test]
    fn a_rule_has_the_writes_of_its_hostgroup_remembered() {
        let rules = "mysql_query_rules = ( { rule_id=1, active=1, match_pattern=\"x\", gtid_from_hostgroup=2, apply=1 } )\n";
        let writes: Vec<bool> = parts("", rules).iter().map(|part| part.writes == Writing::Remembered).collect();
        assert_eq!(writes, [false, false, true, false, false]);
    }

    #[test]
    fn what_a_session_is_told_waits_beside_its_own() {
        let id = HostgroupId(0);
        let mut writes = Writes::default();
        writes.note(&end(&key(1)), 10, Flavor::MariaDb, b"0-1-57");
        assert!(writes.told(Origin::Token, id, "0-1-60,3-1-1"));
        assert!(writes.told(Origin::Comment, id, "0-1-99"));
        assert!(!writes.told(Origin::Token, id, "0-1-60'"), "it is refused, and the one before stays");
        let token = writes.known(Origin::Token, id).unwrap();
        assert_eq!(token.question(1_000), asks(&["0-1-60", "3-1-1"], "1.000"));
        assert!(!token.is_on(&end(&key(1))), "nobody knows who wrote it");
        assert_eq!(question(&writes), asks(&["0-1-57"], "1.050"));
        assert_eq!(writes.tokens(), [(id, "0-1-60,3-1-1".to_owned())]);
        writes.arrived(Origin::Token, id, &end(&key(2)), 10);
        assert!(
            writes.told(Origin::Token, id, "0-1-60,3-1-1") && writes.known(Origin::Token, id).unwrap().is_on(&end(&key(2))),
            "the same"
        );
        assert!(writes.told(Origin::Token, id, "0-1-61") && !writes.known(Origin::Token, id).unwrap().is_on(&end(&key(2))));
        writes.told(Origin::Token, id, "");
        assert_eq!(writes.tokens(), [(id, "0-1-57".to_owned())]);
        writes.told(Origin::Token, id, "0-1-5");
        writes.forget_tokens();
        assert!(writes.known(Origin::Token, id).is_none() && writes.known(Origin::Own, id).is_some());
    }

    #[test]
    fn the_last_gtid_of_each_domain_is_asked_for() {
        let mut writes = Writes::default();
        for gtid in ["0-1-57", "7-1-3", "0-1-58"] {
            writes.note(&end(&key(1)), 10, Flavor::MariaDb, gtid.as_bytes());
        }
        assert_eq!(question(&writes), asks(&["7-1-3", "0-1-58"], "1.050"));
        writes.note(&end(&key(2)), 10, Flavor::MariaDb, b"0-2-59");
        assert_eq!(question(&writes), asks(&["0-2-59"], "1.050"), "another server writes now");
    }

    #[test]
    fn the_last_gtid_of_each_source_is_asked_for() {
        let mut writes = Writes::default();
        for gtid in ["3e11fa47-71ca-11e1-9e33-c80aa9429562:22", "3e11fa47-71ca-11e1-9e33-c80aa9429562:23"] {
            writes.note(&end(&key(1)), 10, Flavor::MySql, gtid.as_bytes());
        }
        let expected = "SELECT WAIT_FOR_EXECUTED_GTID_SET('3e11fa47-71ca-11e1-9e33-c80aa9429562:23',1.050)";
        assert_eq!(question(&writes), expected);
    }

    #[test]
    fn who_has_it_is_asked_once_for_each_write() {
        let mut writes = Writes::default();
        writes.note(&end(&key(1)), 10, Flavor::MariaDb, b"0-1-57");
        let is_on = |writes: &Writes, port| writes.known(Origin::Own, HostgroupId(0)).unwrap().is_on(&end(&key(port)));
        assert!(is_on(&writes, 1) && !is_on(&writes, 2));
        writes.arrived(Origin::Own, HostgroupId(0), &end(&key(2)), 10);
        assert!(is_on(&writes, 2));
        writes.note(&end(&key(1)), 10, Flavor::MariaDb, b"0-1-58");
        assert!(!is_on(&writes, 2));
    }

    #[test]
    fn what_answers_later_at_the_same_address_may_have_less() {
        let mut writes = Writes::default();
        let (writer, reader) = (key(1), key(2));
        let later = |server, since_ms| ConnectedServer { server, ip: None, since_ms };
        writes.note(&end(&writer), 20, Flavor::MariaDb, b"0-1-57");
        let is_on = |writes: &Writes, end: &ConnectedServer| writes.known(Origin::Own, HostgroupId(0)).unwrap().is_on(end);
        assert!(is_on(&writes, &later(&writer, 20)), "it was there when the write began");
        assert!(!is_on(&writes, &later(&writer, 21)), "another process may have answered since");
        writes.arrived(Origin::Own, HostgroupId(0), &end(&reader), 30);
        assert!(is_on(&writes, &later(&reader, 30)) && !is_on(&writes, &later(&reader, 31)));
        writes.arrived(Origin::Own, HostgroupId(0), &later(&reader, 31), 40);
        assert!(is_on(&writes, &later(&reader, 31)), "it has answered again");
        assert!(!is_on(&writes, &ConnectedServer { ip: Some(IpAddr::from([127, 0, 0, 2])), ..end(&reader) }), "its name leads elsewhere");
        writes.note(&later(&writer, 50), 45, Flavor::MariaDb, b"0-1-58");
        assert!(is_on(&writes, &later(&writer, 50)), "the connection was opened for the write");
    }

    #[test]
    fn mariadb_is_not_asked_to_wait_for_what_it_wrote_itself() {
        let last = "REGEXP_SUBSTR(CONCAT(',',@@GLOBAL.gtid_binlog_pos),',7-[0-9]+-[0-9]+')";
        let has_it = format!("CAST(CONCAT('0',SUBSTRING_INDEX({last},'-',-1)) AS UNSIGNED)>=9");
        assert_eq!(unless_written_there("7-2-9"), format!("IF(@@GLOBAL.server_id=2 AND {has_it},NULL,'7-2-9')"));
        for text in ["7-2", "7-2-9-1", "x-2-9"] {
            assert_eq!(unless_written_there(text), format!("'{text}'"));
        }
    }

    #[test]
    fn what_failed_is_only_on_its_writer_until_its_gtid_is_known() {
        let mut writes = Writes::default();
        let known = |writes: &Writes| {
            writes.known(Origin::Own, HostgroupId(0)).map(|w| (w.is_on(&end(&key(1))), w.is_on(&end(&key(2))), w.can_be_asked_for()))
        };
        writes.note(&end(&key(1)), 10, Flavor::MariaDb, b"0-1-57");
        writes.arrived(Origin::Own, HostgroupId(0), &end(&key(2)), 10);
        writes.doubt(&end(&key(1)), 10, Flavor::MariaDb);
        assert_eq!(known(&writes), Some((true, false, false)));
        assert!(writes.is_open(&key(1)) && !writes.is_open(&key(2)));
        writes.answered(&end(&key(1)), 10, Flavor::MariaDb, "0-1-58");
        assert_eq!((known(&writes), writes.is_open(&key(1))), (Some((true, false, true)), false));
        assert_eq!(question(&writes), asks(&["0-1-58"], "1.050"));
        writes.doubt(&end(&key(1)), 10, Flavor::MariaDb);
        writes.answered(&end(&key(1)), 10, Flavor::MariaDb, "");
        assert_eq!(question(&writes), asks(&["0-1-58"], "1.050"), "it wrote nothing");
        let mut writes = Writes::default();
        writes.doubt(&end(&key(1)), 10, Flavor::MySql);
        assert!(writes.tokens().is_empty());
        let many: Vec<String> = (0..=MAX_GTIDS).map(|n| format!("3e11fa47-71ca-11e1-9e33-c80aa94295{n:02}:1-5")).collect();
        writes.answered(&end(&key(1)), 10, Flavor::MySql, &many.join(",\n"));
        assert_eq!(known(&writes), Some((true, false, false)), "too much to be kept");
        writes.answered(&end(&key(1)), 10, Flavor::MySql, &many[1..].join(",\n"));
        assert_eq!(known(&writes), Some((true, false, true)));
        writes.doubt(&end(&key(2)), 10, Flavor::MySql);
        writes.answered(&end(&key(2)), 10, Flavor::MySql, "");
        assert_eq!(known(&writes), None);
    }

    #[test]
    fn nothing_else_gets_into_the_question() {
        let mut writes = Writes::default();
        for text in [&b""[..], b"0-1-1'", b"0-1-1\\", b"\xff1", &[b'1'; gtid::MAX_SET_BYTES + 1]] {
            writes.note(&end(&key(1)), 10, Flavor::MariaDb, text);
            assert!(writes.known(Origin::Own, HostgroupId(0)).is_none());
        }
        for domain in 0..100 {
            writes.note(&end(&key(1)), 10, Flavor::MariaDb, format!("{domain}-1-1").as_bytes());
        }
        assert_eq!(question(&writes).matches("server_id").count(), MAX_GTIDS);
    }
}
