#!/bin/bash
# Locks that only one process sees: the command refuses them, since they would exclude no other process, and says what
# to do.
. "$(dirname "$0")/../../support/cli.sh"
export DLOCK_URI=mem:

refused() { # COMMAND…
    gives "$1" 64 "$DLOCK" "$@"
    equal "$1 prints nothing" "$out" ""
    contains "$1 says why" "$err" "locks of mem: are visible only to the process that takes them"
    contains "$1 says what to do" "$err" "name a server, or file:, with -b or in \$DLOCK_URI"
}

describe "refused"
refused run s -- touch "$work/ran"
if [ -e "$work/ran" ]; then fail "the command ran"; fi
refused run -b 'mem:tests?delay=20ms' s true
refused acquire s
refused inspect s
refused list
refused break s
refused bench --time 100ms mem:
ticket=$("$DLOCK" acquire -b "file:$work/locks" s 2>/dev/null || echo dlock1:s:x)
refused renew "$ticket"
refused release "$ticket"

describe "explained"
gives "doctor calls it weak" 1 "$DLOCK" doctor
contains "doctor says why" "$out" "exclude the threads of one process, and nothing else"
lacks "nothing is slow" "$out" "every request"
gives "doctor, slow and lossy" 1 "$DLOCK" doctor 'mem:?delay=20ms&fail=0.01'
contains "doctor says how slow, and how lossy" "$out" "every request takes 20ms, and 10000 of a million are not answered"
gives "backends" 0 "$DLOCK" backends
contains "has a word for it" "$out" private
finish
