//! Where a session left something that cannot be carried. A pin keeps a connection, not statements: what a rule or a read/write split
//! sends to another hostgroup goes there, and what was left behind waits for those that come back. One connection is kept for each
//! hostgroup. A transaction and its like stay in one place until they end.

use super::assigned_gtid::{is_plain, plain_words};
use super::door::ServerDoor;
use super::frontend::Frontend;
use super::guard::guarded;
use super::route::{Router, StatementText};
use super::take_up::take_up_any;
use crate::backends::backend::{self, Backend, BackendRecord, Numbers};
use crate::backends::{cleaning, connect};
use crate::clients::session_handle::{Leaving, PinnedElsewhere, SessionHandle};
use crate::hostgroups::lane::Lane;
use crate::hostgroups::pool::HostgroupPool;
use crate::hostgroups::replays::Replaying;
use crate::net::stream::DetachedSocket;
use crate::statements::memory::AnswerSource;
use crate::statements::stmt_cache::Apart;
use crate::workers::in_force::InForce;
use crate::workers::worker::Worker;
use model::HostgroupId;
use model::snapshot::User;
use serde::{Deserialize, Serialize};
use session_state::class::{Class, LaneKey};
use session_state::door::Asker;
use session_state::door::Door;
use session_state::pins::{PinReason, PinSet, Pins, UNSEEN, WISHES};
use session_state::server_info::ServerInfo;
use session_state::wants::Wants;
use sql::{Analysis, Facts, Kind, LexMode};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use wire::charset::Flavor;
use wire::flags::{Capabilities, StatusFlags};

/// Pins under which every statement goes where the session is: what runs elsewhere would be outside of the transaction, or not see
/// what is locked; and what is bound to one command after another.
pub(super) const BOUND: PinSet = PinSet::of(&[
    PinReason::Transaction,
    PinReason::Savepoint,
    PinReason::NextTransaction,
    PinReason::Xa,
    PinReason::LockTables,
    PinReason::LongData,
    PinReason::Replication,
]);

/// A transaction.
const OPEN: PinSet = PinSet::of(&[PinReason::Transaction, PinReason::Savepoint]);

/// What begins a transaction that may write, whatever was open.
const WRITES: &[&str] = &[
    "START TRANSACTION READ WRITE",
    "START TRANSACTION READ WRITE, WITH CONSISTENT SNAPSHOT",
    "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ WRITE",
];
/// The same on MariaDB; on MySQL these leave a transaction READ ONLY.
const BEGINS: &[&str] = &["BEGIN", "BEGIN WORK", "START TRANSACTION", "START TRANSACTION WITH CONSISTENT SNAPSHOT"];

/// Pins that end when the session goes elsewhere: wishes, and what is asked for before it goes.
const ENDS: PinSet = PinSet::of(&[PinReason::AutoIncrementDelay, PinReason::AutocommitOff, PinReason::FoundRows]);

/// Where a session works, what keeps it there, and what it left elsewhere.
pub(super) struct Backends {
    pub worker: Rc<Worker>,
    pub handle: Rc<SessionHandle>,
    pub user: Arc<User>,
    /// The connection that it holds.
    pub backend: Option<Backend>,
    /// The hostgroup of the statement at hand, or of the last one.
    pub pool: Rc<HostgroupPool>,
    /// Where its connections come from; changes with the user and with COM_SET_OPTION.
    pub lane: Rc<Lane>,
    /// What keeps it on the connection.
    pub pins: Pins,
    /// What it left in other hostgroups.
    pub places: Option<Box<Places>>,
    /// Its place in the line of those that replay a lost transaction in this hostgroup, while it does.
    pub replaying: Option<Replaying>,
    /// The hostgroup used before this one: sessions go back and forth between two.
    pub before: Option<Box<(Rc<HostgroupPool>, Rc<Lane>)>>,
}

/// What a session left in other hostgroups than the one where it is.
#[derive(Default)]
pub(super) struct Places(Vec<Place>);

pub(super) struct Place {
    pool: Rc<HostgroupPool>,
    /// None when it was lost.
    backend: Option<Backend>,
    pins: Pins,
}

/// A place for another process.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlaceRecord {
    hostgroup: HostgroupId,
    backend: Option<BackendRecord>,
    pins: Pins,
}

impl Places {
    /// What another process needs of them; the sockets follow the others. None where one cannot go.
    pub(super) fn records(&self, sockets: &mut Vec<DetachedSocket>) -> Option<Vec<PlaceRecord>> {
        let mut records = Vec::new();
        for Place { pool, backend, pins } in &self.0 {
            let backend = backend::record(backend.as_ref(), sockets)?;
            records.push(PlaceRecord { hostgroup: pool.shared.id, backend, pins: pins.clone() });
        }
        Some(records)
    }

    /// Those of another process; None for none.
    pub(super) fn of(mut places: Vec<Place>, adapt: impl Fn(&mut Pins)) -> Option<Box<Self>> {
        places.iter_mut().for_each(|place| adapt(&mut place.pins));
        (!places.is_empty()).then(|| Box::new(Self(places)))
    }

    pub(super) fn backends_mut(&mut self) -> impl Iterator<Item = &mut Backend> {
        self.0.iter_mut().filter_map(|place| place.backend.as_mut())
    }

    pub(super) fn pins_mut(&mut self) -> impl Iterator<Item = &mut Pins> {
        self.0.iter_mut().map(|place| &mut place.pins)
    }

    /// What was left in this hostgroup is there no more.
    fn take(places: &mut Option<Box<Self>>, hostgroup: HostgroupId) -> Option<Place> {
        let all = &mut places.as_mut()?.0;
        let found = all.iter().position(|place| place.pool.shared.id == hostgroup);
        let place = found.map(|at| all.swap_remove(at));
        if all.is_empty() {
            *places = None;
        }
        place
    }

    /// Others see what is left elsewhere.
    pub(super) fn publish(places: Option<&Self>, handle: &SessionHandle) {
        if places.is_none() && handle.elsewhere.borrow().is_empty() {
            return;
        }
        let shown = |place: &Place| {
            let (first, later) = place.pins.began();
            let began = first.into_iter().chain(later.iter().copied()).collect();
            PinnedElsewhere { hostgroup: place.pool.shared.id, pins: place.pins.set(), began }
        };
        *handle.elsewhere.borrow_mut() = places.into_iter().flat_map(|places| &places.0).map(shown).collect();
    }

    /// What was left elsewhere is cleaned up or closed, in the background.
    pub(super) fn abandon(self, worker: &Rc<Worker>) {
        self.cleaning(worker).for_each(drop);
    }

    /// The same, waited for as long as a reset may take: locks are free before the client hears that they are.
    pub(super) async fn clean(self, worker: &Rc<Worker>) {
        let until = Instant::now() + Duration::from_millis(worker.snapshot().vars.connect_timeout_server);
        let all: Vec<_> = self.cleaning(worker).collect();
        for cleaning in all {
            let _ = tokio::time::timeout_at(until, cleaning).await;
        }
    }

    fn cleaning(self, worker: &Rc<Worker>) -> impl Iterator<Item = JoinHandle<()>> {
        let left = self.0.into_iter().filter_map(|Place { pool, backend, pins }| Some((pool, backend?, pins.set())));
        left.map(|(pool, backend, pins)| tokio::task::spawn_local(cleaning::abandon(Rc::clone(worker), pool, backend, pins, false)))
    }

    /// What was left elsewhere is of a session of this class from here on, as COM_SET_OPTION has it. What does not follow is lost.
    pub(super) async fn become_of(&mut self, class: Class, worker: &Worker) {
        let limit = Duration::from_millis(worker.snapshot().vars.connect_timeout_server);
        let several = class.capabilities().contains(Capabilities::MULTI_STATEMENTS);
        for place in &mut self.0 {
            let Some(mut backend) = place.backend.take() else { continue };
            if let Ok(Ok(())) = tokio::time::timeout(limit, connect::allow_several(worker, &mut backend, several)).await {
                backend.core.lane.class = class;
                place.backend = Some(backend);
            }
        }
    }

    /// Servers are placed anew: what was left on those that are not to be used is given up when its time there is over.
    pub(super) fn look_after(&mut self, handle: &SessionHandle, now_ms: u64) {
        for place in &mut self.0 {
            let Some(backend) = &place.backend else { continue };
            let (server, pins) = (&backend.core.server, place.pins.set());
            if server.is_cut() || server.standing.leave_at_ms_with(pins) <= now_ms {
                place.backend = None
            } else {
                handle.leave_by(handle.leave_at_ms().min(server.standing.disturb_at_ms(pins, now_ms)), Leaving::Demoted, now_ms)
            }
        }
    }
}

impl PlaceRecord {
    /// The place on this worker, with the next of the sockets.
    pub(super) fn attach(
        self,
        worker: &Rc<Worker>,
        user: &Arc<User>,
        next: &mut impl FnMut() -> Result<DetachedSocket, String>,
        numbers: &mut Numbers,
    ) -> Result<Place, String> {
        let Self { hostgroup, backend, pins } = self;
        let backend = take_up_any(backend, worker, user, next, numbers)?;
        Ok(Place { pool: worker.pool(hostgroup), backend, pins })
    }
}

impl Frontend {
    /// Whether this BEGIN ends a transaction that only reads, and begins one that may write, and the backend has nothing else of the
    /// session. A server that does not understand it would end nothing, so it is one that all understand.
    pub(super) fn may_leave_what_was_read(&self, at: &Backends, wants: &Wants, begin: &[u8]) -> bool {
        let has_only_read = self.status.contains(StatusFlags::IN_TRANS_READONLY) && at.pins.set().without(OPEN).without(WISHES).is_empty();
        let may_write = |words: &str| {
            // Under sql_mode ORACLE some of them begin a block.
            is_plain(words, WRITES) || at.is_on(Flavor::MariaDb) && !wants.lex.oracle && is_plain(words, BEGINS)
        };
        has_only_read && may_write(&plain_words(begin))
    }
}

impl ServerDoor<'_> {
    /// What the session has to know itself, as soon as it is elsewhere.
    pub(super) async fn read_before_leaving(&mut self) {
        self.read_or_lose().await;
        self.facts.lose_row_count();
    }

    async fn change_places(&mut self, hostgroup: HostgroupId) {
        if self.at.pins.set().intersects(BOUND) {
            return;
        }
        if !self.at.pins.set().is_empty() {
            self.read_before_leaving().await;
            if self.at.pins.set().contains(PinReason::Transaction) {
                // As was seen now.
                return;
            }
            let Asker { at, facts, .. } = &mut self.0;
            facts.end_insert_delay(&mut at.pins);
            ENDS.iter().for_each(|reason| self.at.pins.end(reason));
        }
        if !self.at.pins.set().is_empty() {
            let place = Place { pool: Rc::clone(&self.at.pool), backend: self.at.backend.take(), pins: std::mem::take(&mut self.at.pins) };
            self.at.places.get_or_insert_default().0.push(place);
        }
        self.at.go_to(hostgroup);
    }

    /// The next statement goes to `hostgroup`.
    pub(super) async fn travel(&mut self, hostgroup: HostgroupId) {
        if self.at.pool.shared.id != hostgroup && self.at.is_pinned() {
            Box::pin(self.change_places(hostgroup)).await
        } else {
            self.at.go_to(hostgroup)
        }
    }
}

impl Router<'_> {
    /// Where a statement goes that is meant for `hostgroup`: to what it names, if the session left that elsewhere, and not there; and
    /// what is for the readers of a cluster to its writer, if the session left something there.
    pub(super) fn drawn_to(&self, in_force: &InForce, asked: StatementText<'_>, hostgroup: HostgroupId) -> HostgroupId {
        let Self { at, wants, .. } = self;
        if !at.is_pinned() {
            return hostgroup;
        }
        let schema = wants.state.schema.as_deref();
        let mut naming = at.all_places().filter(|(_, pins)| is_named(pins, asked, wants.lex, schema)).map(|(id, _)| id);
        let first = naming.next();
        let named = if naming.any(|id| id == hostgroup) { Some(hostgroup) } else { first };
        let writes_for = |writer| in_force.snapshot.roles.iter().any(|group| group.writer == writer && group.is_beside_writer(hostgroup));
        let is_left = |pins: &Pins| !pins.set().without(WISHES).is_empty();
        let writer = || at.all_places().find(|(id, pins)| is_left(pins) && writes_for(*id)).map(|(id, _)| id);
        named.or_else(writer).unwrap_or(hostgroup)
    }

    /// Whether a statement names what is kept where the session is, or uses user variables whose values only that backend may know.
    pub(super) fn names_what_is_kept(&self, asked: StatementText<'_>) -> bool {
        let (pins, facts) = (&self.at.pins, asked.analysis.facts);
        pins.set().intersects(UNSEEN) && facts.intersects(Facts::USER_VARIABLE | Facts::USER_VARIABLE_ASSIGN)
            || is_named(pins, asked, self.wants.lex, self.wants.state.schema.as_deref())
    }
}

impl Backends {
    /// Those of a session that works in this hostgroup, and holds nothing yet.
    pub(super) fn new(
        worker: &Rc<Worker>,
        handle: &Rc<SessionHandle>,
        user: Arc<User>,
        hostgroup: HostgroupId,
        caps: Capabilities,
    ) -> Self {
        let pool = worker.pool(hostgroup);
        Self {
            worker: Rc::clone(worker),
            handle: Rc::clone(handle),
            backend: None,
            lane: lane_of(worker, &pool, &user, Class::of(caps)),
            user,
            pool,
            pins: Pins::default(),
            places: None,
            replaying: None,
            before: None,
        }
    }

    /// The lane that its backends come from follows its user and its client's capabilities.
    pub(super) fn choose_lane(&mut self, caps: Capabilities) {
        self.lane = lane_of(&self.worker, &self.pool, &self.user, Class::of(caps));
        self.before = None;
    }

    /// The next statement goes to `hostgroup`, unless a pin keeps the session where it is.
    pub(super) fn go_to(&mut self, hostgroup: HostgroupId) {
        if self.pool.shared.id == hostgroup || !self.pins.set().is_empty() {
            return;
        }
        // It may be held for a moment more (connection_delay_multiplex_ms).
        self.give_back();
        if let Some(before) = self.before.as_mut().filter(|b| b.0.shared.id == hostgroup) {
            std::mem::swap(&mut self.pool, &mut before.0);
            std::mem::swap(&mut self.lane, &mut before.1);
        } else {
            let pool = self.worker.pool(hostgroup);
            let lane = lane_of(&self.worker, &pool, &self.user, self.lane.key.class);
            let before = (std::mem::replace(&mut self.pool, pool), std::mem::replace(&mut self.lane, lane));
            self.before = Some(Box::new(before));
        }
        if self.places.is_some() {
            // What it left there is at hand again.
            if let Some(place) = Places::take(&mut self.places, hostgroup) {
                (self.pins, self.backend) = (place.pins, place.backend);
            }
            self.handle.row.held.set(self.backend.as_ref().map(Backend::shown));
        }
    }

    /// Whether it keeps a backend, here or elsewhere.
    pub(super) fn is_pinned(&self) -> bool {
        !self.pins.set().is_empty() || self.places.is_some()
    }

    /// All its pins, wherever.
    pub(super) fn all_pins(&self) -> PinSet {
        let here = self.pins.set();
        self.places.iter().flat_map(|places| &places.0).fold(here, |all, place| all.union(place.pins.set()))
    }

    /// Its pins in a hostgroup.
    pub(super) fn pins_in(&self, hostgroup: HostgroupId) -> PinSet {
        self.all_places().find(|(id, _)| *id == hostgroup).map_or_else(PinSet::default, |(_, pins)| pins.set())
    }

    pub(super) fn all_places(&self) -> impl Iterator<Item = (HostgroupId, &Pins)> {
        let elsewhere = self.places.iter().flat_map(|places| &places.0).map(|place| (place.pool.shared.id, &place.pins));
        std::iter::once((self.pool.shared.id, &self.pins)).chain(elsewhere)
    }

    /// Nothing is open here that a read would be part of.
    pub(super) fn may_read_alone(&self) -> bool {
        let set = self.pins.set();
        !set.intersects(BOUND) && !set.contains(PinReason::AutocommitOff) && !self.lane.settings().autocommit_false_is_transaction
    }

    /// A cursor that the session left in another hostgroup is over, and its statement of that backend; `is_last` when there is none
    /// left there.
    pub(super) async fn end_cursor_elsewhere(&mut self, hostgroup: HostgroupId, statement: Option<Apart>, is_last: bool) {
        let Some(mut place) = Places::take(&mut self.places, hostgroup) else { return };
        if is_last {
            place.pins.end(PinReason::Cursor);
        }
        let gone = place.backend.as_mut().zip(statement).and_then(|(backend, apart)| backend.core.statements.remove_apart(apart));
        if let Some((backend, gone)) = place.backend.as_mut().zip(gone)
            && guarded(&self.worker, &self.handle, backend.close_statements(&self.worker.counters, &[gone])).await.is_err()
        {
            place.backend = None;
        }
        if !place.pins.set().is_empty() {
            self.places.get_or_insert_default().0.push(place);
        } else if let Some(backend) = place.backend {
            tokio::task::spawn_local(cleaning::abandon(Rc::clone(&self.worker), place.pool, backend, PinSet::default(), false));
        }
        Places::publish(self.places.as_deref(), &self.handle);
    }

    pub(super) fn pin(&mut self, reason: PinReason, analysis: &Analysis) {
        let now = self.worker.clock.now_ms();
        self.pins.begin(reason, now, analysis.digest);
    }

    /// What was left behind is not known; with `role`, it may be a role.
    pub(super) fn pin_unknown(&mut self, role: bool, analysis: &Analysis) {
        self.pin(PinReason::SessionState, analysis);
        if role {
            self.pin(PinReason::Role, analysis);
        }
    }

    /// Gives an unpinned backend back to the pool.
    pub(super) fn give_back(&mut self) {
        if self.pins.set().is_empty() {
            self.give_up_backend();
        }
    }

    /// The backend at hand goes back to the pool, which keeps it only if its server is used: another one is to serve, or what pins the
    /// session is gone with another one. It is reset first where it must; one that owes an answer is ended.
    pub(super) fn give_up_backend(&mut self) {
        let Some(backend) = self.backend.take() else { return };
        if !backend.core.held.must_reset() && !backend.is_owed() {
            return self.pool.release_to(&self.worker, &self.lane, backend);
        }
        let (worker, pool) = (Rc::clone(&self.worker), Rc::clone(&self.pool));
        tokio::task::spawn_local(cleaning::abandon(worker, pool, backend, PinSet::default(), false));
    }

    /// Where what servers say to this session holds, all of them being of this version.
    pub(super) fn place<'a>(&'a self, info: &'a ServerInfo) -> AnswerSource<'a> {
        let (hostgroup, class) = (self.pool.shared.id, self.lane.key.class);
        AnswerSource { hostgroup, server: None, version: &info.version, user: &self.user.name, class, session: self.with_own_rights() }
    }

    /// The session's number, where it may do other things than the user's other sessions.
    pub(super) fn with_own_rights(&self) -> Option<u64> {
        Some(self.handle.id).filter(|_| self.pins.set().contains(PinReason::Role))
    }
}

/// The lane of a pool for the sessions of this user of this class.
fn lane_of(worker: &Worker, pool: &HostgroupPool, user: &Arc<User>, class: Class) -> Rc<Lane> {
    pool.lane(worker, &LaneKey { hostgroup: pool.shared.id, user: Arc::clone(user), class })
}

/// Whether a statement names what these pins keep: it can only mean that.
fn is_named(pins: &Pins, asked: StatementText<'_>, mode: LexMode, schema: Option<&[u8]>) -> bool {
    let (StatementText { text, analysis, .. }, set) = (asked, pins.set());
    let kept = |reason, names: bool| names && set.contains(reason);
    kept(PinReason::UserLock, analysis.facts.intersects(Facts::GET_LOCK | Facts::RELEASE_LOCK))
        || set.contains(PinReason::TextPrepare)
            && matches!(analysis.kind, Kind::Execute | Kind::Deallocate)
            && sql::prepared_name(text, mode).is_some_and(|name| pins.has_statement(&name))
        || kept(PinReason::Handler, analysis.kind == Kind::Handler)
        || set.contains(PinReason::TemporaryTable) && names_table(pins, text, mode, schema)
}

fn names_table(pins: &Pins, text: &[u8], mode: LexMode, own: Option<&[u8]>) -> bool {
    let Some(tables) = pins.temporary_tables() else { return true };
    sql::names_table(text, mode, |schema, name| {
        tables.iter().any(|(of, table)| {
            table.as_bytes().eq_ignore_ascii_case(name) && schema.or(own).is_none_or(|schema| schema.eq_ignore_ascii_case(of))
        })
    })
}

#[cfg(test)]
#[path = "backends_tests.rs"]
mod tests;
