use std::collections::BTreeMap;

use proptest::prelude::*;
use rusqlite::Connection;

use super::roll::roll;
use super::sample::put;
use super::series::{Kind, TABLES};
use super::*;

fn database() -> Connection {
    let db = Connection::open_in_memory().unwrap();
    db.execute("ATTACH DATABASE ':memory:' AS stats_history", []).unwrap();
    crate::store::layout::create_history(&db).unwrap();
    db
}

fn all(db: &Connection, table: &str) -> Vec<Vec<i64>> {
    let mut found = db.prepare(&format!("SELECT * FROM stats_history.{table} ORDER BY 1")).unwrap();
    let width = found.column_count();
    let rows = found.query_map([], |row| (0..width).map(|index| row.get(index)).collect()).unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}

/// One row a step: the last value of a counter, the average of a gauge.
fn folded(rows: &[Vec<i64>], kinds: &[Kind], step: i64, bound: i64) -> Vec<Vec<i64>> {
    let mut groups: BTreeMap<i64, Vec<&Vec<i64>>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row[0] < bound - bound % step) {
        groups.entry(row[0] / step * step).or_default().push(row);
    }
    let value = |group: &[&Vec<i64>], (at, kind): (usize, &Kind)| match kind {
        Kind::Counter => group.last().unwrap()[at + 1],
        Kind::Gauge => (group.iter().map(|row| row[at + 1]).sum::<i64>() as f64 / group.len() as f64).round() as i64,
    };
    let line = |(time, group): (i64, Vec<&Vec<i64>>)| {
        std::iter::once(time).chain(kinds.iter().enumerate().map(|column| value(&group, column))).collect()
    };
    groups.into_iter().map(line).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn hours_and_days_are_those_of_the_samples(
        steps in prop::collection::vec((prop_oneof![8 => 60_i64..2_000, 2 => 3_000_i64..400_000], 0_i64..1_000, any::<bool>()), 1..120),
    ) {
        let (db, table) = (database(), TABLES.iter().find(|table| table.name == "mysql_query_cache").unwrap());
        let kinds: Vec<Kind> = table.columns.iter().map(|column| column.kind).collect();
        let settings = AdminVariables { stats_history_days: 3_650, ..Default::default() };
        let (mut now, mut samples) = (1_700_000_000, Vec::new());
        for (later, value, is_rolled) in steps {
            now += later;
            let numbers: Vec<i64> = (0..8).map(|column| value + column).collect();
            put(&db, table.name, now, &numbers).unwrap();
            samples.push(std::iter::once(now).chain(numbers).collect::<Vec<_>>());
            if is_rolled {
                roll(&db, table, &settings, now).unwrap();
            }
        }
        // Slices: so many turns at most.
        for _ in 0..120 {
            roll(&db, table, &settings, now).unwrap();
        }
        let hours = folded(&samples, &kinds, 3_600, now);
        prop_assert_eq!(all(&db, "mysql_query_cache_hour"), hours.clone());
        prop_assert_eq!(all(&db, "mysql_query_cache_day"), folded(&hours, &kinds, 86_400, now));
        prop_assert_eq!(all(&db, "mysql_query_cache"), samples);
    }
}

#[test]
fn what_is_too_old_or_too_much_goes() {
    let (db, table) = (database(), TABLES.iter().find(|table| table.name == "system_cpu").unwrap());
    let mut settings =
        AdminVariables { stats_history_days: 1, stats_history_hour_days: 2, stats_history_rows: 1_000, ..Default::default() };
    let start = 1_700_006_400;
    for minute in 0..3 * 1_440 {
        let now = start + minute * 60;
        put(&db, table.name, now, &[minute, minute]).unwrap();
        roll(&db, table, &settings, now).unwrap();
        assert!(all(&db, table.name).len() <= 1_000);
    }
    let (samples, hours, days) = (all(&db, "system_cpu"), all(&db, "system_cpu_hour"), all(&db, "system_cpu_day"));
    assert_eq!((samples.len(), samples.last().unwrap()[1]), (1_000, 3 * 1_440 - 1));
    assert_eq!((hours.len(), days.len()), (47, 2), "hours of two days, of which the last is not over, and the days that are");
    assert_eq!(days[1], [start + 86_400, 2_879, 2_879]);
    settings.stats_history_rows = 1_000_000;
    roll(&db, table, &settings, start + 30 * 86_400).unwrap();
    assert_eq!(all(&db, "system_cpu").len(), 0);
}

#[test]
fn series_are_due_once_a_period() {
    let mut settings = AdminVariables::default();
    let at = |seconds: u64| 1_700_000_000_000 / 60_000 * 60_000 + seconds * 1_000;
    let mut history = History::new(&settings, at(10));
    let names = |due: Vec<&'static Series>| due.iter().map(|series| series.name).collect::<Vec<_>>();
    assert_eq!(history.wait(&settings, at(55)), Duration::from_secs(5));
    assert_eq!(history.wait(&settings, at(10)), Duration::from_millis(LOOK_MS));
    assert!(history.due(&settings, at(59)).is_empty());
    assert_eq!(history.due(&settings, at(61)).len(), 5);
    assert!(history.due(&settings, at(62)).is_empty());
    settings.stats_system_cpu = 1;
    settings.stats_mysql_query_cache = 0;
    settings.stats_mysql_query_digest_to_disk = 86_400;
    assert!(history.due(&settings, at(63)).is_empty(), "a new period begins");
    assert_eq!(names(history.due(&settings, at(64))), ["stats_system_cpu"]);
    assert_eq!(history.due(&settings, at(120)).len(), 4);
    assert_eq!(history.due(&settings, at(3)).len(), 4, "the clock was set back");
    assert!(names(history.due(&settings, at(90_000))).contains(&"stats_mysql_query_digest_to_disk"));
}

#[test]
fn starts_are_kept_as_long_as_samples() {
    let (db, settings) = (database(), AdminVariables { stats_history_days: 1, ..Default::default() });
    for (now, is_upgrade) in [(1_700_000_000, false), (1_700_050_000, true), (1_700_100_000, false)] {
        starts::note(&db, &settings, "0.2.0", is_upgrade, now).unwrap();
    }
    let mut found = db.prepare("SELECT timestamp, kind, version FROM stats_history.history_tidegate_starts").unwrap();
    let rows = found.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    let rows: Vec<(i64, String, String)> = rows.collect::<Result<_, _>>().unwrap();
    let row = |at, kind: &str| (at, kind.to_owned(), "0.2.0".to_owned());
    assert_eq!(rows, [row(1_700_050_000, "upgrade"), row(1_700_100_000, "start")]);
}
