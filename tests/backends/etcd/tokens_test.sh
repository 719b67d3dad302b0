#!/bin/bash
# Users whose tokens etcd signs (JSON Web Tokens): each change of users makes all of them old.
. "$(dirname "$0")/../../support/cli.sh"
export ETCDCTL_API=3
openssl genrsa -out "$work/key" 2048 2>/dev/null
openssl rsa -in "$work/key" -pubout -out "$work/public" 2>/dev/null
DLOCK_SERVER_OPTIONS="--auth-token jwt,pub-key=$work/public,priv-key=$work/key,sign-method=RS256,ttl=10m" \
    "$servers/etcd.sh" start "$work" >/dev/null || exit 1
at_exit+=(stop_etcd)
stop_etcd() { "$servers/etcd.sh" stop "$work"; }
port=$(<"$work/etcd.port")
ctl() { etcdctl --endpoints "http://127.0.0.1:$port" --user root:hunter2 "$@" >/dev/null; }
unauthorized() { etcdctl --endpoints "http://127.0.0.1:$port" "$@" >/dev/null; }
unauthorized user add root:hunter2
unauthorized user add me:hunter2
unauthorized role add locker
unauthorized role grant-permission locker --prefix=true readwrite dlock/
unauthorized user grant-role me locker
unauthorized user grant-role root root
unauthorized auth enable || fail "no users"
export DLOCK_URI="etcd://me:hunter2@127.0.0.1:$port/dlock?session=15s&lease=15s&guardian=off"

describe "a holder and a waiter while users are changed"
begin "$DLOCK" run a -- sh -c "until [ -e '$work/go' ]; do sleep 0.05; done"
holder=$pid
within 60 "it is held" is_held a
"$DLOCK" run -w 60s a -- true 2>"$work/waiter.err" &
waiter=$!
started+=("$waiter")
within 60 "the other one waits" has_waiters a 1
ctl user add another:hunter2
sleep 16 # longer than the session: it is renewed
touch "$work/go"
ended "$holder"
equal "the holder's end" "$status" 0
ended "$waiter"
equal "the waiter's turn" "$status" 0
equal "the waiter's messages" "$(<"$work/waiter.err")" ""

# For the proxy a token is old after 50 transactions. It keeps each request for a token for half a second; the other
# threads continue in that time.
describe "no request goes without a token while another thread asks for a new one"
PYTHONPATH=$(dirname "$0") python3 -B - "127.0.0.1:$port" "$work/asked" "$work/without" >"$work/port" <<'END' &
import proxy, sys, time
old = "etcdserver: revision of auth store is old"
ended, served = set(), 0
def is_old(token):
    global served
    served += token not in ended
    if served % 50 == 0: ended.add(token)
    return token in ended
class Handler(proxy.Handler):
    def do_POST(self):
        body = self.read_body()
        token = self.headers["Authorization"]
        asks = self.path == "/v3/auth/authenticate"
        if asks or not token:
            with open(sys.argv[2 if asks else 3], "a") as f: f.write("%s %s\n" % (self.path, token))
        if asks: time.sleep(0.5)
        if self.path == "/v3/kv/txn" and is_old(token):
            status, answer = 400, b'{"error":"%s","message":"%s","code":3}' % (old.encode(), old.encode())
        else:
            status, answer = proxy.ask(sys.argv[1], self.path, body, {"Authorization": token} if token else {})
        self.answer(status, answer)
proxy.serve(Handler)
END
started+=("$!")
within 60 "the proxy is there" written "$work/port"
: >"$work/without"
patient="?timeout=60s&session=60s&lease=60s" # whatever the machine does besides
begin "$DLOCK" bench -w distinct --threads 4 --rounds 1 --time 6s --floors "" \
    "etcd://me:hunter2@127.0.0.1:$(<"$work/port")/dlock$patient"
ended "$pid"
equal "the threads' end" "$status $(tail -n 3 "$work/bg.err"; grep '\*' "$work/bg.out")" "0 "
if [ "$(grep -c . "$work/asked")" -lt 4 ]; then fail "too few asked for a token" "$(<"$work/asked")"; fi
equal "requests for a token with a token" "$(grep -vc None "$work/asked")" 0
equal "requests without a token" "$(sort "$work/without" | uniq -c)" ""

finish
