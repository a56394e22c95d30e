//! Decides from the servers' replication status which of them are pointed at the new writer. Pure.
//!
//! INVARIANT: a channel from another cluster, a replica of a replica, and a channel that an operator or an error stopped are left alone.

use std::sync::Arc;

use model::ServerAddr;

use super::channel::{Channel, Node};
use crate::channels::ThreadState;

/// Errors of a receiver that no further attempt mends: the account may not log in or read, or the account is locked.
const REFUSED: [u64; 5] = [1044, 1045, 1227, 1698, 3118];

/// The cluster's servers after the change of roles.
#[derive(Debug)]
pub(super) struct Scene {
    /// The old writer.
    pub(super) old: Node,
    /// The new writer.
    pub(super) new: Node,
    /// All servers of the cluster.
    pub(super) members: Vec<ServerAddr>,
    /// `mysql_replication_channels`: channels from other clusters.
    pub(super) foreign: Vec<Arc<str>>,
}

/// The decision about one server's replication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::operator) enum Part {
    /// It receives from the new writer already.
    Follows,
    /// It receives from another server of the cluster, which hands the new writer's changes on.
    Chain,
    /// It is left as it is; the text says why.
    Left(String),
    /// It is pointed at the new writer.
    Moves(Move),
}

/// A channel that is pointed at the new writer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::operator) struct Move {
    pub(in crate::operator) name: String,
    /// How it was; None for one that has to be made.
    pub(in crate::operator) was: Option<Was>,
    /// The server was the writer, so it continues behind its own transactions.
    pub(in crate::operator) is_old: bool,
}

/// How a channel was before it was pointed elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::operator) struct Was {
    /// Its source before.
    pub(in crate::operator) source: ServerAddr,
    /// Whether it ran.
    pub(in crate::operator) runs: bool,
}

/// How far a channel is that was pointed at the new writer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Both threads run, and the source is the new writer.
    Follows,
    /// Not yet; why.
    UnderWay(String),
    /// It never will by itself; why.
    Failed(String),
}

/// The channel by which the new writer follows the old one. An error if there is none, or several to choose from.
pub(super) fn taken(scene: &Scene, channels: &[Channel]) -> Result<Channel, String> {
    let (old, new) = (&scene.old.addr, &scene.new.addr);
    match from(&own(scene, channels), &scene.old) {
        Ok(Some(channel)) => Ok(channel.clone()),
        Ok(None) => Err(format!("{new} is not a replica of {old}")),
        Err(why) => Err(format!("{new}: {why}")),
    }
}

/// The decision about a server that is neither the old writer nor the new one.
pub(super) fn replica(scene: &Scene, channels: &[Channel]) -> Part {
    let own = own(scene, channels);
    let channel = match (from(&own, &scene.new), from(&own, &scene.old)) {
        (Ok(Some(_)), _) => return Part::Follows,
        (Err(why), _) | (_, Err(why)) => return Part::Left(why),
        (Ok(None), Ok(Some(channel))) => channel,
        (Ok(None), Ok(None)) => {
            return match (own.iter().find(|channel| is_at_member(scene, channel)), own.first()) {
                (Some(channel), _) => stopped(channel).map_or(Part::Chain, |why| Part::Left(format!("{why}: it is left as it is"))),
                (None, Some(channel)) => {
                    Part::Left(format!("it replicates from {}, which is not a server of the cluster", source(channel)))
                }
                (None, None) => Part::Left("it replicates from nobody".to_owned()),
            };
        }
    };
    match (stopped(channel), &channel.link.source) {
        (Some(why), _) => Part::Left(format!("{why}: it is left as it is")),
        _ if !channel.is_by_gtid => {
            Part::Left("it replicates by file and position, which mean something else at another server: switch it to GTIDs".to_owned())
        }
        (None, Some(source)) => {
            Part::Moves(Move { name: channel.link.name.clone(), was: Some(Was { source: source.clone(), runs: true }), is_old: false })
        }
        (None, None) => Part::Left("its status names no source".to_owned()),
    }
}

/// The decision about the old writer. `taken` is the channel by which the new writer followed it, whose name is reused. An error if the old
/// writer could not follow.
pub(super) fn old_writer(scene: &Scene, channels: &[Channel], taken: &Channel, has_account: bool) -> Result<Part, String> {
    let own = own(scene, channels);
    let receives = |channel: &&Channel| channel.link.receiver.state != ThreadState::Stopped;
    let receiving: Vec<&Channel> = own.iter().copied().filter(receives).collect();
    // With replication both ways, or in a ring, nothing has to be changed.
    match from(&receiving, &scene.new) {
        Ok(Some(channel)) if scene.new.is_id_unique() || channel.is_at(&scene.new.addr) => return Ok(Part::Follows),
        Ok(None) => {}
        Ok(Some(_)) => return Err(format!("{}: {}", scene.old.addr, unclear(&scene.new))),
        Err(why) => return Err(format!("{}: {why}", scene.old.addr)),
    }
    if receiving.iter().any(|channel| is_at_member(scene, channel)) {
        return Ok(Part::Chain);
    }
    let from_new = from(&own, &scene.new).ok().flatten();
    let (old, new, name) = (&scene.old.addr, &scene.new.addr, &taken.link.name);
    let moves = |was| Ok(Part::Moves(Move { name: name.clone(), was, is_old: true }));
    match channels.iter().find(|channel| channel.link.name.eq_ignore_ascii_case(name)) {
        Some(channel) if is_at_member(scene, channel) || from_new.is_some_and(|known| std::ptr::eq(known, channel)) => {
            match &channel.link.source {
                Some(source) => moves(Some(Was { source: source.clone(), runs: false })),
                None => moves(None),
            }
        }
        Some(channel) => Err(format!(
            "{old} cannot follow {new}: its channel '{name}' is from {}, which is not a server of the cluster",
            source(channel)
        )),
        None if has_account => moves(None),
        None => Err(format!(
            "{old} has no account to follow {new} with: set mysql-replication_username and mysql-replication_password to the account of \
             the replicas"
        )),
    }
}

/// The state of a channel that was pointed at the new writer.
pub(super) fn progress(channel: Option<&Channel>, new: &Node) -> Progress {
    let Some(channel) = channel else { return Progress::Failed("its channel is gone".to_owned()) };
    let said = |what: &str, error: &Option<(u64, String)>| match error {
        Some((code, text)) => format!("{text} (error {code})"),
        None => what.to_owned(),
    };
    let (receiver, applier) = (&channel.link.receiver, &channel.link.applier);
    match (receiver.state, applier.state) {
        (ThreadState::Stopped, _) => Progress::Failed(said("its receiver has stopped", &receiver.error)),
        (_, ThreadState::Stopped) => Progress::Failed(said("its applier has stopped", &applier.error)),
        (ThreadState::Runs, _) if channel.source_id == new.id => Progress::Follows,
        (ThreadState::Runs, _) => Progress::UnderWay(format!("another server answers it at {}", new.addr)),
        (ThreadState::Connecting, _) if receiver.error.as_ref().is_some_and(|(code, _)| REFUSED.contains(code)) => {
            Progress::Failed(said("", &receiver.error))
        }
        (ThreadState::Connecting, _) => Progress::UnderWay(said("its receiver does not reach it", &receiver.error)),
    }
}

/// Whether a channel is as it was, where it ran; why not.
pub(super) fn is_put_back(channel: Option<&Channel>, was: &Was) -> Result<(), String> {
    let Some(channel) = channel else { return Err("its channel is gone".to_owned()) };
    match stopped(channel) {
        Some(why) => Err(why),
        None if !channel.is_at(&was.source) => Err(format!("it replicates from {}", source(channel))),
        None => Ok(()),
    }
}

/// An error if another program has pointed the channel elsewhere since: then it is not ours to put back. It may not have been pointed yet.
pub(super) fn is_ours(channel: Option<&Channel>, to: &Move, new: &ServerAddr) -> Result<(), String> {
    match (channel, &to.was) {
        (None, None) => Ok(()),
        (None, Some(_)) => Err("another program removed its channel".to_owned()),
        (Some(channel), was) if channel.is_at(new) || was.as_ref().is_some_and(|was| channel.is_at(&was.source)) => Ok(()),
        (Some(channel), _) => Err(format!("another program pointed it at {}", source(channel))),
    }
}

/// Why a channel does not run, if a thread of it has stopped.
fn stopped(channel: &Channel) -> Option<String> {
    let (receiver, applier) = (&channel.link.receiver, &channel.link.applier);
    if receiver.state != ThreadState::Stopped && applier.state != ThreadState::Stopped {
        return None;
    }
    let error = receiver.error.as_ref().or(applier.error.as_ref());
    Some(error.map_or_else(|| "its replication is stopped".to_owned(), |(code, text)| format!("{text} (error {code})")))
}

/// Channels that are not known to be from other clusters.
fn own<'a>(scene: &Scene, channels: &'a [Channel]) -> Vec<&'a Channel> {
    let is_foreign = |channel: &&Channel| scene.foreign.iter().any(|name| name.eq_ignore_ascii_case(&channel.link.name));
    channels.iter().filter(|channel| !is_foreign(channel)).collect()
}

/// The channel from a server. Ids of MariaDB need not be unique (1 is the default), so the address decides between several channels. An
/// error where it does not.
fn from<'a>(channels: &[&'a Channel], node: &Node) -> Result<Option<&'a Channel>, String> {
    let matching: Vec<&Channel> = channels.iter().copied().filter(|channel| channel.is_from(node)).collect();
    let at: Vec<&Channel> = matching.iter().copied().filter(|channel| channel.is_at(&node.addr)).collect();
    match (&matching[..], &at[..]) {
        ([], _) => Ok(None),
        (_, [one]) => Ok(Some(one)),
        ([one], []) if channels.len() == 1 || node.is_id_unique() => Ok(Some(one)),
        _ => Err(unclear(node)),
    }
}

fn unclear(node: &Node) -> String {
    format!("several servers may have the id {}, and no single channel has the address {}", node.id, node.addr)
}

fn is_at_member(scene: &Scene, channel: &Channel) -> bool {
    scene.members.iter().any(|member| channel.is_at(member))
}

fn source(channel: &Channel) -> String {
    channel.link.source.as_ref().map_or_else(|| "nobody".to_owned(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channels::Link;

    fn at(host: &str) -> ServerAddr {
        ServerAddr { host: host.into(), port: 1 }
    }

    fn node(host: &str) -> Node {
        Node { addr: at(host), id: format!("id-{host}") }
    }

    fn channel(name: &str, host: &str, state: ThreadState) -> Channel {
        let mut link = Link { name: name.into(), source: Some(at(host)), ..Link::default() };
        (link.receiver.state, link.applier.state) = (state, state);
        Channel { link, source_id: format!("id-{host}"), is_by_gtid: true, ..Channel::default() }
    }

    fn with<T>(judge: impl FnOnce(&Scene) -> T) -> T {
        let members = ["old", "new", "c", "d"].map(at).into();
        judge(&Scene { old: node("old"), new: node("new"), members, foreign: vec!["East".into()] })
    }

    fn left(part: Part) -> String {
        match part {
            Part::Left(why) => why,
            other => panic!("{other:?}"),
        }
    }

    use ThreadState::{Connecting, Runs, Stopped};

    #[test]
    fn replicas_of_the_old_writer_move() {
        let was = Some(Was { source: at("old"), runs: true });
        let moves = Part::Moves(Move { name: String::new(), was, is_old: false });
        for state in [Runs, Connecting] {
            let channels = [channel("east", "far", Runs), channel("", "old", state)];
            assert_eq!(with(|scene| replica(scene, &channels)), moves, "a channel from elsewhere is no hindrance");
        }
        let mut by_name = channel("", "10.0.0.1", Runs);
        by_name.source_id = "id-old".into();
        assert!(matches!(with(|scene| replica(scene, &[by_name])), Part::Moves(_)), "it has another name for that host");
    }

    #[test]
    fn others_are_left_alone() {
        let part = |channels: &[Channel]| with(|scene| replica(scene, channels));
        assert_eq!(part(&[channel("", "c", Runs)]), Part::Chain, "a replica of a replica");
        assert_eq!(left(part(&[channel("", "c", Stopped)])), "its replication is stopped: it is left as it is");
        assert_eq!(part(&[channel("", "new", Runs)]), Part::Follows);
        assert_eq!(left(part(&[])), "it replicates from nobody");
        assert!(left(part(&[channel("", "far", Runs)])).contains("far:1, which is not a server of the cluster"));
        assert!(left(part(&[channel("east", "old", Runs)])).contains("nobody"), "it is listed as one from elsewhere");
        assert!(left(part(&[channel("", "old", Stopped)])).contains("its replication is stopped"));
        let mut broken = channel("", "old", Runs);
        (broken.link.applier.state, broken.link.applier.error) = (Stopped, Some((1062, "Duplicate entry".into())));
        assert_eq!(left(part(&[broken])), "Duplicate entry (error 1062): it is left as it is");
        let by_file = Channel { is_by_gtid: false, ..channel("", "old", Runs) };
        assert!(left(part(&[by_file])).contains("by file and position"));
    }

    #[test]
    fn the_old_writer_follows_by_a_channel_of_its_own_or_by_the_account() {
        let part = |channels: &[Channel], has_account| with(|scene| old_writer(scene, channels, &channel("", "old", Runs), has_account));
        let moves = |was| Ok(Part::Moves(Move { name: String::new(), was, is_old: true }));
        assert_eq!(part(&[], true), moves(None));
        assert!(part(&[], false).unwrap_err().contains("mysql-replication_username"));
        let kept = |host| moves(Some(Was { source: at(host), runs: false }));
        for host in ["new", "c"] {
            assert_eq!(part(&[channel("", host, Stopped)], false), kept(host), "that of an earlier role has an account");
        }
        assert_eq!(part(&[channel("", "new", Runs)], false), Ok(Part::Follows), "replication both ways");
        assert_eq!(part(&[channel("", "c", Runs)], false), Ok(Part::Chain), "a ring");
        assert!(part(&[channel("", "far", Runs)], true).unwrap_err().contains("is from far:1"));
        assert_eq!(part(&[channel("east", "far", Runs)], true), moves(None), "a channel from elsewhere stays");
    }

    #[test]
    fn ids_that_are_not_unique_choose_no_channel_from_elsewhere() {
        let (old, new) = (Node { addr: at("old"), id: "1".into() }, Node { addr: at("new"), id: "2".into() });
        let members = ["old", "new", "c"].map(at).into();
        let scene = &Scene { old, new, members, foreign: vec!["East".into()] };
        let with_id = |name: &str, host: &str, id: &str| Channel { source_id: id.into(), ..channel(name, host, Runs) };
        let far = with_id("far", "far", "1");
        let moves = |part: Part| matches!(part, Part::Moves(to) if to.name.is_empty());
        assert!(moves(replica(scene, &[far.clone(), with_id("", "old", "1")])), "the address decides");
        assert!(moves(replica(scene, &[with_id("", "10.0.0.1", "1")])), "its only channel, by another name of the host");
        assert!(left(replica(scene, &[far.clone(), with_id("", "10.0.0.1", "1")])).contains("the id 1"));
        assert!(left(replica(scene, &[far.clone(), with_id("", "c", "3")])).contains("the id 1"), "a replica of a replica");
        assert_eq!(taken(scene, &[far.clone(), with_id("", "old", "1")]).map(|channel| channel.link.name), Ok(String::new()));
        assert!(taken(scene, &[far.clone(), with_id("", "10.0.0.1", "1")]).unwrap_err().starts_with("new:1: several servers"));
        let listed = with_id("east", "far", "1");
        assert_eq!(taken(scene, &[listed]).map(drop).unwrap_err(), "new:1 is not a replica of old:1");
        let elsewhere = [with_id("far", "far", "2")];
        assert!(old_writer(scene, &elsewhere, &channel("", "old", Runs), true).is_err(), "who is that?");
        let both_ways = [with_id("", "new", "2")];
        assert_eq!(old_writer(scene, &both_ways, &channel("", "old", Runs), true), Ok(Part::Follows));
    }

    #[test]
    fn a_channel_is_put_back_once_it_runs_from_where_it_did() {
        let was = Was { source: at("old"), runs: true };
        let back = |channel: Channel| is_put_back(Some(&channel), &was);
        assert_eq!([back(channel("", "old", Runs)), back(channel("", "OLD", Connecting))], [Ok(()), Ok(())]);
        assert_eq!(back(channel("", "old", Stopped)).unwrap_err(), "its replication is stopped");
        assert_eq!(back(channel("", "new", Runs)).unwrap_err(), "it replicates from new:1");
        assert!(is_put_back(None, &was).is_err());
    }

    #[test]
    fn a_channel_that_another_program_pointed_is_not_put_back() {
        let ours = |host: &str, was: Option<&str>| {
            let was = was.map(|host| Was { source: at(host), runs: true });
            is_ours(Some(&channel("", host, Runs)), &Move { name: String::new(), was, is_old: false }, &at("new"))
        };
        assert_eq!([ours("NEW", Some("old")), ours("old", Some("old")), ours("new", None)], [Ok(()), Ok(()), Ok(())]);
        for was in [Some("old"), None] {
            assert_eq!(ours("third", was).unwrap_err(), "another program pointed it at third:1");
        }
        let to = |was| Move { name: String::new(), was, is_old: true };
        assert_eq!(is_ours(None, &to(None), &at("new")), Ok(()));
        assert!(is_ours(None, &to(Some(Was { source: at("old"), runs: true })), &at("new")).is_err());
    }

    #[test]
    fn a_channel_follows_once_the_new_writer_answers_it() {
        let progress = |channel: &Channel| progress(Some(channel), &node("new"));
        assert_eq!(progress(&channel("", "new", Runs)), Progress::Follows);
        assert!(matches!(progress(&channel("", "old", Runs)), Progress::UnderWay(_)));
        let connecting = |code: u64| {
            let mut channel = channel("", "new", Connecting);
            channel.link.receiver.error = Some((code, "no".into()));
            channel
        };
        assert_eq!(progress(&connecting(2003)), Progress::UnderWay("no (error 2003)".into()));
        assert_eq!(progress(&connecting(1045)), Progress::Failed("no (error 1045)".into()));
        let mut refused = channel("", "new", Stopped);
        refused.link.receiver.error = Some((1236, "purged".into()));
        assert_eq!(progress(&refused), Progress::Failed("purged (error 1236)".into()));
        assert!(matches!(super::progress(None, &node("new")), Progress::Failed(_)));
    }
}
