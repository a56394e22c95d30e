//! Limits the error log's lines about refused logins: any client that reaches a port can cause refusals as often as it likes.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long is counted.
pub const WINDOW: Duration = Duration::from_secs(10);
/// Lines of one address in that time.
const OF_ONE: u32 = 10;
/// Lines of all in that time.
const OF_ALL: u32 = 50;
/// The servers' limit for a name of a user, in characters: the longer one, MariaDB's.
const NAME_MAX: usize = 128;

/// The lines of late.
#[derive(Debug, Default)]
pub struct Refusals(Mutex<Lines>);

#[derive(Debug, Default)]
struct Lines {
    since_ms: u64,
    of_all: u32,
    of_one: Vec<(Option<IpAddr>, u32)>,
    left_out: u64,
}

/// The fate of one refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// It gets a line of its own.
    Logged,
    /// It is not, as the first: [`Refusals::summary`] is asked for when the time is over.
    FirstLeftOut,
    /// It is counted only.
    LeftOut,
}

impl Refusals {
    /// Counts one; None for a Unix socket.
    pub fn next(&self, from: Option<IpAddr>, now_ms: u64) -> Told {
        let window_ms = u64::try_from(WINDOW.as_millis()).unwrap_or(u64::MAX);
        let lines = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.left_out == 0 && now_ms >= lines.since_ms + window_ms {
            *lines = Lines { since_ms: now_ms, ..Lines::default() };
        }
        let of_one = match lines.of_one.iter_mut().find(|(known, _)| *known == from) {
            Some((_, of_one)) => {
                *of_one += 1;
                *of_one
            }
            None if lines.of_all < OF_ALL => {
                lines.of_one.push((from, 1));
                1
            }
            None => OF_ONE + 1,
        };
        if of_one <= OF_ONE && lines.of_all < OF_ALL {
            lines.of_all += 1;
            return Told::Logged;
        }
        lines.left_out += 1;
        if lines.left_out == 1 { Told::FirstLeftOut } else { Told::LeftOut }
    }

    /// How many were left out, in words; from here on they are logged again.
    pub fn summary(&self) -> String {
        let left_out = self.left_out();
        format!("{left_out} more clients that did not log in were not logged in the last {} s", WINDOW.as_secs())
    }

    fn left_out(&self) -> u64 {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)).left_out
    }
}

/// A name that a peer said, no longer than servers take one.
pub fn shown_name(name: &[u8]) -> String {
    shortened(&String::from_utf8_lossy(name), NAME_MAX).to_owned()
}

/// The beginning of a text that a peer said.
pub fn shortened(text: &str, chars: usize) -> &str {
    text.char_indices().nth(chars).and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_are_logged_and_the_rest_is_counted() {
        let (refusals, from) = (Refusals::default(), |n: u8| Some(IpAddr::from([10, 0, 0, n])));
        let next = |n: u8, times: usize, now_ms: u64| -> Vec<Told> {
            let mut told: Vec<Told> = (0..times).map(|_| refusals.next(from(n), now_ms)).collect();
            told.dedup();
            told
        };
        assert_eq!(next(1, 10, 0), [Told::Logged]);
        assert_eq!(next(1, 5, 9_999), [Told::FirstLeftOut, Told::LeftOut]);
        assert_eq!(next(2, 10, 9_999), [Told::Logged], "another one's are not hidden");
        // They are reported before they are forgotten.
        assert_eq!(next(1, 1, 10_000), [Told::LeftOut]);
        assert_eq!((refusals.left_out(), refusals.left_out()), (6, 0));
        for n in 0..5 {
            assert_eq!(next(n, 10, 20_000), [Told::Logged]);
        }
        assert_eq!(next(9, 100, 20_000), [Told::FirstLeftOut, Told::LeftOut], "all together have a limit as well");
        assert_eq!((refusals.left_out(), next(9, 1, 20_001)), (100, vec![Told::Logged]));
        assert_eq!(next(9, 9, 30_000), [Told::Logged]);
        assert_eq!(next(9, 10, 30_001), [Told::Logged]);
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!((shortened("späť", 3), shortened("späť", 4), shortened("", 4)), ("spä", "späť", ""));
    }
}
