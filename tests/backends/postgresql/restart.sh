#!/bin/bash
# restart.sh PROGRAM…: runs a program with a private PostgreSQL server that it may stop and start: DLOCK_TEST_SERVER is
# its URI, and `$DLOCK_TEST_CONTROL stop|restart [-m fast|immediate]` does it; restart also starts it.
# DLOCK_TEST_POSTGRESQL is also this server's.
set -eu
servers=$(cd "$(dirname "$0")/../../servers" && pwd)
. "$servers/../support/as_user.sh"
folder=$(mktemp -d "${TMPDIR:-/tmp}/dlock-restart.XXXXXX")
chmod 711 "$folder"  # the server runs as another user than root
control=$folder/control

finish() {
    local status=$?
    trap - EXIT
    if [ -x "$control" ]; then "$control" stop -m immediate || true; fi
    if [ "$status" != 0 ] && [ -e "$folder/postgresql.log" ]; then tail -n 40 "$folder/postgresql.log"; fi
    rm -rf "$folder"
    exit "$status"
}
trap finish EXIT

settings=$("$servers/postgresql.sh" start "$folder")
server=$(sed -n 's/^DLOCK_TEST_URI_postgresql=\([^?]*\).*/\1/p' <<<"$settings")
programs=$(sed -n 's/^DLOCK_TEST_POSTGRESQL=.*://p' <<<"$settings")
as_user postgres
# It starts with the options it was started with before.
cat >"$control" <<END
#!/bin/sh
cd "$folder/postgresql"
verb=\$1
shift
exec ${as_user[*]} $programs/pg_ctl \$verb -D "$folder/postgresql" -w -s -l "$folder/postgresql/again.log" "\$@" </dev/null
END
chmod +x "$control"
DLOCK_TEST_POSTGRESQL=$(sed -n 's/^DLOCK_TEST_POSTGRESQL=//p' <<<"$settings")
export DLOCK_TEST_POSTGRESQL
DLOCK_TEST_SERVER=$server DLOCK_TEST_CONTROL=$control "$@"
