//! What the process has of memory and of its workers' time, and what is done before either ends.
//!
//! Memory is measured by what the system counts for the process, every 100 ms, and by what buffers have grown since. Towards the
//! budget large commands are refused first, then the query cache is emptied, then nobody logs in any more: who is within fair use
//! notices nothing. Workers say in each sweep that they are alive; one that does not is stuck in one piece of work.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::net::buffer::grown_bytes;

/// Commands up to this size are never refused for memory, bytes.
pub(crate) const LARGE: usize = 64 * 1024;
/// Share of the control group's or the machine's memory that is the budget by default, percent.
const DEFAULT_PERCENT: u64 = 80;
/// Counts below a step after which its end is told.
const CALM_AFTER: u8 = 10;
/// A size of memory that stands for no limit: the whole address space, as cgroup v1 writes it.
const NO_LIMIT: u64 = 1 << 60;

/// What is done for want of memory. Each step includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Step {
    /// Nothing.
    Fine,
    /// Commands longer than [`LARGE`] are refused.
    LargeCommands,
    /// The query cache is emptied.
    Caches,
    /// New logins are refused.
    Logins,
}

impl Step {
    const ALL: [Step; 4] = [Step::Fine, Step::LargeCommands, Step::Caches, Step::Logins];

    /// At so much of the budget, percent.
    fn begins_at(self) -> u64 {
        match self {
            Self::Fine => 0,
            Self::LargeCommands => 80,
            Self::Caches => 88,
            Self::Logins => 95,
        }
    }

    fn of(used: u64, budget: u64) -> Self {
        let percent = used.saturating_mul(100) / budget.max(1);
        Self::ALL.into_iter().rev().find(|step| percent >= step.begins_at()).unwrap_or(Self::Fine)
    }

    /// In words, for the log.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Fine => "the proxy refuses nothing",
            Self::LargeCommands => "the proxy refuses commands longer than 64 KiB",
            Self::Caches => "the proxy refuses commands longer than 64 KiB and empties the query cache",
            Self::Logins => "the proxy refuses new logins and commands longer than 64 KiB, and empties the query cache",
        }
    }
}

/// The account of memory.
#[derive(Debug)]
pub(crate) struct MemoryAccount {
    budget: AtomicU64,
    /// What the system counted last.
    counted: AtomicU64,
    /// What buffers had grown to then.
    grown_then: AtomicU64,
    /// The highest step since the last count.
    reached: AtomicU8,
    /// What is told, and how many counts were below it since.
    told: AtomicU8,
    calm: AtomicU8,
    /// Commands that were refused.
    pub refused_commands: AtomicU64,
    /// Logins that were refused.
    pub refused_logins: AtomicU64,
}

impl Default for MemoryAccount {
    fn default() -> Self {
        let zero = AtomicU64::default;
        let (counted, grown_then, refused_commands, refused_logins) = (zero(), zero(), zero(), zero());
        let (reached, told, calm) = Default::default();
        Self { budget: AtomicU64::new(NO_LIMIT), counted, grown_then, reached, told, calm, refused_commands, refused_logins }
    }
}

impl MemoryAccount {
    /// Takes the setting over: bytes, or 0 for a share of what there is.
    pub(crate) fn configure(&self, setting: u64, there_is: Option<u64>) {
        let share = || there_is.map_or(NO_LIMIT, |bytes| bytes / 100 * DEFAULT_PERCENT);
        self.budget.store(if setting > 0 { setting } else { share() }, Ordering::Relaxed);
    }

    /// The budget, bytes.
    pub(crate) fn budget(&self) -> u64 {
        self.budget.load(Ordering::Relaxed)
    }

    /// What is used, bytes.
    pub(crate) fn used(&self) -> u64 {
        let since = (grown_bytes() as u64).saturating_sub(self.grown_then.load(Ordering::Relaxed));
        self.counted.load(Ordering::Relaxed).saturating_add(since)
    }

    /// What is done for want of it now.
    pub(crate) fn step(&self) -> Step {
        let step = Step::of(self.used(), self.budget());
        if step > Step::Fine {
            self.reached.fetch_max(step as u8, Ordering::Relaxed);
        }
        step
    }

    /// Takes what the system counts. The step, where it is to be told: a higher one at once, a lower one when it lasts.
    pub(crate) fn count(&self, bytes: u64) -> Option<Step> {
        self.grown_then.store(grown_bytes() as u64, Ordering::Relaxed);
        self.counted.store(bytes, Ordering::Relaxed);
        self.step();
        let (reached, told) = (self.reached.swap(0, Ordering::Relaxed), self.told.load(Ordering::Relaxed));
        let is_lower_for =
            if reached < told { self.calm.fetch_add(1, Ordering::Relaxed) + 1 } else { self.calm.swap(0, Ordering::Relaxed) };
        if reached <= told && (reached == told || is_lower_for < CALM_AFTER) {
            return None;
        }
        self.calm.store(0, Ordering::Relaxed);
        self.told.store(reached, Ordering::Relaxed);
        Step::ALL.get(usize::from(reached)).copied()
    }
}

/// What the system counts as this process's memory, bytes (proc(5), statm).
pub(crate) fn resident() -> Option<u64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// The memory that the process may have: the least limit of its control groups, or what the machine has; bytes.
pub(crate) fn there_is() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total(&text));
    let own = fs::read_to_string("/proc/self/cgroup").ok();
    let groups = own.iter().flat_map(|text| text.lines()).filter_map(group_file).filter_map(|(root, path, file)| least(&root, &path, file));
    groups.chain(machine).min()
}

/// `MemTotal` of /proc/meminfo, bytes.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Where a line of /proc/self/cgroup has its limit: the tree, the group in it, the file (cgroups(7)).
fn group_file(line: &str) -> Option<(PathBuf, PathBuf, &'static str)> {
    let mut parts = line.splitn(3, ':');
    let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    let path = PathBuf::from(path.trim_start_matches('/'));
    match controllers {
        "" => Some(("/sys/fs/cgroup".into(), path, "memory.max")),
        v1 if v1.split(',').any(|one| one == "memory") => Some(("/sys/fs/cgroup/memory".into(), path, "memory.limit_in_bytes")),
        _ => None,
    }
}

/// The least limit of a group and those above it. Within a container the tree begins with its own group.
fn least(root: &Path, path: &Path, file: &str) -> Option<u64> {
    let limits = path.ancestors().filter_map(|group| fs::read_to_string(root.join(group).join(file)).ok());
    limits.filter_map(|text| text.trim().parse().ok()).filter(|limit| *limit < NO_LIMIT).min()
}

/// When each worker last said that it is alive, ms.
#[derive(Debug)]
pub(crate) struct Beats {
    last_ms: Box<[AtomicU64]>,
    longest_ms: AtomicU64,
}

impl Beats {
    /// For so many workers, all alive now.
    pub(crate) fn new(workers: usize) -> Self {
        Self { last_ms: (0..workers).map(|_| AtomicU64::default()).collect(), longest_ms: AtomicU64::default() }
    }

    pub(crate) fn beat(&self, worker: usize, now_ms: u64) {
        let Some(last_ms) = self.last_ms.get(worker) else { return };
        let before_ms = last_ms.swap(now_ms.max(1), Ordering::Relaxed);
        if before_ms > 0 {
            self.longest_ms.fetch_max(now_ms.saturating_sub(before_ms), Ordering::Relaxed);
        }
    }

    /// For how long a worker has been stuck, ms; None while it is not. One that has not begun is not.
    pub(crate) fn stuck_ms(&self, worker: usize, now_ms: u64, limit_ms: u64) -> Option<u64> {
        let last_ms = self.last_ms.get(worker)?.load(Ordering::Relaxed);
        Some(now_ms.saturating_sub(last_ms)).filter(|ms| last_ms > 0 && limit_ms > 0 && *ms > limit_ms)
    }

    /// The workers that are stuck, and for how long (ms).
    pub(crate) fn stuck(&self, now_ms: u64, limit_ms: u64) -> impl Iterator<Item = (usize, u64)> {
        (0..self.last_ms.len()).filter_map(move |worker| Some((worker, self.stuck_ms(worker, now_ms, limit_ms)?)))
    }

    /// The longest time between two signs of life of one worker, ms.
    pub(crate) fn longest_ms(&self) -> u64 {
        self.longest_ms.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_come_one_after_the_other() {
        let steps: Vec<Step> = [0, 79, 80, 87, 88, 94, 95, 300].map(|used| Step::of(used, 100)).to_vec();
        use Step::{Caches, Fine, LargeCommands, Logins};
        assert_eq!(steps, [Fine, Fine, LargeCommands, LargeCommands, Caches, Caches, Logins, Logins]);
        assert!(Step::ALL.is_sorted());
    }

    #[test]
    fn buffers_that_grow_between_two_counts_are_counted() {
        let memory = MemoryAccount::default();
        assert_eq!(memory.count(1 << 40), None, "without a limit all is fine");
        memory.configure(100 << 20, None);
        assert_eq!(memory.count(70 << 20), None);
        let pool = crate::net::buffer::BufferPool::default();
        let mut buffer = crate::net::buffer::Buffer::default();
        buffer.reserve(20 << 20, &pool);
        assert!(memory.step() >= Step::LargeCommands, "{memory:?}");
        drop(buffer);
        assert!(memory.count(10 << 20) >= Some(Step::LargeCommands), "it was so between two counts");
        assert_eq!(memory.count(96 << 20), Some(Step::Logins));
        assert_eq!(memory.count(97 << 20), None, "it is told once");
        let ends: Vec<_> = (0..=CALM_AFTER).filter_map(|_| memory.count(10 << 20)).collect();
        assert_eq!(ends, [Step::Fine]);
    }

    #[test]
    fn the_budget_is_a_share_of_what_there_is() {
        let memory = MemoryAccount::default();
        memory.configure(0, Some(1000));
        assert_eq!(memory.budget(), 800);
        memory.configure(0, None);
        assert_eq!(memory.budget(), NO_LIMIT);
        assert!(there_is().unwrap() > 1 << 20 && resident().unwrap() > 1 << 16);
        assert_eq!(total("MemTotal:       24616692 kB\nMemFree: 1 kB\n"), Some(24_616_692 * 1024));
        assert_eq!(total(""), None);
    }

    #[test]
    fn limits_of_groups_above_hold_too() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("a/b")).unwrap();
        fs::write(root.path().join("a/memory.max"), "4096\n").unwrap();
        fs::write(root.path().join("a/b/memory.max"), "max\n").unwrap();
        assert_eq!(least(root.path(), Path::new("a/b"), "memory.max"), Some(4096));
        fs::write(root.path().join("a/b/memory.max"), "1024\n").unwrap();
        assert_eq!(least(root.path(), Path::new("a/b"), "memory.max"), Some(1024));
        assert_eq!(least(root.path(), Path::new("x/y"), "memory.max"), None);
        assert_eq!(group_file("0::/a/b"), Some(("/sys/fs/cgroup".into(), "a/b".into(), "memory.max")));
        let v1 = group_file("5:cpu,memory:/docker/1").unwrap();
        assert_eq!(v1, ("/sys/fs/cgroup/memory".into(), "docker/1".into(), "memory.limit_in_bytes"));
        assert_eq!(group_file("4:cpu:/x"), None);
    }

    #[test]
    fn a_worker_that_is_silent_is_stuck() {
        let beats = Beats::new(2);
        assert_eq!(beats.stuck(90_000, 1_000).count(), 0, "they have not begun");
        beats.beat(0, 100);
        beats.beat(1, 200);
        beats.beat(1, 1_200);
        assert_eq!(beats.stuck(1_300, 1_000).collect::<Vec<_>>(), [(0, 1_200)]);
        assert_eq!(beats.stuck(1_300, 0).count(), 0, "it is switched off");
        beats.beat(0, 5_100);
        assert_eq!((beats.longest_ms(), beats.stuck_ms(0, 5_200, 1_000)), (5_000, None));
    }
}
