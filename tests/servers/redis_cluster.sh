#!/bin/bash
# redis_cluster.sh start FOLDER | stop FOLDER: a private Redis Cluster of three servers on free loopback ports, each the
# master of a third of the slots. See tests/run.sh and redis.sh.
set -eu
. "$(dirname "$0")/common.sh"
folder=${2:-}
nodes=(redis_node_0 redis_node_1 redis_node_2)

# Before Redis 7 the cluster bus is always on a member's port plus 10,000.
major=$("${DLOCK_REDIS_SERVER:-redis-server}" --version | sed 's/.* v=\([0-9]*\).*/\1/')

launch() {
    local options=()
    if [ "$major" -ge 7 ]; then options=(--cluster-port "$(free_port)"); fi
    rm -f "$folder/$node.conf"
    # shellcheck disable=SC2086
    "${DLOCK_REDIS_SERVER:-redis-server}" --port "$1" --bind 127.0.0.1 --save '' --appendonly no --dir "$folder" --daemonize no \
        --cluster-enabled yes --cluster-config-file "$folder/$node.conf" --cluster-node-timeout 5000 \
        --cluster-require-full-coverage no "${options[@]}" ${DLOCK_SERVER_OPTIONS:-} >"$folder/$node.log" 2>&1 </dev/null &
}

answers() { [ "$(redis-cli -h 127.0.0.1 -p "$1" ping 2>/dev/null)" = PONG ]; }

case "$1" in
start)
    ports=()
    for i in 0 1 2; do
        node=${nodes[i]}
        start_on_free_port "$node"
        ports+=("$port")
        redis-cli -p "$port" cluster set-config-epoch $((i + 1)) >/dev/null
        seq $((i * 16384 / 3)) $(((i + 1) * 16384 / 3 - 1)) | xargs redis-cli -p "$port" cluster addslots >/dev/null
        bus=$(redis-cli -p "$port" cluster nodes | sed 's/.*@\([0-9]*\).*/\1/')
        redis-cli -p "${ports[0]}" cluster meet 127.0.0.1 "$port" "$bus" >/dev/null
    done
    for port in "${ports[@]}"; do
        for _ in $(seq 300); do
            info=$(redis-cli -p "$port" cluster info)
            case "$info" in *cluster_state:ok*cluster_slots_ok:16384*) continue 2 ;; esac
            sleep 0.1
        done
        echo "the cluster of Redis does not come about:" >&2
        redis-cli -p "$port" cluster nodes >&2
        exit 1
    done
    printf -v addresses '127.0.0.1:%s,' "${ports[@]}"
    echo "DLOCK_TEST_URI_redis_cluster=redis+cluster://${addresses%,}?quarantine=0&lease=10s"
    ;;
stop) for node in "${nodes[@]}"; do stop_by_pid "$node"; done ;;
esac
