#!/bin/bash
# sentinel.sh start FOLDER | again FOLDER | stop FOLDER: a private Sentinel on a free loopback port, which watches the
# Redis whose port is in DLOCK_SERVER_OPTIONS, under the name mymaster; two Sentinels have to agree. `again` starts one
# that was killed, on its port and with the state that it had.
set -eu
. "$(dirname "$0")/common.sh"
folder=${2:-}

# Writes the initial configuration, which the Sentinel itself updates later. Two failovers are at least two
# failover-timeouts apart.
configure() {
    cat >"$folder/sentinel.conf" <<END
port $1
bind 127.0.0.1
dir $folder
sentinel monitor mymaster 127.0.0.1 $DLOCK_SERVER_OPTIONS 2
sentinel down-after-milliseconds mymaster 2000
sentinel failover-timeout mymaster 3000
END
}

launch() {
    if ! grep -qx "port $1" "$folder/sentinel.conf" 2>/dev/null; then configure "$1"; fi
    "${DLOCK_REDIS_SERVER:-redis-server}" "$folder/sentinel.conf" --sentinel >"$folder/sentinel.log" 2>&1 </dev/null &
}

answers() { [ "$(redis-cli -h 127.0.0.1 -p "$1" ping 2>/dev/null)" = PONG ]; }

case "$1" in
start) start_on_free_port sentinel ;;
again) launch_again sentinel ;;
stop) stop_by_pid sentinel ;;
esac
