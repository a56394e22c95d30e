//! What etcd says of a revision, who serves, and which of two revisions a proxy wants.

use serde::{Deserialize, Serialize};

/// The form of manifest and text that this version writes. One that is newer is refused.
pub const FORMAT: u32 = 1;

/// One revision's content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revision {
    /// Its number; the next one is greater.
    pub number: u64,
    /// Different for each publication, whatever the number.
    pub id: String,
    /// SHA-256 of the text.
    pub sha256: String,
    /// Bytes of the text.
    pub bytes: u64,
    /// SHA-256 of its parts, in order.
    pub parts: Vec<String>,
    /// Who made it.
    pub author: String,
    /// On which proxy.
    pub proxy: String,
    /// When, Unix seconds. For people: nothing is decided by it.
    pub time: i64,
    /// By which statement.
    pub command: String,
}

/// A revision that some proxies try before the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollout {
    /// Those that try it, by uuid.
    pub to: Vec<String>,
    /// What all others keep.
    pub before: Revision,
}

/// The value of the key `config`: the one place that says what holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`FORMAT`] of whoever wrote it.
    pub format: u32,
    /// The cluster's own id: two clusters that were given the same name by mistake are told apart by it.
    pub cluster: String,
    /// The version of the proxy that wrote it.
    pub version: String,
    /// What holds.
    #[serde(flatten)]
    pub revision: Revision,
    /// While it is tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
}

impl Manifest {
    /// The revision that the proxy of this uuid is to have.
    pub fn wanted_by(&self, uuid: &str) -> &Revision {
        match &self.rollout {
            Some(rollout) if !rollout.to.iter().any(|one| one == uuid) => &rollout.before,
            _ => &self.revision,
        }
    }
}

/// Of which revision a proxy's configuration in force is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// The cluster's id.
    pub cluster: String,
    /// The revision's number.
    pub number: u64,
    /// Its id.
    pub id: String,
    /// SHA-256 of its text.
    pub sha256: String,
}

/// What a proxy does about a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It has what it is to have.
    Same,
    /// It takes this.
    Take,
    /// It keeps what it has, for this reason.
    Keep(String),
}

/// Whether a proxy that stands here takes what the manifest wants. Nothing that is older, of another cluster, or of a form that is not
/// known here is ever taken.
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
    if standing.cluster != manifest.cluster {
        return Verdict::Keep(format!(
            "etcd has the configuration of another cluster (revision {} by {}@{}): CONFIG REBASE takes it",
            wanted.number, wanted.author, wanted.proxy
        ));
    }
    if wanted.number <= standing.number {
        return Verdict::Keep(format!(
            "etcd has revision {} by {}@{}, and this proxy has revision {}: nothing older is taken. CONFIG REBASE takes it all the same",
            wanted.number, wanted.author, wanted.proxy, standing.number
        ));
    }
    Verdict::Take
}

/// What a proxy says of itself, under a lease.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProxyLine {
    /// Its uuid.
    pub uuid: String,
    /// Its name: host and admin port.
    pub name: String,
    /// Where administrators connect.
    pub address: String,
    /// Its version.
    pub version: String,
    /// The number of the revision in force; 0 for none.
    pub applied: u64,
    /// The number of the revision that it is to have.
    pub wanted: u64,
    /// Since when `applied` holds, Unix seconds.
    pub since: i64,
    /// Why it has not what it is to have; empty when all is well.
    pub error: String,
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

    fn manifest(number: u64, id: &str) -> Manifest {
        Manifest { format: FORMAT, cluster: "c".into(), version: "1".into(), revision: revision(number, id), rollout: None }
    }

    fn at(number: u64, id: &str) -> Standing {
        Standing { cluster: "c".into(), number, id: id.into(), sha256: "s".into() }
    }

    fn why(verdict: Verdict) -> String {
        let Verdict::Keep(why) = verdict else { panic!("{verdict:?}") };
        why
    }

    #[test]
    fn a_newer_revision_is_taken_and_an_older_one_never() {
        assert_eq!(judge(&manifest(5, "e"), "p1", None), Verdict::Take);
        assert_eq!(judge(&manifest(5, "e"), "p1", Some(&at(4, "d"))), Verdict::Take);
        assert_eq!(judge(&manifest(5, "e"), "p1", Some(&at(5, "e"))), Verdict::Same);
        assert!(why(judge(&manifest(5, "e"), "p1", Some(&at(6, "f")))).contains("nothing older"));
        assert!(why(judge(&manifest(5, "other"), "p1", Some(&at(5, "e")))).contains("nothing older"));
    }

    #[test]
    fn another_cluster_and_a_newer_form_are_refused() {
        let other = Standing { cluster: "x".into(), ..at(1, "a") };
        assert!(why(judge(&manifest(5, "e"), "p1", Some(&other))).contains("another cluster"));
        let newer = Manifest { format: FORMAT + 1, ..manifest(5, "e") };
        assert!(why(judge(&newer, "p1", Some(&at(4, "d")))).contains("does not know"));
    }

    #[test]
    fn a_rollout_is_for_those_it_names() {
        let rollout = Rollout { to: vec!["p1".into()], before: revision(4, "d") };
        let manifest = Manifest { rollout: Some(rollout), ..manifest(5, "e") };
        assert_eq!(judge(&manifest, "p1", Some(&at(4, "d"))), Verdict::Take);
        assert_eq!(judge(&manifest, "p2", Some(&at(4, "d"))), Verdict::Same);
        assert_eq!(judge(&manifest, "p2", Some(&at(3, "c"))), Verdict::Take);
        let kept = serde_json::to_string(&manifest).unwrap();
        assert_eq!(serde_json::from_str::<Manifest>(&kept).unwrap(), manifest);
    }
}
