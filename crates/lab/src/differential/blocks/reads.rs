//! Statements that change nothing.

use super::super::generate::Maker;

pub(super) fn plain(maker: &mut Maker) {
    for _ in 0..=maker.rng.below(3) {
        maker.one_of(&[
            "SELECT 1",
            "SELECT id, k, s, n FROM t ORDER BY id",
            "SELECT t.*, v.u AS upper FROM t LEFT JOIN v ON v.id = t.id WHERE t.id = 2",
            "SELECT COUNT(*), SUM(n), MIN(s), MAX(k), AVG(n) FROM t",
            "SELECT s, COUNT(*) c FROM t GROUP BY s ORDER BY s DESC LIMIT 3",
            "SELECT * FROM t WHERE id = -1",
            "SELECT NULL, 'text', 1.50, -7, 1e3, x'00ff', TRUE, DATE '2024-01-02'",
            "SELECT 'a' UNION SELECT 'b' UNION ALL SELECT NULL ORDER BY 1",
            "SELECT GROUP_CONCAT(id ORDER BY id) FROM t",
            "SELECT (SELECT MAX(id) FROM t) AS m, EXISTS(SELECT * FROM t WHERE n = 30) AS e",
            "SELECT CONCAT('a', \"b\"), 'it''s', 'back\\\\slash'",
            "SELECT 7 / 3, 7 DIV 3, ROUND(2.5), CAST('12abc' AS CHAR(2))",
            "SELECT * FROM (SELECT 1 AS x UNION SELECT 2) d ORDER BY x",
            "WITH r AS (SELECT d FROM digits WHERE d < 5) SELECT d, d * d FROM r ORDER BY d",
            "SELECT id, ROW_NUMBER() OVER (ORDER BY n DESC, id) AS rn FROM t ORDER BY id",
            "SELECT DATE_FORMAT('2024-03-05', '%W %M'), WEEK('2024-01-07')",
            "SELECT s FROM t WHERE s LIKE 't%' ORDER BY s FOR UPDATE",
            "SELECT s FROM t WHERE id = 2 LOCK IN SHARE MODE",
            "/* a comment */ SELECT /*! 2 */ + 1 -- end",
            "SELECT 1;",
            "(SELECT 3)",
            "DO 1",
            "TABLE t ORDER BY id LIMIT 2",
            "VALUES ROW(1,2), ROW(3,4)",
        ]);
    }
}

pub(super) fn all_types(maker: &mut Maker) {
    maker.one_of(&[
        "SELECT * FROM ty ORDER BY id",
        "SELECT ti, tu, bo, si, mi, i, bi, bu, f, d, de FROM ty ORDER BY id",
        "SELECT da, dt, ts, tm, y FROM ty ORDER BY id DESC",
        "SELECT c, vc, cb, l1, tt, tx, en, se, js FROM ty ORDER BY id",
        "SELECT b1, b9, bn, vb, tb, bl, mb, lb, g FROM ty WHERE id <> 2 ORDER BY id",
        "SELECT CAST(js AS CHAR), LENGTH(lt), i + 0, de * 2, ADDTIME(tm, '1:0:0') FROM ty ORDER BY id",
    ]);
}

pub(super) fn large(maker: &mut Maker) {
    let size = *maker.rng.pick(&[250, 251, 252, 65_535, 65_536, 70_000, 300_000]);
    let sql = format!("SELECT REPEAT('x', {size}) AS r, {size} AS n");
    maker.either_protocol(&sql);
    let rows = 50 + maker.rng.below(400);
    let sql = format!(
        "SELECT a.d * 100 + b.d * 10 + c.d AS n, REPEAT('y', a.d * 100 + b.d) FROM digits a, digits b, digits c ORDER BY n LIMIT {rows}"
    );
    maker.either_protocol(&sql);
}

pub(super) fn shows(maker: &mut Maker) {
    maker.one_of(&[
        "SHOW TABLES",
        "SHOW COLUMNS FROM t",
        "DESCRIBE child",
        "SHOW CREATE TABLE t",
        "SHOW CREATE VIEW v",
        "SHOW CREATE PROCEDURE p_out",
        "SHOW DATABASES LIKE 'test\\_d_'",
        "SHOW COLLATION LIKE 'latin1%'",
        "SHOW CHARACTER SET LIKE 'utf8%'",
        "SHOW VARIABLES LIKE 'autocommit'",
        "SHOW GRANTS",
        "SHOW ENGINES",
        "EXPLAIN SELECT 1",
        "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() ORDER BY table_name",
        "CHECK TABLE t",
        "CHECKSUM TABLE t",
        "ANALYZE TABLE parent",
        "HELP 'nothing of that name'",
    ]);
}
