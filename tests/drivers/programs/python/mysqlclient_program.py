"""mysqlclient (MySQLdb), which is MariaDB Connector/C underneath."""

import dbapi
import MySQLdb
import MySQLdb.cursors
from common import DATABASE, HOST, PASSWORD, PORT, USER
from MySQLdb.constants import CLIENT


class MySQLClient(dbapi.Driver):
    error = MySQLdb.MySQLError

    def connect(self, tls=False, compress=False, local_infile=False, multi=False, database=DATABASE, autocommit=False, password=PASSWORD):
        options = {"database": database} if database else {}
        if tls:
            options["ssl_mode"] = "REQUIRED"
        return MySQLdb.connect(
            host=HOST, port=PORT, user=USER, password=password, charset="utf8mb4", compress=compress, local_infile=int(local_infile),
            client_flag=CLIENT.MULTI_STATEMENTS if multi else 0, autocommit=autocommit, **options)

    def streaming(self, connection):
        return connection.cursor(MySQLdb.cursors.SSCursor)

    def change_user(self, connection):
        connection.change_user("app", "app-pass", "test")


dbapi.main(MySQLClient())
