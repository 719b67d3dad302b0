#!/bin/bash
# `dlock run --on-wanted`: the command learns that another client asks for its lock. On files.
. "$(dirname "$0")/../../support/cli.sh"

describe "wrong usage"
for bad in "" x 10 usr1; do
    gives "$bad" 64 "$DLOCK" run --on-wanted="$bad" s true
    equal "the message" "$(sed -n 1p <<<"$err")" \
        "dlock: --on-wanted takes the name of a signal: USR1, USR2, TERM, INT, HUP, QUIT, ALRM or WINCH"
done

describe "a batch that ends early gives the lock to who waits, and its status stays its own"
begin_heard "$DLOCK" run -v --on-wanted=USR1 batch -- bash -c 'trap "exit 3" USR1; echo ready; while :; do sleep 0.02; done'
batch=$pid
prints "the next one" "0 mine" "$DLOCK" run batch -- echo mine
ends "status" 3 "$batch"
contains "what is said" "$(<"$work/bg.err")" 'another client asks for "batch": SIGUSR1 to the command'

describe "a try counts; a second one does not"
begin_heard "$DLOCK" run --on-wanted=SIGUSR2 batch -- bash -c 'trap "echo wanted" USR2; echo ready; until [ -e "$0" ]; do sleep 0.02; done' "$work/end"
batch=$pid
gives "a try" 1 "$DLOCK" run -n batch -- true
within 10 "it is told" grep -q wanted "$work/bg.out"
gives "another try" 1 "$DLOCK" run -n batch -- true
touch "$work/end"
ends "status" 0 "$batch"
equal "how often" "$(grep -c wanted "$work/bg.out")" 1

describe "--hold, after the command: nobody is there to be told"
begin "$DLOCK" run --hold 2s --on-wanted=TERM held -- true
batch=$pid
within 10 "held" is_held held
gives "a try" 1 "$DLOCK" run -n held -- true
ends "status" 0 "$batch"

finish
