#!/bin/bash
# How many requests a lock costs, counted by a proxy: one to acquire it, one to release it, at most two for all renewals
# at a time, one to list many. And requests that the proxy passes on late, with and without the end of their connection,
# whose answers it loses, and whose second copies it refuses.
. "$(dirname "$0")/../../support/cli.sh"
: "${DLOCK_TEST_ETCD:?"no server: run the tests with tests/run.sh"}"
PYTHONPATH=$(dirname "$0") python3 -B - "$DLOCK_TEST_ETCD" "$work" >"$work/port" <<'END' &
import os, proxy, sys, threading, time
server, work = sys.argv[1:]
def has_word(text, name): # of that file, once
    try:
        with open(f"{work}/{name}") as f: word = f.read().strip()
    except FileNotFoundError: return False
    if not word or word.encode() not in text: return False
    os.unlink(f"{work}/{name}")
    return True
def ask(path, body): return proxy.ask(server, path, body)
def ask_late(path, body):
    while not os.path.exists(f"{work}/late"): time.sleep(0.01)
    result = ask(path, body)
    os.rename(f"{work}/late", f"{work}/late.done")
    return result
class Handler(proxy.Handler):
    dropped = lost = None
    used = False # the connection, by an earlier request
    def do_POST(self):
        body = self.read_body()
        text = self.path.encode() + body
        marks = "+Expect" * ("Expect" in self.headers) + "+again" * (body == Handler.dropped)
        with open(f"{work}/counted", "a") as f: f.write(self.path + marks + "\n")
        if self.used and has_word(text, "drop"):
            Handler.dropped = body
            threading.Thread(target=ask_late, args=(self.path, body)).start()
            self.close_connection = True
            return
        if self.path == "/v3/auth/authenticate": return self.answer(200, b'{"token":"any"}')
        if body == Handler.lost and os.path.exists(f"{work}/refuse"):
            with open(f"{work}/refuse", "rb") as f: status, answer = f.read().split(maxsplit=1)
            os.unlink(f"{work}/refuse")
            return self.answer(int(status), answer)
        lose, die = self.used and has_word(text, "lose"), self.used and has_word(text, "die")
        self.used = True
        status, answer = (ask_late if has_word(text, "hold") else ask)(self.path, body)
        if die: os._exit(0)
        if lose: Handler.lost, self.close_connection = body, True
        else: self.answer(status, answer)
proxy.serve(Handler)
END
started+=("$!")
within 60 "the proxy is there" written "$work/port"
export http_proxy=http://127.0.0.1:9 HTTP_PROXY=http://127.0.0.1:9 all_proxy=http://127.0.0.1:9 # not for us
uri="etcd://127.0.0.1:$(<"$work/port")/dlock/requests-$$?session=60s&guardian=off"
counts() { sort "$work/counted" | uniq -c | awk '{print $2 "=" $1}' | xargs; }

describe "a lock that nobody else wants"
run "$DLOCK" run -b "$uri" a -- true
equal "status" "$status" 0
equal "requests" "$(counts)" "/v3/kv/deleterange=1 /v3/kv/txn=1 /v3/lease/grant=1 /v3/maintenance/status=1"

# A stream from a revision of the past on is behind until etcd's loop for those comes round, ten times a second. The server
# itself takes some for such, since it compares revisions while others write: 17 to 21 of 50 looks found one. If all streams
# are from the past, it is 46 or 47.
describe "the streams of waiters are seldom behind"
begin "$DLOCK" bench -w hand-over --processes 3 --rounds 1 --time 4s --floors "" "etcd://$DLOCK_TEST_ETCD/dlock/requests-$$"
behind=$(python3 - "$DLOCK_TEST_ETCD" <<'END'
import http.client, re, sys, time
behind = 0
for _ in range(50):
    c = http.client.HTTPConnection(sys.argv[1]); c.request("GET", "/metrics"); text = c.getresponse().read().decode()
    behind += re.search(r"^etcd_debugging_mvcc_slow_watcher_total (\d+)", text, re.M)[1] != "0"
    time.sleep(0.05)
print(behind)
END
)
ended "$pid"
equal "the contenders' status" "$status" 0
if [ "$behind" -gt 33 ]; then fail "some stream was behind in $behind of 50 looks"; fi

# The session of 60 s is young all the time.
describe "renewals"
: >"$work/counted"
run "$DLOCK" run -b "$uri&lease=4s" b -- sleep 5
equal "status" "$status" 0
equal "keep-alives" "$(grep -c keepalive "$work/counted")" 0
proofs=$(($(grep -c kv/txn "$work/counted") - 1)) # beside the acquire
if [ "$proofs" -lt 1 ] || [ "$proofs" -gt 12 ]; then fail "$proofs proofs"; fi

describe "renewals in a session as long as the lease"
: >"$work/counted"
run "$DLOCK" run -b "${uri/60s/4s}&lease=4s" b -- sleep 5
equal "status" "$status" 0
alive=$(grep -c keepalive "$work/counted")
# The end of the command may come between the last one and its proof: then the release follows it.
without=$(awk '/keepalive/ && last ~ /keepalive/ { n++ } { last = $0 } END { print n + 0 }' "$work/counted")
equal "a proof for each but the last" "$without" 0
proofs=$(($(grep -c kv/txn "$work/counted") - 1))
if [ "$proofs" != "$alive" ] && [ "$proofs" != $((alive - 1)) ]; then fail "$proofs proofs for $alive renewals"; fi
if [ "$alive" -lt 1 ] || [ "$alive" -gt 12 ]; then fail "$alive renewals"; fi

# 670 keys of locks, one of which has 601, and a key of another program. The first answer ends within that queue, which
# is then read as a whole.
describe "a list reads many locks at once"
export ETCDCTL_API=3
base=dlock/requests-$$
ctl() { etcdctl --endpoints "http://$DLOCK_TEST_ETCD" "$@" >/dev/null; }
puts() { printf '\n%s\n\n\n' "$(cat)" | ctl txn; }
for i in {100..169}; do echo "put $base/l$i/123456789 x"; done | puts
for n in {1..6}; do for i in {01..99} 100; do echo "put $base/l140/12345678a/$((n * 100 + 10#$i)) x"; done | puts; done
ctl put "$base/l120/b/c" x
: >"$work/counted"
run "$DLOCK" list -b "$uri"
equal "status" "$status" 0
equal "locks" "$(grep -c "^l1.*exclusive" <<<"$out")" 70
contains "a queue" "$(tr -s " " <<<"$out" | grep l140)" " 600 until released"
equal "requests" "$(grep -c kv/range "$work/counted")" 3
ctl del --prefix "$base/l"

# late WORD NAME [drop]: acquires and releases the lock while its first request with that word is in flight for longer
# than any client waits for it; then it arrives. With `drop` its connection ends at once.
late() {
    local how=${3:-hold}
    echo "$1" >"$work/$how"
    run "$DLOCK" run -b "$uri&timeout=1s" -w 60s "$2" -- true
    equal "status" "$status" 0
    if [ -e "$work/$how" ]; then fail "no request was held back"; fi
    touch "$work/late"
    within 60 "it arrives" test -e "$work/late.done"
    rm "$work/late.done"
    run "$DLOCK" run -b "$uri" -n "$2" -- true
    equal "the lock is free" "$status" 0
    run "$DLOCK" list -b "$uri"
    equal "nothing is listed" "$out" ""
}

describe "a request without an answer that arrives after the release"
late '"success"' c

describe "the same, of one that stood in the queue"
begin "$DLOCK" run -b "$uri" d -- sleep 6
holder=$pid
is_there() { "$DLOCK" inspect -b "$uri" d | grep -q exclusive; }
within 60 "it is held" is_there
late '"failure"' d
ended "$holder"

describe "the same, when its connection ends"
late '"success"' e drop

describe "a release whose first answer is lost, which libcurl sends again by itself"
: >"$work/counted"
echo deleterange >"$work/lose"
run "$DLOCK" run -b "$uri" g -- true
equal "status" "$status" 0
equal "complaints" "$err" ""
if [ -e "$work/lose" ]; then fail "no answer was lost"; fi
equal "requests" "$(counts)" "/v3/kv/deleterange=2 /v3/kv/txn=1 /v3/lease/grant=1 /v3/maintenance/status=1"

describe "the same, and the token has ended meanwhile"
echo deleterange >"$work/lose"
echo '401 {"error":"etcdserver: invalid auth token","code":16}' >"$work/refuse"
run "$DLOCK" run -b "${uri/127/me:secret@127}" i -- true
equal "status" "$status" 0
equal "complaints" "$err" ""
if [ -e "$work/refuse" ]; then fail "no request was refused"; fi

# An acquire whose answer was lost makes the release close the slot, for which it needs a lease.
describe "the same, and the lease has ended meanwhile"
echo '"success"' >"$work/lose"
echo '404 {"error":"etcdserver: requested lease not found","code":5}' >"$work/gone"
run "$DLOCK" run -b "$uri" -w 60s j -- \
    sh -c "ls '$work/lose' 2>&1; echo request_delete_range >'$work/lose'; mv '$work/gone' '$work/refuse'"
equal "status" "$status" 0
equal "complaints" "$err" ""
contains "the acquire's answer" "$out" "No such file"
if [ -e "$work/refuse" ]; then fail "no request was refused"; fi

describe "it is sent once, though there is another member"
: >"$work/counted"
echo '"success"' >"$work/drop"
run "$DLOCK" run -b "${uri/127/127.0.0.1:$(<"$work/port"),127}" -n f -- true
equal "status" "$status" 69
contains "why" "$err" "hung up without an answer"
if [ -e "$work/drop" ]; then fail "no request was dropped"; fi
lacks "requests" "$(<"$work/counted")" again

# libcurl reconnects on its own, which is refused: the next member finds nothing to release.
describe "a release whose first answer is lost because the member dies"
echo deleterange >"$work/die"
run "$DLOCK" run -b "${uri/\/dlock/,$DLOCK_TEST_ETCD/dlock}" h -- true
equal "status" "$status" 0
equal "complaints" "$err" ""
if [ -e "$work/die" ]; then fail "the member is alive"; fi

finish
