//! Logins that fail, at the admin port and at the web page: how many from one place are tried, and how fast.
//!
//! No address is locked out. Up to a number of failures a minute, logins from one address are judged at once. Beyond that they are judged one
//! at a time, and each failure delays the next login by a second. So guessing is slow, and a user behind the same address still gets in.
//! A login counts while it is judged, so that a burst of guesses does not pass before the first of them fails.
//! Addresses beyond the memory's bound share one entry.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// How long a login that failed keeps the next one from there waiting.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);
/// Failures are counted for this long.
const WINDOW: Duration = Duration::from_secs(60);
/// Most places that are remembered.
const PLACES: usize = 4_096;
/// Logins of one place that are judged at the same time, beyond the failures that it still has. Programs that connect together need some.
const BURST: u64 = 32;
/// Most logins of one place that wait for their turn.
const WAITING: usize = 8;
/// Most hashes at a time: each keeps a thread busy for some milliseconds.
const HASHES: usize = 4;

/// The origin of a login. None is a Unix socket.
type Place = Option<IpAddr>;

/// One place's.
#[derive(Debug)]
struct One {
    /// Failures, and when the first of them was.
    failed: Mutex<(u32, Instant)>,
    /// Logins that are judged without the gate.
    judged: AtomicU64,
    gate: Arc<Semaphore>,
    /// Logins that are at the gate, or wait for it.
    waiting: AtomicUsize,
}

/// All that fail. One a process.
#[derive(Debug)]
pub(crate) struct Attempts {
    places: Mutex<HashMap<Place, Arc<One>>>,
    /// Of places that are not remembered.
    others: Arc<One>,
    hashes: Semaphore,
    pause: Duration,
    failed: AtomicU64,
    refused: AtomicU64,
}

/// A login that is judged. If it is dropped without a word, it has failed: a client that leaves before its answer may know it.
#[derive(Debug)]
pub(crate) struct Attempt {
    all: Arc<Attempts>,
    one: Arc<One>,
    permit: Option<OwnedSemaphorePermit>,
    is_counted: bool,
    is_good: bool,
}

impl One {
    fn new() -> Self {
        Self {
            failed: Mutex::new((0, Instant::now())),
            judged: AtomicU64::new(0),
            gate: Arc::new(Semaphore::new(1)),
            waiting: AtomicUsize::new(0),
        }
    }

    fn failures(&self) -> u32 {
        let (count, since) = *locked(&self.failed);
        if since.elapsed() < WINDOW { count } else { 0 }
    }

    /// Counts a login that is judged at once; false where `most` failures and those that are judged leave none.
    fn judge(&self, most: u64) -> bool {
        if most == 0 {
            self.judged.fetch_add(1, Ordering::Relaxed);
            return true;
        }
        let failures = u64::from(self.failures());
        let may = if failures < most { most - failures + BURST } else { 0 };
        self.judged.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| (now < may).then_some(now + 1)).is_ok()
    }

    fn note(&self) {
        let mut failed = locked(&self.failed);
        if failed.0 == 0 || failed.1.elapsed() >= WINDOW {
            *failed = (0, Instant::now());
        }
        failed.0 = failed.0.saturating_add(1);
    }
}

impl Default for Attempts {
    fn default() -> Self {
        Self::with_pause(PAUSE)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A host has as many IPv6 addresses as it likes, all with the same 64 bits in front.
fn place_of(from: Option<IpAddr>) -> Place {
    Some(match from?.to_canonical() {
        IpAddr::V6(ip) => {
            let [a, b, c, d, ..] = ip.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        ip => ip,
    })
}

impl Attempts {
    fn with_pause(pause: Duration) -> Self {
        let (failed, refused) = Default::default();
        Self { places: Mutex::default(), others: Arc::new(One::new()), hashes: Semaphore::new(HASHES), pause, failed, refused }
    }

    /// A login from there may be judged: at once, or after those before it if more than `most` failed within a minute (0: any number).
    /// None: too many wait already.
    pub(crate) async fn begin(self: &Arc<Self>, from: Option<IpAddr>, most: u64) -> Option<Attempt> {
        let one = self.one(place_of(from));
        let mut attempt = Attempt { all: Arc::clone(self), one, permit: None, is_counted: false, is_good: true };
        let one = Arc::clone(&attempt.one);
        if one.judge(most) {
            attempt.is_counted = true;
            attempt.is_good = false;
            return Some(attempt);
        }
        let place = Waiting::take(&one).or_else(|| {
            self.refused.fetch_add(1, Ordering::Relaxed);
            None
        })?;
        // It is never closed.
        attempt.permit = Some(Arc::clone(&one.gate).acquire_owned().await.ok()?);
        drop(place);
        attempt.is_good = false;
        Some(attempt)
    }

    /// A turn to hash a password.
    pub(crate) async fn hashing(&self) -> Option<SemaphorePermit<'_>> {
        self.hashes.acquire().await.ok()
    }

    /// Logins that failed, and those that were refused unjudged.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.failed.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed))
    }

    fn one(&self, place: Place) -> Arc<One> {
        let mut places = locked(&self.places);
        if let Some(one) = places.get(&place) {
            return Arc::clone(one);
        }
        if places.len() >= PLACES {
            places.retain(|_, one| one.failures() > 0 || Arc::strong_count(one) > 1);
        }
        if places.len() >= PLACES {
            // Memory is limited: all further origins share one count.
            return Arc::clone(&self.others);
        }
        let one = Arc::new(One::new());
        places.insert(place, Arc::clone(&one));
        one
    }
}

/// A place in the line before a gate.
struct Waiting<'a>(&'a One);

impl<'a> Waiting<'a> {
    fn take(one: &'a One) -> Option<Self> {
        let taken = one.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| (now < WAITING).then_some(now + 1));
        taken.is_ok().then_some(Self(one))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Attempt {
    /// The password was right.
    pub(crate) fn succeeds(mut self) {
        self.is_good = true;
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if self.is_counted {
            self.one.judged.fetch_sub(1, Ordering::Relaxed);
        }
        if self.is_good {
            return;
        }
        self.one.note();
        self.all.failed.fetch_add(1, Ordering::Relaxed);
        // The next one waits, whether this client still does or not.
        if let (Some(permit), Ok(runtime)) = (self.permit.take(), tokio::runtime::Handle::try_current()) {
            let pause = self.all.pause;
            runtime.spawn(async move {
                tokio::time::sleep(pause).await;
                drop(permit);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = 10;

    fn run<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
    }

    async fn fails(attempts: &Arc<Attempts>, from: Option<IpAddr>) {
        drop(attempts.begin(from, MOST).await.unwrap());
    }

    #[test]
    fn who_guesses_is_slow_and_who_shares_his_address_gets_in() {
        run(async {
            let pause = Duration::from_millis(50);
            let attempts = Arc::new(Attempts::with_pause(pause));
            let from = Some("192.0.2.1".parse().unwrap());
            let began = Instant::now();
            for _ in 0..MOST {
                fails(&attempts, from).await;
            }
            // Each of these waits for the one before it.
            for _ in 0..6 {
                fails(&attempts, from).await;
            }
            assert!(began.elapsed() >= pause * 5, "{:?}", began.elapsed());
            attempts.begin(from, MOST).await.unwrap().succeeds();
            assert_eq!(attempts.one(place_of(from)).gate.available_permits(), 1, "after a right one nobody waits");
            // Other places know nothing of it, a socket neither.
            for other in [Some("192.0.2.2".parse().unwrap()), None] {
                attempts.begin(other, MOST).await.unwrap().succeeds();
            }
            assert_eq!(attempts.counts(), (MOST + 6, 0));
        });
    }

    #[test]
    fn a_burst_of_guesses_is_judged_in_part() {
        run(async {
            let attempts = Arc::new(Attempts::default());
            let mut judged = Vec::new();
            for _ in 0..MOST + BURST {
                judged.push(attempts.begin(None, MOST).await.unwrap());
            }
            assert!(!attempts.one(None).judge(MOST), "one too many");
            judged.pop().unwrap().succeeds();
            judged.push(attempts.begin(None, MOST).await.unwrap());
            drop(judged);
            assert_eq!(attempts.counts(), (MOST + BURST, 0));
            assert_eq!(attempts.one(None).judged.load(Ordering::Relaxed), 0);
            assert!(!attempts.one(None).judge(MOST), "all failed");
        });
    }

    #[test]
    fn a_line_has_an_end() {
        run(async {
            let attempts = Arc::new(Attempts::default());
            for _ in 0..MOST {
                fails(&attempts, None).await;
            }
            let at_the_gate = attempts.begin(None, MOST).await.unwrap();
            let begin = |_| {
                let attempts = Arc::clone(&attempts);
                tokio::spawn(async move { attempts.begin(None, MOST).await.is_some() })
            };
            let mut tries: Vec<_> = (0..WAITING).map(begin).collect();
            while attempts.one(None).waiting.load(Ordering::Relaxed) < WAITING {
                tokio::task::yield_now().await;
            }
            assert!(attempts.begin(None, MOST).await.is_none(), "one too many");
            // A login that leaves the queue makes room.
            tries.pop().unwrap().abort();
            while attempts.one(None).waiting.load(Ordering::Relaxed) == WAITING {
                tokio::task::yield_now().await;
            }
            assert_eq!(attempts.counts(), (MOST, 1));
            at_the_gate.succeeds();
            assert!(tries.remove(0).await.unwrap());
        });
    }

    #[test]
    fn a_network_of_ipv6_is_one_place_and_there_are_only_so_many() {
        let place = |text: &str| place_of(Some(text.parse().unwrap()));
        assert_eq!(place("2001:db8:1:2::1"), place("2001:db8:1:2:ffff::2"));
        assert_ne!(place("2001:db8:1:2::1"), place("2001:db8:1:3::1"));
        assert_eq!(place("::ffff:192.0.2.1"), place("192.0.2.1"));
        run(async {
            let attempts = Arc::new(Attempts::default());
            for n in 0..PLACES as u32 * 2 {
                fails(&attempts, Some(IpAddr::V4(n.into()))).await;
                if n as usize > PLACES + 20 {
                    break;
                }
            }
            assert_eq!(locked(&attempts.places).len(), PLACES);
            assert!(attempts.others.failures() > 0);
        });
    }
}
