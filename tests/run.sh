#!/bin/bash
# Builds and tests dlock on a Debian or Ubuntu without preparation: installs missing packages, starts private servers on
# free loopback ports, runs the tests with CTest and stops the servers again. Nothing else of the machine changes.
#
#     tests/run.sh [--preset dev|asan-ubsan|tsan] [--build FOLDER] [--full] [--long] [quick | LABEL or PATTERN]
#
# `quick` takes no server, and less than a minute: the core, files, memory, and the command and Python on files.
# LABEL is one of CTest's labels (`unit`, `conformance`, `redis`, …), PATTERN a regular expression for names of tests,
# as in `tests/run.sh conformance.redis/fifo`. Without one, all tests run that a change has to pass: with a sanitizer,
# those of the core and the suites by URI on some backends. --full runs all, in full size, and also those with the label
# `full`. --build tests a folder that is configured already; --only-build tests nothing. With the label `faults` it also prints tables of the faults that were
# tried and their results. With --long these tests take an hour each, at full speed, and those of
# `simulation` a night. With the label `bench` the servers are also compared with each other; see docs/benchmarks.md.
#
# A test that fails is run again when the others are done, alone. If it passes then, it is unsteady: it is named at the end
# and in FOLDER/unsteady.txt, and the run is green. A test that fails twice is red, and so are more than three unsteady ones.
#
#     tests/run.sh mutations [WORD…]   breaks a copy of everything, one line at a time, and fails unless a test notices each
#     tests/run.sh coverage            runs all tests in a build with counters, and prints the lines of core/ that no test runs
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/packages.sh

usage() {
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' tests/run.sh
    exit "$1"
}

preset=dev build= selection= seconds=300 only_build=
while [ $# -gt 0 ]; do
    case "$1" in
    --preset | --build)
        if [ $# -lt 2 ]; then usage 64 >&2; fi
        if [ "$1" = --preset ]; then preset=$2; else build=$2; fi
        shift
        ;;
    --long)
        export DLOCK_FAULTS_SECONDS=${DLOCK_FAULTS_SECONDS:-3600} DLOCK_FAULTS_FAST=1
        export DLOCK_SIMULATION_SECONDS=${DLOCK_SIMULATION_SECONDS:-28800}
        seconds=36000
        ;;
    --full) export DLOCK_FULL=1 DLOCK_SIMULATION_SECONDS=${DLOCK_SIMULATION_SECONDS:-600} ;;
    --only-build) only_build=1 ;;
    -h | --help) usage 0 ;;
    -*) usage 64 >&2 ;;
    coverage) preset=coverage ;;
    mutations)
        selection=mutations
        shift
        mutations=("$@")
        break
        ;;
    *)
        if [ -n "$selection" ]; then usage 64 >&2; fi
        selection=$1
        ;;
    esac
    shift
done

cache() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt" | tr ';' ' '; }

if [ -n "$build" ]; then
    backends="$(cache DLOCK_BACKENDS) $(cache DLOCK_STATIC_BACKENDS)"
else
    backends=$(default_backends)
fi

# The tests without --full and a selection, and their servers: a sanitizer looks for faults of memory and of
# threads, which one backend of each kind shows.
chosen= read_servers=$backends
if [ -z "$selection${DLOCK_FULL:-}" ]; then
    case "$preset" in
    asan-ubsan)
        chosen='^(unit|simulation|fuzz|(conformance|contract)\.(mem|file|redis|postgresql|etcd|zookeeper))/'
        read_servers='mem file redis postgresql etcd zookeeper'
        ;;
    tsan)
        chosen='^(unit|simulation|(conformance|contract)\.(mem|redis|postgresql-session))/'
        read_servers='mem redis postgresql'
        ;;
    esac
fi
# shellcheck disable=SC2086
if [ "$selection" = quick ]; then
    read_servers='file mem'
    need_build_packages $backends
else
    need_test_packages $backends
fi
mutate=(python3 -B tests/systems/mutations/mutations.py)
if [ "$selection" = mutations ]; then
    build=none # they have their own
    read_servers=$("${mutate[@]}" --servers "${mutations[@]}")
fi

if [ -z "$build" ]; then
    case "$preset" in
    dev) build=build ;;
    asan-ubsan) build=build-asan ;;
    tsan) build=build-tsan ;;
    coverage)
        build=build-coverage
        need_packages gcovr
        ;;
    *)
        echo "no such preset: $preset (dev, asan-ubsan, tsan)" >&2
        exit 64
        ;;
    esac
    log=$(mktemp)
    echo "== configure ($preset)"
    if ! cmake --preset "$preset" >"$log" 2>&1; then
        cat "$log" >&2
        exit 1
    fi
    rm -f "$log"
fi
# The programs that a choice of tests runs, and the modules of its servers.
targets() {
    local server
    if [ -z "$chosen" ]; then
        echo all
    else
        echo core/all guardian/all
        for server in $read_servers; do echo "dlock-$server"; done
        # CTest itself leaves out what is not built yet.
        find "$build" -name CTestTestfile.cmake -exec sed -nE 's/^add_test\(\[=\[(.*)\]=\]/\1/p' {} + | grep -E "$chosen" |
            grep -oE "$PWD/$build/bin/[^ \"]+" | sort -u | sed 's|.*/bin/|bin/|'
    fi
}
if [ "$selection" != mutations ]; then
    echo "== build ($build)"
    # shellcheck disable=SC2046
    cmake --build "$build" --target $(targets) -- --quiet
    if [ -n "$only_build" ]; then exit; fi
fi

# The servers' data are in memory, if there is enough and programs may be executed there. The servers flush to the disk,
# and on a disk that compilers write to a flush sometimes takes half a second, by which locks with short leases are
# lost.
roomy() { [ "$(df --output=avail "$1" | tail -n 1)" -gt $((4 << 20)) ] && ! findmnt -n -o OPTIONS -T "$1" | grep -q noexec; }
top=${TMPDIR:-/tmp}
if [ -z "${TMPDIR:-}" ] && [ "$selection" != bench ] && roomy /dev/shm 2>/dev/null; then top=/dev/shm; fi
folder=$(mktemp -d "$top/dlock-tests.XXXXXX")
chmod a+x "$folder" # for servers and tests that run as another user
servers=()

stop_servers() {
    local status=$? server
    trap - EXIT
    trap '' INT TERM HUP
    if [ -n "${suite:-}" ]; then kill "$suite" 2>/dev/null || true; fi
    wait # for servers that are still starting
    for server in "${servers[@]}"; do tests/servers/"$server".sh stop "$folder" & done
    wait
    for server in "${servers[@]}"; do
        if [ "$status" != 0 ] && [ -s "$folder/$server.log" ]; then
            echo "== the last lines of $server's log"
            tail -n 12 "$folder/$server.log" | cut -c 1-200
        fi
    done
    if [ "$status" != 0 ]; then
        echo "== FAILED" # last and briefly, since often only the end of a log is kept
        if [ -n "${log:-}" ]; then
            echo "all that the tests printed: $log"
            if [ -s "$folder/again.log" ]; then tests/support/failed.sh output "$folder/again.log" 40 || true; fi
            tests/support/failed.sh names "$log" || true
        fi
    fi
    if [ -n "${unsteady:-}" ] && [ -s "$unsteady" ]; then
        echo "== unsteady ($unsteady): $(wc -l <"$unsteady"), each with what failed first"
        cat "$unsteady"
    fi
    # The remains of a failed test.
    unset DLOCK_TEST_DIR # so that these commands are not among them
    grep -lzsF "DLOCK_TEST_DIR=$folder/work" /proc/[0-9]*/environ | sed 's|/proc/||; s|/environ||' | xargs -r kill -KILL 2>/dev/null || true
    rm -rf "$folder"
    if [ -n "${begun:-}" ]; then echo "== $((SECONDS - begun)) s"; fi
    exit "$status"
}
trap stop_servers EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# Use Debian's Python, which has the modules that the tests need and starts quickly: the shims of version managers take
# a fifth of a second of processor time, some 900 times.
if [ -x /usr/bin/python3 ]; then
    mkdir "$folder/bin"
    ln -s /usr/bin/python3 "$folder/bin/python3"
    PATH=$folder/bin:$PATH
fi

export DLOCK_TEST_DIR=$folder/work
mkdir "$DLOCK_TEST_DIR"
# Start all servers at once: they wait more than they work.
read -r -a servers <<<"$read_servers"
case " ${servers[*]} " in *" redis "*) servers+=(redis_cluster) ;; esac
starting=()
for server in "${servers[@]}"; do
    tests/servers/"$server".sh start "$folder" >"$folder/$server.settings" &
    starting+=("$!")
done
for pid in "${starting[@]}"; do wait "$pid" || exit; done
while IFS= read -r setting; do export "${setting?}"; done < <(find "$folder" -maxdepth 1 -name "*.settings" -exec cat {} +)
# atexit_sleep_ms=0: other processes wait for a process's end, as `dlock run` does for its guardian.
export TSAN_OPTIONS="suppressions=$PWD/tests/support/tsan.supp halt_on_error=1 second_deadlock_stack=1 atexit_sleep_ms=0 ${TSAN_OPTIONS:-}"
export LSAN_OPTIONS="suppressions=$PWD/tests/support/lsan.supp print_suppressions=0 ${LSAN_OPTIONS:-}"
export UBSAN_OPTIONS="print_stacktrace=1 ${UBSAN_OPTIONS:-}"
if [ "$selection" = mutations ]; then
    begun=$SECONDS
    "${mutate[@]}" "${mutations[@]}" &
    suite=$!
    wait "$suite"
    suite=
    exit
fi

# Number of tests at the same time. Tests with much work take several places (PROCESSORS), or leave the processors to
# the others if time does not matter to them (nice). Tests that take longest, or several places, begin first (COST).
# Tests that only wait (dlock_waits), and the short cases of the conformance suite, have their own places from the
# beginning to the end; the other tests work more, and have the rest. So the processors are as busy at the beginning,
# when the long tests run, as later.
at_once=26 waits=11 cases=5
case "$preset" in
asan-ubsan | tsan) if [ -n "$chosen" ]; then at_once=24 waits=12 cases=8; else at_once=16 waits=9 cases=3; fi ;; # most are cases
coverage) at_once=4 waits=2 cases=1 ;;            # every process writes a hundred files at its end
esac
# On some virtual machines a process takes ten times as long to start, and the suite four times as much processor time. With
# a third of the tests at once the processors are as busy, and leases and sessions are renewed in time.
started_ms() {
    local from=${EPOCHREALTIME/[.,]/}
    for _ in {1..50}; do /bin/true; done
    echo $(((${EPOCHREALTIME/[.,]/} - from) / 1000))
}
if [ "$(printf '%s\n' "$(started_ms)" "$(started_ms)" "$(started_ms)" | sort -n | head -n 1)" -gt 150 ]; then
    echo "== this machine starts processes slowly: a third of the tests at once"
    at_once=$(((at_once + 2) / 3)) waits=$(((waits + 2) / 3)) cases=$(((cases + 2) / 3)) seconds=$((seconds * 3))
fi
if [ "$selection" = conformance ]; then cases=$((at_once - waits)); fi
pool() { echo '"'"$1"'": [{"id": "places", "slots": '"$2"'}]'; }
echo '{"version": {"major": 1, "minor": 0}, "local": [{'"$(pool waits $waits), $(pool cases $cases)"'}]}' \
    >"$folder/places.json"
arguments=(--test-dir "$build" --output-on-failure --no-tests=error --timeout "$seconds"
    --resource-spec-file "$folder/places.json")
if [ -n "$selection" ]; then
    if ctest --test-dir "$build" --print-labels | sed 's/^ *//' | grep -qxF -- "$selection"; then
        arguments+=(-L "^$selection\$")
    else
        arguments+=(-R "$selection")
    fi
else
    if [ -n "$chosen" ]; then arguments+=(-R "$chosen"); fi
    if [ -z "${DLOCK_FULL:-}" ]; then arguments+=(-LE '^full$'); fi
fi
echo "== test${selection:+ ($selection)}"
begun=$SECONDS
if [ "$preset" = coverage ]; then
    # Tests that run as another user cannot write the counters; GCOV_ERROR_FILE keeps their complaints out of standard
    # error. Tests that measure time may fail in this build.
    find "$build" -name '*.gcda' -delete
    GCOV_ERROR_FILE=/dev/null ctest "${arguments[@]}" -j "$at_once" 2>&1 | tee "$folder/ctest.log" || true
    echo "== lines of core/"
    gcovr --root . --object-directory "$build" --filter core/ --fail-under-line 95
    exit
fi
print_faults() {
    if [ "$selection" = faults ]; then python3 -B tests/systems/faults/table.py --matrix "$build/faults.tsv" "$DLOCK_TEST_DIR/faults"; fi
}
terminal=
if [ -t 1 ]; then terminal=1; fi
mkfifo "$folder/output"
# run_tests LOG ARGUMENT…: runs CTest, in the background, since a signal is handled at once only during `wait`.
run_tests() {
    local log=$1 shown status=0
    shift
    tee "$log" <"$folder/output" | awk -v terminal="$terminal" -f tests/support/progress.awk &
    shown=$!
    ctest "$@" >"$folder/output" 2>&1 &
    suite=$!
    wait "$suite" || status=$?
    suite=
    wait "$shown"
    return "$status"
}
# The names of the tests that failed, by the log of CTest.
failed() { tests/support/failed.sh names "$1" 2>/dev/null | sed 's/ ([^()]*)$//'; }

most_unsteady=3 most_again=10
unsteady=$build/unsteady.txt
log=$build/tests.log # all that the tests printed
rm -f "$unsteady"
run_tests "$log" "${arguments[@]}" -j "$at_once" || red=1
grep ' tests passed, ' "$log" || true
if [ -n "${red:-}" ]; then
    again=$(failed "$log" | head -n $most_again | sed 's/[.+]/\\&/g' | paste -sd '|' || true) # none: CTest itself has failed
    if [ -z "$again" ]; then
        cat "$log"
        exit 1
    fi
    echo "== once more, alone: what failed"
    if run_tests "$folder/again.log" --test-dir "$build" --output-on-failure --timeout "$seconds" -R "^($again)\$" -j 1; then
        : >"$folder/twice"
    else
        failed "$folder/again.log" >"$folder/twice"
    fi
    tests/support/failed.sh first "$log" | head -n $most_again | awk -v twice="$folder/twice" '
        BEGIN { while ((getline name <twice) > 0) red[name] }
        { test = $0; sub(/: .*/, "", test) }
        !(test in red)' >"$unsteady"
    print_faults
    if [ -s "$folder/twice" ] || [ "$(wc -l <"$unsteady")" -gt $most_unsteady ]; then exit 1; fi
else
    print_faults
fi
if [ "$selection" = bench ]; then
    echo "== compare"
    tests/programs/bench/compare.sh "$build"
fi
echo "== all passed"
