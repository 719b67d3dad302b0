# shellcheck shell=bash
# Sourced by every test of the command. DLOCK is the program under test. Locks are files in a folder of the test's own.
#
#     describe "what is tested"         the heading for what follows
#     run COMMAND…                      sets $status, $out and $err
#     equal WHAT ACTUAL EXPECTED        a check; so are the next ones
#     contains WHAT TEXT PART
#     gives WHAT STATUS COMMAND…        runs it, which has to end with this status
#     prints WHAT "STATUS OUT" COMMAND… runs it, which has to end with this status and output
#     within SECONDS WHAT COMMAND…      COMMAND succeeds before SECONDS, or a minute if that is longer, have passed;
#                                       before 2 s if a check has failed: then nothing may come any more
#     begin COMMAND…                    runs it in the background; sets $pid. Its output is in $work/bg.out and bg.err
#     begin_heard COMMAND…              begins it, and waits until it has printed something
#     hold OPTION… NAME                 begins a `dlock run` that holds this lock; sets $pid and $holder
#     ends WHAT STATUS PID              it ends with this status
#     stop PID                          ends it with SIGTERM, and sets $status
#     use_redis, ask WORD…              from here on locks are on a Redis; asks it
#     $heart, last_beat, forget         a command that tells how long it lived
#     can WORD                          whether the server at $DLOCK_URI has this capability
#     finish                            ends the test, with failure if a check failed

# Without a controlling terminal, wherever the tests are started; terminal_test.py has its own terminals.
if [ -z "${DLOCK_TEST_DETACHED:-}" ]; then
    DLOCK_TEST_DETACHED=1 exec setsid --wait bash "$0" "$@"
fi

set -u
: "${DLOCK:?the program under test}"
shopt -s inherit_errexit

work=$(mktemp -d "${DLOCK_TEST_DIR:-${TMPDIR:-/tmp}}/cli.XXXXXX")
export DLOCK_URI=file:$work/locks
failures=0
started=() # what may still run at the end
heading=

# A sanitizer's report must not look like a status that a test expects.
export ASAN_OPTIONS="exitcode=99 ${ASAN_OPTIONS:-}" TSAN_OPTIONS="exitcode=99 ${TSAN_OPTIONS:-}"
export UBSAN_OPTIONS="exitcode=99 ${UBSAN_OPTIONS:-}"

servers=$(dirname "${BASH_SOURCE[0]}")/../servers
at_exit=() # functions

# Whether the process belongs to this test. The number of one that has ended is given to another process as soon as the
# system has used all numbers once, with many tests beside each other within a minute or two.
export DLOCK_TEST_WORK=$work
is_ours() { [[ " $(echo $(jobs -rp) $(jobs -sp)) " = *" $1 "* ]] || grep -qsF "$work" "/proc/$1/environ"; }

clean_up() {
    local status=$? pid action
    trap - EXIT
    exec 2>/dev/null # no word about every process that is killed here
    for pid in "${started[@]}"; do
        if is_ours "$pid"; then kill -KILL "$pid" 2>/dev/null; fi
    done
    for action in "${at_exit[@]}"; do "$action"; done
    if [ "$status" != 0 ]; then # and what nobody knows of, such as the group of a command whose guardian is broken
        unset DLOCK_TEST_WORK
        grep -lzsF "DLOCK_TEST_WORK=$work" /proc/[0-9]*/environ | grep -o '[0-9]*' | xargs -r kill -KILL
    fi
    rm -rf "$work"
    exit "$status"
}
trap clean_up EXIT
trap 'exit 143' TERM

describe() {
    heading=$1
    echo "-- $1"
}

fail() {
    failures=$((failures + 1))
    printf 'FAILED (%s): %s\n' "$heading" "$1"
    shift
    if [ $# -gt 0 ]; then printf '  %s\n' "$@"; fi
}

run() {
    "$@" >"$work/out" 2>"$work/err"
    status=$?
    out=$(<"$work/out")
    err=$(<"$work/err")
}

equal() {
    if [ "$2" != "$3" ]; then fail "$1" "got:      $2" "expected: $3" "stderr:   ${err:-}"; fi
}

contains() {
    case "$2" in
    *"$3"*) ;;
    *) fail "$1" "got:      $2" "expected: …$3…" ;;
    esac
}

lacks() {
    case "$2" in
    *"$3"*) fail "$1" "got:      $2" "expected it without: $3" ;;
    esac
}

gives() {
    run "${@:3}"
    equal "$1" "$status" "$2"
}

prints() {
    run "${@:3}"
    equal "$1" "$status $out" "$2"
}

declare -A capabilities=() # by URI
can() {
    if [ -z "${capabilities[$DLOCK_URI]:-}" ]; then
        capabilities[$DLOCK_URI]=$("$DLOCK" doctor --json |
            python3 -c 'import json, sys; print(*json.load(sys.stdin)["capabilities"])')
    fi
    [[ " ${capabilities[$DLOCK_URI]} " == *" $1 "* ]]
}

within() {
    local deadline=$((SECONDS + 1 + (failures ? 2 : $1 < 60 ? 60 : $1))) what=$2
    shift 2
    until "$@"; do
        if [ "$SECONDS" -ge "$deadline" ]; then
            fail "$what" "not in time: $*"
            return 1
        fi
        sleep 0.03
    done
}

# With default signals: bash has background jobs ignore SIGINT.
begin() {
    rm -f "$work/bg.out" "$work/bg.err" # what an earlier one wrote must not pass for this one's
    env --default-signal=INT,QUIT "$@" >"$work/bg.out" 2>"$work/bg.err" </dev/null &
    pid=$!
    started+=("$pid")
}

begin_heard() {
    begin "$@"
    within 10 "the command runs" written "$work/bg.out"
}

hold() {
    begin "$DLOCK" run "$@" -- sleep 1000
    holder=$pid
    within 10 "held: ${*: -1}" is_held "${*: -1}"
}

# ended PID: sets $status to how it ended, by SIGKILL if it does not end.
ended() {
    local guard
    (read -rt $((failures ? 2 : 60)) <> <(:); kill -KILL "$1") &
    guard=$!
    started+=("$guard")
    wait "$1"
    status=$?
    kill -KILL "$guard" && wait "$guard" # not SIGTERM, for which it may still have our trap
} 2>/dev/null

stop() {
    kill -TERM "$1"
    ended "$1"
}

ends() {
    ended "$3"
    equal "$1" "$status" "$2"
}

written() { [ -s "$1" ]; }
gone() { ! kill -0 "$1" 2>/dev/null; }
is_held() { "$DLOCK" inspect "$1" >/dev/null 2>&1; }
is_free() { [ "$("$DLOCK" inspect "$1" 2>&1)" = "$1  free" ]; }
state_of() { sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "/proc/$1/status" 2>/dev/null; }
gone_or_zombie() { case "$(state_of "$1")" in "" | Z) ;; *) false ;; esac }
is_stopped() { [ "$(state_of "$1")" = T ]; }
runs_again() { case "$(state_of "$1")" in R | S | D) ;; *) false ;; esac }
json_of() { python3 -m json.tool >/dev/null; }

# A script for `bash -c "$heart" "$work/beats"`: writes the time into the file until it is killed. It notes SIGTERM, and
# survives it. It starts no process and waits for none, so that even a busy machine lets it note that at once.
# shellcheck disable=SC2016,SC2034
heart='mkfifo "$0.pause"; exec 9<>"$0.pause"; trap "echo >$0.term" TERM
    while :; do t=${EPOCHREALTIME/[^0-9]/}; echo "${t::-3}" >>"$0"; read -rt 0.02 -u 9; done'
last_beat() { tail -n 1 "$work/beats"; }
forget() { rm -f "$work"/beats "$work"/beats.* "$work/end"; } # of an earlier one
now() { date +%s%3N; }

# use_redis: a Redis of the test's own becomes the server; sets $server to its process and $address. Its standard keys
# are in DLOCK_URI.
use_redis() {
    local settings
    settings=$("$servers/redis.sh" start "$work") || exit 1
    at_exit+=(stop_redis)
    server=$(<"$work/redis.pid")
    address=$(sed -n 's/^DLOCK_TEST_REDIS=//p' <<<"$settings")
    export DLOCK_URI="redis://$address?quarantine=0"
}
stop_redis() {
    kill -CONT "$server" 2>/dev/null
    "$servers/redis.sh" stop "$work"
}
ask() { redis-cli -p "${address#*:}" "$@"; }
waiters() { "$DLOCK" inspect --json "$1" | grep -o '"waiters": [0-9]*' | sort -u | grep -o '[0-9]*'; }
has_waiters() { [ "$(waiters "$1")" = "$2" ]; }

finish() {
    if [ "$failures" -gt 0 ]; then
        echo "$failures checks failed"
        exit 1
    fi
    echo "all passed"
    exit 0
}
