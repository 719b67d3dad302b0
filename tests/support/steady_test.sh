#!/bin/bash
# steady_test.sh STEADY: when the program STEADY runs a test again.
set -u
steady=$1
folder=$(mktemp -d "${DLOCK_TEST_DIR:-${TMPDIR:-/tmp}}/steady.XXXXXX")
trap 'rm -rf "$folder"' EXIT
failures=0

# expect STATUS RUNS SCRIPT: RUNS is the least number of runs. The machine may stand still of itself: as many more are
# right as are announced.
expect() {
    local status runs announced
    rm -f "$folder/runs" "$folder/stopped"
    "$steady" sh -c 'echo run >>"$0/runs"; '"$3" "$folder" >"$folder/out"
    status=$?
    runs=$(wc -l <"$folder/runs")
    announced=$(grep -c 'the machine stood still for [0-9]* ms: run again$' "$folder/out")
    if [ "$status" != "$1" ] || [ "$runs" -lt "$2" ] || [ "$runs" != $((announced + 1)) ]; then
        echo "FAILED: $3: status $status, $runs runs, of which $announced announced; expected $1 and $2 runs"
        failures=$((failures + 1))
    fi
}

stand_still='kill -STOP $PPID; sleep 0.5; kill -CONT $PPID; '
expect 0 1 'exit 0'
expect 3 1 'exit 3'
expect 137 1 'kill -KILL $$'
expect 0 1 "$stand_still exit 0"
expect 0 2 '[ -e "$0/stopped" ] || { touch "$0/stopped"; '"$stand_still"' exit 1; }'
expect 3 3 "$stand_still exit 3"
[ "$failures" = 0 ]
