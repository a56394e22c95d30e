//! The history of statistics in `stats_history`: samples, one per period of an `admin-stats_*` variable, and their averages by hour and
//! day. Digests and logged queries are moved there too.
//!
//! Works on the engine's thread, between statements; long work is done in slices. Periods follow the clock: one of 60 s ends with each
//! minute of UTC, so that samples of several proxies can be compared.
//!
//! INVARIANT: every table is limited, in days and in rows. A sample that cannot be kept is reported in the log, without further effect.

pub(crate) mod digests;
pub(crate) mod healing;
mod process;
pub(crate) mod queries;
mod roll;
mod sample;
pub(crate) mod series;
pub(crate) mod starts;

use std::time::Duration;

use model::control::DataPlane;
use model::settings::AdminVariables;
use rusqlite::Connection;

use crate::error::AdminError;
use crate::live::Live;
use crate::store::rows::transaction;
use sample::Turn;

pub(crate) use sample::POOL_COLUMNS;

/// Longest time between two looks at the clock, ms: the clock may be set.
const LOOK_MS: u64 = 10_000;

/// A periodic task.
struct Series {
    /// Its name in the log.
    name: &'static str,
    /// The period in s; 0 is off.
    every: fn(&AdminVariables) -> u64,
    /// Takes one sample.
    take: fn(&Turn<'_>) -> Result<(), AdminError>,
}

const SERIES: &[Series] = &[
    Series {
        name: "stats_mysql_connections",
        every: |settings| settings.stats_mysql_connections,
        take: |turn| {
            turn.sample("mysql_connections")?;
            turn.sample("myhgm_connections")?;
            turn.status_variables()
        },
    },
    Series {
        name: "stats_mysql_connection_pool",
        every: |settings| settings.stats_mysql_connection_pool,
        take: |turn| turn.connection_pool(),
    },
    Series {
        name: "stats_mysql_query_cache",
        every: |settings| settings.stats_mysql_query_cache,
        take: |turn| turn.sample("mysql_query_cache"),
    },
    Series { name: "stats_system_cpu", every: |settings| settings.stats_system_cpu, take: |turn| turn.sample("system_cpu") },
    Series { name: "stats_system_memory", every: |settings| settings.stats_system_memory, take: |turn| turn.sample("system_memory") },
    Series {
        name: "stats_mysql_query_digest_to_disk",
        every: |settings| settings.stats_mysql_query_digest_to_disk,
        take: |turn| digests::save(turn.db, turn.plane, turn.settings, turn.now).map(drop),
    },
    Series {
        name: "stats_mysql_eventslog_sync_buffer_to_disk",
        every: |settings| settings.stats_mysql_eventslog_sync_buffer_to_disk,
        take: |turn| queries::save(turn.db, turn.plane, turn.settings, turn.now).map(|last| turn.saved_queries.set(last)),
    },
];

/// A period that was begun: its length in s, and which one it is since 1970.
type Period = (u64, u64);

/// When each series was last sampled.
#[derive(Debug)]
pub(crate) struct History {
    periods: Vec<Period>,
}

impl History {
    /// Nothing is due before the periods at hand are over. `now_ms` is Unix time.
    pub(crate) fn new(settings: &AdminVariables, now_ms: u64) -> Self {
        Self { periods: SERIES.iter().map(|series| period(series, settings, now_ms)).collect() }
    }

    /// How long nothing is due.
    pub(crate) fn wait(&self, settings: &AdminVariables, now_ms: u64) -> Duration {
        let ends = SERIES.iter().map(|series| period(series, settings, now_ms)).filter(|(length, _)| *length > 0);
        let until = ends.map(|(length, number)| ((number + 1) * length * 1000).saturating_sub(now_ms));
        Duration::from_millis(until.min().unwrap_or(LOOK_MS).clamp(1, LOOK_MS))
    }

    /// The series whose period is over; a new one begins. A period of another length begins without a sample.
    fn due(&mut self, settings: &AdminVariables, now_ms: u64) -> Vec<&'static Series> {
        let mut due = Vec::new();
        for (known, series) in self.periods.iter_mut().zip(SERIES) {
            let now = period(series, settings, now_ms);
            let before = std::mem::replace(known, now);
            if before != now && before.0 == now.0 {
                due.push(series);
            }
        }
        due
    }

    /// Takes the samples that are due at `now_ms`, in Unix time.
    pub(crate) fn step(&mut self, db: &Connection, live: &Live, plane: &dyn DataPlane, settings: &AdminVariables, now_ms: u64) {
        let due = self.due(settings, now_ms);
        if due.is_empty() {
            return;
        }
        let turn = Turn::new(db, live, plane, settings, i64::try_from(now_ms / 1000).unwrap_or(i64::MAX));
        for series in due {
            let saved = transaction(db, || (series.take)(&turn));
            if let Err(error) = &saved {
                tracing::warn!("admin-{}: cannot save a sample: {error}", series.name);
                turn.saved_queries.take();
            }
            plane.settle_digests(saved.is_ok());
            plane.forget_logged_queries(turn.saved_queries.take(), false);
        }
    }
}

fn period(series: &Series, settings: &AdminVariables, now_ms: u64) -> Period {
    let length = (series.every)(settings);
    (length, (now_ms / 1000).checked_div(length).unwrap_or_default())
}

#[cfg(test)]
mod tests;
