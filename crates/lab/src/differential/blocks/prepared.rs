//! Prepared statements, procedures, several statements in one command.

use super::super::generate::{Known, Maker};
use super::super::step::Step;
use crate::client::Param;
use crate::flavor::Flavor;

const STATEMENTS: &[&str] = &[
    "SELECT ? AS p",
    "SELECT id, s FROM t WHERE id > ? ORDER BY id",
    "SELECT s FROM t WHERE s = ? OR n = ? ORDER BY id",
    "INSERT INTO t(s, n) VALUES(?, ?)",
    "UPDATE t SET n = ? WHERE id = ?",
    "SELECT * FROM ty ORDER BY id",
    "SELECT DATABASE(), @@sql_mode, @@time_zone, @@autocommit",
    "SELECT LAST_INSERT_ID(), ? AS x",
    "SELECT 1 + 'warn' WHERE ? IS NOT NULL",
    "DELETE FROM t WHERE id = ?",
    "INSERT INTO t(k) VALUES(?)",
    "SELECT COUNT(*) FROM t",
    "CALL p_many()",
    "SELECT * FROM t WHERE id IN (?, ?, ?) ORDER BY id LIMIT ?",
    "SET time_zone = ?",
    "INSERT INTO big(b) VALUES(?)",
    "SELECT ? + ?",
    "SHOW TABLES",
    "DO ?",
];

pub(super) fn new(maker: &mut Maker) {
    let sql = *maker.rng.pick(STATEMENTS);
    let slot = maker.prepare(sql);
    for _ in 0..maker.rng.below(3) {
        execute(maker, slot);
    }
    if maker.rng.one_in(8) {
        maker.step(Step::Prepare(201, "SELECT * FROM nowhere WHERE x = ?".to_owned()));
    }
}

/// Statements of earlier blocks, executed when other sessions have used the backends.
pub(super) fn again(maker: &mut Maker) {
    for _ in 0..=maker.rng.below(3) {
        let Some(Known { slot, .. }) = pick(maker) else { return new(maker) };
        match maker.rng.below(12) {
            0 => maker.step(Step::ResetStatement(slot)),
            1 => {
                maker.step(Step::CloseStatement(slot));
                execute(maker, slot);
                // MySQL adds that error to what SHOW WARNINGS showed before; here it is replaced.
                maker.sql("SELECT 1");
                maker.prepared.retain(|known| known.slot != slot);
            }
            2 => long_data(maker),
            _ => execute(maker, slot),
        }
    }
}

fn pick(maker: &mut Maker) -> Option<Known> {
    let known = maker.prepared.clone();
    (!known.is_empty()).then(|| *maker.rng.pick(&known))
}

fn execute(maker: &mut Maker, slot: u8) {
    let known = maker.prepared.iter().find(|known| known.slot == slot).copied();
    let Known { params: count, limited, .. } = known.unwrap_or(Known { slot, params: 0, limited: false });
    let mut params: Vec<Param> = (0..count).map(|place| param(maker, usize::from(slot) + place)).collect();
    if let Some(last) = params.last_mut().filter(|_| limited && maker.flavor == Flavor::Mysql) {
        // A value that is no integer is converted with a warning, which MySQL gives from the second execution on a connection on.
        *last = Param::UInt(3);
    }
    maker.step(Step::Execute(slot, params));
}

/// MySQL settles a parameter's type by the first execution and converts what comes later, so there the same parameter
/// always has values of one type.
fn param(maker: &mut Maker, which: usize) -> Param {
    let kind = match maker.flavor {
        Flavor::Mysql => (which % 7) as u64,
        Flavor::Mariadb => maker.rng.below(7),
    };
    match kind {
        // On MySQL, a parameter that was only ever NULL has the type that other sessions gave it on the backend.
        0 if maker.flavor == Flavor::Mysql => Param::Int(7),
        0 => Param::Null,
        1 => Param::Int(-5),
        2 => Param::UInt(3),
        3 => Param::Double(2.5),
        4 => Param::Text("one".to_owned()),
        5 => Param::Text("x".repeat(300)),
        _ => Param::Int(i64::try_from(maker.rng.below(6)).unwrap_or(0)),
    }
}

/// Data that was sent belongs to the backend until the execution.
fn long_data(maker: &mut Maker) {
    maker.pins();
    const SLOT: u8 = 202;
    maker.step(Step::Prepare(SLOT, "SELECT LENGTH(?), ? AS second".to_owned()));
    maker.step(Step::LongData(SLOT, 0, "first part, ".to_owned()));
    maker.step(Step::LongData(SLOT, 0, "x".repeat(3000)));
    if maker.rng.one_in(4) {
        maker.step(Step::ResetStatement(SLOT));
        maker.step(Step::LongData(SLOT, 0, "anew".to_owned()));
    }
    maker.step(Step::Execute(SLOT, vec![Param::Long, Param::Int(2)]));
    maker.step(Step::CloseStatement(SLOT));
    maker.sql("SELECT 1");
}

pub(super) fn cursors(maker: &mut Maker) {
    maker.pins();
    const SLOT: u8 = 203;
    let sql = *maker.rng.pick(&[
        "SELECT id, s, n FROM t ORDER BY id",
        "SELECT * FROM ty ORDER BY id",
        "SELECT 1 FROM t WHERE id < 0",
        "UPDATE t SET n = 4",
    ]);
    maker.step(Step::Prepare(SLOT, sql.to_owned()));
    let rows = *maker.rng.pick(&[1, 2, 100]);
    maker.step(Step::Cursor(SLOT, Vec::new(), rows));
    maker.step(Step::CloseStatement(SLOT));
    maker.sql("SELECT 1");
}

/// PREPARE as text.
pub(super) fn text(maker: &mut Maker) {
    maker.pins();
    maker.sql("PREPARE ps FROM 'SELECT ? AS x, COUNT(*) FROM t'");
    maker.some_of(&[
        "SET @p = 5",
        "EXECUTE ps USING @p",
        "EXECUTE ps",
        "PREPARE ps2 FROM 'INSERT INTO t(s) VALUES(?)'",
        "EXECUTE ps2 USING @p",
        "SELECT LAST_INSERT_ID()",
        "DEALLOCATE PREPARE ps2",
        "PREPARE ps FROM 'SELEC'",
    ]);
    maker.sql("DEALLOCATE PREPARE ps");
    maker.sql("DROP PREPARE ps2");
    maker.sql("SELECT 1");
}

pub(super) fn calls(maker: &mut Maker) {
    maker.one_of(&["CALL p_many()", "CALL p_none()", "CALL p_warn()", "CALL p_insert()"]);
    if maker.rng.one_in(2) {
        const SLOT: u8 = 204;
        maker.step(Step::Prepare(SLOT, "CALL p_out(?, ?, ?)".to_owned()));
        maker.step(Step::Execute(SLOT, vec![Param::Int(21), Param::Null, Param::Text("hi".to_owned())]));
        maker.step(Step::CloseStatement(SLOT));
    }
    maker.one_of(&["SHOW WARNINGS", "SELECT ROW_COUNT()", "SELECT LAST_INSERT_ID()"]);
}

pub(super) fn several(maker: &mut Maker) {
    maker.pins();
    maker.one_of(&[
        "SELECT 1; SELECT 2",
        "INSERT INTO t(s) VALUES('m1'); SELECT LAST_INSERT_ID(); UPDATE t SET n = 1 WHERE id = 1",
        "SELECT 1; SELECT * FROM nowhere; SELECT 3",
        "BEGIN; INSERT INTO t(s) VALUES('m2'); COMMIT",
        "SET time_zone = '+04:00'; SELECT @@time_zone",
        "SELECT 1 + 'w'; SHOW WARNINGS",
        "CALL p_many(); SELECT 'after'",
        "DO 1; DO 2; DO 3;",
        "SET @a = 1; SET @b = 2; SELECT @a, @b",
        "USE test; SELECT DATABASE()",
    ]);
    maker.reset_connection();
    if maker.rng.one_in(3) {
        let option = u16::from(maker.rng.one_in(2));
        maker.step(Step::SetOption(option));
        maker.sql("SELECT 1; SELECT 2");
        maker.reset_connection();
    }
    maker.sql("SELECT 1");
}

/// Several statements, of which the first asks about the statement before them.
pub(super) fn several_that_ask(maker: &mut Maker) {
    let before: &[&str] = &[
        "SELECT 1 + 'w', 2 + 'v'",
        "SELECT * FROM nowhere",
        "UPDATE t SET n = n + 1 WHERE id < 3",
        "INSERT INTO t(s) VALUES('before'), ('it')",
        "SELECT id FROM t ORDER BY id LIMIT 2",
    ];
    let first: &[&str] = &[
        "SHOW WARNINGS",
        "show /* c */ warnings limit 1",
        "SHOW ERRORS",
        "SHOW COUNT(*) WARNINGS",
        "SHOW COUNT(*) ERRORS",
        "SHOW WARNINGS; SHOW COUNT(*) WARNINGS; SHOW ERRORS",
        "SELECT @@warning_count, @@error_count",
        "SELECT ROW_COUNT()",
        "SELECT 'r', x.`ROW_COUNT()` FROM (SELECT ROW_COUNT()) x",
        "INSERT INTO t(s) VALUES(CONCAT('rows: ', ROW_COUNT()))",
        "UPDATE t SET n = ROW_COUNT() WHERE id = 2",
        "SELECT LAST_INSERT_ID() - LAST_INSERT_ID(), ROW_COUNT() AS r",
    ];
    let then: &[&str] = &[
        "SELECT id, s FROM t ORDER BY id",
        "INSERT INTO t(s) VALUES('after')",
        "UPDATE t SET n = n + 1; SELECT ROW_COUNT()",
        "SELECT 'x', 'y'; SELECT n FROM t WHERE id = 2",
        "SELECT * FROM nowhere; SELECT 3",
        "INSERT IGNORE INTO t(id) VALUES(1); SHOW WARNINGS",
    ];
    let mut rng = maker.rng.clone();
    let (before, first, then) = (*rng.pick(before), *rng.pick(first), *rng.pick(then));
    let asks_for_rows = before.starts_with("SELECT id") && rng.one_in(2);
    maker.rng = rng;
    maker.sql(before);
    maker.sql(format!("{}; {then}", if asks_for_rows { "SELECT FOUND_ROWS() AS f" } else { first }));
    maker.one_of(&["SHOW WARNINGS", "SELECT id, n, s FROM t ORDER BY id", "SELECT ROW_COUNT()", "SELECT @@warning_count"]);
}
