#!/bin/bash
# `dlock run --hold`: the lock outlasts a short command. On files and on a separate Redis; hold_on_test.sh has every
# server.
. "$(dirname "$0")/../../support/cli.sh"

# held_on NAME OPTION…: a run whose command has ended (with status 3) and that holds for a minute; sets $pid
held_on() {
    local name=$1
    shift
    begin "$DLOCK" run -v --hold 60 "$@" "$name" -- sh -c 'exit 3'
    within 20 "the command has ended: $name" grep -q "the command has ended" "$work/bg.err"
}
refused() { # WHAT NAME
    gives "$1" 9 "$DLOCK" run -n -E 9 "$2" true
}
granted() { # WHAT NAME
    gives "$1" 0 "$DLOCK" run -n -E 9 "$2" true
}

describe "held after the command has ended, then released; the status is the command's"
held_on minute
refused "held" minute
refused "still" minute
kill -0 "$pid" || fail "it has ended early"
grep -qxE 'dlock: the command has ended with status 3; "minute" is held for another 5[0-9]\.[0-9]s \(--hold\)' "$work/bg.err" ||
    fail "-v tells" "$(<"$work/bg.err")"
stop "$pid"
granted "free afterwards" minute
for command in true false "exit 7" "kill -TERM \$\$" "exit 127"; do
    before=$(now)
    run "$DLOCK" run --hold 300ms short -c "$command"
    took=$(($(now) - before))
    held=$status
    equal "$command says nothing" "$out$err" ""
    if [ "$took" -lt 300 ]; then fail "$command: released after $took ms"; fi
    run "$DLOCK" run short -c "$command"
    equal "the status of $command" "$held" "$status"
done

describe "counted from the grant: a command that takes longer is not held on"
run "$DLOCK" run -v --hold 100ms long -- sleep 0.3
lacks "no word of it" "$err" --hold
run "$DLOCK" run -v --hold 0 none -- true
lacks "none, --hold 0" "$err" --hold

describe "who waits gets it when the time is over"
before=$(now)
begin "$DLOCK" run --hold 2 queue -- true
within 10 "held" is_held queue
gives "status" 0 "$DLOCK" run -w 60 queue true
if [ $(($(now) - before)) -lt 2000 ]; then fail "it got it after $(($(now) - before)) ms"; fi
ends "status" 0 "$pid"

describe "a command that could not be run is not held for"
gives "not found" 127 "$DLOCK" run --hold 60 norun no-such-command-anywhere
granted "free after 127" norun
gives "not executable" 126 "$DLOCK" run --hold 60 norun "$work"
granted "free after 126" norun

describe "pipes are let go of when the command has ended"
mkfifo "$work/in" "$work/pipe"
sleep 1000 >"$work/in" &
started+=("$!")
begin sh -c 'exec "$0" run --hold 60 pipe -- echo line <"$1" >"$2"' "$DLOCK" "$work/in" "$work/pipe"
equal "the reader sees the end" "$(<"$work/pipe")" line
refused "while the lock is held" pipe
equal "standard input" "$(readlink "/proc/$pid/fd/0")" /dev/null
kill -TERM "$pid"
ends "status" 0 "$pid"

describe "a signal ends it: the lock is released at once"
for sig in TERM HUP; do
    held_on signal
    kill -$sig "$pid"
    kill -$sig "$pid" 2>/dev/null # a second one changes nothing
    ends "SIG$sig: the command's status" 3 "$pid"
    contains "SIG$sig is named" "$(<"$work/bg.err")" "dlock: SIG$sig: \"signal\" is released 5"
    contains "SIG$sig: and how early" "$(<"$work/bg.err")" "s before the end of --hold"
    granted "free after SIG$sig" signal
done
for sig in INT QUIT; do
    held_on signal
    kill -$sig "$pid"
    ended "$pid"
    equal "SIG$sig, the keyboard's: death by it" "$status" $((128 + $(kill -l $sig)))
    granted "free after SIG$sig" signal
done

describe "a signal that was passed on to the command leaves no hold"
begin_heard "$DLOCK" run --hold 60 passed -- bash -c 'trap "exit 4" TERM; echo ready; while :; do sleep 0.03; done'
kill -TERM "$pid"
ends "status" 4 "$pid"
contains "it is said" "$(<"$work/bg.err")" 'dlock: SIGTERM: "passed" is released '
granted "free" passed
begin_heard "$DLOCK" run --hold 60 passed -- sh -c 'echo ready; exec sleep 1000'
kill -INT "$pid"
ends "status" 130 "$pid"
granted "free" passed

describe "signals that do not end it"
env --ignore-signal=HUP "$DLOCK" run -v --hold 60 ignored -- true 2>"$work/bg.err" &
pid=$!
started+=("$pid")
within 10 "held" grep -q "has ended" "$work/bg.err"
kill -HUP "$pid"
kill -USR1 "$pid"
kill -TSTP "$pid"
kill -CONT "$pid"
sleep 0.3
refused "ignored SIGHUP (nohup), SIGUSR1, SIGTSTP, SIGCONT" ignored
if is_stopped "$pid"; then fail "it is stopped"; fi
kill -TERM "$pid"
ends "status" 0 "$pid"

describe "a failed job is held for, too"
begin "$DLOCK" run -v --hold 60 failed -- false
within 10 "held" grep -q "ended with status 1; \"failed\" is held" "$work/bg.err"
refused "held" failed
kill -TERM "$pid"
ends "status" 1 "$pid"

describe "wrong values"
for bad in x "" -1 1y; do
    gives "'$bad'" 64 "$DLOCK" run --hold "$bad" s true
    contains "'$bad' is explained" "$err" "dlock: --hold: a duration is a number followed by ms, s, m or h"
done
gives "no value" 64 "$DLOCK" run --hold
contains "no value is explained" "$err" "option --hold needs a value"
gives "of run alone" 64 "$DLOCK" acquire --hold 3 s

describe "file: kill -9 while it holds"
held_on killed
kill -KILL "$pid"
wait "$pid" 2>/dev/null
within 10 "the kernel releases" is_free killed

describe "file: broken while it holds"
DLOCK_URI="$DLOCK_URI?lease=1s" held_on broken
run "$DLOCK" break broken
ends "nobody knows whether before the command ended" 75 "$pid"
contains "it is said" "$(<"$work/bg.err")" 'dlock: lost the lock "broken" during --hold: somebody broke it, or removed its file or directory; perhaps before the command ended'

if ! "$DLOCK" backends --json | grep -q '"redis", "schemes"'; then finish; fi
use_redis

describe "redis: longer than the lease: it is renewed"
before=$(now)
begin "$DLOCK" run -l 3 --hold 7 renewed -- true
within 10 "held" is_held renewed
until "$DLOCK" run -n renewed true; do sleep 0.1; done
if [ $(($(now) - before)) -lt 7000 ]; then fail "released after $(($(now) - before)) ms"; fi
ends "status" 0 "$pid"

describe "redis: kill -9 while it holds"
held_on killed -b "$DLOCK_URI&lease=300s"
kill -KILL "$pid"
wait "$pid" 2>/dev/null
within 20 "the guardian releases" is_free killed
held_on unguarded -b "$DLOCK_URI&lease=60s&guardian=off"
kill -KILL "$pid"
wait "$pid" 2>/dev/null
refused "without a guardian the lease does" unguarded

describe "redis: broken while it holds"
held_on later -l 3
sleep 4 # more than a lease: the server has confirmed it since the command ended
refused "held" later
run "$DLOCK" break later
ends "after the server has confirmed it: the command's status" 3 "$pid"
grep -q '^dlock: lost the lock "later" during --hold: somebody broke it.*; the command had ended before$' "$work/bg.err" ||
    fail "it is said" "$(<"$work/bg.err")"
begin "$DLOCK" run -l 3 --hold 60 before -- redis-cli -p "${address#*:}" del before
ends "while the command ran" 75 "$pid"
contains "it is said" "$(<"$work/bg.err")" "perhaps before the command ended"
run "$DLOCK" run -l 30 --hold 1 atrelease -- redis-cli -p "${address#*:}" del atrelease
equal "found by the release" "$status" 75
contains "it is said" "$err" "\"atrelease\" was not released properly"

describe "redis: the server goes away while it holds"
held_on outage -b "$DLOCK_URI&timeout=500ms&guardian=off" -l 3
kill -STOP "$server"
ends "the command's status" 3 "$pid"
grep -qE '^dlock: lost the lock "outage" during --hold: not renewed for [0-9.]+ s \(lease 3 s\) \(renewal .*\); the command had ended before$' "$work/bg.err" ||
    fail "it is said" "$(<"$work/bg.err")"
kill -CONT "$server"

finish
