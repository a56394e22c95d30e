//! What a pool does by the clock: deadlines of those who wait, and the care for idle backends.

use super::{AcquireError, FRONT, HostgroupPool, Kind, Outcome, Waiter, is_alive};
use crate::backends::backend::Backend;
use crate::hostgroups::lane::Lane;
use crate::hostgroups::no_server_reason::{no_server, out_of_use};
use crate::servers::server::ServerShared;
use crate::workers::worker::Worker;
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// Waiters that one look answers who have waited for too long: beside a crowd of them others have their turn.
const LATE_AT_A_TIME: usize = 1_000;

impl HostgroupPool {
    /// Called every millisecond or so while someone waits: deadlines and growth.
    pub(crate) fn tick(self: &Rc<Self>, worker: &Rc<Worker>) {
        let now_us = worker.shared.clock.now_us();
        for _ in 0..LATE_AT_A_TIME {
            let late = self.waiters.borrow().first_due().filter(|w| w.ticket.deadline_us <= now_us).cloned();
            let Some(waiter) = late else { break };
            self.waiters.borrow_mut().remove(&waiter.kind(), waiter.ticket);
            worker.counters.wait_timeouts.set(worker.counters.wait_timeouts.get() + 1);
            let waited_ms = now_us.saturating_sub(waiter.since_us) / 1000;
            self.publish(worker, &waiter.lane);
            waiter.finish(Outcome::Failed(AcquireError::Timeout {
                hostgroup: self.shared.id,
                waited_ms,
                reason: self.why(worker, &waiter, now_us / 1000),
            }));
        }
        self.look_at_refusals(worker, now_us / 1000);
        self.serve_all_from_idle(worker);
        self.help_the_limited(worker);
        self.help_the_refused(worker, now_us / 1000);
        self.report_turns(worker);
        self.grow_if_due(worker);
    }

    /// Servers' own limits of users come and go.
    fn look_at_refusals(&self, worker: &Worker, now_ms: u64) {
        for lane in self.lanes.borrow().iter().filter(|lane| lane.quota.is_refused_somewhere()) {
            lane.quota.look(&self.servers(), now_ms);
            self.publish_lane(worker, lane);
        }
        self.look_for_limits();
    }

    /// Those whose users have as many connections as they may wait for one of these: an idle one that will do, here or on
    /// another worker; one that will not do is closed to make room.
    fn help_the_limited(self: &Rc<Self>, worker: &Rc<Worker>) {
        if !self.has_limits.get() || self.shared.is_held() {
            return;
        }
        let now_ms = worker.shared.clock.now_ms();
        let mut first: Vec<_> = {
            let waiters = self.waiters.borrow();
            // Nothing is closed for who could not connect all the same.
            let limited = |kind: &Kind| kind.lane.is_used_up() && self.is_let_in(&kind.lane, now_ms);
            let with_hope = waiters.first_of_each(FRONT, limited, |w| self.has_hope(w, now_ms));
            with_hope.map(|(place, w)| (place, Rc::clone(w))).collect()
        };
        first.sort_by_key(|(place, _)| *place);
        let mut helped: Vec<Rc<Waiter>> = Vec::new();
        for (_, waiter) in first {
            if !helped.iter().any(|other| other.lane.key.user.name == waiter.lane.key.user.name) {
                helped.push(waiter);
            }
        }
        for waiter in helped {
            if self.serve_from_idle(worker, &waiter) {
                continue;
            }
            let lanes = self.lanes.borrow().clone();
            let own = lanes.iter().filter(|l| l.key.user.name == waiter.lane.key.user.name);
            let evicted = own.flat_map(|l| (0..self.servers().len()).filter_map(|server| l.take_oldest(server))).next();
            if evicted.is_none() {
                self.ask_others(worker, &waiter);
            }
        }
    }

    /// Those whose lane every server has refused wait for a connection that another worker has: none is opened for them now.
    fn help_the_refused(&self, worker: &Worker, now_ms: u64) {
        if self.has_refused.get() && !self.shared.is_held() {
            self.borrow_for_first(worker, |kind| !self.is_let_in(&kind.lane, now_ms));
        }
    }

    /// Why nobody gets a backend here.
    fn why(&self, worker: &Worker, waiter: &Waiter, now_ms: u64) -> String {
        if let Some(why) = self.shared.crowd() {
            return why;
        }
        if self.shared.is_held() {
            return "the hostgroup is paused (PAUSE HOSTGROUP or a switchover)".into();
        }
        let servers = self.servers();
        let usable: Vec<_> = servers.iter().filter(|s| s.is_online() && s.share.weight() > 0).collect();
        if servers.iter().all(|s| s.is_removed()) {
            return no_server(&worker.shared, self.shared.id);
        }
        if usable.is_empty() {
            return out_of_use(&servers);
        }
        if let Some(server) = usable.iter().find(|s| s.standing.is_suspect(now_ms)) {
            return format!("{}:{} refused a write and has not been probed since", server.key.host, server.key.port);
        }
        if !usable.iter().any(|s| waiter.wish.needs.accept(s)) {
            return "every server of the hostgroup is further behind than the statement's max_lag_ms".into();
        }
        if let Some(refusal) = waiter.lane.quota.refusal(&servers) {
            return format!("every server refuses more connections of user '{}': {refusal}", waiter.lane.key.user.name);
        }
        if let Some(refusal) = waiter.lane.refusal(&servers) {
            return format!("every server refuses user '{}': {refusal}", waiter.lane.key.user.name);
        }
        if waiter.waits_for_its_own() {
            let (limit, user) = (waiter.lane.limit(), &waiter.lane.key.user.name);
            return format!("all {limit} connections of user '{user}' (max_backend_connections_per_user) are in use");
        }
        let (failing, others): (Vec<&Arc<ServerShared>>, Vec<_>) = usable.iter().copied().partition(|s| s.connects.last_error().is_some());
        let mut causes = Vec::new();
        if let Some((server, error)) = failing.first().and_then(|s| Some((s, s.connects.last_error()?))) {
            causes.push(format!("connecting to {}:{} fails: {error}", server.key.host, server.key.port));
        }
        if !others.is_empty() && others.iter().all(|s| s.room.is_full()) {
            let max: u32 = others.iter().map(|s| s.room.max_connections()).sum();
            let of = if failing.is_empty() { "" } else { " of the other servers" };
            causes.push(format!("all {max} connections{of} (max_connections) are in use"));
        }
        if !causes.is_empty() {
            return causes.join("; ");
        }
        if let (at_us, per_second) = self.throttled.get()
            && at_us > waiter.since_us
        {
            return format!("the proxy opens only {per_second} connections a second (throttle_connections_per_sec_to_hostgroup)");
        }
        "opening a connection takes longer than the statement may wait".into()
    }

    /// Once a second: closes what is too old, too many or gone, and answers those that should be pinged.
    pub(crate) fn maintain(&self, worker: &Worker) -> Vec<Backend> {
        let snapshot = worker.snapshot();
        let vars = &snapshot.vars;
        let now_ms = worker.clock.now_ms();
        self.part_with_former_users(worker);
        let mut ping = Vec::new();
        for lane in self.lanes.borrow().iter() {
            lane.close_where(|b| !self.is_welcome(worker, b) || !is_alive(worker, b));
            self.trim(worker, lane);
            ping.extend(lane.take_where(|b| now_ms.saturating_sub(b.core.idle_since_ms) >= vars.ping_interval_server_msec));
        }
        ping
    }

    /// Closes the idle backends of users that are not configured any more and have no session left. Their lanes and quotas go once
    /// nothing else holds them.
    pub(super) fn part_with_former_users(&self, worker: &Worker) {
        let snapshot = worker.snapshot();
        let is_former = |lane: &Rc<Lane>| {
            let name = &lane.key.user.name;
            let is_configured = snapshot.users.contains_key(name) || snapshot.backend_users.contains_key(name);
            !is_configured && !worker.shared.has_sessions_of(name)
        };
        let former: Vec<_> = self.lanes.borrow().iter().filter(|lane| is_former(lane)).map(Rc::downgrade).collect();
        if former.is_empty() {
            return;
        }
        former.iter().filter_map(Weak::upgrade).for_each(|lane| lane.close_where(|_| true));
        let is_unused = |lane: &Rc<Lane>| Rc::strong_count(lane) == 1 && former.iter().any(|former| former.as_ptr() == Rc::as_ptr(lane));
        self.lanes.borrow_mut().retain(|lane| !is_unused(lane));
        self.shared.drop_unused_quotas();
    }

    /// Takes out a server's idle backends on which statements are prepared that no client has.
    pub(crate) fn take_with_unheld(&self, server: usize) -> Vec<Backend> {
        let has_unheld = |b: &mut Backend| b.core.server.index == server && b.core.statements.has_unheld();
        self.lanes.borrow().iter().flat_map(|lane| lane.take_where(has_unheld)).collect()
    }

    /// Keeps at most `free_connections_pct` of `max_connections` idle (see [`HostgroupPool::most_idle`]), and of these only what was
    /// used within `free_connections_ms`, unless connections are to be kept warm.
    fn trim(&self, worker: &Worker, lane: &Lane) {
        let keep_ms = self.settings().free_connections_ms;
        let since_ms = worker.clock.now_ms().saturating_sub(keep_ms);
        for server in self.servers().iter() {
            let max = self.most_idle(worker, server);
            while lane.idle(server.index) > max {
                drop(lane.take_oldest(server.index));
            }
            if keep_ms > 0 && !self.shared.is_warmed() {
                drop(lane.take_unused(server.index, since_ms));
            }
        }
    }
}
