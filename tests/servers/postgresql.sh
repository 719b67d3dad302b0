#!/bin/bash
# postgresql.sh packages | start FOLDER | again FOLDER | stop FOLDER: a private PostgreSQL on a free loopback port. See
# tests/run.sh. `again` starts one that was killed, on its port.
# PostgreSQL refuses to run as root: then it runs as the user of Debian's package.
set -eu
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/../support/as_user.sh"
folder=${2:-}
data=$folder/postgresql
programs=$(find /usr/lib/postgresql -maxdepth 2 -name bin 2>/dev/null | sort -V | tail -n 1)

as_user postgres

# fsync stays on, since tests count the flushes.
launch() {
    (cd "$data" && exec "${as_user[@]}" "$programs/postgres" -D "$data" -p "$1" -c listen_addresses=127.0.0.1 \
        -c unix_socket_directories="$data" -c max_connections=600 -c log_line_prefix='%m [%p] ' \
        -c shared_preload_libraries=pg_stat_statements,plpgsql ${DLOCK_SERVER_OPTIONS:-}) >"$folder/postgresql.log" 2>&1 </dev/null &
}

answers() { "$programs/pg_isready" -q -h 127.0.0.1 -p "$1"; }

case "$1" in
libraries) echo libpq-dev libssl-dev ;;
packages) echo openssl postgresql pgbouncer ;;
start)
    mkdir -p "$data"
    if [ "$(id -u)" = 0 ]; then chown postgres "$data"; fi
    (cd "$data" && "${as_user[@]}" "$programs/initdb" -D "$data" -U dlock -A trust -E UTF8 --locale=C.UTF-8 -N >/dev/null)
    # Two roles have to log in with their passwords.
    sed -i '1i host all dlock_password,dlock_file 127.0.0.1/32 scram-sha-256' "$data/pg_hba.conf"
    start_on_free_port postgresql
    "$programs/psql" -q -h 127.0.0.1 -p "$port" -U dlock -c 'CREATE EXTENSION pg_stat_statements' postgres
    echo "DLOCK_TEST_POSTGRESQL=127.0.0.1:$port:$data:$programs"
    echo "DLOCK_TEST_URI_postgresql=postgresql://dlock@127.0.0.1:$port/postgres?quarantine=0&lease=10s"
    echo "DLOCK_TEST_URI_postgresql_session=postgresql://dlock@127.0.0.1:$port/postgres?mode=session&schema=sessions"
    ;;
again) launch_again postgresql ;;
stop)
    # After SIGTERM the server would wait for its clients.
    if is_there postgresql; then kill -INT "$(cat "$folder/postgresql.pid")" 2>/dev/null || true; fi
    stop_by_pid postgresql
    ;;
esac
