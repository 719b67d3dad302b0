#!/bin/bash
# `dlock run` on a server: leases, losses, outages. On a separate Redis, which is flushed and stopped here.
. "$(dirname "$0")/../../support/cli.sh"

use_redis

describe "the key is ours while the command runs, and gone afterwards"
run "$DLOCK" run plain -- sh -c 'echo "$DLOCK_TOKEN"; redis-cli -h "$0" -p "$1" get plain; exit 3' "${address%:*}" "${address#*:}"
equal "status" "$status" 3
equal "the value is the token" "$(sed -n 1p <<<"$out")" "$(sed -n 2p <<<"$out")"
equal "gone" "$(ask exists plain)" 0

describe "the lease is renewed while the command runs, and ends with a killed dlock"
begin "$DLOCK" run -l 6 renewed -- sh -c 'until [ -e "$0" ]; do sleep 0.1; done' "$work/end"
within 10 "held" is_held renewed
sleep 7
gives "held beyond its lease" 1 "$DLOCK" run -n renewed true
run "$DLOCK" inspect --json renewed
contains "remaining time is a number" "$out" '"until_released": false'
touch "$work/end"
ends "status" 0 "$pid"
hold -l 1 renewed
kill -KILL "$pid"
gives "free after the lease" 0 "$DLOCK" run -w 20 renewed true

describe "a signal while waiting leaves the queue"
hold queue
begin "$DLOCK" run queue -- touch "$work/never"
first=$pid
within 10 "one waits" has_waiters queue 1
begin "$DLOCK" run queue -- touch "$work/second"
second=$pid
within 10 "two wait" has_waiters queue 2
kill -TERM "$first"
ends "status" 143 "$first"
within 10 "one is left" has_waiters queue 1
kill -TERM "$holder"
ends "the next waiter is served" 0 "$second"
if [ -e "$work/never" ]; then fail "the command was run all the same"; fi

describe "the key is deleted: the command is told to end, and what it leaves behind is killed"
begin_heard "$DLOCK" run -l 3 deleted -- bash -c 'trap "echo told; exit 0" TERM
    (trap "" TERM; exec sleep 1000) & echo $!; while :; do sleep 0.02; done'
ask del deleted >/dev/null
before=$(now)
ends "status" 75 "$pid"
contains "SIGTERM came first" "$(<"$work/bg.out")" told
contains "it is said" "$(<"$work/bg.err")" 'lost the lock "deleted"'
if [ $(($(now) - before)) -gt 8000 ]; then fail "it took $(($(now) - before)) ms"; fi
within 10 "what it left behind is gone" gone "$(head -n 1 "$work/bg.out")"
prints "it cannot be broken then" "1 deleted  free" "$DLOCK" break deleted

describe "the server forgets everything: a command that does not listen is killed, with all of its process group"
begin "$DLOCK" run -l 6 flushed -- bash -c "sleep 1000 & echo \$!; $heart" "$work/beats"
within 10 "the command runs" written "$work/beats"
ask flushall >/dev/null
flushed_at=$(now)
ends "status" 75 "$pid"
if [ ! -e "$work/beats.term" ]; then fail "no SIGTERM before SIGKILL"; fi
if [ $(($(last_beat) - flushed_at)) -gt 6000 ]; then fail "it lived on for $(($(last_beat) - flushed_at)) ms"; fi
within 10 "what it had started is gone" gone "$(<"$work/bg.out")"

describe "the server does not answer: the command is dead before the lease ends"
forget
begin "$DLOCK" run -l 6 outage -- bash -c "$heart" "$work/beats"
within 10 "the command runs" written "$work/beats"
kill -STOP "$server"
stopped_at=$(now)
ends "status" 75 "$pid"
lived=$(($(last_beat) - stopped_at))
echo "   it lived for $lived ms of a lease of 6000 ms"
if [ "$lived" -gt 6000 ]; then fail "it outlived its lease: $lived ms"; fi
if [ "$lived" -lt 2500 ]; then fail "it was ended early: $lived ms"; fi
if [ ! -e "$work/beats.term" ]; then fail "no SIGTERM before SIGKILL"; fi
contains "it is said" "$(<"$work/bg.err")" 'lost the lock "outage"'
kill -CONT "$server"

describe "a stopped command dies as well"
begin "$DLOCK" run -l 3 frozen -- sh -c 'kill -STOP $$'
within 10 "held" is_held frozen
sleep 4
gives "held beyond its lease while it is stopped" 1 "$DLOCK" run -n frozen true
ask del frozen >/dev/null
ends "status" 75 "$pid"

describe "the loss shows only at the release"
run "$DLOCK" run late -- sh -c 'redis-cli -h "$0" -p "$1" del late >/dev/null' "${address%:*}" "${address#*:}"
equal "status" "$status" 75
contains "it is said" "$err" late

describe "the server does not answer the release: the command's status counts"
run "$DLOCK" run -b "redis://$address?quarantine=0&timeout=1&guardian=off" unreleased -- sh -c "kill -STOP $server; exit 5"
equal "status" "$status" 5
contains "it is said" "$err" "not released properly"

describe "no server, or one that does not answer"
before=$(now)
gives "stopped server" 69 "$DLOCK" run -w 1 s true
if [ $(($(now) - before)) -gt 10000 ]; then fail "it took $(($(now) - before)) ms"; fi
kill -CONT "$server"
gives "nobody listens" 69 "$DLOCK" run -b redis://127.0.0.1:1 s true
for command in "inspect s" list "break s"; do
    # shellcheck disable=SC2086
    prints "$command" "69 " "$DLOCK" $command -b redis://127.0.0.1:1
done

describe "the server does not answer who the holder is: the wait ends in time all the same"
hold silent
begin "$DLOCK" run -b "$DLOCK_URI&timeout=300s" -v -w 8 silent true
within 10 "waits" grep -q waiting "$work/bg.err"
kill -STOP "$server"
within 60 "it gives up" grep -q "until the deadline" "$work/bg.err"
kill -CONT "$server"
ends "status" 1 "$pid"
kill -TERM "$holder" 2>/dev/null # it may have lost its lock by now
wait "$holder"

describe "who waits"
hold queued
begin "$DLOCK" run --label second queued true
within 10 "one waits" has_waiters queued 1
begin "$DLOCK" run -s --label third queued true
within 10 "two wait" has_waiters queued 2
run "$DLOCK" inspect --waiters queued
equal "both tables" "$(sed 's/\[[0-9]*\]/[]/; s/  */ /g; s/ [0-9.]*s / T /g' <<<"$out" | cut -d ' ' -f 1-5)" "NAME MODE HELD BY FOR
queued exclusive $(hostname | cut -c 1-40 | tr -c 'A-Za-z0-9.\n-' _)[] sleep T

PLACE MODE WAITER FOR
1 exclusive $(hostname | cut -c 1-40 | tr -c 'A-Za-z0-9.\n-' _)[] second unknown
2 shared $(hostname | cut -c 1-40 | tr -c 'A-Za-z0-9.\n-' _)[] third unknown"
run "$DLOCK" inspect --waiters --json queued
equal "as JSON" "$(python3 -c 'import json, sys; d = json.loads(sys.argv[1]); print([(w["label"], w["mode"], w["pid"] > 0, w["waited_ms"]) for w in d["queue"]])' "$out")" \
    "[('second', 'exclusive', True, None), ('third', 'shared', True, None)]"
gives "not with --watch" 64 "$DLOCK" inspect --waiters --watch queued
gives "files have no such queue" 69 "$DLOCK" inspect -b file: --waiters queued
contains "the reason" "$err" "cannot show who waits"
kill -TERM "$holder"
ended "$pid"

describe "a server that is up and grants nothing: the wait says why, and again when the reason changes"
redis_says() { ask "$@" >/dev/null; }
hold why
begin "$DLOCK" run why -- echo done
redis_says config set min-replicas-to-write 3
kill -TERM "$holder"
wait "$holder"
within 10 "the first reason" grep -q "^dlock: waiting for \"why\": .*NOREPLICAS" "$work/bg.err"
redis_says config set maxmemory 1
redis_says config set min-replicas-to-write 0
within 10 "the next reason" grep -q "^dlock: waiting for \"why\": .*OOM" "$work/bg.err"
redis_says config set maxmemory 0
ended "$pid"
equal "then it is granted" "$status $(<"$work/bg.out")" "0 done"
equal "two lines" "$(wc -l <"$work/bg.err")" 2

describe "a user is deleted during a wait, and made again: the wait says why, and continues"
make_user() { redis_says acl setuser me on '>hunter2' '~*' '&*' +@all; }
make_user
hold why
begin "$DLOCK" run -w 60 -b "redis://me:hunter2@$address?quarantine=0" why -- echo done
within 10 "it waits" has_waiters why 1
redis_says acl deluser me
within 10 "the reason" grep -q "^dlock: waiting for \"why\": .*WRONGPASS" "$work/bg.err"
make_user
kill -TERM "$holder"
wait "$holder"
ended "$pid"
equal "then it is granted" "$status $(<"$work/bg.out")" "0 done"
redis_says acl deluser me

describe "-w also waits for a server that is away at the start"
late=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
gives "not without it" 69 "$DLOCK" run -b "redis://127.0.0.1:$late?quarantine=0" late true
begin "$DLOCK" run -w 60 -b "redis://127.0.0.1:$late?quarantine=0" late -- echo done
within 10 "it says why it waits" grep -q "waiting for \"late\": .*127.0.0.1:$late" "$work/bg.err"
redis-server --port "$late" --bind 127.0.0.1 --save '' --dir "$work" >"$work/late.log" &
started+=($!)
ended "$pid"
equal "it is granted" "$status $(<"$work/bg.out")" "0 done"

describe "a refused password is not repeated"
for arguments in "run s true" "run -v s true" "inspect s" "list --json" "break s"; do
    for uri in "redis://:hunter2@$address" "redis://somebody:hunter2@$address"; do
        # shellcheck disable=SC2086
        gives "$arguments" 69 env DLOCK_URI="$uri" "$DLOCK" $arguments
        lacks "$arguments" "$out$err" hunter2
    done
done

describe "Ctrl-Z stops the command, not the renewals"
DLOCK_TEST_TERMINAL_URI=$DLOCK_URI python3 "$(dirname "$0")/terminal_test.py" stop_and_continue kill_while_stopped \
    stop_while_waiting || fail "on a terminal"

finish
