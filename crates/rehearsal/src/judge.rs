//! Two answers to the same statement, and the class of their difference.

use crate::answer::Answer;
use crate::statement::Traits;
use model::config::IGNORABLE;
use model::snapshot::RehearsalIgnore;
use wire::codes;

/// What a comparison found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Equal.
    Same,
    /// Equal rows in another order, which the statement does not ask for.
    SameUnordered,
    /// Unequal at first, equal when both servers were asked again.
    Timing,
    /// The original succeeded, the shadow failed.
    ErrorNew,
    /// As many rows, of other content.
    Rows,
    /// More or fewer rows.
    Count,
    /// More or fewer rows were changed.
    Affected,
    /// The original failed, the shadow succeeded.
    ErrorGone,
    /// Both failed, with other error numbers.
    ErrorOther,
    /// The shadow failed by a time limit, and the original took less time.
    TimedOut,
    /// Equal rows in another order, and an ORDER BY stands at the top.
    Reordered,
    /// Other rows, and a LIMIT without ORDER BY lets a server choose them. As many rows, unless the LIMIT stands between parentheses.
    Limited,
    /// Floats differ behind the twelfth digit.
    Float,
    /// Only column definitions differ.
    Columns,
    /// Only the id that AUTO_INCREMENT gave differs.
    InsertId,
    /// Only the number of warnings differs.
    Warnings,
    /// The shadow ended the statement by a deadlock or a lock that it waited for: two sessions came to a lock the other way round.
    OutOfOrder,
    /// A server does not repeat its own answer, or the text says that it need not.
    Noise,
    /// Unequal, and nothing is known of the reason: the budget for second questions was used up, the shadow lagged, or a time limit
    /// ended the statement on a shadow that was not slower.
    Unchecked,
    /// A difference that a row of `mysql_rehearsal_ignores` names.
    Ignored,
}

/// All classes, in the order of the columns of `stats_tidegate_rehearsal_digests`.
pub const CLASSES: [Class; 20] = [
    Class::Same,
    Class::SameUnordered,
    Class::Timing,
    Class::ErrorNew,
    Class::Rows,
    Class::Count,
    Class::Affected,
    Class::ErrorGone,
    Class::ErrorOther,
    Class::TimedOut,
    Class::Reordered,
    Class::Limited,
    Class::Float,
    Class::Columns,
    Class::InsertId,
    Class::Warnings,
    Class::OutOfOrder,
    Class::Noise,
    Class::Unchecked,
    Class::Ignored,
];

/// What a class counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// The servers agree, or the operator ignores the difference.
    Good,
    /// The upgrade changes what a client sees.
    Bad,
    /// An operator should look at it.
    Look,
    /// It says nothing.
    Nothing,
}

impl Class {
    /// The name that tables and metrics show.
    pub fn name(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::SameUnordered => "same_unordered",
            Self::Timing => "timing",
            Self::ErrorNew => "error_new",
            Self::Rows => "rows",
            Self::Count => "count",
            Self::Affected => "affected",
            Self::ErrorGone => "error_gone",
            Self::ErrorOther => "error_other",
            Self::TimedOut => "timed_out",
            Self::Reordered => "reordered",
            Self::Limited => "limited",
            Self::Float => "float",
            Self::Columns => "columns",
            Self::InsertId => "insert_id",
            Self::Warnings => "warnings",
            Self::OutOfOrder => "out_of_order",
            Self::Noise => "noise",
            Self::Unchecked => "unchecked",
            Self::Ignored => "ignored",
        }
    }

    /// What it counts as.
    pub fn weight(self) -> Weight {
        match self {
            Self::Same | Self::SameUnordered | Self::Timing | Self::Ignored => Weight::Good,
            Self::ErrorNew | Self::Rows | Self::Count | Self::Affected | Self::TimedOut => Weight::Bad,
            Self::ErrorGone | Self::ErrorOther | Self::Reordered | Self::Limited => Weight::Look,
            Self::Float | Self::Columns | Self::InsertId | Self::Warnings => Weight::Look,
            Self::OutOfOrder | Self::Noise | Self::Unchecked => Weight::Nothing,
        }
    }

    /// Whether a second question can explain it. Differences of definitions and digits do not depend on the moment.
    pub fn may_be_timing(self) -> bool {
        !self.is_same() && !matches!(self, Self::Float | Self::Columns | Self::Warnings | Self::Unchecked)
    }

    /// Whether the server's plan may be the reason.
    pub fn may_be_of_plan(self) -> bool {
        matches!(self, Self::Rows | Self::Count | Self::Reordered | Self::TimedOut)
    }

    /// The class where the answers took this long, us. A time limit says nothing about the shadow if the original took as long.
    pub fn after(self, [original_us, shadow_us]: [u64; 2]) -> Self {
        if self == Self::TimedOut && original_us >= shadow_us { Self::Unchecked } else { self }
    }

    fn is_same(self) -> bool {
        matches!(self, Self::Same | Self::SameUnordered | Self::Ignored)
    }
}

/// Errors of statements that ran too long: ER_QUERY_TIMEOUT (MySQL), ER_STATEMENT_TIMEOUT (MariaDB).
const TIME_LIMITS: [u16; 2] = [codes::QUERY_TIMEOUT, codes::STATEMENT_TIMEOUT];

/// Errors of refused writes.
const REFUSED_WRITES: [u16; 3] = [codes::OPTION_PREVENTS_STATEMENT, codes::CANT_EXECUTE_IN_READ_ONLY_TRANSACTION, codes::READ_ONLY_MODE];

impl Answer {
    /// The server refused to write. A rehearsal runs in read-only transactions, so this says nothing about the upgrade.
    pub fn is_refused_write(&self) -> bool {
        self.error.is_some_and(|code| REFUSED_WRITES.contains(&code))
    }
}

/// Compares two answers. `is_ordered`: an ORDER BY stands at the top of the statement. Of columns that were left out, a difference is
/// [`Class::Ignored`].
pub fn compare(original: &Answer, shadow: &Answer, is_ordered: bool) -> Class {
    match (original.error, shadow.error) {
        (None, Some(code)) if TIME_LIMITS.contains(&code) => return Class::TimedOut,
        (None, Some(_)) => return Class::ErrorNew,
        (Some(_), None) => return Class::ErrorGone,
        (Some(one), Some(other)) => return if one == other { Class::Same } else { Class::ErrorOther },
        (None, None) => {}
    }
    let (one, other) = match (original.without, shadow.without) {
        (Some(one), Some(other)) => (one, other),
        _ => (original.hashes(), shadow.hashes()),
    };
    let is_in_order = one.sequence == other.sequence;
    match () {
        () if original.rows != shadow.rows => Class::Count,
        () if one.sum != other.sum => Class::Rows,
        () if original.affected != shadow.affected => Class::Affected,
        () if !is_in_order && is_ordered => Class::Reordered,
        () if one.exact != other.exact => Class::Float,
        () if original.columns != shadow.columns => Class::Columns,
        () if original.insert_id != shadow.insert_id => Class::InsertId,
        () if original.warnings != shadow.warnings => Class::Warnings,
        () if original.exact != shadow.exact => Class::Ignored,
        () if is_in_order => Class::Same,
        () => Class::SameUnordered,
    }
}

/// The row because of which a difference of this class does not count, for a statement of this digest in this schema.
pub fn ignored<'a>(rows: &'a [RehearsalIgnore], class: Class, digest: u64, schema: &[u8]) -> Option<&'a RehearsalIgnore> {
    rows.iter().filter(|row| row.is_for(digest, schema)).find(|row| match (&row.column, &row.class) {
        (Some(_), _) => class == Class::Ignored,
        (None, Some(name)) => **name == *class.name(),
        (None, None) => IGNORABLE.contains(&class.name()),
    })
}

/// Columns whose values are left out of comparisons of this digest in this schema.
pub fn left_out(rows: &[RehearsalIgnore], digest: u64, schema: &[u8]) -> Vec<Box<str>> {
    rows.iter().filter(|row| row.is_for(digest, schema)).filter_map(|row| row.column.clone()).collect()
}

/// Errors that say that two sessions came to a lock the other way round.
const OF_LOCKS: [u16; 2] = [codes::LOCK_WAIT_TIMEOUT, codes::LOCK_DEADLOCK];
/// Errors that may say the same of a key.
const OF_RACES: [u16; 2] = [codes::DUP_ENTRY, codes::DUP_ENTRY_WITH_KEY_NAME];

/// Whether a server of this version refuses, with error 1020, to change a row that another transaction has changed since the snapshot:
/// `innodb_snapshot_isolation`, which is ON from MariaDB 11.6.2 on.
pub fn refuses_stale_writes(version: &str) -> bool {
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse::<u32>().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    version.contains("MariaDB") && (next(), next(), next()) >= (11, 6, 2)
}

/// Whether servers end statements with this error because of other sessions' locks.
pub fn is_of_locks(error: u16) -> bool {
    OF_LOCKS.contains(&error)
}

/// What explains a difference between answers of which neither can be asked for again.
#[derive(Clone, Copy, Debug, Default)]
pub struct Excuses {
    /// A write of another session ran beside the statement, so that both orders are right; or the shadow lacks writes.
    pub is_raced: bool,
    /// The statement names the clock, and the servers' clocks were not set alike.
    pub reads_other_clock: bool,
    /// The original refuses stale writes too ([`refuses_stale_writes`]), so that a race may end in error 1020 on either server.
    pub refuses_stale_writes: bool,
}

/// The class of a difference that nobody can ask about: `first` is what [`compare`] found.
pub fn judge_once(first: Class, [original, shadow]: [&Answer; 2], traits: Traits, excuses: Excuses) -> Class {
    let has_error = |codes: &[u16]| [original.error, shadow.error].into_iter().flatten().any(|code| codes.contains(&code));
    let is_error = matches!(first, Class::ErrorNew | Class::ErrorGone | Class::ErrorOther);
    let is_of_values = matches!(first, Class::Rows | Class::Float | Class::Reordered);
    let is_stale = has_error(&[codes::CHECKREAD]);
    let knows_stale = excuses.refuses_stale_writes || original.error == Some(codes::CHECKREAD);
    match () {
        () if is_of_values && excuses.reads_other_clock => Class::Noise,
        () if is_error && has_error(&OF_LOCKS) => Class::Unchecked,
        () if excuses.is_raced && (!is_error || has_error(&OF_RACES) || is_stale && knows_stale) => Class::Unchecked,
        () => first.under(traits),
    }
}

/// Both servers were asked again: the original, the shadow, the original, the shadow.
#[derive(Clone, Debug)]
pub struct Round {
    /// The original's answers.
    pub original: [Answer; 2],
    /// The shadow's answers.
    pub shadow: [Answer; 2],
}

/// What a round of second questions says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The servers agree: the first answers were of different moments.
    Timing,
    /// Both servers repeat themselves, and differ.
    Real(Class),
    /// A server did not repeat its own answer.
    Unclear,
}

/// Judges a round. A difference is real only if both servers repeat their answers.
pub fn recheck(round: &Round, is_ordered: bool) -> Finding {
    let ([original, original_again], [shadow, shadow_again]) = (&round.original, &round.shadow);
    let class = compare(original, shadow, is_ordered);
    match () {
        () if class.is_same() => Finding::Timing,
        () if !compare(original, original_again, is_ordered).is_same() => Finding::Unclear,
        () if !compare(shadow, shadow_again, is_ordered).is_same() => Finding::Unclear,
        () => Finding::Real(class),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::RowHashes;

    fn answer() -> Answer {
        Answer { rows: 2, sum: 7, exact: 7, sequence: 9, ..Answer::default() }
    }

    fn other(change: impl FnOnce(&mut Answer)) -> Answer {
        let mut answer = answer();
        change(&mut answer);
        answer
    }

    #[test]
    fn each_difference_has_its_class() {
        let (base, failed) = (answer(), Answer::of_error(1064));
        for (original, shadow, is_ordered, class) in [
            (&base, base.clone(), true, Class::Same),
            (&base, other(|a| a.sequence = 1), false, Class::SameUnordered),
            (&base, other(|a| a.sequence = 1), true, Class::Reordered),
            (&base, failed.clone(), false, Class::ErrorNew),
            (&base, Answer::of_error(3024), false, Class::TimedOut),
            (&base, Answer::of_error(1969), false, Class::TimedOut),
            (&failed, base.clone(), false, Class::ErrorGone),
            (&failed, failed.clone(), false, Class::Same),
            (&failed, Answer::of_error(1146), false, Class::ErrorOther),
            (&base, other(|a| a.rows = 3), false, Class::Count),
            (&base, other(|a| (a.sum, a.exact, a.sequence) = (8, 8, 8)), false, Class::Rows),
            (&base, other(|a| a.exact = 8), true, Class::Float),
            (&base, other(|a| a.columns.lengths = 1), false, Class::Columns),
            (&base, other(|a| a.affected = 1), true, Class::Affected),
            (&base, other(|a| (a.insert_id, a.warnings) = (1, 1)), false, Class::InsertId),
            (&base, other(|a| a.warnings = 1), false, Class::Warnings),
            (&base, other(|a| a.without = Some(RowHashes::default())), false, Class::Same),
            // The worst difference counts.
            (&base, other(|a| (a.sum, a.warnings, a.columns.names) = (8, 1, 1)), false, Class::Rows),
        ] {
            assert_eq!(compare(original, &shadow, is_ordered), class);
        }
    }

    #[test]
    fn columns_that_are_left_out_make_no_difference() {
        let (rest, other_rest) = (Some(RowHashes { sum: 1, exact: 1, sequence: 1 }), Some(RowHashes { sum: 2, exact: 2, sequence: 2 }));
        let original = other(|a| a.without = rest);
        let of_column = other(|a| (a.without, a.sum, a.exact, a.sequence) = (rest, 8, 8, 8));
        let of_others = other(|a| (a.without, a.sum, a.exact, a.sequence) = (other_rest, 8, 8, 8));
        assert_eq!(compare(&original, &original.clone(), true), Class::Same);
        assert_eq!([&of_column, &of_others].map(|shadow| compare(&original, shadow, true)), [Class::Ignored, Class::Rows]);
        let round = Round { original: [original.clone(), original.clone()], shadow: [of_column.clone(), of_column] };
        assert_eq!(recheck(&round, true), Finding::Timing);
    }

    #[test]
    fn rows_name_what_is_ignored() {
        let row = |digest, schema: Option<&str>, column: Option<&str>, class: Option<&str>| RehearsalIgnore {
            digest,
            schema: schema.map(Into::into),
            column: column.map(Into::into),
            class: class.map(Into::into),
            comment: "".into(),
        };
        let rows = [row(Some(1), None, None, Some("columns")), row(Some(2), None, None, None), row(None, Some("s"), Some("at"), None)];
        let found = |class, digest, schema: &str| {
            let found = ignored(&rows, class, digest, schema.as_bytes())?;
            rows.iter().position(|row| row == found)
        };
        assert_eq!([found(Class::Columns, 1, ""), found(Class::Rows, 1, ""), found(Class::Columns, 3, "")], [Some(0), None, None]);
        assert_eq!([found(Class::ErrorNew, 2, ""), found(Class::Same, 2, ""), found(Class::Unchecked, 2, "")], [Some(1), None, None]);
        assert_eq!([found(Class::Ignored, 5, "s"), found(Class::Rows, 5, "s"), found(Class::Ignored, 5, "t")], [Some(2), None, None]);
        assert_eq!((left_out(&rows, 5, b"s").len(), left_out(&rows, 5, b"t").len()), (1, 0));
    }

    #[test]
    fn each_difference_can_be_ignored() {
        let are_told = |class: &&Class| class.weight() != Weight::Good && class.weight() != Weight::Nothing;
        let names: Vec<&str> = CLASSES.iter().filter(are_told).map(|class| class.name()).collect();
        assert_eq!(names, IGNORABLE);
    }

    #[test]
    fn a_difference_is_real_when_both_servers_repeat_it() {
        let (a, b, c) = (answer(), other(|a| a.sum = 1), other(|a| a.sum = 2));
        let found = |original: [&Answer; 2], shadow: [&Answer; 2]| {
            recheck(&Round { original: original.map(Clone::clone), shadow: shadow.map(Clone::clone) }, false)
        };
        assert_eq!(found([&a, &a], [&b, &b]), Finding::Real(Class::Rows));
        assert_eq!(found([&a, &c], [&a, &b]), Finding::Timing);
        assert_eq!(found([&a, &c], [&b, &b]), Finding::Unclear, "the data changes");
        assert_eq!(found([&a, &a], [&b, &c]), Finding::Unclear, "the shadow draws lots");
        let failed = Answer::of_error(1054);
        assert_eq!(found([&a, &a], [&failed, &failed]), Finding::Real(Class::ErrorNew));
        assert_eq!(found([&a, &a], [&failed, &a]), Finding::Unclear, "a deadlock is gone the second time");
    }

    #[test]
    fn a_time_limit_is_bad_unless_the_original_took_as_long() {
        assert_eq!((Class::TimedOut.after([10, 60_000]), Class::TimedOut.weight()), (Class::TimedOut, Weight::Bad));
        assert_eq!(Class::TimedOut.after([60_000, 60_000]), Class::Unchecked);
        assert!(Class::TimedOut.may_be_timing() && !Class::Unchecked.may_be_timing());
        assert_eq!(Class::ErrorNew.after([10, 0]), Class::ErrorNew);
        let (base, late) = (answer(), Answer::of_error(3024));
        let round = |shadow: [&Answer; 2]| Round { original: [base.clone(), base.clone()], shadow: shadow.map(Clone::clone) };
        assert_eq!(recheck(&round([&late, &late]), false), Finding::Real(Class::TimedOut));
        assert_eq!(recheck(&round([&base, &base]), false), Finding::Timing, "it was a moment's load");
    }

    #[test]
    fn a_stale_write_is_a_race_only_where_the_original_refuses_them_too() {
        let stale = Answer::of_error(1020);
        let class = |answers: [&Answer; 2], refuses_stale_writes| {
            let excuses = Excuses { is_raced: true, refuses_stale_writes, ..Excuses::default() };
            judge_once(compare(answers[0], answers[1], false), answers, Traits::default(), excuses)
        };
        assert_eq!(class([&answer(), &stale], false), Class::ErrorNew);
        assert_eq!(class([&answer(), &stale], true), Class::Unchecked);
        assert_eq!(class([&stale, &answer()], false), Class::Unchecked);
        let versions =
            ["10.11.19-MariaDB-log", "11.6.1-MariaDB", "11.6.2-MariaDB-ubu2404", "11.8.9-MariaDB", "12.0.2-MariaDB", "9.7.4", ""];
        assert_eq!(versions.map(refuses_stale_writes), [false, false, true, true, true, false, false]);
    }

    #[test]
    fn a_refused_write_is_known_by_its_error() {
        assert_eq!([1290, 1792, 1836, 1054].map(|code| Answer::of_error(code).is_refused_write()), [true, true, true, false]);
        assert!(!answer().is_refused_write());
    }

    #[test]
    fn every_class_is_listed_once_with_a_name_of_its_own() {
        let names: std::collections::BTreeSet<_> = CLASSES.iter().map(|class| class.name()).collect();
        assert_eq!(names.len(), CLASSES.len());
        for (place, class) in CLASSES.iter().enumerate() {
            assert_eq!(*class as usize, place);
        }
    }
}
