#!/bin/bash
# `dlock run --on-lost` and `--kill-after`: the end of the command when its lock is lost. On files and on a separate
# Redis.
. "$(dirname "$0")/../../support/cli.sh"

said() { contains "what is said" "$(<"$work/bg.err")" "$1"; }

describe "wrong usage"
wrong() { # MESSAGE OPTION…
    local message=$1
    shift
    gives "$*" 64 "$DLOCK" run "$@" s true
    equal "$*: the message" "$(sed -n 1p <<<"$err")" "dlock: $message"
}
for bad in "" x TERM killed; do wrong "--on-lost takes term, kill or warn" --on-lost="$bad"; done
duration="a duration is a number followed by ms, s, m or h, such as 500ms, 10s or 1.5h; a bare number is seconds"
for bad in "" x -1 1y; do wrong "--kill-after: $duration" --kill-after="$bad"; done
wrong "--kill-after: must be more than 0; --on-lost=kill kills at once" --kill-after=0
wrong "--kill-after goes with --on-lost=term, where SIGTERM comes first" --kill-after=1 --on-lost=kill
wrong "--kill-after goes with --on-lost=term, where SIGTERM comes first" --on-lost=warn --kill-after=1

describe "nothing of it matters while the lock is held"
for options in --on-lost=term --on-lost=kill --on-lost=warn --kill-after=1h "--on-lost term --kill-after 1s"; do
    # shellcheck disable=SC2086
    run "$DLOCK" run $options s -- sh -c 'exit 3'
    equal "$options" "$status $out$err" "3 "
done

export DLOCK_URI="$DLOCK_URI?lease=3s" # after a break that is how soon it is noticed

describe "file: kill: SIGKILL, for all of the process group"
forget
begin "$DLOCK" run --on-lost=kill broken -- bash -c "sleep 1000 & echo \$!; $heart" "$work/beats"
within 10 "the command runs" written "$work/beats"
run "$DLOCK" break broken
ends "status" 75 "$pid"
if [ -e "$work/beats.term" ]; then fail "it got SIGTERM"; fi
within 10 "all of the group is gone" gone "$(<"$work/bg.out")"
said 'dlock: lost the lock "broken": somebody broke it, or removed its file or directory; killing the command'

describe "file: term: the command may end in its own way, for --kill-after"
begin_heard "$DLOCK" run --kill-after=1h broken -- bash -c 'trap "sleep 1; echo cleaned up; exit 0" TERM; echo ready; while :; do sleep 0.02; done'
run "$DLOCK" break broken
ends "status" 75 "$pid"
contains "it had the time" "$(<"$work/bg.out")" "cleaned up"
said 'dlock: lost the lock "broken": somebody broke it, or removed its file or directory; ending the command'
lacks "it was not killed" "$(<"$work/bg.err")" killing

describe "file: term: what ignores SIGTERM is killed after --kill-after, with its group"
forget
begin "$DLOCK" run --on-lost=term --kill-after=1s broken -- bash -c "(trap '' TERM; exec sleep 1000) & echo \$!; $heart" "$work/beats"
within 10 "the command runs" written "$work/beats"
run "$DLOCK" break broken
ends "status" 75 "$pid"
if [ ! -e "$work/beats.term" ]; then fail "no SIGTERM before SIGKILL"; fi
within 10 "all of the group is gone" gone "$(<"$work/bg.out")"
said 'dlock: lost the lock "broken": SIGTERM has not ended the command; killing it'

describe "file: warn: the command goes on; the status tells that it had no lock"
begin_heard "$DLOCK" run --on-lost=warn broken -- bash -c 'trap "echo told" TERM; echo ready; until [ -e "$0" ]; do sleep 0.02; done; exit 3' "$work/end"
run "$DLOCK" break broken
within 20 "it is said" grep -q "lost the lock" "$work/bg.err"
said 'dlock: lost the lock "broken": somebody broke it, or removed its file or directory; the command goes on without it'
gives "others have the lock" 0 "$DLOCK" run -n broken true
sleep 0.5
kill -0 "$pid" || fail "it has ended"
touch "$work/end"
ends "status" 75 "$pid"
said 'dlock: the command has ended with status 3, without the lock "broken"'
lacks "no signal" "$(<"$work/bg.out")" told

describe "file: a stopped command dies without waking up"
for options in --on-lost=kill --kill-after=300ms; do
    begin_heard "$DLOCK" run "$options" broken -- bash -c 'trap "echo told" TERM; echo $$; kill -STOP $$; echo woken'
    within 10 "it is stopped" is_stopped "$(<"$work/bg.out")"
    run "$DLOCK" break broken
    child=$(<"$work/bg.out")
    ends "$options: status" 75 "$pid"
    equal "$options: it did nothing more" "$(<"$work/bg.out")" "$child"
done

describe "file: a standard error that nobody reads: the command is ended and killed all the same"
mkfifo "$work/full"
exec 3<>"$work/full"
python3 -c '
import contextlib, os
os.set_blocking(3, False)
with contextlib.suppress(BlockingIOError):
    while True: os.write(3, bytes(4096))'
"$DLOCK" run -v --kill-after=300ms broken -- bash -c 'trap "" TERM; echo $$; exec sleep 1000' >"$work/full.out" 2>"$work/full" </dev/null 3<&- &
pid=$!
started+=("$pid")
within 10 "the command runs" written "$work/full.out"
child=$(<"$work/full.out")
started+=("$child")
run "$DLOCK" break broken
within 20 "the command is killed" gone "$child" || kill -KILL "$child"
exec 3<&-
ends "status" 75 "$pid"

describe "a lost lock is not held on"
gives "status" 75 env D="$DLOCK" "$DLOCK" run --hold 1h broken -c '"$D" break broken >/dev/null; exec sleep 1000'

if ! "$DLOCK" backends --json | grep -q '"redis", "schemes"'; then finish; fi
use_redis
DLOCK_URI+="&timeout=1500ms" # that is when a renewal has failed

describe "redis: --kill-after needs its time within the lease"
gives "status" 64 "$DLOCK" run -l 3 --kill-after 2s lease touch "$work/never"
equal "the message" "$err" 'dlock: --kill-after is longer than a third of the lease of "lease": make that at least 6s, with -l or as lease= in the URI'
if [ -e "$work/never" ]; then fail "the command was run all the same"; fi
gives "a third is all right, and the lock was free" 0 "$DLOCK" run -n -l 3 --kill-after 1s lease true

# told REASON CONSEQUENCE: with what went wrong
told() {
    grep -qE "^dlock: lost the lock \"outage\": $1 \(renewal of 1 lock\(s\) failed, such as \"outage\": Redis at .*: no answer.*\); $2\$" "$work/bg.err" ||
        fail "what is said" "$(<"$work/bg.err")"
}

# By dlock, or by its guardian where that was a moment earlier.
killed_late() { # NAME
    grep -qE "^dlock: lost the lock \"$1\": SIGTERM has not ended the command; (killing it|the guardian has killed it)\$" "$work/bg.err" ||
        fail "what is said" "$(<"$work/bg.err")"
}

# outage LEASE OPTION…: the server stops answering; sets $lived to how long the command then did.
outage() {
    local lease=$1
    shift
    forget
    begin "$DLOCK" run -l "$lease" "$@" outage -- bash -c "$heart" "$work/beats"
    within 10 "the command runs" written "$work/beats"
    kill -STOP "$server"
    local stopped_at
    stopped_at=$(now)
    ends "status" 75 "$pid"
    lived=$(($(last_beat) - stopped_at))
    echo "   it lived for $lived ms of a lease of ${lease}000 ms"
    kill -CONT "$server"
}

describe "redis: an outage: SIGTERM comes so early that --kill-after fits into the lease"
outage 9 --kill-after=1500ms # the first renewal has failed two seconds before
if [ "$lived" -gt 9000 ]; then fail "it outlived its lease: $lived ms"; fi
if [ ! -e "$work/beats.term" ]; then fail "no SIGTERM before SIGKILL"; fi
told 'its lease could not be renewed in time' 'ending the command'
killed_late outage

describe "redis: an outage: without a guardian, too, what ignores SIGTERM is killed before the lease ends"
# dlock stands still for a while, so that SIGTERM comes when less than --kill-after is left.
forget
begin "$DLOCK" run -b "$DLOCK_URI&guardian=off" -l 12 --kill-after=4s outage -- bash -c "$heart" "$work/beats"
within 10 "the command runs" written "$work/beats"
kill -STOP "$server" "$pid"
sleep 9
went_on_at=$(now)
kill -CONT "$pid"
ended "$pid"
kill -CONT "$server"
equal "status" "$status" 75
lived=$(($(last_beat) - went_on_at))
if [ "$lived" -gt 3200 ]; then fail "it lived for $lived ms after SIGTERM"; fi
killed_late outage

describe "redis: an outage: kill comes only just before the lease ends"
outage 6 --on-lost=kill
if [ "$lived" -gt 6000 ]; then fail "it outlived its lease: $lived ms"; fi
if [ -e "$work/beats.term" ]; then fail "it got SIGTERM"; fi
told 'its lease could not be renewed in time' 'killing the command'

describe "redis: an outage: warn, and the command outlives the lease"
forget
begin_heard "$DLOCK" run -l 6 --on-lost=warn outage -- bash -c 'echo $$; until [ -e "$0" ]; do sleep 0.02; done; exit 3' "$work/end"
kill -STOP "$server"
within 20 "it is said" grep -q "lost the lock" "$work/bg.err"
told 'not renewed for [0-9.]* s \(lease 6 s\)' 'the command goes on without it'
sleep 1 # the guardian had its chance
gone "$(<"$work/bg.out")" && fail "the command is gone"
kill -CONT "$server"
touch "$work/end"
ends "status" 75 "$pid"
said 'dlock: the command has ended with status 3, without the lock "outage"'

describe "redis: the guardian of a dlock that stands still is first, and dlock says so when it goes on"
for action in kill term; do
    begin_heard "$DLOCK" run -l 4 --on-lost="$action" stopped -- bash -c 'echo $$; exec sleep 1000'
    child=$(<"$work/bg.out")
    kill -STOP "$pid"
    within 20 "the command is killed" gone_or_zombie "$child"
    kill -CONT "$pid" # its lease has not ended, and is renewed now, if the machine is quick
    ends "$action: status" 75 "$pid"
    grep -qE '^dlock: lost the lock "stopped": (its lease|not renewed) .*; (the guardian has killed|killing|ending) the command$' "$work/bg.err" ||
        fail "$action: what is said" "$(<"$work/bg.err")"
done

describe "redis: so it says when the guardian is first after SIGTERM"
begin_heard "$DLOCK" run -l 6 --kill-after=2s late -- bash -c 'trap "" TERM; echo $$; exec sleep 1000'
child=$(<"$work/bg.out")
kill -STOP "$server"
within 20 "it is told to end" grep -q "ending the command" "$work/bg.err"
kill -STOP "$pid"
within 20 "the command is killed" gone_or_zombie "$child"
kill -CONT "$pid" "$server"
ends "status" 75 "$pid"
killed_late late

describe "redis: warn, and a stopped dlock: its guardian does not kill the command"
forget
begin_heard "$DLOCK" run -l 1 --on-lost=warn stopped -- bash -c 'echo $$; until [ -e "$0" ]; do sleep 0.02; done; exit 3' "$work/end"
kill -STOP "$pid"
gives "the lease ends" 0 "$DLOCK" run -w 60 stopped true
sleep 0.5
gone "$(<"$work/bg.out")" && fail "the command is gone"
kill -CONT "$pid"
within 20 "it notices" grep -q "lost the lock" "$work/bg.err"
touch "$work/end"
ends "status" 75 "$pid"

describe "redis: warn is about the lock alone: a dlock that is killed takes its command along, then the lock is free"
begin_heard "$DLOCK" run -b "$DLOCK_URI&lease=300s" --on-lost=warn killed -- bash -c 'sleep 1000 & echo $!; wait'
guardian=$(pgrep -f "^dlock-guardian $pid\$")
kill -KILL "$pid"
wait "$pid" 2>/dev/null
gives "free long before the lease ends" 0 "$DLOCK" run -w 60 killed true
gone_or_zombie "$(<"$work/bg.out")" || fail "what it had started still runs"
within 20 "its guardian has ended, too" gone "${guardian:?}" # it releases once more, while there is a server

finish
