//! Which server of a hostgroup gets the next piece of work: by weight, among those that may have it.
//!
//! Pure but for reading the servers' state. What only makes a server less welcome (a slow ping, no lag where a replica is
//! wanted) leaves it out as long as another one is left: a hostgroup whose servers are all slow is still served.

use crate::server::ServerShared;
use model::settings::MysqlVariables;
use routing::Route;
use std::sync::Arc;

/// Which connections to a server a statement may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Connections {
    /// Whichever there is.
    #[default]
    Any,
    /// One that is opened for it: a comment's `create_new_connection=1`.
    New,
}

/// What a statement asks of the server that it goes to, and of the connection to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The lag that it may have at most, ms, where it is known: the statement's comment says so.
    pub max_lag_ms: Option<u32>,
    /// Which of its connections will do.
    pub connections: Connections,
}

/// Beyond this a comment's limit of lag is none, ms.
const MAX_LAG_MS: u64 = 600_000;

impl Needs {
    /// What a statement's comments ask for, at `now_ms` (Unix time). What was committed at `min_epoch_ms` is on every server
    /// that is not further behind than that is ago; the stricter one of two limits counts.
    pub fn of(route: &Route, now_ms: impl FnOnce() -> u64) -> Self {
        let age_ms = route.min_epoch_ms.map(|epoch_ms| now_ms().saturating_sub(epoch_ms)).filter(|age_ms| *age_ms <= MAX_LAG_MS);
        let age_ms = age_ms.and_then(|age_ms| u32::try_from(age_ms).ok());
        let max_lag_ms = [route.max_lag_ms, age_ms].into_iter().flatten().min();
        let connections = if route.new_connection { Connections::New } else { Connections::Any };
        Self { max_lag_ms, connections }
    }

    /// Whether it takes a connection that others have used.
    pub fn takes_used(self) -> bool {
        self.connections == Connections::Any
    }

    /// Whether this server will do.
    pub fn accept(&self, server: &ServerShared) -> bool {
        self.max_lag_ms.is_none_or(|max| server.lag_ms().is_none_or(|lag| lag <= u64::from(max)))
    }
}

/// Settings of the choice.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// `min_num_servers_lantency_awareness`.
    pub latency_aware_from: usize,
    /// `aurora_max_lag_ms_only_read_from_replicas`.
    pub replicas_only_from: usize,
}

impl Rules {
    /// As the variables have them.
    pub fn of(vars: &MysqlVariables) -> Self {
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
        let is_out = !server.is_usable(self.now_ms)
            || !self.needs.accept(server)
            || self.skips_slow && server.is_slow()
            || server.latency_us() > self.max_ping_us
            || self.skips_sources && server.lag_ms() == Some(0);
        if is_out { 0 } else { server.share(self.now_ms) }
    }
}

/// The number of the chosen server among those that `fits`; `draw` gives a number below the one it is given.
pub fn choose(
    servers: &[Arc<ServerShared>],
    fits: impl Fn(&Arc<ServerShared>) -> bool,
    needs: Needs,
    rules: Rules,
    now_ms: u64,
    draw: impl FnOnce(u64) -> u64,
) -> Option<usize> {
    let mut sieve = Sieve { needs, skips_slow: false, max_ping_us: u64::MAX, skips_sources: false, now_ms };
    let share = |sieve: &Sieve, server: &Arc<ServerShared>| if fits(server) { sieve.share(server) } else { 0 };
    if let [only] = servers {
        return (share(&sieve, only) > 0).then_some(0);
    }
    // What is rare is looked for only where it can be.
    let restrict = |sieve: Sieve, stricter: Sieve| {
        let is_somebody_left = servers.iter().any(|server| share(&stricter, server) > 0);
        if is_somebody_left { stricter } else { sieve }
    };
    if servers.iter().any(|server| server.is_slow()) {
        sieve = restrict(sieve, Sieve { skips_slow: true, ..sieve });
    }
    if servers.len() >= rules.latency_aware_from {
        sieve = restrict(sieve, Sieve { max_ping_us: average_ping(&sieve, rules, servers), ..sieve });
    }
    if needs.max_lag_ms.is_some() {
        sieve = restrict(sieve, Sieve { skips_sources: has_replicas(&sieve, rules, servers), ..sieve });
    }
    let total = servers.iter().map(|server| share(&sieve, server)).sum();
    let mut ticket = draw(total);
    for (index, server) in servers.iter().enumerate() {
        let part = share(&sieve, server);
        if ticket < part {
            return Some(index);
        }
        ticket -= part;
    }
    None
}

/// The average ping of the candidates, us, where there are enough and each has one; else no limit.
fn average_ping(sieve: &Sieve, rules: Rules, servers: &[Arc<ServerShared>]) -> u64 {
    let pings = || servers.iter().filter(|server| sieve.share(server) > 0).map(|server| server.latency_us());
    let count = pings().count();
    let is_enough = count > 0 && count >= rules.latency_aware_from && pings().all(|ping| ping > 0);
    if is_enough { pings().sum::<u64>() / count as u64 } else { u64::MAX }
}

/// Whether there are so many candidates that reads with a limit of lag spare those without any lag: the writer.
fn has_replicas(sieve: &Sieve, rules: Rules, servers: &[Arc<ServerShared>]) -> bool {
    servers.iter().filter(|server| sieve.share(server) > 0).count() >= rules.replicas_only_from
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bed::{placement, server};
    use crate::hostgroup::Terms;
    use crate::server::PlacedBy;
    use model::fleet::Measured;
    use model::snapshot::ServerStatus;

    const RULES: Rules = Rules { latency_aware_from: 1000, replicas_only_from: 2 };

    fn measured(server: &ServerShared, latency_us: u64, lag_ms: Option<u64>) {
        server.measured(Measured { latency_us, lag_ms });
    }

    /// Which servers are ever chosen, by trying every draw.
    fn chosen(servers: &[Arc<ServerShared>], needs: Needs, rules: Rules) -> Vec<usize> {
        let mut total = 0;
        choose(
            servers,
            |_| true,
            needs,
            rules,
            1000,
            |below| {
                total = below;
                0
            },
        );
        let mut all: Vec<_> = (0..total).filter_map(|ticket| choose(servers, |_| true, needs, rules, 1000, |_| ticket)).collect();
        assert_eq!(all.len() as u64, total, "every ticket wins somebody");
        all.dedup();
        all
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
        let part = |now_ms| {
            let pick = |draw: &dyn Fn(u64) -> u64| choose(&servers, |_| true, Needs::default(), RULES, now_ms, draw);
            let wins = (0..1_000).filter(|i| pick(&|below| below * i / 1_000) == Some(1)).count();
            assert_eq!(pick(&|below| below - 1), Some(1), "every ticket wins somebody");
            wins
        };
        assert_eq!([1_000, 6_000, 10_999, 11_000].map(part), [58, 346, 499, 500], "of 1000; half of them is its share");
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
        measured(&servers[0], 1, Some(0));
        measured(&servers[1], 1, Some(50));
        measured(&servers[2], 1, Some(5_000));
        let limit = |ms| Needs { max_lag_ms: Some(ms), ..Needs::default() };
        assert_eq!(chosen(&servers, Needs::default(), RULES), [0, 1, 2]);
        assert_eq!(chosen(&servers, limit(100), RULES), [1]);
        assert_eq!(chosen(&servers, limit(20), RULES), [0], "better the writer than nobody");
        measured(&servers[2], 1, None);
        assert_eq!(chosen(&servers, limit(20), RULES), [2], "what is not known is no reason");
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
