//! START REHEARSAL: looks whether the shadow can be used, and begins.
//!
//! Every user that takes part logs in to the shadow once, on one worker, before anything is repeated.

use crate::copying::Copying;
use crate::mirror::{self, Failure, Mirrored};
use crate::stats::{ProxyStats, ran_before, settle_rehearsal};
use crate::workers::mailbox::Mail;
use crate::workers::shared::Shared;
use crate::workers::worker::Worker;
use model::HostgroupId;
use model::control::{Rehearsed, ShadowLook};
use model::fleet::{ShadowOrder, ShadowState};
use model::snapshot::{Rehearsal, RehearsalMode, Snapshot, User};
use rehearsal::{Run, ServerName};
use session_state::class::{Class, LaneKey};
use session_state::state::State;
use sql::{Analysis, LexMode};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use wire::codec::Reader;
use wire::flags::Capabilities;

/// How long all logins may take.
const WITHIN: Duration = Duration::from_secs(60);
/// How late the end of a rehearsal by its time may be noticed.
const NOTICED_WITHIN: Duration = Duration::from_secs(1);
/// Most users that log in for a try.
const MAX_USERS: usize = 100;
/// utf8mb4_general_ci, which every server has.
const COLLATION: u8 = 45;

/// What the servers said.
struct Probed {
    original: String,
    shadow: String,
    refused: Vec<(Box<str>, String)>,
}

/// What a rehearsal begins with, beside its row.
struct StartTerms {
    users: Vec<Arc<User>>,
    /// Addresses of the original's servers.
    original: Vec<String>,
    /// Address of the shadow.
    shadow: String,
    seconds: Option<u64>,
}

/// Begins a rehearsal, or (mode `all`) has everything ready for it, once it is known whether the shadow replicates. Never called from a
/// worker.
///
/// # Errors
/// There is no such row, it runs already, or its servers cannot be used.
pub(crate) fn begin(stats: &Arc<ProxyStats>, name: &str, seconds: Option<u64>) -> Result<Rehearsed, String> {
    let shared = &stats.shared;
    let snapshot = Arc::clone(&shared.in_force.load().snapshot);
    let plan = snapshot.rehearsals.iter().find(|row| *row.name == *name).ok_or_else(|| {
        format!("there is no rehearsal '{name}' at runtime: add it to mysql_rehearsals, then LOAD MYSQL QUERY RULES TO RUNTIME")
    })?;
    if !plan.is_active {
        return Err(format!("rehearsal '{name}' is not active (mysql_rehearsals.active=0)"));
    }
    let now_ms = shared.clock.now_ms();
    let is_taken = |run: &Arc<Run>| {
        let is_of_all = [run.plan.mode, plan.mode].contains(&RehearsalMode::All);
        is_of_all && run.plan.name != plan.name && run.plan.shadow == plan.shadow && run.ended_ms(now_ms).is_none()
    };
    if let Some(run) = shared.rehearsals.runs().into_iter().find(is_taken) {
        let (id, name) = (plan.shadow, &run.plan.name);
        return Err(format!("shadow_hostgroup {id} is in use by rehearsal '{name}': STOP REHEARSAL '{name}' ends it"));
    }
    if plan.mode == RehearsalMode::All {
        may_copy(shared, plan, &snapshot)?;
    }
    let users = users(plan, &snapshot)?;
    let original = online(shared, plan.source);
    if original.is_empty() {
        return Err(format!("source_hostgroup {} has no ONLINE server", plan.source));
    }
    let shadow = match &online(shared, plan.shadow)[..] {
        [one] => one.clone(),
        several => {
            let (id, count) = (plan.shadow, several.len());
            return Err(format!("shadow_hostgroup {id} has {count} ONLINE servers, and a rehearsal compares with exactly one"));
        }
    };
    if addresses(shared, plan.source).contains(&shadow) {
        return Err(format!("{shadow} is in source_hostgroup {} too: a rehearsal compares with another server", plan.source));
    }
    let terms = StartTerms { users, original, shadow, seconds };
    let (stats, plan, shadow) = (Arc::clone(stats), Arc::clone(plan), plan.shadow);
    let then = move |state| begin_with(&stats, &plan, terms, state);
    Ok(Rehearsed::Look(ShadowLook { shadow, then: Box::new(then) }))
}

/// The same, of which so much is known.
fn begin_with(stats: &Arc<ProxyStats>, plan: &Arc<Rehearsal>, terms: StartTerms, state: ShadowState) -> Result<Rehearsed, String> {
    let StartTerms { users, original, shadow, seconds } = terms;
    let (replication, warning) = match state {
        ShadowState::Left(seen) => return Err(format!("{seen}. It has writes of its own since, so no rehearsal can use it")),
        // START ends its replication.
        _ if plan.mode == RehearsalMode::All => (String::new(), String::new()),
        ShadowState::Replicates => (String::new(), String::new()),
        ShadowState::Alone(words) => (words.clone(), format!("; WARNING: {words}")),
        ShadowState::Unknown(why) => (format!("not known: {why}"), String::new()),
    };
    let probed = probe(&stats.shared, plan, users)??;
    let refused = probed.refused.len();
    let servers =
        [(original.join(", "), probed.original), (shadow, probed.shadow)].map(|(address, version)| ServerName { address, version });
    let (stats, plan, mode) = (Arc::clone(stats), Arc::clone(plan), plan.mode);
    let (source, shadow) = (plan.source, plan.shadow);
    let start = move || {
        let shared = &stats.shared;
        let now = (shared.clock.now_ms(), crate::workers::clock::unix_us() / 1_000_000);
        if let Some(last) = shared.rehearsals.run(&plan.name) {
            settle_rehearsal(&stats, &last);
        }
        let before = ran_before(&stats, &plan);
        let mut run = Run::new(plan, servers, now, seconds).with_before(before);
        run.replication = replication;
        note_refused(&run, probed.refused);
        // Under the desk's lock, so that sessions which see the run find its strands too.
        let run = shared.rehearsals.start_with(run, now.0, |run| {
            if mode == RehearsalMode::All {
                shared.copying.store(Some(Copying::new(Arc::clone(run))));
            }
        })?;
        if seconds.is_some() {
            settle_in_time(&stats, &run);
        }
        let text = format!("rehearsal '{}' compares {} with {}{warning}", run.plan.name, shown(&run.original), shown(&run.shadow));
        let error = run.findings().error.clone();
        Ok(if refused == 0 { text } else { format!("{text}; WARNING: {refused} of the users cannot log in there: {error}") })
    };
    match mode {
        RehearsalMode::Reads => start().map(Rehearsed::Done),
        RehearsalMode::All => Ok(Rehearsed::Detach(ShadowOrder { source, shadow, begin: Box::new(start) })),
    }
}

/// Whether sessions of this row can be copied whole now.
fn may_copy(shared: &Shared, plan: &Rehearsal, snapshot: &Snapshot) -> Result<(), String> {
    let now_ms = shared.clock.now_ms();
    let running = shared.rehearsals.runs().into_iter().find(|run| {
        let is_of_name = run.plan.name == plan.name || run.plan.mode == RehearsalMode::All;
        is_of_name && run.ended_ms(now_ms).is_none()
    });
    if let Some(run) = running {
        let name = &run.plan.name;
        return Err(format!("rehearsal '{name}' already runs, and one in mode 'all' runs at a time: STOP REHEARSAL '{name}' ends it"));
    }
    let is_passed = |user: &&Arc<User>| user.fast_forward && user.default_hostgroup == plan.source && plan.is_for_user(&user.name);
    match snapshot.users.values().find(is_passed) {
        Some(user) => Err(format!("sessions of user '{}' have fast_forward=1 and cannot be copied", user.name)),
        None => Ok(()),
    }
}

/// Has the verdict of a run settled when its time is over, also if nobody looks. Workers cannot ask each other for the statistics.
fn settle_in_time(stats: &Arc<ProxyStats>, run: &Arc<Run>) {
    let (stats, run) = (Arc::downgrade(stats), Arc::downgrade(run));
    let wait = move || {
        while let (Some(stats), Some(run)) = (stats.upgrade(), run.upgrade()) {
            if settle_rehearsal(&stats, &run).is_some() {
                return;
            }
            drop((stats, run));
            std::thread::sleep(NOTICED_WITHIN);
        }
    };
    if let Err(e) = std::thread::Builder::new().name("rehearsal".to_owned()).spawn(wait) {
        tracing::warn!("the verdict of the rehearsal settles at the first SHOW REHEARSAL after its end: cannot start a thread: {e}");
    }
}

fn note_refused(run: &Run, refused: Vec<(Box<str>, String)>) {
    let mut findings = run.findings();
    if let Some((user, text)) = refused.first() {
        findings.error = format!("user '{user}' cannot log in to the shadow: {text}");
    }
    findings.refused.extend(refused);
}

/// A server as messages name it.
fn shown(server: &ServerName) -> String {
    format!("{} ({})", server.address, server.version)
}

/// The users that take part.
fn users(plan: &Rehearsal, snapshot: &Snapshot) -> Result<Vec<Arc<User>>, String> {
    if let Some(unknown) = plan.users.iter().find(|name| !snapshot.users.contains_key(*name)) {
        return Err(format!("user '{unknown}' of rehearsal '{}' is not in mysql_users at runtime", plan.name));
    }
    let all = snapshot.users.values().filter(|user| !user.fast_forward && plan.is_for_user(&user.name));
    let users: Vec<Arc<User>> = all.take(MAX_USERS).cloned().collect();
    if users.is_empty() {
        return Err("no user in mysql_users at runtime takes part; sessions with fast_forward=1 cannot".to_owned());
    }
    Ok(users)
}

/// Every server of a hostgroup, whatever its status.
fn addresses(shared: &Shared, hostgroup: HostgroupId) -> Vec<String> {
    let servers = shared.hostgroup(hostgroup).servers();
    servers.iter().filter(|server| !server.is_removed()).map(|server| server.key.addr().to_string()).collect()
}

fn online(shared: &Shared, hostgroup: HostgroupId) -> Vec<String> {
    let servers = shared.hostgroup(hostgroup).servers();
    let online = servers.iter().filter(|server| server.is_online() && !server.is_removed());
    online.map(|server| server.key.addr().to_string()).collect()
}

fn probe(shared: &Arc<Shared>, plan: &Arc<Rehearsal>, users: Vec<Arc<User>>) -> Result<Result<Probed, String>, String> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let plan = Arc::clone(plan);
    let question = move |worker: &Rc<Worker>| {
        let worker = Rc::clone(worker);
        tokio::task::spawn_local(async move {
            // Nobody may wait for it any more.
            let _ = sender.try_send(ask_servers(&worker, &plan, users).await);
        });
    };
    shared.mailboxes.first().ok_or("there is no worker")?.send(Mail::Ask(Box::new(question)));
    receiver.recv_timeout(WITHIN).map_err(|_| format!("the servers did not answer within {} s", WITHIN.as_secs()))
}

async fn ask_servers(worker: &Rc<Worker>, plan: &Rehearsal, users: Vec<Arc<User>>) -> Result<Probed, String> {
    let (mut version, mut refused) = (None, Vec::new());
    for user in &users {
        match ask(worker, user, plan.shadow, "SELECT VERSION(), @@GLOBAL.read_only").await {
            Ok(row) => {
                let [found, read_only] = &row[..] else { return Err("the shadow did not tell its version and read_only".to_owned()) };
                if matches!(read_only.to_ascii_uppercase().as_str(), "0" | "OFF") {
                    return Err(format!(
                        "the server of shadow_hostgroup {} has read_only=0 and may be a writer: SET GLOBAL read_only=1 there first",
                        plan.shadow
                    ));
                }
                version.get_or_insert_with(|| (Arc::clone(user), found.clone()));
            }
            Err(Failure::Login(text)) => refused.push((user.name.clone(), text)),
            Err(failure) => return Err(format!("the server of shadow_hostgroup {} cannot be asked: {failure}", plan.shadow)),
        }
    }
    let Some((user, shadow)) = version else {
        let first = refused.first().map(|(user, text)| format!("user '{user}': {text}")).unwrap_or_default();
        return Err(format!("no user can log in to the server of shadow_hostgroup {}: {first}", plan.shadow));
    };
    let original = ask(worker, &user, plan.source, "SELECT VERSION()").await;
    let original = original.map_err(|failure| format!("source_hostgroup {} cannot be asked: {failure}", plan.source))?;
    Ok(Probed { original: original.into_iter().next().unwrap_or_default(), shadow, refused })
}

/// The values of the first row.
async fn ask(worker: &Rc<Worker>, user: &Arc<User>, hostgroup: HostgroupId, sql: &str) -> Result<Vec<String>, Failure> {
    let question = Mirrored {
        body: Vec::new(),
        start: 0,
        execution: None,
        analysis: Analysis::NONE,
        lex: LexMode::default(),
        state: State::default(),
        lane: LaneKey { hostgroup, user: Arc::clone(user), class: Class::of(Capabilities::default()) },
        collation: COLLATION,
        chosen_in: None,
        timeout_ms: None,
        client: None,
        is_guarded: true,
    };
    let reply = mirror::ask(worker, &question, sql).await?;
    if let Some(error) = reply.error {
        return Err(Failure::NoBackend(error.to_string()));
    }
    let mut values = Reader::new(reply.rows.first().map_or(&[][..], |row| row));
    let mut row = Vec::new();
    while let Ok(value) = values.lenenc_bytes() {
        row.push(String::from_utf8_lossy(value).into_owned());
    }
    Ok(row)
}
