#!/bin/bash
# acquire, renew and release: on a Redis, and on files, which have no tickets.
. "$(dirname "$0")/../../support/cli.sh"

value() { python3 -c 'import json, sys; d = json.loads(sys.argv[2]); print(eval(sys.argv[1]))' "$1" "${2:-$out}"; }
remaining() { value 'd["holders"][0]["remaining_ms"]' "$("$DLOCK" inspect --json "$1")"; }

describe "where a lock ends with its process there are none"
prints "status" "69 " "$DLOCK" acquire s
contains "it says what to use" "$err" "dlock run"
hold s
prints "and it does not wait to say so" "69 " "$DLOCK" acquire s

describe "wrong usage"
wrong() { # ARGUMENTS…
    prints "$*" "64 " "$DLOCK" "$@"
}
wrong acquire
wrong acquire a b
wrong acquire a -- true
wrong acquire --nosuch a
for bad in "" 0 -1 x 3x 99999999999999999999; do wrong acquire -p "$bad" a; done
wrong acquire -l 0 a
wrong acquire -w x a
wrong acquire -E 256 a
for command in renew release; do
    wrong "$command"
    wrong "$command" a b
    wrong "$command" nonsense
    wrong "$command" ""
    for input in "" nonsense "$(printf '%09999d' 0)"; do
        prints "$command - with ${input:0:9}" "64 " "$DLOCK" "$command" - <<<"$input"
    done
    "$DLOCK" "$command" - <&- 2>/dev/null
    equal "$command - without an input" "$?" 64
done

use_redis

describe "a ticket holds the lock until it is released"
run "$DLOCK" acquire -l 8 job
equal "status" "$status $err" "0 "
ticket=$out
equal "one line, without spaces" "$(wc -lw <<<"$ticket" | xargs)" "1 1"
is_held job || fail "not held"
gives "nobody else gets it" 1 "$DLOCK" run -n job true
run "$DLOCK" acquire -n job
equal "no second ticket" "$status $out$err" "1 "
run "$DLOCK" release "$ticket"
equal "release" "$status $out$err" "0 "
is_free job || fail "not free"
for command in release renew; do
    prints "$command, once it has ended" "75 " "$DLOCK" "$command" "$ticket"
    contains "$command names the lock" "$err" '"job"'
    lacks "$command keeps the ticket to itself" "$err" "$ticket"
done

describe "the lease is fixed, and renewed by the ticket alone"
run "$DLOCK" acquire -l 12 lease
ticket=$out
sleep 3
before=$(remaining lease)
if [ "$before" -gt 9000 ]; then fail "somebody renews it: $before ms"; fi
run "$DLOCK" renew "$ticket"
equal "renew" "$status $out$err" "0 "
left=$(remaining lease)
if [ "$left" -le "$before" ] || [ "$left" -gt 12000 ]; then fail "renew sets the whole lease anew, not $left ms"; fi
run "$DLOCK" renew - <<<"$ticket"
equal "renew, from standard input" "$status $out$err" "0 "
within 30 "it ends with its lease" is_free lease
gives "then it is lost" 75 "$DLOCK" renew "$ticket"
run "$DLOCK" acquire other
printf %s "$out" | "$DLOCK" release -
equal "release, from standard input, without a newline" "$?" 0
is_free other || fail "not free"

describe "a lock of somebody else is left alone"
run "$DLOCK" acquire -l 200ms again
old=$out
within 10 "it ends" is_free again
run "$DLOCK" acquire again
gives "an old ticket" 75 "$DLOCK" release "$old"
is_held again || fail "it released the new holder's"

describe "JSON"
gives "status" 0 "$DLOCK" acquire --json -l 10 'a "name"'
equal "members" "$(value 'sorted(d)')" "['fence', 'name', 'remaining_ms', 'ticket', 'token']"
equal "values" "$(value '(d["name"], d["fence"].isdigit(), 8000 < d["remaining_ms"] <= 10000)')" "('a \"name\"', True, True)"
shown=$("$DLOCK" inspect --json 'a "name"')
equal "fence and token are the server's" "$(value '(d["fence"], d["token"])')" \
    "$(value '(d["holders"][0]["fence"], d["holders"][0]["token"])' "$shown")"
gives "release" 0 "$DLOCK" release "$(value 'd["ticket"]')"

describe "waiting"
hold queue
prints "it gives up" "9 " "$DLOCK" acquire -w 0.2 -E 9 -v queue
contains "-v says so" "$err" '"queue"'
prints "-E 0 is no ticket" "0 " "$DLOCK" acquire -n -E 0 queue
begin "$DLOCK" acquire -l 20 queue
first=$pid
within 10 "one waits" has_waiters queue 1
stop "$first"
equal "a signal ends the wait" "$status $(<"$work/bg.out")" "143 "
within 10 "and leaves the queue" has_waiters queue 0
begin "$DLOCK" acquire -l 20 queue
within 10 "one waits" has_waiters queue 1
kill -TERM "$holder"
ends "then it is served" 0 "$pid"
if [ "$(remaining queue)" -lt 10000 ]; then fail "with less than its lease: $(remaining queue) ms"; fi
gives "release" 0 "$DLOCK" release "$(<"$work/bg.out")"

describe "readers and permits"
run "$DLOCK" acquire -s page
reader=$out
gives "a second reader" 0 "$DLOCK" acquire -n --shared page
second=$out
gives "no writer" 1 "$DLOCK" acquire -n page
equal "two release" "$("$DLOCK" release "$reader" && "$DLOCK" release "$second" && "$DLOCK" inspect page)" "page  free"
for i in 1 2; do run "$DLOCK" acquire -n -p 2 pool; equal "permit $i" "$status" 0; done
ticket=$out
gives "no third" 1 "$DLOCK" acquire -n -p 2 pool
gives "no other limit" 64 "$DLOCK" acquire -n --permits=3 pool
contains "it says so" "$err" "2 permits"
gives "renew" 0 "$DLOCK" renew "$ticket"
gives "release" 0 "$DLOCK" release "$ticket"
gives "then one is free" 0 "$DLOCK" acquire -n -p 2 pool

describe "a ticket that nobody can read gives the lock back"
"$DLOCK" acquire full >/dev/full 2>"$work/err"
equal "a full disk" "$?" 74
is_free full || fail "still held"
"$DLOCK" acquire closed 2>"$work/err" >&-
equal "a closed standard output" "$?" 74
is_free closed || fail "still held"
{
    sleep 0.5
    "$DLOCK" acquire pipe 2>"$work/err"
} | true
equal "a reader that is gone" "${PIPESTATUS[0]}" 74
is_free pipe || fail "still held"
python3 -c 'import os, subprocess, sys
master, terminal = os.openpty()
os.close(master)
sys.exit(subprocess.run(sys.argv[1:], stdout=terminal).returncode)' "$DLOCK" acquire terminal 2>"$work/err"
equal "a terminal that is gone" "$?" 74
is_free terminal || fail "still held"

if [ -n "${DLOCK_LIBRARY:-}" ]; then # not under sanitizers, which Python cannot load
    describe "a ticket of a program, whose lease was not fixed, is renewed by one request, too"
    requests() { # of a renewal of this ticket
        ask config resetstat >/dev/null
        run "$DLOCK" renew "$1"
        equal "renew" "$status $err" "0 "
        ask info commandstats |
            grep -oE '^cmdstat_(evalsha|eval|set|get):calls=[0-9]+' | sort
    }
    run "$DLOCK" acquire -l 60 fixed
    expected=$(requests "$out")
    ticket=$(python3 -W ignore -c 'import dlock, sys; print(dlock.Client(sys.argv[1]).lock("exported").acquire().export())' "$DLOCK_URI")
    equal "requests" "$(requests "$ticket")" "$expected"
    is_held exported || fail "not held any more"
    gives "release" 0 "$DLOCK" release "$ticket"
fi

describe "the wrong server"
run "$DLOCK" acquire -l 60 here
ticket=$out
gives "another kind" 64 "$DLOCK" release -b "file:$work/locks" "$ticket"
gives "another prefix" 64 "$DLOCK" release -b "$DLOCK_URI&prefix=other:" "$ticket"
gives "none" 69 "$DLOCK" release -b redis://127.0.0.1:1 "$ticket"
is_held here || fail "not held any more"

describe "a guardian in the URI does not take a ticket for a dead process's lock"
gives "acquire" 0 "$DLOCK" acquire -b "$DLOCK_URI&guardian=on" -l 20 guarded
gives "renew" 0 "$DLOCK" renew -b "$DLOCK_URI&guardian=on" "$out"
sleep 1
is_held guarded || fail "it is gone"

finish
