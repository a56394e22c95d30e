//! PROXYSQL and its like: what is done to the process, the data plane and its files.

use std::path::PathBuf;
use std::sync::Arc;

use model::control::Flush;

use super::{Answer, Command, done, exact, for_all, open, refuse, rows as reply, single};
use crate::engine::statement::unquoted;
use crate::engine::{After, Ask, Engine, now};
use crate::error::AdminError;
use crate::history::{digests, queries};
use crate::process::Stop;
use crate::reply::Reply;
use crate::scheduler;
use crate::store::rows;

pub(super) const COMMANDS: &[Command] = &[
    exact("PROXYSQL START", |engine, _| outcome(engine.process.start())),
    exact("PROXYSQL STOP", |engine, _| outcome(engine.process.stop())),
    exact("PROXYSQL RESTART", |engine, _| restart(engine)),
    open("PROXYSQL UPGRADE", upgrade),
    exact("PROXYSQL SHUTDOWN", |engine, _| after(engine, After::Shutdown(Stop::Drain))),
    exact("PROXYSQL SHUTDOWN SLOW", |engine, _| after(engine, After::Shutdown(Stop::Slow))),
    exact("PROXYSQL KILL", |engine, _| after(engine, After::Shutdown(Stop::Now))),
    exact("PROXYSQL PAUSE", |engine, _| outcome(engine.plane.pause())),
    exact("PROXYSQL RESUME", |engine, _| outcome(engine.plane.resume())),
    exact("PROXYSQL READONLY", |engine, _| read_only(engine, true)),
    exact("PROXYSQL READWRITE", |engine, _| read_only(engine, false)),
    exact("PROXYSQL FLUSH LOGS", |engine, _| flush_logs(engine)),
    exact("FLUSH LOGS", |engine, _| flush_logs(engine)),
    exact("PROXYSQL FLUSH QUERY CACHE", |engine, _| outcome(engine.plane.flush(Flush::QueryCache))),
    exact("PROXYSQL FLUSH MYSQL CLIENT HOSTS", |engine, _| outcome(engine.plane.flush(Flush::ClientHosts))),
    exact("PROXYSQL FLUSH CONFIGDB", |engine, _| engine.store.reopen_disk().map(|()| Reply::done())),
    exact("PROXYSQL RELOAD TLS", |engine, _| engine.plane.reload_tls().map(|info| done(0, info)).map_err(AdminError::Refused)),
    exact("PROXYSQL RELOAD SECRETS", |engine, _| engine.reload_secrets()),
    open("PROXYSQL CLUSTER_NODE_UUID", |_, _| refuse("clusters of ProxySQL are not joined")),
    open("PROXYSQL MEMPROFILE", |_, _| refuse("not part of this proxy")),
    open("PROXYSQL COREDUMP|COMPRESSEDCOREDUMP", |_, _| refuse("core dumps are left to the system")),
    exact("KILL CONNECTION *", |engine, ask| kill(engine, ask.statement.word(2))),
    exact("KILL *", |engine, ask| kill(engine, ask.statement.word(1))),
    exact("FORGET REPLICA *", forget_replica),
    open("LOGENTRY", log_entry),
    exact("SIGNAL MYSQL THREADS", |_, _| Ok(Reply::done())),
    open("PULL VERSION MYSQL SERVERS", pull_version),
    exact("SELECT GLOBAL_CHECKSUM ( )", |engine, _| Ok(single("CHECKSUM", super::checksum::global(engine).to_string()))),
    exact("TRUNCATE *", |engine, ask| truncate(engine, ask.statement.word(1))),
    exact("TRUNCATE TABLE *", |engine, ask| truncate(engine, ask.statement.word(2))),
    exact("SAVE MYSQL DIGEST TO DISK", save_digests),
    exact("DUMP EVENTSLOG FROM BUFFER TO MEMORY", |engine, _| Ok(forget_queries(engine, u64::MAX, true))),
    exact("DUMP EVENTSLOG FROM BUFFER TO DISK", |engine, _| save_queries(engine, false)),
    exact("DUMP EVENTSLOG FROM BUFFER TO BOTH", |engine, _| save_queries(engine, true)),
    for_all(exact("SHOW PROMETHEUS METRICS", |engine, _| Ok(single("Data", crate::metrics::text(&engine.live.metrics()))))),
    exact("VACUUM", |engine, _| vacuum(engine, "main")),
    exact("VACUUM disk|main|stats|monitor|stats_history", |engine, ask| vacuum(engine, ask.statement.word(1))),
];

fn outcome(outcome: Result<(), String>) -> Answer {
    outcome.map(|()| Reply::done()).map_err(AdminError::Refused)
}

fn after(engine: &mut Engine, what: After) -> Answer {
    engine.after = what;
    Ok(Reply::done())
}

/// Refused while it can still be mended.
fn restart(engine: &mut Engine) -> Answer {
    let found = engine.process.could_restart(&engine.runtime());
    found.map_err(|why| AdminError::Refused(format!("it would not start again: {why}")))?;
    after(engine, After::Restart)
}

/// Another process takes over, with this program or the one that is named.
fn upgrade(engine: &mut Engine, ask: &Ask<'_>) -> Answer {
    let program = unquoted(ask.statement.rest(2));
    let program = (!program.is_empty()).then(|| PathBuf::from(program));
    if let Some(program) = program.as_ref().filter(|program| !program.is_absolute()) {
        return refuse(format!("{}: an absolute path is needed", program.display()));
    }
    if program.is_some() && scheduler::is_forbidden() {
        // Whoever has an administrator's password could have any program run.
        return refuse("--no-scripts: no program but this one's own file is started");
    }
    tracing::info!("{}@{}: {}", ask.session.user, ask.session.peer, ask.statement.text);
    let successor = engine.successor(program)?;
    let (process, frozen) = (Arc::clone(&engine.process), successor.frozen.clone());
    frozen.set(true);
    let given = engine.later(Box::new(move || match process.upgrade(successor) {
        Ok(text) => done(0, text),
        Err(why) => {
            frozen.set(false);
            tracing::error!("upgrade: {why}; this process serves on");
            Reply::refused(why)
        }
    }));
    if given.is_err() {
        engine.frozen.set(false);
    }
    given
}

fn flush_logs(engine: &Engine) -> Answer {
    engine.process.reopen_log();
    outcome(engine.plane.flush(Flush::Logs))
}

fn read_only(engine: &mut Engine, is_set: bool) -> Answer {
    engine.read_only = Some(is_set);
    Ok(Reply::done())
}

fn kill(engine: &Engine, id: &str) -> Answer {
    match id.parse() {
        Ok(number) if engine.plane.kill_session(number) => Ok(Reply::done()),
        _ => refuse(format!("Unknown thread id: {id}")),
    }
}

/// What is given up is a protection: the log says who did it.
fn forget_replica(engine: &mut Engine, ask: &Ask<'_>) -> Answer {
    let id = ask.statement.word(2);
    let count = id.parse().map_or(0, |id| engine.plane.forget_replica(id));
    if count == 0 {
        return refuse(format!("no replica with server_id {id} has read by file and position here (stats_tidegate_positions)"));
    }
    tracing::info!("{}@{}: {}", ask.session.user, ask.session.peer, ask.statement.text);
    Ok(done(u64::try_from(count).unwrap_or(u64::MAX), "the next server that it reads by file and position is its server"))
}

fn log_entry(_: &mut Engine, ask: &Ask<'_>) -> Answer {
    let text: String = ask.statement.rest(1).chars().filter(|letter| !letter.is_control()).collect();
    tracing::info!("{} says: {text}", ask.session.user);
    Ok(Reply::done())
}

/// Answers the version of the servers at once: nobody may wait here, as everybody waits for the engine.
fn pull_version(engine: &mut Engine, _: &Ask<'_>) -> Answer {
    let version = {
        let runtime = engine.live.runtime.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        runtime.checksums.iter().find(|line| line.name == "mysql_servers").map_or(0, |line| line.version)
    };
    Ok(reply(&["version"], vec![vec![Some(version.to_string())]]))
}

/// `TRUNCATE` begins the counters of a table anew. Tables of the configuration take DELETE.
fn truncate(engine: &mut Engine, name: &str) -> Answer {
    let name = name.to_ascii_lowercase();
    let bare = name.strip_prefix("stats.").unwrap_or(&name);
    let known = engine
        .live
        .find(Some("stats"), bare)
        .is_some_and(|table| engine.live.find(Some("stats"), &format!("{}_reset", table.name)).is_some());
    let is_twin = bare.ends_with("_reset");
    match (known || is_twin).then(|| engine.live.reset(bare)).flatten() {
        Some(count) => Ok(done(u64::try_from(count).unwrap_or(u64::MAX), "")),
        None => refuse(format!("{name} cannot be truncated: it is no table of counters; use DELETE")),
    }
}

/// Moves the digests into the statistics' history. Returns how many.
fn save_digests(engine: &mut Engine, _: &Ask<'_>) -> Answer {
    let (db, settings) = (&engine.store.stats, engine.runtime());
    let count = rows::transaction(db, || digests::save(db, &engine.live, &settings.admin, now()))?;
    Ok(done(u64::try_from(count).unwrap_or(u64::MAX), ""))
}

/// Moves the logged queries of the buffer into the statistics' history, and into `stats_mysql_query_events` if `into_table`.
fn save_queries(engine: &mut Engine, into_table: bool) -> Answer {
    let (db, settings) = (&engine.store.stats, engine.runtime());
    let last = rows::transaction(db, || queries::save(db, &*engine.plane, &settings.admin, now()))?;
    Ok(forget_queries(engine, last, into_table))
}

/// Returns how many there were.
fn forget_queries(engine: &Engine, up_to: u64, into_table: bool) -> Reply {
    let count = engine.plane.forget_logged_queries(up_to, into_table);
    done(u64::try_from(count).unwrap_or(u64::MAX), "")
}

fn vacuum(engine: &Engine, schema: &str) -> Answer {
    if engine.is_read_only() {
        return refuse("attempt to write a readonly database: admin-read_only is set");
    }
    engine.store.admin.execute_batch(&format!("VACUUM {schema}"))?;
    Ok(Reply::done())
}
