#!/bin/bash
# memcached_tls.sh packages | start FOLDER | again FOLDER | stop FOLDER: a private memcached that speaks TLS only, on a
# free loopback port, with a certificate of its own authority. See tests/run.sh and memcached.sh.
set -eu
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/certificates.sh"
folder=${2:-}

launch() {
    local user=()
    if [ "$(id -u)" = 0 ]; then user=(-u nobody); fi
    # shellcheck disable=SC2086
    memcached "${user[@]}" -l 127.0.0.1 -p "$1" -U 0 -M -Z -v \
        -o "no_slab_reassign,ssl_chain_cert=$folder/memcached_tls/server.pem,ssl_key=$folder/memcached_tls/server.key" \
        ${DLOCK_SERVER_OPTIONS:-} >"$folder/memcached_tls.log" 2>&1 </dev/null &
}

# Succeeds if the server answers and is old enough to grant locks (the reported uptime is up to three seconds too
# large).
answers() {
    python3 - "$1" "$folder/memcached_tls/ca.pem" 2>/dev/null <<'END'
import socket, ssl, sys
context = ssl.create_default_context(cafile=sys.argv[2])
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5) as plain, \
        context.wrap_socket(plain, server_hostname="localhost") as server:
    server.sendall(b"stats\r\n")
    text = b""
    while b"END\r\n" not in text: text += server.recv(65536) or sys.exit(1)
sys.exit(int(text.split(b"STAT uptime ")[1].split()[0]) < 4)
END
}

case "$1" in
libraries) echo libssl-dev ;;
packages) echo openssl memcached ;;
start)
    mkdir -p "$folder/memcached_tls"
    make_authority "$folder/memcached_tls/ca"
    make_certificate "$folder/memcached_tls/server" "$folder/memcached_tls/ca" DNS:localhost,IP:127.0.0.1
    chmod -R a+rX "$folder/memcached_tls"
    start_on_free_port memcached_tls
    echo "DLOCK_TEST_MEMCACHED_TLS=127.0.0.1:$port"
    echo "DLOCK_TEST_URI_memcached_tls=memcached+tls://127.0.0.1:$port?quarantine=0&lease=10s&ca=$folder/memcached_tls/ca.pem&sni=localhost"
    ;;
again) launch_again memcached_tls ;;
stop) stop_by_pid memcached_tls ;;
esac
