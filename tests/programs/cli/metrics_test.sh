#!/bin/bash
# metrics, and run --metrics: complete and correct, whatever the names, and never an obstacle to a command.
. "$(dirname "$0")/../../support/cli.sh"

reader=$(dirname "$0")/prometheus.py
read_out() { python3 -B "$reader" "$@" <"$work/out" 2>&1; }  # what `run` got
read_file() { [ ! -e "$file" ] || python3 -B "$reader" "$@" <"$file" 2>&1; } # what --metrics wrote
# sound read_out|read_file: also to others; the readings above check all of it as well
sound() {
    local words
    words=$("$1") || fail "this is not Prometheus' format" "$words"
}
file=$work/job.prom
shows() { [ "$(read_file "$1")" = "$2" ]; }

describe "metrics: nothing is held"
run "$DLOCK" metrics
equal "status" "$status $err" "0 "
sound read_out
equal "the server" "$(read_out dlock_up,server="$DLOCK_URI") $(read_out dlock_locks_held)" "1 0"
run "$DLOCK" metrics nightly
equal "a lock by its name" "$status $(read_out dlock_lock_held,name=nightly)" "0 0"

describe "metrics: locks of all kinds, with names that are awkward"
hold 'quo"te\back'
hold $'\xff a'
hold $'\xfe a'
hold -p 3 fetch
permit=$pid
hold -s readers
hold -s readers
both() { [ "$("$DLOCK" inspect --json readers | grep -o '"name": "readers", "token"' | wc -l)" = 2 ]; }
within 10 "two readers" both
run "$DLOCK" metrics
equal "status" "$status $err" "0 "
sound read_out
equal "a quoted name" "$(read_out 'dlock_lock_held,name=quo\"te\\back')" 1
equal "names that no label can tell apart are one" "$(read_out $'dlock_lock_holders,name=\xef\xbf\xbd a,mode=exclusive')" 2
equal "locks" "$(read_out dlock_locks_held)" 4
equal "readers" "$(read_out dlock_lock_holders,name=readers,mode=shared)" 2
equal "permits" "$(read_out dlock_lock_holders,name=fetch,mode=permit) of $(read_out dlock_lock_permits)" "1 of 3"
equal "no lease, but a holder" "$(read_out dlock_lock_remaining_seconds,name=fetch)" +Inf
equal "the fence" "$(read_out dlock_lock_fence,name=fetch)" \
    "$("$DLOCK" inspect --json fetch | sed 's/.*"fence": "\([0-9]*\)".*/\1/')"
equal "files have no queue" "$(read_out dlock_lock_waiters)" ""
run "$DLOCK" metrics --prefix fe
equal "a prefix" "$(read_out dlock_lock_held | wc -w) $(read_out dlock_locks_held)" "1 1"
run "$DLOCK" metrics fetch none
equal "names" "$(read_out dlock_lock_held,name=fetch) $(read_out dlock_lock_held,name=none) $(read_out dlock_locks_held)" "1 0 1"
run "$DLOCK" metrics $'\xff b' $'\xfe b' $'\xff a'
sound read_out
equal "free names that no label can tell apart are one" \
    "$(read_out dlock_lock_held,name=$'\xef\xbf\xbd b') $(read_out dlock_lock_held,name=$'\xef\xbf\xbd a')" "0 1"
kill "$permit"

describe "metrics --listen"
begin "$DLOCK" metrics --listen 0
within 10 "it says where" grep -q "serving http://127.0.0.1:" "$work/bg.err"
where=$(sed -n 's/.*serving //p' "$work/bg.err")
port=${where##*:} port=${port%/*}
curl -fsS "$where" >"$work/out"
sound read_out
equal "the same page" "$(read_out dlock_locks_held)" 3
equal "how long one is held" "$(read_out dlock_lock_held_seconds,name=readers | grep -c .)" 1
equal "HEAD has no body" "$(curl -fsSI "$where" | grep -c '^Content-Length: [1-9]')" 1
equal "another path" "$(curl -s -o /dev/null -w '%{http_code}' "$where/other")" 404
equal "another method" "$(curl -s -o /dev/null -w '%{http_code}' -d x "$where")" 405
exec {idle}<>"/dev/tcp/127.0.0.1/$port" # sends nothing
printf 'nonsense\n\n' >"/dev/tcp/127.0.0.1/$port"
equal "beside readers that send nothing, or nonsense" "$(curl -fsS -m 20 "$where" | grep -c '^dlock_up')" 1
exec {idle}>&-
gives "the port is in use" 64 "$DLOCK" metrics --listen "$port"
contains "the reason" "$err" "Address already in use"
gives "no port" 64 "$DLOCK" metrics --listen 127.0.0.1:http
stop "$pid"

describe "metrics: mistakes, and no server"
run "$DLOCK" metrics --prefix a a
equal "prefix and name" "$status $out ${err%%$'\n'*}" "64  dlock: give either --prefix or lock names"
run "$DLOCK" metrics a a
equal "a name twice" "$status $out ${err%%$'\n'*}" '64  dlock: the lock "a" is given twice'
prints "no backend" "69 " "$DLOCK" metrics -b nosuchserver:x

describe "run --metrics: one run"
(
    umask 027
    exec "$DLOCK" run --metrics "$file" job -- sh -c "until [ -e '$work/go' ]; do sleep 0.05; done; exit 3"
) 2>"$work/bg.err" &
pid=$!
started+=("$pid")
within 10 "it is held" shows dlock_run_lock_held,name=job 1
equal "a grant" "$(read_file dlock_acquires_total) $(read_file dlock_run_waiting) $(read_file dlock_run_last_exit_status)" "1 0 "
equal "for others to read, as umask has it" "$(stat -c %a "$file")" 640
first=$(read_file dlock_run_duration_seconds)
longer() { [ "$(read_file dlock_run_duration_seconds)" != "$first" ]; }
within 20 "it is written again" longer
touch "$work/go"
ends "the command's status" 3 "$pid"
equal "the end" "$(read_file dlock_run_lock_held) $(read_file dlock_run_last_exit_status) $(read_file dlock_run_last_success_time_seconds)" "0 3 "

describe "run --metrics: numbers go on"
hold job
run "$DLOCK" run --metrics "$file" -w 0.3 job -- true
sound read_file
equal "gave up" "$status $(read_file dlock_acquires_total) $(read_file dlock_acquire_failures_total)" "1 1 1"
equal "after a wait" "$(read_file dlock_wait_seconds_count) $(read_file dlock_wait_seconds_bucket,le=0.2048) $(read_file dlock_wait_seconds_bucket,le=+Inf)" "1 0 1"
equal "the last run with the lock" "$(read_file dlock_run_last_exit_status)" 3
stop "$pid"
run "$DLOCK" run --metrics "$file" job -- true
equal "a second grant" "$status $(read_file dlock_acquires_total) $(read_file dlock_wait_seconds_count) $(read_file dlock_run_last_exit_status)" "0 2 1 0"
now=$(date +%s)
last=$(read_file dlock_run_last_success_time_seconds)
if [ $((now - ${last%.*})) -gt 60 ]; then fail "the time of the last success" "$last, and it is $now"; fi
begin "$DLOCK" run --metrics "$file" -l 3 job -- sleep 1000
within 10 "it is held" shows dlock_run_lock_held 1
"$DLOCK" break job >"$work/out"
ended "$pid"
equal "a loss" "$status $(read_file dlock_losses_total) $(read_file dlock_run_last_exit_status)" "75 1 75"
run "$DLOCK" run --metrics "$file" 'other "job"' -- true
equal "another lock begins at 0" "$status $(read_file 'dlock_acquires_total,name=other \"job\"') $(read_file dlock_losses_total)" "0 1 0"
printf '# HELP dlock_acquires_total \ndlock_acquires_total{server="%s",name="job"} 99999999999999999999999\n' "$DLOCK_URI" >"$file"
run "$DLOCK" run --metrics "$file" job -- true
equal "a damaged file does no harm" "$status $err" "0 "

describe "run --metrics: runs of a job at the same time"
rm "$file"
# shellcheck disable=SC2016
step='until [ -e "$1" ]; do sleep 0.05; done; exit "$2"'
begin "$DLOCK" run --metrics "$file" job -- sh -c "$step" sh "$work/next" 3
first=$pid
within 10 "it is held" shows dlock_run_lock_held 1
run "$DLOCK" run -n -E 0 --metrics "$file" job -- true
run "$DLOCK" run -n -E 0 --metrics "$file" job -- true
equal "two were refused, and it is held" "$status $(read_file dlock_acquire_failures_total) $(read_file dlock_run_lock_held)" "0 2 1"
before=$(read_file dlock_run_duration_seconds)
longer() { [ "$(read_file dlock_run_duration_seconds)" != "$before" ]; }
within 20 "its holder writes again" longer
equal "they are still counted" "$(read_file dlock_acquires_total) $(read_file dlock_acquire_failures_total) $(read_file dlock_run_lock_held)" "1 2 1"
begin "$DLOCK" run --metrics "$file" job -- sh -c "$step" sh "$work/last" 5
second=$pid
within 10 "one waits" shows dlock_run_waiting 1
begin "$DLOCK" run -w 0.3 --metrics "$file" job -- true
ended "$pid"
equal "one has waited in vain" "$status $(read_file dlock_acquire_failures_total) $(read_file dlock_wait_seconds_count)" "1 3 1"
touch "$work/next"
ended "$first"
within 10 "the next one has it" shows dlock_acquires_total 2
equal "the end of the first does not make it free" "$status $(read_file dlock_run_lock_held) $(read_file dlock_run_last_exit_status)" "3 1 3"
touch "$work/last"
ended "$second"
sound read_file
equal "all are counted" "$status $(read_file dlock_acquires_total) $(read_file dlock_acquire_failures_total) $(read_file dlock_wait_seconds_count)" "5 2 3 2"
equal "the end" "$(read_file dlock_run_lock_held) $(read_file dlock_run_waiting) $(read_file dlock_run_last_exit_status)" "0 0 5"
many=()
for i in {1..20}; do
    "$DLOCK" run -p 20 --metrics "$file" permits -- true 2>>"$work/many.err" &
    many+=("$!")
done
wait "${many[@]}"
equal "twenty at once, of one file" "$(read_file dlock_acquires_total,name=permits) $(<"$work/many.err")" "20 "
equal "and nothing is left beside it" "$(echo "$file"*)" "$file"
if [ -n "${DLOCK_TEST_PRELOAD:-}" ]; then # not under sanitizers, whose libraries have to be loaded first
    rm "$file"
    mkfifo "$work/pause"
    begin env "LD_PRELOAD=$DLOCK_TEST_PRELOAD" "DLOCK_TEST_PAUSE=$work/pause" \
        "$DLOCK" run -p 2 --metrics "$file" permits -- true
    has_written() { find "$work" -path "$file.$pid.*" -size +0 | grep -q .; }
    within 10 "it has found no file, and written its own" has_written
    run "$DLOCK" run -p 2 --metrics "$file" permits -- true
    equal "another run writes the file first" "$status $(read_file dlock_acquires_total)" "0 1"
    exec 8<>"$work/pause"
    ended "$pid"
    exec 8>&-
    equal "both first runs are counted" "$status $(read_file dlock_acquires_total) $(<"$work/bg.err")" "0 2 "
    equal "and nothing is left beside the file" "$(echo "$file"*)" "$file"
fi
sed 's/^\(dlock_run_lock_held{.*} \).*/\11/; s/^\(dlock_run_start_time_seconds{.*} \).*/\11000/' "$file" >"$work/killed"
mv "$work/killed" "$file"
equal "a run that was killed" "$(read_file dlock_run_lock_held)" 1
hold permits
run "$DLOCK" run -n -E 0 --metrics "$file" permits -- true
equal "does not hold it for ever" "$status $(read_file dlock_run_lock_held)" "0 0"
stop "$pid"

describe "run --metrics: two processes may have the same number, in two containers"
if unshare --pid --fork true 2>/dev/null; then
    echo "of the other one" >"$file.1" # the name that the number of the process alone would make
    run unshare --pid --fork "$DLOCK" run -p 2 --metrics "$file" permits -- true
    equal "each has its own temporary file" "$status $err$(cat "$file.1")" "0 of the other one"
    rm -f "$file.1"
else
    echo "# there is no PID namespace for this user: this is not tested"
fi

describe "run --metrics: what cannot be written is said before the lock is asked for"
refuses() { # MESSAGE FILE
    run "$DLOCK" run --metrics "$2" job -- touch "$work/ran"
    equal "$2" "$status $out$err" "74 dlock: --metrics: $1"
    if [ -e "$work/ran" ]; then fail "the command ran"; fi
}
echo precious >"$work/mine"
ln -s "$work/nowhere" "$work/link"
refuses "cannot write \"$work/none/a\": No such file or directory" "$work/none/a"
refuses "cannot replace \"$work\": it is not a regular file" "$work"
refuses "cannot replace \"$work/link\": it is not a regular file" "$work/link"
refuses "cannot replace \"$work/mine\": it was not written by dlock run --metrics; remove it" "$work/mine"
equal "and nothing is lost" "$(<"$work/mine")" precious
run prlimit --fsize=400 "$DLOCK" run -b "$DLOCK_URI?guardian=off" --metrics "$work/big" job -- touch "$work/ran"
equal "too large a file" "$status $out$err" "74 dlock: --metrics: cannot write \"$work/big\": File too large"
equal "none is left" "$(echo "$work"/big*) $(echo "$work"/ran*)" "$work/big* $work/ran*"

describe "nor does a log that may not grow end a run"
printf '%390s' '' >"$work/log"
prlimit --fsize=400 "$DLOCK" run -v -b "$DLOCK_URI?guardian=off" job -- sh -c 'exit 7' 2>>"$work/log"
equal "the command's status" "$?" 7

describe "run --metrics: what fails later is a warning"
mkdir "$work/gone"
begin "$DLOCK" run --metrics "$work/gone/a" job -- sh -c "until [ -e '$work/on' ]; do sleep 0.05; done; exit 5"
within 10 "held" is_held job
rm -r "$work/gone"
touch "$work/on"
ended "$pid"
equal "a folder that went away" "$status $(<"$work/bg.err")" \
    "5 dlock: cannot write the metrics to \"$work/gone/a\": No such file or directory"
rm "$file"
begin "$DLOCK" run --metrics "$file" job -- sh -c "until [ -e '$work/full' ]; do sleep 0.05; done; exit 6"
within 10 "it is held" shows dlock_run_lock_held 1
prlimit --pid "$pid" --fsize=400 # as a full disk: some bytes, then an error; the complaint has room
touch "$work/full"
ended "$pid"
equal "a full disk" "$status $(<"$work/bg.err")" "6 dlock: cannot write the metrics to \"$file\": File too large"
equal "what was there is whole" "$(read_file dlock_run_lock_held)" 1
equal "and nothing is left beside it" "$(echo "$file"*)" "$file"

if "$DLOCK" backends --json | grep -q '"name": "redis"'; then
    use_redis
    describe "on a server with leases and a queue"
    hold queue
    begin "$DLOCK" run queue -- true
    within 10 "one waits" has_waiters queue 1
    run "$DLOCK" metrics
    equal "waiters" "$status $(read_out dlock_lock_waiters,name=queue)" "0 1"
    remaining=$(read_out dlock_lock_remaining_seconds,name=queue)
    if [ "${remaining%.*}" -gt 10 ]; then fail "the lease" "$remaining"; fi
    stop_redis
    run "$DLOCK" metrics
    equal "a server that is away" "$status $(read_out dlock_up) $(read_out dlock_locks_held)" "69 0 "
    run "$DLOCK" run --metrics "$file" job -- true
    equal "is a failure, too" "$status $(read_file dlock_acquire_failures_total) $(read_file dlock_run_waiting)" "69 1 0"
fi

finish
