//! `EXPLAIN ROUTE`: how a statement would go, for people. The same code as on the hot path, with a recorder.

use crate::hostgroups::hostgroup::HostgroupShared;
use crate::hostgroups::no_server_reason::no_server;
use crate::mirror::{self, MirrorWish};
use crate::servers::ramp;
use crate::servers::server::ServerShared;
use crate::workers::in_force::InForce;
use crate::workers::shared::Shared;
use cache::is_cacheable;
use meter::digest::Judged;
use model::HostgroupId;
use model::control::{RouteQuestion, RouteStep};
use model::listen::Listen;
use model::snapshot::User;
use routing::{Decider, Request, Route, SessionFacts, Side, Statement, Verdict};
use session_state::pins::PinReason;
use sql::{Analysis, Facts, Kind, LexMode};
use std::sync::Arc;

/// Collects what is told.
#[derive(Default)]
struct Steps(Vec<RouteStep>);

impl Steps {
    fn add(&mut self, step: impl Into<String>, outcome: impl Into<String>, detail: impl Into<String>) {
        self.0.push(RouteStep { step: step.into(), outcome: outcome.into(), detail: detail.into() });
    }
}

/// Answers the question with the configuration in force and the servers' state now.
pub(crate) fn explain(shared: &Shared, question: &RouteQuestion) -> Result<Vec<RouteStep>, String> {
    let in_force = shared.in_force.load_full();
    let user = find_user(&in_force, question.user.as_deref())?;
    let text = question.sql.as_bytes();
    let lex = LexMode { builtins: shared.builtins(), ..LexMode::default() };
    let analysis = sql::analyze_with(text, lex, in_force.digests.grouping());
    let digest = in_force.digests.digest(text, lex);
    let schema = question.schema.as_deref().unwrap_or_else(|| in_force.snapshot.default_schema(&user));
    let mut steps = Steps::default();
    steps.add("session", "assumed", format!("user {}, schema '{schema}', outside of a transaction, nothing pinned", user.name));
    let reached = Reached::of(&in_force.snapshot.listen, question.listener.as_deref())?;
    steps.add("listener", "assumed", reached.told.as_str());
    steps.add("digest", meter::digest::shown(digest.hash), String::from_utf8_lossy(&digest.text));
    steps.add("kind", format!("{:?}", analysis.kind), analysis.facts.names().collect::<Vec<_>>().join(", "));
    let obeys = user.attributes.comment_directives && analysis.facts.contains(Facts::COMMENT);
    let request = Request {
        user: user.name.as_bytes(),
        schema: schema.as_bytes(),
        client_addr: question.client_addr.as_deref(),
        proxy_addr: &reached.address,
        proxy_port: reached.port,
        digest_key: analysis.digest,
        digest: &Judged { digest: &digest, rules: &in_force.digests, sql: text, lex },
        text,
        flag_in: 0,
        comment: if obeys { sql::first_comment(text, lex) } else { None },
    };
    let statement = Statement { text, mode: lex, analysis };
    let mut explanation = in_force.rules.explain(&request, shared.clock.now_us());
    let precedes = routing::precedes_rules(&statement);
    if precedes {
        explanation.route = explanation.route.only_destination();
        steps.add("rules", "not asked", BEFORE_RULES);
    }
    for rule in explanation.rules.iter().filter(|_| !precedes) {
        steps.add(format!("rule {}", rule.rule_id), if rule.matched { "matched" } else { "no match" }, rule.why.as_str());
    }
    for misread in request.comment.into_iter().flat_map(routing::misread) {
        steps.add("comment", "not understood", misread);
    }
    if analysis.facts.contains(Facts::COMMENT) && !obeys {
        steps.add("comment", "not obeyed", "comment_directives is off in the user's attributes");
    }
    if !precedes {
        firewall(&in_force, &request, &explanation.route, digest.hash, &mut steps);
    }
    answers(&explanation.route, &mut steps);
    limits(&explanation.route, &mut steps);
    // What the server gets is judged.
    let sent = match &explanation.route.rewritten {
        Some(text) => Statement { text, mode: lex, analysis: sql::analyze(text, lex) },
        None => statement,
    };
    let hostgroup = destination(&in_force, &user, &explanation.route, &sent, &mut steps);
    for (reason, why) in would_pin(&analysis) {
        steps.add("pin", reason.name(), why);
    }
    cached(shared, &explanation.route, (&statement, &user), &mut steps);
    candidates(shared, &shared.hostgroup(hostgroup), "", &mut steps);
    if let Some(writer) = fallback(shared, &in_force, &user, &explanation.route, hostgroup, &mut steps) {
        candidates(shared, &shared.hostgroup(writer), "fallback ", &mut steps);
    }
    if let Some(hostgroup) = mirrored(&in_force, &user, &explanation.route, (&analysis, request), &mut steps) {
        candidates(shared, &shared.hostgroup(hostgroup), "mirror ", &mut steps);
    }
    Ok(steps.0)
}

/// What holds the statement up, or ends it early.
fn limits(route: &Route, steps: &mut Steps) {
    if let Some(ms) = route.delay_ms.filter(|ms| *ms > 0) {
        steps.add("delay", format!("{ms} ms"), "it waits before it is sent");
    }
    if let Some((rule, rate)) = route.pace {
        steps.add("delay", format!("{rate} per second"), format!("rule {rule} lets so many statements through; others wait"));
    }
    if let Some(ms) = route.timeout_ms.filter(|ms| *ms > 0) {
        steps.add("timeout", format!("{ms} ms"), "it is killed if it runs longer");
    }
}

/// Whether the query cache is asked, and for how long it keeps the result.
fn cached(shared: &Shared, route: &Route, (statement, user): (&Statement<'_>, &User), steps: &mut Steps) {
    let Some(ttl_ms) = route.cache_ttl_ms.filter(|ttl| *ttl > 0 && !is_answered(route)) else { return };
    if !shared.cache.is_on() {
        return steps.add("cache", "off", format!("cache_ttl is {ttl_ms} ms, but mysql-query_cache_size_MB is 0"));
    }
    let is_safe = routing::calls_are_safe(statement, &user.attributes.safe_functions);
    if !is_cacheable(&statement.analysis) || !is_safe {
        let why = "only a SELECT or SHOW is cached, and only if it locks nothing, calls nothing that is not in safe_functions, \
                   and depends on nothing that belongs to the session";
        return steps.add("cache", "not asked", why);
    }
    let empty = match route.cache_empty_result {
        Some(true) => ", an empty one too",
        Some(false) => ", an empty one is not kept",
        None => "",
    };
    steps.add("cache", "asked first", format!("a result is kept for {ttl_ms} ms{empty}; only on a miss is one of the servers below asked"));
}

/// Whether a rule answers in place of a server.
fn is_answered(route: &Route) -> bool {
    route.ok_msg.is_some() || route.error_msg.is_some()
}

/// Where a copy goes, if there is one.
fn mirrored(
    in_force: &InForce,
    user: &User,
    route: &Route,
    (analysis, request): (&Analysis, Request<'_>),
    steps: &mut Steps,
) -> Option<HostgroupId> {
    let wish = MirrorWish::of(route).filter(|_| !is_answered(route))?;
    if !mirror::is_copied(analysis) {
        steps.add("mirror", "no copy", "it is about the session or its transaction, or reads a file of the client");
        return None;
    }
    let mut of_copy = Route::default();
    if let Some(flag_in) = wish.flag {
        let explanation = in_force.rules.explain(&Request { flag_in, comment: None, ..request }, crate::workers::clock::unix_us());
        for rule in &explanation.rules {
            let outcome = if rule.matched { "matched" } else { "no match" };
            steps.add(format!("mirror rule {}", rule.rule_id), outcome, rule.why.as_str());
        }
        of_copy = explanation.route;
    }
    if is_answered(&of_copy) {
        steps.add("mirror", "no copy", "a rule for copies answers it with a message");
        return None;
    }
    let (hostgroup, why) = match (of_copy.destination_hostgroup, wish.hostgroup) {
        (Some(hostgroup), _) => (hostgroup, "destination_hostgroup of a rule for copies"),
        (None, Some(hostgroup)) => (hostgroup, "mirror_hostgroup"),
        (None, None) => (user.default_hostgroup, "the user's default_hostgroup"),
    };
    steps.add("mirror", hostgroup.to_string(), format!("a copy goes there as well ({why}); its result is dropped"));
    Some(hostgroup)
}

/// What becomes of a statement that is about the session only.
const BEFORE_RULES: &str = "a plain COMMIT, ROLLBACK, USE, SET NAMES or SET autocommit as text: rules and firewall do not judge it; \
                            where it needs a server, it is the one that they would send it to";

/// The address and port of the listener that a client reached, as rules see them: as it is configured, `0.0.0.0` too.
struct Reached {
    address: String,
    port: u16,
    told: String,
}

impl Reached {
    /// As `asked` says, or the first that clients can reach.
    fn of(listeners: &[Listen], asked: Option<&str>) -> Result<Self, String> {
        let Some(asked) = asked else { return Ok(Self::first_of(listeners)) };
        match Listen::parse_list(asked).as_deref() {
            Ok([listen]) if listeners.contains(listen) => Ok(Self::at(listen, "as asked")),
            Ok([listen]) => Ok(Self::at(listen, "as asked; mysql-interfaces has no such listener")),
            Ok(_) | Err(_) => Err(format!("'{asked}' is not a listener: write ip:port, [ipv6]:port or /path")),
        }
    }

    fn first_of(listeners: &[Listen]) -> Self {
        match listeners {
            [] => Self { address: String::new(), port: 0, told: "none is configured".to_owned() },
            [only] => Self::at(only, "the only one"),
            [first, others @ ..] => Self::at(first, &format!("the first of {}; ON 'address:port' names another", 1 + others.len())),
        }
    }

    fn at(listen: &Listen, why: &str) -> Self {
        let Listen::Tcp(address) = listen else {
            return Self { address: String::new(), port: 0, told: format!("{listen}, {why}") };
        };
        let told = format!("{address}, {why}");
        Self { address: address.ip().to_canonical().to_string(), port: address.port(), told }
    }
}

fn find_user(in_force: &InForce, name: Option<&str>) -> Result<Arc<User>, String> {
    let users = &in_force.snapshot.users;
    match name {
        Some(name) => users.get(name).cloned().ok_or_else(|| format!("there is no user '{name}' at runtime")),
        None => users.values().next().cloned().ok_or_else(|| "there are no users at runtime".to_owned()),
    }
}

fn firewall(in_force: &InForce, request: &Request<'_>, route: &Route, digest: u64, steps: &mut Steps) {
    if !in_force.snapshot.vars.firewall_whitelist_enabled {
        return;
    }
    let verdict = in_force.firewall.judge(request.user, request.client_addr, request.schema, route.final_flag, digest);
    let (outcome, detail) = match verdict {
        Verdict::Trusted => ("passes", "the user's mode is OFF"),
        Verdict::Listed => ("passes", "the digest is on the user's list"),
        Verdict::Detected => ("logged", "the digest is not on the user's list, and the mode is DETECTING"),
        Verdict::Blocked => ("blocked", "the digest is not on the user's list (error 1148)"),
    };
    steps.add("firewall", outcome, detail);
}

fn answers(route: &Route, steps: &mut Steps) {
    if let Some(text) = &route.rewritten {
        steps.add("rewritten", "sent instead", String::from_utf8_lossy(text));
    }
    if let Some(text) = &route.ok_msg {
        steps.add("answer", "OK", text.as_ref());
    } else if let Some(text) = &route.error_msg {
        steps.add("answer", "error 1148", text.as_ref());
    }
}

fn destination(in_force: &InForce, user: &User, route: &Route, statement: &Statement<'_>, steps: &mut Steps) -> HostgroupId {
    let named = match route.decider {
        Decider::Nobody => "the user's default_hostgroup: no rule names one".to_owned(),
        Decider::Rule(id) => format!("destination_hostgroup of rule {id}"),
        Decider::FastRouting => "mysql_query_rules_fast_routing".to_owned(),
        Decider::Comment => "the statement's comment".to_owned(),
    };
    let chosen = route.destination_hostgroup.unwrap_or(user.default_hostgroup);
    let Some(split) = routing::split_of(&in_force.snapshot, user, route) else {
        steps.add("hostgroup", chosen.to_string(), named);
        return chosen;
    };
    let (hostgroup, why) = match routing::side(statement, &SessionFacts::default(), &user.attributes.safe_functions) {
        Side::Reader => (split.reader, "read/write split: a read without side effects"),
        Side::Writer | Side::Stay => (split.writer, "read/write split: not certain to be a read without side effects"),
    };
    steps.add("hostgroup", hostgroup.to_string(), why);
    hostgroup
}

/// The writer's hostgroup, if a read of a split goes there because no reader takes work.
fn fallback(
    shared: &Shared,
    in_force: &InForce,
    user: &User,
    route: &Route,
    chosen: HostgroupId,
    steps: &mut Steps,
) -> Option<HostgroupId> {
    let now_ms = shared.clock.now_ms();
    let split = routing::split_of(&in_force.snapshot, user, route).filter(|split| split.reader == chosen)?;
    if !shared.hostgroup(chosen).lacks_servers(now_ms) {
        return None;
    }
    let ms = in_force.snapshot.effective(user, chosen).reads_to_writer_after_ms;
    if ms == 0 {
        steps.add("fallback", "none", "mysql-reads_to_writer_after_ms is 0: the read waits until a reader takes work");
        return None;
    }
    let detail =
        format!("no server of hostgroup {chosen} takes work: after {ms} ms (mysql-reads_to_writer_after_ms), reads go to the writer");
    steps.add("fallback", split.writer.to_string(), detail);
    Some(split.writer)
}

/// What the statement would keep its session on its backend for.
fn would_pin(analysis: &Analysis) -> Vec<(PinReason, &'static str)> {
    let by_kind = match analysis.kind {
        Kind::Begin => Some((PinReason::Transaction, "until COMMIT or ROLLBACK")),
        Kind::CreateTemporaryTable => Some((PinReason::TemporaryTable, "until the table is dropped")),
        Kind::LockTables => Some((PinReason::LockTables, "until UNLOCK TABLES")),
        Kind::Prepare => Some((PinReason::TextPrepare, "until DEALLOCATE PREPARE")),
        Kind::Handler => Some((PinReason::Handler, "until HANDLER ... CLOSE")),
        Kind::Xa => Some((PinReason::Xa, "until XA COMMIT or XA ROLLBACK")),
        _ => None,
    };
    let by_fact = [
        (Facts::GET_LOCK, PinReason::UserLock, "until RELEASE_LOCK()"),
        (Facts::CALC_FOUND_ROWS, PinReason::FoundRows, "until another statement has a result"),
        (
            Facts::UNKNOWN_FUNCTION,
            PinReason::StoredCode,
            "until the proxy has read the routine's body if the body leaves no state, otherwise until a reset",
        ),
        (Facts::TORN, PinReason::SessionState, "until a reset"),
        (Facts::USER_VARIABLE_ASSIGN, PinReason::UserVariable, "until the value is read while nothing else pins, or until a reset"),
    ];
    let facts = by_fact.into_iter().filter(|(fact, ..)| analysis.facts.contains(*fact)).map(|(_, reason, why)| (reason, why));
    by_kind.into_iter().chain(facts).collect()
}

/// The servers of a hostgroup. `of` stands before the name of each step.
fn candidates(shared: &Shared, hostgroup: &HostgroupShared, of: &str, steps: &mut Steps) {
    let now_ms = shared.clock.now_ms();
    let servers = hostgroup.servers();
    if servers.iter().all(|server| server.is_removed()) {
        let why = no_server(shared, hostgroup.id);
        steps.add(format!("{of}servers"), "none", format!("statements for hostgroup {} wait, then get error 9001: {why}", hostgroup.id));
    }
    if let Some(why) = hostgroup.crowd() {
        steps.add(format!("{of}servers"), "too many", format!("hostgroup {}: {why}", hostgroup.id));
    } else if hostgroup.is_held() {
        steps.add(format!("{of}servers"), "paused", format!("hostgroup {} is paused: statements wait", hostgroup.id));
    }
    for server in servers.iter().filter(|s| !s.is_removed() || s.connections() > 0) {
        let (outcome, why) = standing(server, now_ms);
        steps.add(format!("{of}server {}", server.key), outcome, why);
    }
}

fn standing(server: &ServerShared, now_ms: u64) -> (&'static str, String) {
    let weight = server.share.weight();
    let share = match server.share.at(now_ms) {
        now if now == ramp::whole(weight) => String::new(),
        now => format!(" (now {} % of it: the server returned recently)", now * 100 / ramp::whole(weight).max(1)),
    };
    let used = format!("weight {weight}{share}, {} of {} connections", server.connections(), server.room.max_connections());
    if server.is_removed() {
        return ("not used", "the server no longer serves this hostgroup".to_owned());
    }
    if !server.is_online() {
        let why = server.placement().why.clone();
        let why = if why.is_empty() { String::new() } else { format!(": {why}") };
        return ("not used", format!("status {}{why}", server.status().as_str()));
    }
    if server.standing.is_suspect(now_ms) {
        return ("no new statements", format!("the server refused a write and has not been probed since; {used}"));
    }
    if weight == 0 {
        return ("not used", "weight 0".to_owned());
    }
    if server.connects.are_backing_off(now_ms) {
        let error = server.connects.last_error().unwrap_or_default();
        return ("no new connections", format!("connecting fails, the proxy tries again soon: {error}; {used}"));
    }
    if server.room.is_full() {
        return ("no new connections", format!("max_connections is reached; {used}"));
    }
    if server.measurements.is_slow() {
        return ("only if all are slow", format!("the server's ping of {} us exceeds max_latency_ms; {used}", server.latency_us()));
    }
    ("candidate", used)
}
