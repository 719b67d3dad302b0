#!/bin/bash
# dlock doctor on PostgreSQL.
. "$(dirname "$0")/lib.sh"

settings_of_server=$("$here/../../../servers/postgresql.sh" start "$folder")
at_exit+=(stop_server)
stop_server() { "$here/../../../servers/postgresql.sh" stop "$folder"; }
IFS=: read -r host port data programs < <(sed -n 's/^DLOCK_TEST_POSTGRESQL=//p' <<<"$settings_of_server")
base=$host:$port/postgres
uri=postgresql://dlock@$base
# With synchronous_commit local, nothing here waits for the standby.
export PGCONNECT_TIMEOUT=10
ask() { PGOPTIONS='-c synchronous_commit=local -c statement_timeout=10s' psql -X -q -At -v ON_ERROR_STOP=1 -h "$host" -p "$port" -U dlock postgres -c "$1" 2>&1; }
# set_to NAME VALUE: for the whole server, now.
shows() { [ "$(ask "SHOW $1")" = "$2" ]; }
set_to() {
    ask "ALTER SYSTEM SET $1 = '$2'"
    ask "SELECT pg_reload_conf()" >/dev/null
    within 10 "$1 becomes $2" shows "$1" "$2"
}

describe "before the first use"
settings "$uri"
fine "schema \"dlock\" is not there yet: it is made at the first use"
ask "CREATE ROLE app LOGIN"
settings "postgresql://app@$base" 1
weak "schema \"dlock\" is not there, and may not be made" "its DBA has to run what \`dlock schema postgresql\` prints"
equal "and the doctor has not made it" "$(ask "SELECT to_regnamespace('dlock') IS NULL")" t

describe "as it comes"
gives "the first use" 0 "$DLOCK" run -b "$uri" first true
settings "$uri"
fine "PostgreSQL "
fine "schema \"dlock\" is there, and may be used"
fine "fsync on"
fine "full_page_writes on"
fine "synchronous_commit on"
fine "no standby is connected"
fine "waiters are woken by NOTIFY, no connection pooler in between"
fine "isolation level read committed"
fine "statement_timeout 0 ms"
fine "connections: "

describe "the disk"
for setting in fsync full_page_writes; do
    set_to $setting off
    settings "$uri?quarantine=0" 1 # with fsync off the quarantine counts from the start of the server
    weak "$setting off" "set $setting on"
    set_to $setting on
done
ask "ALTER ROLE dlock SET synchronous_commit = off"
settings "$uri"
fine "synchronous_commit off, but on for grants and renewals"
ask "ALTER ROLE dlock RESET synchronous_commit"

describe "rights"
settings "postgresql://app@$base" 1
weak "schema \"dlock\" is there, and may not be used" "run the GRANTs at the end of \`dlock schema postgresql\`"
ask "GRANT USAGE ON SCHEMA dlock TO app"
ask "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA dlock TO app"
settings "postgresql://app@$base" 1
weak "schema \"dlock\" is there, and may not be used" "run the GRANTs at the end of \`dlock schema postgresql\`"
ask "GRANT SELECT, UPDATE ON dlock.take, dlock.give TO app"
settings "postgresql://app@$base"
fine "schema \"dlock\" is there, and may be used"
settings "postgresql://app@$base?listen=off&schema=other" 1
weak "schema \"other\" is not there, and may not be made" "dlock schema postgresql"
settings "$uri?schema=other"
fine "schema \"other\" is not there yet: it is made at the first use"

describe "transactions that are left open"
settings "$uri"
fine "the longest transaction has been open for 0 s"
# A clock that is 20 minutes ahead of the transactions' beginning, in a separate database.
ask "CREATE DATABASE early"
psql -X -q -v ON_ERROR_STOP=1 -h "$host" -p "$port" -U dlock early >/dev/null 2>&1 <<'SQL'
SET allow_system_table_mods = on;
ALTER FUNCTION pg_catalog.clock_timestamp() RENAME TO real_clock_timestamp;
CREATE FUNCTION pg_catalog.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS
    'SELECT pg_catalog.real_clock_timestamp() + interval ''20 minutes'' ';
SQL
psql -X -q -h "$host" -p "$port" -U dlock early >/dev/null 2>&1 \
    <<<'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1; SELECT pg_sleep(60)' &
sleeper=$!
open="FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND query LIKE '%pg_sleep(60)%' AND pid <> pg_backend_pid()"
is_open() { [ "$(ask "SELECT count(*) $open")" = 1 ]; }
within 10 "a transaction is open" is_open
settings "postgresql://dlock@$host:$port/early" 1
weak "the longest transaction has been open for 12" "end it"
ask "SELECT pg_terminate_backend(pid) $open" >/dev/null
wait "$sleeper" || true

describe "the session"
settings "$uri?listen=off" 1
weak "listen=off" "waiters poll"
ask "ALTER ROLE dlock SET default_transaction_isolation = 'serializable'"
ask "ALTER ROLE dlock SET statement_timeout = '2s'"
settings "$uri"
fine "isolation level read committed"
fine "statement_timeout 0 ms"
settings "$uri?listen=off" 1
weak "isolation level serializable" "read committed"
weak "statement_timeout 2000 ms" "statement_timeout = 0"
ask "ALTER ROLE dlock RESET ALL"

describe "a connection pooler"
# pooled DATABASE-AND-KEYS STATUS: as settings, with pgbouncer in between.
pooled() {
    # shellcheck disable=SC2016
    run env DLOCK_TEST_POSTGRESQL="$host:$port:$data:$programs" "$here/../../../backends/postgresql/pooler.sh" \
        bash -c '"$DLOCK" doctor "postgresql://dlock@127.0.0.1:$DLOCK_TEST_POOLER/$1"' - "$1"
    equal "status" "$status" "$2"
}
pooled "transactions?listen=off" 1
weak "listen=off, behind a connection pooler" "connect past the pooler"
fine "isolation level read committed"
pooled "sessions?listen=on" 1
weak "listen=on behind a connection pooler" "only if the pooler pools whole sessions"
pooled "transactions" 69
contains "what to write" "$err" "listen=off"

describe "standbys"
mkdir "$folder/wal"
begin "$programs/pg_receivewal" --synchronous -h "$host" -p "$port" -U dlock -D "$folder/wal"
follows() { [ "$(ask "SELECT count(*) FROM pg_stat_replication")" = 1 ]; }
within 20 "somebody follows" follows
for role in dlock app; do
    settings "postgresql://$role@$base?quarantine=0" 1
    weak "1 standby, replication asynchronous" "synchronous_standby_names"
done
settings "$uri"
fine "1 standby, replication asynchronous; a quarantine of 10s covers what is lost"
set_to synchronous_standby_names pg_receivewal
settings "$uri"
fine "1 standby, replication synchronous"
ask "ALTER ROLE dlock SET synchronous_commit = local"
settings "$uri?quarantine=0" 1
weak "1 standby, replication asynchronous"
ask "ALTER ROLE dlock SET synchronous_commit = remote_write"
settings "$uri?quarantine=0" 1
weak "1 standby, synchronous_commit remote_write" "set synchronous_commit on"
settings "$uri"
fine "1 standby, synchronous_commit remote_write; a quarantine of 10s covers what is lost"
set_to synchronous_standby_names another
ask "ALTER ROLE dlock RESET synchronous_commit"
settings "$uri" 1
weak "1 standby, none of them synchronous, as synchronous_standby_names wants" "every grant waits"
ask "ALTER SYSTEM RESET synchronous_standby_names"
ask "SELECT pg_reload_conf()" >/dev/null
kill -KILL "$pid"
nobody_follows() { [ "$(ask "SELECT count(*) FROM pg_stat_replication")" = 0 ]; }
within 20 "nobody follows" nobody_follows
settings "$uri"
fine "no standby is connected"
ask "SELECT pg_create_physical_replication_slot('away')" >/dev/null
settings "$uri?quarantine=0" 1
weak "1 standby, replication asynchronous" # it is away
ask "SELECT pg_drop_replication_slot('away')" >/dev/null

describe "a password"
ask "CREATE ROLE dlock_password LOGIN PASSWORD 'hunter2'"
settings "postgresql://dlock_password:hunter3@$base" 69
lacks "the password" "$out$err" hunter3
settings "postgresql://dlock_password:hunter2@$base?listen=off" 1
lacks "the password" "$out$err" hunter2

finish
