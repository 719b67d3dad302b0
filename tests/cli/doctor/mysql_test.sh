#!/bin/bash
# dlock doctor on MySQL: a private MariaDB, whose settings change.
. "$(dirname "$0")/lib.sh"
settings_of_server=$("$here/../../servers/mysql.sh" start "$folder") || exit 1
at_exit+=(stop_server)
stop_server() { "$here/../../servers/mysql.sh" stop "$folder"; }
base=$(sed -n 's/^DLOCK_TEST_MYSQL=//p' <<<"$settings_of_server")
uri=mysql://dlock:secret@$base/locks
sql() { # STATEMENT, as the administrator
    python3 - "$base" "$1" <<'END'
import ctypes, sys
host, port = sys.argv[1].split(":")
m = ctypes.CDLL("libmariadb.so.3")
m.mysql_init.restype = ctypes.c_void_p
m.mysql_error.restype = ctypes.c_char_p
h = ctypes.c_void_p(m.mysql_init(None))
m.mysql_real_connect.restype = ctypes.c_void_p
ok = m.mysql_real_connect(h, host.encode(), b"admin", b"secret", None, ctypes.c_uint(int(port)), None, ctypes.c_ulong(0))
if not ok or m.mysql_query(h, sys.argv[2].encode()): sys.exit(m.mysql_error(h).decode())
END
}

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
