"""mysql-connector-python, its pure Python form."""

import dbapi
import mysql.connector
from common import DATABASE, HOST, PASSWORD, PORT, USER


class Connector(dbapi.Driver):
    error = mysql.connector.Error

    def connect(self, tls=False, compress=False, local_infile=False, multi=False, database=DATABASE, autocommit=False, password=PASSWORD):
        options = {"database": database} if database else {}
        connection = mysql.connector.connect(
            host=HOST, port=PORT, user=USER, password=password, charset="utf8mb4", ssl_disabled=not tls, compress=compress,
            allow_local_infile=local_infile, autocommit=autocommit, use_pure=True, **options)
        return connection

    def code(self, error):
        return error.errno

    def prepared(self, connection):
        return connection.cursor(prepared=True)

    def streaming(self, connection):
        return connection.cursor(buffered=False)

    def reset(self, connection):
        connection.cmd_reset_connection()

    def change_user(self, connection):
        connection.cmd_change_user("app", "app-pass", "test")

    def call(self, connection, name, args):
        cursor = connection.cursor()
        after = cursor.callproc(name, args)
        return [list(map(tuple, result.fetchall())) for result in cursor.stored_results()], list(after)


dbapi.main(Connector())
