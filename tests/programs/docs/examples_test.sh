#!/bin/bash
# examples_test.sh FOLDER DLOCK: the built examples do what their first lines say; on files, and what files have not, on a
# Redis, where that is built.
set -euo pipefail
examples=$1 dlock=$2
work=$(mktemp -d "${DLOCK_TEST_DIR:-${TMPDIR:-/tmp}}/examples.XXXXXX")
redis=
servers=$(dirname "$0")/../../servers
clean_up() {
    if [ "$redis" ]; then "$servers/redis.sh" stop "$work"; fi
    rm -rf "$work"
}
trap clean_up EXIT
export XDG_STATE_HOME=$work/state
uri="file:$work/locks?lease=3s"

fail() {
    echo "examples: FAILED: $*" >&2
    cat "$work"/*.out "$work"/*.err >&2 || true
    exit 1
}
# Waits until a file contains a text.
until_says() {
    local i
    for ((i = 0; i < 200; i++)); do
        if grep -q -- "$2" "$1" 2>/dev/null; then return 0; fi
        sleep 0.1
    done
    fail "no \"$2\" in $1"
}
# Starts an example beside this: pids, and $work/NAME.out and .err
pids=()
start() { # NAME COMMAND…
    local name=$1
    shift
    echo "-- $name"
    timeout 60 "$@" >"$work/$name.out" 2>"$work/$name.err" &
    pids+=($!)
}
# Waits for all that were started; they must not fail.
finish() {
    local pid
    for pid in "${pids[@]}"; do wait "$pid" || fail "$1"; done
    pids=()
}
# Holds a lock until end_hold.
hold() { # URI NAME
    rm -f "$work/holder.out"
    "$dlock" run -b "$1" "$2" -- sh -c 'echo held; exec sleep 60' >"$work/holder.out" &
    holder=$!
    until_says "$work/holder.out" held
}
end_hold() {
    kill "$holder"
    wait "$holder" || true
}

[[ "$("$examples/first")" = "nobody else holds it; fence "[1-9]* ]] || fail first
[ "$("$examples/register")" = "locked with the backend toy" ] || fail register
if "$dlock" backends --json | grep -q '"mem", "schemes"'; then
    [ "$("$examples/testing")" = "all passed" ] || fail testing
fi

# The lock is held: nothing to do. It is free: the job runs.
hold "$uri" job
[ "$("$examples/try" "$uri" job)" = "somebody else does it" ] || fail "try, while the lock is held"
[ "$("$examples/cxx" "$uri" job)" = "somebody else has it" ] || fail "cxx, while the lock is held"
end_hold
[ "$("$examples/try" "$uri" job)" = "doing the job" ] || fail "try, while the lock is free"
[[ "$("$examples/cxx" "$uri" job)" = "fence "[1-9]* ]] || fail "cxx, while the lock is free"

for i in 1 2 3 4; do start "once$i" "$examples/once" "$uri" migration "$work/version"; done
finish once
[ "$(cat "$work"/once?.out | grep -c migrates)" = 1 ] || fail "not migrated exactly once"
[ "$(cat "$work/version")" = "version 2" ] || fail "once left no file"

# The leader is deposed, says so, and the other one leads, with a greater fence.
for i in 1 2; do
    start "leader$i" "$examples/leader" "$uri" leader 8
    if [ "$i" = 1 ]; then until_says "$work/leader1.out" leads; fi
done
sleep 0.5
[ ! -s "$work/leader2.out" ] || fail "two leaders"
"$dlock" break -b "$uri" leader >"$work/break.out"
until_says "$work/leader1.err" lost
until_says "$work/leader2.out" leads
finish leader
first=$(sed -n '1s/.*fence //p' "$work/leader1.out") second=$(sed -n '1s/.*fence //p' "$work/leader2.out")
[ "$second" -gt "$first" ] || fail "the fence of the second leader, $second, is not greater than $first"

for i in 1 2 3; do start "counter$i" "$examples/counter" "$uri" "$work/number" 20; done
finish counter
read -r number _ <"$work/number"
[ "$number" = 60 ] || fail "the counter is $number, not 60"

# Both ways at once: no deadlock, and no money is lost or made.
for account in alice bob; do echo 100 >"$work/$account"; done
start there "$examples/transfer" "$uri" "$work" alice bob 30
start back "$examples/transfer" "$uri" "$work" bob alice 20
finish transfer
[ "$(cat "$work/alice" "$work/bob" | xargs)" = "90 110" ] || fail "alice and bob have $(cat "$work/alice" "$work/bob" | xargs)"

[[ "$("$examples/poll" "$uri" loop 5000 </dev/null | xargs)" = "acquired, fence "*" released" ]] || fail "poll, free"
hold "$uri" loop
if "$examples/poll" "$uri" loop 1500 </dev/null >"$work/poll.out"; then fail "poll, held"; fi
until_says "$work/poll.out" "the loop goes on"
until_says "$work/poll.out" "until the deadline"
if echo | "$examples/poll" "$uri" loop 60000 >"$work/poll.out"; then fail "poll, cancelled"; fi
until_says "$work/poll.out" "was cancelled"
end_hold

start event "$examples/event" "$uri" event 50
finish event
[ "$(grep -c "^acquired event" "$work/event.out")" = 50 ] || fail "event"

# A writer reads what it wrote, and so do readers that come after it.
start writer "$examples/shared" "$uri" page "$work/text" hello
until_says "$work/writer.out" "read: hello"
start reader1 "$examples/shared" "$uri" page "$work/text"
start reader2 "$examples/shared" "$uri" page "$work/text"
finish shared
[ "$(cat "$work"/reader?.out | xargs)" = "read: hello read: hello" ] || fail "shared"

if ! "$dlock" backends --json | grep -q '"redis", "schemes"'; then
    echo "examples: OK, without Redis"
    exit
fi
redis=$("$servers/redis.sh" start "$work" | sed -n 's/^DLOCK_TEST_REDIS=//p')
uri="redis://$redis?lease=5s" # the first acquire waits for the quarantine

# Four requests, from any processes, take more than a window of 2 s; the bound leaves room for late words.
for i in 1 2; do start "rate$i" "$examples/ratelimit" "$uri" rate 3 2000 4; done
finish ratelimit
sed 's/.* //; s/[.]//' "$work"/rate?.out | sort -n >"$work/times"
[ "$(wc -l <"$work/times")" = 8 ] || fail "not 8 requests"
awk '{ t[NR] = $1 } NR > 3 && $1 - t[NR - 3] < 1000 { exit 1 }' "$work/times" || fail "too many: $(xargs <"$work/times")"

tickets=$("$examples/latch" "$uri" latch arm 3)
start await "$examples/latch" "$uri" latch await
for ticket in $tickets; do
    [ ! -s "$work/await.out" ] || fail "the latch is open before all have worked"
    "$examples/latch" "$uri" latch work <<<"$ticket" >"$work/work.out" || fail "latch work"
done
finish latch
[ "$(cat "$work/await.out")" = "all have worked" ] || fail latch

echo "examples: OK"
