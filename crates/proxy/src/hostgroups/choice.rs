//! Which server of a hostgroup gets the next piece of work: the one that is furthest behind its weight, among those that may have it.
//!
//! All workers count together what each server was given ([`Given`](crate::servers::server::Given)). So shares follow the weights whichever
//! worker has the idle connections, and one that was passed over because it had none is the first as soon as it has.
//!
//! What only makes a server less welcome (a slow ping, a source where a replica is wanted) leaves it out as long as another one is left: a
//! hostgroup whose servers are all slow is still served.

use crate::servers::server::ServerShared;
use model::settings::MysqlVariables;
use routing::Route;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Which connections to a server a statement may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum AllowedConnections {
    /// Whichever there is.
    #[default]
    Any,
    /// One that is opened for it: a comment's `create_new_connection=1`.
    New,
}

/// What a statement asks of the server that it goes to, and of the connection to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Needs {
    /// The lag that it may have at most, ms, where it is known: the statement's comment says so.
    pub max_lag_ms: Option<u32>,
    /// Which of its connections will do.
    pub connections: AllowedConnections,
}

/// Beyond this a comment's limit of lag is none, ms.
const MAX_LAG_MS: u64 = 600_000;

impl Needs {
    /// What a statement's comments ask for, at `now_ms` (Unix time). What was committed at `min_epoch_ms` is on every server
    /// that is not further behind than that is ago; the stricter one of two limits counts.
    pub(crate) fn of(route: &Route, now_ms: impl FnOnce() -> u64) -> Self {
        let age_ms = route.min_epoch_ms.map(|epoch_ms| now_ms().saturating_sub(epoch_ms)).filter(|age_ms| *age_ms <= MAX_LAG_MS);
        let age_ms = age_ms.and_then(|age_ms| u32::try_from(age_ms).ok());
        let max_lag_ms = [route.max_lag_ms, age_ms].into_iter().flatten().min();
        let connections = if route.new_connection { AllowedConnections::New } else { AllowedConnections::Any };
        Self { max_lag_ms, connections }
    }

    /// Whether it takes a connection that others have used.
    pub(crate) fn takes_used(self) -> bool {
        self.connections == AllowedConnections::Any
    }

    /// Whether this server will do.
    pub(crate) fn accept(&self, server: &ServerShared) -> bool {
        self.max_lag_ms.is_none_or(|max| server.measurements.lag_ms().is_none_or(|lag| lag <= u64::from(max)))
    }
}

/// Settings of the choice.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rules {
    /// `min_num_servers_lantency_awareness`.
    pub latency_aware_from: usize,
    /// `aurora_max_lag_ms_only_read_from_replicas`.
    pub replicas_only_from: usize,
}

impl Rules {
    /// As the variables have them.
    pub(crate) fn of(vars: &MysqlVariables) -> Self {
        let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        Self {
            latency_aware_from: count(vars.min_num_servers_lantency_awareness),
            replicas_only_from: count(vars.aurora_max_lag_ms_only_read_from_replicas),
        }
    }
}

/// Who is left out now.
#[derive(Clone, Copy)]
struct Sieve {
    needs: Needs,
    skips_slow: bool,
    /// Pings longer than this are too long, us.
    max_ping_us: u64,
    skips_sources: bool,
    now_ms: u64,
}

impl Sieve {
    /// The server's share of the work; 0 where it is left out.
    fn share(&self, server: &ServerShared) -> u64 {
        let is_out = !server.standing.is_usable(self.now_ms)
            || !self.needs.accept(server)
            || self.skips_slow && server.measurements.is_slow()
            || server.latency_us() > self.max_ping_us
            || self.skips_sources && server.measurements.is_source();
        if is_out { 0 } else { server.share.at(self.now_ms) }
    }
}

/// A turn.
const TURN: u64 = 1_000;

/// Turns that a server can be behind, beyond the distance that its weight makes; older debts are forgiven, so that one which comes
/// back is not flooded.
const DEBT: u64 = 100 * TURN;

/// One choice among the servers of a hostgroup.
pub(crate) struct Choice<'a> {
    servers: &'a [Arc<ServerShared>],
    sieve: Sieve,
    /// Sum of the candidates' shares.
    total: u64,
    /// What the candidate has that got most.
    most: u64,
}

impl<'a> Choice<'a> {
    /// The choice among the servers that `fits`; None where there is no candidate.
    pub(crate) fn among(
        servers: &'a [Arc<ServerShared>],
        fits: impl Fn(&Arc<ServerShared>) -> bool,
        needs: Needs,
        rules: Rules,
        now_ms: u64,
    ) -> Option<Self> {
        let sieve = sieve(servers, &fits, needs, rules, now_ms);
        let mut choice = Self { servers, sieve, total: 0, most: 0 };
        for server in servers.iter().filter(|server| fits(server)) {
            let share = sieve.share(server);
            choice.total += share;
            if share > 0 {
                choice.most = choice.most.max(server.given.0.load(Ordering::Relaxed));
            }
        }
        (choice.total > 0).then_some(choice)
    }

    /// The number of the server that is furthest behind its weight among those that `fits`: one that is no candidate only where no
    /// candidate does.
    pub(crate) fn furthest_behind(&self, fits: impl Fn(&ServerShared) -> bool) -> Option<usize> {
        if let [only] = self.servers {
            return fits(only).then_some(0);
        }
        let all = self.servers.iter().enumerate().filter(|(_, server)| fits(server));
        all.min_by_key(|(_, server)| self.place(server)).map(|(index, _)| index)
    }

    /// A server's place in line: the least is the next, and who is no candidate stands behind all candidates.
    pub(crate) fn place(&self, server: &ServerShared) -> (bool, u64) {
        (self.sieve.share(server) == 0, self.given(server) + self.part(server))
    }

    /// The number of the candidate among those that `fits` with the fewest connections for its weight. Equal ones have turns from
    /// the number `from`.
    pub(crate) fn fewest_connections(&self, fits: impl Fn(&Arc<ServerShared>) -> bool, from: usize) -> Option<usize> {
        let count = self.servers.len();
        if let [only] = self.servers {
            return (self.sieve.share(only) > 0 && fits(only)).then_some(0);
        }
        let all = (0..count).map(|step| (from + step) % count).filter_map(|index| Some((index, self.servers.get(index)?)));
        let place = |(index, server): (usize, &Arc<ServerShared>)| {
            let share = u128::from(self.sieve.share(server));
            (share > 0 && fits(server)).then(|| ((u128::from(server.connections()) + 1) * (1 << 64) / share, index))
        };
        all.filter_map(place).min_by_key(|(place, _)| *place).map(|(_, index)| index)
    }

    /// A server gets the work.
    pub(crate) fn give(&self, index: usize) {
        let Some(server) = self.servers.get(index).filter(|_| self.servers.len() > 1) else { return };
        let (is, part) = (self.given(server), self.part(server));
        // Others may give it something at the same time: that counts, too.
        server.given.0.fetch_max(is, Ordering::Relaxed);
        server.given.0.fetch_add(part, Ordering::Relaxed);
    }

    /// Whether a server is so far behind that the connections which it has are too few.
    pub(crate) fn is_starved(&self, index: usize) -> bool {
        let behind = |server: &Arc<ServerShared>| self.most.saturating_sub(self.given(server)) > DEBT / 2 + self.part(server);
        self.servers.get(index).is_some_and(behind)
    }

    /// What one piece of work counts for a server.
    fn part(&self, server: &ServerShared) -> u64 {
        self.total.saturating_mul(TURN) / server.share.at(self.sieve.now_ms).max(1)
    }

    fn given(&self, server: &ServerShared) -> u64 {
        let least = self.most.saturating_sub(DEBT + 2 * self.part(server));
        server.given.0.load(Ordering::Relaxed).max(least)
    }
}

/// Who is left out among the servers that `fits`.
fn sieve(servers: &[Arc<ServerShared>], fits: impl Fn(&Arc<ServerShared>) -> bool, needs: Needs, rules: Rules, now_ms: u64) -> Sieve {
    let mut sieve = Sieve { needs, skips_slow: false, max_ping_us: u64::MAX, skips_sources: false, now_ms };
    if servers.len() == 1 {
        return sieve;
    }
    // What is rare is looked for only where it can be.
    let restrict = |sieve: Sieve, stricter: Sieve| {
        let is_somebody_left = servers.iter().any(|server| fits(server) && stricter.share(server) > 0);
        if is_somebody_left { stricter } else { sieve }
    };
    if servers.iter().any(|server| server.measurements.is_slow()) {
        sieve = restrict(sieve, Sieve { skips_slow: true, ..sieve });
    }
    if servers.len() >= rules.latency_aware_from {
        sieve = restrict(sieve, Sieve { max_ping_us: average_ping(&sieve, rules, servers), ..sieve });
    }
    if needs.max_lag_ms.is_some() {
        sieve = restrict(sieve, Sieve { skips_sources: has_replicas(&sieve, rules, servers), ..sieve });
    }
    sieve
}

/// The average ping of the candidates, us, where there are enough and each has one; else no limit.
fn average_ping(sieve: &Sieve, rules: Rules, servers: &[Arc<ServerShared>]) -> u64 {
    let pings = || servers.iter().filter(|server| sieve.share(server) > 0).map(|server| server.latency_us());
    let count = pings().count();
    let is_enough = count > 0 && count >= rules.latency_aware_from && pings().all(|ping| ping > 0);
    if is_enough { pings().sum::<u64>() / count as u64 } else { u64::MAX }
}

/// Whether there are so many candidates that reads with a limit of lag spare the source of the others: the writer.
fn has_replicas(sieve: &Sieve, rules: Rules, servers: &[Arc<ServerShared>]) -> bool {
    servers.iter().filter(|server| sieve.share(server) > 0).count() >= rules.replicas_only_from
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bed::{placement, server};
    use crate::hostgroups::quota::Quota;
    use crate::servers::server::PlacedBy;
    use crate::servers::terms::Terms;
    use model::fleet::Measured;
    use model::snapshot::ServerStatus;
    use std::collections::BTreeSet;

    const RULES: Rules = Rules { latency_aware_from: 1000, replicas_only_from: 2 };

    fn measured(server: &ServerShared, latency_us: u64, lag_ms: Option<u64>) {
        server.measured(Measured { latency_us, lag_ms, is_source: false });
    }

    fn measured_as_source(server: &ServerShared, lag_ms: Option<u64>) {
        server.measured(Measured { latency_us: 1, lag_ms, is_source: true });
    }

    fn choice(servers: &[Arc<ServerShared>], now_ms: u64) -> Choice<'_> {
        Choice::among(servers, |_| true, Needs::default(), RULES, now_ms).unwrap()
    }

    /// Which servers get work, of all that may come.
    fn chosen(servers: &[Arc<ServerShared>], needs: Needs, rules: Rules) -> Vec<usize> {
        let mut all = BTreeSet::new();
        for _ in 0..100 {
            let Some(choice) = Choice::among(servers, |_| true, needs, rules, 1000) else { continue };
            let index = choice.furthest_behind(|server| server.standing.is_usable(1000) && needs.accept(server)).unwrap();
            choice.give(index);
            all.insert(index);
        }
        all.into_iter().collect()
    }

    /// How many of `count` turns each server gets at `now_ms`; those that `lacks` has no connection for are passed over.
    fn dealt(servers: &[Arc<ServerShared>], count: usize, now_ms: u64, lacks: impl Fn(usize, usize) -> bool) -> Vec<usize> {
        let mut all = vec![0; servers.len()];
        for turn in 0..count {
            let choice = choice(servers, now_ms);
            let index = choice.furthest_behind(|server| !lacks(turn, servers.iter().position(|s| s.key == server.key).unwrap())).unwrap();
            choice.give(index);
            all[index] += 1;
        }
        all
    }

    #[test]
    fn turns_follow_the_weights_exactly() {
        let servers = [server("a", 1), server("b", 9), server("c", 90)];
        assert_eq!(dealt(&servers, 1_000, 1000, |_, _| false), [10, 90, 900]);
        let servers = [server("a", 10_000_000), server("b", 5_000_000)];
        assert_eq!(dealt(&servers, 30, 1000, |_, _| false), [20, 10]);
        let servers = [server("a", 10_000_000), server("b", 1)];
        assert_eq!(dealt(&servers, 10_000, 1000, |_, _| false), [10_000, 0]);
    }

    #[test]
    fn one_that_had_no_connection_now_and_then_is_made_good() {
        let servers = [server("a", 1), server("b", 9)];
        let all = dealt(&servers, 10_000, 1000, |turn, index| index == 0 && turn % 20 < 15);
        assert!((990..=1_010).contains(&all[0]), "{all:?}");
    }

    #[test]
    fn old_debts_are_forgiven() {
        let servers = [server("a", 1), server("b", 1)];
        dealt(&servers, 100_000, 1000, |_, index| index == 0);
        assert!(choice(&servers, 1000).is_starved(0) && !choice(&servers, 1000).is_starved(1));
        let all = dealt(&servers, 200, 1000, |_, _| false);
        assert_eq!(all, [126, 74], "not all 200");
        assert!(!choice(&servers, 1000).is_starved(0));
    }

    #[test]
    fn connections_are_opened_by_weight() {
        let servers = [server("a", 1), server("b", 2)];
        let (anybodys, mut slots, mut opened) = (Arc::new(Quota::new(1)), Vec::new(), [0, 0]);
        for turn in 0..9 {
            let index = choice(&servers, 1000).fewest_connections(|_| true, turn).unwrap();
            slots.push(servers[index].reserve(&anybodys, 0).unwrap());
            opened[index] += 1;
        }
        assert_eq!(opened, [3, 6]);
        assert_eq!(choice(&servers, 1000).fewest_connections(|s| *s.key.host == *"a", 1), Some(0));
        assert_eq!(choice(&servers, 1000).fewest_connections(|_| false, 1), None);
    }

    #[test]
    fn only_the_online_and_unsuspected_are_chosen() {
        let servers = [server("a", 2), server("b", 3), server("c", 0)];
        assert_eq!(chosen(&servers, Needs::default(), RULES), [0, 1]);
        servers[0].suspect(1500);
        assert_eq!(chosen(&servers, Needs::default(), RULES), [1]);
        for status in [ServerStatus::Shunned, ServerStatus::OfflineSoft, ServerStatus::OfflineHard, ServerStatus::ShunnedReplicationLag] {
            servers[1].place(&placement("b", 3, status), &Terms::default(), PlacedBy::Observation, 0);
            assert_eq!(chosen(&servers, Needs::default(), RULES), [] as [usize; 0]);
        }
        servers[0].suspect(0);
        assert_eq!(chosen(&servers, Needs::default(), RULES), [0]);
    }

    #[test]
    fn what_came_back_gets_little_of_the_work_even_at_the_smallest_weight() {
        let servers = [server("a", 1), server("b", 1)];
        let terms = Terms { ramp_ms: 10_000, ..Terms::default() };
        servers[1].place(&placement("b", 1, ServerStatus::Shunned), &terms, PlacedBy::Observation, 500);
        servers[1].place(&placement("b", 1, ServerStatus::Online), &terms, PlacedBy::Observation, 1_000);
        let part = |now_ms| dealt(&servers, 1_000, now_ms, |_, _| false)[1];
        assert_eq!([1_000, 6_000, 10_999, 11_000].map(part), [58, 348, 500, 500], "of 1000; half of them is its share");
    }

    #[test]
    fn slow_ones_serve_only_when_all_are_slow() {
        let servers = [server("a", 1), server("b", 1)];
        for one in &servers {
            let terms = Terms { default_max_latency_ms: 10, ..Terms::default() };
            one.place(&placement("x", 1, ServerStatus::Online), &terms, PlacedBy::Observation, 0);
        }
        measured(&servers[0], 10_001, None);
        assert_eq!(chosen(&servers, Needs::default(), RULES), [1]);
        measured(&servers[1], 20_000, None);
        assert_eq!(chosen(&servers, Needs::default(), RULES), [0, 1]);
    }

    #[test]
    fn above_the_average_is_left_out_where_there_are_enough() {
        let servers = [server("a", 1), server("b", 1), server("c", 1)];
        let aware = Rules { latency_aware_from: 3, ..RULES };
        measured(&servers[0], 100, None);
        measured(&servers[1], 100, None);
        assert_eq!(chosen(&servers, Needs::default(), aware), [0, 1, 2], "one has no latency yet");
        measured(&servers[2], 400, None);
        assert_eq!(chosen(&servers, Needs::default(), aware), [0, 1]);
        assert_eq!(chosen(&servers, Needs::default(), RULES), [0, 1, 2]);
    }

    #[test]
    fn a_limit_of_lag_is_kept_and_spares_the_writer() {
        let servers = [server("writer", 1), server("near", 1), server("far", 1)];
        measured_as_source(&servers[0], Some(0));
        measured(&servers[1], 1, Some(50));
        measured(&servers[2], 1, Some(5_000));
        let limit = |ms| Needs { max_lag_ms: Some(ms), ..Needs::default() };
        assert_eq!(chosen(&servers, Needs::default(), RULES), [0, 1, 2]);
        assert_eq!(chosen(&servers, limit(100), RULES), [1]);
        assert_eq!(chosen(&servers, limit(20), RULES), [0], "better the writer than nobody");
        measured(&servers[2], 1, None);
        assert_eq!(chosen(&servers, limit(20), RULES), [2], "what is not known is no reason");
    }

    /// The source of asynchronous replication has no lag, and replicas in sync have one of 0.
    #[test]
    fn replicas_in_sync_spare_the_writer() {
        let servers = [server("writer", 1), server("a", 1), server("b", 1)];
        let limit = Needs { max_lag_ms: Some(1_000), ..Needs::default() };
        measured_as_source(&servers[0], None);
        measured(&servers[1], 1, Some(0));
        measured(&servers[2], 1, Some(0));
        assert_eq!(chosen(&servers, limit, RULES), [1, 2]);
        assert_eq!(chosen(&servers, Needs::default(), RULES), [0, 1, 2], "without a limit");
        assert_eq!(chosen(&servers, limit, Rules { replicas_only_from: 4, ..RULES }), [0, 1, 2], "too few candidates");
        measured(&servers[0], 1, None);
        assert_eq!(chosen(&servers, limit, RULES), [0, 1, 2], "nodes of Galera are no sources");
    }

    #[test]
    fn comments_say_what_is_needed() {
        let needs = |max_lag_ms, min_epoch_ms| {
            let route = Route { max_lag_ms, min_epoch_ms, ..Route::default() };
            Needs::of(&route, || 1_000_000).max_lag_ms
        };
        assert_eq!(needs(None, None), None);
        assert_eq!(needs(None, Some(999_000)), Some(1_000));
        assert_eq!(needs(None, Some(1_000_001)), Some(0), "what is still to come is on nobody who is behind");
        assert_eq!(needs(None, Some(400_000)), Some(600_000));
        assert_eq!(needs(None, Some(399_999)), None, "so long ago that nothing is asked for");
        assert_eq!(needs(Some(50), Some(999_000)), Some(50));
        assert_eq!(needs(Some(5_000), Some(999_000)), Some(1_000));
        let new = Route { new_connection: true, ..Route::default() };
        assert!(!Needs::of(&new, || 0).takes_used() && Needs::default().takes_used());
    }
}
