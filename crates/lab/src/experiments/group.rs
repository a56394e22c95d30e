//! Faults of members of a group: MySQL Group Replication, single primary.

use super::Extent;
use super::scene::{self, Promise, Scene, Seen, Stage, first_is_no_writer, has_writer, third_is_no_reader};
use crate::error::LabError;
use crate::failover::Load;
use crate::group::Group;
use crate::network::Network;
use crate::server::Options;
use crate::topology::{self, Topology};

/// Scenes on loopback. Each ends with the first member as primary.
pub const SCENES: &[Scene] = &[
    Scene { name: "crash of the primary", change: crash, heal: bring_back, promise: Promise::OnlyInFlight, expects: first_is_no_writer },
    Scene { name: "switch in good order", change: switch, heal: switch_back, promise: Promise::OnlyInFlight, expects: first_is_no_writer },
    Scene { name: "a member leaves and joins", change: leave, heal: join, promise: Promise::NoError, expects: third_is_no_reader },
    Scene {
        name: "a member that does not apply",
        change: lock_member,
        heal: unlock_member,
        promise: Promise::NoError,
        expects: third_is_no_reader,
    },
    Scene { name: "FLUSH TABLES on all", change: flush, heal: nothing, promise: Promise::NoError, expects: has_writer },
];

/// Needs members in networks of their own.
pub const PARTITION: Scene =
    Scene { name: "partition of the primary", change: cut, heal: mend_cut, promise: Promise::OnlyInFlight, expects: first_is_no_writer };

/// The scenes that run with the tests.
const SHORT: &[&str] = &["switch in good order"];

/// Plays scenes, and calls `news` after each; with None for a scene that could not be played.
pub fn run(extent: Extent, part: Option<&str>, mut news: impl FnMut(&str, Option<&Result<Seen, LabError>>)) -> Result<bool, LabError> {
    let wanted = |scene: &Scene| part.is_none_or(|part| scene.name.contains(part));
    let scenes = SCENES.iter().filter(|scene| extent == Extent::Full || SHORT.contains(&scene.name)).filter(|scene| wanted(scene));
    let topology = topology::Kind::Group.start(&Options::new())?;
    let mut is_kept = true;
    for scene in scenes {
        is_kept &= play(scene, &topology, &mut news);
        mend(&topology)?;
    }
    if extent == Extent::Full && wanted(&PARTITION) {
        if Network::possible() {
            let apart = Topology::Group(Group::start_apart(3, &Options::new())?);
            is_kept &= play(&PARTITION, &apart, &mut news);
        } else {
            news(PARTITION.name, None);
        }
    }
    Ok(is_kept)
}

fn play(scene: &Scene, topology: &Topology, news: &mut impl FnMut(&str, Option<&Result<Seen, LabError>>)) -> bool {
    let roles = [("writer_is_also_reader", 0.into()), ("max_transactions_behind", 100.into())];
    let seen = scene.play(topology, &scene::proxied(topology, &roles), Load::LIGHT);
    news(scene.name, Some(&seen));
    seen.is_ok_and(|seen| seen.is_kept())
}

/// All members in the group, the first one primary.
fn mend(topology: &Topology) -> Result<(), LabError> {
    let Topology::Group(group) = topology else { return Ok(()) };
    for (index, member) in group.members.iter().enumerate() {
        if member.exit_status().is_some() {
            member.restart()?;
        }
        let is_in = group.view(index)?.iter().any(|row| row.port == member.port() && row.state == "ONLINE");
        if !is_in {
            group.leave(index)?;
            group.join(index)?;
        }
    }
    group.wait_online()?;
    if group.primary() != Some(0) { group.switch_to(0) } else { Ok(()) }
}

fn nothing(_: &Stage<'_>) -> Result<(), LabError> {
    Ok(())
}

fn crash(stage: &Stage<'_>) -> Result<(), LabError> {
    let group = stage.group()?;
    group.members[0].kill9();
    group.wait_primary_among(&[1, 2]).map(drop)
}

fn bring_back(stage: &Stage<'_>) -> Result<(), LabError> {
    stage.group()?.bring_back(0)
}

fn switch(stage: &Stage<'_>) -> Result<(), LabError> {
    stage.group()?.switch_to(1)
}

fn switch_back(stage: &Stage<'_>) -> Result<(), LabError> {
    stage.group()?.switch_to(0)
}

fn leave(stage: &Stage<'_>) -> Result<(), LabError> {
    let group = stage.group()?;
    group.leave(2)?;
    group.wait_seen_online(0, 2)
}

fn join(stage: &Stage<'_>) -> Result<(), LabError> {
    let group = stage.group()?;
    group.join(2)?;
    group.wait_online()
}

/// A member's tables are locked, so that received transactions wait: the group's flow control begins, and its reads are old.
fn lock_member(stage: &Stage<'_>) -> Result<(), LabError> {
    let mut root = stage.group()?.members[2].root()?;
    root.run("FLUSH TABLES WITH READ LOCK")?;
    stage.hold(root);
    Ok(())
}

fn unlock_member(stage: &Stage<'_>) -> Result<(), LabError> {
    stage.let_go();
    stage.group()?.wait_online()
}

fn flush(stage: &Stage<'_>) -> Result<(), LabError> {
    stage.group()?.members.iter().try_for_each(|member| member.sql("FLUSH TABLES").map(drop))
}

/// The primary hears no other member; clients and the proxy still reach it.
fn cut(stage: &Stage<'_>) -> Result<(), LabError> {
    let group = stage.group()?;
    site(group)?.cut_from_group(true)?;
    group.wait_primary_among(&[1, 2]).map(drop)
}

fn mend_cut(stage: &Stage<'_>) -> Result<(), LabError> {
    let group = stage.group()?;
    site(group)?.cut_from_group(false)?;
    // It was expelled; an operator lets it in again.
    group.leave(0)?;
    group.join(0)?;
    group.wait_online()
}

fn site(group: &Group) -> Result<&crate::network::Site, LabError> {
    let site = group.network().and_then(|network| network.sites.first());
    site.map(AsRef::as_ref).ok_or_else(|| LabError::Protocol("no network of its own".to_owned()))
}
