#!/bin/bash
# dlock doctor on MySQL: a private MariaDB, whose settings change.
. "$(dirname "$0")/lib.sh"
settings_of_server=$("$here/../../../servers/mysql.sh" start "$folder") || exit 1
at_exit+=(stop_server)
stop_server() { "$here/../../../servers/mysql.sh" stop "$folder"; }
base=$(sed -n 's/^DLOCK_TEST_MYSQL=//p' <<<"$settings_of_server")
uri=mysql://dlock:secret@$base/locks
sql() { "$here/../../../servers/mysql.sh" sql "$folder" "$1"; } # STATEMENT

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
settings "$uri"
fine "innodb_flush_log_at_trx_commit=2: a crash forgets the last grants; a quarantine of 10s covers what is lost"
settings "$uri?quarantine=0" 1
weak "innodb_flush_log_at_trx_commit=2: a crash forgets the last grants; no quarantine" "a crash forgets the last grants"
sql "SET GLOBAL innodb_flush_log_at_trx_commit = 1"

describe "a user without the rights"
sql "CREATE USER reader IDENTIFIED BY 'secret'"
sql "GRANT SELECT, UPDATE ON locks.* TO reader"
settings "mysql://reader:secret@$base/locks?quarantine=0" 1
weak "this user lacks a right to dlock_locks or dlock_claims" "see the GRANTs"

describe "a binary log, a replica, and what a power failure destroys"
stop_server
DLOCK_SERVER_OPTIONS="--server-id=1 --log-bin=log --binlog-format=STATEMENT --rpl-semi-sync-master-enabled=ON
    --innodb-doublewrite=OFF --innodb-flush-method=nosync" "$here/../../../servers/mysql.sh" again "$folder"
is_up() { (exec 3<>"/dev/tcp/${base/://}") 2>/dev/null; }
within 60 "the server is there again" is_up
settings "$uri?quarantine=0" 1
weak "innodb_flush_log_at_trx_commit=1, sync_binlog=0: a crash forgets the last grants" "and sync_binlog=1"
weak "innodb_doublewrite=OFF" "a power failure may destroy the table"
weak "innodb_flush_method=nosync" "a power failure may destroy the table"
weak "binlog_format=STATEMENT" "no lock can be taken: set binlog_format=ROW or MIXED"
weak "semi-synchronous replication is on, but no replica confirms" "a failover forgets what this server has not sent"
run "$DLOCK" run -n -b "$uri?quarantine=0&timeout=2s" a true
contains "a message" "$status $err" "69 dlock: MySQL at $base: Cannot execute statement"
contains "a message" "$err" "; set binlog_format to ROW or MIXED"
sql "SET GLOBAL binlog_format = ROW"
sql "SET GLOBAL sync_binlog = 1"
settings "$uri?quarantine=0" 1
fine "innodb_flush_log_at_trx_commit=1, sync_binlog=1: a grant is on disk before it is confirmed"
lacks "no more" "$out" binlog_format
replica=$work/replica
mkdir "$replica"
DLOCK_SERVER_OPTIONS="--server-id=2" "$here/../../../servers/mysql.sh" start "$replica" >/dev/null || exit 1
stop_replica() { "$here/../../../servers/mysql.sh" stop "$replica"; }
at_exit+=(stop_replica)
"$here/../../../servers/mysql.sh" sql "$replica" "CHANGE MASTER TO MASTER_HOST = '${base%:*}', MASTER_PORT = ${base#*:},
    MASTER_USER = 'admin', MASTER_PASSWORD = 'secret', MASTER_USE_GTID = slave_pos"
"$here/../../../servers/mysql.sh" sql "$replica" "START SLAVE"
sees() { "$DLOCK" doctor --no-try "$1" | grep -qF "$2"; }
within 60 "the replica is there" sees "$uri" "1 replica, 0 semi-synchronous"
settings "$uri?quarantine=0" 1
weak "1 replica, 0 semi-synchronous; no quarantine" "a failover to an asynchronous replica forgets"
settings "$uri" 1
fine "1 replica, 0 semi-synchronous; a quarantine of 10s covers what is lost"
replicas=mysql://dlock:secret@127.0.0.1:$(cat "$replica/mysql.port")/locks
within 60 "it replicates" sees "$replicas" "this server replicates another one"
settings "$replicas" 1
weak "this server replicates another one, and takes writes" "set read_only=ON on every server but the primary"
"$here/../../../servers/mysql.sh" sql "$replica" "SET GLOBAL rpl_semi_sync_slave_enabled = ON"
"$here/../../../servers/mysql.sh" sql "$replica" "STOP SLAVE"
"$here/../../../servers/mysql.sh" sql "$replica" "START SLAVE"
within 60 "it confirms" sees "$uri" "1 replica, 1 semi-synchronous"
settings "$uri?quarantine=0" 1
fine "1 replica, 1 semi-synchronous"
lacks "no more" "$out" "no replica confirms"

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
