//! What servers do to each other: receivers connect, are refused, receive, acknowledge and time out.

use topology::healing::{LinkState, SemiSync};

use crate::network::Node;
use crate::numbers::{Flavor, Numbers};
use crate::server::{Life, Link, Server};
use crate::world::State;

/// A source sends a heartbeat so often.
pub(crate) const HEARTBEAT_MS: u64 = 1_000;
/// A receiver tries to connect so often.
const RETRY_MS: u64 = 1_000;
/// CR_CONN_HOST_ERROR
const LOST: u64 = 2_003;
/// ER_MASTER_FATAL_ERROR_READING_BINLOG
const FATAL: u64 = 1_236;

impl State {
    /// Everything that servers do by themselves in a moment.
    pub(crate) fn replicate(&mut self, now_ms: u64) {
        for place in 0..self.servers.len() {
            if self.servers[place].is_up() {
                self.receive(place, now_ms);
                self.servers[place].apply(now_ms);
                let ackers = self.ackers_of(place);
                self.servers[place].settle(now_ms, ackers);
            }
        }
    }

    /// Replicas that are connected to acknowledge.
    pub(crate) fn ackers_of(&self, source: usize) -> u64 {
        let is_it = |one: &&Server| {
            let is_linked = |link: &Link| link.source == source && link.cursor.is_some();
            one.semi.is_acker && matches!(one.life, Life::Up | Life::Frozen) && one.link.as_ref().is_some_and(is_linked)
        };
        self.servers.iter().filter(is_it).count() as u64
    }

    /// The source side of semi-synchronous replication, as it shows it.
    pub(crate) fn semi_sync(&self, place: usize) -> Option<SemiSync> {
        let server = &self.servers[place];
        server.semi.is_source.then(|| SemiSync {
            is_on: server.semi.is_on,
            is_after_sync: server.semi.is_after_sync,
            timeout_ms: server.semi.timeout_ms,
            keeps_waiting: server.semi.keeps_waiting,
            acks: server.semi.acks,
            ackers: self.ackers_of(place),
            waits: server.waiting.len() as u64,
        })
    }

    fn receive(&mut self, place: usize, now_ms: u64) {
        let Some(mut link) = self.servers[place].link.take() else { return };
        let source = link.source;
        if link.receives() {
            let (is_cut, life) = (self.is_cut(Node::Server(place), Node::Server(source)), self.servers[source].life);
            let is_silent = is_cut || matches!(life, Life::Frozen | Life::Lost);
            match link.cursor {
                // The connection is reset, unless nothing of that comes through.
                Some(_) if life == Life::Crashed && !is_cut => lose(&mut link),
                Some(_) if is_silent && now_ms >= link.heard_ms + self.servers[place].nature.net_timeout_ms => lose(&mut link),
                Some(_) if is_silent => {}
                Some(cursor) => self.take(place, &mut link, cursor, now_ms),
                None if now_ms < link.tried_ms + RETRY_MS => {}
                None => {
                    link.tried_ms = now_ms;
                    if is_silent || life == Life::Crashed { lose(&mut link) } else { self.connect(place, &mut link, now_ms) }
                }
            }
        }
        self.servers[place].link = Some(link);
    }

    fn connect(&mut self, place: usize, link: &mut Link, now_ms: u64) {
        let (replica, source) = (&self.servers[place], &self.servers[link.source]);
        let found = match replica.flavor {
            Flavor::MySql => mysql_place(replica, source, &link.retrieved),
            Flavor::MariaDb => mariadb_place(replica, source, link),
        };
        if found.is_none() {
            (link.receiver.state, link.receiver.error) = (LinkState::Stopped, Some(FATAL));
            return;
        }
        (link.receiver.state, link.receiver.error) = (LinkState::Runs, None);
        (link.cursor, link.heard_ms) = (found, now_ms);
    }

    /// What the source has more by now, or a heartbeat.
    fn take(&mut self, place: usize, link: &mut Link, cursor: usize, now_ms: u64) {
        let (is_acker, flavor) = (self.servers[place].semi.is_acker, self.servers[place].flavor);
        let source = link.source;
        let Some(new) = self.servers[source].log.get(cursor..).filter(|new| !new.is_empty()).map(<[_]>::to_vec) else {
            if now_ms >= link.heard_ms + HEARTBEAT_MS {
                (link.heard_ms, link.heartbeats) = (now_ms, link.heartbeats + 1);
            }
            return;
        };
        (link.cursor, link.heard_ms) = (Some(cursor + new.len()), now_ms);
        for one in new {
            if flavor == Flavor::MySql && (self.servers[place].logged.has(one.gtid) || link.retrieved.has(one.gtid)) {
                continue;
            }
            link.relay.push_back(one);
            link.retrieved.add(one.gtid);
            link.last = Some(one.gtid);
            if is_acker && let Some((_, acks)) = self.servers[source].waiting.get_mut(&one.gtid) {
                acks.insert(place);
            }
        }
    }
}

fn lose(link: &mut Link) {
    link.cursor = None;
    (link.receiver.state, link.receiver.error) = (LinkState::Connecting, Some(LOST));
}

/// MySQL compares sets, and lets a replica with other transactions in unless they are of the source itself.
fn mysql_place(replica: &Server, source: &Server, retrieved: &Numbers) -> Option<usize> {
    let has_all = |set: &Numbers| {
        let all = source.log[..source.purged].iter();
        set.has_all(&source.purged_numbers()) || all.clone().all(|one| set.has(one.gtid) || retrieved.has(one.gtid))
    };
    let has_more = !source.logged.has_all(&replica.logged.of_server(source.number));
    (has_all(&replica.logged) && !has_more).then_some(source.purged)
}

/// MariaDB looks for the replica's last transaction. A source that is not strict takes a later one of that server for it.
fn mariadb_place(replica: &Server, source: &Server, link: &Link) -> Option<usize> {
    let Some(at) = link.last.or(replica.position) else { return (source.purged == 0).then_some(0) };
    let place = source.log.iter().position(|one| one.gtid == at).map(|place| place + 1);
    let later = || source.log.iter().position(|one| one.gtid.server == at.server && one.gtid.number >= at.number).map(|place| place + 1);
    let place = if source.is_strict { place } else { place.or_else(later) };
    place.filter(|place| *place >= source.purged)
}
