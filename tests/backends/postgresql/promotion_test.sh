#!/bin/bash
# A standby that is promoted while it lacks the latest grants, a dump that is restored, and a restart: after a crash that
# may have undone grants, and after one that has not.
. "$(dirname "$0")/../../support/cli.sh"
. "$servers/common.sh"
. "$servers/../support/as_user.sh"

chmod a+rx "$work" # the servers run as another user than root
old=$work/old new=$work/new
mkdir "$old" "$new"
stop_servers() { "$servers/postgresql.sh" stop "$old"; "$servers/postgresql.sh" stop "$new"; }
at_exit+=(stop_servers)
settings=$("$servers/postgresql.sh" start "$old") || exit 1
programs=$(sed -n 's/^DLOCK_TEST_POSTGRESQL=.*://p' <<<"$settings")
as_user postgres

# on FOLDER PROGRAM …: one of PostgreSQL's programs, with the server in that folder
on() {
    local port program=$2
    port=$(cat "$1/postgresql.port")
    shift 2
    "$programs/$program" -h 127.0.0.1 -p "$port" -U dlock "$@"
}
sql() { on "$1" psql -X -q -At -v ON_ERROR_STOP=1 -c "$2" postgres; }
uri() { # FOLDER [KEYS [DATABASE]]
    echo "postgresql://dlock@127.0.0.1:$(cat "$1/postgresql.port")/${3:-postgres}?timeout=5s&guardian=off${2:-}"
}
grants() { # WHAT URI
    run "$DLOCK" run -w 60s -b "$2" other -- echo ran
    equal "$1" "$status $out" "0 ran"
}
grants_nothing() { # WHAT URI
    run "$DLOCK" run -w 1s -b "$2&quarantine=1h" other -- echo ran
    equal "$1" "$status $out" "69 "
    contains "and says for how long" "$err" "grants nothing for another "
}

grants "a first database grants at once" "$(uri "$old" '&quarantine=1h')"

describe "a standby that is promoted"
mkdir -m 700 "$new/postgresql"
free_port >"$new/postgresql.port"
if [ "$(id -u)" = 0 ]; then chown postgres "$new/postgresql"; fi
(cd "$new/postgresql" && "${as_user[@]}" "$programs/pg_basebackup" -R -c fast -h 127.0.0.1 \
    -p "$(cat "$old/postgresql.port")" -U dlock -D "$new/postgresql" 2>/dev/null) || exit 1
"$servers/postgresql.sh" again "$new" || exit 1
is_up() { sql "$new" "SELECT" 2>/dev/null; }
within 60 "the standby answers" is_up
sql "$new" "ALTER SYSTEM SET primary_conninfo = ''"
sql "$new" "SELECT pg_reload_conf()" >/dev/null
nobody_follows() { [ "$(sql "$old" "SELECT count(*) FROM pg_stat_replication")" = 0 ]; }
within 60 "it is behind from here on" nobody_follows
begin "$DLOCK" run -b "$(uri "$old" '&lease=2s')" other -- sleep 300
lists() { "$DLOCK" list -b "$1" | grep -q other; }
within 60 "a lock is held that it does not know" lists "$(uri "$old")"
sql "$new" "SELECT pg_promote()" >/dev/null
grants_nothing "it grants nothing yet" "$(uri "$new")"
run "$DLOCK" doctor --no-try -b "$(uri "$new" '&quarantine=1h')"
contains "as the doctor says" "$out" "grants nothing for another "
"$servers/postgresql.sh" stop "$old"
grants "after the quarantine" "$(uri "$new" '&lease=2s')"
ended "$pid"

describe "a dump that is restored"
sql "$new" "CREATE DATABASE restored"
on "$new" pg_dump -n dlock postgres | on "$new" psql -X -q -v ON_ERROR_STOP=1 restored >/dev/null
grants_nothing "it grants nothing yet" "$(uri "$new" '' restored)"

describe "a crash"
crash() { # OPTIONS
    kill -QUIT "$(cat "$new/postgresql.pid")"
    "$servers/postgresql.sh" stop "$new"
    DLOCK_SERVER_OPTIONS=$1 "$servers/postgresql.sh" again "$new"
    within 60 "the server is there again" is_up
}
crash ""
grants "of a durable server" "$(uri "$new" '&lease=1s')"
crash "-c fsync=off"
grants_nothing "of one that may have lost grants, it grants nothing yet" "$(uri "$new")"
grants "but does so without a quarantine" "$(uri "$new" '&quarantine=0')"

finish
