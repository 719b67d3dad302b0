#!/bin/bash
# In one line with `etcdctl lock`, and what operators do with etcdctl: leases revoked, keys deleted, history compacted.
. "$(dirname "$0")/../../support/cli.sh"
: "${DLOCK_TEST_ETCD:?"no server: run the tests with tests/run.sh"}"
export ETCDCTL_API=3
path=dlock/recipes-$$
export DLOCK_URI="etcd://$DLOCK_TEST_ETCD/$path?session=5s"
ctl() { etcdctl --endpoints "http://$DLOCK_TEST_ETCD" "$@"; }
keys() { ctl get --prefix --keys-only "$path/$1/" | grep -c . || true; }
has_keys() { [ "$(keys "$1")" = "$2" ]; }
lease_of() { ctl get --prefix "$path/$1/" -w fields | sed -n 's/^"Lease" : //p' | head -n 1; }

describe "a mutex of etcd's own in front"
begin etcdctl --endpoints "http://$DLOCK_TEST_ETCD" lock "$path/a" sleep 60
holder=$pid
within 60 "etcdctl holds it" has_keys a 1
run "$DLOCK" run -n -E 75 a -- true
equal "busy" "$status" 75
run "$DLOCK" inspect a
contains "is shown" "$out" "lease:0x"
"$DLOCK" run a -- sh -c "echo dlock >>'$work/order'" &
waiter=$!
started+=("$waiter")
within 60 "dlock waits" has_keys a 2
ctl lock "$path/a" -- sh -c "echo etcdctl >>'$work/order'" &
second=$!
started+=("$second")
within 60 "etcdctl waits behind it" has_keys a 3
if [ -e "$work/order" ]; then fail "somebody did not wait"; fi
# etcdctl lets its child run on: the key is what counts.
ctl lease revoke "$(printf '%x' "$(lease_of a)")" >/dev/null
ended "$waiter"
equal "dlock's turn" "$status" 0
ended "$second"
equal "etcdctl's turn" "$status" 0
equal "in the order of their coming" "$(xargs <"$work/order")" "dlock etcdctl"
pkill -KILL -P "$holder" 2>/dev/null # the sleep
within 60 "nothing is left" has_keys a 0

describe "the layout"
begin "$DLOCK" run b -- sleep 60
within 60 "it is held" has_keys b 1
contains "the lease is in the key" "$(ctl get --prefix --keys-only "$path/b/")" "$path/b/$(printf '%x' "$(lease_of b)")"

describe "a lease that is revoked by hand"
ctl lease revoke "$(printf '%x' "$(lease_of b)")" >/dev/null
ended "$pid"
equal "the command is ended" "$status" 75
contains "and told why" "$(<"$work/bg.err")" "lost"

describe "the history is compacted while somebody waits"
begin "$DLOCK" run c -- sh -c "until [ -e '$work/go' ]; do sleep 0.05; done"
holder=$pid
within 60 "it is held" has_keys c 1
"$DLOCK" run -w 60s c -- true &
waiter=$!
started+=("$waiter")
within 60 "the other one waits" has_keys c 2
for i in 1 2 3; do ctl put "$path-other" "$i" >/dev/null; done
ctl compact --physical "$(ctl get "$path-other" -w fields | sed -n 's/^"Revision" : //p')" >/dev/null
touch "$work/go"
ended "$holder"
equal "the holder's end" "$status" 0
ended "$waiter"
equal "the waiter's turn" "$status" 0

describe "readers and permits"
begin "$DLOCK" run -s d -- sleep 60
within 60 "a reader" has_keys d 1
run "$DLOCK" run -n -s d -- true
equal "another one beside it" "$status" 0
run "$DLOCK" run -n -E 75 d -- true
equal "no writer" "$status" 75
run "$DLOCK" run -n -p 2 d -- true
equal "no permits" "$status" 64
contains "what it is" "$err" "in use as a lock"
stop "$pid"

# Keys of locks below a path that is a lock's name, here of c at <path>/b, are not that lock's.
describe "a path that begins with the name of a lock"
below="${DLOCK_URI/$path/$path/b}"
begin "$DLOCK" run -b "$below" c -- sleep 60
holder=$pid
within 60 "a lock below it" has_keys b/c 1
for options in -n "-w 60s" "-n -s" "-n -p 2"; do
    # shellcheck disable=SC2086
    run "$DLOCK" run $options b -- true
    equal "it is free ($options)" "$status" 0
done
run "$DLOCK" inspect b
equal "nobody has it" "$out" "b  free"
run "$DLOCK" break b
equal "nothing is broken" "$out" "b  free"
run "$DLOCK" list
equal "nothing is listed" "$out" ""
equal "the lock below is held" "$(keys b/c)" 1
begin "$DLOCK" run b -- sh -c "until [ -e '$work/go2' ]; do sleep 0.05; done"
first=$pid
within 60 "it is held" is_held b
run "$DLOCK" run -n -E 75 b -- true
equal "a try finds it busy" "$status" 75
run "$DLOCK" run -n -p 2 b -- true
equal "no permits" "$status" 64
"$DLOCK" run -w 60s b -- true &
waiter=$!
started+=("$waiter")
within 60 "somebody waits" has_waiters b 1
run "$DLOCK" list -b "$below"
lacks "the lock above" "$out" "waiting"
equal "is not listed below" "$(wc -l <<<"$out")" 2
touch "$work/go2"
ended "$first"
ended "$waiter"
equal "the waiter's turn" "$status" 0
kill "$holder"
ended "$holder"

# A name is encoded in one way only. Keys that others encode may sort before or after the name that they decode to.
describe "keys below the path that are not a lock's"
begin "$DLOCK" run ba -- sleep 60
within 60 "a lock beside them" has_keys ba 1
lists_ba() {
    run timeout 60 "$DLOCK" list
    equal "the list ends" "$status" 0
    contains "the lock is in it" "$out" "ba"
    equal "and nothing else" "$(wc -l <<<"$out")" 2
}
for key in a%20b/123456789 b%7A/123456789 caf%C3%A9/123456789; do ctl put "$path/$key" x >/dev/null; done
lists_ba
for key in bare $'c\x01/123456789' "$(printf '%01500d' 0)/123456789" "$(printf '%01500d' 0)"; do ctl put "$path/$key" x >/dev/null; done
python3 -c '
import base64, http.client, json, sys
put = json.dumps({"key": base64.b64encode(sys.argv[2].encode() + b"/with\0NUL").decode(), "value": ""})
http.client.HTTPConnection(sys.argv[1]).request("POST", "/v3/kv/put", put)' "$DLOCK_TEST_ETCD" "$path"
lists_ba
describe "many keys of another program before the lock"
python3 -c '
import base64, http.client, json, sys
to64 = lambda text: base64.b64encode(text.encode()).decode()
server = http.client.HTTPConnection(sys.argv[1])
for first in range(0, 20000, 100):
    puts = [{"request_put": {"key": to64(f"{sys.argv[2]}/b{n:05}"), "value": ""}} for n in range(first, first + 100)]
    server.request("POST", "/v3/kv/txn", json.dumps({"success": puts}))
    assert json.loads(server.getresponse().read())["succeeded"]' "$DLOCK_TEST_ETCD" "$path"
DLOCK_URI="$DLOCK_URI&timeout=1s" lists_ba # no time for a request for each key
ctl del --prefix "$path/" >/dev/null
ended "$pid"

finish
