//! What a server said of itself at logins, and whether another server is in its place by now.
//!
//! A version is what tells servers apart. What was learnt of one is kept for the latest versions that were met at the address.

use arc_swap::{ArcSwapOption, Guard};
use session_state::server_info::{ServerInfo, TrackDefaults};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Versions of which is remembered what was learnt.
const MAX_VERSIONS: usize = 4;
/// Where several versions answer at one address, a change between them is news again after this time, ms.
const NEWS_AGAIN_MS: u64 = 60_000;

/// Another server in the place of one.
pub(crate) struct Turned {
    /// What was there.
    pub before: Arc<ServerInfo>,
    /// It is no mere change between several behind one address.
    pub is_news: bool,
}

/// See the module.
#[derive(Default)]
pub(crate) struct HeardInfo {
    /// At the last login.
    latest: ArcSwapOption<ServerInfo>,
    /// The versions that were met at its address, the latest ones.
    versions: Mutex<Vec<Arc<ServerInfo>>>,
    /// How often another server was in its place, and when (process clock, ms) the last time.
    turns: AtomicU32,
    turned_ms: AtomicU64,
    /// A COM_CHANGE_USER of the proxy's own was refused.
    refuses_change_user: AtomicBool,
}

impl HeardInfo {
    /// What was said at the last login.
    pub(crate) fn load(&self) -> Guard<Option<Arc<ServerInfo>>> {
        self.latest.load()
    }

    /// The same, to keep.
    pub(crate) fn load_full(&self) -> Option<Arc<ServerInfo>> {
        self.latest.load_full()
    }

    /// The server said this at a login; whether it was another one before.
    pub(super) fn heard(&self, mut info: ServerInfo, now_ms: u64) -> (Arc<ServerInfo>, Option<Turned>) {
        let mut versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        let known = versions.iter().find(|known| known.version == info.version);
        let is_new = known.is_none();
        if let Some(known) = known {
            info.tracking = Arc::clone(&known.tracking);
        }
        let info = Arc::new(info);
        if is_new {
            if versions.len() >= MAX_VERSIONS {
                versions.remove(0);
            }
            versions.push(Arc::clone(&info));
        }
        let before = self.latest.swap(Some(Arc::clone(&info))).filter(|before| before.version != info.version);
        let turned = before.map(|before| {
            let is_news = is_new || now_ms >= self.turned_ms.load(Ordering::Relaxed).saturating_add(NEWS_AGAIN_MS);
            if is_news {
                self.turned_ms.store(now_ms, Ordering::Relaxed);
                self.refuses_change_user.store(false, Ordering::Relaxed);
                self.turns.fetch_add(1, Ordering::AcqRel);
            }
            Turned { before, is_news }
        });
        drop(versions);
        (info, turned)
    }

    /// What was said at a login is known better by now.
    pub(crate) fn correct(&self, info: &Arc<ServerInfo>) {
        self.latest.store(Some(Arc::clone(info)));
    }

    /// How often another server was in its place.
    pub(crate) fn turns(&self) -> u32 {
        self.turns.load(Ordering::Acquire)
    }

    /// Session tracking on the server, once a connection has asked; None where it has none.
    pub(crate) fn track_defaults(&self) -> Option<TrackDefaults> {
        let info = self.latest.load();
        let tracking = info.as_ref()?.tracking.get().filter(|tracking| !tracking.ours.is_empty())?;
        Some(tracking.defaults.clone())
    }

    /// Whether connections may be reset by COM_CHANGE_USER.
    pub(crate) fn takes_change_user(&self) -> bool {
        !self.refuses_change_user.load(Ordering::Relaxed)
    }

    /// The server refused one: what fails once fails always, and is an entry in the server's log each time.
    pub(crate) fn refused_change_user(&self) {
        self.refuses_change_user.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bed;
    use wire::charset::Flavor;

    /// One says at a login that it has this version; the version before and whether that is news, where it was another.
    fn hear(heard: &HeardInfo, version: &str, now_ms: u64) -> Option<(String, bool)> {
        let (info, turned) = heard.heard(bed::info(Flavor::MySql, version), now_ms);
        assert_eq!(*info.version, *version);
        turned.map(|turned| (turned.before.version.to_string(), turned.is_news))
    }

    #[test]
    fn another_version_is_another_server() {
        let heard = HeardInfo::default();
        assert!(heard.load().is_none());
        assert_eq!((hear(&heard, "8.0.1", 0), hear(&heard, "8.0.1", 5), heard.turns()), (None, None, 0));
        assert_eq!((hear(&heard, "8.4.0", 9), heard.turns()), (Some(("8.0.1".into(), true)), 1));
        assert_eq!(&*heard.load_full().unwrap().version, "8.4.0");
    }

    #[test]
    fn servers_that_answer_in_turn_are_news_once_a_minute() {
        let heard = HeardInfo::default();
        hear(&heard, "old", 0);
        hear(&heard, "new", 1000);
        for (version, now_ms, is_news) in [("old", 1001, false), ("new", 60_999, false), ("old", 61_000, true), ("new", 61_001, false)] {
            assert_eq!(hear(&heard, version, now_ms).map(|turned| turned.1), Some(is_news), "{version} at {now_ms}");
        }
        assert_eq!(heard.turns(), 2);
        assert_eq!(hear(&heard, "newest", 61_002).map(|turned| turned.1), Some(true), "that one was never met");
    }

    #[test]
    fn what_was_learnt_of_the_latest_versions_is_known_again() {
        let heard = HeardInfo::default();
        let (first, _) = heard.heard(bed::info(Flavor::MySql, "1"), 0);
        let known = |heard: &HeardInfo| Arc::ptr_eq(&heard.heard(bed::info(Flavor::MySql, "1"), 0).0.tracking, &first.tracking);
        for version in ["2", "3", "4"] {
            hear(&heard, version, 0);
        }
        assert!(known(&heard), "three others were met since");
        hear(&heard, "5", 0);
        assert!(!known(&heard), "four others were met since");
    }

    #[test]
    fn a_refused_change_user_is_tried_again_on_another_server() {
        let heard = HeardInfo::default();
        hear(&heard, "1", 0);
        heard.refused_change_user();
        hear(&heard, "1", 0);
        assert!(!heard.takes_change_user());
        hear(&heard, "2", 0);
        assert!(heard.takes_change_user());
        heard.refused_change_user();
        hear(&heard, "1", 1);
        assert!(!heard.takes_change_user(), "a change between two behind one address is none");
    }
}
