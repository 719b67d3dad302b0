#!/bin/bash
# mysql.sh packages | start FOLDER | again FOLDER | stop FOLDER: a private MariaDB on a free loopback port. See
# tests/run.sh. `again` starts one that was killed, on its port. `sql FOLDER STATEMENT` is executed by the administrator.
# MariaDB refuses to run as root: then it runs as the user daemon. The package mariadb-server-core contains no service.
set -eu
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/../support/as_user.sh"
folder=${2:-}
data=$folder/mysql

as_user daemon

# Flushing to disk stays on, as in production.
launch() {
    "${as_user[@]}" /usr/sbin/mariadbd --no-defaults --datadir="$data" --tmpdir="$data" --port="$1" \
        --bind-address=127.0.0.1 --socket="$data/socket" --pid-file="$data/pid" --skip-name-resolve \
        --max-connections=600 --innodb-buffer-pool-size=32M --performance-schema=OFF ${DLOCK_SERVER_OPTIONS:-} \
        >"$folder/mysql.log" 2>&1 </dev/null &
}

# Succeeds if the server sends a greeting that is not an error packet.
answers() {
    python3 - "$1" <<'END' 2>/dev/null
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5) as s:
    s.settimeout(5)
    sys.exit(s.recv(5)[4] == 0xff)
END
}

case "$1" in
libraries) echo libmariadb-dev libssl-dev ;;
packages) echo openssl mariadb-server-core mariadb-client-core galera-4 ;;
start)
    mkdir -p "$data"
    if [ "$(id -u)" = 0 ]; then chown daemon "$data"; fi
    # The statements for the bootstrap: system tables, an administrator, an application's user, two databases.
    {
        printf 'CREATE DATABASE IF NOT EXISTS mysql;\nUSE mysql;\n'
        find /usr/share/mysql /usr/share/mariadb -name 'm*_system_tables.sql' -exec cat {} + 2>/dev/null || true
        cat <<'END'
FLUSH PRIVILEGES;
CREATE USER 'admin'@'%' IDENTIFIED BY 'secret';
GRANT ALL ON *.* TO 'admin'@'%' WITH GRANT OPTION;
CREATE DATABASE locks;
CREATE DATABASE sessions;
CREATE USER 'dlock'@'%' IDENTIFIED BY 'secret';
GRANT ALL ON locks.* TO 'dlock'@'%';
GRANT ALL ON sessions.* TO 'dlock'@'%';
END
    } >"$folder/mysql.sql"
    "${as_user[@]}" /usr/sbin/mariadbd --no-defaults --bootstrap --datadir="$data" --tmpdir="$data" --skip-networking \
        --innodb-buffer-pool-size=32M --performance-schema=OFF <"$folder/mysql.sql" >"$folder/mysql.log" 2>&1 ||
        { cat "$folder/mysql.log" >&2; exit 1; }
    start_on_free_port mysql
    echo "DLOCK_TEST_MYSQL=127.0.0.1:$port"
    echo "DLOCK_TEST_URI_mysql=mysql://dlock:secret@127.0.0.1:$port/locks?quarantine=0&lease=10s"
    echo "DLOCK_TEST_URI_mysql_session=mysql://dlock:secret@127.0.0.1:$port/sessions?mode=session&quarantine=0&lease=10s"
    ;;
again) launch_again mysql ;;
stop) stop_by_pid mysql ;;
sql)
    python3 - "$(cat "$folder/mysql.port")" "$3" <<'END'
import ctypes, sys
m = ctypes.CDLL("libmariadb.so.3")
m.mysql_init.restype = m.mysql_real_connect.restype = ctypes.c_void_p
m.mysql_error.restype = ctypes.c_char_p
h = ctypes.c_void_p(m.mysql_init(None))
ok = m.mysql_real_connect(h, b"127.0.0.1", b"admin", b"secret", None, ctypes.c_uint(int(sys.argv[1])), None, ctypes.c_ulong(0))
if not ok or m.mysql_query(h, sys.argv[2].encode()): sys.exit(m.mysql_error(h).decode())
END
    ;;
esac
