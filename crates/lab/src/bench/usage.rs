//! A process's cost so far, read from `/proc` (proc(5)).

use std::fs;

use crate::error::{IoContext, LabError};

/// Nanoseconds in a clock tick: 100 ticks a second on every Linux that this runs on.
const TICK_NS: u64 = 10_000_000;

/// Totals of one process since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time in nanoseconds: the scheduler's own account of all living threads.
    pub total_ns: u64,
    /// User time in ticks, ended threads included.
    pub user_ticks: u64,
    /// System time in ticks, ended threads included.
    pub system_ticks: u64,
    /// Context switches of all living threads, of their own will or not.
    pub switches: u64,
}

impl Usage {
    /// Reads those of process `pid`.
    pub fn read(pid: u32) -> Result<Usage, LabError> {
        let (user_ticks, system_ticks) = ticks(&file(&format!("/proc/{pid}/stat"))?);
        let mut usage = Usage { total_ns: 0, user_ticks, system_ticks, switches: 0 };
        let tasks = format!("/proc/{pid}/task");
        for task in fs::read_dir(&tasks).context(|| format!("read {tasks}"))?.flatten() {
            let dir = task.path();
            // A thread may end while we look.
            let account = fs::read_to_string(dir.join("schedstat")).unwrap_or_default();
            usage.total_ns += account.split(' ').next().and_then(|v| v.parse::<u64>().ok()).unwrap_or(0);
            usage.switches += switches(&fs::read_to_string(dir.join("status")).unwrap_or_default());
        }
        if usage.total_ns == 0 {
            usage.total_ns = (user_ticks + system_ticks) * TICK_NS;
        }
        Ok(usage)
    }

    /// The usage since `before`.
    pub fn since(&self, before: &Usage) -> Usage {
        Usage {
            total_ns: self.total_ns.saturating_sub(before.total_ns),
            user_ticks: self.user_ticks.saturating_sub(before.user_ticks),
            system_ticks: self.system_ticks.saturating_sub(before.system_ticks),
            switches: self.switches.saturating_sub(before.switches),
        }
    }

    /// Processor time in microseconds: all of it, and the user part. Ticks are too coarse for short times, the
    /// scheduler's account does not know the parts: so the ticks only divide the account.
    pub fn split_us(&self) -> (f64, f64) {
        let total = self.total_ns as f64 / 1000.0;
        let ticks = self.user_ticks + self.system_ticks;
        let share = if ticks == 0 { 0.0 } else { self.user_ticks as f64 / ticks as f64 };
        (total, total * share)
    }
}

/// Resident memory of process `pid` in bytes.
pub fn rss_bytes(pid: u32) -> Result<u64, LabError> {
    let status = file(&format!("/proc/{pid}/status"))?;
    Ok(field(&status, "VmRSS:") * 1024)
}

/// The kernel's load averages over 1, 5 and 15 minutes, as it prints them.
pub fn load_average() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

fn file(path: &str) -> Result<String, LabError> {
    fs::read_to_string(path).context(|| format!("read {path}"))
}

/// Fields 14 and 15 of `stat`; the second field may hold anything, so they are counted from behind its last bracket.
fn ticks(stat: &str) -> (u64, u64) {
    let behind = stat.rsplit(')').next().unwrap_or_default();
    let mut fields = behind.split_whitespace().skip(11).map(|v| v.parse::<u64>().unwrap_or(0));
    (fields.next().unwrap_or(0), fields.next().unwrap_or(0))
}

fn switches(status: &str) -> u64 {
    field(status, "voluntary_ctxt_switches:") + field(status, "nonvoluntary_ctxt_switches:")
}

/// The number behind a name at the beginning of a line.
fn field(text: &str, name: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    value.and_then(|v| v.split_whitespace().next()).and_then(|v| v.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_stat_and_status() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 55 66 0 0 20 0 3 0";
        assert_eq!(ticks(stat), (55, 66));
        assert_eq!(switches("x:\t1\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t2\n"), 9);
    }

    #[test]
    fn own_use_grows() {
        let before = Usage::read(std::process::id()).unwrap();
        let mut sum = 0_u64;
        while Usage::read(std::process::id()).unwrap().since(&before).total_ns < 1_000_000 {
            sum = sum.wrapping_add(std::hint::black_box(1));
        }
        assert!(rss_bytes(std::process::id()).unwrap() > 0, "{sum} rounds");
    }

    #[test]
    fn ticks_divide_the_account() {
        let usage = Usage { total_ns: 100_000, user_ticks: 1, system_ticks: 3, switches: 0 };
        assert_eq!(usage.split_us(), (100.0, 25.0));
    }
}
