#!/bin/bash
# memcached.sh packages | start FOLDER | again FOLDER | stop FOLDER: a private memcached on a free loopback port. See
# tests/run.sh. `again` starts one that was killed, on its port. DLOCK_MEMCACHED_SERVER names another program, for
# example another version of memcached; tests that start their own servers also use it.
set -eu
. "$(dirname "$0")/common.sh"
folder=${2:-}

# memcached refuses to run as root. -M: a full server returns errors instead of evicting locks; the page mover is off,
# since it could also drop locks.
launch() {
    local user=()
    if [ "$(id -u)" = 0 ]; then user=(-u nobody); fi
    "${DLOCK_MEMCACHED_SERVER:-memcached}" "${user[@]}" -l 127.0.0.1 -p "$1" -U 0 -M -o no_slab_reassign -v ${DLOCK_SERVER_OPTIONS:-} \
        >"$folder/memcached.log" 2>&1 </dev/null &
}

# Succeeds if the server answers and is old enough to grant locks (the reported uptime is up to three seconds too
# large).
answers() {
    local line
    (
        exec 3<>"/dev/tcp/127.0.0.1/$1" && printf 'stats\r\n' >&3 && while read -r -t 5 line <&3; do
            case "${line%$'\r'}" in
            'STAT uptime '[0-3]) exit 1 ;;
            END) exit 0 ;;
            esac
        done
        exit 1
    ) 2>/dev/null
}

case "$1" in
libraries) echo libmemcached-dev ;;
packages) echo memcached ;;
start)
    start_on_free_port memcached
    echo "DLOCK_TEST_MEMCACHED=127.0.0.1:$port"
    echo "DLOCK_TEST_URI_memcached=memcached://127.0.0.1:$port?quarantine=0&lease=10s"
    ;;
again) launch_again memcached ;;
stop) stop_by_pid memcached ;;
esac
