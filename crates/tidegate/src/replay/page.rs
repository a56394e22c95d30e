//! The page of a replay: that of a rehearsal, with what only a replay knows.

use super::Outcome;
use super::judge::{Findings, Judge};
use super::options::{OrderBy, ReplayOptions};
use super::plan::{Ending, FilePlan};
use rehearsal::Tally;
use rehearsal::verdict::{About, Changed, Coverage, Limits, Word, changed, coverage, page as rehearsal_page, verdict};
use std::collections::BTreeMap;
use std::time::Duration;

/// Names that a line lists.
const NAMED: usize = 10;
/// Characters of a digest's text.
const SHOWN: usize = 100;

/// The page's lines, and the verdict.
pub(super) struct Page {
    pub lines: Vec<(&'static str, String)>,
    pub word: Word,
}

/// Sums up a replay.
pub(super) fn page(options: &ReplayOptions, files: &[FilePlan], version: &str, judge: &Judge, outcome: &Outcome) -> Page {
    let findings = judge.findings();
    let ran = findings.ran.values().cloned().collect();
    let coverage = Coverage { unknown: gap(files, &findings, outcome), ..coverage(&findings.tally, ran) };
    let limits = Limits { slow_factor: options.slow_factor, total_growth: options.total_growth };
    let about = About { headline: headline(options, files, version, outcome), notes: notes(options, files, &findings, outcome) };
    let word = verdict(&findings.tally, &coverage, limits).word;
    let mut lines = rehearsal_page(&about, &findings.tally, &coverage, limits);
    if let Some((part, _)) = lines.first_mut() {
        *part = "replay";
    }
    for (part, is_slower) in [("slower", true), ("faster", false)] {
        lines.extend(
            changed(&findings.timed, options.slow_factor, is_slower).iter().take(NAMED).map(|of| (part, time(of, &findings.timed))),
        );
    }
    Page { lines, word }
}

/// Why the replay cannot stand for the whole capture.
fn gap(files: &[FilePlan], findings: &Findings, outcome: &Outcome) -> Option<&'static str> {
    let is_cut = files.iter().any(|file| !matches!(file.ending, Ending::Whole(_)));
    match () {
        () if files.iter().any(|file| file.losses.is_some()) => Some("a log does not have all statements, and no answers"),
        () if outcome.is_interrupted => Some("the replay was interrupted"),
        () if is_cut => Some("a file is cut off or damaged"),
        () if !findings.broken.is_empty() => Some("sessions could not be replayed to their end"),
        () => None,
    }
}

fn headline(options: &ReplayOptions, files: &[FilePlan], version: &str, outcome: &Outcome) -> String {
    let names: Vec<&str> = files.iter().map(|file| file.header.name.as_str()).collect();
    let mut servers: Vec<String> =
        files.iter().flat_map(|file| &file.header.servers).map(|it| format!("{} ({})", it.address, it.version)).collect();
    servers.sort();
    servers.dedup();
    servers.truncate(NAMED);
    let to = options.to.as_deref().unwrap_or_default();
    let what = if options.reads_only { "reads only" } else { "all" };
    let against = if options.against.is_some() { ", compared with a base run" } else { "" };
    let seconds: f64 = files.iter().map(FilePlan::seconds).sum();
    format!(
        "{}: {seconds:.0} s of {} in {:.0} s on {to} ({version}), {what}, {} times{against}",
        names.join(", "),
        servers.join(", "),
        outcome.took.as_secs_f64(),
        options.times
    )
}

fn notes(options: &ReplayOptions, files: &[FilePlan], findings: &Findings, outcome: &Outcome) -> Vec<(&'static str, String)> {
    let sessions: u64 = files.iter().map(FilePlan::sessions).sum();
    let commands: u64 = files.iter().map(|file| file.commands).sum();
    let order = match options.order {
        OrderBy::Seen => format!("as seen; {} commands started out of order because nothing else moved", outcome.out_of_order),
        OrderBy::Session => "each session its own".to_owned(),
    };
    let mut notes = vec![
        ("sessions", format!("{sessions} in the capture; not replayed to their end: {}", listed(&findings.broken))),
        (
            "commands",
            format!("{commands} in the capture; not sent: {}; without an answer to compare: {}", listed(&findings.skipped), findings.alone),
        ),
        ("order", format!("{order}; {} unequal answers beside writes of other sessions count as unchecked", findings.raced)),
    ];
    if let Some((_, first)) = &findings.first_bad {
        notes.push(("first", format!("{first}; unequal answers after it may be its consequence")));
    }
    notes.extend(files.iter().filter_map(FilePlan::loss).map(|loss| ("lossy", loss)));
    notes.extend(files.iter().filter_map(FilePlan::fault).map(|fault| ("file", fault)));
    if !findings.error.is_empty() {
        notes.push(("error", findings.error.clone()));
    }
    notes
}

/// How the time of a digest of a log has changed.
fn time(changed: &Changed, timed: &Tally) -> String {
    let [before, after] = changed.median_us.map(|us| us as f64 / 1000.0);
    let text: String = timed.get(changed.digest).map_or("", |digest| &digest.text).chars().take(SHOWN).collect();
    format!("0x{:016X} p50 {before:.2} -> {after:.2} ms: {text}", changed.digest)
}

fn listed<K: AsRef<str>>(counts: &BTreeMap<K, u64>) -> String {
    let some: Vec<String> = counts.iter().map(|(name, count)| format!("{count} {}", name.as_ref())).collect();
    if some.is_empty() { "none".to_owned() } else { some.join(", ") }
}

/// What files have.
pub(super) fn dry_run(files: &[FilePlan]) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    for file in files {
        let header = &file.header;
        let ending = match &file.ending {
            Ending::Whole(trailer) => format!("ended: {}", trailer.reason),
            _ => file.fault().unwrap_or_default(),
        };
        lines.push(("file", format!("{}: capture {}, {:.1} s, {ending}", file.path.display(), header.name, file.seconds())));
        lines.push(("proxy", format!("{} {}, {}", header.host, header.program, header.options)));
        let servers = header.servers.iter().map(|server| format!("{} {} ({})", server.hostgroup, server.address, server.version));
        lines.push(("servers", servers.collect::<Vec<_>>().join(", ")));
        lines.push(("commands", format!("{}, {} of them may write; {} sessions", file.commands, file.writes, file.sessions())));
        lines.push(("users", most(&file.users)));
        lines.push(("schemas", most(&file.schemas)));
        let named = |counts: Vec<(&'static str, u64)>| listed(&counts.into_iter().collect());
        let gaps = named(file.gaps.iter().map(|(why, count)| (why.name(), *count)).collect());
        let withheld = named(file.withheld.iter().map(|(why, count)| (why.name(), *count)).collect());
        lines.push(("missing", format!("gaps: {gaps}; not captured: {withheld}")));
        lines.extend(file.loss().map(|loss| ("lossy", loss)));
    }
    lines
}

/// The most frequent names.
fn most(counts: &BTreeMap<String, u64>) -> String {
    let mut all: Vec<(&String, &u64)> = counts.iter().collect();
    all.sort_by_key(|(name, count)| (std::cmp::Reverse(**count), *name));
    let more = all.len().saturating_sub(NAMED);
    let mut shown: Vec<String> = all.iter().take(NAMED).map(|(name, count)| format!("'{name}' {count}")).collect();
    if more > 0 {
        shown.push(format!("{more} more"));
    }
    shown.join(", ")
}

/// How far a replay is. Commands that ran before it was resumed say nothing of its rate.
pub(super) fn progress(done: u64, all: u64, before: u64, took: Duration) -> String {
    let new = done.saturating_sub(before);
    let rate = new as f64 / took.as_secs_f64().max(0.001);
    let left = if new == 0 { "unknown".to_owned() } else { format!("{:.0} s", all.saturating_sub(done) as f64 / rate) };
    format!("{done} of {all} commands ({:.0} %), {rate:.0} a second, {left} left", done as f64 * 100.0 / all.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_has_rate_and_time_left() {
        assert_eq!(progress(500, 2000, 0, Duration::from_secs(5)), "500 of 2000 commands (25 %), 100 a second, 15 s left");
        assert_eq!(progress(0, 0, 0, Duration::ZERO), "0 of 0 commands (0 %), 0 a second, unknown left");
        let resumed = progress(1500, 2000, 1000, Duration::from_secs(5));
        assert_eq!(resumed, "1500 of 2000 commands (75 %), 100 a second, 5 s left");
    }

    #[test]
    fn names_are_listed_by_count() {
        let counts = (0..12).map(|n| (format!("u{n:02}"), n)).collect();
        assert!(most(&counts).starts_with("'u11' 11, 'u10' 10") && most(&counts).ends_with("2 more"));
    }
}
