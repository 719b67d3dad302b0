#!/bin/bash
# etcd.sh packages | start FOLDER | again FOLDER | await FOLDER | stop FOLDER: a private etcd on free loopback ports.
# See tests/run.sh. `again` starts one that was killed, on its port; `await` waits until it answers. `cluster FOLDER
# COUNT` starts a cluster of COUNT members, in FOLDER/1, FOLDER/2, …, and prints their ports; each member can be
# stopped and started like a single server.
set -eu
. "$(dirname "$0")/common.sh"
folder=${2:-}

# Elections of a single server are short, so that leases can be as short as 1 s, and end within half a second after their
# time. All members of a cluster need the same times, also when they are started again: one with shorter times whose log
# is behind begins an election before any other member does, each time, and never wins it.
launch() {
    local heartbeat_ms=50 election_ms=500
    if [ -z "${peer:-}" ]; then peer=$(cat "$folder/etcd.peer" 2>/dev/null || free_port); fi
    echo "$peer" >"$folder/etcd.peer"
    if [ -e "$folder/member" ]; then heartbeat_ms=100 election_ms=1000; fi # etcd's defaults
    # shellcheck disable=SC2086
    etcd --name "m$peer" --data-dir "$folder/etcd" --logger zap --log-level warn \
        --heartbeat-interval "$heartbeat_ms" --election-timeout "$election_ms" \
        --listen-client-urls "http://127.0.0.1:$1" --advertise-client-urls "http://127.0.0.1:$1" \
        --listen-peer-urls "http://127.0.0.1:$peer" --initial-advertise-peer-urls "http://127.0.0.1:$peer" \
        --initial-cluster "${cluster:-m$peer=http://127.0.0.1:$peer}" ${DLOCK_SERVER_OPTIONS:-} \
        >>"$folder/etcd.log" 2>&1 </dev/null &
}

answers() {
    ETCDCTL_API=3 etcdctl --endpoints "http://127.0.0.1:$1" --command-timeout 1s endpoint health >/dev/null 2>&1
}

await() { await_answer etcd "$(cat "$folder/etcd.port")" 100 || does_not_start etcd; }

case "$1" in
libraries) echo libcurl4-openssl-dev libjansson-dev libssl-dev ;;
packages) echo openssl etcd-server etcd-client ;;
start)
    start_on_free_port etcd
    echo "DLOCK_TEST_ETCD=127.0.0.1:$port"
    echo "DLOCK_TEST_URI_etcd=etcd://127.0.0.1:$port/dlock/tests?session=20s&lease=20s"
    echo "DLOCK_TEST_URI_etcd_mortal=etcd://127.0.0.1:$port/dlock/tests?session=2s&lease=10s"
    ;;
again) launch_again etcd ;;
await) await ;;
cluster)
    all=$folder members=$(seq "$3") cluster=
    for member in $members; do
        mkdir -p "$all/$member"
        touch "$all/$member/member"
        free_port >"$all/$member/etcd.peer"
        peer=$(cat "$all/$member/etcd.peer")
        cluster+="${cluster:+,}m$peer=http://127.0.0.1:$peer"
    done
    for member in $members; do
        folder=$all/$member peer=$(cat "$all/$member/etcd.peer")
        free_port >"$folder/etcd.port"
        launch_again etcd
    done
    for member in $members; do
        folder=$all/$member
        await
        cat "$folder/etcd.port"
    done
    ;;
stop) stop_by_pid etcd ;;
esac
