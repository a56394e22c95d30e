//! Rehearsals of an upgrade: `mysql_rehearsals`.

use std::sync::Arc;

use super::hostgroup::number;
use crate::config::digest_of;
use crate::config::{Config, Row};
use crate::ids::HostgroupId;

/// One row of `mysql_rehearsals`.
#[derive(Debug, Clone, PartialEq)]
pub struct Rehearsal {
    /// Its name, by which commands call it.
    pub name: Box<str>,
    /// Whether it may be started.
    pub is_active: bool,
    /// Statements that this hostgroup served are repeated.
    pub source: HostgroupId,
    /// The hostgroup with the one server of the new version.
    pub shadow: HostgroupId,
    /// What is repeated.
    pub mode: RehearsalMode,
    /// Share of the sessions, in percent.
    pub percent: f64,
    /// Users whose sessions take part; empty stands for all.
    pub users: Vec<Box<str>>,
    /// Schemas whose statements take part; empty stands for all.
    pub schemas: Vec<Box<str>>,
    /// Most bytes of statements that wait for the shadow.
    pub queue_bytes: u64,
    /// How long a client waits for room in a full queue before a session is given up, ms; None does not wait.
    pub wait_ms: Option<u64>,
    /// How long a copied statement may wait for a lock, ms.
    pub order_wait_ms: u64,
    /// Whether the shadow gets the original's AUTO_INCREMENT values and clock.
    pub pins: bool,
    /// A digest is slower if its median time grows by more than this factor.
    pub slow_factor: f64,
    /// A slower digest is bad if the time of all statements grows by more than this factor through it.
    pub total_growth: f64,
    /// How long nothing counts after the start, ms.
    pub warmup_ms: u64,
    /// Samples that are kept for each digest and class.
    pub samples: usize,
    /// Whether samples have the statement's literals.
    pub shows_literals: bool,
    /// Most rounds of second questions in a second.
    pub rechecks_per_s: u32,
    /// Whether both servers are asked for their plans of slower statements, and of those with other rows.
    pub explains: bool,
    /// Differences that do not count: every row of `mysql_rehearsal_ignores`.
    pub ignores: Arc<[RehearsalIgnore]>,
}

/// One row of `mysql_rehearsal_ignores`. What is None stands for all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RehearsalIgnore {
    /// The digest's hash.
    pub digest: Option<u64>,
    /// The session's schema.
    pub schema: Option<Box<str>>,
    /// Values of the result column of this name are left out of the comparison.
    pub column: Option<Box<str>>,
    /// The class of the difference.
    pub class: Option<Box<str>>,
    /// Why, in the operator's words.
    pub comment: Box<str>,
}

impl RehearsalIgnore {
    /// Whether it is about statements of this digest in this schema.
    pub fn is_for(&self, digest: u64, schema: &[u8]) -> bool {
        self.digest.is_none_or(|of| of == digest) && self.schema.as_ref().is_none_or(|of| of.as_bytes() == schema)
    }

    /// The row, as pages show it.
    pub fn text(&self) -> String {
        let named = [
            ("digest", self.digest.map(|hash| format!("0x{hash:016X}"))),
            ("schemaname", self.schema.as_deref().map(str::to_owned)),
            ("column_name", self.column.as_deref().map(str::to_owned)),
            ("class", self.class.as_deref().map(str::to_owned)),
        ];
        let named = named.into_iter().filter_map(|(name, value)| Some(format!("{name} {}", value?)));
        let row = named.collect::<Vec<_>>().join(", ");
        if self.comment.is_empty() { row } else { format!("{} ({row})", self.comment) }
    }
}

/// What a rehearsal repeats: `mysql_rehearsals.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RehearsalMode {
    /// Certain reads, on a replica.
    Reads,
    /// Whole sessions, on a copy that leaves replication.
    All,
}

impl Rehearsal {
    /// Whether sessions of this user take part.
    pub fn is_for_user(&self, user: &str) -> bool {
        self.users.is_empty() || self.users.iter().any(|name| **name == *user)
    }

    /// Whether statements in this schema take part.
    pub fn is_for_schema(&self, schema: &[u8]) -> bool {
        self.schemas.is_empty() || self.schemas.iter().any(|name| name.as_bytes() == schema)
    }

    /// Whether a session takes part, by its number.
    pub fn is_for_session(&self, id: u64) -> bool {
        is_drawn(id, self.percent)
    }
}

/// Whether a session is among `percent` of all, by its number.
pub fn is_drawn(id: u64, percent: f64) -> bool {
    // The upper bits of a product with an odd number spread consecutive ids evenly.
    let drawn = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    (drawn as f64) < percent / 100.0 * f64::from(1 << 24)
}

/// Every row.
pub(super) fn compile(config: &Config) -> Vec<Arc<Rehearsal>> {
    let ignores: Arc<[RehearsalIgnore]> = config.rows("mysql_rehearsal_ignores").iter().map(ignore).collect();
    config.rows("mysql_rehearsals").iter().map(|row| Arc::new(of(row, &ignores))).collect()
}

fn ignore(row: &Row) -> RehearsalIgnore {
    let given = |column: &str| row.text(column).filter(|text| !text.is_empty());
    RehearsalIgnore {
        digest: given("digest").and_then(digest_of),
        schema: given("schemaname").map(Into::into),
        column: given("column_name").map(Into::into),
        class: given("class").map(Into::into),
        comment: given("comment").unwrap_or_default().into(),
    }
}

fn of(row: &Row, ignores: &Arc<[RehearsalIgnore]>) -> Rehearsal {
    Rehearsal {
        name: row.text("name").unwrap_or_default().into(),
        is_active: row.flag("active"),
        source: HostgroupId(number(row, "source_hostgroup")),
        shadow: HostgroupId(number(row, "shadow_hostgroup")),
        mode: if row.text("mode") == Some("all") { RehearsalMode::All } else { RehearsalMode::Reads },
        percent: decimal(row, "percent").unwrap_or_default(),
        users: list(row, "users"),
        schemas: list(row, "schemas"),
        queue_bytes: number::<u64>(row, "queue_mb") << 20,
        wait_ms: (row.text("on_full") == Some("wait")).then(|| number(row, "wait_ms")),
        order_wait_ms: number(row, "order_wait_ms"),
        pins: row.flag("pin"),
        slow_factor: decimal(row, "slow_factor").unwrap_or_default(),
        total_growth: decimal(row, "total_growth").unwrap_or_default(),
        warmup_ms: number::<u64>(row, "warmup_s") * 1000,
        samples: number(row, "samples"),
        shows_literals: row.flag("show_literals"),
        rechecks_per_s: number(row, "rechecks_per_s"),
        explains: row.flag("explain"),
        ignores: Arc::clone(ignores),
    }
}

/// A column's text as a number.
pub(crate) fn decimal(row: &Row, column: &str) -> Option<f64> {
    row.text(column)?.trim().parse().ok()
}

/// Names with commas between them.
fn list(row: &Row, column: &str) -> Vec<Box<str>> {
    let text = row.text(column).unwrap_or_default();
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(Into::into).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ConfigError;
    use crate::snapshot::Snapshot;

    fn compiled(row: &str) -> Result<Arc<Rehearsal>, String> {
        let text = format!("mysql_rehearsals = ( {{ name=\"new\", source_hostgroup=1, shadow_hostgroup=9{row} }} )");
        let said = |errors: Vec<ConfigError>| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let (config, _) = crate::config::parse(&text, "test.cnf").map_err(said)?;
        Ok(Snapshot::compile(&config).map_err(said)?.rehearsals[0].clone())
    }

    #[test]
    fn rows_say_what_they_are() {
        let plain = compiled("").unwrap();
        assert_eq!((&*plain.name, plain.is_active, plain.source, plain.shadow), ("new", true, HostgroupId(1), HostgroupId(9)));
        assert_eq!((plain.percent, plain.slow_factor, plain.total_growth), (10.0, 1.5, 1.2));
        assert_eq!((plain.queue_bytes, plain.warmup_ms, plain.samples, plain.rechecks_per_s), (64 << 20, 60_000, 3, 10));
        assert!(plain.is_for_user("anna") && plain.is_for_schema(b"shop") && !plain.shows_literals && plain.explains);
        assert!(!compiled(", explain=0").unwrap().explains);
        let row = compiled(", active=0, percent=0.5, users=\"anna, bert\", schemas=\"shop\", slow_factor=2, show_literals=1").unwrap();
        assert_eq!((row.is_active, row.percent, row.slow_factor, row.shows_literals), (false, 0.5, 2.0, true));
        let all = compiled(", mode=\"all\", percent=100, on_full=\"wait\", wait_ms=50, pin=0").unwrap();
        assert_eq!((plain.mode, plain.wait_ms, plain.pins), (RehearsalMode::Reads, None, true));
        assert_eq!((all.mode, all.wait_ms, all.order_wait_ms, all.pins), (RehearsalMode::All, Some(50), 5_000, false));
        assert!(row.is_for_user("bert") && !row.is_for_user("b") && row.is_for_schema(b"shop") && !row.is_for_schema(b""));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (row, error) in [
            (", mode=\"writes\"", "mode: must be 'reads' or 'all'"),
            (", mode=\"all\"", "percent: must be 100 with mode 'all'"),
            (", mode=\"all\", percent=100, schemas=\"shop\"", "schemas: must be empty with mode 'all'"),
            (", on_full=\"wait\"", "on_full: must be 'drop' with mode 'reads'"),
            (", on_full=\"block\"", "on_full: must be 'drop' or 'wait'"),
            (", percent=0", "percent: must be a number above 0 and at most 100"),
            (", percent=\"x\"", "percent: must be a number"),
            (", percent=100.1", "percent: must be a number"),
            (", slow_factor=0.9", "slow_factor: must be a number from 1 to 1000"),
            (", total_growth=\"NaN\"", "total_growth: must be a number from 1 to 1000"),
            (", shadow_hostgroup=1", "shadow_hostgroup"),
            (", name=\"a b\"", "name: must be 1 to 64 letters, digits and marks of '_-.'"),
            (", name=\"\"", "name: must be 1 to 64"),
            (", queue_mb=0", "queue_mb"),
            (", explain=2", "explain"),
        ] {
            let row = format!("mysql_rehearsals = ( {{ name=\"new\", source_hostgroup=1, shadow_hostgroup=9{row} }} )");
            // A column that is named twice counts once, with its last value.
            let row = row.replace("shadow_hostgroup=9, shadow_hostgroup=1", "shadow_hostgroup=1").replace("name=\"new\", source", "source");
            let row = if row.contains("name=") { row } else { row.replace("source", "name=\"new\", source") };
            let found = crate::config::parse(&row, "test.cnf").map(drop).unwrap_err();
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            assert!(found.join("; ").contains(error), "{row}: {found:?}");
        }
    }

    #[test]
    fn sessions_are_drawn_evenly() {
        let row = compiled(", percent=10").unwrap();
        let all = compiled(", percent=100").unwrap();
        for (first, step) in [(1 << 30, 1), (1 << 30, 4), (1_073_741_827, 16)] {
            let drawn = (0..10_000).filter(|n| row.is_for_session(first + n * step)).count();
            assert!((800..1200).contains(&drawn), "{first} + n * {step}: {drawn}");
        }
        assert!((0..10_000).all(|id| all.is_for_session(id)));
    }

    fn ignored(row: &str) -> Result<Arc<Rehearsal>, String> {
        let rehearsal = "mysql_rehearsals = ( { name=\"new\", source_hostgroup=1, shadow_hostgroup=9 } )";
        let text = format!("{rehearsal}\nmysql_rehearsal_ignores = ( {{ {row} }} )");
        let said = |errors: Vec<ConfigError>| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let (config, _) = crate::parse(&text, "t.cnf").map_err(said)?;
        Ok(Snapshot::compile(&config).map_err(said)?.rehearsals[0].clone())
    }

    #[test]
    fn rows_that_ignore_differences_are_compiled() {
        let plan = ignored(r#"digest="0x3f1CC2B2A4D2E0B1", schemaname="shop", class="rows", comment="sorted elsewhere""#).unwrap();
        let row = &plan.ignores[0];
        assert!(row.is_for(0x3f1c_c2b2_a4d2_e0b1, b"shop") && !row.is_for(1, b"shop") && !row.is_for(0x3f1c_c2b2_a4d2_e0b1, b""));
        assert_eq!(row.text(), "sorted elsewhere (digest 0x3F1CC2B2A4D2E0B1, schemaname shop, class rows)");
        let all = &ignored(r#"column_name="changed_at""#).unwrap().ignores[0];
        assert!(all.is_for(5, b"any") && all.text() == "column_name changed_at");
    }

    #[test]
    fn rows_that_would_ignore_too_much_or_nothing_are_refused() {
        for (row, named) in [
            (r#"digest="3F1C""#, "as stats_tidegate_rehearsal_digests shows it"),
            (r#"digest="0xsomething""#, "as stats_tidegate_rehearsal_digests shows it"),
            (r#"comment="all of it""#, "the row would ignore all differences"),
            (r#"schemaname="shop""#, "the row would ignore all differences"),
            (r#"class="same""#, "must be empty or one of 'error_new'"),
            (r#"class="noise""#, "must be empty or one of 'error_new'"),
            (r#"column_name="a", class="count""#, "must be empty or 'rows' with column_name"),
        ] {
            let error = ignored(row).unwrap_err();
            assert!(error.contains(named), "{row}: {error}");
        }
    }
}
