//! What operators ordered about healing, and when this proxy promoted a server: kept over restarts, in a file of the data directory.
//!
//! One JSON document, replaced as a whole before an order takes effect. INVARIANT: a file that cannot be read suspends healing.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use model::{HostgroupId, ServerAddr, files};
use serde::{Deserialize, Serialize};
use topology::healing::{Stopped, Suspension};

use crate::clock::unix_us;
use crate::monitor::lock;

const FILE: &str = "tidegate_healing.json";
/// More are not of this proxy's making.
const BYTES_MAX: u64 = 1 << 20;
/// Largest time that can be shown, Unix ms.
const TIME_MAX_MS: u64 = 1 << 48;
/// Longest `FOR`, s: ten years.
const LONGEST_S: u64 = 315_360_000;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    path: OnceLock<PathBuf>,
    told: Mutex<Told>,
}

/// The file's content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Told {
    /// Every cluster.
    suspended: Option<Suspension>,
    clusters: BTreeMap<u32, OfCluster>,
    /// The file was there and could not be read.
    #[serde(skip)]
    is_broken: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct OfCluster {
    suspended: Option<Suspension>,
    promoted: Option<Promoted>,
    /// Until it is known whether the server of the last promotion was opened.
    opening: Option<Opening>,
    /// Channels that a plan stopped or pointed elsewhere, and that were not put back.
    stopped: Vec<Stopped>,
    /// The same in files of earlier versions: receivers that were stopped.
    #[serde(skip_serializing)]
    frozen: Vec<(ServerAddr, String)>,
}

/// The last promotion of a cluster by this proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Promoted {
    /// The server.
    pub(crate) heir: ServerAddr,
    /// Just before it was opened, Unix ms.
    pub(crate) at_ms: u64,
    /// An operator has acknowledged it.
    pub(crate) is_acknowledged: bool,
}

/// A promotion of which it is not known yet whether the server was opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Opening {
    /// The server.
    pub(crate) heir: ServerAddr,
    /// The promotion before: it holds again if the server was not opened.
    pub(crate) before: Option<Promoted>,
}

/// What plans of this proxy left in the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Left {
    /// Channels that were not put back.
    pub(crate) stopped: Vec<Stopped>,
    /// The promotion whose server may have been opened.
    pub(crate) opening: Option<Opening>,
}

impl Orders {
    /// Keeps them in this directory from now on, and takes what the file says unless `recall` is false.
    pub(crate) fn keep_in(&self, datadir: &Path, recall: bool) {
        let path = self.path.get_or_init(|| datadir.join(FILE));
        let found = if recall { read(path) } else { Ok(Told::default()) };
        *lock(&self.told) = found.unwrap_or_else(|e| {
            tracing::error!("{}: {e}. Healing is suspended until RESUME HEALING", path.display());
            Told { is_broken: true, ..Told::default() }
        });
    }

    /// Reads the file again: another process may have written it.
    pub(crate) fn read_again(&self) {
        if let Some(told) = self.path.get().and_then(|path| read(path).ok()) {
            *lock(&self.told) = told;
        }
    }

    /// Why an operator does not want this cluster to be healed now, in words.
    pub(crate) fn suspended(&self, writer: HostgroupId) -> Option<String> {
        let (told, now_ms) = (lock(&self.told), unix_ms());
        if told.is_broken {
            return Some(format!("{FILE} cannot be read, so healing is suspended until RESUME HEALING"));
        }
        let of_all = told.suspended.as_ref().map(|one| (one, "RESUME HEALING".to_owned()));
        let own = told.clusters.get(&writer.0).and_then(|own| own.suspended.as_ref());
        let own = own.map(|one| (one, format!("RESUME HEALING HOSTGROUP {writer}")));
        of_all.into_iter().chain(own).find(|(one, _)| one.holds(now_ms)).map(|(one, resume)| one.told(now_ms, &resume))
    }

    /// The last promotion of this cluster by this proxy, and how long ago it was, ms. A clock that was set back makes it young.
    pub(crate) fn promoted(&self, writer: HostgroupId) -> Option<(Promoted, u64)> {
        let promoted = lock(&self.told).clusters.get(&writer.0)?.promoted.clone()?;
        let age_ms = unix_ms().saturating_sub(promoted.at_ms);
        Some((promoted, age_ms))
    }

    /// `SUSPEND HEALING`. Returns the effect in words. Blocks.
    pub(crate) fn suspend(&self, writer: Option<HostgroupId>, limit: Option<Duration>, by: &str) -> Result<String, String> {
        let suspension = suspension(limit, by)?;
        self.change(|told| match writer {
            None => told.suspended = Some(suspension),
            Some(writer) => told.clusters.entry(writer.0).or_default().suspended = Some(suspension),
        })?;
        Ok(told(writer, limit, "this proxy promotes no server and takes none back"))
    }

    /// `RESUME HEALING`. Without a hostgroup it ends every suspension. Returns the effect in words. Blocks.
    pub(crate) fn resume(&self, writer: Option<HostgroupId>) -> Result<String, String> {
        if let Some(writer) = writer
            && lock(&self.told).clusters.get(&writer.0).is_none_or(|own| own.suspended.is_none())
        {
            return Err(match self.suspended(writer) {
                Some(why) => format!("healing of every cluster is suspended, not only of hostgroup {writer} ({why}): RESUME HEALING"),
                None => format!("healing of hostgroup {writer} is not suspended"),
            });
        }
        self.change(|told| match writer {
            None => {
                (told.suspended, told.is_broken) = (None, false);
                told.clusters.values_mut().for_each(|own| own.suspended = None);
            }
            Some(writer) => told.clusters.entry(writer.0).or_default().suspended = None,
        })?;
        let left = writer.and_then(|writer| self.suspended(writer)).map(|why| format!(", but {why}")).unwrap_or_default();
        Ok(format!("healing goes on{left}"))
    }

    /// `ACKNOWLEDGE HEALING`. True if there was a promotion to acknowledge. Blocks.
    pub(crate) fn acknowledge(&self, writer: HostgroupId) -> Result<bool, String> {
        let is_new = self.promoted(writer).is_some_and(|(promoted, _)| !promoted.is_acknowledged);
        if is_new {
            self.change(|told| {
                let Some(own) = told.clusters.get_mut(&writer.0) else { return };
                // An operator who has seen this one has seen the one before.
                let before = own.opening.as_mut().and_then(|opening| opening.before.as_mut());
                own.promoted.iter_mut().chain(before).for_each(|promoted| promoted.is_acknowledged = true);
            })?;
        }
        Ok(is_new)
    }

    /// A server is about to be opened. [`Orders::was_opened`] or [`Orders::was_not_opened`] follows. Blocks.
    pub(crate) fn will_open(&self, writer: HostgroupId, promoted: Promoted) -> Result<(), String> {
        self.change(|told| {
            let own = told.clusters.entry(writer.0).or_default();
            own.opening = Some(Opening { heir: promoted.heir.clone(), before: own.promoted.take() });
            own.promoted = Some(promoted);
        })
    }

    /// The server that was about to be opened writes. Blocks.
    pub(crate) fn was_opened(&self, writer: HostgroupId) -> Result<(), String> {
        self.change(|told| told.clusters.entry(writer.0).or_default().opening = None)
    }

    /// The server that was about to be opened takes no writes: the promotion before it holds again. Blocks.
    pub(crate) fn was_not_opened(&self, writer: HostgroupId) -> Result<(), String> {
        self.change(|told| {
            let own = told.clusters.entry(writer.0).or_default();
            if let Some(opening) = own.opening.take() {
                own.promoted = opening.before;
            }
        })
    }

    /// What plans left: a process that ends in the middle puts nothing back.
    pub(crate) fn left(&self, writer: HostgroupId) -> Left {
        let left = |own: &OfCluster| Left { stopped: own.stopped.clone(), opening: own.opening.clone() };
        lock(&self.told).clusters.get(&writer.0).map(left).unwrap_or_default()
    }

    /// What a plan stopped or pointed elsewhere: a process that ends in the middle leaves it so.
    pub(crate) fn stopped(&self, writer: HostgroupId) -> Vec<Stopped> {
        lock(&self.told).clusters.get(&writer.0).map(|own| own.stopped.clone()).unwrap_or_default()
    }

    /// A plan is about to do this; or what is left of it (none: everything was put back). Blocks.
    pub(crate) fn stop(&self, writer: HostgroupId, stopped: Vec<Stopped>) -> Result<(), String> {
        if self.stopped(writer) == stopped {
            return Ok(());
        }
        self.change(|told| told.clusters.entry(writer.0).or_default().stopped = stopped)
    }

    /// On disk first.
    fn change(&self, change: impl FnOnce(&mut Told)) -> Result<(), String> {
        let mut told = lock(&self.told);
        let mut next = told.clone();
        change(&mut next);
        next.clusters.retain(|_, own| *own != OfCluster::default());
        if let Some(path) = self.path.get() {
            let text = serde_json::to_vec_pretty(&next).map_err(|e| e.to_string())?;
            files::replace(path, &text).map_err(|e| format!("{}: {e}: nothing was changed", path.display()))?;
        }
        *told = next;
        Ok(())
    }
}

pub(super) fn unix_ms() -> u64 {
    unix_us() / 1_000
}

/// A suspension from now on. Errors: the time is out of range.
pub(super) fn suspension(limit: Option<Duration>, by: &str) -> Result<Suspension, String> {
    if limit.is_some_and(|limit| limit.as_secs() == 0 || limit.as_secs() > LONGEST_S) {
        return Err(format!("FOR takes 1 to {LONGEST_S} seconds: nothing was changed"));
    }
    Ok(Suspension { until_ms: limit.map(|limit| unix_ms() + limit.as_secs() * 1_000), by: by.to_owned() })
}

/// The effect of a suspension in words.
pub(super) fn told(writer: Option<HostgroupId>, limit: Option<Duration>, effect: &str) -> String {
    let what = writer.map_or_else(|| "every cluster".to_owned(), |writer| format!("hostgroup {writer}"));
    told_of(&what, writer, limit, effect)
}

/// The same where the order names clusters by `what`.
pub(super) fn told_of(what: &str, writer: Option<HostgroupId>, limit: Option<Duration>, effect: &str) -> String {
    let end = match limit {
        Some(limit) => format!("for {} s", limit.as_secs()),
        None => format!("until RESUME HEALING{}", writer.map_or_else(String::new, |writer| format!(" HOSTGROUP {writer}"))),
    };
    format!("healing of {what} is suspended {end}: {effect}")
}

fn read(path: &Path) -> io::Result<Told> {
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, "it does not hold orders about healing");
    match std::fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Told::default()),
        Err(e) => return Err(e),
        Ok(found) if found.len() > BYTES_MAX => return Err(invalid()),
        Ok(_) => {}
    }
    let mut told: Told = serde_json::from_slice(&std::fs::read(path)?)?;
    for own in told.clusters.values_mut() {
        own.stopped.extend(own.frozen.drain(..).map(|(server, channel)| Stopped::receiver(server, channel, None)));
    }
    let suspensions = told.suspended.iter().chain(told.clusters.values().filter_map(|own| own.suspended.as_ref()));
    let promoted = told.clusters.values().flat_map(|own| own.promoted.iter().chain(own.opening.iter().flat_map(|opening| &opening.before)));
    let mut times = suspensions.filter_map(|one| one.until_ms).chain(promoted.map(|promoted| promoted.at_ms));
    if times.any(|ms| ms > TIME_MAX_MS) { Err(invalid()) } else { Ok(told) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEN: HostgroupId = HostgroupId(10);

    fn kept(dir: &Path) -> Orders {
        let orders = Orders::default();
        orders.keep_in(dir, true);
        orders
    }

    #[test]
    fn orders_outlast_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let orders = kept(dir.path());
        assert_eq!(orders.suspended(TEN), None);
        orders.suspend(Some(TEN), Some(Duration::from_secs(100)), "ann").unwrap();
        let told = orders.suspend(None, None, "bob").unwrap();
        assert!(told.contains("of every cluster is suspended until RESUME HEALING"), "{told}");
        let heir = ServerAddr { host: "b".into(), port: 1 };
        orders.will_open(TEN, Promoted { heir: heir.clone(), at_ms: unix_ms(), is_acknowledged: false }).unwrap();
        orders.was_opened(TEN).unwrap();

        let orders = kept(dir.path());
        assert_eq!(orders.suspended(HostgroupId(7)).unwrap(), "bob suspended healing until RESUME HEALING");
        let (promoted, age_ms) = orders.promoted(TEN).unwrap();
        assert!(promoted.heir == heir && !promoted.is_acknowledged && age_ms < 60_000);
        assert!(orders.acknowledge(TEN).unwrap() && !orders.acknowledge(TEN).unwrap());
        assert!(kept(dir.path()).promoted(TEN).unwrap().0.is_acknowledged);
        assert!(orders.resume(Some(HostgroupId(7))).unwrap_err().contains("RESUME HEALING"));
        orders.resume(None).unwrap();
        assert_eq!((orders.suspended(TEN), kept(dir.path()).suspended(TEN)), (None, None));
        assert_eq!(orders.resume(Some(TEN)).unwrap_err(), "healing of hostgroup 10 is not suspended");
        orders.keep_in(dir.path(), false);
        assert!(orders.promoted(TEN).is_none());
    }

    #[test]
    fn one_cluster_is_suspended_for_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let orders = kept(dir.path());
        orders.suspend(Some(TEN), Some(Duration::from_secs(100)), "ann").unwrap();
        assert!(orders.suspended(TEN).unwrap().starts_with("ann suspended healing for "), "{:?}", orders.suspended(TEN));
        assert_eq!(orders.suspended(HostgroupId(7)), None);
        assert!(orders.suspend(None, Some(Duration::ZERO), "ann").unwrap_err().contains("nothing was changed"));
        assert!(orders.suspend(None, Some(Duration::from_secs(u64::MAX)), "ann").is_err());
        assert_eq!(orders.resume(Some(TEN)).unwrap(), "healing goes on");
        orders.change(|told| told.suspended = Some(Suspension { until_ms: Some(unix_ms() - 1), by: "ann".into() })).unwrap();
        assert_eq!(orders.suspended(TEN), None, "its time is over");
    }

    #[test]
    fn a_file_that_is_not_understood_suspends() {
        let dir = tempfile::tempdir().unwrap();
        for text in [
            "{",
            "7",
            "{\"clusters\": {\"10\": {\"promoted\": {\"heir\": 7}}}}",
            "{\"suspended\": {\"until_ms\": 18446744073709551615, \"by\": \"\"}}",
        ] {
            std::fs::write(dir.path().join(FILE), text).unwrap();
            let orders = kept(dir.path());
            assert!(orders.suspended(TEN).unwrap().contains("cannot be read"), "{text}");
            orders.resume(None).unwrap();
            assert_eq!((orders.suspended(TEN), kept(dir.path()).suspended(TEN)), (None, None));
        }
    }

    #[test]
    fn what_a_plan_stopped_outlasts_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let at = |host: &str| ServerAddr { host: host.into(), port: 1 };
        let taken = Stopped { is_applier: true, ..Stopped::receiver(at("b"), "x".to_owned(), Some(at("a"))) };
        let fetches = Stopped { fetches_from: Some(at("b")), ..Stopped::receiver(at("c"), String::new(), Some(at("a"))) };
        let all = vec![taken, fetches];
        kept(dir.path()).stop(TEN, all.clone()).unwrap();
        let orders = kept(dir.path());
        assert_eq!(orders.stopped(TEN), all);
        orders.stop(TEN, Vec::new()).unwrap();
        assert!(kept(dir.path()).stopped(TEN).is_empty());
        // A file of an earlier version.
        std::fs::write(dir.path().join(FILE), r#"{"clusters": {"10": {"frozen": [[{"host": "b", "port": 1}, "x"]]}}}"#).unwrap();
        let orders = kept(dir.path());
        assert_eq!(orders.stopped(TEN), [Stopped::receiver(at("b"), "x".to_owned(), None)]);
        orders.stop(TEN, Vec::new()).unwrap();
        assert!(kept(dir.path()).stopped(TEN).is_empty() && orders.suspended(TEN).is_none());
    }

    #[test]
    fn a_server_that_was_not_opened_was_not_promoted() {
        let dir = tempfile::tempdir().unwrap();
        let promoted = |host: &str| Promoted { heir: ServerAddr { host: host.into(), port: 1 }, at_ms: unix_ms(), is_acknowledged: false };
        let last = |orders: &Orders| orders.promoted(TEN).map(|(promoted, _)| promoted);
        kept(dir.path()).will_open(TEN, promoted("b")).unwrap();
        let orders = kept(dir.path());
        assert_eq!((orders.left(TEN).opening.unwrap().before, last(&orders).unwrap().heir), (None, promoted("b").heir));
        orders.was_opened(TEN).unwrap();
        let before = last(&orders).unwrap();
        orders.was_not_opened(TEN).unwrap();
        assert_eq!(last(&orders), Some(before.clone()), "that one is over");
        orders.will_open(TEN, promoted("c")).unwrap();
        let orders = kept(dir.path());
        assert!(orders.acknowledge(TEN).unwrap());
        orders.was_not_opened(TEN).unwrap();
        let orders = kept(dir.path());
        assert_eq!((orders.left(TEN), last(&orders)), (Left::default(), Some(Promoted { is_acknowledged: true, ..before })));
        // A file of an earlier version.
        let old = r#"{"clusters": {"10": {"promoted": {"heir": {"host": "b", "port": 1}, "at_ms": 7, "is_acknowledged": false}}}}"#;
        std::fs::write(dir.path().join(FILE), old).unwrap();
        assert_eq!((kept(dir.path()).left(TEN), last(&kept(dir.path())).unwrap().at_ms), (Left::default(), 7));
    }

    #[test]
    fn what_cannot_be_kept_is_not_ordered() {
        let dir = tempfile::tempdir().unwrap();
        let orders = kept(&dir.path().join("gone"));
        assert!(orders.suspend(None, None, "ann").unwrap_err().contains("nothing was changed"));
        assert_eq!(orders.suspended(TEN), None);
    }
}
