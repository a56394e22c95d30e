//! What is other in the shadow's plan, in words.

use super::{Access, Dialect, PlanStep, QueryPlan, rows};

/// Changes that are named.
const NAMED: usize = 4;
/// Estimates of rows differ if they are as many powers of ten apart.
const ESTIMATES_APART: u8 = 2;

pub(super) fn changes(original: &QueryPlan, shadow: &QueryPlan) -> String {
    let formats = Formats::of(original.dialect, shadow.dialect);
    let pairs = pairs(original, shadow);
    let mut found: Vec<String> = pairs.iter().filter_map(|(before, after)| access(before, after, formats)).collect();
    if formats == Formats::Equal {
        found.extend(unmatched(shadow, original).map(|step| format!("reads {} too", step.table)));
        found.extend(unmatched(original, shadow).map(|step| format!("does not read {}", step.table)));
    }
    if formats >= Formats::Related {
        found.extend(order(original, shadow));
        found.extend(both_ways(original.sorts, shadow.sorts, "sorts now", "does not sort any more"));
    }
    if formats == Formats::Equal {
        found.extend(both_ways(original.has_temporary, shadow.has_temporary, "temporary table now", "no temporary table any more"));
    }
    if found.is_empty() && formats >= Formats::Related {
        found.extend(pairs.iter().filter_map(|(before, after)| estimate(before, after)));
    }
    if found.len() > NAMED {
        let more = found.len() - NAMED;
        found.truncate(NAMED);
        found.push(format!("{more} more changes"));
    }
    found.join(", ")
}

/// How much of two plans can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Formats {
    /// Of MariaDB and MySQL: how each table is read.
    Foreign,
    /// Versions 1 and 2 of MySQL: not temporary tables, and not tables that one of them leaves out.
    Related,
    /// The same.
    Equal,
}

impl Formats {
    fn of(one: Dialect, other: Dialect) -> Self {
        match (one == other, one == Dialect::MariaDb || other == Dialect::MariaDb) {
            (true, _) => Self::Equal,
            (false, false) => Self::Related,
            (false, true) => Self::Foreign,
        }
    }
}

/// Steps of both plans that read the same table; the first with the first one, where a table is read several times.
fn pairs<'a>(original: &'a QueryPlan, shadow: &'a QueryPlan) -> Vec<(&'a PlanStep, &'a PlanStep)> {
    original.steps.iter().enumerate().filter_map(|(at, step)| Some((step, shadow.steps.get(partner(original, at, shadow)?)?))).collect()
}

/// Where the other plan reads the table of the step `at`.
fn partner(plan: &QueryPlan, at: usize, other: &QueryPlan) -> Option<usize> {
    let step = plan.steps.get(at)?;
    let nth = plan.steps.iter().take(at).filter(|before| before.table == step.table).count();
    other.steps.iter().enumerate().filter(|(_, one)| one.table == step.table).nth(nth).map(|(at, _)| at)
}

/// Steps without a partner.
fn unmatched<'a>(plan: &'a QueryPlan, other: &'a QueryPlan) -> impl Iterator<Item = &'a PlanStep> {
    let is_partial = plan.is_partial || other.is_partial;
    plan.steps.iter().enumerate().filter(move |(at, _)| !is_partial && partner(plan, *at, other).is_none()).map(|(_, step)| step)
}

fn order(original: &QueryPlan, shadow: &QueryPlan) -> Option<String> {
    let places: Vec<usize> = (0..original.steps.len()).filter_map(|at| partner(original, at, shadow)).collect();
    let is_kept = places.is_sorted();
    let tables = || shadow.steps.iter().map(|step| &*step.table).collect::<Vec<_>>().join(" then ");
    (!is_kept).then(|| format!("other join order: {}", tables()))
}

fn both_ways(before: bool, after: bool, new: &str, gone: &str) -> Option<String> {
    match (before, after) {
        (false, true) => Some(new.to_owned()),
        (true, false) => Some(gone.to_owned()),
        _ => None,
    }
}

/// How the table is read otherwise.
fn access(before: &PlanStep, after: &PlanStep, formats: Formats) -> Option<String> {
    let (table, way, old_way) = (&after.table, after.access, before.access);
    if [way, old_way].contains(&Access::Unknown) {
        return None;
    }
    match (&before.key, &after.key) {
        (Some(old), new) if *new != before.key && is_lost(before, after) => Some(match new {
            Some(new) => format!("index {old} lost: {} of {table}", index(new)),
            None => format!("index {old} lost: {way} of {table}"),
        }),
        (Some(old), Some(new)) if old != new => Some(format!("{} of {table} in place of {}", index(new), index(old))),
        (Some(old), None) => Some(format!("{way} of {table} in place of {}", index(old))),
        (None, Some(new)) => Some(format!("{} of {table} in place of {old_way}", index(new))),
        _ if way == old_way => None,
        // A table with one row, or a lookup by all columns of a unique key: formats call them differently.
        _ if formats != Formats::Equal && way.max(old_way) <= Access::Lookup => None,
        (Some(key), Some(_)) => Some(format!("{way} of {table} by {} in place of {old_way}", index(key))),
        (None, None) => Some(format!("{way} of {table} in place of {old_way}")),
    }
}

/// The index is not among those that the shadow considered. Servers do not count an index that only saves reading whole rows.
fn is_lost(before: &PlanStep, after: &PlanStep) -> bool {
    let is_of_name = |key: &String| key != "PRIMARY" && before.access != Access::IndexScan && before.access != Access::Merge;
    let is_considered = |key: &String| after.possible.as_ref().is_some_and(|possible| possible.contains(key));
    before.key.as_ref().is_some_and(|key| is_of_name(key) && !is_considered(key))
}

fn index(key: &str) -> String {
    if key == "PRIMARY" { "key PRIMARY".to_owned() } else { format!("index {key}") }
}

fn estimate(before: &PlanStep, after: &PlanStep) -> Option<String> {
    let (old, new) = (before.magnitude?, after.magnitude?);
    let is_apart = before.access == after.access && old.abs_diff(new) >= ESTIMATES_APART;
    is_apart.then(|| format!("estimates about {} rows of {} in place of {}", rows(new), after.table, rows(old)))
}
