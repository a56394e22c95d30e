//! How a server runs a statement, condensed from `EXPLAIN FORMAT=JSON` to one line: the tables in the order of the join, how each is read,
//! by which index and about how many rows; whether rows are sorted, and whether a temporary table is made.
//!
//! Three formats are read: MariaDB's, and versions 1 and 2 of MySQL's. INVARIANT: nothing but identifiers and numbers is taken over.
//! Conditions have literals of the statement and are left out. Lists, names and depth are bounded.

mod compare;
mod json;

use json::Json;
use std::fmt;

/// Longest text (bytes) that is read.
const MAX_JSON: usize = 1 << 20;
/// Most tables of a plan.
const MAX_STEPS: usize = 32;
/// Most indexes of a merge that are kept.
const MAX_KEYS: usize = 16;
/// Most usable indexes that are kept of a table: as many as a table has.
const MAX_POSSIBLE: usize = 64;
/// Longest name, characters: that of servers.
const MAX_NAME: usize = 64;

/// Who wrote a plan, and in which format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    MariaDb,
    /// MySQL's version 1: `query_block`.
    MySqlBlocks,
    /// MySQL's version 2: a tree of operations. Tables that were read while the plan was made are not in it.
    MySqlTree,
}

/// How a table is read, the cheapest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Access {
    Const,
    Lookup,
    Range,
    Merge,
    FullText,
    IndexScan,
    FullScan,
    /// In a way that this list does not have.
    Unknown,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Const => "const",
            Self::Lookup => "lookup",
            Self::Range => "range",
            Self::Merge => "index merge",
            Self::FullText => "fulltext",
            Self::IndexScan => "index scan",
            Self::FullScan => "full scan",
            Self::Unknown => "read",
        })
    }
}

/// A table of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PlanStep {
    /// The name by which the statement calls it.
    table: String,
    access: Access,
    /// The index; several have `+` between them.
    key: Option<String>,
    /// Indexes that the server considered; None where it does not tell.
    possible: Option<Vec<String>>,
    /// The estimate of rows as a power of ten.
    magnitude: Option<u8>,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryPlan {
    dialect: Dialect,
    steps: Vec<PlanStep>,
    sorts: bool,
    has_temporary: bool,
    /// Tables are left out: there are more than are kept, or the server does not name those that it has read already.
    is_partial: bool,
}

/// How much two plans without a change have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Likeness {
    /// What both servers tell.
    #[default]
    AsFarAsTold,
    /// All: the format is the same, no table is left out, and each one is read in a way that is known.
    Whole,
}

impl QueryPlan {
    /// Reads what a server of this version answered to `EXPLAIN FORMAT=JSON`. None: it is too long, no JSON, or no plan.
    pub fn read(text: &[u8], version: &str) -> Option<Self> {
        let root = (text.len() <= MAX_JSON).then(|| Json::read(text)).flatten()?;
        let dialect = if version.contains("MariaDB") { Dialect::MariaDb } else { Dialect::MySqlBlocks };
        let mut reader = PlanReader::default();
        if let Some(block) = root.get("query_block") {
            reader.block(block);
            return Some(reader.finish(dialect));
        }
        // MySQL 8.3 to 9.0 have the first operation at the top.
        let tree = root.get("query_plan").or_else(|| root.text("access_type").map(|_| &root))?;
        reader.operation(tree);
        Some(reader.finish(Dialect::MySqlTree))
    }

    /// What is other on the shadow, in words, the most telling first; empty for equal plans. What the two formats do not both say is no
    /// difference.
    pub fn changes(&self, shadow: &Self) -> String {
        compare::changes(self, shadow)
    }

    /// How much it says if there is no change.
    pub fn likeness(&self, shadow: &Self) -> Likeness {
        let is_whole = |plan: &Self| !plan.is_partial && plan.steps.iter().all(|step| step.access != Access::Unknown);
        let is_comparable = self.dialect == shadow.dialect && is_whole(self) && is_whole(shadow);
        if is_comparable { Likeness::Whole } else { Likeness::AsFarAsTold }
    }
}

impl fmt::Display for QueryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = self.steps.iter().map(ToString::to_string).collect();
        parts.extend(self.is_partial.then(|| "further tables".to_owned()));
        parts.extend(parts.is_empty().then(|| "no table is read".to_owned()));
        parts.extend(self.sorts.then(|| "sorts".to_owned()));
        parts.extend(self.has_temporary.then(|| "temporary table".to_owned()));
        f.write_str(&parts.join("; "))
    }
}

impl fmt::Display for PlanStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.table, self.access)?;
        if let Some(key) = &self.key {
            write!(f, " {key}")?;
        }
        self.magnitude.map_or(Ok(()), |magnitude| write!(f, " ~{}", rows(magnitude)))
    }
}

/// A power of ten, as people write it.
fn rows(magnitude: u8) -> String {
    let unit = ["", "k", "M", "G", "T"].get(usize::from(magnitude / 3)).copied().unwrap_or("P");
    format!("{}{unit}", 10_u32.pow(u32::from(magnitude % 3)))
}

/// The power of ten below a number of rows; 0 for less than ten.
fn magnitude(rows: f64) -> u8 {
    let mut magnitude = 0;
    let mut limit = 10.0;
    while rows >= limit && magnitude < 15 {
        magnitude += 1;
        limit *= 10.0;
    }
    magnitude
}

fn name(text: &str) -> String {
    text.chars().take(MAX_NAME).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// What was read of a plan so far.
#[derive(Default)]
struct PlanReader {
    steps: Vec<PlanStep>,
    /// The table that is made of what is read now.
    derived: Option<String>,
    /// What is read now is repeated until it finds no new rows: it reads the derived table by its name.
    is_recursive: bool,
    sorts: bool,
    has_temporary: bool,
    is_partial: bool,
}

impl PlanReader {
    fn finish(self, dialect: Dialect) -> QueryPlan {
        let Self { steps, sorts, has_temporary, is_partial, .. } = self;
        QueryPlan { dialect, steps, sorts, has_temporary, is_partial }
    }

    fn push(&mut self, step: PlanStep) {
        if self.steps.len() < MAX_STEPS {
            self.steps.push(step);
        } else {
            self.is_partial = true;
        }
    }

    /// A part of a plan of MariaDB, or of MySQL's version 1.
    fn block(&mut self, node: &Json) {
        match node {
            Json::Array(items) => items.iter().for_each(|item| self.block(item)),
            Json::Object(fields) => {
                let outer = self.is_recursive;
                self.is_recursive |= node.get("recursive") == Some(&Json::Flag(true));
                for (field, value) in fields {
                    self.sorts |= matches!((&**field, value), ("filesort", Json::Object(_)) | ("using_filesort", Json::Flag(true)));
                    self.has_temporary |=
                        matches!((&**field, value), ("temporary_table", Json::Object(_)) | ("using_temporary_table", Json::Flag(true)));
                    if field == "table" {
                        self.table(value);
                    } else {
                        self.block(value);
                    }
                }
                self.is_recursive = outer;
            }
            _ => {}
        }
    }

    /// A table with what it is made of.
    fn table(&mut self, table: &Json) {
        // Names of what servers make themselves begin with a bracket: `<derived2>`.
        let named = table.text("table_name").filter(|name| !name.starts_with('<')).map(name);
        if table.get("materialized_from_subquery").is_none() {
            // MySQL's version 1 calls a table that it makes as the statement does, maybe like a table of the server.
            let is_itself = self.is_recursive && named == self.derived;
            if let Some(named) = named.filter(|_| !is_itself) {
                self.step(named, table);
            }
            return self.block(table);
        }
        let outer = (std::mem::replace(&mut self.derived, named), std::mem::take(&mut self.is_recursive));
        self.block(table);
        (self.derived, self.is_recursive) = outer;
    }

    /// A table of the server.
    fn step(&mut self, named: String, table: &Json) {
        let access = access_of(table.text("access_type").unwrap_or_default());
        let key = match (access, table.get("index_merge")) {
            (Access::Merge, Some(merge)) => joined(&keys_within(merge)),
            (Access::Merge, None) => joined(&merged(table.text("key").unwrap_or_default())),
            // MariaDB calls the key of a hash join so.
            _ => table.text("key").filter(|key| !key.starts_with('#')).map(name),
        };
        let rows = table.number("rows").or_else(|| table.number("rows_examined_per_scan"));
        let possible = table.texts("possible_keys").into_iter().take(MAX_POSSIBLE).map(name).collect();
        self.push(PlanStep { table: named, access, key, possible: Some(possible), magnitude: rows.map(magnitude) });
    }

    /// An operation of MySQL's version 2, with its inputs.
    fn operation(&mut self, node: &Json) {
        let access_type = node.text("access_type").unwrap_or_default();
        let from = self.steps.len();
        self.sorts |= access_type == "sort";
        self.is_partial |= access_type == "rows_fetched_before_execution";
        self.has_temporary |= matches!(access_type, "temp_table_aggregate" | "materialize");
        // Only tables of the server have a schema.
        if let (Some(table), Some(_)) = (node.text("alias").or(node.text("table_name")), node.text("schema_name")) {
            let access = match (access_type, node.text("index_access_type").unwrap_or_default()) {
                ("table", _) => Access::FullScan,
                (_, "index_lookup") => Access::Lookup,
                (_, "index_range_scan" | "multi_range_read" | "index_skip_scan" | "group_index_skip_scan") => Access::Range,
                (_, "index_scan") => Access::IndexScan,
                (_, "full_text_search") => Access::FullText,
                _ => Access::Unknown,
            };
            let key = node.text("index_name").map(name);
            self.push(PlanStep {
                table: name(table),
                access,
                key,
                possible: None,
                magnitude: node.number("estimated_rows").map(magnitude),
            });
        }
        match node {
            Json::Array(items) => items.iter().for_each(|item| self.operation(item)),
            Json::Object(fields) => fields.iter().for_each(|(_, value)| self.operation(value)),
            _ => {}
        }
        // `index_merge` is what version 1 calls sort_union.
        if access_type.starts_with("rowid_") || access_type == "index_merge" {
            self.merge_from(from, node.number("estimated_rows").map(magnitude));
        }
    }

    /// The steps from this one on read indexes of one table.
    fn merge_from(&mut self, from: usize, magnitude: Option<u8>) {
        let parts: Vec<PlanStep> = self.steps.drain(from..).collect();
        let keys: Vec<String> = parts.iter().filter_map(|part| part.key.clone()).collect();
        if let Some(first) = parts.into_iter().next() {
            self.push(PlanStep { access: Access::Merge, key: joined(&keys), magnitude, ..first });
        }
    }
}

/// How a table is read, as MariaDB and MySQL's version 1 call it. MariaDB puts `hash_` before it in a hash join.
fn access_of(access_type: &str) -> Access {
    match access_type.strip_prefix("hash_").unwrap_or(access_type) {
        "const" | "system" => Access::Const,
        "eq_ref" | "ref" | "ref_or_null" | "unique_subquery" | "index_subquery" => Access::Lookup,
        "range" => Access::Range,
        "index_merge" => Access::Merge,
        "fulltext" => Access::FullText,
        "index" => Access::IndexScan,
        "ALL" => Access::FullScan,
        _ => Access::Unknown,
    }
}

fn joined(keys: &[String]) -> Option<String> {
    let keys = keys.get(..MAX_KEYS.min(keys.len())).unwrap_or_default();
    (!keys.is_empty()).then(|| keys.join("+"))
}

/// The indexes of MySQL's `union(a,intersect(b,c))`.
fn merged(key: &str) -> Vec<String> {
    let is_function = |part: &&str| matches!(*part, "" | "union" | "intersect" | "sort_union" | "sort_intersect");
    key.split(['(', ')', ',']).filter(|part| !is_function(part)).take(MAX_KEYS).map(name).collect()
}

/// Every `key` below a node.
fn keys_within(node: &Json) -> Vec<String> {
    match node {
        Json::Array(items) => items.iter().flat_map(keys_within).take(MAX_KEYS).collect(),
        Json::Object(fields) => {
            let of = |(field, value): &(String, Json)| match value {
                Json::Text(text) if field == "key" => vec![name(text)],
                _ => keys_within(value),
            };
            fields.iter().flat_map(of).take(MAX_KEYS).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
