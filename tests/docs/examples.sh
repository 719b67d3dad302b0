#!/bin/bash
# examples.sh FOLDER DLOCK: the built examples do what their first lines say.
set -euo pipefail
examples=$1 dlock=$2
work=$(mktemp -d "${DLOCK_TEST_DIR:-${TMPDIR:-/tmp}}/examples.XXXXXX")
trap 'rm -rf "$work"' EXIT
export XDG_STATE_HOME=$work/state
uri="file:$work/locks?lease=600ms"

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

[[ "$("$examples/first")" = "nobody else is here; fence "[1-9]* ]] || fail first
[ "$("$examples/register")" = "locked with the backend toy" ] || fail register

# Somebody holds the lock: nothing to do. Nobody does: the job.
"$dlock" run -b "$uri" job -- sh -c 'echo held; exec sleep 60' >"$work/holder.out" &
holder=$!
until_says "$work/holder.out" held
[ "$("$examples/try" "$uri" job)" = "somebody else does it" ] || fail "try, while the lock is held"
kill "$holder"
wait "$holder" || true
[ "$("$examples/try" "$uri" job)" = "doing the job" ] || fail "try, while the lock is free"

pids=()
for i in 1 2 3 4; do
    "$examples/once" "$uri" migration "$work/version" >"$work/once$i.out" &
    pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid" || fail once; done
[ "$(cat "$work"/once?.out | grep -c migrates)" = 1 ] || fail "not migrated exactly once"
[ "$(cat "$work/version")" = "version 2" ] || fail "once left no file"

# The leader is deposed, says so, and the other one leads, with a greater fence.
pids=()
for i in 1 2; do
    "$examples/leader" "$uri" leader 8 >"$work/leader$i.out" 2>"$work/leader$i.err" &
    pids+=($!)
    if [ "$i" = 1 ]; then until_says "$work/leader1.out" leads; fi
done
sleep 0.5
[ ! -s "$work/leader2.out" ] || fail "two leaders"
"$dlock" break -b "$uri" leader >"$work/break.out"
until_says "$work/leader1.err" lost
until_says "$work/leader2.out" leads
for pid in "${pids[@]}"; do wait "$pid" || fail leader; done
first=$(sed -n '1s/.*fence //p' "$work/leader1.out") second=$(sed -n '1s/.*fence //p' "$work/leader2.out")
[ "$second" -gt "$first" ] || fail "the fence of the second leader, $second, is not greater than $first"

pids=()
for i in 1 2 3; do
    "$examples/counter" "$uri" "$work/number" 20 >>"$work/counter.out" &
    pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid" || fail counter; done
read -r number _ <"$work/number"
[ "$number" = 60 ] || fail "the counter is $number, not 60"
echo "examples: OK"
