#!/bin/bash
# examples_test.sh FOLDER DLOCK: the built examples do what their first lines say; on files, and what files have not, on a
# Redis, where that is built.
set -euo pipefail
examples=$1 dlock=$2
redis=
source=$(cd "$(dirname "$0")/../../.." && pwd)
servers=$source/tests/servers
. "$source/tests/support/examples.sh"
clean_up() {
    if [ "$redis" ]; then "$servers/redis.sh" stop "$work"; fi
    rm -rf "$work"
}
trap clean_up EXIT
uri="file:$work/locks?lease=3s"

# Starts an example beside this, with $input: pids, and $work/NAME.out and .err
pids=()
start() { # NAME COMMAND…
    local name=$1
    shift
    echo "-- $name"
    timeout 60 "$@" >"$work/$name.out" 2>"$work/$name.err" <"${input:-/dev/null}" &
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

# Of two jobs one has to wait, and is called off by SIGTERM; the other one runs to its end. A broken lock ends its command.
hold "$uri" worker-2
start worker "$examples/worker" "$uri" 'echo began; sleep 1; echo ended' worker-1 worker-2
until_says "$work/worker.out" began
kill -TERM "${pids[0]}"
until_says "$work/worker.out" "worker-2: .* was cancelled"
until_says "$work/worker.out" "worker-1: done"
[ "$(grep -c ended "$work/worker.out")" = 1 ] || fail "worker"
end_hold
pids=()
start worker "$examples/worker" "$uri" 'echo began; exec sleep 1000' worker-1
until_says "$work/worker.out" began
"$dlock" break -b "$uri" worker-1 >"$work/break.out"
until_says "$work/worker.out" "worker-1: .*lost"
pids=()

# It makes all steps, and yields when somebody else waits.
start batch "$examples/batch" "$uri" batch "$work/steps" 30
for ((i = 0; i < 200; i++)); do if [ -s "$work/steps" ]; then break; fi; sleep 0.05; done
"$dlock" run -b "$uri" batch -- cat "$work/steps" >"$work/between.out"
finish batch
[ "$(cat "$work/steps")" = 30 ] || fail "batch ended after $(cat "$work/steps")"
grep -q "yields" "$work/batch.out" || fail "the batch did not yield" # files may let it in again before the other one

# Readers and a writer; it starts although nobody listens there.
printf '%s\n' read read health write >"$work/orders"
input=$work/orders start service "$examples/service" "$uri" page2
finish service
[ "$(grep -c "^reads$" "$work/service.out")" = 2 ] || fail service
hold "$uri" page2
printf '%s\n' write health stop >"$work/orders"
input=$work/orders start service "$examples/service" "$uri" page2
finish service
until_says "$work/service.out" "was cancelled\|is stopped"
end_hold
input=$work/orders start service "$examples/service" "redis://127.0.0.1:1?timeout=1" page2
finish "service, without a server"

# Of three names one is held elsewhere, until SIGTERM calls its job off.
if [ "${DLOCK_LIBRARY:-}" ]; then
    hold "$uri" pool-2
    export PYTHONPATH=$source/bindings/python/src PYTHONDONTWRITEBYTECODE=1
    start pool /usr/bin/python3 "$source/examples/pool.py" "$uri" 0 pool-1 pool-2 pool-3
    until_says "$work/pool.out" "pool-3 has fence"
    port=$(sed -n 's/^health: port //p' "$work/pool.out")
    curl -fsS "http://127.0.0.1:$port/" >"$work/page.out"
    until_says "$work/page.out" '"pool-1": [1-9]'
    kill -TERM "${pids[0]}"
    finish pool
    until_says "$work/pool.out" "pool-2 was called off"
    end_hold
fi

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
