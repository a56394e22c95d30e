//! Runs one copy: a backend of the mirror's hostgroup, the session's state, the statement, its reply forgotten, and the
//! backend clean again.
//!
//! Each step has a time limit. A copy is tried once: whether it arrived is not known when its connection is lost.

use super::discard::{Discarded, Ear, discard};
use super::{Mirrored, MirroredExecution, plan};
use crate::backends::backend::{Backend, prepare_ok, put_command, put_query};
use crate::backends::cleaning::{abandon, reset};
use crate::hostgroups::choice::Needs;
use crate::hostgroups::lane::Lane;
use crate::hostgroups::pool::{AcquireError, HostgroupPool, Wish};
use crate::net::stream::invalid;
use crate::servers::server::ServerShared;
use crate::workers::counters::count;
use crate::workers::worker::{Worker, shown_error};
use meter::digest_table::Sums;
use meter::{Ended, error_key};
use session_state::collected::{Collected, ServerError};
use session_state::flavors::adapt;
use session_state::pins::PinSet;
use session_state::server_info::ServerInfo;
use session_state::state::{Diff, State, canonical};
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};
use wire::charset::Flavor;
use wire::codes;
use wire::command::Command;
use wire::flags::{Capabilities, StatusFlags};
use wire::prepared::{put_no_cursor, put_stmt_id};
use wire::reply::ReplyKind;

/// How long (ms) a copy may run where no rule says so; `mysql-default_query_timeout` may be shorter.
const MAX_RUN_MS: u64 = 60_000;
/// How long (ms) a question for a plan may take with its connection, the session's state and the answer;
/// `mysql-default_query_timeout` may be shorter.
const MAX_PLAN_MS: u64 = 5_000;
/// What makes a statement a question for its plan.
const EXPLAIN: &[u8] = b"EXPLAIN FORMAT=JSON ";
/// No schema has such a name.
const UNKNOWN_SCHEMA: &[u8] = b"?";
/// Time until another backend is looked at, where one was of a server that will not do.
const BETWEEN_BACKENDS: Duration = Duration::from_millis(50);
/// How many backends are looked at for one that can be brought to the session's state.
const MAX_BACKENDS: u32 = 8;

/// Why a copy did not run to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("no connection: {0}")]
    NoBackend(String),
    #[error("the login was refused: {0}")]
    Login(String),
    #[error("the server refused the session's state: {0}")]
    State(ServerError),
    #[error("the client and the server encode parameters differently (CLIENT_QUERY_ATTRIBUTES)")]
    OtherForm,
    #[error("connection lost: {0}")]
    Lost(#[from] io::Error),
    #[error("still running after {0} ms")]
    TimedOut(u64),
}

/// Runs a copy and counts how it went.
pub(super) async fn run(worker: &Rc<Worker>, copy: Mirrored) {
    let began_us = worker.shared.clock.now_us();
    let counters = &worker.counters;
    match attempt(worker, &copy, began_us, &mut ()).await {
        Ok(Discarded { error: None, .. }) => count(&counters.mirrors_done),
        Ok(Discarded { error: Some(error), .. }) => {
            count(&counters.mirrors_refused);
            let text = shown_error(&error.message, copy.text(), copy.lex);
            let text = String::from_utf8_lossy(&text);
            tracing::debug!("mirrored statement in hostgroup {}: error {}: {text}", copy.lane.hostgroup, error.code);
        }
        Err(failure) => {
            count(&counters.mirrors_failed);
            if counters.mirrors_failed.get().is_power_of_two() {
                let failed = counters.mirrors_failed.get();
                tracing::warn!("worker {}: {failed} mirrored statements failed so far; latest error: {failure}", worker.index);
            }
        }
    }
}

/// Runs a copy that was begun at `began_us` (process clock). `ear` hears the reply of the statement itself.
///
/// # Errors
/// The copy did not run to its end.
pub(crate) async fn attempt(worker: &Rc<Worker>, copy: &Mirrored, began_us: u64, ear: &mut impl Ear) -> Result<Discarded, Failure> {
    let pool = worker.pool(copy.lane.hostgroup);
    let lane = pool.lane(worker, &copy.lane);
    if is_form_refused(worker, &pool, &lane, copy) {
        return Err(Failure::OtherForm);
    }
    let mut backend = ready_backend(worker, &pool, &lane, copy, &Search::ANY).await?;
    if has_other_form(copy, &backend) {
        pool.release(worker, backend);
        return Err(Failure::OtherForm);
    }
    let limit_ms = run_limit_ms(copy.timeout_ms, lane.settings().default_query_timeout);
    let exchange = async {
        match &copy.execution {
            Some(execution) => execute(worker, &mut backend, copy, execution, ear).await,
            None => {
                backend.start_exchange()?;
                backend.link.write_all(&packet(copy, backend.core.caps)).await?;
                discard(&mut backend, &worker.buffers, ear).await
            }
        }
    };
    let outcome = timeout(Duration::from_millis(limit_ms), exchange).await;
    let traffic = backend.link.take_traffic();
    worker.meter.count_traffic((backend.core.server.key.hostgroup, backend.core.server.index), traffic);
    match outcome {
        Ok(Ok(reply)) => {
            backend.settled();
            measure(worker, copy, &backend, &reply, began_us);
            clean(worker, pool, backend, copy, &reply).await;
            Ok(reply)
        }
        Ok(Err(e)) => Err(e.into()),
        Err(_) => {
            abandon(Rc::clone(worker), pool, backend, PinSet::default(), true).await;
            Err(Failure::TimedOut(limit_ms))
        }
    }
}

/// Every server refused connections for parameters in the form of this execution, lately. It does not wait for the next try: others'
/// copies could run.
fn is_form_refused(worker: &Worker, pool: &HostgroupPool, lane: &Lane, copy: &Mirrored) -> bool {
    copy.execution.is_some()
        && copy.lane.class.capabilities().contains(Capabilities::QUERY_ATTRIBUTES)
        && lane.is_refused(&pool.servers(), worker.shared.clock.now_ms())
}

/// The parameters of an execution are not in the form that this connection takes.
fn has_other_form(copy: &Mirrored, backend: &Backend) -> bool {
    let has_attributes = |caps: Capabilities| caps.contains(Capabilities::QUERY_ATTRIBUTES);
    copy.execution.is_some() && has_attributes(backend.core.caps) != has_attributes(copy.lane.class.capabilities())
}

/// Asks for the plan of a copy, with its parameters, on a server that `may_ask`. INVARIANT: MariaDB may run functions of views for that. So
/// the copy is [guarded](Mirrored::is_guarded), and its connection is reset or closed afterwards.
///
/// # Errors
/// There was no answer within [`MAX_PLAN_MS`], which counts from the search for a connection.
pub(crate) async fn explain(worker: &Rc<Worker>, copy: &Mirrored, may_ask: &dyn Fn(&ServerShared) -> bool) -> Result<Collected, Failure> {
    assert!(copy.is_guarded, "a question for a plan must not write");
    let pool = worker.pool(copy.lane.hostgroup);
    let lane = pool.lane(worker, &copy.lane);
    let limit_ms = run_limit_ms(None, lane.settings().default_query_timeout).min(MAX_PLAN_MS);
    let until = Instant::now() + Duration::from_millis(limit_ms);
    let search = Search { may_use: may_ask, until: Some(until) };
    if is_form_refused(worker, &pool, &lane, copy) {
        return Err(Failure::OtherForm);
    }
    let mut backend = ready_backend(worker, &pool, &lane, copy, &search).await?;
    if has_other_form(copy, &backend) {
        pool.release(worker, backend);
        return Err(Failure::OtherForm);
    }
    match timeout_at(until, exchange_plan(worker, &mut backend, copy)).await {
        Ok(Ok(reply)) => {
            backend.settled();
            let ended = Discarded { status: reply.ok.status, error: reply.error.clone(), ..Discarded::default() };
            clean(worker, pool, backend, copy, &ended).await;
            Ok(reply)
        }
        Ok(Err(e)) => Err(e.into()),
        Err(_) => {
            abandon(Rc::clone(worker), pool, backend, PinSet::default(), true).await;
            Err(Failure::TimedOut(limit_ms))
        }
    }
}

async fn exchange_plan(worker: &Worker, backend: &mut Backend, copy: &Mirrored) -> io::Result<Collected> {
    let text = [EXPLAIN, copy.text()].concat();
    let Some(execution) = &copy.execution else {
        let mut out = Vec::with_capacity(text.len() + 8);
        put_query(&mut out, &text, backend.core.caps);
        backend.start_exchange()?;
        backend.link.write_all(&out).await?;
        return backend.collect(ReplyKind::Results, false, &worker.buffers).await;
    };
    let id = match start_execution(worker, backend, &text, execution).await? {
        Ok(id) => id,
        Err(error) => return Ok(Collected { error: Some(error), ..Collected::default() }),
    };
    let reply = backend.collect(ReplyKind::Results, false, &worker.buffers).await?;
    backend.close_statements(&worker.counters, &[id]).await?;
    Ok(reply)
}

/// Asks a statement of the proxy's own where the copy runs, as its user and in its state.
///
/// # Errors
/// There was no answer within the time for a copy without a rule.
pub(crate) async fn ask(worker: &Rc<Worker>, copy: &Mirrored, sql: &str) -> Result<Collected, Failure> {
    let pool = worker.pool(copy.lane.hostgroup);
    let lane = pool.lane(worker, &copy.lane);
    let mut backend = ready_backend(worker, &pool, &lane, copy, &Search::ANY).await?;
    let limit_ms = run_limit_ms(None, lane.settings().default_query_timeout);
    match timeout(Duration::from_millis(limit_ms), backend.query(sql, &worker.buffers)).await {
        Ok(Ok(reply)) => {
            backend.settled();
            backend.core.asked(&reply);
            pool.release(worker, backend);
            Ok(reply)
        }
        Ok(Err(e)) => Err(e.into()),
        Err(_) => {
            abandon(Rc::clone(worker), pool, backend, PinSet::default(), true).await;
            Err(Failure::TimedOut(limit_ms))
        }
    }
}

/// A backend in the state of this session, for whoever runs its statements there.
///
/// # Errors
/// There is none, or the server refuses the state.
pub(crate) async fn ready(worker: &Rc<Worker>, session: &Mirrored) -> Result<Backend, Failure> {
    let pool = worker.pool(session.lane.hostgroup);
    let lane = pool.lane(worker, &session.lane);
    ready_backend(worker, &pool, &lane, session, &Search::ANY).await
}

/// Brings a backend, on which anything may have run, to the state of this session. False: it is of no use for that.
pub(crate) async fn ready_again(worker: &Worker, backend: &mut Backend, session: &Mirrored) -> bool {
    let limit = Duration::from_millis(worker.snapshot().vars.connect_timeout_server);
    backend.core.held.ran_unseen();
    // Whatever schema it is in, it is none that a session wants.
    backend.core.held.entered(Some(UNKNOWN_SCHEMA[..].into()));
    matches!(timeout(limit, bring_to(worker, backend, session)).await, Ok(Ok(Readied::Yes)))
}

/// How long a copy may run, ms: as its rule says, else as the settings say, but not for hours.
fn run_limit_ms(of_rule: Option<u32>, default_query_timeout: u64) -> u64 {
    match (of_rule, default_query_timeout) {
        (Some(ms), _) if ms > 0 => u64::from(ms),
        (_, 0) => MAX_RUN_MS,
        (_, ms) => ms.min(MAX_RUN_MS),
    }
}

/// Which backends will do for a copy.
struct Search<'a> {
    /// Nothing is sent to another server.
    may_use: &'a dyn Fn(&ServerShared) -> bool,
    /// When it ends, whatever other limits say.
    until: Option<Instant>,
}

impl Search<'_> {
    /// Of all servers, within the usual limits.
    const ANY: Search<'static> = Search { may_use: &|_| true, until: None };

    /// What is left of a limit that begins now.
    fn left(&self, limit: Duration) -> Duration {
        self.until.map_or(limit, |until| until.saturating_duration_since(Instant::now()).min(limit))
    }
}

/// A backend in the session's state.
async fn ready_backend(
    worker: &Rc<Worker>,
    pool: &Rc<HostgroupPool>,
    lane: &Rc<Lane>,
    copy: &Mirrored,
    search: &Search<'_>,
) -> Result<Backend, Failure> {
    let limit = Duration::from_millis(worker.snapshot().vars.connect_timeout_server);
    for _ in 0..MAX_BACKENDS {
        if search.left(limit).is_zero() {
            return Err(Failure::NoBackend("none was ready in time".into()));
        }
        let mut backend = obtain(worker, pool, lane, copy, search.left(limit)).await?;
        if !(search.may_use)(&backend.core.server) {
            pool.release(worker, backend);
            // Meanwhile a connection to another server may be made.
            tokio::time::sleep(BETWEEN_BACKENDS).await;
            continue;
        }
        match timeout(search.left(limit), bring_to(worker, &mut backend, copy)).await {
            Ok(Ok(Readied::Yes)) => return Ok(backend),
            Ok(Ok(Readied::Refused(error))) => return Err(Failure::State(error)),
            // Another one serves; this one is closed, and what runs on it is ended.
            Ok(Ok(Readied::No) | Err(_)) | Err(_) if backend.is_owed() => {
                tokio::task::spawn_local(abandon(Rc::clone(worker), Rc::clone(pool), backend, PinSet::default(), false));
            }
            Ok(Ok(Readied::No) | Err(_)) | Err(_) => {}
        }
    }
    Err(Failure::NoBackend("no server would do, or the proxy could restore the session's state on none".into()))
}

/// An idle backend, or a place in the queue for so long.
async fn obtain(
    worker: &Rc<Worker>,
    pool: &Rc<HostgroupPool>,
    lane: &Rc<Lane>,
    copy: &Mirrored,
    wait: Duration,
) -> Result<Backend, Failure> {
    if let Some(backend) = pool.try_acquire(worker, lane, &copy.state, Needs::default()) {
        return Ok(backend);
    }
    if !pool.servers().iter().any(|server| server.is_online()) {
        // Nobody waits for a server that is not there while others' copies could run.
        return Err(Failure::NoBackend(format!("hostgroup {} has no ONLINE server", copy.lane.hostgroup)));
    }
    let wait_us = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
    let deadline_us = worker.shared.clock.now_us().saturating_add(wait_us);
    let wish = Wish { collation: copy.collation, ..Wish::default() };
    let mut acquire = pool.enqueue(worker, lane, wish, worker.shared.clock.now_us(), deadline_us);
    let acquired = poll_fn(|cx| acquire.poll(cx)).await;
    acquired.map_err(|error| match error {
        AcquireError::Timeout { waited_ms, reason, .. } => Failure::NoBackend(format!("none after {waited_ms} ms: {reason}")),
        AcquireError::Refused(error) => Failure::Login(error.to_string()),
        AcquireError::Impossible(text) => Failure::Login(text),
    })
}

/// Whether a backend has the session's state now.
enum Readied {
    Yes,
    /// It never will.
    No,
    /// The server refused a step.
    Refused(ServerError),
}

async fn bring_to(worker: &Worker, backend: &mut Backend, copy: &Mirrored) -> io::Result<Readied> {
    let mut adapted = copy.is_guarded.then(|| guarded(&copy.state, &backend.core.info));
    if let Some((_, chosen)) = copy.chosen_in.filter(|(hostgroup, _)| *hostgroup == copy.lane.hostgroup) {
        chosen.leave_to(&backend.core.info, adapted.get_or_insert_with(|| copy.state.clone()));
    }
    if worker.shared.info.is(|info| info.family != backend.core.info.family) {
        adapt(adapted.get_or_insert_with(|| copy.state.clone()), &backend.core.info);
    }
    let want = adapted.as_ref().unwrap_or(&copy.state);
    for _ in 0..2 {
        match backend.core.diff_to(want) {
            Diff::Identical => return Ok(Readied::Yes),
            Diff::Reset { change_user } => {
                count(&worker.counters.resets);
                if reset(worker, backend, change_user).await.is_err() {
                    return Ok(Readied::No);
                }
            }
            Diff::Steps { schema, set, .. } => return steps(worker, backend, want, schema, set).await,
        }
    }
    Ok(Readied::No)
}

/// The state in which a server like this refuses writes with error 1792. `read_only` does not stop users with SUPER.
fn guarded(state: &State, info: &ServerInfo) -> State {
    let mut state = state.clone();
    state.variables.set(canonical("transaction_read_only", info.family), Some(b"ON"));
    state
}

async fn steps(
    worker: &Worker,
    backend: &mut Backend,
    want: &State,
    schema: Option<session_state::state::Text>,
    set: Option<String>,
) -> io::Result<Readied> {
    count(&worker.counters.state_syncs);
    if let Some(schema) = schema {
        count(&worker.counters.backend_init_dbs);
        if let Some(error) = backend.init_db(&schema, &worker.buffers).await?.error {
            return Ok(Readied::Refused(error));
        }
    }
    if let Some(set) = set {
        if let Some(error) = backend.query(&set, &worker.buffers).await?.error {
            return Ok(Readied::Refused(error));
        }
        backend.core.held.was_set(&set, want);
    }
    Ok(Readied::Yes)
}

/// The copy's packets. Attributes go to a server that has them.
fn packet(copy: &Mirrored, caps: Capabilities) -> Vec<u8> {
    let mut out = Vec::with_capacity(copy.body.len() + 8);
    if copy.start > 0 && caps.contains(Capabilities::QUERY_ATTRIBUTES) {
        put_command(&mut out, Command::Query, &copy.body)
    } else {
        put_query(&mut out, copy.text(), caps)
    }
    out
}

/// Prepares the copy's text, executes it as the client did, and closes it.
async fn execute(
    worker: &Worker,
    backend: &mut Backend,
    copy: &Mirrored,
    execution: &MirroredExecution,
    ear: &mut impl Ear,
) -> io::Result<Discarded> {
    let id = match start_execution(worker, backend, copy.text(), execution).await? {
        Ok(id) => id,
        Err(error) => return Ok(Discarded { error: Some(error), ..Discarded::default() }),
    };
    let reply = discard(backend, &worker.buffers, ear).await?;
    backend.close_statements(&worker.counters, &[id]).await?;
    Ok(reply)
}

/// Prepares a text and sends its execution; the statement's id, or why there is no execution.
async fn start_execution(
    worker: &Worker,
    backend: &mut Backend,
    text: &[u8],
    execution: &MirroredExecution,
) -> io::Result<Result<u32, ServerError>> {
    backend.send(Command::StmtPrepare, text).await?;
    let prepared = backend.collect(ReplyKind::Prepare, true, &worker.buffers).await?;
    if let Some(error) = prepared.error {
        return Ok(Err(error));
    }
    let ok = prepare_ok(&prepared.raw).ok_or_else(|| invalid("malformed answer to COM_STMT_PREPARE"))?;
    if ok.params != execution.params {
        let message =
            format!("the rewritten mirror statement has {} parameters, the client's statement has {}", ok.params, execution.params);
        backend.close_statements(&worker.counters, &[ok.stmt_id]).await?;
        return Ok(Err(ServerError { code: codes::WRONG_ARGUMENTS, sqlstate: *b"HY000", message: message.into() }));
    }
    let mut payload = execution.payload.clone();
    put_stmt_id(&mut payload, ok.stmt_id).and_then(|()| put_no_cursor(&mut payload)).map_err(invalid)?;
    backend.send(Command::StmtExecute, payload.get(1..).unwrap_or_default()).await?;
    Ok(Ok(ok.stmt_id))
}

/// Counts the copy with the statements of its hostgroup.
fn measure(worker: &Worker, copy: &Mirrored, backend: &Backend, reply: &Discarded, began_us: u64) {
    let time_us = worker.shared.clock.now_us().saturating_sub(began_us);
    let server = &backend.core.server;
    let (user, schema) = (&copy.lane.user.name, copy.state.schema.as_deref().unwrap_or_default());
    worker.meter.count(&Ended {
        analysis: &copy.analysis,
        sql: copy.text(),
        lex: copy.lex,
        hostgroup: Some(copy.lane.hostgroup),
        server: Some((server.key.hostgroup, server.index)),
        schema,
        user,
        client: copy.client,
        sums: Sums::one(time_us, reply.affected_rows, reply.rows, worker.clock.now_ms()),
    });
    if let Some(error) = &reply.error {
        let key = error_key(&server.key, user, schema, error.code);
        let text = shown_error(&error.message, copy.text(), copy.lex);
        worker.meter.count_error(key, copy.client, &text, worker.clock.now_ms());
    }
}

/// Gives the backend back without anything of the copy on it.
async fn clean(worker: &Rc<Worker>, pool: Rc<HostgroupPool>, mut backend: Backend, copy: &Mirrored, reply: &Discarded) {
    let changed = StatusFlags::IN_TRANS | StatusFlags::IN_TRANS_READONLY | StatusFlags::SESSION_STATE_CHANGED;
    // An error does not say whether it left a transaction open, and silence says nothing where sessions are not tracked.
    let leaves_nothing = !copy.is_guarded && plan::leaves_nothing(&copy.analysis);
    let is_clean = leaves_nothing && backend.core.held.tracks() && reply.error.is_none() && !reply.status.intersects(changed);
    if !is_clean {
        // MariaDB keeps roles over a reset.
        let may_have_set_one = plan::may_set_role(&copy.analysis) || reply.status.contains(StatusFlags::SESSION_STATE_CHANGED);
        if backend.core.info.flavor == Flavor::MariaDb && may_have_set_one {
            backend.core.held.ran_lasting();
        }
        return abandon(Rc::clone(worker), pool, backend, PinSet::default(), false).await;
    }
    backend.core.held.succeeded(reply.warnings);
    if reply.affected_rows > 0 {
        // An insert id may be there that no session asked for.
        backend.core.held.insert_id_changed_unseen();
    }
    pool.release(worker, backend);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bed::{self, info, snapshot};
    use model::HostgroupId;
    use session_state::chosen::Chosen;
    use session_state::class::{Class, LaneKey};
    use sql::LexMode;
    use std::io::{Read, Write};
    use std::sync::Arc;

    #[tokio::test]
    async fn a_counted_error_quotes_no_password() {
        let snapshot = snapshot(&[(0, "a")], "mysql_users = ( { username=\"u\" } )");
        let worker = bed::worker(Arc::clone(&snapshot));
        let user = Arc::clone(&snapshot.users["u"]);
        let key = LaneKey { hostgroup: HostgroupId(0), user, class: Class::of(Capabilities::default()) };
        let lane = worker.pool(HostgroupId(0)).lane(&worker, &key);
        let (backend, _far) = bed::backend(&worker, &lane, Flavor::MySql, "8.4.0");
        let counted = |code: u16, text: &str, message: &str| {
            let lex = LexMode::default();
            let copy = Mirrored {
                body: text.as_bytes().to_vec(),
                start: 0,
                execution: None,
                analysis: sql::analyze(text.as_bytes(), lex),
                lex,
                state: State::default(),
                lane: key.clone(),
                collation: 45,
                chosen_in: None,
                timeout_ms: None,
                client: None,
                is_guarded: false,
            };
            let error = ServerError { code, sqlstate: *b"42000", message: message.as_bytes().to_vec() };
            measure(&worker, &copy, &backend, &Discarded { error: Some(error), ..Discarded::default() }, 0);
            let errors = worker.meter.errors.borrow();
            let found = errors.rows().into_iter().find(|(key, _)| key.code == code).map(|(_, sums)| sums.text.to_vec());
            String::from_utf8(found.unwrap()).unwrap()
        };
        assert_eq!(counted(1054, "SELECT nonsense", "Unknown column 'nonsense'"), "Unknown column 'nonsense'");
        let shown = counted(1064, "ALTER USER u IDENTIFIED BY 'secret' x", "You have an error near 'secret' x' at line 1");
        assert!(shown.starts_with("You have an error near") && !shown.contains("secret"), "{shown}");
    }

    /// What a server of this version is told to bring a fresh connection to the state of a copy.
    async fn told(worker: &Rc<Worker>, copy: &Mirrored, version: &str) -> String {
        let lane = worker.pool(copy.lane.hostgroup).lane(worker, &copy.lane);
        let (mut backend, mut far) = bed::backend(worker, &lane, Flavor::MariaDb, version);
        let server = std::thread::spawn(move || {
            let mut header = [0; 4];
            far.read_exact(&mut header).unwrap();
            let mut command = vec![0; usize::from(header[0])];
            far.read_exact(&mut command).unwrap();
            far.write_all(b"\x07\0\0\x01\0\0\0\x02\0\0\0").unwrap();
            String::from_utf8(command.split_off(1)).unwrap()
        });
        assert!(matches!(bring_to(worker, &mut backend, copy).await, Ok(Readied::Yes)));
        server.join().unwrap()
    }

    /// The original is asked again in the state that the client has there.
    #[tokio::test]
    async fn only_the_shadow_chooses_collations() {
        let snapshot = snapshot(&[(0, "a"), (1, "b")], "mysql_users = ( { username=\"u\" } )");
        let worker = bed::worker(Arc::clone(&snapshot));
        let (original, shadow) = (HostgroupId(0), HostgroupId(1));
        let mut state = State::default();
        state.variables.set_names(wire::charset::by_name("utf8mb4_general_ci").unwrap());
        for (hostgroup, version, expected) in [
            (shadow, "11.8.6-MariaDB", "SET NAMES 'utf8mb4',@@session.transaction_read_only='ON'"),
            (original, "10.11.19-MariaDB", "SET NAMES 'utf8mb4' COLLATE 'utf8mb4_general_ci',@@session.tx_read_only='ON'"),
        ] {
            let user = Arc::clone(&snapshot.users["u"]);
            let copy = Mirrored {
                body: Vec::new(),
                start: 0,
                execution: None,
                analysis: sql::Analysis::NONE,
                lex: LexMode::default(),
                state: state.clone(),
                lane: LaneKey { hostgroup, user, class: Class::of(Capabilities::default()) },
                collation: 45,
                chosen_in: Some((shadow, Chosen::by_login(45))),
                timeout_ms: None,
                client: None,
                is_guarded: true,
            };
            assert_eq!(told(&worker, &copy, version).await, expected);
        }
    }

    #[test]
    fn a_guarded_statement_runs_in_read_only_transactions() {
        let state = guarded(&State::default(), &info(Flavor::MySql, "8.4.6"));
        assert_eq!(state.variables.get("transaction_read_only").map(|value| &**value), Some(&b"ON"[..]));
        let state = guarded(&State::default(), &info(Flavor::MariaDb, "10.11.8-MariaDB"));
        assert_eq!(state.variables.get("tx_read_only").map(|value| &**value), Some(&b"ON"[..]));
    }

    #[test]
    fn a_search_with_an_end_shortens_other_limits() {
        let limit = Duration::from_secs(10);
        assert_eq!(Search::ANY.left(limit), limit);
        let ends_in = |ms| Search { until: Some(Instant::now() + Duration::from_millis(ms)), ..Search::ANY };
        assert!(ends_in(5_000).left(limit) <= Duration::from_secs(5) && ends_in(0).left(limit).is_zero());
        assert_eq!(ends_in(60_000).left(limit), limit);
    }

    #[test]
    fn a_copy_runs_for_a_minute_at_most_unless_a_rule_says_so() {
        assert_eq!(run_limit_ms(None, 36_000_000), 60_000);
        assert_eq!(run_limit_ms(None, 0), 60_000);
        assert_eq!(run_limit_ms(Some(0), 500), 500);
        assert_eq!(run_limit_ms(Some(600_000), 500), 600_000);
    }
}
