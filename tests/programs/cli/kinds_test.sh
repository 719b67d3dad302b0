#!/bin/bash
# A port where another kind of server answers, or none: every backend names what it looked for. The servers are real, but
# for one that answers as TLS does, one that says nothing, one that takes no connection, and a lonely ZooKeeper.
. "$(dirname "$0")/../../support/cli.sh"
use_redis
: "${DLOCK_TEST_MEMCACHED:?"no server: run the tests with tests/run.sh"}" "${DLOCK_TEST_ZOOKEEPER:?}" "${DLOCK_TEST_POSTGRESQL:?}" \
    "${DLOCK_TEST_ETCD:?}" "${DLOCK_TEST_MYSQL:?}"

cat >"$work/fakes.py" <<'END'
import contextlib, http.server, os, socket, sys, threading, time

def serve(answer):
    s = socket.create_server(("127.0.0.1", 0), backlog=64)
    def run():
        while True:
            threading.Thread(target=answer, args=(s.accept()[0],), daemon=True).start()
    threading.Thread(target=run, daemon=True).start()
    return s.getsockname()[1]

kept = []
def tls(c):
    with contextlib.suppress(OSError):
        c.recv(4096)
        c.sendall(b"\x15\x03\x01\x00\x02\x02\x46")  # alert: protocol version
    c.close()
def lonely(c):
    if c.recv(4096).startswith(b"srvr"):
        c.sendall(b"This ZooKeeper instance is not currently serving requests\n")
    c.close()
def full():  # the kernel takes no more connections, and refuses none
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    s.listen(0)
    for _ in range(4):
        c = socket.socket()
        c.setblocking(False)
        c.connect_ex(s.getsockname())
        kept.append(c)
    kept.append(s)
    return s.getsockname()[1]

class Quiet(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
threading.Thread(target=web.serve_forever, daemon=True).start()
closed = socket.socket()
closed.bind(("127.0.0.1", 0))  # bound, and not listening: refused for as long as we live
print(f"http={web.server_address[1]} tls={serve(tls)} silent={serve(kept.append)} lonely={serve(lonely)} full={full()} "
      f"refused={closed.getsockname()[1]}", file=open(sys.argv[1] + ".new", "w"), flush=True)
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(1000)
END
python3 "$work/fakes.py" "$work/ports" &
started+=("$!")
within 20 "the fakes are there" test -e "$work/ports"
declare -A port
for word in $(<"$work/ports"); do port[${word%%=*}]=${word#*=}; done
port[redis]=${address#*:}
port[memcached]=${DLOCK_TEST_MEMCACHED#*:}
port[zookeeper]=${DLOCK_TEST_ZOOKEEPER#*:}
port[postgresql]=$(cut -d: -f2 <<<"$DLOCK_TEST_POSTGRESQL")
port[etcd]=${DLOCK_TEST_ETCD#*:}
port[mysql]=${DLOCK_TEST_MYSQL#*:}
declare -A user=([mysql]=user@ [memcached+sasl]=user:hunter2@) path=([mysql]=/database)

# asks SCHEME WHERE [TIMEOUT]: the status and the message, with AT for the address. Without a guardian, whose start
# would also count.
asks() {
    run "$DLOCK" run -b "$1://${user[$1]:-}127.0.0.1:${port[$2]}${path[$1]:-}?guardian=off&timeout=${3:-1s}" a -- true
    said="$status ${err//"127.0.0.1:${port[$2]}"/AT}"
}

declare -A word=([redis]="a Redis" [redis+cluster]="a Redis" [memcached]="a memcached" [zookeeper]="a ZooKeeper" [etcd]="an etcd"
    [postgresql]="a PostgreSQL" [mysql]="a MySQL")
kinds="redis memcached zookeeper etcd postgresql mysql"
for scheme in $kinds redis+cluster; do
    describe "$scheme"
    for other in $kinds http tls silent; do
        if [ "$other" = "${scheme%+cluster}" ]; then continue; fi
        asks "$scheme" "$other"
        contains "on the port of $other" "$said" "69 dlock: "
        contains "on the port of $other" "$said" "; is this ${word[$scheme]} server?"
    done
    for other in refused full; do
        asks "$scheme" "$other"
        contains "$other" "$said" "69 dlock: "
        lacks "$other" "$said" "is this "
    done
done

describe "a Redis that is no member of a cluster"
asks redis+cluster redis
contains "standalone" "$said" "69 dlock: Redis at AT runs in standalone mode and is no member of a cluster: use redis://"

describe "a password is not sent to what did not ask for one"
run "$DLOCK" run -b "memcached://user:hunter2@$address" a -- true
contains "memcached" "$status $err" "69 dlock: memcached at $address answered: -ERR unknown command"
contains "memcached" "$err" "; is this a memcached server?"

describe "memcached over SASL: no server"
asks memcached+sasl refused 30s
contains "refused" "$said" "69 dlock: cannot connect to memcached at AT: Connection refused"
lacks "keeps the password" "$err" hunter2

describe "ZooKeeper: what is wrong"
asks zookeeper refused
equal "refused" "$said" "69 dlock: no connection to ZooKeeper at AT: Connection refused; is it running there?"
asks zookeeper full
equal "timed out" "$said" "69 dlock: no connection to ZooKeeper at AT: no answer in time"
asks zookeeper http
equal "no ZooKeeper" "$said" "69 dlock: AT accepts connections, but begins no session; is this a ZooKeeper server?"
asks zookeeper lonely 6s # a tenth of that is for the request, also on a busy machine
equal "without the others" "$said" \
    "69 dlock: ZooKeeper at AT serves no clients now: it has no connection to a majority of its ensemble"

finish
