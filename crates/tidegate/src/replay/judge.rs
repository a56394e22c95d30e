//! What a replay found: each answer beside the one of the original or of a base run, counted by digest.

use super::report::{Base, Report};
use super::said::Said;
use anyhow::Result;
use capture::Timing;
use rehearsal::verdict::Ran;
use rehearsal::{Answer, Class, Compared, Excuses, Opinion, Sample, Tally, Weight};
use sql::LexMode;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Samples of each digest and class.
const SAMPLES: usize = 3;
/// Longest statement of a sample, bytes.
const SHOWN: usize = 2048;
/// Most digests of which it is counted how often they ran.
const MAX_RAN: usize = 100_000;

/// Whether a session's answer depends on what other sessions did at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    /// No write of another session ran beside it, or beside its transaction.
    Nothing,
    /// One did: both orders are right.
    Writes,
}

/// An answer of the replay.
pub(crate) struct Replayed<'a> {
    /// The file's place on the command line.
    pub file: usize,
    /// The session's user and schema.
    pub user: &'a str,
    pub schema: &'a str,
    /// When it ran at the original.
    pub timing: Timing,
    /// Its text.
    pub text: &'a [u8],
    pub said: &'a Said,
    /// What the original answered.
    pub original: Option<&'a Answer>,
    /// See [`Excuses`].
    pub refuses_stale_writes: bool,
    /// The original's time is known, though its answer may not be.
    pub is_timed: bool,
    /// What the server answered now, and how long that took, us.
    pub answer: &'a Answer,
    pub time_us: u64,
    pub beside: Beside,
}

/// What was found so far.
#[derive(Default)]
pub(crate) struct Findings {
    /// Comparisons by digest.
    pub tally: Tally,
    /// Times by digest of what has no answer to compare.
    pub timed: Tally,
    /// What ran at the original, by digest.
    pub ran: HashMap<u64, Ran>,
    /// Commands that ran.
    pub done: u64,
    /// Commands that were not sent, by reason.
    pub skipped: BTreeMap<&'static str, u64>,
    /// Answers with nothing to compare with.
    pub alone: u64,
    /// Unequal answers beside writes of other sessions.
    pub raced: u64,
    /// Sessions that could not be replayed to their end, by reason.
    pub broken: BTreeMap<&'static str, u64>,
    /// The first answer that makes the verdict NOT SAFE, with its command's number.
    pub first_bad: Option<((usize, u64), String)>,
    /// The last error of the replay itself.
    pub error: String,
    report: Option<Report>,
    base: Option<Base>,
}

/// See the module.
pub(crate) struct Judge {
    findings: Mutex<Findings>,
    shows_literals: bool,
}

impl Judge {
    /// Keeps answers in `report`, and compares with those of `base`.
    pub(crate) fn new(report: Option<Report>, base: Option<Base>, shows_literals: bool) -> Self {
        Self { findings: Mutex::new(Findings { report, base, ..Findings::default() }), shows_literals }
    }

    /// What was found. Held for a moment only.
    pub(crate) fn findings(&self) -> MutexGuard<'_, Findings> {
        self.findings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A command was not sent.
    pub(crate) fn skip(&self, why: &'static str) {
        *self.findings().skipped.entry(why).or_default() += 1;
    }

    /// A session ends before its end.
    pub(crate) fn give_up(&self, why: &'static str, error: &str) {
        let mut findings = self.findings();
        *findings.broken.entry(why).or_default() += 1;
        findings.error = error.to_owned();
    }

    /// A statement as a message may show it: its digest's text, unless literals are to be shown.
    pub(crate) fn shown(&self, text: &[u8]) -> String {
        let text = if self.shows_literals { text.to_vec() } else { sql::without_literals(text, LexMode::default()) };
        String::from_utf8_lossy(text.get(..SHOWN).unwrap_or(&text)).into_owned()
    }

    /// A command of this digest ran at the original.
    pub(crate) fn ran(&self, said: &Said, time_us: u64) {
        let mut findings = self.findings();
        if findings.ran.len() >= MAX_RAN && !findings.ran.contains_key(&said.digest) {
            return;
        }
        let text = || String::from_utf8_lossy(&said.text).into_owned();
        let ran = findings.ran.entry(said.digest).or_insert_with(|| Ran { digest: said.digest, text: text(), count: 0, sum_us: 0 });
        ran.count += 1;
        ran.sum_us += time_us;
    }

    /// Judges an answer.
    ///
    /// # Errors
    /// The report cannot be written.
    pub(crate) fn judge(&self, replayed: &Replayed<'_>) -> Result<()> {
        let mut findings = self.findings();
        let findings = &mut *findings;
        findings.done += 1;
        if let Some(report) = &mut findings.report {
            report.answer(replayed.file, replayed.timing.seq, replayed.answer, replayed.time_us)?;
        }
        let of_base = findings.base.as_ref().map(|base| base.answer(replayed.file, replayed.timing.seq)).transpose()?;
        let (original, original_us) = match (&of_base, replayed.original) {
            (Some(Some((answer, time_us))), _) => (answer, *time_us),
            (None, Some(answer)) => (answer, replayed.timing.time_us),
            _ => {
                findings.alone += 1;
                if replayed.is_timed && replayed.answer.error.is_none() {
                    let times_us = [replayed.timing.time_us, replayed.time_us];
                    let (digest, text) = (replayed.said.digest, &replayed.said.text);
                    let of_times = Compared { digest, text, class: Class::Same, ignored: None, is_rechecked: false, times_us };
                    findings.timed.add(&of_times);
                }
                return Ok(());
            }
        };
        let is_of_stale = replayed.refuses_stale_writes || findings.base.as_ref().is_some_and(Base::refuses_stale_writes);
        let class = class(original, original_us, replayed, of_base.is_some(), is_of_stale);
        findings.raced += u64::from(class == Class::Unchecked && replayed.beside == Beside::Writes);
        let said = replayed.said;
        let place = (replayed.file, replayed.timing.seq);
        if class.weight() == Weight::Bad && findings.first_bad.as_ref().is_none_or(|(first, _)| place < *first) {
            let (was, is, text) = (described(original), described(replayed.answer), self.shown(replayed.text));
            findings.first_bad = Some((place, format!("{}: {was}, now {is}: {text}", class.name())));
        }
        let times_us = [original_us, replayed.time_us];
        findings.tally.add(&Compared { digest: said.digest, text: &said.text, class, ignored: None, is_rechecked: false, times_us });
        if class == Class::Columns {
            findings.tally.note_columns(said.digest, original.columns.differ(&replayed.answer.columns));
        }
        if findings.tally.wants_sample(said.digest, class, SAMPLES) {
            let sample = self.sample(replayed, original, class);
            findings.tally.keep(sample);
        }
        Ok(())
    }

    /// What was answered before the replay was interrupted, and how long that took, us.
    ///
    /// # Errors
    /// The report cannot be read.
    pub(crate) fn stored(&self, file: usize, seq: u64) -> Result<Option<(Answer, u64)>> {
        self.findings().report.as_ref().map_or(Ok(None), |report| report.stored(file, seq))
    }

    /// Takes the report out, to complete it.
    pub(crate) fn take_report(&self) -> Option<Report> {
        self.findings().report.take()
    }

    fn sample(&self, replayed: &Replayed<'_>, original: &Answer, class: Class) -> Sample {
        let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes.get(..SHOWN).unwrap_or(bytes)).into_owned();
        let seen_at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let columns = original.columns.differences(&replayed.answer.columns);
        let mut shadow = described(replayed.answer);
        if original.error.is_none() && replayed.answer.error.is_none() && !columns.is_empty() {
            shadow += &format!("; other columns: {}", columns.join(", "));
        }
        Sample {
            digest: replayed.said.digest,
            class,
            seen_at,
            user: replayed.user.to_owned(),
            schema: replayed.schema.to_owned(),
            text: lossy(if self.shows_literals { replayed.text } else { &replayed.said.text }),
            original: described(original),
            shadow,
        }
    }
}

/// The class of an answer. Nobody can be asked again: a difference beside a write of another session says nothing.
fn class(original: &Answer, original_us: u64, replayed: &Replayed<'_>, is_of_base: bool, refuses_stale_writes: bool) -> Class {
    let (said, answer) = (replayed.said, replayed.answer);
    if !original.is_whole || !answer.is_whole {
        return Class::Unchecked;
    }
    let traits = said.traits.with_rows(original.rows.max(answer.rows));
    let first = rehearsal::compare(original, answer, traits.is_ordered).after([original_us, replayed.time_us]);
    match Tally::default().opinion(said.digest, first, traits) {
        Opinion::Take(class) => class,
        Opinion::Ask => {
            // A run as a base has the same values of the clock, as far as they can be set.
            let reads_other_clock = traits.reads_clock && !is_of_base;
            let excuses = Excuses { is_raced: replayed.beside == Beside::Writes, reads_other_clock, refuses_stale_writes };
            rehearsal::judge_once(first, [original, answer], traits, excuses)
        }
    }
}

/// An answer in words, without any of its values.
fn described(answer: &Answer) -> String {
    match answer.error {
        Some(code) => format!("error {code}"),
        None if answer.columns.count > 0 => format!("{} rows, {} columns, {} warnings", answer.rows, answer.columns.count, answer.warnings),
        None => format!("{} rows changed, insert id {}, {} warnings", answer.affected, answer.insert_id, answer.warnings),
    }
}

#[cfg(test)]
mod tests {
    use super::super::said::Known;
    use super::*;

    fn answer(change: impl FnOnce(&mut Answer)) -> Answer {
        let mut answer = Answer { rows: 2, sum: 7, exact: 7, sequence: 9, ..Answer::default() };
        change(&mut answer);
        answer
    }

    #[test]
    fn messages_have_no_values() {
        let text = format!("SET @a='S3cret'{}", ",@b=1".repeat(SHOWN));
        let shown = |shows_literals| Judge::new(None, None, shows_literals).shown(text.as_bytes());
        assert!(!shown(false).contains("S3cret") && shown(true).contains("S3cret"));
        assert!(shown(false).len() <= SHOWN && shown(true).len() <= SHOWN);
    }

    #[test]
    fn differences_count_unless_something_explains_them() {
        let (base, failed) = (answer(|_| {}), Answer::of_error);
        let other = answer(|a| (a.sum, a.exact, a.sequence) = (1, 1, 1));
        for (text, found, beside, is_of_base, class) in [
            ("SELECT a FROM t", base.clone(), Beside::Writes, false, Class::Same),
            ("SELECT a FROM t", other.clone(), Beside::Nothing, false, Class::Rows),
            ("SELECT a FROM t", other.clone(), Beside::Writes, false, Class::Unchecked),
            ("SELECT a, NOW() FROM t", other.clone(), Beside::Nothing, false, Class::Noise),
            ("SELECT a, NOW() FROM t", other.clone(), Beside::Nothing, true, Class::Rows),
            ("SELECT a FROM t LIMIT 2", other.clone(), Beside::Nothing, false, Class::Limited),
            ("SELECT UUID()", other.clone(), Beside::Nothing, false, Class::Noise),
            ("SELECT a FROM t", failed(1055), Beside::Writes, false, Class::ErrorNew),
            ("UPDATE t SET a = 1", failed(1213), Beside::Nothing, false, Class::Unchecked),
            ("UPDATE t SET a = 1", failed(1020), Beside::Writes, false, Class::ErrorNew),
            ("UPDATE t SET a = 1", answer(|a| a.affected = 1), Beside::Nothing, false, Class::Affected),
            ("INSERT INTO t VALUES (1)", answer(|a| a.insert_id = 1), Beside::Nothing, false, Class::InsertId),
            ("INSERT INTO t VALUES (1)", answer(|a| a.insert_id = 1), Beside::Writes, false, Class::Unchecked),
            ("SELECT a FROM t", answer(|a| a.is_whole = false), Beside::Nothing, false, Class::Unchecked),
        ] {
            let said = Known::default().read(text.as_bytes());
            let replayed = Replayed {
                file: 0,
                user: "u",
                schema: "s",
                timing: Timing::default(),
                text: text.as_bytes(),
                said: &said,
                original: None,
                refuses_stale_writes: false,
                is_timed: false,
                answer: &found,
                time_us: 5,
                beside,
            };
            assert_eq!(super::class(&base, 5, &replayed, is_of_base, false), class, "{text}");
        }
    }
}
