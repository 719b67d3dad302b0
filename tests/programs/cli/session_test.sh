#!/bin/bash
# The command on PostgreSQL's mode=session: missing features, and that the holder of a lock cannot be found out.
. "$(dirname "$0")/../../support/cli.sh"
export DLOCK_URI=${DLOCK_TEST_URI_postgresql_session:?"no server: run the tests with tests/run.sh"}
name=session-$$
is_held() { ! "$DLOCK" run -n "$1" true 2>/dev/null; }

describe "what the mode lacks"
lacks_it() { # WHAT MESSAGE ARGUMENTS…
    prints "$1" "69 " "$DLOCK" "${@:3}"
    contains "$1 says why" "$err" "backend postgresql, as this URI selects it, $2"
}
lacks_it "list" "cannot list locks" list
lacks_it "inspect" "cannot show who holds a lock" inspect "$name"
lacks_it "permits" "has no permits" run -p 2 "$name" true
lacks_it "acquire" "cannot hand a grant to another process" acquire "$name"
run "$DLOCK" run -b "$DLOCK_URI&linger=1s" "$name" true
contains "linger" "$err" "postgresql, as this URI selects it, does not"

describe "-v"
hold "$name"
"$DLOCK" run -v -w 60 "$name" true 2>"$work/waiter" &
waiter=$!
started+=("$waiter")
within 20 "it says that it waits" grep -q "waiting for \"$name\": held by somebody: .* cannot show who" "$work/waiter"
kill -TERM "$holder"
ends "status" 0 "$waiter"
equal "it says so once" "$(grep -c waiting "$work/waiter")" 1
contains "and that it got it" "$(<"$work/waiter")" "got \"$name\", fence "

describe "the guardian of a dlock that stands still kills the command before the lease ends, and dlock says so when it goes on"
begin_heard "$DLOCK" run -l 4 "$name" -- bash -c 'echo $$; exec sleep 1000'
child=$(<"$work/bg.out")
kill -STOP "$pid"
within 20 "the command is killed" gone_or_zombie "$child"
kill -CONT "$pid" # its lease has not ended, and is renewed now, if the machine is quick
ends "status" 75 "$pid"
grep -qE "^dlock: lost the lock \"$name\": .*; (the guardian has killed|killing|ending) the command\$" "$work/bg.err" ||
    fail "what is said" "$(<"$work/bg.err")"

finish
