#!/bin/bash
# hold_on_test.sh BACKEND: `dlock run --hold` there, exclusive, shared and with permits. The lock is refused to others until
# the time is over, although the command has ended and the lease is shorter.
. "$(dirname "$0")/../../support/cli.sh"
backend=$1 server=DLOCK_TEST_URI_$1
export DLOCK_URI=${!server:?"no server for $1: run the tests with tests/run.sh"}

# holds MODE OTHER: with the options MODE; it excludes those with the options OTHER.
holds() {
    local name=hold-$1-$$ before
    describe "$backend: $1"
    before=$(now)
    begin "$DLOCK" run -v -l 4 --hold 5 "$1" "$name" -- sh -c 'exit 3'
    within 30 "the command has ended" grep -q "the command has ended with status 3" "$work/bg.err"
    run "$DLOCK" run -n -E 9 "$2" "$name" true
    if [ $(($(now) - before)) -lt 5000 ]; then equal "others are refused" "$status" 9; fi
    gives "one that waits is granted" 0 "$DLOCK" run -w 60 "$2" "$name" true
    if [ $(($(now) - before)) -lt 5000 ]; then fail "after $(($(now) - before)) ms"; fi
    ends "the command's status" 3 "$pid"

    describe "$backend: $1, and a signal"
    begin "$DLOCK" run -v --hold 1h "$1" "$name" -- true
    within 30 "the command has ended" grep -q "the command has ended" "$work/bg.err"
    gives "others are refused" 9 "$DLOCK" run -n -E 9 "$2" "$name" true
    kill -TERM "$pid"
    ends "the command's status" 0 "$pid"
    gives "released" 0 "$DLOCK" run -w 60 "$2" "$name" true
}

holds -x -x
if can shared; then
    holds -s -x
else
    gives "it has no readers" 69 "$DLOCK" run --hold 1h -s "hold-$$" true
    contains "it has no readers, and says so" "${err/, as this URI selects it,/}" "backend ${backend%%_*} has no shared locks"
fi
if can permit; then
    holds -p1 -p1
else
    gives "it has no permits" 69 "$DLOCK" run --hold 1h -p1 "hold-$$" true
    contains "it has no permits, and says so" "${err/, as this URI selects it,/}" "backend ${backend%%_*} has no permits"
fi

finish
