#!/bin/bash
# redis.sh packages | start FOLDER | again FOLDER | stop FOLDER: a private Redis on a free loopback port, without
# persistence, and three that are a cluster. See tests/run.sh. `again` starts the first, if it was killed, on its port.
# DLOCK_REDIS_SERVER: another program than redis-server, a relative's or another version's; the tests that start servers
# of their own use it, too.
set -eu
. "$(dirname "$0")/common.sh"
folder=${2:-}

node= # of the cluster; empty: the one by itself
launch() {
    local options=()
    if [ -n "$node" ]; then
        options=(--cluster-enabled yes --cluster-config-file "$folder/$node.conf" --cluster-node-timeout 5000
            --cluster-require-full-coverage no)
        # Before Redis 7 the members talk to each other on their own port plus 10,000.
        if [ "$("${DLOCK_REDIS_SERVER:-redis-server}" --version | sed 's/.* v=\([0-9]*\).*/\1/')" -ge 7 ]; then
            options+=(--cluster-port "$(free_port)")
        fi
        rm -f "$folder/$node.conf"
    fi
    "${DLOCK_REDIS_SERVER:-redis-server}" --port "$1" --bind 127.0.0.1 --save '' --appendonly no --dir "$folder" --daemonize no --loglevel notice \
        "${options[@]}" ${DLOCK_SERVER_OPTIONS:-} >"$folder/${node:-redis}.log" 2>&1 </dev/null &
}

answers() { [ "$(redis-cli -h 127.0.0.1 -p "$1" ping 2>/dev/null)" = PONG ]; }

nodes=(redis_node_0 redis_node_1 redis_node_2)

# Three masters, each with a third of the slots; sets `cluster` to their addresses.
start_cluster() {
    local i bus ports=()
    for i in 0 1 2; do
        node=${nodes[i]}
        start_on_free_port "$node"
        ports+=("$port")
        redis-cli -p "$port" cluster set-config-epoch $((i + 1)) >/dev/null
        seq $((i * 16384 / 3)) $(((i + 1) * 16384 / 3 - 1)) | xargs redis-cli -p "$port" cluster addslots >/dev/null
        bus=$(redis-cli -p "$port" cluster nodes | sed 's/.*@\([0-9]*\).*/\1/')
        redis-cli -p "${ports[0]}" cluster meet 127.0.0.1 "$port" "$bus" >/dev/null
    done
    node=
    for port in "${ports[@]}"; do
        for i in $(seq 300); do
            if redis-cli -p "$port" cluster info | grep -q cluster_slots_ok:16384; then continue 2; fi
            sleep 0.1
        done
        echo "the cluster of Redis does not come about:" >&2
        redis-cli -p "$port" cluster nodes >&2
        exit 1
    done
    printf -v cluster '127.0.0.1:%s,' "${ports[@]}"
    cluster=${cluster%,}
}

case "$1" in
packages) echo libhiredis-dev redis-server python3-redis valgrind ;;
start)
    start_on_free_port redis
    echo "DLOCK_TEST_REDIS=127.0.0.1:$port"
    echo "DLOCK_TEST_URI_redis=redis://127.0.0.1:$port?quarantine=0&lease=10s"
    start_cluster
    echo "DLOCK_TEST_URI_redis_cluster=redis+cluster://$cluster?quarantine=0&lease=10s"
    ;;
again) launch_again redis ;;
stop) for one in redis "${nodes[@]}"; do stop_by_pid "$one"; done ;;
esac
