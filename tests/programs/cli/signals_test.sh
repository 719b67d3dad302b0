#!/bin/bash
# Signals to `dlock run`: passed on, while waiting, while stopped.
. "$(dirname "$0")/../../support/cli.sh"

describe "signals are passed on"
for sig in TERM INT HUP QUIT USR1 USR2; do
    begin_heard "$DLOCK" run s -- bash -c 'trap "echo caught; exit 9" '$sig'; echo ready; while :; do sleep 0.03; done'
    kill -"$sig" "$pid"
    ends "$sig: the command's own status" 9 "$pid"
    contains "$sig: reaches the command" "$(<"$work/bg.out")" caught
    begin_heard "$DLOCK" run s -- sh -c 'ulimit -c 0; echo $$; exec sleep 1000'
    kill -"$sig" "$pid"
    ended "$pid"
    equal "$sig: death" "$status" $((128 + $(kill -l "$sig")))
    gone "$(<"$work/bg.out")" || fail "$sig leaves the command running"
done

describe "the whole process group of the command gets them"
begin_heard "$DLOCK" run s -- sh -c 'sleep 1000 & echo $!; wait'
kill -TERM "$pid"
ends "status" 143 "$pid"
within 10 "a child of the command is gone" gone "$(<"$work/bg.out")"

describe "the lock is released only when the command is gone"
begin "$DLOCK" run s -- bash -c 'trap "echo told; until [ -e $0.end ]; do sleep 0.03; done; echo late >>$0; exit" TERM
    echo ready; while :; do sleep 0.03; done' "$work/log"
within 10 "the command runs" written "$work/bg.out"
kill -TERM "$pid"
within 10 "the command cleans up" grep -q told "$work/bg.out"
gives "held while the command cleans up" 1 "$DLOCK" run -n s true
touch "$work/log.end"
prints "free afterwards" "0 late" "$DLOCK" run -w 30 s cat "$work/log"
ended "$pid"

describe "SIGKILL of dlock kills the command"
begin_heard "$DLOCK" run s -- sh -c 'echo $$; exec sleep 1000'
kill -KILL "$pid"
wait "$pid" 2>/dev/null
within 10 "the command is gone" gone "$(<"$work/bg.out")"
gives "the lock is free" 0 "$DLOCK" run -w 10 s true

describe "ignored signals stay ignored"
env --ignore-signal=HUP "$DLOCK" run s -- sh -c 'echo $$; sleep 1; exit 8' >"$work/ignoring" &
pid=$!
started+=("$pid")
within 10 "the command runs" written "$work/ignoring"
kill -HUP "$pid"
ends "SIGHUP under nohup" 8 "$pid"

hold s
env --ignore-signal=HUP "$DLOCK" run -v s -- sh -c 'exit 7' 2>"$work/ignoring" &
pid=$!
started+=("$pid")
within 10 "waits" grep -q waiting "$work/ignoring"
kill -HUP "$pid"
sleep 0.3
kill -TERM "$holder"
ends "SIGHUP under nohup, while waiting" 7 "$pid"
wait "$holder"

describe "a signal while waiting leaves the queue"
for sig in TERM INT HUP QUIT USR1; do
    hold s
    begin "$DLOCK" run -v s -- touch "$work/never"
    first=$pid
    within 10 "waits" grep -q waiting "$work/bg.err"
    begin "$DLOCK" run -v s -- touch "$work/$sig"
    second=$pid
    within 10 "waits" grep -q waiting "$work/bg.err"
    kill -"$sig" "$first"
    ended "$first"
    equal "$sig" "$status" $((128 + $(kill -l "$sig")))
    kill -TERM "$holder"
    ends "the next waiter is served" 0 "$second"
    if [ -e "$work/never" ]; then fail "$sig: the command was run all the same"; fi
    if [ ! -e "$work/$sig" ]; then fail "$sig: the next waiter's command was not run"; fi
    wait "$holder"
done

describe "a stopped command keeps the lock, and can be continued or ended"
begin_heard "$DLOCK" run s -- bash -c 'trap : USR1; echo $$; while :; do sleep 0.03; done'
child=$(<"$work/bg.out")
kill -TSTP "$pid"
within 10 "SIGTSTP stops the command" is_stopped "$child"
if is_stopped "$pid"; then fail "dlock itself is stopped"; fi
gives "held" 1 "$DLOCK" run -n s true
kill -CONT "$pid"
within 10 "SIGCONT continues it" runs_again "$child"
kill -STOP "$child"
within 10 "stopped again" is_stopped "$child"
kill -USR1 "$pid"
is_pending() { [ "$(sed -n 's/^ShdPnd:.*\(...\)$/\1/p' "/proc/$1/status")" = 200 ]; }
within 10 "SIGUSR1 waits until something continues it" is_pending "$child"
is_stopped "$child" || fail "SIGUSR1 continues it"
kill -TERM "$pid"
ends "SIGTERM ends it although it is stopped" 143 "$pid"
gone "$child" || fail "it is still there"
gives "free" 0 "$DLOCK" run -n s true

if [ -n "${DLOCK_TEST_PRELOAD:-}" ]; then # not under sanitizers, whose libraries have to be loaded first
    describe "one that dlock does not know to be stopped, since it was busy, is ended, too"
    mkfifo "$work/pause"
    begin_heard env "LD_PRELOAD=$DLOCK_TEST_PRELOAD" "DLOCK_TEST_PAUSE=$work/pause" DLOCK_TEST_PAUSE_MESSAGE=1 \
        "$DLOCK" run --on-lost=warn s -- env -u LD_PRELOAD sh -c 'echo $$; exec sleep 1000'
    child=$(<"$work/bg.out")
    started+=("$child")
    run "$DLOCK" break s
    is_paused() { grep -q "wait_for_partner\|fifo" "/proc/$1/wchan"; }
    within 20 "dlock is about to say that the lock is lost" is_paused "$pid"
    kill -STOP "$child"
    within 10 "the command is stopped" is_stopped "$child"
    kill -TERM "$pid" # which dlock then reads before the SIGCHLD
    exec 8<>"$work/pause"
    within 10 "it is ended" gone "$child" || kill -KILL "$child"
    ended "$pid"
    exec 8>&-
    equal "status" "$status" 75
fi

finish
