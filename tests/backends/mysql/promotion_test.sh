#!/bin/bash
# A replica that is writable, as MySQL's and MariaDB's are by default: while it replicates, and once it is promoted. And a
# server that is started with an old copy of its data.
. "$(dirname "$0")/../../support/cli.sh"

chmod a+rx "$work" # the servers run as another user than root
old=$work/old new=$work/new
mkdir "$old" "$new"
stop_servers() { "$servers/mysql.sh" stop "$old"; "$servers/mysql.sh" stop "$new"; }
at_exit+=(stop_servers)
DLOCK_SERVER_OPTIONS="--server-id=1 --log-bin=log" "$servers/mysql.sh" start "$old" >/dev/null || exit 1
DLOCK_SERVER_OPTIONS="--server-id=2 --log-bin=log" "$servers/mysql.sh" start "$new" >/dev/null || exit 1
new_sql() { "$servers/mysql.sh" sql "$new" "$1"; }
uri() { # FOLDER MODE [KEYS]
    local database=locks
    if [ "$2" = session ]; then database=sessions; fi
    echo "mysql://dlock:secret@127.0.0.1:$(cat "$1/mysql.port")/$database?timeout=5s&mode=$2&guardian=off${3:-}"
}
lists() { "$DLOCK" list -b "$1" 2>/dev/null | grep -q "$2"; }

new_sql "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = $(cat "$old/mysql.port"), MASTER_USER = 'admin',
    MASTER_PASSWORD = 'secret', MASTER_USE_GTID = slave_pos"
new_sql "START SLAVE"
for mode in session rows; do
    run "$DLOCK" run -b "$(uri "$old" $mode '&lease=1s')" -w 60s first -- echo ran
    equal "the primary grants, $mode" "$status $out" "0 ran"
done
begin "$DLOCK" run -l 3 -b "$(uri "$old" rows)" kept -- sleep 300
holder=$pid
within 60 "its grants are replicated" lists "$(uri "$new" rows)" kept

describe "a writable replica"
for mode in session rows; do
    run "$DLOCK" run -n -b "$(uri "$new" $mode)" other -- echo ran
    equal "grants nothing, $mode" "$status $out" "69 "
    contains "and says why, $mode" "$err" "it replicates the locks of another server: look for the primary"
done
# The other host's grant is the one that counts.
begin "$DLOCK" run -b "$(uri "$new" rows | sed "s/@/@127.0.0.1:$(cat "$old/mysql.port"),/")" passed-over -- sleep 300
within 60 "it is passed over for the primary" lists "$(uri "$old" rows)" passed-over

describe "a replica that is promoted"
kill -KILL "$(cat "$old/mysql.pid")"
new_sql "STOP SLAVE"
for mode in session rows; do
    run "$DLOCK" run -w 1s -b "$(uri "$new" $mode '&quarantine=1h')" other -- echo ran
    equal "grants nothing yet, $mode" "$status $out" "69 "
    contains "and says for how long, $mode" "$err" "grants nothing for another "
    run "$DLOCK" run -w 60s -b "$(uri "$new" $mode '&lease=1s')" other -- echo ran
    equal "grants after its quarantine, $mode" "$status $out" "0 ran"
done
ended "$holder"

describe "a server that was restarted"
"$servers/mysql.sh" stop "$new"
"$servers/mysql.sh" again "$new"
is_up() { "$DLOCK" doctor -b "$(uri "$new" rows)" 2>/dev/null | grep -q MariaDB; }
within 60 "the server is there again" is_up
for mode in session rows; do
    run "$DLOCK" run -w 1s -b "$(uri "$new" $mode '&quarantine=1h')" other -- echo ran
    equal "grants nothing yet, $mode" "$status $out" "69 "
    run "$DLOCK" run -w 1s -b "$(uri "$new" $mode '&quarantine=0')" other -- echo ran
    equal "grants with quarantine=0, $mode" "$status $out" "0 ran"
done

finish
