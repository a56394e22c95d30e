//! Ending what runs on a server, and what else is said to it beside its work: always on another connection than the one it is
//! about.
//!
//! INVARIANT: the number of a connection means something on its own server only, so nothing is said about it at another address
//! than its own (a name may stand for another server by now), nor, where the connection was lost, to a server that may have been
//! started since (numbers begin anew with it). A KILL QUERY goes out only while its statement runs, and the
//! session sends nothing else on that connection while one is on its way. The proxy itself kills no connection that waits for a
//! semi-synchronous replica: MariaDB would then commit without the replica's word. A client's own KILL goes out.
//!
//! A statement may never end: its words or its reply were lost on the way (a firewall that forgot the connection, say). On a server that
//! is not to be used any more a [`Watch`] looks whether the statement runs at all, and ends its connection if it does not. If the server
//! cannot be reached from here, though the monitor still sees it, the statement is given up too.

use crate::backends::backend::{Backend, BackendState};
use crate::backends::connect;
use crate::hostgroups::lane::Lane;
use crate::hostgroups::pool::HostgroupPool;
use crate::servers::server::{ServerShared, Slot};
use crate::statements::kill::Kill;
use crate::workers::counters::count;
use crate::workers::worker::Worker;
use session_state::collected::Collected;
use std::cell::Cell;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use wire::codec::Reader;
use wire::codes;

/// How long a KILL may take, connection included.
const KILL_WAIT: Duration = Duration::from_secs(5);

/// How long an idle connection may take to answer until a new one is asked: it may be half-open.
const IDLE_WAIT: Duration = Duration::from_secs(1);

/// How long a connection counts that was given up while its server was silent, and a KILL of it had no answer.
const GIVEN_UP_WAIT: Duration = Duration::from_secs(60);

/// A connection, for those who say something about it on another one.
pub(crate) struct Target {
    lane: Rc<Lane>,
    server: Arc<ServerShared>,
    /// The server's end; None on Unix sockets.
    peer: Option<IpAddr>,
    /// The server's number of it.
    pub thread_id: u32,
}

impl Target {
    pub(crate) fn of(worker: &Rc<Worker>, pool: &Rc<HostgroupPool>, core: &BackendState) -> Self {
        let lane = pool.lane(worker, &core.lane);
        Self { lane, server: Arc::clone(&core.server), peer: core.peer, thread_id: core.thread_id }
    }
}

/// Why a server did not answer what it was asked beside its work.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// Not within this time, opening a connection included.
    Late(Duration),
    /// It refused, or could not be asked.
    Failed(String),
    /// There was no need any more to ask.
    Withdrawn,
    /// The server was started since, so that what ran there has ended.
    Ended,
    /// A KILL was not sent: killed, it would commit without the replica's word.
    Spared,
}

impl std::fmt::Display for Unanswered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Late(within) => write!(f, "no answer within {} s", within.as_secs()),
            Self::Failed(why) => f.write_str(why),
            Self::Withdrawn => f.write_str("the statement had already ended"),
            Self::Ended => f.write_str("the server was restarted in the meantime"),
            Self::Spared => f.write_str("the connection waits for a semi-synchronous replica"),
        }
    }
}

/// Who decides that a statement ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KilledBy {
    /// A client or an operator, by a KILL: the statement ends whatever it waits for.
    Client,
    /// The proxy, because a time is over or a client left: what waits for a semi-synchronous replica goes on.
    Proxy,
}

impl KilledBy {
    fn what(self, sql: &str) -> What<'_> {
        match self {
            Self::Client => What::Says(sql),
            Self::Proxy => What::Kills(sql),
        }
    }
}

/// Ends the statement that runs on `backend`, from another connection, in the background. While that is under way for the statement,
/// nothing is begun again, except a client's first KILL after the proxy's own.
pub(crate) fn kill_statement(worker: &Rc<Worker>, pool: &Rc<HostgroupPool>, backend: &mut Backend, by: KilledBy) {
    let kill = backend.core.kill.get_or_insert_default();
    let is_clients_first = by == KilledBy::Client && kill.is_clients_first();
    // The task that sends one holds it, too.
    if Arc::strong_count(kill) > 1 && !is_clients_first {
        return;
    }
    let kill = Arc::clone(kill);
    count(&worker.counters.killed_queries);
    let (worker, pool, target) = (Rc::clone(worker), Rc::clone(pool), Target::of(worker, pool, &backend.core));
    let sql = format!("KILL QUERY {}", target.thread_id);
    tokio::task::spawn_local(async move { send_kill(&worker, &pool, &target, by.what(&sql), Some(&kill)).await });
}

/// Closes a connection whose statement still runs, and tells the server to end it: a server notices a closed socket only
/// when it writes. The connection counts until the server has been told.
pub(crate) async fn end_connection(worker: Rc<Worker>, pool: Rc<HostgroupPool>, backend: Backend, by: KilledBy) {
    count(&worker.counters.killed_connections);
    let target = Target::of(&worker, &pool, &backend.core);
    let sql = format!("KILL {}", target.thread_id);
    let Backend { link, core, .. } = backend;
    drop(link);
    send_kill(&worker, &pool, &target, by.what(&sql), None).await;
    drop(core);
    pool.grow(&worker);
}

/// How the proxy came to be without a connection on which something runs or is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// It was closed from without, or that may be. Its server may know nothing of it, and keep what is open there with its locks;
    /// or it was started anew.
    Closed,
    /// The proxy gave it up.
    GivenUp,
}

/// As [`end_connection`], for a connection that was lost. What waits for a replica goes on.
pub(crate) async fn end_lost_connection(worker: Rc<Worker>, pool: Rc<HostgroupPool>, backend: Backend, loss: Loss) {
    let target = Target::of(&worker, &pool, &backend.core);
    let Backend { link, core, .. } = backend;
    drop(link);
    // A crash loses thousands at once, and one answer is about all of them.
    match ask(&worker, &pool, &target, What::end(&core, loss), KILL_WAIT, None).await {
        Ok(_) => count(&worker.counters.killed_connections),
        Err(why) => tracing::debug!("cannot kill lost connection {}: {why}", target.thread_id),
    }
    drop(core);
    pool.grow(&worker);
}

/// What runs on a connection that was given up before it served anybody is ended, and it counts until then. The server's own
/// `init_connect` may hold up who says so, too: then it counts until that is over, for a while.
pub(crate) async fn end_given_up(worker: Rc<Worker>, pool: Rc<HostgroupPool>, mut backend: Backend) {
    let target = Target::of(&worker, &pool, &backend.core);
    match ask(&worker, &pool, &target, What::end(&backend.core, Loss::GivenUp), KILL_WAIT, None).await {
        Ok(_) => count(&worker.counters.killed_connections),
        Err(Unanswered::Late(_)) => {
            _ = tokio::time::timeout(GIVEN_UP_WAIT, backend.link.read(&mut backend.input, &worker.buffers)).await;
        }
        Err(why) => tracing::debug!("cannot kill abandoned connection {}: {why}", target.thread_id),
    }
    drop(backend);
    pool.grow(&worker);
}

async fn send_kill(worker: &Rc<Worker>, pool: &Rc<HostgroupPool>, target: &Target, what: What<'_>, kill: Option<&Kill>) {
    let id = target.thread_id;
    match ask(worker, pool, target, what, KILL_WAIT, kill).await {
        Ok(_) => {}
        Err(why @ (Unanswered::Withdrawn | Unanswered::Spared)) => tracing::debug!("KILL of connection {id} was not sent: {why}"),
        Err(why) => tracing::warn!("KILL of connection {id} failed: {why}"),
    }
}

/// Says something to a server beside the connections that are at work there: on an idle connection to the target's address if
/// there is one that answers soon; else on one more than `max_connections` allows, of which each server has at most one at a
/// time. A KILL of what has ended by itself is done. Returns also the number of the connection that asked.
pub(crate) async fn ask_aside(
    worker: &Rc<Worker>,
    pool: &Rc<HostgroupPool>,
    target: &Target,
    sql: &str,
    within: Duration,
) -> Result<(Collected, u32), Unanswered> {
    ask(worker, pool, target, What::Says(sql), within, None).await
}

async fn ask(
    worker: &Rc<Worker>,
    pool: &Rc<HostgroupPool>,
    target: &Target,
    what: What<'_>,
    within: Duration,
    kill: Option<&Kill>,
) -> Result<(Collected, u32), Unanswered> {
    let has_ended = || match what {
        What::Says(_) | What::Kills(_) => false,
        What::End { opened_ms } => opened_ms < target.server.addresses.started_ms(),
    };
    if has_ended() {
        return Err(Unanswered::Ended);
    }
    let begin = || kill.map_or(Ok(None), |kill| kill.begin().map(Some).ok_or(Unanswered::Withdrawn));
    let asked = async {
        if let Some(mut backend) = target.lane.take_to(target.server.index, target.peer) {
            let Ok(out) = begin() else {
                pool.release(worker, backend);
                return Err(Unanswered::Withdrawn);
            };
            if let Ok(Ok(said)) = tokio::time::timeout(IDLE_WAIT, ask_on(worker, &mut backend, target, what)).await {
                if let Some(out) = out {
                    out.answered();
                }
                let id = backend.core.thread_id;
                pool.release(worker, backend);
                return said.and_then(answer).map(|reply| (reply, id));
            }
            // What it may still hold is not to arrive later.
            backend.link.stream().forget_unsent();
            drop(backend);
            pool.grow(worker);
        }
        let _turn = target.server.kills.acquire().await.map_err(|e| Unanswered::Failed(e.to_string()))?;
        // Those who asked before may have learnt it.
        if has_ended() {
            return Err(Unanswered::Ended);
        }
        // It is given nothing that sessions have: `init_connect` may wait for what is to be ended.
        let opened = connect::enter(worker, &target.server, target.peer, &target.lane.key, 0, Slot::extra()).await;
        let mut backend = opened.map_err(|e| Unanswered::Failed(format!("{e:?}")))?;
        let out = begin()?;
        let said = ask_on(worker, &mut backend, target, what).await.map_err(|e| Unanswered::Failed(e.to_string()))?;
        if let Some(out) = out {
            out.answered();
        }
        said.and_then(answer).map(|reply| (reply, backend.core.thread_id))
    };
    tokio::time::timeout(within, asked).await.unwrap_or(Err(Unanswered::Late(within)))
}

/// What is said on another connection.
#[derive(Clone, Copy)]
enum What<'a> {
    /// This.
    Says(&'a str),
    /// This KILL, unless the connection waits for a semi-synchronous replica.
    Kills(&'a str),
    /// KILL of a connection that was opened then (process clock, ms), if the server certainly runs since before that.
    End { opened_ms: u64 },
}

impl What<'_> {
    /// For a connection that was lost so: only one that was closed from without may be of a server that was started since.
    fn end(core: &BackendState, loss: Loss) -> Self {
        Self::End { opened_ms: if loss == Loss::Closed { core.opened_ms } else { u64::MAX } }
    }
}

/// The reply, or why nothing was said though the connection works.
async fn ask_on(worker: &Worker, backend: &mut Backend, target: &Target, what: What<'_>) -> io::Result<Result<Collected, Unanswered>> {
    let said = match what {
        What::Says(sql) => Ok(backend.query(sql, &worker.buffers).await?),
        What::Kills(sql) => kill_on(worker, backend, target, sql).await?,
        What::End { opened_ms } => end_on(worker, backend, target, opened_ms).await?,
    };
    if let Ok(reply) = &said {
        backend.core.asked(reply);
    }
    Ok(said)
}

async fn kill_on(worker: &Worker, backend: &mut Backend, target: &Target, sql: &str) -> io::Result<Result<Collected, Unanswered>> {
    let state = backend.query(&state_of(target.thread_id), &worker.buffers).await?;
    backend.core.asked(&state);
    if waits_for_replica(&state) {
        return Ok(Err(Unanswered::Spared));
    }
    backend.query(sql, &worker.buffers).await.map(Ok)
}

async fn end_on(worker: &Worker, backend: &mut Backend, target: &Target, opened_ms: u64) -> io::Result<Result<Collected, Unanswered>> {
    let id = target.thread_id;
    let is_older_here = backend.core.opened_ms <= opened_ms;
    let uptime = (!is_older_here).then(|| "SHOW GLOBAL STATUS LIKE 'Uptime'".to_owned());
    let questions: Vec<String> = uptime.into_iter().chain([state_of(id)]).collect();
    let asked_ms = worker.shared.clock.now_ms();
    let replies = backend.query_all(&questions, &worker.buffers).await?;
    replies.iter().for_each(|reply| backend.core.asked(reply));
    let uptime_s = replies.first().filter(|_| !is_older_here).and_then(uptime_of);
    if let Some(uptime_s) = uptime_s {
        target.server.addresses.started_after(started_ms(uptime_s, asked_ms));
    }
    let age_ms = worker.shared.clock.now_ms().saturating_sub(opened_ms);
    let ran = || uptime_s.is_some_and(|uptime_s| is_older(uptime_s, age_ms));
    // A server that was started since has ended this connection, too; one that counts on gives higher numbers.
    if !is_older_here && (backend.core.thread_id <= id || !ran()) {
        return Err(io::Error::other("the server may have been restarted in the meantime"));
    }
    if replies.last().is_some_and(waits_for_replica) {
        return Ok(Err(Unanswered::Spared));
    }
    backend.query(&format!("KILL {id}"), &worker.buffers).await.map(Ok)
}

/// Asks what the connection of this number waits for.
fn state_of(id: u32) -> String {
    format!("SELECT STATE FROM information_schema.PROCESSLIST WHERE ID={id}")
}

/// Whether the answer to [`state_of`] says that a commit waits for the word of a semi-synchronous replica.
fn waits_for_replica(state: &Collected) -> bool {
    state.rows.iter().any(|row| contains_text(row, b"semi-sync"))
}

/// The number of seconds that a server says it has run.
fn uptime_of(reply: &Collected) -> Option<u64> {
    let mut row = Reader::new(reply.rows.first()?);
    row.lenenc_bytes().ok()?;
    // It may be in UTF-16 or UTF-32.
    let digits: Vec<u8> = row.lenenc_bytes().ok()?.iter().copied().filter(|b| *b != 0).collect();
    std::str::from_utf8(&digits).ok()?.parse().ok()
}

/// Whether a server that says so has certainly run for longer: it counts whole seconds, from a whole one on.
fn is_older(uptime_s: u64, age_ms: u64) -> bool {
    uptime_s.saturating_sub(1).saturating_mul(1000) >= age_ms
}

/// After when (process clock, ms) a server was certainly started that said so when it was asked at `asked_ms`.
fn started_ms(uptime_s: u64, asked_ms: u64) -> u64 {
    asked_ms.saturating_sub(uptime_s.saturating_add(1).saturating_mul(1000))
}

/// Whether a row has these (small) letters in it, whatever its character set.
fn contains_text(row: &[u8], text: &[u8]) -> bool {
    let letters: Vec<u8> = row.iter().copied().filter(|b| *b != 0).collect();
    letters.windows(text.len()).any(|window| window.eq_ignore_ascii_case(text))
}

fn answer(reply: Collected) -> Result<Collected, Unanswered> {
    match reply.error.as_ref().filter(|e| e.code != codes::NO_SUCH_THREAD) {
        Some(error) => Err(Unanswered::Failed(error.to_string())),
        None => Ok(reply),
    }
}

/// Time between two looks, ms. What is on its way when one is taken has arrived before the next.
const LOOK_AGAIN_MS: u64 = 1000;

/// How long a look may take: an idle connection that does not answer, and then a new one.
const LOOK_WAIT: Duration = Duration::from_secs(2);

/// Looks in a row that must find it not running.
const LOOKS: u32 = 2;

/// What a look found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// The server has the connection, and nothing runs there.
    Idle,
    /// It runs, or nobody knows.
    MayRun,
    /// Nothing passes between the proxy and the server.
    Nothing,
}

/// What looks at the statement of one connection found.
pub(crate) struct Watch {
    next_look_ms: Cell<u64>,
    /// In a row, without finding it.
    missed: Cell<u32>,
    /// It does not run, and never will: its connection was ended, or is cut.
    is_over: Cell<bool>,
}

impl Watch {
    /// The first look is due at `now_ms` (process clock).
    pub(crate) fn new(now_ms: u64) -> Rc<Self> {
        Rc::new(Self { next_look_ms: Cell::new(now_ms), missed: Cell::new(0), is_over: Cell::new(false) })
    }

    /// It found that the statement does not run.
    #[cfg(test)]
    pub(crate) fn over() -> Rc<Self> {
        let watch = Self::new(u64::MAX);
        watch.is_over.set(true);
        watch
    }

    /// Whether the statement does not run, and never will.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// Begins another look at the statement of this connection, if one is due.
    pub(crate) fn look_if_due(self: &Rc<Self>, worker: &Rc<Worker>, pool: &Rc<HostgroupPool>, core: &BackendState, now_ms: u64) {
        if self.next_look_ms.get() > now_ms {
            return;
        }
        self.next_look_ms.set(u64::MAX);
        let (watch, worker, pool, target) = (Rc::clone(self), Rc::clone(worker), Rc::clone(pool), Target::of(worker, pool, core));
        tokio::task::spawn_local(async move { watch.look(&worker, &pool, &target).await });
    }

    async fn look(&self, worker: &Rc<Worker>, pool: &Rc<HostgroupPool>, target: &Target) {
        let id = target.thread_id;
        let ask = async |sql: String| ask_aside(worker, pool, target, &sql, LOOK_WAIT).await;
        let seen = match ask(format!("SELECT COMMAND,CONNECTION_ID() FROM information_schema.PROCESSLIST WHERE ID={id}")).await {
            Ok((reply, own)) if matches!(reply.rows.as_slice(), [row] if is_idle(row, own)) => Seen::Idle,
            Err(Unanswered::Late(_)) => Seen::Nothing,
            Ok(_) | Err(Unanswered::Failed(_) | Unanswered::Withdrawn | Unanswered::Ended | Unanswered::Spared) => Seen::MayRun,
        };
        self.missed.set(if seen == Seen::MayRun { 0 } else { self.missed.get() + 1 });
        if self.missed.get() >= LOOKS {
            // Where nothing passes, no answer will come either.
            self.is_over.set(seen == Seen::Nothing || ask(format!("KILL {id}")).await.is_ok());
        }
        let pause_ms = if seen == Seen::Nothing { 0 } else { LOOK_AGAIN_MS };
        self.next_look_ms.set(worker.shared.clock.now_ms() + pause_ms);
    }
}

/// Whether it says that the connection runs nothing. A server that is a proxy itself knows connections by other numbers than those
/// behind it, and shows others' under ours: it counts only where who asked has the number that it was told at login.
fn is_idle(row: &[u8], asked_by: u32) -> bool {
    let mut reader = Reader::new(row);
    // The connection that was asked may have results in UTF-16 or UTF-32.
    let mut text = || Some(reader.lenenc_bytes().ok()?.iter().copied().filter(|b| *b != 0).collect::<Vec<u8>>());
    let (Some(command), Some(own)) = (text(), text()) else { return false };
    command == b"Sleep" && own == asked_by.to_string().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::backend::made::row;
    use crate::bed;
    use crate::session::answers::result_of;
    use model::HostgroupId;
    use session_state::class::{Class, LaneKey};
    use std::io::{Read, Write};
    use wire::charset::Flavor;
    use wire::codec::put_lenenc_bytes;
    use wire::flags::Capabilities;
    use wire::packet::{self, HEADER};

    /// What the server hears, if the connection at stake is in this state there, and why nothing was said, if so.
    async fn heard(state: &str, what: What<'_>) -> (Vec<String>, Option<Unanswered>) {
        let snapshot = bed::snapshot(&[(0, "127.0.0.1")], "mysql_users = ( { username=\"u\" } )");
        let worker = bed::worker(Arc::clone(&snapshot));
        let pool = worker.pool(HostgroupId(0));
        let (user, class) = (Arc::clone(&snapshot.users["u"]), Class::of(Capabilities::default()));
        let lane = pool.lane(&worker, &LaneKey { hostgroup: HostgroupId(0), user, class });
        let (mut backend, mut far) = bed::backend(&worker, &lane, Flavor::MySql, "8.4.0");
        let target = Target::of(&worker, &pool, &backend.core);
        let reply = result_of(&[&[state]]);
        let (tells, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut header = [0; HEADER];
            while far.read_exact(&mut header).is_ok() {
                let mut command = vec![0; packet::header(&header).unwrap().0];
                far.read_exact(&mut command).unwrap();
                tells.send(String::from_utf8_lossy(&command[1..]).into_owned()).unwrap();
                far.write_all(&reply).unwrap();
            }
        });
        let said = ask_on(&worker, &mut backend, &target, what).await.unwrap();
        drop(backend);
        (told.iter().collect(), said.err())
    }

    #[tokio::test]
    async fn the_proxy_itself_kills_nothing_that_waits_for_a_replica() {
        let asks = "SELECT STATE FROM information_schema.PROCESSLIST WHERE ID=7";
        let waits = "Waiting for semi-sync ACK from replica";
        let end = What::End { opened_ms: u64::MAX };
        for (state, what, expected) in [
            (waits, KilledBy::Proxy.what("KILL QUERY 7"), &[asks][..]),
            ("executing", KilledBy::Proxy.what("KILL QUERY 7"), &[asks, "KILL QUERY 7"]),
            (waits, KilledBy::Client.what("KILL QUERY 7"), &["KILL QUERY 7"]),
            (waits, end, &[asks]),
            ("", end, &[asks, "KILL 7"]),
        ] {
            let (heard, unanswered) = heard(state, what).await;
            assert_eq!(heard, expected, "{state}");
            assert_eq!(matches!(unanswered, Some(Unanswered::Spared)), expected == [asks], "{state}");
        }
    }

    #[test]
    fn only_a_server_that_ran_before_has_the_connection() {
        assert!(is_older(11, 10_000));
        assert!(!is_older(11, 10_001), "it may have been started 10.01 s ago");
        assert!(!is_older(0, 1));
        assert_eq!([(0, 5_000), (3, 5_000), (60, 5_000)].map(|(uptime_s, ms)| started_ms(uptime_s, ms)), [4_000, 1_000, 0]);
        assert_eq!(uptime_of(&row(&["Uptime", "4711"])), Some(4711));
        assert_eq!(uptime_of(&row(&["\0U", "\x004\x007"])), Some(47), "UTF-16");
        assert_eq!(uptime_of(&Collected::default()), None);
        assert!(contains_text(b"\x20Waiting for semi-sync ACK from replica", b"semi-sync"));
        assert!(!contains_text(b"\x09executing", b"semi-sync"));
    }

    #[test]
    fn only_an_idle_connection_of_the_server_that_was_asked_counts() {
        let row = |texts: &[&[u8]]| {
            let mut row = Vec::new();
            texts.iter().for_each(|text| put_lenenc_bytes(&mut row, text));
            row
        };
        assert!(is_idle(&row(&[b"Sleep", b"4711"]), 4711));
        assert!(is_idle(&row(&[b"\0S\0l\0e\0e\0p", b"\x004\x007\x001\x001"]), 4711), "UTF-16");
        assert!(!is_idle(&row(&[b"Query", b"4711"]), 4711));
        assert!(!is_idle(&row(&[b"Sleep", b"4712"]), 4711), "behind a proxy");
        assert!(!is_idle(&row(&[b"Sleep"]), 4711));
        assert!(!is_idle(b"\xfb\xfb", 4711), "NULL");
    }
}
