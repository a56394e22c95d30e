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
    # As SQLAlchemy and Django do when they connect.
    for question in ("SELECT VERSION()", "SELECT DATABASE()", "SELECT @@transaction_isolation", "SELECT @@sql_mode",
                     "SELECT @@lower_case_table_names", "SHOW VARIABLES LIKE 'sql_mode'", "SET SQL_AUTO_IS_NULL = 0",
                     "SELECT @@version, @@version_comment", "SHOW FULL TABLES FROM `main`"):
        cursor.execute(question)
        cursor.fetchall()
print("dictionaries")

with connect(cursorclass=pymysql.cursors.SSCursor) as connection, connection.cursor() as cursor:
    cursor.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) SELECT i, 'x' FROM n")
    assert sum(1 for _ in cursor) == 20000
print("streamed")
print("done")
