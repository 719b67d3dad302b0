#!/bin/bash
# dlock doctor on MySQL: a private MariaDB, whose settings change.
. "$(dirname "$0")/lib.sh"
settings_of_server=$("$here/../../servers/mysql.sh" start "$folder") || exit 1
at_exit+=(stop_server)
stop_server() { "$here/../../servers/mysql.sh" stop "$folder"; }
base=$(sed -n 's/^DLOCK_TEST_MYSQL=//p' <<<"$settings_of_server")
uri=mysql://dlock:secret@$base/locks
sql() { "$here/../../servers/mysql.sh" sql "$folder" "$1"; } # STATEMENT

describe "as it is"
settings "$uri"
fine "MariaDB "
fine "dlock's objects are not there yet"
fine "innodb_flush_log_at_trx_commit=1"
fine "no replica is connected"
fine "connections: "
run "$DLOCK" run -b "$uri" a true
settings "$uri"
fine "dlock's objects are there, in InnoDB"
settings "mysql://dlock:secret@$base/sessions?mode=session"
fine "mode=session: a restart ends every session"

describe "grants are not flushed"
sql "SET GLOBAL innodb_flush_log_at_trx_commit = 2"
settings "$uri" 1
weak "innodb_flush_log_at_trx_commit=2" "a crash forgets grants of the last second"
sql "SET GLOBAL innodb_flush_log_at_trx_commit = 1"

describe "a server that takes no writes"
sql "SET GLOBAL read_only = 1"
for mode in rows session; do
    run "$DLOCK" run -b "$uri?mode=$mode" a true
    equal "$mode" "$status $err" "69 dlock: MySQL at $base is read-only (a replica?): look for the primary"
done
sql "SET GLOBAL read_only = 0"

describe "no way in"
run "$DLOCK" run -b "mysql://dlock:hunter2@$base/locks" a true
contains "a wrong password" "$status $err" "69 dlock: cannot connect to MySQL at $base: Access denied"
lacks "a wrong password" "$err" hunter2
run "$DLOCK" run -b "mysql://dlock:secret@$base" a true
equal "no database" "$status $err" "64 dlock: URI: the database is missing: write mysql://USER@HOST/DATABASE"
run "$DLOCK" run -b "$uri?mode=sesion" a true
equal "no such mode" "$status $err" '64 dlock: URI: "mode" must be rows or session; did you mean "session"?'

finish
