//! Faults of nodes of a Galera cluster, with `writer_is_also_reader` 0, 1 and 2.

use super::Extent;
use super::scene::{self, Promise, Scene, Seen, Stage, first_is_no_writer, has_writer, third_is_no_reader};
use crate::error::LabError;
use crate::failover::Load;
use crate::server::Options;
use crate::topology;

/// All scenes. The first server is the preferred writer, so each ends with its fail-back.
pub const SCENES: &[Scene] = &[
    Scene { name: "maintenance of the writer", change: soft_offline, heal: online, promise: Promise::NoError, expects: first_is_no_writer },
    Scene { name: "writer rejects queries", change: reject, heal: accept, promise: Promise::OnlyInFlight, expects: first_is_no_writer },
    Scene {
        name: "crash of the writer, fail-back",
        change: crash_writer,
        heal: restart_writer,
        promise: Promise::OnlyInFlight,
        expects: first_is_no_writer,
    },
    Scene {
        name: "crash of a reader",
        change: crash_reader,
        heal: restart_reader,
        promise: Promise::OnlyInFlight,
        expects: third_is_no_reader,
    },
    Scene { name: "desync of the writer", change: desync, heal: sync, promise: Promise::NoError, expects: first_is_no_writer },
    Scene { name: "a donor", change: make_donor, heal: end_donor, promise: Promise::NoError, expects: third_is_no_reader },
    Scene { name: "partition of the writer", change: isolate, heal: join, promise: Promise::OnlyInFlight, expects: first_is_no_writer },
    Scene {
        name: "restart of the writer",
        change: stop_writer,
        heal: restart_writer,
        promise: Promise::OnlyInFlight,
        expects: first_is_no_writer,
    },
    Scene { name: "restart of the whole cluster", change: crash_all, heal: nothing, promise: Promise::Anything, expects: has_writer },
];

/// Plays scenes on one cluster, for each value of `writer_is_also_reader`. Calls `news` after each.
pub fn run(extent: Extent, part: Option<&str>, mut news: impl FnMut(i64, &Result<Seen, LabError>)) -> Result<bool, LabError> {
    let topology = topology::Kind::Galera.start(&Options::new())?;
    let (values, scenes): (&[i64], Vec<&Scene>) = match extent {
        Extent::Short => (&[0], SCENES.iter().filter(|scene| SHORT.contains(&scene.name)).collect()),
        Extent::Full => (&[0, 1, 2], SCENES.iter().collect()),
    };
    let mut is_kept = true;
    for value in values {
        let builder = scene::proxied(&topology, &[("writer_is_also_reader", (*value).into())]);
        for scene in scenes.iter().filter(|scene| part.is_none_or(|part| scene.name.contains(part))) {
            let seen = scene.play(&topology, &builder, Load::USUAL);
            is_kept &= seen.as_ref().is_ok_and(Seen::is_kept);
            news(*value, &seen);
            mend(&topology)?;
        }
    }
    Ok(is_kept)
}

/// The scenes that run with the tests.
const SHORT: &[&str] = &["maintenance of the writer", "crash of the writer, fail-back"];

/// A scene that failed half-way leaves a node out; the next one begins with all.
fn mend(topology: &topology::Topology) -> Result<(), LabError> {
    let topology::Topology::Galera(cluster) = topology else { return Ok(()) };
    cluster.hold_donor(false)?;
    for (index, node) in cluster.nodes.iter().enumerate() {
        if node.server.exit_status().is_some() {
            cluster.bring_back(index)?;
        }
    }
    cluster.wait_synced()
}

fn nothing(_: &Stage<'_>) -> Result<(), LabError> {
    Ok(())
}

fn soft_offline(stage: &Stage<'_>) -> Result<(), LabError> {
    stage.set_status(0, "OFFLINE_SOFT")
}

fn online(stage: &Stage<'_>) -> Result<(), LabError> {
    stage.set_status(0, "ONLINE")
}

fn reject(stage: &Stage<'_>) -> Result<(), LabError> {
    stage.galera()?.nodes[0].reject_queries(true)
}

fn accept(stage: &Stage<'_>) -> Result<(), LabError> {
    stage.galera()?.nodes[0].reject_queries(false)
}

fn crash_writer(stage: &Stage<'_>) -> Result<(), LabError> {
    crash(stage, 0)
}

fn crash_reader(stage: &Stage<'_>) -> Result<(), LabError> {
    crash(stage, 2)
}

fn crash(stage: &Stage<'_>, index: usize) -> Result<(), LabError> {
    let cluster = stage.galera()?;
    cluster.server(index).kill9();
    cluster.wait_size(1, 2)
}

fn restart_writer(stage: &Stage<'_>) -> Result<(), LabError> {
    stage.galera()?.restart(0)
}

fn restart_reader(stage: &Stage<'_>) -> Result<(), LabError> {
    stage.galera()?.restart(2)
}

fn stop_writer(stage: &Stage<'_>) -> Result<(), LabError> {
    stage.galera()?.server(0).stop()
}

fn desync(stage: &Stage<'_>) -> Result<(), LabError> {
    stage.galera()?.nodes[0].desync(true)
}

fn sync(stage: &Stage<'_>) -> Result<(), LabError> {
    stage.galera()?.nodes[0].desync(false)
}

/// The third node leaves in good order and comes back. The node that gives it the missing transactions stays a donor.
fn make_donor(stage: &Stage<'_>) -> Result<(), LabError> {
    let cluster = stage.galera()?;
    cluster.server(2).stop()?;
    cluster.wait_size(0, 2)?;
    cluster.hold_donor(true)?;
    cluster.bring_back(2)?;
    cluster.wait_donor().map(drop)
}

fn end_donor(stage: &Stage<'_>) -> Result<(), LabError> {
    let cluster = stage.galera()?;
    cluster.hold_donor(false)?;
    cluster.wait_synced()
}

fn isolate(stage: &Stage<'_>) -> Result<(), LabError> {
    let cluster = stage.galera()?;
    cluster.nodes[0].isolate(true)?;
    cluster.wait_size(1, 2)
}

fn join(stage: &Stage<'_>) -> Result<(), LabError> {
    let cluster = stage.galera()?;
    cluster.nodes[0].isolate(false)?;
    cluster.wait_synced()
}

fn crash_all(stage: &Stage<'_>) -> Result<(), LabError> {
    let cluster = stage.galera()?;
    cluster.crash_all();
    cluster.found_again().map(drop)
}
