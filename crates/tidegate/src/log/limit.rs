//! How many lines of one kind the log takes in a second.
//!
//! What many clients or servers do at once is logged once for each of them. A kind is a place in the code that logs. Lines beyond its
//! share are counted, and one line a second tells how many they were. Lines that an operator asks for are all written.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// Lines of one kind in a second, until [`Limit::set`] says otherwise.
const LINES: u64 = 200;
/// Characters of a line that was left out, as an example.
const EXAMPLE: usize = 200;

/// See the module. Clones share their counts.
#[derive(Clone, Default)]
pub(super) struct Limit(Arc<Mutex<Kinds>>);

struct Kinds {
    lines: u64,
    left_out: u64,
    kinds: HashMap<Identifier, Kind>,
}

/// The lines of one kind in this second.
#[derive(Default)]
struct Kind {
    lines: u64,
    left_out: u64,
    example: String,
}

impl Default for Kinds {
    fn default() -> Self {
        Self { lines: LINES, left_out: 0, kinds: HashMap::new() }
    }
}

impl Limit {
    /// How many lines of each kind pass in a second; 0 for all.
    pub(super) fn set(&self, lines: u64) {
        self.with(|kinds| kinds.lines = lines);
    }

    /// Lines that were left out so far.
    pub(super) fn left_out(&self) -> u64 {
        self.with(|kinds| kinds.left_out)
    }

    /// Ends a second. Returns the lines about the lines left out in it.
    pub(super) fn next_second(&self) -> Vec<String> {
        let kinds = self.with(|kinds| std::mem::take(&mut kinds.kinds));
        let tell = |kind: Kind| format!("{} more lines like this one were left out of the log: {}", kind.left_out, kind.example);
        kinds.into_values().filter(|kind| kind.left_out > 0).map(tell).collect()
    }

    fn with<T>(&self, act: impl FnOnce(&mut Kinds) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<S: Subscriber> Layer<S> for Limit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        self.with(|kinds| {
            if kinds.lines == 0 || event.metadata().target() == proxy::REPORT {
                return true;
            }
            let kind = kinds.kinds.entry(event.metadata().callsite()).or_default();
            kind.lines += 1;
            let passes = kind.lines <= kinds.lines;
            if !passes {
                if kind.left_out == 0 {
                    event.record(&mut Example(&mut kind.example));
                }
                kind.left_out += 1;
                kinds.left_out += 1;
            }
            passes
        })
    }
}

/// Keeps the beginning of an event's text.
struct Example<'a>(&'a mut String);

impl Visit for Example<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            *self.0 = format!("{value:?}").chars().take(EXAMPLE).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::SubscriberExt;

    /// Counts the lines that pass.
    #[derive(Clone, Default)]
    struct Passed(Arc<Mutex<Vec<String>>>);

    impl<S: Subscriber> Layer<S> for Passed {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            let mut text = String::new();
            event.record(&mut Example(&mut text));
            self.0.lock().unwrap().push(text);
        }
    }

    #[test]
    fn a_crowd_of_one_kind_is_counted_and_leaves_room_for_other_kinds() {
        let (limit, passed) = (Limit::default(), Passed::default());
        limit.set(3);
        let end = |id: u64| tracing::info!("session {id} closed");
        tracing::subscriber::with_default(tracing_subscriber::registry().with(passed.clone()).with(limit.clone()), || {
            (1..=10).for_each(end);
            tracing::warn!("something else");
            let told = limit.next_second();
            assert_eq!(told, ["7 more lines like this one were left out of the log: session 4 closed"]);
            assert_eq!(limit.next_second(), [""; 0]);
            (0..10).for_each(|_| tracing::info!(target: proxy::REPORT, "asked for"));
            end(11);
            limit.set(0);
            (12..=20).for_each(end);
        });
        let lines = passed.0.lock().unwrap().clone();
        assert_eq!(lines[..4], ["session 1 closed", "session 2 closed", "session 3 closed", "something else"]);
        assert_eq!(lines[4..14], ["asked for"; 10]);
        assert_eq!((lines.len(), limit.left_out()), (24, 7));
    }
}
