//! What a plan stopped and pointed elsewhere, as it is written down before the deed, and how it is undone by a process that did not do it.
//!
//! INVARIANT: a remembered change is undone only where a fresh look finds the channel as the plan left it.

use model::ServerAddr;
use serde::{Deserialize, Serialize};

use super::facts::{Channel, LinkState};

/// A channel that a plan changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopped {
    /// Its server.
    pub server: ServerAddr,
    /// Its name.
    pub channel: String,
    /// Where it pointed; None in files of earlier versions.
    #[serde(default)]
    pub before: Option<ServerAddr>,
    /// The applier is stopped too: the server was about to be opened.
    #[serde(default)]
    pub is_applier: bool,
    /// The server that it is pointed at, to fetch what is missing.
    #[serde(default)]
    pub fetches_from: Option<ServerAddr>,
}

/// What starts a channel again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resume {
    /// Nothing is to be done.
    Nothing,
    /// Its receiver is started.
    Receiver,
    /// Both threads are started.
    Both,
    /// It is pointed back, then both threads are started.
    Back(ServerAddr),
}

impl Stopped {
    /// The receiver alone, which pointed at this source.
    pub fn receiver(server: ServerAddr, channel: String, before: Option<ServerAddr>) -> Self {
        Self { server, channel, before, is_applier: false, fetches_from: None }
    }

    /// Whether it is about this channel.
    pub fn is_about(&self, server: &ServerAddr, channel: &str) -> bool {
        self.server == *server && self.channel.eq_ignore_ascii_case(channel)
    }

    /// By what a look finds now: the channel, if it is there, and whether the server takes writes.
    pub fn resume(&self, now: Option<&Channel>, is_open: bool) -> Resume {
        let Some(now) = now.filter(|_| !is_open) else { return Resume::Nothing };
        let is_at = |place: &Option<ServerAddr>| place.as_ref().is_some_and(|place| now.source.is_same(place));
        if is_at(&self.fetches_from)
            && !is_at(&self.before)
            && let Some(before) = &self.before
        {
            return Resume::Back(before.clone());
        }
        let is_still = |state: LinkState| state == LinkState::Stopped;
        match () {
            // Another program has pointed it elsewhere.
            () if self.before.is_some() && !is_at(&self.before) => Resume::Nothing,
            // An applier that stopped by itself is not mended by a start.
            () if self.is_applier && is_still(now.applier.state) && now.applier.error.is_none() => Resume::Both,
            () if is_still(now.receiver.state) => Resume::Receiver,
            () => Resume::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::healing::LinkThread;
    use LinkState::{Connecting, Runs, Stopped as Still};

    fn at(host: &str) -> ServerAddr {
        ServerAddr { host: host.into(), port: 1 }
    }

    fn channel(source: &str, receiver: LinkState, applier: LinkState, error: Option<u64>) -> Channel {
        Channel {
            name: String::new(),
            source: at(source),
            is_from_primary: false,
            is_by_gtid: true,
            position: String::new(),
            receiver: LinkThread { state: receiver, error: None },
            applier: LinkThread { state: applier, error },
            delay_s: 0,
            has_filters: false,
            lag_ms: None,
            heard_ms: None,
            heartbeat_ms: None,
        }
    }

    #[test]
    fn what_was_stopped_is_started_as_a_fresh_look_finds_it() {
        let frozen = Stopped::receiver(at("b"), String::new(), Some(at("a")));
        let taken = Stopped { is_applier: true, ..frozen.clone() };
        let fetches = Stopped { fetches_from: Some(at("c")), ..frozen.clone() };
        let old = Stopped { before: None, ..frozen.clone() };
        let back = || Resume::Back(at("a"));
        for (place, (what, now, wanted)) in [
            (&frozen, Some(channel("a", Still, Runs, None)), Resume::Receiver),
            (&frozen, Some(channel("a", Connecting, Runs, None)), Resume::Nothing),
            (&frozen, Some(channel("a", Still, Still, None)), Resume::Receiver),
            (&frozen, Some(channel("x", Still, Runs, None)), Resume::Nothing),
            (&frozen, None, Resume::Nothing),
            (&taken, Some(channel("a", Still, Still, None)), Resume::Both),
            (&taken, Some(channel("a", Still, Still, Some(1_062))), Resume::Receiver),
            (&taken, Some(channel("a", Still, Runs, None)), Resume::Receiver),
            (&taken, Some(channel("a", Connecting, Runs, None)), Resume::Nothing),
            (&fetches, Some(channel("c", Runs, Runs, None)), back()),
            (&fetches, Some(channel("c", Still, Still, None)), back()),
            (&fetches, Some(channel("a", Still, Runs, None)), Resume::Receiver),
            (&fetches, Some(channel("x", Still, Runs, None)), Resume::Nothing),
            (&old, Some(channel("x", Still, Runs, None)), Resume::Receiver),
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(what.resume(now.as_ref(), false), wanted, "row {place}");
            assert_eq!(what.resume(now.as_ref(), true), Resume::Nothing, "it takes writes: row {place}");
        }
    }

    #[test]
    fn it_is_written_down_as_it_is() {
        let all = Stopped { is_applier: true, fetches_from: Some(at("c")), ..Stopped::receiver(at("b"), "x".into(), Some(at("a"))) };
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<Stopped>(&text).unwrap(), all);
        let short = r#"{"server":{"host":"b","port":1},"channel":""}"#;
        assert_eq!(serde_json::from_str::<Stopped>(short).unwrap(), Stopped::receiver(at("b"), String::new(), None));
        assert!(all.is_about(&at("b"), "X") && !all.is_about(&at("c"), "x"));
    }
}
