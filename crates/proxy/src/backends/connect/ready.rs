//! What every connection begins with, fresh or reset: the session tracker that tells everything, `init_connect`.

use super::{ConnectError, set_charset_state};
use crate::backends::backend::Backend;
use crate::backends::defaults;
use crate::workers::worker::Worker;
use session_state::held::Tracking;
use session_state::server_info::{Family, ServerInfo, ServerTracking, TrackDefaults};
use session_state::tracked::is_of_no_session;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wire::charset::{self, Collation, Flavor};
use wire::codes;
use wire::command::Command;
use wire::flags::{Capabilities, StatusFlags};
use wire::reply::ReplyKind;

/// What runs on a connection before it serves sessions; it may take as long as any statement.
pub(crate) async fn make_ready(worker: &Worker, backend: &mut Backend, collation: u8) -> Result<(), ConnectError> {
    let is_first = backend.core.info.tracking.get().is_none();
    let init_connect = prepare(worker, backend).await?;
    if is_first {
        // What the server takes a collation for was only known by its version so far.
        set_charset_state(backend, collation);
    }
    defaults::learn(worker, backend, init_connect).await?;
    note_autocommit(backend);
    worker.shared.info.set(ServerInfo::clone(&backend.core.info));
    Ok(())
}

/// `init_connect` runs after the login was answered, and may have changed what that said of autocommit.
fn note_autocommit(backend: &mut Backend) {
    let core = &mut backend.core;
    let is_on = core.held.status().contains(StatusFlags::AUTOCOMMIT);
    if core.info.status.contains(StatusFlags::AUTOCOMMIT) != is_on {
        let mut info = ServerInfo::clone(&core.info);
        info.status.set(StatusFlags::AUTOCOMMIT, is_on);
        core.info = Arc::new(info);
        core.server.info.correct(&core.info);
    }
}

/// The same for a connection that was used and reset: it is given what it had when it was fresh.
///
/// # Errors
/// The connection is of no use any more.
pub(crate) async fn prepare_again(worker: &Worker, backend: &mut Backend) -> Result<(), ConnectError> {
    if prepare(worker, backend).await?.is_some() {
        // It may have said SET NAMES.
        backend.core.held.charsets_changed_unseen();
    }
    Ok(defaults::restore(worker, backend).await?)
}

/// Brings a fresh (or just reset) connection to the proxy's own settings: session tracking, `init_connect`. Returns the
/// `init_connect` that ran.
async fn prepare(worker: &Worker, backend: &mut Backend) -> Result<Option<Box<str>>, ConnectError> {
    let set = our_tracking(worker, backend).await?;
    let tracking = match &*set {
        "" => Tracking::None,
        // A server that tells at all tells of this too: one that takes the SET and says nothing only looks like it.
        set => match backend.query(set, &worker.buffers).await? {
            reply if reply.error.is_none() && !reply.ok.session_state.is_empty() => Tracking::Ours,
            _ => Tracking::None,
        },
    };
    backend.core.held.began_tracking(tracking);
    // If the server refused to say, it may track sessions of other accounts.
    let is_asked = backend.core.info.tracking.get().is_some();
    if is_asked && !backend.core.held.tracks() && !backend.core.server.is_known_silent.swap(true, Ordering::Relaxed) {
        let (key, version) = (&backend.core.server.key, &backend.core.info.version);
        tracing::warn!(
            "{key} ({version}) does not track session state: sessions keep their connections there, see docs/reference/versions.md"
        );
    }
    let snapshot = worker.snapshot();
    let hostgroup = snapshot.hostgroup(backend.core.lane.hostgroup);
    if let Some(sql) = hostgroup.map(|h| &*h.attributes.init_connect).filter(|sql| !sql.is_empty()) {
        // A session whose client did not ask for it must not have several statements in a text.
        let widens = is_several(sql) && !backend.core.lane.class.capabilities().contains(Capabilities::MULTI_STATEMENTS);
        if widens {
            allow_several(worker, backend, true).await?;
        }
        let reply = backend.query(sql, &worker.buffers).await?;
        if let Some(e) = reply.error {
            return Err(ConnectError::InitConnect(e));
        }
        if widens {
            allow_several(worker, backend, false).await?;
        }
        return Ok(Some(sql.into()));
    }
    Ok(None)
}

/// Whether a text may have several statements; one more semicolon at its end makes none.
fn is_several(sql: &str) -> bool {
    sql.trim_end().trim_end_matches(';').contains(';')
}

/// Whether the connection takes texts with several statements from here on.
///
/// # Errors
/// The connection failed, or the server refused.
pub(crate) async fn allow_several(worker: &Worker, backend: &mut Backend, is_allowed: bool) -> Result<(), ConnectError> {
    // MYSQL_OPTION_MULTI_STATEMENTS_ON and _OFF.
    let option = u16::from(!is_allowed);
    backend.send(Command::SetOption, &option.to_le_bytes()).await?;
    match backend.collect(ReplyKind::Simple, false, &worker.buffers).await?.error {
        Some(e) => Err(ConnectError::Unfit(format!("COM_SET_OPTION failed: {e}"))),
        None => Ok(()),
    }
}

/// The SET that makes the session tracker tell everything that changes, empty where there is none; worked out once for each version of
/// a server. It is empty for this connection alone if the server refuses to say.
pub(crate) async fn our_tracking(worker: &Worker, backend: &mut Backend) -> std::io::Result<Arc<str>> {
    if let Some(tracking) = backend.core.info.tracking.get() {
        return Ok(Arc::clone(&tracking.ours));
    }
    let Some(tracking) = ask_tracking(worker, backend).await? else { return Ok(Arc::from("")) };
    let ours = Arc::clone(&tracking.ours);
    let _ = backend.core.info.tracking.set(tracking);
    Ok(ours)
}

/// What is asked of a server once. None if it answers with an error: the account may be the cause (an expired password, a limit of
/// queries by the hour), and the next connection asks again.
async fn ask_tracking(worker: &Worker, backend: &mut Backend) -> std::io::Result<Option<ServerTracking>> {
    let (mut defaults, mut collations, mut ours) = (TrackDefaults::default(), Box::default(), String::new());
    if backend.core.caps.contains(Capabilities::SESSION_TRACK) {
        let Some(said) = read_track_defaults(worker, backend).await? else { return Ok(None) };
        (defaults, collations) = said;
        let names = match backend.core.info.flavor {
            Flavor::MariaDb => Some("*".to_owned()),
            Flavor::MySql => changeable_variables(worker, backend).await?,
        };
        let Some(names) = names else { return Ok(None) };
        ours = format!("SET SESSION session_track_system_variables=_latin1'{names}',session_track_schema=ON,session_track_state_change=ON");
    }
    let known = read_collations(worker, backend).await?;
    Ok(known.map(|known| ServerTracking { defaults, ours: ours.into(), collations, known }))
}

/// MySQL's variables by name: its `*` would also name those that change with each statement.
async fn changeable_variables(worker: &Worker, backend: &mut Backend) -> std::io::Result<Option<String>> {
    let reply = backend.query("SHOW SESSION VARIABLES", &worker.buffers).await?;
    if reply.error.is_some() {
        return Ok(None);
    }
    let mut names: Vec<String> = Vec::new();
    for row in &reply.rows {
        if let Ok(name) = wire::codec::Reader::new(row).lenenc_bytes() {
            names.push(String::from_utf8_lossy(name).into_owned());
        }
    }
    names.retain(|n| !is_of_no_session(n) && n.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'.'));
    Ok(Some(names.join(",")))
}

/// The collations that the server knows, by id. MariaDB has names for several character sets in its usual list.
async fn read_collations(worker: &Worker, backend: &mut Backend) -> std::io::Result<Option<Box<[&'static Collation]>>> {
    let question = match backend.core.info.family {
        Family::MariaDbUca1400 => "SELECT ID,FULL_COLLATION_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY",
        Family::MariaDbEarly | Family::MariaDb | Family::MySql | Family::MySql5 => {
            "SELECT ID,COLLATION_NAME FROM information_schema.COLLATIONS"
        }
    };
    let reply = backend.query(question, &worker.buffers).await?;
    // A server without this table has no list of collations, whoever asks.
    if reply.error.as_ref().is_some_and(|error| !matches!(error.code, codes::NO_SUCH_TABLE | codes::UNKNOWN_TABLE)) {
        return Ok(None);
    }
    let known = reply.rows.iter().filter_map(|row| {
        let mut columns = wire::codec::Reader::new(row);
        let mut column = || std::str::from_utf8(columns.lenenc_bytes().ok()?).ok();
        charset::of_id_and_name(column()?.parse().ok()?, column()?)
    });
    let mut known: Vec<_> = known.collect();
    known.sort_by_key(|collation| collation.id);
    Ok(Some(known.into()))
}

/// Also `character_set_collations`.
async fn read_track_defaults(worker: &Worker, backend: &mut Backend) -> std::io::Result<Option<(TrackDefaults, Box<str>)>> {
    let mut sql = "SELECT @@session_track_system_variables,@@session_track_schema,@@session_track_state_change".to_owned();
    let is_mysql = backend.core.info.flavor == Flavor::MySql;
    if is_mysql {
        sql.push_str(",@@session_track_gtids");
    } else if backend.core.info.chooses_collations() {
        sql.push_str(",@@global.character_set_collations");
    }
    let reply = backend.query(&sql, &worker.buffers).await?;
    if reply.error.is_some() {
        return Ok(None);
    }
    let mut defaults = TrackDefaults::default();
    let mut collations = String::new();
    if let Some(row) = reply.rows.first() {
        let mut r = wire::codec::Reader::new(row);
        defaults.system_variables = r.lenenc_bytes().ok().map(|v| String::from_utf8_lossy(v).into_owned());
        defaults.schema = r.lenenc_bytes().is_ok_and(|v| v == b"1");
        defaults.state_change = r.lenenc_bytes().is_ok_and(|v| v == b"1");
        let last = r.lenenc_bytes().ok();
        defaults.gtids = is_mysql && last.is_some_and(|value| value != b"OFF");
        collations = last.filter(|_| !is_mysql).map(|value| String::from_utf8_lossy(value).into_owned()).unwrap_or_default();
    }
    Ok(Some((defaults, collations.into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_semicolon_at_the_end_makes_no_second_statement() {
        assert!(!is_several("SET @x=8") && !is_several("SET @x=8; ") && !is_several("SET @x=8;;"));
        assert!(is_several("SET @x=8; SET @y=9"));
    }
}
