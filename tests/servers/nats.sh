#!/bin/bash
# nats.sh packages | start FOLDER | again FOLDER | stop FOLDER: a private NATS with JetStream on a free loopback port, for
# the example of a backend from outside. `again` starts one that was killed, on its port and with its files.
set -eu
. "$(dirname "$0")/common.sh"
folder=${2:-}

launch() {
    # shellcheck disable=SC2086
    nats-server --addr 127.0.0.1 --port "$1" --jetstream --store_dir "$folder/nats" ${DLOCK_SERVER_OPTIONS:-} \
        >>"$folder/nats.log" 2>&1 </dev/null &
}

# JetStream begins later than the port.
answers() { grep -q 'Server is ready' "$folder/nats.log" && (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

case "$1" in
libraries) echo libjansson-dev ;;
packages) echo nats-server ;;
start)
    start_on_free_port nats
    echo "DLOCK_TEST_URI_nats=nats://127.0.0.1:$port"
    ;;
again)
    : >"$folder/nats.log"
    launch_again nats
    await_answer nats "$(cat "$folder/nats.port")" 100 || does_not_start nats
    ;;
stop) stop_by_pid nats ;;
esac
