#!/bin/bash
# pooler.sh PROGRAM…: runs a program with a private pgbouncer before the server that tests/run.sh has started, as
# DLOCK_TEST_POOLER=port. It has two databases: "transactions", three server connections for all clients, a transaction
# at a time; and "sessions".
set -eu
. "$(dirname "$0")/../../servers/common.sh"
. "$(dirname "$0")/../../support/as_user.sh"
if [ -z "${DLOCK_TEST_POSTGRESQL:-}" ]; then
    echo "no server: run the tests with tests/run.sh" >&2
    exit 1
fi
IFS=: read -r host server_port _ <<<"$DLOCK_TEST_POSTGRESQL"
folder=$(mktemp -d "${TMPDIR:-/tmp}/dlock-pooler.XXXXXX")
trap 'stop_by_pid pgbouncer; rm -rf "$folder"' EXIT

as_user postgres
if [ "$(id -u)" = 0 ]; then chown postgres "$folder"; fi

# From 1.21 on it can keep prepared statements apart; older ones, and other poolers, mix up those of their clients.
mixes=
if printf '1.21\n%s\n' "$(/usr/sbin/pgbouncer --version | sed -n 's/^PgBouncer //p')" | sort -C -V; then
    mixes='max_prepared_statements = 0'
fi

launch() {
    cat >"$folder/pgbouncer.ini" <<END
[databases]
transactions = host=$host port=$server_port dbname=postgres user=dlock pool_mode=transaction pool_size=3
sessions = host=$host port=$server_port dbname=postgres user=dlock pool_mode=session pool_size=20
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $1
unix_socket_dir =
auth_type = any
max_client_conn = 200
default_pool_size = 20
$mixes
END
    "${as_user[@]}" /usr/sbin/pgbouncer "$folder/pgbouncer.ini" >"$folder/pgbouncer.log" 2>&1 </dev/null &
}

answers() { grep -q 'process up' "$folder/pgbouncer.log"; }

start_on_free_port pgbouncer
DLOCK_TEST_POOLER=$port "$@"
