"""The admin port through PyMySQL: tuples, dictionaries, parameters, errors, what an ORM asks first."""

import os

import pymysql
import pymysql.cursors

port = int(os.environ["ADMIN_PORT"])
comment = "it's \"x\" \\ čaj"


def connect(**more):
    return pymysql.connect(host="127.0.0.1", port=port, user="admin", password="admin", **more)


with connect(database="main", charset="utf8mb4", autocommit=True) as connection, connection.cursor() as cursor:
    assert connection.open and connection.get_server_info()
    connection.ping(reconnect=False)
    assert cursor.execute("SELECT hostgroup_id, hostname FROM mysql_servers") == 1
    assert [str(value) for value in cursor.fetchone()] == ["1", "db1"]
    insert = "INSERT INTO mysql_servers (hostgroup_id, hostname, comment) VALUES (%s, %s, %s)"
    assert cursor.execute(insert, (9, "new", comment)) == 1
    cursor.execute("SELECT comment FROM mysql_servers WHERE hostgroup_id = %s", (9,))
    assert cursor.fetchall() == ((comment,),), "a parameter came back changed"
    for command in ("LOAD MYSQL SERVERS TO RUNTIME", "SAVE MYSQL SERVERS TO DISK"):
        cursor.execute(command)
    assert cursor.execute("SELECT * FROM stats_mysql_connection_pool WHERE hostgroup = 12345") == 0
    assert cursor.fetchall() == ()
    for bad, code in (("SELECT * FROM nowhere", 1045), ("LOAD MYSQL SERVERS TO NOWHERE", 1045)):
        try:
            cursor.execute(bad)
            raise AssertionError(bad)
        except pymysql.err.MySQLError as error:
            assert error.args[0] == code, error
    connection.begin()
    connection.commit()
    connection.rollback()
print("tuples")

with connect(cursorclass=pymysql.cursors.DictCursor) as connection, connection.cursor() as cursor:
    cursor.execute("SELECT hostname, NULL AS missing FROM mysql_servers WHERE hostgroup_id = 9")
    assert cursor.fetchone() == {"hostname": "new", "missing": None}
print("dictionaries")

# As SQLAlchemy and Django do when they connect, when they look at what there is, and between their users' statements.
with connect(database="main", charset="utf8mb4") as connection, connection.cursor() as cursor:
    cursor.execute("SELECT VERSION()")
    version = cursor.fetchone()[0]
    number, _, own = version.partition("-Tidegate-")
    assert tuple(int(part) for part in number.split(".")) >= (8, 0, 11) and own, version
    for question in ("SET AUTOCOMMIT = 0", "SET NAMES utf8mb4", "SELECT DATABASE()", "SELECT @@transaction_isolation",
                     "SELECT @@tx_isolation", "SELECT @@sql_mode", "SELECT @@lower_case_table_names", "SELECT @@hostname, @@port",
                     "SHOW VARIABLES LIKE 'sql_mode'", "SET SQL_AUTO_IS_NULL = 0", "SELECT @@version, @@version_comment",
                     "SELECT CAST('test plain returns' AS CHAR(60)) AS anon_1",
                     "SELECT 'x' AS some_label", "SELECT VERSION(), @@sql_mode, @@default_storage_engine, @@sql_auto_is_null, "
                     "@@lower_case_table_names, CONVERT_TZ('2001-01-01 01:00:00', 'UTC', 'UTC') IS NOT NULL",
                     "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", "SHOW FULL TABLES FROM `main`",
                     "SHOW CREATE TABLE `mysql_servers`", "SELECT table_name, table_type, table_comment FROM information_schema.tables "
                     "WHERE table_schema = DATABASE()", "SELECT cc.constraint_name, cc.check_clause FROM "
                     "information_schema.check_constraints AS cc", "SHOW INDEX FROM `mysql_servers`", "BEGIN", "SAVEPOINT `s1`",
                     "RELEASE SAVEPOINT `s1`", "COMMIT", "ROLLBACK"):
        try:
            cursor.execute(question)
        except pymysql.err.MySQLError as error:
            raise AssertionError(question) from error
        cursor.fetchall()
    try:
        cursor.execute("DESCRIBE `main`.`nothing`")
        raise AssertionError("DESCRIBE of what is not there")
    except pymysql.err.ProgrammingError as error:
        assert error.args[0] == 1146, error
print("what libraries ask")

with connect() as connection, connection.cursor() as cursor:
    cursor.execute("INSERT INTO mysql_users (username, password, default_hostgroup) VALUES ('lost', 'x', 77)")
    cursor.execute("LOAD MYSQL USERS TO RUNTIME")
    cursor.execute("SHOW WARNINGS")
    ((level, _, text),) = cursor.fetchall()
    assert level == "Warning" and text.startswith("mysql_users, username=lost, column default_hostgroup: hostgroup 77"), text
    cursor.execute("DELETE FROM mysql_users WHERE username = 'lost'")
    cursor.execute("LOAD MYSQL USERS TO RUNTIME")
    cursor.execute("SHOW WARNINGS")
    assert cursor.fetchall() == ()
print("warnings")

with connect(cursorclass=pymysql.cursors.SSCursor) as connection, connection.cursor() as cursor:
    cursor.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) SELECT i, 'x' FROM n")
    assert sum(1 for _ in cursor) == 20000
print("streamed")
print("done")
