//! PROXYSQL and similar commands: they act on the process, the data plane and its files.

use std::path::PathBuf;
use std::sync::Arc;

use model::control::Flush;

use super::{Answer, Command, done, exact, for_all, open, refuse, rows as reply, single};
use crate::clock::now;
use crate::engine::statement::unquoted;
use crate::engine::{After, Ask, Engine};
use crate::error::{AdminError, READ_ONLY};
use crate::history::{digests, queries};
use crate::process::Stop;
use crate::reply::Reply;
use crate::scheduler;
use crate::store::checksum;
use crate::store::rows;

pub(super) const COMMANDS: &[Command] = &[
    exact("PROXYSQL START", |engine, _| outcome(engine.process.start())).help(
        "PROXYSQL START",
        "Accepts clients, after PROXYSQL STOP or a start with --no-start.",
        "PROXYSQL START",
    ),
    exact("PROXYSQL STOP", |engine, _| outcome(engine.process.stop())).help(
        "PROXYSQL STOP",
        "Stops serving clients. The admin port stays.",
        "PROXYSQL STOP",
    ),
    exact("PROXYSQL RESTART", |engine, _| restart(engine)).help(
        "PROXYSQL RESTART",
        "Stops and starts again in the same process with the configuration on disk. Clients lose their connections.",
        "PROXYSQL RESTART",
    ),
    open("PROXYSQL UPGRADE", upgrade).help(
        "PROXYSQL UPGRADE ['/path/of/binary']",
        "Starts a new process that takes over clients and servers without an outage.",
        "PROXYSQL UPGRADE '/usr/bin/tidegate'",
    ),
    exact("PROXYSQL SHUTDOWN", |engine, _| after(engine, After::Shutdown(Stop::Drain))).help(
        "PROXYSQL SHUTDOWN",
        "Stops the proxy. Statements and transactions may end within mysql-drain_timeout.",
        "PROXYSQL SHUTDOWN",
    ),
    exact("PROXYSQL SHUTDOWN SLOW", |engine, _| after(engine, After::Shutdown(Stop::Slow))).help(
        "PROXYSQL SHUTDOWN SLOW",
        "Stops the proxy when all transactions have ended, without a time limit.",
        "PROXYSQL SHUTDOWN SLOW",
    ),
    exact("PROXYSQL KILL", |engine, _| after(engine, After::Shutdown(Stop::Now))).help(
        "PROXYSQL KILL",
        "Stops the proxy at once.",
        "PROXYSQL KILL",
    ),
    exact("PROXYSQL PAUSE", |engine, _| {
        outcome(engine.plane.pause())?;
        Ok(done(0, "no new connections are accepted until PROXYSQL RESUME; connected clients are served"))
    })
    .help("PROXYSQL PAUSE", "Accepts no new connections. Clients that are connected are served.", "PROXYSQL PAUSE"),
    exact("PROXYSQL RESUME", |engine, _| {
        outcome(engine.plane.resume())?;
        Ok(done(0, "new connections are accepted"))
    })
    .help("PROXYSQL RESUME", "Accepts new connections again.", "PROXYSQL RESUME"),
    exact("PROXYSQL READONLY", |engine, _| read_only(engine, true)).help(
        "PROXYSQL READONLY",
        "Refuses changes of the configuration on the admin port.",
        "PROXYSQL READONLY",
    ),
    exact("PROXYSQL READWRITE", |engine, _| read_only(engine, false)).help(
        "PROXYSQL READWRITE",
        "Allows changes of the configuration again.",
        "PROXYSQL READWRITE",
    ),
    exact("PROXYSQL FLUSH LOGS", |engine, _| flush_logs(engine)).help(
        "PROXYSQL FLUSH LOGS",
        "Opens all log files again, after a rotation.",
        "PROXYSQL FLUSH LOGS",
    ),
    exact("FLUSH LOGS", |engine, _| flush_logs(engine)).help("FLUSH LOGS", "Opens all log files again, after a rotation.", "FLUSH LOGS"),
    exact("PROXYSQL FLUSH QUERY CACHE", |engine, _| outcome(engine.plane.flush(Flush::QueryCache))).help(
        "PROXYSQL FLUSH QUERY CACHE",
        "Empties the query cache.",
        "PROXYSQL FLUSH QUERY CACHE",
    ),
    exact("PROXYSQL FLUSH MYSQL CLIENT HOSTS", |engine, _| outcome(engine.plane.flush(Flush::ClientHosts))).help(
        "PROXYSQL FLUSH MYSQL CLIENT HOSTS",
        "Forgets failed logins by client address.",
        "PROXYSQL FLUSH MYSQL CLIENT HOSTS",
    ),
    exact("PROXYSQL FLUSH CONFIGDB", |engine, _| engine.store.reopen_disk().map(|()| Reply::done())).help(
        "PROXYSQL FLUSH CONFIGDB",
        "Opens the database file again, after it was replaced.",
        "PROXYSQL FLUSH CONFIGDB",
    ),
    exact("PROXYSQL RELOAD TLS", |engine, _| engine.plane.reload_tls().map(|info| done(0, info)).map_err(AdminError::Refused)).help(
        "PROXYSQL RELOAD TLS",
        "Reads the TLS certificate and key of the client port again.",
        "PROXYSQL RELOAD TLS",
    ),
    exact("PROXYSQL RELOAD SECRETS", |engine, _| engine.reload_secrets()).help(
        "PROXYSQL RELOAD SECRETS",
        "Reads passwords that stand in files again.",
        "PROXYSQL RELOAD SECRETS",
    ),
    open("PROXYSQL CLUSTER_NODE_UUID", |_, _| refuse("this proxy does not join clusters of ProxySQL")),
    open("PROXYSQL MEMPROFILE", |_, _| refuse("not part of this proxy")),
    open("PROXYSQL COREDUMP|COMPRESSEDCOREDUMP", |_, _| refuse("core dumps are made by the system only: see ulimit -c")),
    exact("KILL CONNECTION *", |engine, ask| kill(engine, ask.statement.word(2))).help(
        "KILL CONNECTION session_id",
        "Ends a session. SHOW PROCESSLIST lists the ids.",
        "KILL CONNECTION 1073741830",
    ),
    exact("KILL *", |engine, ask| kill(engine, ask.statement.word(1))).help(
        "KILL session_id",
        "Ends a session. SHOW PROCESSLIST lists the ids.",
        "KILL 1073741830",
    ),
    exact("FORGET REPLICA *", forget_replica).help(
        "FORGET REPLICA n",
        "Lets the replica with server_id n go on by file and position at another server.",
        "FORGET REPLICA 7",
    ),
    open("LOGENTRY", log_entry).help("LOGENTRY text", "Writes a line into the error log.", "LOGENTRY maintenance begins"),
    exact("SIGNAL MYSQL THREADS", |_, _| Ok(Reply::done())),
    open("PULL VERSION MYSQL SERVERS", pull_version),
    exact("SELECT GLOBAL_CHECKSUM ( )", |engine, _| Ok(single("CHECKSUM", checksum::of_shared(&engine.runtime()).to_string()))).help(
        "SELECT GLOBAL_CHECKSUM()",
        "One checksum of the configuration in force.",
        "SELECT GLOBAL_CHECKSUM()",
    ),
    exact("TRUNCATE *", |engine, ask| truncate(engine, ask.statement.word(1))).help(
        "TRUNCATE table",
        "Deletes all rows of a table, or resets a statistics table.",
        "TRUNCATE stats_mysql_query_digest",
    ),
    exact("TRUNCATE TABLE *", |engine, ask| truncate(engine, ask.statement.word(2))).help(
        "TRUNCATE TABLE table",
        "Deletes all rows of a table, or resets a statistics table.",
        "TRUNCATE TABLE stats_mysql_query_digest",
    ),
    exact("SAVE MYSQL DIGEST TO DISK", save_digests).help(
        "SAVE MYSQL DIGEST TO DISK",
        "Saves the digests to stats_history and resets them.",
        "SAVE MYSQL DIGEST TO DISK",
    ),
    exact("DUMP EVENTSLOG FROM BUFFER TO MEMORY", |engine, _| Ok(forget_queries(engine, u64::MAX, true))).help(
        "DUMP EVENTSLOG FROM BUFFER TO MEMORY",
        "Moves logged queries to the table stats_mysql_query_events.",
        "DUMP EVENTSLOG FROM BUFFER TO MEMORY",
    ),
    exact("DUMP EVENTSLOG FROM BUFFER TO DISK", |engine, _| save_queries(engine, false)).help(
        "DUMP EVENTSLOG FROM BUFFER TO DISK",
        "Moves logged queries to history_mysql_query_events.",
        "DUMP EVENTSLOG FROM BUFFER TO DISK",
    ),
    exact("DUMP EVENTSLOG FROM BUFFER TO BOTH", |engine, _| save_queries(engine, true)).help(
        "DUMP EVENTSLOG FROM BUFFER TO BOTH",
        "Moves logged queries to both tables.",
        "DUMP EVENTSLOG FROM BUFFER TO BOTH",
    ),
    for_all(exact("SHOW PROMETHEUS METRICS", |engine, _| Ok(single("Data", crate::metrics::text(&engine.live.metrics())))).help(
        "SHOW PROMETHEUS METRICS",
        "All metrics in Prometheus' text format.",
        "SHOW PROMETHEUS METRICS",
    )),
    exact("VACUUM", |engine, _| vacuum(engine, "main")).help("VACUUM", "Shrinks the configuration database in memory.", "VACUUM"),
    exact("VACUUM disk|main|stats|monitor|stats_history", |engine, ask| vacuum(engine, ask.statement.word(1))).help(
        "VACUUM schema",
        "Shrinks the database of one schema.",
        "VACUUM stats_history",
    ),
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
    found.map_err(|why| AdminError::Refused(format!("the proxy would not start again: {why}")))?;
    after(engine, After::Restart)
}

/// Starts a process that takes over, with this program or the named one.
fn upgrade(engine: &mut Engine, ask: &Ask<'_>) -> Answer {
    let program = unquoted(ask.statement.rest(2));
    let program = (!program.is_empty()).then(|| PathBuf::from(program));
    if let Some(program) = program.as_ref().filter(|program| !program.is_absolute()) {
        return refuse(format!("{}: give an absolute path", program.display()));
    }
    if program.is_some() && scheduler::is_forbidden() {
        // Otherwise an administrator's password would be enough to run any program.
        return refuse("--no-scripts: the proxy starts no other program than its own file");
    }
    tracing::info!("{}@{}: {}", ask.session.user, ask.session.peer, ask.statement.text);
    let successor = engine.successor(program)?;
    // Thaws if the upgrade fails, cannot begin, or panics.
    let (process, freeze) = (Arc::clone(&engine.process), successor.frozen.freeze());
    engine.later(Box::new(move || match process.upgrade(successor) {
        Ok(text) => {
            freeze.keep();
            done(0, text)
        }
        Err(why) => {
            tracing::error!("upgrade: {why}; this process keeps serving");
            Reply::refused(why)
        }
    }))
}

fn flush_logs(engine: &Engine) -> Answer {
    engine.process.reopen_log();
    outcome(engine.plane.flush(Flush::Logs))
}

fn read_only(engine: &mut Engine, is_set: bool) -> Answer {
    engine.read_only = Some(is_set);
    Ok(done(
        0,
        if is_set { "the configuration cannot be changed here until PROXYSQL READWRITE" } else { "the configuration can be changed" },
    ))
}

fn kill(engine: &Engine, id: &str) -> Answer {
    match id.parse() {
        Ok(number) if engine.plane.kill_session(number) => Ok(Reply::done()),
        _ => refuse(format!("Unknown thread id: {id}")),
    }
}

/// The command gives up a protection, so the log names the user.
fn forget_replica(engine: &mut Engine, ask: &Ask<'_>) -> Answer {
    let id = ask.statement.word(2);
    let count = id.parse().map_or(0, |id| engine.plane.forget_replica(id));
    if count == 0 {
        return refuse(format!("no replica with server_id {id} has read by file and position here (stats_tidegate_positions)"));
    }
    tracing::info!("{}@{}: {}", ask.session.user, ask.session.peer, ask.statement.text);
    Ok(done(u64::try_from(count).unwrap_or(u64::MAX), "the replica may now read by file and position from another server"))
}

fn log_entry(_: &mut Engine, ask: &Ask<'_>) -> Answer {
    let text: String = ask.statement.rest(1).chars().filter(|letter| !letter.is_control()).collect();
    tracing::info!("{} says: {text}", ask.session.user);
    Ok(Reply::done())
}

/// Answers the servers' version from memory: every session waits for the engine, so it must not wait for a server.
fn pull_version(engine: &mut Engine, _: &Ask<'_>) -> Answer {
    let version = {
        let runtime = engine.live.runtime.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        runtime.checksums.iter().find(|line| line.name == "mysql_servers").map_or(0, |line| line.version)
    };
    Ok(reply(&["version"], vec![vec![Some(version.to_string())]]))
}

/// `TRUNCATE` resets the counters of a table. Tables of the configuration take DELETE.
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
        None => refuse(format!("{name} cannot be truncated because it holds no counters: use DELETE")),
    }
}

/// Moves the digests into the statistics' history. Returns how many.
fn save_digests(engine: &mut Engine, _: &Ask<'_>) -> Answer {
    let (db, settings) = (&engine.store.stats, engine.runtime());
    let saved = rows::transaction(db, || digests::save(db, &*engine.plane, &settings.admin, now()));
    engine.plane.settle_digests(saved.is_ok());
    Ok(done(u64::try_from(saved?).unwrap_or(u64::MAX), ""))
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
        return refuse(READ_ONLY);
    }
    engine.store.admin.execute_batch(&format!("VACUUM {schema}"))?;
    Ok(Reply::done())
}
