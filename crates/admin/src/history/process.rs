//! The process's CPU time from the system. Linux only; elsewhere there are no samples.

use std::fs;

/// User and system time since the start, in clock ticks of 10 ms: fields 14 and 15 of `/proc/self/stat`, proc(5).
pub(super) fn cpu_ticks() -> Option<[i64; 2]> {
    cpu_of(&fs::read_to_string("/proc/self/stat").ok()?)
}

/// Fields are counted behind the name, which may hold blanks and brackets.
fn cpu_of(stat: &str) -> Option<[i64; 2]> {
    /// utime is field 14; the first behind the name is field 3.
    const UTIME: usize = 14 - 3;
    let (_, behind) = stat.rsplit_once(')')?;
    let mut fields = behind.split_ascii_whitespace().skip(UTIME);
    Some([fields.next()?.parse().ok()?, fields.next()?.parse().ok()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found() {
        assert_eq!(cpu_of("12 (a) b) R 1 2 3 4 5 6 7 8 9 10 77 88 0 0"), Some([77, 88]));
        assert_eq!(cpu_of("12 (a R"), None);
    }
}
