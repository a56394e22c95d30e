#!/usr/bin/env python3
"""Reads the rows of the schema `test` from the binlog through a proxy, with python-mysql-replication, and writes each down once.

Usage: change-data.py PORT mariadb|mysql GTIDS FILE

The library connects again by itself when its stream is cut, from where it first began: what was read before is known by its GTID.
"""

import sys
import time

from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import GtidEvent, MariadbGtidEvent, XidEvent
from pymysqlreplication.row_event import WriteRowsEvent


def read(port, is_mariadb, gtids, file):
    server = {"host": "127.0.0.1", "port": port}
    seen = set()
    while True:
        try:
            stream = BinLogStreamReader(
                connection_settings={**server, "user": "repl", "passwd": "repl-pass"},
                ctl_connection_settings={**server, "user": "app", "passwd": "app-pass"},
                server_id=4242,
                blocking=True,
                is_mariadb=is_mariadb,
                auto_position=gtids,
                only_schemas=["test"],
            )
            rows, gtid = [], None
            for event in stream:
                if isinstance(event, (GtidEvent, MariadbGtidEvent)):
                    rows, gtid = [], event.gtid
                elif isinstance(event, WriteRowsEvent):
                    rows += [next(iter(row["values"].values())) for row in event.rows]
                elif isinstance(event, XidEvent) and gtid not in seen:
                    seen.add(gtid)
                    file.writelines(f"{row}\n" for row in rows)
        except Exception as error:  # whatever it is, the stream is begun anew
            print(f"change-data.py: {error!r}", file=sys.stderr)
        time.sleep(0.05)


if __name__ == "__main__":
    with open(sys.argv[4], "w", buffering=1) as out:
        read(int(sys.argv[1]), sys.argv[2] == "mariadb", sys.argv[3], out)
