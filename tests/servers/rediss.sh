#!/bin/bash
# rediss.sh packages | start FOLDER | again FOLDER | stop FOLDER: a private Redis that speaks TLS only, on a free
# loopback port, with a certificate of its own authority. See tests/run.sh and redis.sh.
set -eu
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/certificates.sh"
folder=${2:-}

launch() {
    # shellcheck disable=SC2086
    "${DLOCK_REDIS_SERVER:-redis-server}" --port 0 --tls-port "$1" --bind 127.0.0.1 --save '' --appendonly no --dir "$folder" \
        --tls-cert-file "$folder/rediss/server.pem" --tls-key-file "$folder/rediss/server.key" \
        --tls-ca-cert-file "$folder/rediss/ca.pem" --tls-auth-clients no --daemonize no \
        ${DLOCK_SERVER_OPTIONS:-} >"$folder/rediss.log" 2>&1 </dev/null &
}

answers() { [ "$(redis-cli -h 127.0.0.1 -p "$1" --tls --cacert "$folder/rediss/ca.pem" ping 2>/dev/null)" = PONG ]; }

case "$1" in
libraries) echo libhiredis-dev libssl-dev ;;
packages) echo openssl redis-server redis-tools ;;
start)
    mkdir -p "$folder/rediss"
    make_authority "$folder/rediss/ca"
    make_certificate "$folder/rediss/server" "$folder/rediss/ca" DNS:localhost,IP:127.0.0.1
    chmod -R a+rX "$folder/rediss"
    start_on_free_port rediss
    echo "DLOCK_TEST_REDISS=127.0.0.1:$port"
    echo "DLOCK_TEST_URI_rediss=rediss://127.0.0.1:$port?quarantine=0&lease=10s&ca=$folder/rediss/ca.pem&sni=localhost"
    ;;
again) launch_again rediss ;;
stop) stop_by_pid rediss ;;
esac
