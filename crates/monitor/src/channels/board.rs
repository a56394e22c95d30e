//! How each channel is now, for operators: `stats_tidegate_channels` and its metric. It has a place for each row of
//! `mysql_replication_channels`, no more.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use model::snapshot::Snapshot;
use model::stats::{Metric, MetricKind, Sample, Value};
use model::{HostgroupId, ServerAddr};

use super::judge::{Judgement, State};
use crate::clock::whole;

/// A channel: its cluster and its name.
pub(super) type Key = (HostgroupId, Arc<str>);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Board(BTreeMap<Key, Line>);

#[derive(Debug)]
struct Line {
    state: State,
    server: Option<ServerAddr>,
    reason: String,
    since: Instant,
}

impl Board {
    /// Notes how a channel is; how it was before, if that is something else. A reason that differs in numbers only (a server's
    /// attempts, say) is no news.
    pub(super) fn note(&mut self, key: Key, judged: &Judgement) -> Option<&'static str> {
        let Judgement { state, server, reason, .. } = judged;
        let line = Line { state: *state, server: server.clone(), reason: reason.clone(), since: Instant::now() };
        let Some(known) = self.0.get_mut(&key) else {
            self.0.insert(key, line);
            return Some("");
        };
        let was = known.state;
        let is_as_before = was == *state && known.server == *server;
        let is_news = !is_as_before || !words(&known.reason).eq(words(reason));
        let since = if is_as_before { known.since } else { line.since };
        *known = Line { since, ..line };
        is_news.then(|| was.as_str())
    }

    /// Drops channels that are no longer listed, and all channels while the monitor is off.
    pub(super) fn forget(&mut self, snapshot: &Snapshot) {
        let is_listed = |(writer, name): &Key| snapshot.channels.iter().any(|channel| channel.writer == *writer && channel.name == *name);
        self.0.retain(|key, _| snapshot.vars.monitor_enabled && is_listed(key));
    }

    /// The rows of `stats_tidegate_channels`.
    pub(crate) fn rows(&self) -> Vec<Vec<Value>> {
        let row = |((writer, name), line): (&Key, &Line)| {
            vec![
                writer.0.into(),
                (&**name).into(),
                line.server.as_ref().map(|server| server.host.to_string()).into(),
                line.server.as_ref().map(|server| server.port).into(),
                line.state.as_str().into(),
                whole(line.since.elapsed().as_millis()).into(),
                line.reason.as_str().into(),
            ]
        };
        self.0.iter().map(row).collect()
    }

    /// How many are in each state.
    pub(crate) fn metric(&self) -> Metric {
        let count = |state: State| self.0.values().filter(|line| line.state == state).count();
        let sample = |state: State| Sample { suffix: "", labels: vec![("state", state.as_str().to_owned())], value: count(state) as f64 };
        Metric {
            name: "tidegate_replication_channels",
            help: "Channels of mysql_replication_channels, by state. Failed and blocked channels need an operator",
            kind: MetricKind::Gauge,
            samples: if self.0.is_empty() { Vec::new() } else { State::ALL.into_iter().map(sample).collect() },
        }
    }
}

/// A text without its numbers.
fn words(text: &str) -> impl Iterator<Item = char> + '_ {
    text.chars().filter(|c| !c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_are_told_once() {
        let (mut board, key) = (Board::default(), (HostgroupId(10), "east".into()));
        let server = ServerAddr { host: "a".into(), port: 3306 };
        let mut note = |state, reason: &str| board.note(Key::clone(&key), &Judgement::rest(state, Some(&server), reason));
        assert_eq!(note(State::Running, ""), Some(""));
        assert_eq!(note(State::Running, ""), None);
        assert_eq!(note(State::Connecting, "attempt 1/86400"), Some("running"));
        assert_eq!(note(State::Connecting, "attempt 2/86400"), None);
        assert_eq!(note(State::Connecting, "access denied"), Some("connecting"));
        assert_eq!(board.rows().len(), 1);
        let shown: Vec<_> = board.metric().samples.into_iter().filter(|sample| sample.value == 1.0).collect();
        assert!(shown.len() == 1 && shown[0].labels == [("state", "connecting".to_owned())], "{shown:?}");
    }
}
