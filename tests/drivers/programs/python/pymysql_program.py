"""PyMySQL."""

import ssl

import dbapi
import pymysql
from common import DATABASE, HOST, PASSWORD, PORT, USER, Skip
from pymysql.constants import CLIENT


class PyMySQL(dbapi.Driver):
    error = pymysql.err.MySQLError

    def connect(self, tls=False, compress=False, local_infile=False, multi=False, database=DATABASE, autocommit=False, password=PASSWORD):
        if compress:
            raise Skip("no compression in this driver")
        context = None
        if tls:
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return pymysql.connect(
            host=HOST, port=PORT, user=USER, password=password, database=database, charset="utf8mb4", ssl=context, ssl_disabled=not tls,
            local_infile=local_infile, client_flag=CLIENT.MULTI_STATEMENTS if multi else 0, autocommit=autocommit,
            max_allowed_packet=64 << 20)

    def streaming(self, connection):
        return connection.cursor(pymysql.cursors.SSCursor)


dbapi.main(PyMySQL())
