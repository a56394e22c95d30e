//! Revisions, live proxies' lines, and which of two revisions a proxy takes.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// The form of manifest and text that this version writes. One that is newer is refused.
pub const FORMAT: u32 = 1;
/// Most revisions that a manifest names as its ancestors.
const LINEAGE: usize = 500;

/// An ancestor of a revision: its number and its id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ancestor(pub u64, pub String);

/// A revision's description; its text is in `parts`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revision {
    /// Its number; the next one is greater.
    pub number: u64,
    /// Different for each publication, whatever the number.
    pub id: String,
    /// SHA-256 of the text, in hex.
    pub sha256: String,
    /// Bytes of the text before compression. Nothing longer is unpacked.
    pub bytes: u64,
    /// SHA-256 of its parts, in order.
    pub parts: Vec<String>,
    /// The administrator that made it.
    pub author: String,
    /// The name of the proxy that published it.
    pub proxy: String,
    /// When, Unix seconds. For people: nothing is decided by it.
    pub time: i64,
    /// The statement that made it.
    pub command: String,
}

/// A trial of a revision by some proxies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollout {
    /// The uuids of the proxies that try it.
    pub to: Vec<String>,
    /// The revision that all other proxies keep.
    pub before: Revision,
}

/// The value of the key `config`: the only place that says which revision holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The [`FORMAT`] of the writer.
    pub format: u32,
    /// The cluster's own id: two clusters that were given the same name by mistake are told apart by it.
    pub cluster: String,
    /// The version of the proxy that wrote it.
    pub version: String,
    /// The revision that holds, or is on trial.
    #[serde(flatten)]
    pub revision: Revision,
    /// Set while the revision is on trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
    /// The revisions that `revision` came from, the newest first. Manifests of older versions and of the history name none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lineage: Vec<Ancestor>,
}

impl Manifest {
    /// The revision for the proxy of this uuid: during a trial the one before, unless it takes part.
    pub fn wanted_by(&self, uuid: &str) -> &Revision {
        match &self.rollout {
            Some(rollout) if !rollout.to.iter().any(|one| one == uuid) => &rollout.before,
            _ => &self.revision,
        }
    }

    /// The standing of the proxy of this uuid, once it has its revision in force.
    pub fn standing_of(&self, uuid: &str) -> Standing {
        let wanted = self.wanted_by(uuid);
        Standing {
            cluster: self.cluster.clone(),
            number: wanted.number,
            id: wanted.id.clone(),
            sha256: wanted.sha256.clone(),
            lineage: self.ancestors(wanted).to_vec(),
        }
    }

    /// The ancestors of the revision that holds, or of the one that holds beside a trial.
    fn ancestors(&self, of: &Revision) -> &[Ancestor] {
        if of.id == self.revision.id {
            return &self.lineage;
        }
        let at = self.lineage.iter().position(|ancestor| ancestor.1 == of.id);
        at.map_or(&[], |at| &self.lineage[at + 1..])
    }
}

/// The lineage of a revision that comes from all of these: each with its own lineage.
pub fn descend<'a>(from: impl IntoIterator<Item = &'a Standing>) -> Vec<Ancestor> {
    let (mut lineage, mut known) = (Vec::new(), BTreeSet::new());
    let from: Vec<&Standing> = from.into_iter().collect();
    let nearest = from.iter().map(|one| Ancestor(one.number, one.id.clone()));
    for ancestor in nearest.chain(from.iter().flat_map(|one| one.lineage.iter().cloned())) {
        if known.insert(ancestor.1.clone()) {
            lineage.push(ancestor);
        }
    }
    // Of each line the newest are kept.
    lineage.sort_by_key(|ancestor| Reverse(ancestor.0));
    lineage.truncate(LINEAGE);
    lineage
}

/// The revision of a proxy's configuration in force.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// [`Manifest::cluster`] of that revision.
    pub cluster: String,
    /// Grows with each revision.
    pub number: u64,
    /// [`Revision::id`], which decides whether two standings are the same.
    pub id: String,
    /// SHA-256 of the text, in hex.
    pub sha256: String,
    /// The revisions that it came from, the newest first, as far as they are known.
    #[serde(default)]
    pub lineage: Vec<Ancestor>,
}

/// A proxy's decision about a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The revision is in force already.
    Same,
    /// The proxy takes the manifest's revision.
    Take,
    /// The proxy keeps its configuration, for this reason.
    Keep(String),
    /// As [`Verdict::Keep`]: the manifest's revision does not descend from the proxy's, so an operator must decide.
    Conflict(Conflict, String),
}

/// How etcd's revision and the proxy's differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conflict {
    /// etcd has the configuration of another cluster.
    Cluster,
    /// etcd has an older revision: it was restored from a snapshot, for instance.
    Older,
    /// Neither descends from the other.
    Apart,
}

/// Decides whether a proxy with this standing takes the manifest's revision. It takes descendants of the revision in force. It never takes
/// an older revision, one of another cluster, or one of an unknown format.
///
/// A lineage may end before the revision in force: older versions write none, and `LINEAGE` limits it. Then the greater number is taken.
pub fn judge(manifest: &Manifest, uuid: &str, standing: Option<&Standing>) -> Verdict {
    let wanted = manifest.wanted_by(uuid);
    if manifest.format > FORMAT {
        return Verdict::Keep(format!(
            "revision {} was written by Tidegate {}, in a form that this version does not know",
            wanted.number, manifest.version
        ));
    }
    let Some(standing) = standing else { return Verdict::Take };
    if standing.id == wanted.id && standing.number == wanted.number && standing.cluster == manifest.cluster {
        return Verdict::Same;
    }
    let lineage = manifest.ancestors(wanted);
    if lineage.iter().any(|ancestor| ancestor.1 == standing.id) {
        return Verdict::Take;
    }
    let theirs = format!("revision {} by {}@{}", wanted.number, wanted.author, wanted.proxy);
    let own = standing.number;
    if standing.cluster != manifest.cluster {
        return Verdict::Conflict(
            Conflict::Cluster,
            format!(
                "etcd has the configuration of another cluster ({theirs}): CONFIG REBASE SHARED takes it and drops this proxy's \
                 configuration"
            ),
        );
    }
    const CHOICE: &str = "CONFIG DIFF SHARED shows the differences. CONFIG REBASE MINE makes this proxy's configuration that of all proxies, \
                          CONFIG REBASE SHARED takes the one in etcd";
    if wanted.number <= own {
        return Verdict::Conflict(Conflict::Older, format!("etcd has {theirs}, but this proxy has the newer revision {own}. {CHOICE}"));
    }
    match lineage.iter().map(|ancestor| ancestor.0).min() {
        Some(oldest) if oldest <= own => Verdict::Conflict(
            Conflict::Apart,
            format!("etcd has {theirs}, which does not derive from this proxy's revision {own}. {CHOICE}"),
        ),
        _ => Verdict::Take,
    }
}

/// A proxy's own line, kept in etcd under a lease.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProxyLine {
    /// The key of the line.
    pub uuid: String,
    /// Its name: host and admin port.
    pub name: String,
    /// The address of its admin port.
    pub address: String,
    /// The version of Tidegate that runs there.
    pub version: String,
    /// The number of the revision in force; 0 for none.
    pub applied: u64,
    /// The number of the revision that it is to have.
    pub wanted: u64,
    /// Since when `applied` holds, Unix seconds.
    pub since: i64,
    /// Why it does not have its revision; empty if it does.
    pub error: String,
    /// The cluster of the revision in force; empty where an older version runs.
    #[serde(default)]
    pub cluster: String,
    /// The id of the revision in force; empty for none, and where an older version runs.
    #[serde(default)]
    pub id: String,
    /// A remark on the revision that is no fault, for people; mostly empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub remark: String,
}

impl ProxyLine {
    /// Notes which revision is in force; `None` for none.
    pub fn stands_at(&mut self, standing: Option<&Standing>) {
        let none = Standing::default();
        let standing = standing.unwrap_or(&none);
        (self.applied, self.cluster, self.id) = (standing.number, standing.cluster.clone(), standing.id.clone());
    }

    /// The revision in force there, without its lineage, if the proxy says it.
    pub fn standing(&self) -> Option<Standing> {
        let (cluster, id) = (self.cluster.clone(), self.id.clone());
        (!id.is_empty()).then(|| Standing { cluster, number: self.applied, id, ..Standing::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revision(number: u64, id: &str) -> Revision {
        let text = |text: &str| text.to_owned();
        Revision {
            number,
            id: text(id),
            sha256: text("s"),
            bytes: 1,
            parts: vec![],
            author: text("anna"),
            proxy: text("p2"),
            time: 0,
            command: text("LOAD MYSQL USERS TO RUNTIME"),
        }
    }

    /// A manifest whose ancestors are of one letter each, the newest first.
    fn manifest(number: u64, id: &str, lineage: &str) -> Manifest {
        let ancestor = |(back, id): (u64, char)| Ancestor(number - 1 - back, id.to_string());
        let lineage = (0..).zip(lineage.chars()).map(ancestor).collect();
        Manifest { format: FORMAT, cluster: "c".into(), version: "1".into(), revision: revision(number, id), rollout: None, lineage }
    }

    fn at(number: u64, id: &str) -> Standing {
        Standing { cluster: "c".into(), number, id: id.into(), ..Standing::default() }
    }

    /// What a proxy at this revision does.
    fn is(manifest: &Manifest, standing: &Standing) -> &'static str {
        match judge(manifest, "p1", Some(standing)) {
            Verdict::Same => "same",
            Verdict::Take => "take",
            Verdict::Keep(why) => {
                if why.contains("does not know") {
                    "unknown form"
                } else {
                    "keep"
                }
            }
            Verdict::Conflict(Conflict::Cluster, why) => {
                if why.contains("another cluster") {
                    "cluster"
                } else {
                    "?"
                }
            }
            Verdict::Conflict(Conflict::Older, why) => {
                if why.contains("the newer revision") {
                    "older"
                } else {
                    "?"
                }
            }
            Verdict::Conflict(Conflict::Apart, why) => {
                if why.contains("does not derive from") {
                    "apart"
                } else {
                    "?"
                }
            }
        }
    }

    #[test]
    fn a_revision_is_taken_by_its_ancestors_only() {
        assert_eq!(judge(&manifest(5, "e", "dcba"), "p1", None), Verdict::Take);
        for (number, id, verdict) in [
            (5, "e", "same"),
            (4, "d", "take"),
            (1, "a", "take"),
            (6, "f", "older"),
            (5, "other", "older"),
            // etcd was restored at 3, and went on from there.
            (4, "other", "apart"),
            (1, "other", "apart"),
        ] {
            assert_eq!(is(&manifest(5, "e", "dcba"), &at(number, id)), verdict, "{number} {id}");
        }
        let other = Standing { cluster: "x".into(), ..at(5, "e") };
        assert_eq!(is(&manifest(5, "e", "dcba"), &other), "cluster");
        let newer = Manifest { format: FORMAT + 1, ..manifest(5, "e", "dcba") };
        assert_eq!(is(&newer, &at(4, "d")), "unknown form");
    }

    /// Manifests of older versions name no ancestors, and one of this version that follows them names those since.
    #[test]
    fn where_ancestors_are_unknown_the_greater_number_is_taken() {
        for lineage in ["", "d"] {
            for (number, verdict) in [(3, "take"), (1, "take"), (5, "older"), (6, "older")] {
                assert_eq!(is(&manifest(5, "e", lineage), &at(number, "other")), verdict, "{lineage} {number}");
            }
        }
        assert_eq!(is(&manifest(5, "e", ""), &at(4, "other")), "take");
        assert_eq!(is(&manifest(5, "e", "d"), &at(4, "other")), "apart");
        let kept = serde_json::to_string(&manifest(5, "e", "")).unwrap();
        assert!(!kept.contains("lineage"), "{kept}");
        assert_eq!(serde_json::from_str::<Manifest>(&kept).unwrap(), manifest(5, "e", ""));
    }

    #[test]
    fn a_revision_that_comes_from_both_sides_ends_the_conflict() {
        let theirs = manifest(6, "z", "yxcba").standing_of("p1");
        let mine = Standing { lineage: manifest(5, "e", "dcba").lineage, ..at(5, "e") };
        let lineage = descend([&theirs, &mine]);
        let ids: String = lineage.iter().map(|ancestor| ancestor.1.as_str()).collect();
        assert_eq!(ids, "zeyxdcba");
        let ended = Manifest { lineage, ..manifest(7, "g", "") };
        for standing in [&theirs, &mine, &at(5, "y"), &at(4, "d"), &at(3, "c")] {
            assert_eq!(is(&ended, standing), "take", "{standing:?}");
        }
        assert_eq!(is(&ended, &at(5, "other")), "apart");
        // Whichever cluster it was of.
        assert_eq!(is(&ended, &Standing { cluster: "x".into(), ..mine }), "take");
    }

    #[test]
    fn a_lineage_is_bounded() {
        let long = Standing { lineage: (0..2_000).rev().map(|n| Ancestor(n, n.to_string())).collect(), ..at(2_000, "x") };
        assert_eq!(descend([&long]).len(), LINEAGE);
        // A long line leaves room for another one.
        let other = Standing { lineage: vec![Ancestor(1_998, "z".into())], ..at(1_999, "y") };
        let ids: Vec<String> = descend([&long, &other]).into_iter().take(6).map(|ancestor| ancestor.1).collect();
        assert_eq!(ids, ["x", "y", "1999", "1998", "z", "1997"]);
    }

    #[test]
    fn a_rollout_is_for_those_it_names() {
        let rollout = Rollout { to: vec!["p1".into()], before: revision(4, "d") };
        let manifest = Manifest { rollout: Some(rollout), ..manifest(5, "e", "dcba") };
        assert_eq!(judge(&manifest, "p1", Some(&at(4, "d"))), Verdict::Take);
        assert_eq!(judge(&manifest, "p2", Some(&at(4, "d"))), Verdict::Same);
        assert_eq!(judge(&manifest, "p2", Some(&at(3, "c"))), Verdict::Take);
        assert!(matches!(judge(&manifest, "p2", Some(&at(3, "other"))), Verdict::Conflict(Conflict::Apart, _)));
        let ids = |uuid: &str| manifest.standing_of(uuid).lineage.into_iter().map(|ancestor| ancestor.1).collect::<String>();
        assert_eq!((ids("p1"), ids("p2")), ("dcba".to_owned(), "cba".to_owned()));
        let kept = serde_json::to_string(&manifest).unwrap();
        assert_eq!(serde_json::from_str::<Manifest>(&kept).unwrap(), manifest);
    }
}
