#!/bin/bash
# MySQL 9.7.4: with super_read_only=1 the server still commits XA transactions of ordinary users, and gives them GTIDs.
#
# The transaction began while the server took writes. COMMIT of a plain one and XA COMMIT ... ONE PHASE are refused then (1290). XA PREPARE
# and XA COMMIT are not, from the same session or from another one: the row is there, and gtid_executed has grown.
# A switchover sets super_read_only on the old writer and waits until the new one has the same GTIDs. A transaction manager that goes on
# afterwards writes to the old writer, which then has transactions that the new one lacks. MariaDB refuses all of these statements.
#
# Needs: x86_64 Debian with apt and its keyring. Unpacks pinned packages of Debian's unstable release, with all they need, into a temporary
# folder and removes it.
set -euo pipefail

version=9.7.4-2
folder=$(mktemp -d)
server=
finish() {
  [ -z "$server" ] || { kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; }
  rm -rf "$folder"
}
trap finish EXIT

mirror=$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' | sed -n 's/^Debian //p' | head -n 1)
mkdir -p "$folder"/apt/{lists,archives}/partial "$folder/data"
: >"$folder/apt/status"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ${mirror:-http://deb.debian.org/debian} sid main" >"$folder/apt/sources.list"
get() {
  apt-get -qq -y -o "Dir::Etc::SourceList=$folder/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Dir::Etc::PreferencesParts=/dev/null \
    -o "Dir::State::Lists=$folder/apt/lists" -o "Dir::State::Status=$folder/apt/status" -o "Dir::Cache::Archives=$folder/apt/archives" \
    -o Dir::Cache::PkgCache= -o Dir::Cache::SrcPkgCache= -o Debug::NoLocking=1 -o "APT::Sandbox::User=$(id -un)" \
    -o APT::Install-Recommends=false -o Acquire::Languages=none "$@" >"$folder/log"
}
get update
get --download-only install "mysql-server-core=$version" "mysql-client-core=$version"
for deb in "$folder"/apt/archives/*.deb; do dpkg-deb -x "$deb" "$folder/root"; done
lib=$folder/root/usr/lib/x86_64-linux-gnu socket=$folder/socket
run() { local program=$1; shift; "$lib/ld-linux-x86-64.so.2" --library-path "$lib" "$folder/root/usr/$program" --no-defaults "$@"; }
options=(--datadir="$folder/data" --user="$(id -un)" --lc-messages-dir="$folder/root/usr/share/mysql" --secure-file-priv=)
run sbin/mysqld "${options[@]}" --initialize-insecure >"$folder/log" 2>&1
"$lib/ld-linux-x86-64.so.2" --library-path "$lib" "$folder/root/usr/sbin/mysqld" --no-defaults "${options[@]}" --mysqlx=OFF --skip-networking \
  --socket="$socket" --gtid-mode=ON --enforce-gtid-consistency=ON --performance-schema=OFF --innodb-buffer-pool-size=32M >"$folder/log" 2>&1 &
server=$!
sql() { run bin/mysql --socket="$socket" -u"$1" -N -f -e "$2" "${@:3}" 2>&1 || true; }
for _ in $(seq 600); do [ "$(sql root 'SELECT 1')" != 1 ] || break; kill -0 "$server"; sleep 0.1; done

sql root 'CREATE DATABASE d; CREATE TABLE d.t (i INT); CREATE USER app@localhost; GRANT ALL ON d.* TO app@localhost'
answers() { sed -nE 's/^ERROR ([0-9]+).*/\1/p; /^ok$/p' | paste -sd ' '; }
transactions() { sql root 'SELECT @@gtid_executed' | sed 's/.*-//'; }
# $1 begins; the server becomes read-only; $2 is said in the same session, and $3 in another one.
session() {
  local client fifo=$folder/fifo before
  sql root 'SET GLOBAL super_read_only = 0; SET GLOBAL read_only = 0; DELETE FROM d.t'
  rm -f "$fifo"; mkfifo "$fifo"
  run bin/mysql --socket="$socket" -uapp -N -f -n d <"$fifo" >"$folder/answer" 2>&1 &
  client=$!
  exec 3>"$fifo"
  echo "$1; SELECT 'begun';" >&3
  until grep -q begun "$folder/answer"; do sleep 0.1; done
  sql root 'SET GLOBAL super_read_only = 1'
  before=$(transactions)
  echo "$2; SELECT 'ok';" >&3
  until grep -q '^ok' "$folder/answer"; do sleep 0.1; done
  exec 3>&-
  wait "$client" || true
  echo "$(answers <"$folder/answer")${3:+, $(sql app "$3; SELECT 'ok'" d | answers)}: $(sql root 'SELECT COUNT(*) FROM d.t') row(s)," \
    "$(($(transactions) - before)) GTID(s)"
}
xa="XA START 'x'; INSERT INTO t VALUES (1); XA END 'x'"
seen="COMMIT $(session 'BEGIN; INSERT INTO t VALUES (1)' COMMIT); ONE PHASE $(session "$xa" "XA COMMIT 'x' ONE PHASE"); "
seen+="XA PREPARE and XA COMMIT $(session "$xa" "XA PREPARE 'x'; XA COMMIT 'x'"); "
seen+="XA COMMIT of another session $(session "$xa; XA PREPARE 'x'" 'DO 0' "XA COMMIT 'x'")"
echo "MySQL $(sql root 'SELECT VERSION()'): $seen"
# Seen on 2026-11-30: MySQL 9.7.4-2: COMMIT 1290 ok: 0 row(s), 0 GTID(s); ONE PHASE 1290 ok: 0 row(s), 0 GTID(s); XA PREPARE and XA COMMIT
# ok: 1 row(s), 2 GTID(s); XA COMMIT of another session ok, ok: 1 row(s), 1 GTID(s)
[ "$seen" = 'COMMIT 1290 ok: 0 row(s), 0 GTID(s); ONE PHASE 1290 ok: 0 row(s), 0 GTID(s); XA PREPARE and XA COMMIT ok: 1 row(s), 2 GTID(s); XA COMMIT of another session ok, ok: 1 row(s), 1 GTID(s)' ]
