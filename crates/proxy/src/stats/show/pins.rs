//! Tables about pins: why sessions keep their connection, since when, and which statement began it.

use super::{Rows, Table, text};
use crate::clients::processlist::HeldConnection;
use crate::clients::session_handle::SessionHandle;
use crate::stats::ProxyStats;
use crate::stats::collect::{self, Census};
use crate::workers::shared::Shared;
use crate::workers::worker::Worker;
use meter::digest::{Digest, shown};
use model::HostgroupId;
use model::stats::{Reading, StatsSchema, StatsTable, Value, stat, stat_null};
use session_state::pins::{Began, PinReason};
use std::net::SocketAddr;
use std::sync::Arc;

/// See the module.
pub(super) const TABLES: &[Table] = &[
    Table {
        table: StatsTable {
            schema: StatsSchema::Stats,
            name: "stats_tidegate_pins",
            columns: &[
                stat("session", "INTEGER"),
                stat("user", "VARCHAR"),
                stat("client", "VARCHAR"),
                stat_null("hostgroup", "INT"),
                stat_null("server", "VARCHAR"),
                stat("reason", "VARCHAR"),
                stat("since_ms", "INTEGER"),
                stat_null("digest", "VARCHAR"),
                stat_null("digest_text", "VARCHAR"),
            ],
            primary_key: &["session", "hostgroup", "reason"],
            has_reset: false,
            help: "Sessions that must keep their connection, with reason, duration in ms and the statement that pinned them",
        },
        rows: pins,
    },
    Table {
        table: StatsTable {
            schema: StatsSchema::Stats,
            name: "stats_tidegate_pins_summary",
            columns: &[stat("reason", "VARCHAR"), stat("sessions", "INT"), stat("longest_ms", "INTEGER"), stat("began_total", "INTEGER")],
            primary_key: &["reason"],
            has_reset: false,
            help: "Pins by reason: sessions pinned now, the longest pin in ms, and pins since the start",
        },
        rows: summary,
    },
];

/// What a session keeps in one hostgroup.
struct Pinned {
    id: u64,
    user: String,
    client: Option<SocketAddr>,
    hostgroup: Option<HostgroupId>,
    /// Its backend, where the session is.
    held: Option<HeldConnection>,
    pins: Vec<Pin>,
}

/// One of its pins.
struct Pin {
    reason: PinReason,
    age_ms: u64,
    digest: Option<Arc<Digest>>,
}

fn of(worker: &Worker, handle: &SessionHandle, now_ms: u64) -> Option<Vec<Pinned>> {
    let pin = |began: Began| Pin {
        reason: began.reason,
        age_ms: now_ms.saturating_sub(began.since_ms),
        digest: worker.meter.known_digest(began.digest),
    };
    let shown = |(hostgroup, held, began): (Option<HostgroupId>, Option<HeldConnection>, Vec<Began>)| {
        let mut pins: Vec<Pin> = began.into_iter().map(pin).collect();
        pins.sort_unstable_by_key(|pin| pin.reason as u8);
        let user = handle.user.borrow().as_ref().map(|user| user.name.to_string()).unwrap_or_default();
        Pinned { id: handle.id, user, client: handle.row.client.get(), hostgroup, held, pins }
    };
    let held = handle.row.held.get();
    let here = (!handle.pins.get().is_empty()).then(|| (held.map(|held| held.server.0), held, handle.pinned()));
    let elsewhere = handle.elsewhere.borrow();
    let elsewhere = elsewhere.iter().map(|place| (Some(place.hostgroup), None, place.began.clone()));
    let all: Vec<Pinned> = here.into_iter().chain(elsewhere).map(shown).collect();
    (!all.is_empty()).then_some(all)
}

fn pinned(shared: &Shared) -> Vec<Pinned> {
    let now_ms = shared.clock.now_ms();
    collect::sessions(shared, move |worker, handle| of(worker, handle, now_ms)).into_iter().flatten().collect()
}

fn pins(stats: &ProxyStats, _: Reading) -> Rows {
    let mut sessions = pinned(&stats.shared);
    sessions.sort_unstable_by_key(|session| session.id);
    let mut rows = Rows::new();
    for session in sessions {
        let server = session.held.and_then(|held| stats.server(held.server));
        for pin in &session.pins {
            rows.push(vec![
                session.id.into(),
                session.user.as_str().into(),
                crate::logs::event::client_name(session.client).into(),
                session.hostgroup.map(|id| id.0).into(),
                server.as_ref().map(|server| format!("{}:{}", server.key.host, server.key.port)).into(),
                pin.reason.name().into(),
                pin.age_ms.into(),
                pin.digest.as_ref().map(|digest| shown(digest.hash)).into(),
                pin.digest.as_ref().map_or(Value::Null, |digest| text(&digest.text)),
            ]);
        }
    }
    rows
}

/// One reason: sessions, the longest (ms).
pub(super) type Summary = Vec<(PinReason, u64, u64)>;

/// Who is pinned now, by reason; every reason is there.
pub(super) fn by_reason(shared: &Shared) -> Summary {
    let sessions = pinned(shared);
    let of = |reason: PinReason| {
        let ages = sessions.iter().flat_map(|s| &s.pins).filter(|pin| pin.reason == reason).map(|pin| pin.age_ms);
        let (count, longest) = ages.fold((0, 0), |(count, longest), age| (count + 1, age.max(longest)));
        (reason, count, longest)
    };
    PinReason::ALL.into_iter().map(of).collect()
}

fn summary(stats: &ProxyStats, _: Reading) -> Rows {
    let Census { pins_began, .. } = collect::counters(&stats.shared);
    let rows = by_reason(&stats.shared).into_iter().zip(pins_began);
    rows.map(|((reason, sessions, longest_ms), began)| vec![reason.name().into(), sessions.into(), longest_ms.into(), began.into()])
        .collect()
}
