"""The tests of every Python DB-API driver. A driver says how it connects and what it can do; see `Driver`."""

import contextlib
import hashlib
import os

from common import DATABASE, FLAVOR, PROCEDURE, TYPES, Skip, run, temporary_file

BLOB_BYTES = 20 << 20
#: More sessions than the proxy has backend connections.
CROWD = 12


class Driver:
    """What a driver's program fills in."""

    #: Placeholder of its parameters.
    mark = "%s"
    #: Its exception for errors from the server.
    error = Exception

    def connect(self, **options):
        """A connection, not in autocommit mode. Options: tls, compress, local_infile, multi, database, autocommit."""
        raise NotImplementedError

    def close(self, connection):
        connection.close()

    def code(self, error):
        """The server's error number."""
        return error.args[0]

    def last_id(self, cursor):
        return cursor.lastrowid

    def prepared(self, connection):
        """A cursor that prepares on the server."""
        raise Skip("no prepared statements in this driver")

    def streaming(self, connection):
        """A cursor that does not fetch everything at once."""
        raise Skip("no such cursor in this driver")

    def reset(self, connection):
        raise Skip("no reset in this driver")

    def change_user(self, connection):
        """To user `app`, database `test`."""
        raise Skip("no change of user in this driver")

    def ping(self, connection):
        connection.ping()

    def results(self, cursor):
        """All result sets of what was executed: lists of rows, None for a statement without rows."""
        answer = []
        while True:
            answer.append(list(map(tuple, cursor.fetchall())) if cursor.description else None)
            if not cursor.nextset():
                return answer

    def call(self, connection, name, args):
        """Result sets, then the arguments after the call."""
        with contextlib.closing(connection.cursor()) as cursor:
            cursor.callproc(name, args)
            sets = [s for s in self.results(cursor) if s is not None]
            names = ", ".join(f"@_{name}_{i}" for i in range(len(args)))
            cursor.execute("SELECT " + names)
            return sets, list(cursor.fetchall())


class Suite:
    """The tests; every public method that begins with `test_` is one."""

    def __init__(self, driver):
        self.driver = driver

    @contextlib.contextmanager
    def connection(self, **options):
        connection = self.driver.connect(**options)
        try:
            yield connection
        finally:
            self.driver.close(connection)

    def execute(self, connection, statement, args=None):
        """Rows, or the number of rows changed."""
        cursor = connection.cursor()
        try:
            cursor.execute(statement) if args is None else cursor.execute(statement, args)
            if cursor.description:
                return list(map(tuple, cursor.fetchall()))
            return cursor.rowcount
        finally:
            cursor.close()

    def table(self, connection, name, columns):
        self.execute(connection, f"DROP TABLE IF EXISTS {name}")
        self.execute(connection, f"CREATE TABLE {name} ({columns})")

    def every_type(self, connection):
        self.execute(connection, "DROP TABLE IF EXISTS every_type")
        for statement in TYPES:
            self.execute(connection, statement)
        connection.commit()

    def fails_with(self, connection, statement, args=None):
        try:
            self.execute(connection, statement, args)
        except self.driver.error as error:
            return self.driver.code(error), str(error)
        raise AssertionError(f"{statement} succeeded")

    # -- connecting

    def test_connect(self):
        with self.connection() as c:
            return self.execute(c, "SELECT 1, 'a', NULL, DATABASE(), CURRENT_USER()")

    def test_connect_tls(self):
        with self.connection(tls=True) as c:
            return self.execute(c, "SELECT 'over TLS', COUNT(*) FROM information_schema.schemata")

    def test_connect_compressed(self):
        with self.connection(compress=True) as c:
            rows = self.execute(c, "SELECT REPEAT('abc', 300000) AS r, 1")
            assert rows == [("abc" * 300000, 1)]
            return self.execute(c, "SELECT 'short'")

    def test_connect_without_database(self):
        with self.connection(database=None) as c:
            before = self.execute(c, "SELECT DATABASE()")
            return before, self.execute(c, f"USE {DATABASE}"), self.execute(c, "SELECT DATABASE()")

    def test_wrong_password(self):
        try:
            with self.connection(password="wrong"):
                pass
        except self.driver.error as error:
            return self.driver.code(error)
        raise AssertionError("connected")

    def test_unknown_database(self):
        try:
            with self.connection(database="no_such_database") as c:
                self.execute(c, "SELECT 1")
        except self.driver.error as error:
            return self.driver.code(error)
        raise AssertionError("connected")

    def test_ping(self):
        with self.connection() as c:
            self.driver.ping(c)
            return self.execute(c, "SELECT 1")

    def test_many_connections(self):
        for _ in range(30):
            with self.connection() as c:
                assert self.execute(c, "SELECT 1") == [(1,)]

    # -- values

    def test_types_text(self):
        with self.connection() as c:
            self.every_type(c)
            return self.execute(c, "SELECT * FROM every_type ORDER BY id")

    def test_types_prepared(self):
        with self.connection() as c:
            cursor = self.driver.prepared(c)
            self.every_type(c)
            names = [row[0] for row in self.execute(c, "SHOW COLUMNS FROM every_type")]
            answers = {}
            for name in names:
                # Some values are beyond some drivers; the others are compared all the same.
                try:
                    cursor.execute(f"SELECT {name} FROM every_type WHERE id > ? ORDER BY id", (0,))
                    answers[name] = list(cursor.fetchall())
                except (self.driver.error, IndexError, ValueError, TypeError) as error:
                    answers[name] = f"{type(error).__name__}: {error}"
                    cursor = self.driver.prepared(c)
            return answers

    def test_types_description(self):
        with self.connection() as c:
            self.every_type(c)
            cursor = c.cursor()
            cursor.execute("SELECT * FROM every_type")
            described = [tuple(column)[:7] for column in cursor.description]
            cursor.fetchall()
            cursor.close()
            return described

    def test_prepared_many(self):
        with self.connection() as c:
            cursor = self.driver.prepared(c)
            self.table(c, "prepared", "i INT PRIMARY KEY AUTO_INCREMENT, t VARCHAR(50), d DOUBLE, n INT")
            for number in range(50):
                cursor.execute("INSERT INTO prepared (t, d, n) VALUES (?, ?, ?)", (f"é{number}", number / 4, None))
            c.commit()
            cursor.execute("SELECT * FROM prepared WHERE i BETWEEN ? AND ? ORDER BY i", (10, 20))
            rows = cursor.fetchall()
            cursor.execute("SELECT COUNT(*) FROM prepared WHERE t = ?", ("é7",))
            return list(rows), list(cursor.fetchall())

    def test_unicode(self):
        text = "ASCII, é, Ж, 漢字, 😀, \\ ' \" % _ \0 \n \r \x1a"
        with self.connection() as c:
            self.table(c, "words", "t TEXT CHARACTER SET utf8mb4")
            self.execute(c, f"INSERT INTO words VALUES ({self.driver.mark})", (text,))
            rows = self.execute(c, "SELECT t, HEX(t), CHAR_LENGTH(t) FROM words")
            assert rows[0][0] == text, rows
            return rows, self.execute(c, "SELECT 'née 😀' AS `col é`, CHARSET('a')")

    def test_parameters(self):
        values = (1, -1, 1.5, "text", b"\x00\xff", None, True)
        marks = ", ".join(self.driver.mark for _ in values)
        with self.connection() as c:
            return self.execute(c, f"SELECT {marks}", values)

    def test_nulls(self):
        with self.connection() as c:
            self.table(c, "nulls", "a INT, b TEXT, c DATETIME")
            self.execute(c, f"INSERT INTO nulls VALUES ({self.driver.mark}, NULL, NULL)", (None,))
            return self.execute(c, "SELECT *, a IS NULL, COUNT(b) FROM nulls GROUP BY a, b, c")

    def test_big_blob(self):
        blob = hashlib.sha256(b"seed").digest() * (BLOB_BYTES // 32)
        with self.connection() as c:
            self.table(c, "blobs", "b LONGBLOB")
            self.execute(c, f"INSERT INTO blobs VALUES ({self.driver.mark})", (blob,))
            c.commit()
            length = self.execute(c, "SELECT LENGTH(b), SHA2(b, 256) FROM blobs")
            assert length[0][1] == hashlib.sha256(blob).hexdigest()
            assert bytes(self.execute(c, "SELECT b FROM blobs")[0][0]) == blob
            return length

    def test_packet_borders(self):
        with self.connection() as c:
            for size in (0xFFFFFF - 1, 0xFFFFFF, 0xFFFFFF + 1):
                # A row of one value: three or four bytes of length, then the value.
                for around in (size - 9, size - 4, size - 3, size):
                    rows = self.execute(c, f"SELECT REPEAT('x', {around})")
                    assert len(rows[0][0]) == around
            head = "SELECT LENGTH('"
            for size in (0xFFFFFF - 1, 0xFFFFFF, 0xFFFFFF + 1):
                count = size - len(head) - len("')") - 1
                assert self.execute(c, head + "y" * count + "')") == [(count,)]

    def test_many_rows(self):
        with self.connection() as c:
            rows = self.execute(c, self.numbers(100_000))
            assert len(rows) == 100_000
            return sum(int(row[0]) for row in rows)

    def numbers(self, count):
        digits = " CROSS JOIN ".join(
            f"(SELECT 0 AS d{i} UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5"
            f" UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9) AS t{i}"
            for i in range(5)
        )
        return f"SELECT d0 + d1 * 10 + d2 * 100 + d3 * 1000 + d4 * 10000 AS n, 'filling text' FROM {digits} ORDER BY n LIMIT {count}"

    def test_streaming(self):
        with self.connection() as c:
            cursor = self.driver.streaming(c)
            cursor.execute(self.numbers(20_000))
            first = [cursor.fetchone() for _ in range(3)]
            rest = sum(1 for _ in iter(cursor.fetchone, None))
            cursor.close()
            return first, rest, self.execute(c, "SELECT 'after'")

    # -- effects

    def test_commit_and_rollback(self):
        with self.connection() as c, self.connection(autocommit=True) as other:
            self.table(c, "kept", "i INT PRIMARY KEY")
            count = lambda connection: self.execute(connection, "SELECT COUNT(*) FROM kept")[0][0]
            steps = []
            self.execute(c, "INSERT INTO kept VALUES (1)")
            steps.append((count(c), count(other)))
            c.rollback()
            steps.append((count(c), count(other)))
            c.commit()
            self.execute(c, "INSERT INTO kept VALUES (2)")
            c.commit()
            steps.append((count(c), count(other)))
            assert steps == [(1, 0), (0, 0), (1, 1)], steps
            return steps

    def test_savepoints(self):
        with self.connection() as c:
            self.table(c, "saved", "i INT")
            for statement in ("INSERT INTO saved VALUES (1)", "SAVEPOINT a", "INSERT INTO saved VALUES (2)", "ROLLBACK TO SAVEPOINT a",
                              "INSERT INTO saved VALUES (3)", "RELEASE SAVEPOINT a"):
                self.execute(c, statement)
            c.commit()
            return self.execute(c, "SELECT i FROM saved ORDER BY i")

    def test_close_rolls_back(self):
        with self.connection() as c:
            self.table(c, "left_open", "i INT")
        with self.connection() as c:
            self.execute(c, "INSERT INTO left_open VALUES (1)")
        with self.connection() as c:
            rows = self.execute(c, "SELECT COUNT(*) FROM left_open")
            assert rows == [(0,)], rows

    def test_last_insert_id(self):
        with self.connection() as c:
            self.table(c, "ids", "i INT PRIMARY KEY AUTO_INCREMENT, t TEXT")
            cursor = c.cursor()
            ids = []
            for text in "abc":
                cursor.execute(f"INSERT INTO ids (t) VALUES ('{text}')")
                ids.append(self.driver.last_id(cursor))
            c.commit()
            ids.append(self.execute(c, "SELECT LAST_INSERT_ID(), @@identity"))
            cursor.execute("INSERT INTO ids (t) VALUES ('d'), ('e')")
            ids.append((self.driver.last_id(cursor), cursor.rowcount))
            cursor.close()
            return ids

    def test_affected_rows(self):
        with self.connection() as c:
            self.table(c, "changed", "i INT PRIMARY KEY, t INT")
            return [
                self.execute(c, "INSERT INTO changed VALUES (1, 1), (2, 1), (3, 1)"),
                self.execute(c, "UPDATE changed SET t = 2 WHERE i < 3"),
                self.execute(c, "UPDATE changed SET t = 2"),
                self.execute(c, "REPLACE INTO changed VALUES (1, 5)"),
                self.execute(c, "INSERT INTO changed VALUES (1, 6) ON DUPLICATE KEY UPDATE t = 6"),
                self.execute(c, "SELECT ROW_COUNT()"),
                self.execute(c, "DELETE FROM changed"),
                self.execute(c, "SELECT ROW_COUNT()"),
            ]

    def test_errors(self):
        with self.connection() as c:
            self.table(c, "unique_ones", "i INT PRIMARY KEY")
            self.execute(c, "INSERT INTO unique_ones VALUES (1)")
            return [
                self.fails_with(c, "SELECT * FROM no_such_table"),
                self.fails_with(c, "SELEC 1"),
                self.fails_with(c, "INSERT INTO unique_ones VALUES (1)"),
                self.fails_with(c, "SELECT no_such_column"),
                self.fails_with(c, "USE no_such_database"),
                self.fails_with(c, "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'own error é', MYSQL_ERRNO = 5555"),
                self.execute(c, "SELECT 'still here'"),
            ]

    def test_warnings(self):
        with self.connection() as c:
            self.execute(c, "DROP TABLE IF EXISTS no_such_table_either")
            shown = self.execute(c, "SHOW WARNINGS")
            counted = self.execute(c, "SELECT @@warning_count")
            self.execute(c, "SELECT 1")
            return shown, counted, self.execute(c, "SHOW WARNINGS")

    def test_executemany(self):
        with self.connection() as c:
            self.table(c, "many", "i INT, t VARCHAR(20)")
            cursor = c.cursor()
            mark = self.driver.mark
            cursor.executemany(f"INSERT INTO many VALUES ({mark}, {mark})", [(i, f"row {i}") for i in range(2000)])
            changed = cursor.rowcount
            cursor.close()
            c.commit()
            return changed, self.execute(c, "SELECT COUNT(*), SUM(i) FROM many")

    # -- several answers

    def test_multi_statements(self):
        with self.connection(multi=True) as c:
            self.table(c, "multi", "i INT")
            cursor = c.cursor()
            cursor.execute("SELECT 1; INSERT INTO multi VALUES (1), (2); SELECT i FROM multi ORDER BY i; SELECT 'ä;b'")
            return self.driver.results(cursor)

    def test_multi_statements_error(self):
        with self.connection(multi=True) as c:
            cursor = c.cursor()
            try:
                cursor.execute("SELECT 1; SELECT * FROM no_such_table; SELECT 2")
                self.driver.results(cursor)
            except self.driver.error as error:
                code = self.driver.code(error)
            cursor.close()
            return code, self.execute(c, "SELECT 'still here'")

    def test_procedure(self):
        with self.connection() as c:
            self.execute(c, "DROP PROCEDURE IF EXISTS two_results")
            self.execute(c, PROCEDURE)
            return self.driver.call(c, "two_results", (5, 0, 10))

    def test_load_data_local(self):
        path = temporary_file("".join(f"{i},line {i}\n" for i in range(5000)))
        try:
            with self.connection(local_infile=True) as c:
                self.table(c, "loaded", "i INT, t VARCHAR(30)")
                changed = self.execute(c, f"LOAD DATA LOCAL INFILE '{path}' INTO TABLE loaded FIELDS TERMINATED BY ','")
                c.commit()
                return changed, self.execute(c, "SELECT COUNT(*), SUM(i), MAX(t) FROM loaded")
        finally:
            os.unlink(path)

    def test_load_data_missing_file(self):
        with self.connection(local_infile=True) as c:
            self.table(c, "loaded", "i INT, t VARCHAR(30)")
            try:
                self.execute(c, "LOAD DATA LOCAL INFILE '/no/such/file' INTO TABLE loaded")
                outcome = "no error"
            except Exception as error:  # each driver has its own class for this
                outcome = type(error).__name__
            return outcome

    # -- session state, with more sessions than backend connections

    def crowd(self, statement, question):
        """Each session of a crowd sets something of its own; later, in turns, each must still have it."""
        connections = [self.driver.connect(autocommit=True) for _ in range(CROWD)]
        try:
            for number, c in enumerate(connections):
                self.execute(c, statement(number))
            return [[self.execute(c, question) for c in connections] for _ in range(2)]
        finally:
            for c in connections:
                self.driver.close(c)

    def test_crowd_time_zone(self):
        return self.crowd(lambda n: f"SET time_zone = '+{n:02}:00'", "SELECT @@time_zone, FROM_UNIXTIME(0)")

    def test_crowd_sql_mode(self):
        modes = ["", "ANSI_QUOTES", "NO_BACKSLASH_ESCAPES", "STRICT_ALL_TABLES,PIPES_AS_CONCAT"]
        return self.crowd(lambda n: f"SET SESSION sql_mode = '{modes[n % 4]}'", "SELECT @@sql_mode, '1' || '1'")

    def test_crowd_charset(self):
        names = ["utf8mb4", "latin1", "utf8mb4 COLLATE utf8mb4_bin", "ascii"]
        return self.crowd(lambda n: f"SET NAMES {names[n % 4]}", "SELECT @@character_set_client, @@collation_connection")

    def test_crowd_schema(self):
        with self.connection() as c:
            for number in range(3):
                self.execute(c, f"CREATE DATABASE IF NOT EXISTS test_crowd_{number}")
        return self.crowd(lambda n: f"USE test_crowd_{n % 3}", "SELECT DATABASE()")

    def test_crowd_last_insert_id(self):
        with self.connection() as c:
            self.table(c, "crowd_ids", "i INT PRIMARY KEY AUTO_INCREMENT")
        return self.crowd(lambda n: "INSERT INTO crowd_ids VALUES ()", "SELECT LAST_INSERT_ID()")

    def test_found_rows(self):
        with self.connection() as c:
            self.table(c, "counted", "i INT")
            self.execute(c, "INSERT INTO counted VALUES (1), (2), (3), (4), (5)")
            c.commit()
        with self.connection(autocommit=True) as a, self.connection(autocommit=True) as b:
            answers = []
            for number, c in enumerate((a, b)):
                self.execute(c, f"SELECT SQL_CALC_FOUND_ROWS i FROM counted WHERE i > {number} LIMIT 1")
            answers += [self.execute(c, "SELECT FOUND_ROWS()") for c in (b, a)]
            for c in (a, b):
                self.execute(c, f"SELECT i FROM counted LIMIT {3 if c is a else 2}")
            return answers + [self.execute(c, "SELECT FOUND_ROWS()") for c in (b, a)]

    def test_crowd_isolation(self):
        levels = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE", "READ UNCOMMITTED"]
        return self.crowd(lambda n: f"SET SESSION TRANSACTION ISOLATION LEVEL {levels[n % 4]}", f"SELECT @@{'tx' if FLAVOR == 'mariadb' else 'transaction'}_isolation")

    def test_user_variables(self):
        with self.connection() as a, self.connection() as b:
            self.execute(a, "SET @mine = 'a'")
            self.execute(b, "SET @mine = 'b'")
            return [self.execute(c, "SELECT @mine") for c in (a, b, a, b)]

    def test_temporary_tables(self):
        with self.connection() as a, self.connection() as b:
            for name, c in (("a", a), ("b", b)):
                self.execute(c, "CREATE TEMPORARY TABLE mine (t TEXT)")
                self.execute(c, f"INSERT INTO mine VALUES ('{name}')")
            return [self.execute(c, "SELECT t FROM mine") for c in (a, b, a, b)]

    def test_locks(self):
        with self.connection() as a, self.connection() as b:
            got = [
                self.execute(a, "SELECT GET_LOCK('drivers', 0)"),
                self.execute(b, "SELECT GET_LOCK('drivers', 0)"),
                self.execute(a, "SELECT RELEASE_LOCK('drivers')"),
                self.execute(b, "SELECT GET_LOCK('drivers', 0)"),
            ]
            assert got == [[(1,)], [(0,)], [(1,)], [(1,)]], got

    def test_lock_tables(self):
        with self.connection() as a:
            self.table(a, "locked", "i INT")
            self.execute(a, "LOCK TABLES locked WRITE")
            self.execute(a, "INSERT INTO locked VALUES (1)")
            refused = self.fails_with(a, "SELECT COUNT(*) FROM every_type")
            self.execute(a, "UNLOCK TABLES")
            return refused, self.execute(a, "SELECT * FROM locked")

    def test_text_prepare(self):
        with self.connection() as a, self.connection() as b:
            self.execute(a, "PREPARE mine FROM 'SELECT 1, ?'")
            self.execute(b, "PREPARE mine FROM 'SELECT 2, ?'")
            self.execute(a, "SET @v = 10")
            self.execute(b, "SET @v = 20")
            rows = [self.execute(c, "EXECUTE mine USING @v") for c in (a, b, a, b)]
            self.execute(a, "DEALLOCATE PREPARE mine")
            return rows, self.fails_with(a, "EXECUTE mine USING @v")

    def test_reset(self):
        with self.connection() as c:
            self.execute(c, "SET @mine = 1, time_zone = '+05:00'")
            self.driver.reset(c)
            return self.execute(c, "SELECT @mine, @@time_zone, DATABASE()")

    def test_change_user(self):
        # Over TLS, for the sake of caching_sha2_password.
        with self.connection(tls=True) as c:
            self.execute(c, "SET @mine = 1, time_zone = '+05:00'")
            self.driver.change_user(c)
            return self.execute(c, "SELECT @mine, @@time_zone, CURRENT_USER(), DATABASE()")

    def test_time_zone_round_trip(self):
        with self.connection() as c:
            self.table(c, "moments", "t TIMESTAMP NULL, d DATETIME")
            self.execute(c, "SET time_zone = '+02:00'")
            self.execute(c, "INSERT INTO moments VALUES ('2024-07-01 12:00:00', '2024-07-01 12:00:00')")
            c.commit()
            here = self.execute(c, "SELECT t, d, UNIX_TIMESTAMP(t) FROM moments")
            self.execute(c, "SET time_zone = '-03:00'")
            return here, self.execute(c, "SELECT t, d, UNIX_TIMESTAMP(t) FROM moments")

    def test_kill_query(self):
        with self.connection() as c, self.connection() as killer:
            number = self.execute(c, "SELECT CONNECTION_ID()")[0][0]
            assert self.execute(c, "SELECT CONNECTION_ID()")[0][0] == number
            try:
                self.execute(killer, f"KILL {number}")
            except self.driver.error as error:
                return self.driver.code(error)
            try:
                self.execute(c, "SELECT 1")
            except self.driver.error:
                return "gone"
            raise AssertionError("still there")

    def tests(self):
        return [(name[5:], getattr(self, name)) for name in dir(type(self)) if name.startswith("test_")]


def main(driver):
    """Runs all tests with this driver."""
    run(Suite(driver).tests())
