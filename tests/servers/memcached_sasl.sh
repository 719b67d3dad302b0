#!/bin/bash
# memcached_sasl.sh packages | start FOLDER | again FOLDER | stop FOLDER: a private memcached that needs a login over
# SASL, on a free loopback port. See tests/run.sh and memcached.sh.
set -eu
. "$(dirname "$0")/common.sh"
folder=${2:-}

launch() {
    # shellcheck disable=SC2086
    sh "$(dirname "$0")/../backends/memcached_sasl/serve.sh" "$folder/memcached_sasl" "$1" -M -o no_slab_reassign -v \
        ${DLOCK_SERVER_OPTIONS:-} >"$folder/memcached_sasl.log" 2>&1 </dev/null &
}

# Succeeds if the server answers and is old enough to grant locks (the reported uptime is up to three seconds too
# large). Uses the binary protocol: a login, and `stat`, whose answers end with an empty name.
answers() {
    python3 - "$1" 2>/dev/null <<'END'
import socket, struct, sys

def ask(opcode, key, value):
    server.write(struct.pack(">BBHBBHIIQ", 0x80, opcode, len(key), 0, 0, 0, len(key) + len(value), 0, 0) + key + value)
    server.flush()

def answer():
    head = struct.unpack(">BBHBBHIIQ", server.read(24))
    body = server.read(head[6])
    if head[5] != 0: sys.exit(1)
    return body[:head[2]], body[head[2]:]

with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5) as plain:
    server = plain.makefile("rwb")
    ask(0x21, b"PLAIN", b"\0user\0hunter2")
    answer()
    ask(0x10, b"", b"")
    stats = dict(iter(answer, (b"", b"")))
    sys.exit(int(stats[b"uptime"]) < 4)
END
}

case "$1" in
libraries) echo libmemcached-dev ;;
packages)
    echo memcached sasl2-bin libsasl2-modules libsasl2-modules-db
    # libsasl looks up this host's name at every login, here and in the server. It must not ask a name server each time.
    if ! getent -s hosts:files hosts "$(uname -n)" >/dev/null; then echo libnss-myhostname; fi
    ;;
start)
    mkdir -p "$folder/memcached_sasl"
    start_on_free_port memcached_sasl
    echo "DLOCK_TEST_MEMCACHED_SASL=127.0.0.1:$port"
    echo "DLOCK_TEST_URI_memcached_sasl=memcached+sasl://user:hunter2@127.0.0.1:$port?quarantine=0&lease=10s&timeout=15s"
    ;;
again) launch_again memcached_sasl ;;
stop) stop_by_pid memcached_sasl ;;
esac
