#!/bin/bash
# examples_test.sh FOLDER DLOCK [COMMAND]: the examples `leader` and `queue` of a binding, in a folder, do what their first
# lines say. COMMAND runs them where they are not programs: {} in it is the example's path without its ending.
set -euo pipefail
folder=$1 dlock=$2 command=${3:-'{}'}
. "$(dirname "$0")/../support/examples.sh"
pids=()
clean_up() {
    if [ ${#pids[@]} -gt 0 ]; then kill -9 "${pids[@]}" 2>/dev/null || true; fi
    rm -rf "$work"
}
trap clean_up EXIT
uri="file:$work/locks?lease=2s"
start() { # OUTPUT EXAMPLE ARGUMENT…
    local output=$1 words
    read -ra words <<<"${command//\{\}/$folder/$2}"
    shift 2
    "${words[@]}" "$@" >"$work/$output" 2>&1 &
    pids+=($!)
}

# The leader is deposed, and the other one leads, with a greater fence; both end by a signal.
start one.out leader "$uri" leader
until_says "$work/one.out" leads
start two.out leader "$uri" leader
sleep 0.3
[ ! -s "$work/two.out" ] || fail "two leaders"
"$dlock" break -b "$uri" leader >"$work/break.out"
until_says "$work/one.out" lost
until_says "$work/two.out" leads
first=$(sed -n '1s/.*fence //p' "$work/one.out") second=$(sed -n '1s/.*fence //p' "$work/two.out")
[ "$second" -gt "$first" ] || fail "the fence of the second leader, $second, is not greater than $first"
kill -TERM "${pids[@]}"
for pid in "${pids[@]}"; do wait "$pid" || [ $? = 143 ] || fail "a leader failed"; done
pids=()

# Of ten jobs each is done once.
mkdir "$work/jobs"
for i in 0 1 2 3 4 5 6 7 8 9; do echo "work $i" >"$work/jobs/$i.job"; done
for i in 1 2 3; do start "queue$i.out" queue "$uri" "$work/jobs"; done
for pid in "${pids[@]}"; do wait "$pid" || fail "a worker failed"; done
pids=()
[ "$(cat "$work"/queue?.out | sort | sed 's/.*: //' | xargs)" = "$(echo work\ {0..9})" ] || fail "not each job once"
[ -z "$(ls "$work/jobs")" ] || fail "jobs are left"
