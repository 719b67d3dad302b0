#!/bin/bash
# Members that are killed, silent, or away: locks and deadlines hold.
. "$(dirname "$0")/../../support/cli.sh"
. "$servers/common.sh"
server=$servers/etcd.sh
export ETCDCTL_API=3
at_exit+=(stop_members)
stop_members() {
    local n
    for n in 1 2 3; do "$server" stop "$work/$n" 2>/dev/null; done
}
mapfile -t ports < <("$server" cluster "$work" 3)
equal "members" "${#ports[@]}" 3
hosts=127.0.0.1:${ports[0]},127.0.0.1:${ports[1]},127.0.0.1:${ports[2]}
export DLOCK_URI="etcd://$hosts/dlock?session=8s&timeout=4s"
state() { "$DLOCK" inspect --json "$1"; }
token_of() { state "$1" | grep -o '"token": "[^"]*"'; }

describe "the member in use is killed, with a holder and a waiter"
begin "$DLOCK" run a -- sh -c "until [ -e '$work/go' ]; do sleep 0.05; done"
holder=$pid
within 60 "it is held" is_held a
token=$(token_of a)
"$DLOCK" run -w 60s a -- touch "$work/second" &
waiter=$!
started+=("$waiter")
within 60 "somebody waits" has_waiters a 1
kill -KILL "$(<"$work/1/etcd.pid")"
within 60 "the others go on" is_held a
sleep 9 # longer than the session: it was renewed
equal "the same holder" "$(token_of a)" "$token"
if [ -e "$work/second" ]; then fail "two holders"; fi
touch "$work/go"
ended "$holder"
equal "the holder's end" "$status" 0
ended "$waiter"
equal "the waiter's turn" "$status" 0

describe "the peers' port"
run "$DLOCK" run -b "etcd://127.0.0.1:$(<"$work/2/etcd.peer")?timeout=4s&guardian=off" -n a -- true
equal "refused" "$status" 69
contains "what it is" "$err" "no JSON gateway, which members have on their clients' port (2379)"

describe "no majority"
"$server" stop "$work/2"
begun=$SECONDS
run "$DLOCK" run -w 2s b -- true
equal "nothing is granted" "$status" 69
if [ $((SECONDS - begun)) -gt 15 ]; then fail "it took $((SECONDS - begun)) s"; fi
"$server" again "$work/1"
"$server" await "$work/1"
run "$DLOCK" run -w 30s b -- true
equal "with two again" "$status" 0

describe "a member that takes connections and says nothing"
python3 -c '
import socket, time
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(50); print(s.getsockname()[1], flush=True); time.sleep(600)' >"$work/silent" &
started+=("$!")
within 60 "it is there" written "$work/silent"
begun=$SECONDS
run "$DLOCK" run -b "etcd://127.0.0.1:$(<"$work/silent")?timeout=1s&guardian=off" -w 1s c -- true
equal "alone" "$status" 69
contains "why" "$err" "no answer in time from etcd at 127.0.0.1:$(<"$work/silent")"
if [ $((SECONDS - begun)) -gt 10 ]; then fail "it took $((SECONDS - begun)) s"; fi
run "$DLOCK" run -b "etcd://127.0.0.1:$(<"$work/silent"),$hosts?timeout=4s" -w 30s c -- true
equal "with others behind it" "$status" 0

describe "an HTTP proxy without an answer of a member"
PYTHONPATH=$(dirname "$0") python3 -B - >"$work/proxy" <<'END' &
import proxy
class Handler(proxy.Handler):
    def do_POST(self):
        self.read_body()
        self.answer(503, b"<html>no server is available</html>")
proxy.serve(Handler)
END
started+=("$!")
within 60 "it is there" written "$work/proxy"
run "$DLOCK" run -b "etcd://127.0.0.1:$(<"$work/proxy"),$hosts?timeout=4s" -w 30s c -- true
equal "with others behind it" "$status" 0
run "$DLOCK" run -b "etcd://127.0.0.1:$(<"$work/proxy")?timeout=1s&guardian=off" -n c -- true
equal "alone" "$status" 69
contains "what it says" "$err" "HTTP status 503; is this an etcd server?"

describe "something else than etcd"
python3 -c '
import http.server
class H(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        body = {"1": b"no json", "2": b"[1]", "3": b"{\"ID\":\"-5\",\"TTL\":\"x\"}", "4": b"{\"result\":" * 3000}[self.server.answer]
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
    def log_message(self, *args): pass
import sys, threading
for answer in "1234":
    s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), H); s.answer = answer
    threading.Thread(target=s.serve_forever).start(); print(s.server_address[1], flush=True)
' >"$work/others" &
started+=("$!")
other_listens() { [ "$(wc -l <"$work/others")" = 4 ]; }
within 60 "they are there" other_listens
for port in $(<"$work/others"); do
    run "$DLOCK" run -b "etcd://127.0.0.1:$port?timeout=2s&guardian=off" -n c -- true
    equal "refused" "$status" 69
    contains "doubted" "$err" "is this an etcd server?"
done

finish
