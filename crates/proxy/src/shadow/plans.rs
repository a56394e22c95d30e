//! Asks both servers how they run a statement that is slower on the shadow, or has other rows there.
//!
//! The question runs as the session's user, in its schema and state, and with the values of an execution. INVARIANTS: like second questions
//! it runs in a read-only transaction on a connection that is reset afterwards, and counts as one of them; only statements that were
//! certain reads come here; no writer of a cluster is asked, for EXPLAIN takes locks on definitions and may run parts of a statement.

use super::Repeated;
use super::judge::{shown, told};
use crate::mirror;
use crate::servers::server::ServerShared;
use crate::workers::worker::Worker;
use model::HostgroupId;
use rehearsal::verdict::took_longer;
use rehearsal::{Class, PlanEnd, PlanPair, QueryPlan, Run};
use session_state::collected::Collected;
use std::rc::Rc;
use std::sync::Arc;
use wire::codec::Reader;

/// Bytes of statements whose plans are asked for. A plan repeats parts of its statement several times.
const MAX_TEXT: usize = 64 << 10;

/// Asks for the plans of a statement whose comparison was counted as `class`, if they are of interest and a question is left.
pub(super) async fn ask(run: &Arc<Run>, worker: &Rc<Worker>, repeated: &mut Repeated, class: Class, times_us: [u64; 2]) {
    let digest = repeated.digest.hash;
    // Most answers are neither, and the findings are locked for none of them.
    if !run.plan.explains || !class.may_be_of_plan() && !took_longer(times_us, run.plan.slow_factor) {
        return;
    }
    let now_ms = worker.shared.clock.now_ms();
    let Some(reason) = run.plan_reason(digest, class, times_us, now_ms) else { return };
    // What cannot be asked takes no question.
    if repeated.copy.text().len() > MAX_TEXT {
        return run.note_plan(PlanEnd::TooLong);
    }
    let Some(source) = readers(worker, run.plan.source) else { return run.note_plan(PlanEnd::OnlyWriters) };
    let Some(_turn) = run.plan_turn(digest, now_ms) else { return };
    match both(run, worker, repeated, source).await {
        Ok([original, shadow]) => {
            let seen_at = crate::workers::clock::unix_us() / 1_000_000;
            let pair = PlanPair::new(reason, seen_at, [&original, &shadow]);
            run.findings().tally.keep_plans(digest, pair);
            run.note_plan(PlanEnd::Known);
        }
        Err(error) => {
            run.findings().plan_error = error;
            run.note_plan(PlanEnd::Failed);
        }
    }
}

/// The plans of the original and the shadow, or why there is none.
async fn both(run: &Run, worker: &Rc<Worker>, repeated: &mut Repeated, source: HostgroupId) -> Result<[QueryPlan; 2], String> {
    let mut plans = Vec::with_capacity(2);
    for (hostgroup, name, server) in [(source, "original", &run.original), (run.plan.shadow, "shadow", &run.shadow)] {
        let copy = &mut repeated.copy;
        copy.lane.hostgroup = hostgroup;
        let is_binary = copy.execution.is_some();
        let reply = mirror::explain(worker, copy, &|server| !is_writer(worker, server)).await;
        let reply = reply.map_err(|failure| format!("{name}: {}", told(&failure, run.plan.shows_literals)))?;
        if let Some(error) = &reply.error {
            return Err(format!("{name}: {}", shown(error, run.plan.shows_literals)));
        }
        let plan = json(&reply, is_binary).and_then(|json| QueryPlan::read(json, &server.version));
        plans.push(plan.ok_or_else(|| format!("{name}: the answer to EXPLAIN FORMAT=JSON cannot be read"))?);
    }
    <[QueryPlan; 2]>::try_from(plans).map_err(|_| "there are not two plans".to_owned())
}

/// The first value of the answer.
fn json(reply: &Collected, is_binary: bool) -> Option<&[u8]> {
    let row = reply.rows.first()?;
    // In the binary protocol a zero and a byte of NULLs come before the values.
    let values = if is_binary { row.strip_prefix(&[0, 0])? } else { row };
    Reader::new(values).lenenc_bytes().ok()
}

/// The hostgroup whose servers are asked in place of the original's: its own, or that of its cluster's readers. None: only writers are there.
/// Where no cluster is configured, nothing is known of roles, and its own is all there is.
fn readers(worker: &Worker, source: HostgroupId) -> Option<HostgroupId> {
    let snapshot = worker.snapshot();
    let of_cluster = snapshot.roles.iter().find(|group| group.writer == source).map(|group| group.reader);
    let has_reader = |id: &HostgroupId| {
        let servers = worker.shared.hostgroup(*id).servers();
        servers.iter().any(|server| server.is_online() && !server.is_removed() && !is_writer(worker, server))
    };
    [Some(source), of_cluster].into_iter().flatten().find(has_reader)
}

/// The server takes writes of a cluster now, in whatever hostgroup it serves reads.
fn is_writer(worker: &Worker, server: &ServerShared) -> bool {
    let address = server.key.addr();
    let snapshot = worker.snapshot();
    let writes =
        |id: HostgroupId| worker.shared.hostgroup(id).servers().iter().any(|writer| !writer.is_removed() && writer.key.addr() == address);
    snapshot.roles.iter().any(|group| writes(group.writer))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bed;

    const CLUSTER: &str = "mysql_replication_hostgroups = ( { writer_hostgroup=1, reader_hostgroup=2 } )";

    fn asked(servers: &[(u32, &str)], more: &str, source: u32) -> Option<u32> {
        let worker = bed::worker(bed::snapshot(servers, more));
        readers(&worker, HostgroupId(source)).map(|id| id.0)
    }

    #[tokio::test]
    async fn writers_of_clusters_are_not_asked() {
        for (servers, source, expected) in [
            (&[(1, "w"), (2, "r")][..], 2, Some(2)),
            // The writer's hostgroup has a reader beside it.
            (&[(1, "w"), (2, "r")], 1, Some(2)),
            // The writer serves reads too.
            (&[(1, "w"), (2, "w"), (2, "r")], 2, Some(2)),
            (&[(1, "w"), (2, "w")], 2, None),
            (&[(1, "w"), (2, "w")], 1, None),
            (&[(1, "w")], 1, None),
            // Another hostgroup with the same server.
            (&[(1, "w"), (2, "r"), (5, "w")], 5, None),
        ] {
            assert_eq!(asked(servers, CLUSTER, source), expected, "{servers:?} {source}");
        }
        assert_eq!(asked(&[(1, "w")], "", 1), Some(1), "without a cluster it is all there is");
        let worker = bed::worker(bed::snapshot(&[(1, "w"), (2, "w"), (2, "r")], CLUSTER));
        let found: Vec<(String, bool)> = worker
            .shared
            .hostgroup(HostgroupId(2))
            .servers()
            .iter()
            .map(|one| (one.key.addr().to_string(), is_writer(&worker, one)))
            .collect();
        assert_eq!(found, [("w:3306".to_owned(), true), ("r:3306".to_owned(), false)]);
    }

    #[test]
    fn the_plan_is_the_first_value_of_both_protocols() {
        let reply = |row: &[u8]| Collected { rows: vec![row.to_vec()], ..Collected::default() };
        assert_eq!(json(&reply(b"\x02{}"), false), Some(&b"{}"[..]));
        assert_eq!(json(&reply(b"\0\0\x02{}"), true), Some(&b"{}"[..]));
        assert_eq!(json(&reply(b"\0\x04\x02{}"), true), None, "NULL");
        assert_eq!([json(&reply(b"\x05{}"), false), json(&Collected::default(), false)], [None; 2]);
    }
}
