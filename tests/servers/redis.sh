#!/bin/bash
# redis.sh packages | start FOLDER | again FOLDER | stop FOLDER: a private Redis on a free loopback port, without
# persistence. See tests/run.sh. `again` starts one that was killed, on its port. DLOCK_REDIS_SERVER names another
# program, for example another version of Redis or a fork of it; tests that start their own servers also use it.
set -eu
. "$(dirname "$0")/common.sh"
folder=${2:-}

launch() {
    # shellcheck disable=SC2086
    "${DLOCK_REDIS_SERVER:-redis-server}" --port "$1" --bind 127.0.0.1 --save '' --appendonly no --dir "$folder" --daemonize no --loglevel notice \
        ${DLOCK_SERVER_OPTIONS:-} >"$folder/redis.log" 2>&1 </dev/null &
}

answers() { [ "$(redis-cli -h 127.0.0.1 -p "$1" ping 2>/dev/null)" = PONG ]; }

case "$1" in
libraries) echo libhiredis-dev ;;
packages) echo redis-server python3-redis valgrind ;;
start)
    start_on_free_port redis
    echo "DLOCK_TEST_REDIS=127.0.0.1:$port"
    echo "DLOCK_TEST_URI_redis=redis://127.0.0.1:$port?quarantine=0&lease=10s"
    ;;
again) launch_again redis ;;
stop) stop_by_pid redis ;;
esac
