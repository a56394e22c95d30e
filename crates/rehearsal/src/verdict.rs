//! The verdict: SAFE, NOT ENOUGH or NOT SAFE, with reasons, and the page that says it.

use crate::answer::COLUMN_PARTS;
use crate::doubt::DOUBTS;
use crate::judge::{CLASSES, Class, Weight};
use crate::spread::Spread;
use crate::tally::{MAX_DIGESTS, OfDigest, Tally};
use std::fmt;

/// Share of the statement time, in percent, that compared digests must have had.
const ENOUGH_PERCENT: f64 = 95.0;
/// Comparisons of a digest that are enough, however often it runs.
const ENOUGH_RUNS: u64 = 30;
/// A median must grow by as many us to count as slower.
const SLOWER_BY_US: u64 = 1_000;
/// Digests of a kind that the page names.
const NAMED: usize = 5;
/// Characters of a digest's text on the page.
const SHOWN: usize = 100;

/// What the operator set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// A digest is slower if its median time grows by more than this factor.
    pub slow_factor: f64,
    /// A slower digest is a reason against the upgrade if it makes the time of all compared statements grow by more than this factor.
    pub total_growth: f64,
}

/// A digest that ran on the original's servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// Hash of its text.
    pub digest: u64,
    /// Its text.
    pub text: String,
    /// How often it ran.
    pub count: u64,
    /// How long in all, us, as the statistics have it: waits in the proxy are part of it.
    pub sum_us: u64,
}

/// How much of what runs was compared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Coverage {
    /// Share of the statement time, in percent; 0 where nothing took time.
    pub percent: f64,
    /// Digests that were compared often enough.
    pub covered: usize,
    /// The others, those that took longest first.
    pub unseen: Vec<Ran>,
    /// Why the share cannot be known, for example because the statistics were reset.
    pub unknown: Option<&'static str>,
}

impl Coverage {
    /// The same without the texts that no page shows.
    pub fn in_short(mut self) -> Self {
        self.unseen.iter_mut().skip(NAMED).for_each(|ran| ran.text = String::new());
        self
    }
}

/// What the verdict is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Enough was compared, and nothing speaks against the upgrade.
    Safe,
    /// Nothing speaks against it so far.
    NotEnough,
    /// Something does.
    NotSafe,
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Safe => "SAFE",
            Self::NotEnough => "NOT ENOUGH",
            Self::NotSafe => "NOT SAFE",
        })
    }
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What it is.
    pub word: Word,
    /// Why it is not SAFE; empty where it is.
    pub reasons: Vec<String>,
}

/// How much of `ran` was compared. A digest counts as compared after 30 comparisons, or after as many as it has runs.
pub fn coverage(tally: &Tally, ran: Vec<Ran>) -> Coverage {
    let is_covered = |ran: &Ran| {
        let compared = tally.get(ran.digest).map_or(0, OfDigest::compared);
        compared > 0 && (compared >= ENOUGH_RUNS || compared >= ran.count)
    };
    let all_us: u64 = ran.iter().map(|ran| ran.sum_us).sum();
    let (covered, mut unseen): (Vec<Ran>, Vec<Ran>) = ran.into_iter().partition(is_covered);
    let covered_us: u64 = covered.iter().map(|ran| ran.sum_us).sum();
    unseen.sort_by_key(|ran| (std::cmp::Reverse(ran.sum_us), ran.digest));
    let percent = if all_us == 0 { 0.0 } else { covered_us as f64 * 100.0 / all_us as f64 };
    Coverage { percent, covered: covered.len(), unseen, unknown: None }
}

/// A digest that became slower or faster.
#[derive(Clone, Debug, PartialEq)]
pub struct Changed {
    /// Hash of its text.
    pub digest: u64,
    /// Median time of the original and the shadow, us.
    pub median_us: [u64; 2],
    /// Share of the time of all compared statements, in percent, on both sides.
    pub share: [f64; 2],
    /// The time of all compared statements grows by this factor through this digest alone.
    pub growth: f64,
}

/// Whether a digest is slower on the shadow, by the rule of the verdict.
pub fn is_slower(digest: &OfDigest, slow_factor: f64) -> bool {
    changed_medians(digest, slow_factor, true).is_some()
}

/// Whether one answer took longer on the shadow in the same sense: times (us) of the original and the shadow.
pub fn took_longer([original_us, shadow_us]: [u64; 2], slow_factor: f64) -> bool {
    shadow_us as f64 > original_us as f64 * slow_factor && shadow_us >= original_us.saturating_add(SLOWER_BY_US)
}

/// The medians of a digest (us) that was compared often enough, if they changed.
fn changed_medians(digest: &OfDigest, slow_factor: f64, is_slower: bool) -> Option<[u64; 2]> {
    let [original, shadow] = &digest.times;
    if original.count() < ENOUGH_RUNS {
        return None;
    }
    let [before, after] = [original.percentile_us(50), shadow.percentile_us(50)];
    let is_changed = took_longer(if is_slower { [before, after] } else { [after, before] }, slow_factor);
    is_changed.then_some([before, after])
}

/// Digests whose median changed by more than the factor and by at least 1 ms, slower ones (`is_slower`) or faster ones.
pub fn changed(tally: &Tally, slow_factor: f64, is_slower: bool) -> Vec<Changed> {
    let digests = tally.digests();
    let total = |side: usize| digests.iter().filter_map(|(_, digest)| digest.times.get(side)).map(Spread::sum_us).sum::<u64>();
    let totals = [total(0), total(1)];
    let share = |us: u64, all: u64| if all == 0 { 0.0 } else { us as f64 * 100.0 / all as f64 };
    let of = |(digest, of_digest): &(u64, &OfDigest)| {
        let [original, shadow] = &of_digest.times;
        let median_us = changed_medians(of_digest, slow_factor, is_slower)?;
        let growth = if totals[0] == 0 { 1.0 } else { 1.0 + (shadow.sum_us() as f64 - original.sum_us() as f64) / totals[0] as f64 };
        let share = [share(original.sum_us(), totals[0]), share(shadow.sum_us(), totals[1])];
        Some(Changed { digest: *digest, median_us, share, growth })
    };
    digests.iter().filter_map(of).collect()
}

/// Judges a rehearsal.
pub fn verdict(tally: &Tally, coverage: &Coverage, limits: Limits) -> Verdict {
    let digests = tally.digests();
    let mut reasons: Vec<String> = Vec::new();
    for class in CLASSES.iter().filter(|class| class.weight() == Weight::Bad) {
        let of_others = tally.of_others(*class);
        let with: Vec<u64> = digests.iter().map(|(_, digest)| digest.count(*class)).filter(|count| *count > 0).collect();
        if !with.is_empty() {
            reasons.push(format!("{}: {}, {}", class.name(), counted(with.len() as u64, "digest"), times(with.iter().sum())));
        }
        if of_others > 0 {
            reasons.push(format!("{}: digests beyond the first {MAX_DIGESTS}, {}", class.name(), times(of_others)));
        }
    }
    let slower = changed(tally, limits.slow_factor, true);
    reasons.extend(
        slower.iter().filter(|changed| changed.growth > limits.total_growth).map(|changed| {
            format!("slower: digest {} makes all statements take {:.2} times as long", shown(changed.digest), changed.growth)
        }),
    );
    if !reasons.is_empty() {
        return Verdict { word: Word::NotSafe, reasons };
    }
    if tally.compared() == 0 {
        return Verdict { word: Word::NotEnough, reasons: vec!["nothing was compared".to_owned()] };
    }
    let missing = missing(tally, coverage);
    let word = if missing.is_empty() { Word::Safe } else { Word::NotEnough };
    Verdict { word, reasons: missing }
}

/// What is not known and must be for SAFE.
fn missing(tally: &Tally, coverage: &Coverage) -> Vec<String> {
    let mut reasons = Vec::new();
    let in_doubt = tally.in_doubt();
    if in_doubt > 0 {
        let all = tally.count(Class::Unchecked);
        reasons.push(format!("{in_doubt} of {all} unchecked differences are more than 1 % of their digest's comparisons"));
    }
    if let Some(why) = coverage.unknown {
        reasons.push(format!("coverage: {why}"));
    } else if coverage.percent < ENOUGH_PERCENT {
        reasons.push(format!(
            "coverage: compared digests had {:.1} % of the statement time, and {ENOUGH_PERCENT} % are needed; {} not compared enough",
            coverage.percent,
            counted(coverage.unseen.len() as u64, "digest")
        ));
    }
    reasons
}

/// What the page says besides the numbers of the tally.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct About {
    /// First line: which servers, how long, which sessions.
    pub headline: String,
    /// Sessions, what was left out, and errors of the rehearsal itself.
    pub notes: Vec<(&'static str, String)>,
}

/// The page, line by line: what a line is about, and its text.
pub fn page(about: &About, tally: &Tally, coverage: &Coverage, limits: Limits) -> Vec<(&'static str, String)> {
    let verdict = verdict(tally, coverage, limits);
    let mut lines = vec![("rehearsal", about.headline.clone()), ("verdict", verdict.word.to_string())];
    lines.extend(verdict.reasons.iter().map(|reason| ("reason", reason.clone())));
    lines.push(("coverage", covered(coverage)));
    lines.extend(coverage.unseen.iter().take(NAMED).map(|ran| ("unseen", format!("{} {}", shown(ran.digest), cut(&ran.text)))));
    lines.push(("compared", format!("{}, {}", counted(tally.compared(), "statement"), counted(tally.digests().len() as u64, "digest"))));
    lines.extend(about.notes.iter().cloned());
    lines.push(("classes", classes(tally)));
    lines.extend(frequent(tally, Class::Unchecked, doubts).into_iter().map(|line| ("unchecked", line)));
    lines.extend(differences(tally, Weight::Bad).map(|line| ("differs", line)));
    lines.extend(differences(tally, Weight::Look).map(|line| ("look", line)));
    let ignored_by = |digest: &OfDigest| digest.ignored_by.as_deref().unwrap_or_default().to_owned();
    lines.extend(frequent(tally, Class::Ignored, ignored_by).into_iter().map(|line| ("ignored", line)));
    if let Some(line) = relied_on_order(tally) {
        lines.push(("look", line));
    }
    for (what, is_slower) in [("slower", true), ("faster", false)] {
        lines.extend(changed(tally, limits.slow_factor, is_slower).iter().take(NAMED).map(|changed| (what, change(changed, tally))));
    }
    lines.push(("all", all(tally)));
    lines
}

fn covered(coverage: &Coverage) -> String {
    let digests = coverage.covered + coverage.unseen.len();
    let (percent, covered, unseen) = (coverage.percent, coverage.covered, coverage.unseen.len());
    format!("{percent:.1} % of the statement time ran as digests that were compared ({covered} of {digests}); {unseen} unseen or too rare")
}

fn classes(tally: &Tally) -> String {
    let counts = CLASSES.iter().map(|class| (class.name(), tally.count(*class))).filter(|(_, count)| *count > 0);
    counts.map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join("   ")
}

/// One line for each digest with comparisons of this class, the most frequent first; `why` ends it.
fn frequent(tally: &Tally, class: Class, why: impl Fn(&OfDigest) -> String) -> Vec<String> {
    let mut found: Vec<(u64, u64, &OfDigest)> = tally.digests().into_iter().map(|(hash, of)| (of.count(class), hash, of)).collect();
    found.retain(|(count, ..)| *count > 0);
    found.sort_by_key(|(count, hash, _)| (std::cmp::Reverse(*count), *hash));
    let more = found.split_off(NAMED.min(found.len()));
    let line = |(count, hash, digest): (u64, u64, &OfDigest)| {
        format!("{} in {} {}: {}", times(count), shown(hash), cut(&digest.text), why(digest))
    };
    let mut lines: Vec<String> = found.into_iter().map(line).collect();
    let others: u64 = more.iter().map(|(count, ..)| *count).sum();
    lines.extend((!more.is_empty()).then(|| format!("{} more, {}", counted(more.len() as u64, "digest"), times(others))));
    lines
}

/// Names with their counts, the most frequent first.
fn by_count<'a>(counts: impl Iterator<Item = (&'a str, u64)>) -> Vec<String> {
    let mut counts: Vec<(&str, u64)> = counts.filter(|(_, count)| *count > 0).collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts.into_iter().map(|(name, count)| format!("{count} {name}")).collect()
}

/// Why differences of a digest were not checked.
fn doubts(digest: &OfDigest) -> String {
    let mut parts = by_count(DOUBTS.iter().map(|doubt| doubt.name()).zip(digest.doubts));
    parts.push(format!("of {}", counted(digest.counts.iter().sum(), "comparison")));
    parts.join(", ")
}

/// Which parts of a digest's column definitions differ, where that is known.
fn other_columns(digest: &OfDigest) -> String {
    let parts = by_count(COLUMN_PARTS.into_iter().zip(digest.column_parts));
    if parts.is_empty() { String::new() } else { format!("; other columns: {}", parts.join(", ")) }
}

/// One line for each digest and class, the most frequent first.
fn differences(tally: &Tally, weight: Weight) -> impl Iterator<Item = String> {
    let mut found: Vec<(u64, Class, u64, &OfDigest)> = Vec::new();
    for (hash, digest) in tally.digests() {
        let of_weight = CLASSES.iter().filter(|class| class.weight() == weight && digest.count(**class) > 0);
        found.extend(of_weight.map(|class| (digest.count(*class), *class, hash, digest)));
    }
    found.sort_by_key(|(count, class, hash, _)| (*class, std::cmp::Reverse(*count), *hash));
    let mut lines: Vec<String> = Vec::new();
    for class in CLASSES {
        let of_class: Vec<_> = found.iter().filter(|(_, of, ..)| *of == class).collect();
        let named = of_class.iter().take(NAMED).map(|(count, _, hash, digest)| {
            let more = match class {
                Class::Columns => other_columns(digest),
                class if class.may_be_of_plan() => planned(digest),
                _ => String::new(),
            };
            format!("{}: {} in {} {}{more}", class.name(), times(*count), shown(*hash), cut(&digest.text))
        });
        lines.extend(named);
        if of_class.len() > NAMED {
            lines.push(format!("{}: {} more", class.name(), counted((of_class.len() - NAMED) as u64, "digest")));
        }
    }
    lines.into_iter()
}

/// Statements with GROUP BY whose rows came in another order: versions that sort groups hide that no ORDER BY is there.
fn relied_on_order(tally: &Tally) -> Option<String> {
    let is_one = |digest: &&OfDigest| digest.count(Class::SameUnordered) > 0 && digest.text.to_ascii_uppercase().contains("GROUP BY");
    let found: Vec<(u64, &OfDigest)> = tally.digests().into_iter().filter(|(_, digest)| is_one(digest)).collect();
    let (hash, digest) = found.first()?;
    let count = counted(found.len() as u64, "digest");
    Some(format!(
        "same_unordered: {count} with GROUP BY and without ORDER BY; did a client rely on the order? {} {}",
        shown(*hash),
        cut(&digest.text)
    ))
}

fn change(changed: &Changed, tally: &Tally) -> String {
    let digest = tally.get(changed.digest);
    let text = digest.map_or("", |digest| &digest.text);
    let plan = digest.filter(|_| changed.median_us[1] > changed.median_us[0]).map(planned).unwrap_or_default();
    let [before, after] = changed.median_us.map(ms);
    let [share_before, share_after] = changed.share;
    format!(
        "{} p50 {before} -> {after} ms, {share_before:.0} % -> {share_after:.0} % of all time: {}{plan}",
        shown(changed.digest),
        cut(text)
    )
}

/// What is other in the shadow's plan, where both are known.
fn planned(digest: &OfDigest) -> String {
    digest.plans.as_deref().map_or_else(String::new, |plans| format!("; plan: {}", plans.words()))
}

fn all(tally: &Tally) -> String {
    let mut sides = [Spread::default(), Spread::default()];
    for (_, digest) in tally.digests() {
        sides.iter_mut().zip(&digest.times).for_each(|(side, times)| side.merge(times));
    }
    let [p50, p99] = [50, 99].map(|percent| sides.each_ref().map(|side| ms(side.percentile_us(percent))));
    format!("p50 {} -> {} ms, p99 {} -> {} ms", p50[0], p50[1], p99[0], p99[1])
}

fn ms(us: u64) -> String {
    format!("{:.2}", us as f64 / 1000.0)
}

fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

/// A digest as other tables write it.
fn shown(hash: u64) -> String {
    format!("0x{hash:016X}")
}

fn cut(text: &str) -> String {
    let cut: String = text.chars().take(SHOWN).collect();
    if cut.len() < text.len() { format!("{cut}...") } else { cut }
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
