#!/bin/bash
# Tests `dlock bench` in runs that are too short to measure anything: the form of its output, its exit statuses, and
# that it detects a backend that does not exclude. Checks no figure.
. "$(dirname "$0")/../../support/cli.sh"

# run_json ARGUMENT…: runs the bench; sets $status, $err, and $rows, which has a line "WORKLOAD NAME VALUE" for each
# figure; for a peer's row WORKLOAD is WORKLOAD@PEER
run_json() {
    run "${bench[@]}" --json "$@"
    rows=$(python3 -c '
import json, sys
for row in json.load(sys.stdin)["results"]:
    for name, value in row.items():
        print(row["workload"] + (row["peer"] and "@" + row["server"] or ""), name, json.dumps(value))' <<<"$out") || fail "not JSON: $out"
}
# field WORKLOAD NAME: prints the value of the first such row
field() { sed -n "/^$1 $2 /{s///p;q}" <<<"$rows"; }
positive() { # WHAT NUMBER
    case "$2" in
    0 | 0.0 | -* | null | "") fail "$1" "got:      $2" "expected more than 0" ;;
    esac
}
at_most() { # WHAT NUMBER MOST
    if ! awk -v number="$2" -v most="$3" 'BEGIN { exit !(number + 0 <= most) }'; then
        fail "$1" "got:      $2" "expected at most $3"
    fi
}
# A ratio to a floor that got no processor is 0.0.
compared() { # WHAT WORKLOAD
    positive "$1" "$(field "$2" floor_median_ns)"
    case "$(field "$2" ratio)" in "" | null | -*) fail "$1" "got no ratio" ;; esac
}

timed="cycle re-entry hand-over hand-over-10ms distinct one-lock crash crowd command"
workloads="$timed renewal idle"
bench=("$DLOCK" bench --floors= --time 900ms --rounds 1 --threads 4 --processes 3 --waiters 5 --locks 300 --lease 3s)
export DLOCK_PLUGIN_PATH=$DLOCK_TEST_BROKEN

describe "the table"
shown="cycle distinct renewal"
# shellcheck disable=SC2086
gives "status" 0 "${bench[@]}" $(printf -- '--workload %s ' $shown)
equal "nothing on standard error, which is no terminal" "$err" ""
for workload in $shown; do contains "$workload" "$out" $'\n'"$workload"; done
contains "threads in steps" "$out" "distinct/1 "
contains "threads in steps" "$out" "distinct/4 "
contains "the server is its scheme" "$out" " file "
contains "the file system of the locks" "$out" $'\nfile: flock on file system '
equal "lines longer than 100 columns" "$(LC_ALL=C.UTF-8 grep -E '^.{101}' <<<"$out")" ""

describe "JSON and CSV"
run_json "$DLOCK_URI"
equal "status" "$status" 0
for workload in $timed; do
    positive "$workload has samples" "$(field "$workload" samples)"
    positive "$workload has a median" "$(field "$workload" median_ns)"
done
for workload in $workloads; do
    equal "$workload excludes" "$(field "$workload" overlaps) $(field "$workload" time_overlaps)" "0 0"
    equal "$workload loses nothing" "$(field "$workload" lost)" 0
    equal "$workload has growing fences" "$(field "$workload" stale_fences)" 0
    equal "$workload has no error" "$(field "$workload" error)" null
done
equal "the hand-over's processes" "$(field hand-over processes)" 3
equal "the crowd's" "$(field crowd processes)" 5
equal "locks that are held" "$(field renewal locks)" 300
equal "and while others wait" "$(field idle locks)" 300
positive "what everything else uses of the processors" "$(field idle others_cpu)"
positive "what the crowd uses of the processors" "$(field crowd cpu)"
equal "nobody counts commands" "$(field crowd commands_per_grant)" null
positive "somebody was handed the lock" "$(field hand-over-10ms handed_over)"
contains "those on one lock share it" "$(field crowd fairness)" . # 0. or 1.: a worker may have had no grant
equal "those with a lock each share nothing" "$(grep "^distinct fairness [0-9]" <<<"$rows")" ""
contains "the file system of the locks" "$(field cycle on)" "flock on file system "
run "${bench[@]}" --json --workload cycle "$DLOCK_URI" "file:$work/others"
contains "the second of a kind has a number" "$out" '"server": "file#2"'
gives "status" 0 "${bench[@]}" --csv --workload cycle --workload re-entry "$DLOCK_URI"
equal "a heading and two rows" "$(wc -l <<<"$out")" 3
equal "rows have as many fields as the heading" "$(awk -F, '{ print NF }' <<<"$out" | sort -u | wc -l)" 1
contains "one of them" "$out" $'\n"re-entry","file","file",,1,1,'

describe "the program"
mkdir "$work/alone"
cp "$DLOCK" "$work/alone/dlock"
prints "where it is not installed" "69 " env PATH="$work/alone" "$work/alone/dlock" bench --workload cycle
contains "says what to install" "$err" "the package dlock-bench"
cp "$(dirname "$DLOCK")/dlock-bench" "$work/alone/"
run "$work/alone/dlock-bench" --version
equal "its version" "$out" "dlock-bench $("$DLOCK" --version | cut -d' ' -f2)"
run env PATH="$work/alone" "$work/alone/dlock" bench --json --time 50ms --rounds 1 --workload cycle "$DLOCK_URI"
equal "beside the command, without floors" "$status $(grep -c '"floor_median_ns": null' <<<"$out")" "0 1"
chmod a-x "$work/alone/dlock-bench"
if [ "$(id -u)" != 0 ] || ! "$work/alone/dlock-bench" --version 2>/dev/null; then
    run "$work/alone/dlock" bench
    equal "one that cannot be run" "$status $err" "69 dlock: cannot run dlock-bench: Permission denied"
fi
run "$DLOCK" help bench
contains "its help" "$out" "Usage: dlock bench "
run "$DLOCK" bench --json --time 100ms --rounds 1 --workload cycle "$DLOCK_URI"
equal "the floors that came with it" "$status $(grep -c '"floor_median_ns": [1-9]' <<<"$out")" "0 1"

describe "floors"
run_json --floors "$DLOCK_TEST_FLOORS" --workload cycle --workload re-entry "$DLOCK_URI"
equal "status" "$status" 0
compared "the cycle has a floor, and is compared with it" cycle
equal "re-entry has none" "$(field re-entry ratio)" null
for workload in hand-over-10ms distinct; do
    run_json --time 1s --floors "$DLOCK_TEST_FLOORS" --workload "$workload" "$DLOCK_URI"
    positive "the floor of $workload" "$(field "$workload" floor_per_second)"
done
mkdir "$work/floors"
printf '#!/bin/sh\ncat >%s\necho 1000 5\n' "$work/uri" >"$work/floors/floor-file"
chmod +x "$work/floors/floor-file"
run_json --floors "$work/floors" --workload cycle "$DLOCK_URI"
equal "a floor that ends early is left out" "$status $(field cycle ratio)" "0 null"
contains "and it is said" "$err" "has no floor"
equal "it gets the URI" "$(<"$work/uri")" "$DLOCK_URI"
echo 'echo end' >>"$work/floors/floor-file"
run_json --floors "$work/floors" --workload cycle "$DLOCK_URI"
equal "a floor that says all" "$status $err$(field cycle floor_median_ns)" "0 1000"

run_json --floors "$DLOCK_TEST_FLOORS" --workload cycle file:
equal "the default folder has a floor" "$status $(grep -c "^cycle floor_median_ns [1-9]" <<<"$rows")" "0 1"

describe "locks of other software"
# peers: prints the names of the peers that have rows
peers() { sed -n 's/^[a-z0-9-]*@\([^ ]*\) samples .*/\1/p' <<<"$rows" | sort -u | xargs; }
run_json --floors "$DLOCK_TEST_FLOORS" --workload cycle --workload command "$DLOCK_URI"
equal "status" "$status" 0
equal "flock(1)" "$(peers)" "flock(1)"
positive "its samples" "$(field "command@flock(1)" samples)"
contains "what it is" "$(field "command@flock(1)" peer)" "flock(1) of util-linux"
equal "it has no cycle" "$(field "cycle@flock(1)" samples)" ""
run_json --floors "$DLOCK_TEST_FLOORS" --workload cycle "$DLOCK_URI"
equal "where nothing of it is measured" "$(peers)" ""
run "${bench[@]}" --floors "$DLOCK_TEST_FLOORS" --workload command --csv "$DLOCK_URI"
contains "in a row of CSV" "$out" $'\n"command","flock(1)","file","flock(1) of '
mkdir "$work/few"
ln -s "$(type -P true)" "$work/few/true"
run env PATH="$work/few" "${bench[@]}" --floors "$DLOCK_TEST_FLOORS" --workload command "$DLOCK_URI"
equal "status without flock" "$status" 0
lacks "its row" "$out" "flock(1)"
gives "a command that does not end well" 69 env PATH= "${bench[@]}" --workload command "$DLOCK_URI"
contains "is said" "$out" "* command, file: dlock run ended with status 127"

describe "a backend that grants everybody"
run_json --time 1500ms --workload cycle --workload hand-over-10ms --workload one-lock --workload crash everybody:
equal "status" "$status" 1
contains "it is said" "$err" "exclusion was violated"
positive "two held one lock" "$(field hand-over-10ms overlaps)"
positive "by their time stamps, too" "$(field hand-over-10ms time_overlaps)"
positive "and in the crash" "$(field crash overlaps)"
positive "by their time stamps" "$(field crash time_overlaps)"
equal "and nothing else is wrong with it" "$(field crash error)" null
positive "a fence did not grow" "$(field cycle stale_fences)"
equal "threads of one client are kept apart by the library" "$(field one-lock overlaps)" 0
gives "with a table" 1 "${bench[@]}" --workload hand-over-10ms everybody:

describe "what ends after a run does not count"
export EVERYBODY_WAITS_MS=40
run_json --time 150ms --workload cycle everybody:
unset EVERYBODY_WAITS_MS
positive "slow cycles" "$(field cycle grants)"
at_most "in a second" "$(field cycle per_second)" 25
run_json --workload hand-over-10ms "$DLOCK_URI"
at_most "grants in a second, of 10 ms each" "$(field hand-over-10ms per_second)" 100
cat >"$work/peer-slow" <<'END'
import fcntl, sys, time
sys.path.insert(0, sys.argv.pop(1))
path = sys.argv.pop(1)
import peer

class Lock:
    def __init__(self):
        self.file = open(path, "w")
    def take(self):
        fcntl.flock(self.file, fcntl.LOCK_EX)
        time.sleep(0.04)
    def give(self):
        fcntl.flock(self.file, fcntl.LOCK_UN)

peer.main("slow", Lock)
END
for operation in "cycle 150" "hand-over 150 4"; do
    # shellcheck disable=SC2086
    run python3 -B "$work/peer-slow" "$DLOCK_TEST_FLOORS" "$work/slow" $operation <<<"slow:"
    equal "a peer's $operation" "$status $(tail -n 1 <<<"$out")" "0 end"
    at_most "its grants in 150 ms" "$(awk '/^worker/ { n += $2 } END { print n }' <<<"$out")" 3
done

describe "wrong usage, and servers that are away"
for arguments in "--time 0" "--time x" "--workload nonsense" "--rounds 0" "--processes 65" "--threads x" "--waiters 0" "--locks x" \
    "--lease 0" "--lease 99ms" \
    "--json --csv" "--no-such-option" "nonsense" "file:/dev/null/locks"; do
    # shellcheck disable=SC2086
    gives "$arguments" 64 "${bench[@]}" $arguments
    if [ -z "$err" ]; then fail "$arguments says nothing"; fi
    equal "$arguments writes nothing to stdout" "$out" ""
done
run "${bench[@]}" --lease 99ms
equal "the shortest lease is named" "$(head -n 1 <<<"$err")" "dlock: --lease must be at least 100ms, and at most a day"
run "${bench[@]}" --html ""
equal "a page without a name" "$status $out$err" '74 dlock: --html: cannot write "": No such file or directory'
run "${bench[@]}" --html "$work/none/page.html"
equal "a page in no folder" "$status $out$err" "74 dlock: --html: cannot write \"$work/none/page.html\": No such file or directory"
gives "no backend" 69 "${bench[@]}" nosuchserver://user:secret@h
lacks "a password is not repeated" "$err" secret

describe "a terminal"
gives "status" 0 script -qefc "${bench[*]} --workload cycle $DLOCK_URI" /dev/null
contains "shows how far it is" "$out" "%  cycle, file"

describe "an interruption"
begin "${bench[@]}" --time 1000s --rounds 1000 --workload cycle --workload hand-over "file:$work/fresh"
within 60 "it has measured the first one" [ -e "$work/fresh/dlock-bench:hand-over:0" ]
kill -INT "$pid"
ends "status" 130 "$pid"
contains "the table has what was measured until then" "$(<"$work/bg.out")" $'\n'"cycle        file"
equal "and no error" "$(<"$work/bg.err")" "dlock: interrupted: these are the results so far"
if pgrep -P "$pid" >/dev/null; then fail "workers are left behind"; fi
python3 - "$DLOCK" "$DLOCK_URI" <<'END' || fail "Ctrl-C on a terminal"
import os, pty, sys, time
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], ["dlock", "bench", "--time", "60s", "--workload", "hand-over", sys.argv[2]])
out = b""
while b"hand-over" not in out:
    out += os.read(terminal, 4096)
time.sleep(0.3)
os.write(terminal, b"\x03")
try:
    while data := os.read(terminal, 4096):
        out += data
except OSError:
    pass
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
end = out[out.rindex(b"^C"):]
sys.exit(not (status == 130 and b"\r\x1b[KWORKLOAD" in end and b"died" not in end) and repr((status, end)))
END

if "$DLOCK" backends --json | grep -q '"redis", "schemes"'; then
    use_redis
    describe "Redis"
    run_json --floors "$DLOCK_TEST_FLOORS"
    equal "status" "$status" 0
    for workload in $workloads; do equal "$workload has no error" "$(field "$workload" error)" null; done
    for workload in $timed; do positive "$workload has samples" "$(field "$workload" samples)"; done
    positive "the server counts what a grant takes" "$(field crowd commands_per_grant)"
    positive "and what renewals take" "$(field renewal commands_per_second)"
    positive "and what waits add" "$(field idle commands_per_second)"
    compared "the cycle is compared with its floor" cycle
    compared "the hand-over is compared with a PING" hand-over

    describe "redis-py"
    equal "it is there" "$(peers)" redis-py
    for workload in cycle hand-over hand-over-10ms; do
        equal "$workload has no error" "$(field "$workload@redis-py" error)" null
        positive "$workload has samples" "$(field "$workload@redis-py" samples)"
        positive "$workload has grants" "$(field "$workload@redis-py" grants)"
        equal "$workload excludes" "$(field "$workload@redis-py" overlaps)" 0
    done
    at_most "redis-py's grants in a second, of 10 ms each" "$(field hand-over-10ms@redis-py per_second)" 100
    compared "its cycle is compared with the same floor" cycle@redis-py
    equal "the floor" "$(field cycle@redis-py floor_median_ns)" "$(field cycle floor_median_ns)"
    contains "what it is" "$(field cycle@redis-py peer)" "redis.lock.Lock of redis-py "
    equal "it has no threads" "$(field distinct@redis-py samples)" ""
    # stand_in COMMANDS: makes a program in the place of peer-redis-py, which runs COMMANDS
    stand_in() {
        printf '#!/bin/sh\ncase $1 in about) echo "a <b>" ;; *) %s ;; esac\n' "$*" >"$work/floors/peer-redis-py"
        chmod +x "$work/floors/peer-redis-py"
    }
    stand_in "echo 1000 5; echo worker 5 1; echo end"
    run_json --floors "$work/floors" --workload cycle
    equal "what it says is told" "$(field cycle@redis-py median_ns) $(field cycle@redis-py grants)" "1000 5"
    equal "an overlap, too" "$status $(field cycle@redis-py overlaps)" "1 1"
    stand_in "echo 1000 5; echo worker 5 0"
    run_json --floors "$work/floors" --workload cycle
    equal "one that ends early" "$status" 69
    equal "is said to" "$(field cycle@redis-py error)" '"peer-redis-py cycle failed"'
    run "${bench[@]}" --floors "$work/floors" --workload cycle
    contains "what it is stands below the table" "$out" $'\n\nredis-py: a <b>\n'
    printf '#!/bin/sh\nexit 77\n' >"$work/floors/peer-redis-py"
    run_json --floors "$work/floors" --workload cycle
    equal "one that is not installed" "$status $(peers)" "0 "

    describe "a server that stops answering"
    begin "${bench[@]}" --time 6s --workload cycle "$DLOCK_URI&timeout=500ms"
    sleep 1
    kill -STOP "$server"
    ended "$pid"
    kill -CONT "$server"
    equal "status" "$status" 69
    contains "says which" "$(<"$work/bg.out")" "* cycle, redis: "
fi

finish
