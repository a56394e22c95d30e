//! What is other in the shadow's plan, in words.

use super::{Access, Dialect, PlanStep, QueryPlan, rows};

/// Changes that are named.
const NAMED: usize = 4;
/// Estimates of rows differ if they are as many powers of ten apart.
const ESTIMATES_APART: u8 = 2;

pub(super) fn changes(original: &QueryPlan, shadow: &QueryPlan) -> String {
    let formats = Formats::of(original.dialect, shadow.dialect);
    let partners = partners(original, shadow);
    let pair = |(step, partner): (_, &Option<usize>)| Some((step, shadow.steps.get((*partner)?)?));
    let pairs: Vec<(&PlanStep, &PlanStep)> = original.steps.iter().zip(&partners).filter_map(pair).collect();
    let mut found: Vec<String> = pairs.iter().filter_map(|(before, after)| access(before, after, shadow, formats)).collect();
    if formats == Formats::Equal {
        found.extend(unmatched(shadow, original).map(|step| format!("reads {} too", step.table)));
        found.extend(unmatched(original, shadow).map(|step| format!("does not read {}", step.table)));
        found.extend(order(original, shadow, &partners));
    }
    if formats >= Formats::Related {
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
    /// Versions 1 and 2 of MySQL. They differ in temporary tables, in the order of a join, and in the tables that they leave out.
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

/// How alike two steps of a table are, the most alike first.
const ALIKE: [fn(&PlanStep, &PlanStep) -> bool; 3] =
    [|one, other| one == other, |one, other| (one.access, &one.key) == (other.access, &other.key), |_, _| true];

/// Where the other plan reads the table of each step. Steps of several query blocks may share a name. Those that are most alike are
/// partners, the others in their order.
fn partners(plan: &QueryPlan, other: &QueryPlan) -> Vec<Option<usize>> {
    let mut found: Vec<Option<usize>> = vec![None; plan.steps.len()];
    for is_alike in ALIKE {
        for (at, step) in plan.steps.iter().enumerate() {
            let fits = |(place, one): &(usize, &PlanStep)| one.table == step.table && is_alike(one, step) && !found.contains(&Some(*place));
            let partner = other.steps.iter().enumerate().find(fits).map(|(place, _)| place);
            if let Some(free) = found.get_mut(at).filter(|known| known.is_none()) {
                *free = partner;
            }
        }
    }
    found
}

/// Steps without a partner.
fn unmatched<'a>(plan: &'a QueryPlan, other: &QueryPlan) -> impl Iterator<Item = &'a PlanStep> {
    let is_partial = plan.is_partial || other.is_partial;
    plan.steps.iter().zip(partners(plan, other)).filter(move |(_, partner)| !is_partial && partner.is_none()).map(|(step, _)| step)
}

/// Another order of the tables with a name of their own.
fn order(original: &QueryPlan, shadow: &QueryPlan, partners: &[Option<usize>]) -> Option<String> {
    let is_single = |plan: &QueryPlan, step: &PlanStep| plan.steps.iter().filter(|one| one.table == step.table).count() == 1;
    let steps = original.steps.iter().zip(partners).filter(|(step, _)| is_single(original, step) && is_single(shadow, step));
    let is_kept = steps.filter_map(|(_, partner)| *partner).is_sorted();
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
fn access(before: &PlanStep, after: &PlanStep, shadow: &QueryPlan, formats: Formats) -> Option<String> {
    let (table, way, old_way) = (&after.table, after.access, before.access);
    if [way, old_way].contains(&Access::Unknown) {
        return None;
    }
    if let Some((old, fate)) = fate(before, shadow) {
        let new = after.key.as_deref().map_or(way.to_string(), index);
        return Some(format!("index {old} {fate}: {new} of {table}"));
    }
    match (&before.key, &after.key) {
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

/// An index that no step of the shadow uses for this table or could use, and what can be said of it. Servers do not count an index that
/// only saves reading whole rows.
fn fate<'a>(before: &'a PlanStep, shadow: &QueryPlan) -> Option<(&'a str, &'static str)> {
    let is_of_name = |key: &&str| *key != "PRIMARY" && before.access != Access::IndexScan && before.access != Access::Merge;
    let key = before.key.as_deref().filter(is_of_name)?;
    let steps = || shadow.steps.iter().filter(|step| step.table == before.table);
    let uses = |step: &PlanStep| step.key.as_deref().is_some_and(|used| used == key || used.split('+').any(|part| part == key));
    let lists = |step: &PlanStep| step.possible.iter().flatten().any(|possible| possible == key);
    let is_told = steps().all(|step| step.possible.is_some());
    let is_gone = !steps().any(|step| uses(step) || lists(step));
    is_gone.then_some((key, if is_told { "lost" } else { "not used" }))
}

fn index(key: &str) -> String {
    if key == "PRIMARY" { "key PRIMARY".to_owned() } else { format!("index {key}") }
}

fn estimate(before: &PlanStep, after: &PlanStep) -> Option<String> {
    let (old, new) = (before.magnitude?, after.magnitude?);
    let is_apart = before.access == after.access && old.abs_diff(new) >= ESTIMATES_APART;
    is_apart.then(|| format!("estimates about {} rows of {} in place of {}", rows(new), after.table, rows(old)))
}
