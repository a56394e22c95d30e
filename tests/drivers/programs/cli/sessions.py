"""Sessions of an interactive client, `mariadb` or MySQL's own `mysql`: what it prints is what is compared."""

from client import SCRATCH, SQL, address, shell


def tests(client):
    """All tests with one client's command."""

    def session(text, *options, user="root", password="", database="test"):
        return shell([*client, *address(user, password), "--default-character-set=utf8mb4", *options, *([database] if database else [])], text)

    def fine(text, *options):
        code, out, err = session(text, *options)
        assert code == 0, err
        return out, err

    def everything():
        types = (SQL / "types.sql").read_text()
        return fine("DROP TABLE IF EXISTS every_type;\n" + types + "\nSELECT * FROM every_type;\nDESCRIBE every_type;", "-t", "--binary-as-hex")

    def delimiter():
        body = (SQL / "procedure.sql").read_text()
        return fine(f"DROP PROCEDURE IF EXISTS two_results;\nDELIMITER //\n{body}//\nDELIMITER ;\n"
                    "SET @b = 0, @c = 7;\nCALL two_results(3, @b, @c);\nSELECT @b, @c;")

    def errors():
        return session("SELECT * FROM nowhere;\nSELECT 1 FROM;\nSELECT 'on we go';\nUSE nowhere;", "--force")

    def transaction():
        return fine("CREATE TABLE t1 (i INT PRIMARY KEY);\nSTART TRANSACTION;\nINSERT INTO t1 VALUES (1);\nSELECT COUNT(*) FROM t1;\nROLLBACK;\n"
                    "SELECT COUNT(*) FROM t1;\nSET autocommit = 0;\nINSERT INTO t1 VALUES (2);\nCOMMIT;\nSELECT * FROM t1;\nDROP TABLE t1;")

    def warnings():
        return fine("DROP TABLE IF EXISTS no_such;\nSHOW WARNINGS;\nSELECT 1/0;\nSHOW WARNINGS;\nSELECT 1;\nSHOW WARNINGS;", "--show-warnings", "-vv")

    def verbose():
        out, err = fine("CREATE TABLE v (i INT PRIMARY KEY, j INT);\nINSERT INTO v VALUES (1,1),(2,2);\nUPDATE v SET j = 1;\n"
                        "REPLACE INTO v VALUES (1, 9);\nDELETE FROM v;\nDROP TABLE v;", "-vv")
        return "\n".join(line.split(" (0.")[0] for line in out.splitlines()), err

    def local_infile():
        path = SCRATCH / "rows.txt"
        path.write_text("".join(f"{i}\tname {i}\n" for i in range(20_000)))
        return fine(f"DROP TABLE IF EXISTS l;\nCREATE TABLE l (i INT, n TEXT);\nLOAD DATA LOCAL INFILE '{path}' INTO TABLE l;\n"
                    "SELECT COUNT(*), SUM(i), MAX(n) FROM l;\nSHOW WARNINGS;", "--local-infile=1")

    def unicode():
        return fine("SELECT '漢字 😀' AS `ключ`, HEX('é'), CHARSET('a');\nSET NAMES latin1;\nSELECT HEX('é');")

    def session_state():
        return fine("SET @a = 1;\nSET time_zone = '+05:00';\nCREATE TEMPORARY TABLE tt (i INT);\nINSERT INTO tt VALUES (4);\nPREPARE p FROM 'SELECT ? + 1';\n"
                    "EXECUTE p USING @a;\nSELECT @a, @@time_zone, i FROM tt;\nUSE information_schema;\nSELECT DATABASE();\nUSE test;\nSELECT i FROM tt;")

    def no_database():
        return session("SELECT DATABASE();\nSHOW TABLES;", database=None)

    def big():
        text = "x" * (20 << 20)
        out, err = fine(f"CREATE TABLE big (t LONGTEXT);\nINSERT INTO big VALUES ('{text}');\nSELECT LENGTH(t), SHA2(t, 256) FROM big;\nSELECT t FROM big;\nDROP TABLE big;",
                        "-N", "--max-allowed-packet=64M")
        return len(out), out[:80], err

    def semicolons():
        return fine("DELIMITER //\nSELECT 1; SELECT 2; SELECT 'a;b'//\nSELECT 3//")

    def show():
        return fine("SHOW DATABASES LIKE 'test';\nSHOW CREATE DATABASE test;\nSHOW TABLES;\nSHOW VARIABLES LIKE 'sql_mode';\nSHOW SESSION VARIABLES LIKE 'autocommit';\n"
                    "SHOW COLLATION LIKE 'utf8mb4_bin';\nHELP 'no such topic';")

    def wrong_password():
        code, out, err = session("SELECT 1;", user="app", password="wrong")
        return code, out, err.split("(using")[0].replace("localhost", "127.0.0.1")

    def status():
        out, err = fine("SELECT 1;\nstatus\n")
        wanted = ("Current database", "Server characterset", "Db     characterset", "Client characterset", "Conn.  characterset", "Server version", "Protocol version")
        return [line for line in out.splitlines() if line.startswith(wanted)]

    return [
        ("every_type_table", everything),
        ("every_type_xml", lambda: fine("SELECT * FROM every_type;", "-X", "--binary-as-hex")),
        ("every_type_vertical", lambda: fine("SELECT * FROM every_type;", "-E", "--binary-as-hex")),
        ("column_info", lambda: fine("SELECT * FROM every_type WHERE id = 2;", "--column-type-info", "-t", "--binary-as-hex")),
        ("delimiter_and_procedure", delimiter),
        ("errors", errors),
        ("transaction", transaction),
        ("warnings", warnings),
        ("verbose", verbose),
        ("local_infile", local_infile),
        ("unicode", unicode),
        ("session_state", session_state),
        ("no_database", no_database),
        ("big", big),
        ("compressed", lambda: fine("SELECT REPEAT('a', 100000);\nSELECT 1;", "--compress")),
        ("quick", lambda: fine("SELECT * FROM every_type;", "--quick", "--binary-as-hex")),
        ("semicolons", semicolons),
        ("show", show),
        ("wrong_password", wrong_password),
        ("status", status),
        ("init_command", lambda: fine("SELECT @x, @@time_zone;", "--init-command=SET @x = 5, time_zone = '+01:00'")),
    ]
