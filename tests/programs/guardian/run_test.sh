#!/bin/bash
# run_test.sh BACKEND: the guardian of `dlock run`. However dlock ends, its command has ended before the next
# holder begins: each writes time stamps.
. "$(dirname "$0")/../../support/cli.sh"
. "$(dirname "$0")/../../support/as_user.sh"
: "${STAMPS:?the program that writes time stamps}" "${BUILD:?the folder of the build}"
backend=$1 server=DLOCK_TEST_URI_$1
export DLOCK_URI=${!server:?"no server for $1: run the tests with tests/run.sh"}
name=guardian-$$ took=0
lease=4 # seconds; long enough to be renewed in time, whatever the machine does besides
# A lease and a session that outlast the test: a lock that becomes free by then was released.
long=30 prompt=15000

if ! can inspect; then # the holder cannot be found out
    is_held() { ! "$DLOCK" run -n "$1" true 2>/dev/null; }
fi
guardian_of() { pgrep -f "^dlock-guardian $1\$"; }
command_of() { pgrep -P "$1" | grep -vxF "$(guardian_of "$1")"; } # dlock has no other children
has_guardian() { guardian_of "$1" >/dev/null; }
# How many processes write stamps with this word.
stampers() { sed -n "s/^[0-9]* $1 //p" "$work/stamps" 2>/dev/null | sort -u | wc -l; }
stamping() { [ "$(stampers "$1")" -gt 0 ]; }
all_stamp() { [ "$(stampers old)" = 4 ]; }
quiet() {
    local before
    before=$(wc -c <"$work/stamps")
    sleep 0.1
    [ "$(wc -c <"$work/stamps")" = "$before" ]
}
busy() { ! quiet; }
# A grandchild in the background, one that ignores signals, one whose first thread has ended, each in several places.
tree='"$0" "$1" old last & ("$0" "$1" old & wait) & sh -c "\"$0\" \"$1\" old & wait" & exec "$0" "$1" old'

# The last stamp of the old holder and the first of the new one, in nanoseconds.
last_old() { sed -n 's/^\([0-9]*\) old .*/\1/p' "$work/stamps" | sort -n | tail -n 1; }
first_new() { sed -n 's/^\([0-9]*\) new .*/\1/p' "$work/stamps" | sort -n | head -n 1; }

# begin_both OPTIONS…: an old holder that works with all its tree, and a new one that waits; sets $old and $new.
begin_both() {
    rm -f "$work/stamps"
    begin "$DLOCK" run "$@" "$name" -- sh -c "$tree" "$STAMPS" "$work/stamps"
    old=$pid
    within 20 "the old holder works" all_stamp
    begin "$DLOCK" run "$name" -- "$STAMPS" "$work/stamps" new
    new=$pid
    sleep 0.5 # it waits by now
    if stamping new; then fail "both work at once"; fi
}

# The new one got in: says how long after $since the last stamp of the old one and the first of the new one were.
expect_order() {
    local last first overlap
    within 30 "the new holder works" stamping new || finish # all that follows would wait as long
    sleep 0.2                                               # for what must not come any more
    last=$(last_old) first=$(first_new)
    echo "   the old one's last stamp after $(((last - since) / 1000000)) ms, the new one's first after $(((first - since) / 1000000)) ms"
    overlap=$(((last - first) / 1000))
    if [ "$last" -ge "$first" ]; then fail "both worked for $overlap us"; fi
    took=$(((first - since) / 1000000))
    kill -KILL "$new"
    wait "$new" 2>/dev/null
    within 20 "nothing is left" quiet
}

now_ns() { python3 -c 'import time; print(time.monotonic_ns())'; }

describe "$backend: a killed dlock"
begin_both -l "$long"
within 10 "it has a guardian" has_guardian "$old"
since=$(now_ns)
kill -KILL "$old"
wait "$old" 2>/dev/null
expect_order
if [ "$took" -ge "$prompt" ]; then fail "replaced after $took ms"; fi

describe "$backend: dlock is killed together with its command"
begin_both -l "$long"
child=$(command_of "$old")
since=$(now_ns)
kill -KILL "$old" "$child" # in this order: a command that dies first ends its lock
wait "$old" 2>/dev/null
expect_order
if [ "$took" -ge "$prompt" ]; then fail "replaced after $took ms"; fi

if ! can local; then # the kernel's locks have no lease
    describe "$backend: a stopped dlock cannot renew"
    begin_both -l 4
    since=$(now_ns)
    kill -STOP "$old"
    expect_order
    if [ "$(last_old)" -lt $((since + 300000000)) ]; then fail "its command was to go on for now"; fi
    kill -CONT "$old"
    ends "it knows that it lost the lock" 75 "$old"
fi

# With other rights than dlock's and the guardian's, which sudo would give it. Only root can arrange that.
if [ "$(id -u)" = 0 ] && { can local || ! can session; }; then # only the dead session could renew
    describe "$backend: a command that cannot be killed keeps the lock"
    chmod a+rwx "$work"
    # An installation that every user can reach: the build may be in a user's home, as in /root.
    gives "installing for every user" 0 cmake --install "$BUILD" --prefix "$work/installed"
    installed=$(find "$work/installed" -path '*/bin/dlock')
    cp "$STAMPS" "$work/privileged"
    chmod u+s "$work/privileged"
    rm -f "$work/stamps"
    if can local; then export "DLOCK_URI=file:$work/shared?mode=0660&group=65534"; fi
    as_user 65534
    begin "${as_user[@]}" "$installed" run -l "$lease" "$name" -- "$work/privileged" "$work/stamps" old
    old=$pid
    within 20 "the old holder works" stamping old
    child=$(command_of "$old")
    begin "$DLOCK" run "$name" -- "$STAMPS" "$work/stamps" new
    new=$pid
    kill -KILL "$old"
    wait "$old" 2>/dev/null
    sleep $((2 * lease + 1))
    within 5 "it goes on" busy
    if stamping new; then fail "both work at once"; fi
    since=$(now_ns)
    kill -KILL "$child"
    expect_order

    describe "$backend: a command that cannot be killed outlives its lock"
    rm -f "$work/stamps"
    begin "${as_user[@]}" "$installed" run "$name" -- "$work/privileged" "$work/stamps" old
    within 20 "the holder works" stamping old
    child=$(command_of "$pid")
    kill -TERM "$pid"
    within 20 "SIGTERM is said to be lost" grep -q "^dlock: signal 15 .*cannot be passed on" "$work/bg.err"
    run "$DLOCK" break "$name"
    if [ "$status" = 0 ]; then
        within 20 "it is said to go on" grep -q "^dlock: lost the lock .*cannot be killed: Operation not permitted$" "$work/bg.err"
        equal "once" "$(grep -c "lost the lock" "$work/bg.err")" 1
        busy || fail "so it does"
    fi
    kill -KILL "$child"
    ended "$pid"
    export DLOCK_URI=${!server}
fi

if unshare --pid --fork true 2>/dev/null; then
    describe "$backend: /proc is another PID namespace's, where the group's numbers are others'"
    rm -f "$work/stamps"
        # shellcheck disable=SC2016
    begin unshare --pid --fork sh -c '"$@"; sleep 1000; :' sh \
        "$DLOCK" run -l "$long" "$name" -- sh -c "$tree" "$STAMPS" "$work/stamps"
    within 20 "the old holder works" all_stamp
    first=$(pgrep -P "$pid")
    old=$(pgrep -x -P "$first" dlock)
    begin "$DLOCK" run "$name" -- "$STAMPS" "$work/stamps" new
    new=$pid
    since=$(now_ns)
    kill -KILL "$old"
    expect_order
    kill -KILL "$first" # and with it the namespace
    export DLOCK_URI=${!server}
else
    echo "# there is no PID namespace for this user: a foreign /proc is not tested"
fi

describe "$backend: a guardian comes and goes with its dlock"
hold "$name"
within 20 "it has one" has_guardian "$pid"
guardian=$(guardian_of "$pid") since=$SECONDS
kill -KILL "$guardian"
# shellcheck disable=SC2317
another() { guardian=$(guardian_of "$pid") && ! kill -0 "$killed" 2>/dev/null; }
killed=$guardian
within 20 "it has another one" another
if [ $((SECONDS - since)) -ge 8 ]; then fail "the first one that is killed is replaced at once"; fi
kill -TERM "$pid"
ends "status" 143 "$pid"
within 10 "it ends" gone_or_zombie "$guardian"
gives "the lock is free" 0 "$DLOCK" run -n "$name" true

describe "$backend: a first process that reaps nobody"
no_init() { run python3 "$(dirname "$0")/no_init.py" "$@"; }
no_init "$DLOCK" run "$name" true
equal "a command, and what is left of it" "$status $out" "0 "
no_init "$DLOCK" run "$name" /nonexistent/program
equal "no command" "$status $out" "127 "
hold "$name"
no_init "$DLOCK" run -n "$name" true
equal "no lock" "$status $out" "1 "
stop "$pid"
no_init "$DLOCK" run "$name" -- sh -c '(sleep 0.3) & exit 3'
contains "what the command leaves is not waited for" "$status $out" "3 s"
if ! can session; then # it is not replaced where it keeps what grants live in
    # shellcheck disable=SC2016
    no_init "$DLOCK" run -l "$lease" "$name" -- sh -c 'pgrep -f "^dlock-guardian $PPID\$" >"$0/first" || exit 9
        kill -KILL "$(cat "$0/first")"
        for i in $(seq 600); do
            sleep 0.05
            pgrep -f "^dlock-guardian $PPID\$" >"$0/next" && ! cmp -s "$0/first" "$0/next" && exit 0
        done' "$work"
    equal "one that was killed and replaced" "$status $out" "0 "
fi

describe "$backend: guardian=off"
case "$DLOCK_URI" in *\?*) sign='&' ;; *) sign='?' ;; esac
hold -b "$DLOCK_URI${sign}guardian=off" "$name"
sleep 0.2
if has_guardian "$pid"; then fail "it has one all the same"; fi
stop "$pid"

describe "$backend: the program is not installed"
library=$(ldd "$DLOCK" | sed -n 's/.*libdlock[^ ]* => \([^ ]*\) .*/\1/p')
mkdir "$work/alone"
cp -L "$library" "$work/alone/"
ln -s "$(dirname "$library")/dlock" "$work/alone/dlock"
gives "status" 69 env LD_LIBRARY_PATH="$work/alone" "$DLOCK" run "$name" echo ran
equal "the command does not run" "$out" ""
contains "what to do" "$err" "guardian=off"
run env LD_LIBRARY_PATH="$work/alone" "$DLOCK" run -n -b "$DLOCK_URI${sign}guardian=off" "$name" echo ran
equal "the lock was released, and it runs without one" "$status $out" "0 ran"

finish
