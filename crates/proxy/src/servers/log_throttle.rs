//! What is said again and again of a server is logged once in a while, with how often it was said meanwhile.

use std::sync::{Mutex, PoisonError};

/// The same is logged at most this often, ms.
const EVERY_MS: u64 = 10_000;
/// Different things that are remembered.
const MOST: usize = 16;

/// What was logged of one server lately.
#[derive(Debug, Default)]
pub(crate) struct LogThrottle(Mutex<Vec<Line>>);

#[derive(Debug)]
struct Line {
    about: Box<str>,
    at_ms: u64,
    /// Times that it was not logged since.
    held: u64,
}

impl LogThrottle {
    /// The line to log for this text, if it is due.
    pub(crate) fn due(&self, text: &str, now_ms: u64) -> Option<String> {
        self.due_about(text, text, now_ms)
    }

    /// The same for a text about something that is always called `about`. Where more than can be remembered is told, the rest is not.
    pub(crate) fn due_about(&self, about: &str, text: &str, now_ms: u64) -> Option<String> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = lines.iter_mut().find(|line| *line.about == *about) else {
            if lines.len() >= MOST
                && let Some((oldest, line)) = lines.iter_mut().enumerate().min_by_key(|(_, line)| line.at_ms)
            {
                if now_ms < line.at_ms + EVERY_MS {
                    line.held += 1;
                    return None;
                }
                lines.swap_remove(oldest);
            }
            lines.push(Line { about: about.into(), at_ms: now_ms, held: 0 });
            return Some(text.to_owned());
        };
        if now_ms < known.at_ms + EVERY_MS {
            known.held += 1;
            return None;
        }
        known.at_ms = now_ms;
        match std::mem::take(&mut known.held) {
            0 => Some(text.to_owned()),
            held => Some(format!("{text} ({held} more times since this was last logged)")),
        }
    }

    /// The server is well again: what comes next is news.
    pub(crate) fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_logged_once_in_a_while_and_counted() {
        let told = LogThrottle::default();
        assert_eq!(told.due("a", 5).as_deref(), Some("a"));
        assert_eq!((told.due("a", 6), told.due("a", 10_004)), (None, None));
        assert_eq!(told.due("b", 7).as_deref(), Some("b"), "another reason");
        assert_eq!(told.due("a", 10_005).as_deref(), Some("a (2 more times since this was last logged)"));
        assert_eq!(told.due("a", 20_005).as_deref(), Some("a"));
        told.forget();
        assert_eq!(told.due("a", 20_006).as_deref(), Some("a"));
        let logged = (0..1000).filter(|n| told.due(&n.to_string(), 30_000 + n).is_some()).count();
        assert_eq!((logged, told.0.lock().unwrap().len()), (MOST, MOST));
        assert_eq!(told.due_about("x", "x 1", 50_000).as_deref(), Some("x 1"));
        assert_eq!((told.due_about("x", "x 2", 50_001), told.0.lock().unwrap().len()), (None, MOST));
    }
}
