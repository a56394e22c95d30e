//! Servers of another cluster answer at addresses of this one: names and addresses are used again.
#![allow(clippy::unwrap_used)]

mod common;

use common::histories::Kind;
use common::{Fleet, addr, galera, group, of, unreachable};
use model::HostgroupId;
use topology::{GroupView, Observation, Order};

const KINDS: [Kind; 2] = [Kind::Galera, Kind::Group];
const NODES: [&str; 3] = ["a", "b", "c"];

/// The answer of a healthy server of the configured cluster.
fn own(kind: Kind, node: &str) -> Observation {
    said(kind.seen(node, kind.healthy(node)), "ours")
}

/// The answer of a healthy server of another cluster: it may write, and claims the others and a majority.
fn other(kind: Kind, node: &str) -> Observation {
    foreign(kind, node, "theirs")
}

fn foreign(kind: Kind, node: &str, cluster: &str) -> Observation {
    let seen = match kind {
        Kind::Galera => galera(|view| view.cluster_size = 5),
        _ => group(|view| foreign_group(view, node)),
    };
    said(seen, cluster)
}

fn foreign_group(view: &mut GroupView, node: &str) {
    let members = [node, "x", "y", "z"].map(|name| (addr(name), "ONLINE".to_owned()));
    (view.members, view.primary) = (members.to_vec(), Some(addr(node)));
    (view.read_only, view.view_id) = (false, "theirs:9".to_owned());
}

fn said(seen: Observation, cluster: &str) -> Observation {
    match seen {
        Observation::Galera(Ok(view)) => Observation::Galera(Ok(topology::GaleraView { identity: of(cluster), ..view })),
        Observation::Group(Ok(view)) => Observation::Group(Ok(GroupView { identity: of(cluster), ..view })),
        other => other,
    }
}

fn lost(kind: Kind) -> Observation {
    match kind {
        Kind::Galera => Observation::Galera(Err(unreachable())),
        _ => Observation::Group(Err(unreachable())),
    }
}

fn settled(kind: Kind) -> Fleet {
    let mut fleet = Fleet::new(&kind.config());
    for node in NODES {
        fleet.see(node, own(kind, node));
    }
    assert_eq!(fleet.layout(), kind.healthy_layout());
    fleet.pass(1_000).events();
    fleet
}

/// Whether the server is ONLINE in any hostgroup.
fn serves(fleet: &Fleet, node: &str) -> bool {
    (1..=3).any(|id| fleet.hostgroup(id).split(' ').any(|name| name == node))
}

/// One dies, and a server of another cluster answers at its address.
#[test]
fn a_server_of_another_cluster_serves_nothing_and_has_no_vote() {
    for kind in KINDS {
        for node in NODES {
            let mut fleet = settled(kind);
            for _ in 0..3 {
                fleet.see(node, lost(kind)).pass(100);
            }
            let without = fleet.layout();
            let others: Vec<&str> = NODES.into_iter().filter(|other| *other != node).collect();
            fleet.events();
            for _ in 0..60 {
                fleet.see(node, Observation::Ping(Ok(1))).see(node, other(kind, node));
                for other in &others {
                    fleet.see(other, own(kind, other));
                }
                fleet.pass(1_000);
                assert_eq!(fleet.layout(), without.replace("cut off", "sever"), "{kind:?} {node}");
            }
            let told = fleet.events();
            assert_eq!(told, [format!("identity {node} member>stranger")], "{kind:?}: told once");
            assert!(!fleet.checks().contains_key("x:3306"), "{kind:?}: nobody is found by its words");
            // The one that belongs there is back.
            for _ in 0..20 {
                fleet.see(node, own(kind, node)).pass(1_000);
                for other in &others {
                    fleet.see(other, own(kind, other));
                }
            }
            assert_eq!(fleet.layout(), kind.healthy_layout(), "{kind:?} {node}");
            assert!(fleet.events().contains(&format!("identity {node} stranger>member")));
        }
    }
}

/// Even if most servers belong elsewhere, the settled identity holds.
#[test]
fn strangers_that_are_more_change_nothing() {
    for kind in KINDS {
        let mut fleet = settled(kind);
        for _ in 0..30 {
            fleet.see("a", own(kind, "a")).see("b", other(kind, "b")).see("c", other(kind, "c")).pass(1_000);
            assert_eq!(fleet.hostgroup(1), "a", "{kind:?}");
            assert!(!serves(&fleet, "b") && !serves(&fleet, "c"), "{kind:?}: {}", fleet.layout());
        }
        fleet.events();
        for _ in 0..30 {
            fleet.see("a", lost(kind)).see("b", other(kind, "b")).see("c", other(kind, "c")).pass(1_000);
        }
        assert!(NODES.iter().all(|node| !serves(&fleet, node)), "{kind:?}: {}", fleet.layout());
        let whole = || "identity - member>stranger".to_owned();
        assert_eq!(fleet.events().iter().filter(|event| **event == whole()).count(), 1, "{kind:?}: told once");
    }
}

/// At the start nothing is known: most votes win, and of equals the first.
#[test]
fn the_most_of_the_servers_say_what_the_cluster_is() {
    for kind in KINDS {
        for order in [["a", "b", "c"], ["c", "a", "b"], ["b", "c", "a"]] {
            let mut fleet = Fleet::new(&kind.config());
            for node in order {
                fleet.see(node, if node == "c" { other(kind, node) } else { own(kind, node) }).pass(10);
            }
            for _ in 0..5 {
                fleet.see("a", own(kind, "a")).see("b", own(kind, "b")).see("c", other(kind, "c")).pass(1_000);
            }
            assert_eq!(fleet.hostgroup(1), "a", "{kind:?} {order:?}: {}", fleet.layout());
            assert!(!serves(&fleet, "c"), "{kind:?} {order:?}: {}", fleet.layout());
            assert!(!fleet.checks().contains_key("x:3306") || order[0] == "c", "{kind:?} {order:?}");
        }
    }
}

/// A node outside the primary component, or a version without an identity, is judged as usual.
#[test]
fn who_says_nothing_is_no_stranger() {
    for kind in KINDS {
        let mut fleet = settled(kind);
        for _ in 0..5 {
            for node in NODES {
                fleet.see(node, kind.seen(node, kind.healthy(node)));
            }
            fleet.pass(1_000);
            assert_eq!(fleet.layout(), kind.healthy_layout(), "{kind:?}");
        }
        assert_eq!(fleet.events(), [] as [String; 0]);
    }
}

/// The operator has written other servers in place of all: they are the cluster from now on. As long as one of the old is there, it is.
#[test]
fn replaced_servers_are_forgotten() {
    for kind in KINDS {
        let renamed = |names: [(&str, &str); 3]| {
            names.iter().fold(kind.config(), |text, (old, new)| text.replace(&format!("\"{old}\""), &format!("\"{new}\"")))
        };
        let mut fleet = settled(kind);
        fleet.configure(&renamed([("a", "a"), ("b", "e"), ("c", "f")]));
        for _ in 0..3 {
            fleet.see("a", own(kind, "a")).see("e", other(kind, "e")).see("f", other(kind, "f")).pass(1_000);
        }
        assert!(serves(&fleet, "a") && !serves(&fleet, "e"), "{kind:?}: {}", fleet.layout());
        fleet.configure(&renamed([("a", "d"), ("b", "e"), ("c", "f")]));
        for _ in 0..3 {
            fleet.see("d", other(kind, "d")).see("e", other(kind, "e")).see("f", other(kind, "f")).pass(1_000);
        }
        assert!(!fleet.hostgroup(1).is_empty() && !serves(&fleet, "a"), "{kind:?}: {}", fleet.layout());
    }
}

fn accept(fleet: &mut Fleet, from: Option<&str>) -> Result<(), String> {
    fleet.topology.order(fleet.now_ms, &Order::Accept { writer: HostgroupId(1), from: from.map(addr) })
}

/// A settled identity survives a restart: after it, strangers may be the only servers that answer. An unsettled one does not.
#[test]
fn what_the_cluster_is_outlasts_the_proxy() {
    for kind in KINDS {
        let mut fleet = settled(kind).restarted(&kind.config());
        for _ in 0..30 {
            fleet.see("a", lost(kind)).see("b", other(kind, "b")).see("c", other(kind, "c")).pass(1_000);
        }
        assert!(!serves(&fleet, "b") && !serves(&fleet, "c"), "{kind:?}: {}", fleet.layout());
        let mut fleet = Fleet::new(&kind.config());
        fleet.see("c", other(kind, "c")).pass(1_000);
        let mut fleet = fleet.restarted(&kind.config());
        fleet.see("a", own(kind, "a")).see("b", own(kind, "b")).see("c", own(kind, "c")).pass(1_000);
        assert_eq!(fleet.layout(), kind.healthy_layout(), "{kind:?}: one of three settles nothing");
        // The operator has replaced them all meanwhile, or made another kind of cluster of them.
        let replaced = NODES.iter().fold(kind.config(), |text, node| text.replace(&format!("\"{node}\""), &format!("\"{node}{node}\"")));
        let mut fleet = settled(kind).restarted(&replaced);
        fleet.see("aa", other(kind, "aa")).see("bb", other(kind, "bb")).see("cc", other(kind, "cc")).pass(1_000);
        assert!(!fleet.hostgroup(1).is_empty(), "{kind:?}: {}", fleet.layout());
        let changed = if kind == Kind::Galera { Kind::Group } else { Kind::Galera };
        let mut fleet = settled(kind).restarted(&changed.config());
        for node in NODES {
            fleet.see(node, own(changed, node));
        }
        assert_eq!(fleet.layout(), changed.healthy_layout());
    }
}

/// The cluster was restored from a backup, so all its servers have another identity. An operator accepts it.
#[test]
fn an_operator_accepts_another_cluster() {
    for kind in KINDS {
        let mut fleet = settled(kind);
        let refused = |fleet: &mut Fleet, from: Option<&str>, words: &str| {
            let before = fleet.layout();
            let error = accept(fleet, from).unwrap_err();
            assert!(error.contains(words), "{kind:?}: {error}");
            assert_eq!(fleet.layout(), before);
        };
        refused(&mut fleet, None, "no server of hostgroup 1 belongs to another cluster");
        refused(&mut fleet, Some("b"), "b:3306 is not known to belong to another cluster");
        refused(&mut fleet, Some("x"), "x:3306 is not a server of the cluster");
        let round = |fleet: &mut Fleet, cluster: &str| {
            for node in NODES {
                fleet.see(node, said(kind.seen(node, kind.healthy(node)), cluster));
            }
            fleet.pass(1_000);
        };
        round(&mut fleet, "restored");
        assert!(NODES.iter().all(|node| !serves(&fleet, node)), "{kind:?}: {}", fleet.layout());
        fleet.events();
        accept(&mut fleet, None).unwrap();
        assert_eq!(fleet.layout(), kind.healthy_layout());
        assert_eq!(fleet.events()[0], "order - ours>restored");
        // It is settled at once, and kept.
        let mut fleet = fleet.restarted(&kind.config());
        round(&mut fleet, "ours");
        assert!(NODES.iter().all(|node| !serves(&fleet, node)), "{kind:?}: {}", fleet.layout());
        // Of two it is not clear which is meant.
        fleet.see("c", foreign(kind, "c", "third"));
        refused(&mut fleet, None, "FROM 'host:port'");
        accept(&mut fleet, Some("c")).unwrap();
        assert!(serves(&fleet, "c") && !serves(&fleet, "a"), "{kind:?}: {}", fleet.layout());
        let identities = fleet.topology.identities();
        let strangers: Vec<_> = identities.iter().filter(|one| one.is_stranger()).map(|one| &*one.server.host).collect();
        assert_eq!((strangers, identities[0].is_settled), (vec!["a", "b"], true));
        fleet.configure(&format!("mysql_variables = {{ monitor_enabled=false }}\n{}", kind.config().split_once('\n').unwrap().1));
        refused(&mut fleet, Some("a"), "monitor_enabled is false");
    }
}
