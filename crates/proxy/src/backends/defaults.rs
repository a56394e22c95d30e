//! What a fresh connection has that its server's global variables do not say: `init_connect` (the server's and the proxy's), the
//! user's own limits, the timeout of an interactive client. A variable that a session did not set goes back to that.
//!
//! The two lists of a server's variables are compared only where something may differ, and the outcome is kept for a while.

use std::collections::HashMap;

use model::ServerKey;
use wire::charset::Flavor;
use wire::codec::Reader;
use wire::flags::Capabilities;

use crate::backends::backend::Backend;
use crate::workers::worker::Worker;
use session_state::class::{Class, LaneKey};
use session_state::state::{CHARSETS, Variables};

/// How long the outcome counts, ms.
const KEPT_MS: u64 = 10_000;
/// How many outcomes are kept.
const MOST_KEPT: usize = 1_000;

/// Variables that differ by their nature, or that the proxy sets itself.
const NOT_A_DEFAULT: &[&str] = &[
    "character_set_database",
    "collation_database",
    "debug",
    "error_count",
    "external_user",
    "gtid_next",
    "gtid_seq_no",
    "identity",
    "in_transaction",
    "insert_id",
    "last_insert_id",
    "proxy_user",
    "pseudo_slave_mode",
    "pseudo_replica_mode",
    "pseudo_thread_id",
    "rand_seed1",
    "rand_seed2",
    "statement_id",
    "timestamp",
    "warning_count",
];

/// What connections have in common that begin with the same.
#[derive(PartialEq, Eq, Hash)]
struct DefaultsKey {
    server: ServerKey,
    version: String,
    user: String,
    /// Client flags choose a timeout, and a part of `sql_mode`.
    class: Class,
    /// The server's `init_connect`.
    of_server: Vec<u8>,
    /// The one that the proxy ran.
    of_proxy: Option<Box<str>>,
}

impl DefaultsKey {
    /// That of a lane's connections to a server of this version.
    fn of(server: &ServerKey, version: &str, lane: &LaneKey, of_server: &[u8], of_proxy: Option<Box<str>>) -> Self {
        let (user, class) = (lane.user.name.to_string(), lane.class);
        Self { server: server.clone(), version: version.to_owned(), user, class, of_server: of_server.to_vec(), of_proxy }
    }
}

/// What fresh connections had, and when that was asked.
#[derive(Default)]
pub(crate) struct Defaults(HashMap<DefaultsKey, (u64, Variables)>);

/// Learns a fresh connection's defaults, behind what the proxy ran as its own `init_connect`.
///
/// # Errors
/// The connection failed.
pub(crate) async fn learn(worker: &Worker, backend: &mut Backend, init_connect: Option<Box<str>>) -> std::io::Result<()> {
    let has_init_connect = init_connect.is_some();
    let is_mariadb = backend.core.info.flavor == Flavor::MariaDb;
    // 1 when there is something: MariaDB limits users by a variable.
    let question = if is_mariadb {
        "SELECT @@global.init_connect<>'' OR @@session.max_statement_time<>@@global.max_statement_time, @@global.init_connect"
    } else {
        "SELECT @@global.init_connect<>'', @@global.init_connect"
    };
    let is_interactive = backend.core.caps.contains(Capabilities::INTERACTIVE);
    let reply = backend.query(question, &worker.buffers).await?;
    // MariaDB 10.0 has no max_statement_time: where there is no answer, all is compared.
    let mut columns = Reader::new(reply.rows.first().map(Vec::as_slice).unwrap_or_default());
    let may_differ = columns.lenenc_bytes().is_ok_and(|value| value == b"1") || reply.error.is_some();
    let of_server = columns.lenenc_bytes().unwrap_or_default();
    if !(may_differ || has_init_connect || is_interactive) {
        return Ok(());
    }
    let (core, now_ms) = (&backend.core, worker.shared.clock.now_ms());
    let whose = DefaultsKey::of(&core.server.key, &core.info.version, &core.lane, of_server, init_connect);
    let kept = worker.defaults.borrow().0.get(&whose).filter(|(at_ms, _)| at_ms + KEPT_MS > now_ms).map(|(_, kept)| kept.clone());
    let defaults = match kept {
        Some(kept) => kept,
        None => {
            let all = compare(worker, backend).await?;
            let defaults = settable(worker, backend, all).await?;
            let kept = &mut worker.defaults.borrow_mut().0;
            if kept.len() >= MOST_KEPT {
                kept.clear();
            }
            kept.insert(whose, (now_ms, defaults.clone()));
            defaults
        }
    };
    if may_differ || has_init_connect {
        // It may have said SET NAMES; a session has what its client logged in with.
        backend.core.held.charsets_changed_unseen();
    }
    backend.core.defaults = defaults;
    Ok(())
}

/// The session's variables that are not the server's.
async fn compare(worker: &Worker, backend: &mut Backend) -> std::io::Result<Variables> {
    let mut defaults = Variables::default();
    let lists = backend.query_all(&["SHOW GLOBAL VARIABLES", "SHOW SESSION VARIABLES"], &worker.buffers).await?;
    let [global, session] = lists.as_slice() else { return Ok(defaults) };
    let global: HashMap<&[u8], &[u8]> = global.rows.iter().filter_map(|row| pair(row)).collect();
    for (name, value) in session.rows.iter().filter_map(|row| pair(row)) {
        let differs = global.get(name).is_some_and(|global| *global != value);
        let Some(name) = std::str::from_utf8(name).ok().filter(|_| differs) else { continue };
        if !NOT_A_DEFAULT.contains(&name) && !CHARSETS.contains(&name) && !name.starts_with("session_track_") {
            defaults.set(name, Some(value));
        }
    }
    Ok(defaults)
}

/// Those of them that a session can set, and this user may: what only the server moves (`gtid_executed`), and limits of an
/// account, are no session's.
async fn settable(worker: &Worker, backend: &mut Backend, all: Variables) -> std::io::Result<Variables> {
    let Some(set) = session_state::state::assign(&all, &backend.core.info) else { return Ok(all) };
    let reply = backend.query(&set, &worker.buffers).await?;
    backend.core.asked(&reply);
    if reply.error.is_none() {
        return Ok(all);
    }
    let mut settable = Variables::default();
    for (name, value) in all.entries() {
        let mut one = Variables::default();
        one.set(name, Some(value));
        let set = session_state::state::assign(&one, &backend.core.info).unwrap_or_default();
        if backend.query(&set, &worker.buffers).await?.error.is_none() {
            settable.set(name, Some(value));
        }
    }
    Ok(settable)
}

fn pair(row: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut columns = Reader::new(row);
    columns.lenenc_bytes().ok().zip(columns.lenenc_bytes().ok())
}

/// Gives a connection that was reset its defaults again: `init_connect` is run at logins only.
///
/// # Errors
/// The connection failed, or the server refused.
pub(crate) async fn restore(worker: &Worker, backend: &mut Backend) -> std::io::Result<()> {
    if let Some(set) = session_state::state::assign(&backend.core.defaults, &backend.core.info) {
        let reply = backend.query(&set, &worker.buffers).await?;
        if let Some(e) = reply.error {
            return Err(std::io::Error::other(e.to_string()));
        }
        backend.core.asked(&reply);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bed;
    use model::HostgroupId;
    use std::sync::Arc;

    #[test]
    fn what_connections_begin_with_is_remembered_for_those_with_the_same_flags_only() {
        let snapshot = bed::snapshot(&[(0, "a")], "mysql_users = ( { username=\"u\" } )");
        let server = bed::server("a", 1);
        let of = |caps: Capabilities, of_server: &[u8], of_proxy: Option<&str>| {
            let lane = LaneKey { hostgroup: HostgroupId(0), user: Arc::clone(&snapshot.users["u"]), class: Class::of(caps) };
            DefaultsKey::of(&server.key, "8.4.0", &lane, of_server, of_proxy.map(Into::into))
        };
        let plain = || of(Capabilities::default(), b"", None);
        assert!(plain() == plain() && plain() == of(Capabilities::PROTOCOL_41, b"", None), "this flag has no meaning");
        for flag in [Capabilities::IGNORE_SPACE, Capabilities::INTERACTIVE, Capabilities::FOUND_ROWS] {
            assert!(plain() != of(flag, b"", None), "{flag:?}");
        }
        assert!(plain() != of(Capabilities::default(), b"SET @x=1", None) && plain() != of(Capabilities::default(), b"", Some("SET @x=1")));
    }
}
