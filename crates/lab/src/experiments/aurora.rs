//! Faults of instances of the stand-in for Aurora. Results say nothing about Amazon's servers; see [`crate::aurora`].

use std::time::Duration;

use super::Extent;
use super::scene::{self, Promise, Scene, Seen, Stage, first_is_no_writer, has_writer, third_is_no_reader};
use crate::error::LabError;
use crate::failover::Load;
use crate::server::Options;
use crate::topology::{self, Topology};

/// All scenes. Afterwards another server may be the writer.
pub const SCENES: &[Scene] = &[
    Scene { name: "the writer changes", change: fail_over, heal: nothing, promise: Promise::OnlyInFlight, expects: first_is_no_writer },
    Scene { name: "crash of the writer", change: crash, heal: bring_back, promise: Promise::OnlyInFlight, expects: first_is_no_writer },
    Scene { name: "a replica goes and comes", change: scale_in, heal: scale_out, promise: Promise::NoError, expects: third_is_no_reader },
    Scene { name: "a replica lags", change: lag, heal: no_lag, promise: Promise::NoError, expects: third_is_no_reader },
    Scene { name: "the topology table is stale", change: freeze, heal: thaw, promise: Promise::NoError, expects: has_writer },
    Scene { name: "the topology table is slow", change: slow, heal: quick, promise: Promise::NoError, expects: has_writer },
];

/// Older than any row that is believed.
const STALE: Duration = Duration::from_secs(300);

/// The scenes that run with the tests.
const SHORT: &[&str] = &["the writer changes", "a replica goes and comes"];

/// Plays scenes, and calls `news` after each.
pub fn run(extent: Extent, part: Option<&str>, mut news: impl FnMut(&Result<Seen, LabError>)) -> Result<bool, LabError> {
    let scenes = SCENES.iter().filter(|scene| extent == Extent::Full || SHORT.contains(&scene.name));
    let mut is_kept = true;
    for scene in scenes.filter(|scene| part.is_none_or(|part| scene.name.contains(part))) {
        // A topology for each scene: a writer that crashed may have rows that no other server has.
        let topology = topology::Kind::Aurora.start(&Options::new())?;
        let seen = scene.play(&topology, &builder(&topology), Load::USUAL);
        is_kept &= seen.as_ref().is_ok_and(Seen::is_kept);
        news(&seen);
    }
    Ok(is_kept)
}

fn builder(topology: &Topology) -> crate::tidegate::Builder {
    scene::proxied(topology, &[("writer_is_also_reader", 0.into()), ("max_lag_ms", 1_000.into())])
}

fn nothing(_: &Stage<'_>) -> Result<(), LabError> {
    Ok(())
}

fn fail_over(stage: &Stage<'_>) -> Result<(), LabError> {
    stage.aurora()?.fail_over(1)
}

fn crash(stage: &Stage<'_>) -> Result<(), LabError> {
    stage.aurora()?.crash_writer().map(drop)
}

fn bring_back(stage: &Stage<'_>) -> Result<(), LabError> {
    stage.aurora()?.bring_back(0)
}

fn scale_in(stage: &Stage<'_>) -> Result<(), LabError> {
    stage.aurora()?.scale(2, false)
}

fn scale_out(stage: &Stage<'_>) -> Result<(), LabError> {
    stage.aurora()?.scale(2, true)
}

fn lag(stage: &Stage<'_>) -> Result<(), LabError> {
    stage.aurora()?.say_lag_ms(2, 30_000.0)
}

fn no_lag(stage: &Stage<'_>) -> Result<(), LabError> {
    stage.aurora()?.say_lag_ms(2, 5.0)
}

fn freeze(stage: &Stage<'_>) -> Result<(), LabError> {
    let aurora = stage.aurora()?;
    (0..aurora.instances.len()).try_for_each(|index| aurora.freeze_table(index, Some(STALE)))
}

fn thaw(stage: &Stage<'_>) -> Result<(), LabError> {
    let aurora = stage.aurora()?;
    (0..aurora.instances.len()).try_for_each(|index| aurora.freeze_table(index, None))
}

fn slow(stage: &Stage<'_>) -> Result<(), LabError> {
    stage.aurora()?.slow_topology(Duration::from_secs(3));
    Ok(())
}

fn quick(stage: &Stage<'_>) -> Result<(), LabError> {
    stage.aurora()?.slow_topology(Duration::ZERO);
    Ok(())
}
