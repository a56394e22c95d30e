"""`mariadb-dump` and MySQL's `mysqldump`, and the restore of what they wrote: every byte is compared."""

import hashlib
import re

from client import FLAVOR, SCRATCH, SQL, address, mysql_program, run, shell

CLIENTS = {"mariadb-dump": (["mariadb-dump"], ["mariadb"]), "mysqldump": (mysql_program("mysqldump"), mysql_program("mysql"))}
FILL = """
DROP TABLE IF EXISTS every_type, child, parent;
{types}
CREATE TABLE parent (id INT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(50) NOT NULL, UNIQUE KEY (name)) COMMENT 'héritage';
CREATE TABLE child (id INT PRIMARY KEY AUTO_INCREMENT, parent INT, data BLOB, FOREIGN KEY (parent) REFERENCES parent (id));
INSERT INTO parent (name) VALUES ('a'), ('b;c'), ('d''e'), ('😀');
INSERT INTO child (parent, data) SELECT id, RANDOM_BYTES_HERE FROM parent;
CREATE OR REPLACE VIEW both_tables AS SELECT p.name, c.id FROM parent p JOIN child c ON c.parent = p.id;
DROP TRIGGER IF EXISTS upper_name;
DELIMITER //
CREATE TRIGGER upper_name BEFORE INSERT ON parent FOR EACH ROW BEGIN SET NEW.name = CONCAT(NEW.name, ''); END//
DROP PROCEDURE IF EXISTS two_results//
{procedure}//
DELIMITER ;
CREATE TABLE many (i INT PRIMARY KEY, filling VARCHAR(200));
INSERT INTO many SELECT a.n + b.n * 10 + c.n * 100 + d.n * 1000, REPEAT(SHA2(a.n + b.n, 256), 2) FROM {ten} a, {ten} b, {ten} c, {ten} d;
"""
TEN = "(SELECT 0 AS n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9)"


def fill():
    text = FILL.format(types=(SQL / "types.sql").read_text(), procedure=(SQL / "procedure.sql").read_text(), ten=TEN)
    text = text.replace("RANDOM_BYTES_HERE", "UNHEX(SHA2(name, 256))")
    code, out, err = shell(["mariadb", *address(), "--default-character-set=utf8mb4", "test"], text)
    assert code == 0, err
    return out


def without_times(dump):
    """The dump without the lines that differ from run to run."""
    return re.sub(r"^-- (Dump completed|Host|MariaDB dump|MySQL dump|Server version).*$", "", dump, flags=re.M)


def dump(name, options, database="test"):
    command = [*CLIENTS[name][0], *address(), *options, database]
    code, out, err = shell(command, limit=200)
    assert code == 0, err
    return out, err


def dumped(name, *options):
    def test():
        out, err = dump(name, options)
        text = without_times(out)
        (SCRATCH / f"{name}{''.join(options)}.sql".replace("/", "_")).write_text(text)
        return len(text), hashlib.sha256(text.encode()).hexdigest(), err

    return test


def restored(name, *options):
    """Dumps `test`, restores it as `test_restored`, dumps that: both dumps are equal."""

    def test():
        first, _ = dump(name, options)
        client = [*CLIENTS[name][1], *address(), "--default-character-set=utf8mb4"]
        code, _, err = shell(client, "DROP DATABASE IF EXISTS test_restored; CREATE DATABASE test_restored CHARACTER SET utf8mb4;")
        assert code == 0, err
        code, _, err = shell([*client, "test_restored"], first, limit=200)
        assert code == 0, err
        second, _ = dump(name, options, "test_restored")
        one, two = (without_times(d).replace("test_restored", "test").splitlines() for d in (first, second))
        different = [(a, b) for a, b in zip(one, two) if a != b] or [("lines", f"{len(one)} and {len(two)}")] * (len(one) != len(two))
        assert not different, f"the dump of the restored database differs: {str(different[0])[:400]}"
        return len(without_times(first))

    return test


FULL = ("--routines", "--triggers", "--events", "--hex-blob")
TESTS = [("fill", fill)]
# MySQL's own programs have no mysql_native_password any more, so they cannot log in to MariaDB.
for tool in CLIENTS if FLAVOR == "mysql" else ["mariadb-dump"]:
    foreign = ["--set-gtid-purged=OFF"] if tool == "mysqldump" else []
    for label, options in (
        ("default", []), ("single_transaction", ["--single-transaction", "--quick"]), ("lock_all", ["--lock-all-tables"]), ("full", [*FULL]),
        ("compress", ["--compress"]), ("no_opt", ["--skip-opt"]), ("complete_insert", ["--complete-insert", "--single-transaction", "--tz-utc"]),
    ):
        TESTS.append((f"{tool}_{label}", dumped(tool, *foreign, *options)))
    TESTS.append((f"{tool}_restore", restored(tool, *foreign, "--single-transaction", *FULL)))
run(TESTS)
