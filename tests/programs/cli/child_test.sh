#!/bin/bash
# The environment that `dlock run` gives to a command, and the parts that it does not.
. "$(dirname "$0")/../../support/cli.sh"

describe "the environment"
run env DLOCK_TOKEN=old DLOCK_FENCE=old KEPT=yes "$DLOCK" run 'a name/with "all"' -- \
    sh -c 'echo "$DLOCK_NAME|$KEPT|$DLOCK_URI"; env | grep -c "^DLOCK_\(NAME\|FENCE\|TOKEN\)="; echo $DLOCK_FENCE; echo $DLOCK_TOKEN'
{ read -r names; read -r count; read -r fence; read -r token; } <"$work/out"
equal "name and what was there" "$names" "a name/with \"all\"|yes|$DLOCK_URI"
equal "each once" "$count" 3
if ! [[ $fence =~ ^[1-9][0-9]*$ ]]; then fail "a fence is a number, not '$fence'"; fi
if ! [[ $token =~ ^[A-Za-z0-9._:@-]+$ ]]; then fail "a token, not '$token'"; fi
run env -u DLOCK_URI "$DLOCK" run -b "$DLOCK_URI" outer -- "$DLOCK" run inner -- sh -c 'echo "$DLOCK_URI"'
equal "a run within it uses the server of -b" "$status $out" "0 $DLOCK_URI"
run "$DLOCK" run 'a name/with "all"' -c 'echo $DLOCK_FENCE'
if [ "$out" -le "$fence" ]; then fail "fences grow: $fence, then $out"; fi
run "$DLOCK" run t -- sh -c 'echo "$DLOCK_TOKEN"; echo "$DLOCK_FENCE"; "$0" inspect --json t' "$DLOCK"
{ read -r token; read -r fence; read -r shown; } <"$work/out"
contains "inspect shows the same token" "$shown" "\"token\": \"$token\""
contains "inspect shows the same fence" "$shown" "\"fence\": \"$fence\""

describe "the standard streams and other descriptors"
equal "stdin" "$(echo x | "$DLOCK" run s cat)" x
equal "stderr" "$("$DLOCK" run s -c 'echo e >&2' 2>&1 >/dev/null)" e
ls /proc/self/fd >"$work/without"
"$DLOCK" run s ls /proc/self/fd >"$work/with"
equal "no descriptor of ours" "$(<"$work/with")" "$(<"$work/without")"
equal "but the caller's" "$("$DLOCK" run s -c 'echo x >&9' 9>&1)" x
equal "closed stays closed" "$("$DLOCK" run s -- readlink /proc/self/fd/0 <&-)" ""
"$DLOCK" run s -- sh -c 'readlink /proc/$PPID/fd/2 >"$0"' "$work/fd2" 2>&-
equal "nor does a lock file become our standard error" "$(<"$work/fd2")" /dev/null
"$DLOCK" run s -- sh -c 'exit 4' >&- 2>&- <&-
equal "with nothing open at all" "$?" 4
"$DLOCK" run -b nosuch:x s true >&- 2>&- <&-
equal "and nowhere to complain" "$?" 69

describe "its process group"
run "$DLOCK" run s -- sh -c 'echo $$; ps -o pgid= -p $$'
{ read -r child; read -r group; } <"$work/out"
equal "of its own" "$group" "$child"

describe "signal mask and dispositions"
signals='grep -E "^Sig(Blk|Ign)" /proc/self/status'
equal "as we got them" "$("$DLOCK" run s -c "$signals")" "$(bash -c "$signals")"
for ignored in PIPE XFSZ CHLD HUP TERM,INT,QUIT TSTP,TTOU,TTIN,CONT; do
    equal "ignored $ignored" "$(env --ignore-signal="$ignored" "$DLOCK" run s -- grep -E '^Sig(Blk|Ign)' /proc/self/status)" \
        "$(env --ignore-signal="$ignored" grep -E '^Sig(Blk|Ign)' /proc/self/status)"
done
for blocked in TERM USR1,CHLD,PIPE,HUP; do
    equal "blocked $blocked" "$(env --block-signal="$blocked" "$DLOCK" run s -- grep -E '^Sig(Blk|Ign)' /proc/self/status)" \
        "$(env --block-signal="$blocked" grep -E '^Sig(Blk|Ign)' /proc/self/status)"
done

describe "a lock ends with its command, not with what that left behind"
"$DLOCK" run s -- sh -c 'sleep 1000 >/dev/null 2>&1 & echo $!' >"$work/left"
gives "free again" 0 "$DLOCK" run -n s true
kill "$(<"$work/left")" || fail "what it left behind lives"

describe "as the first process of a container it reaps the orphans"
first() { exec python3 -c 'import ctypes, os, sys
ctypes.CDLL(None).prctl(36, 1) # PR_SET_CHILD_SUBREAPER: orphans come to us, as they do to process 1
os.execv(sys.argv[1], sys.argv[1:])' "$@"; }
zombies() { ps -o stat= --ppid "$1" | grep -c '^Z'; }
leaves_none() { [ "$(zombies "$1")" = 0 ]; }
# shellcheck disable=SC2016
orphans='for i in 1 2 3; do (setsid true &); (sleep 0.1 &); done; echo $PPID; exec sleep "$0"'
first "$DLOCK" run s -- sh -c "$orphans" 1000 >"$work/parent" &
pid=$!
started+=("$pid")
within 10 "it runs" written "$work/parent"
sleep 0.3
within 10 "no zombie stays" leaves_none "$(<"$work/parent")"
is_held s || fail "the command goes on"
kill "$pid"
ends "and its status is its own" 143 "$pid"
cp "$(command -v sleep)" "$work/dlock-guardian" # in place of another program's guardian, which is not waited for
# shellcheck disable=SC2016
first "$DLOCK" run s -- sh -c '(setsid "$0" 0.1 &); sleep 0.5; (setsid true &); sleep 0.3; echo >"$1"; exec sleep 1000' \
    "$work/dlock-guardian" "$work/behind" &
pid=$!
started+=("$pid")
within 20 "it runs" written "$work/behind"
within 10 "another program's guardian stays no more than what ends after it" leaves_none "$pid"
stop "$pid"
if "$DLOCK" backends --json | grep -q '"name": "redis"'; then
    here=$DLOCK_URI
    use_redis
    first "$DLOCK" run s -- sh -c "$orphans" 1000 >"$work/parent" &
    pid=$!
    started+=("$pid")
    within 10 "it runs" has_waiters s 0
    guardian=$(pgrep -P "$pid" dlock-guardian)
    sleep 0.3
    within 10 "no zombie stays beside the guardian" leaves_none "$pid"
    kill -0 "$guardian" || fail "the guardian is spared"
    kill "$pid"
    ends "and the end is as ever" 143 "$pid"

    if unshare --pid --fork true 2>/dev/null; then
        describe "process 1, for which the kernel drops signals, hears them while it connects, too"
        has_socket() {
            inside=$(pgrep -x -P "$pid" dlock) || return
            find "/proc/$inside/fd" -lname 'socket:*' 2>/dev/null | grep -q .
        }
        kill -STOP "$server"
        begin unshare --pid --fork "$DLOCK" run -b "$DLOCK_URI&timeout=60s" s -- echo ran
        within 20 "it connects" has_socket
        kill -TERM "$inside"
        kill -CONT "$server"
        ended "$pid"
        equal "and does not run the command" "$status $(<"$work/bg.out")" "143 "
    else
        echo "# there is no PID namespace for this user: process 1 is not tested"
    fi
    stop_redis
    DLOCK_URI=$here
fi

describe "one at a time"
echo 0 >"$work/counter"
for _ in 1 2 3 4; do
    (for _ in 1 2 3 4 5; do
        "$DLOCK" run counter -- sh -c 'n=$(cat "$0"); sleep 0.01; echo $((n + 1)) >"$0"' "$work/counter" || exit
    done) &
    started+=("$!")
done
wait
equal "no update is lost" "$(<"$work/counter")" 20

finish
