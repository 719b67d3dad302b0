#!/bin/bash
# Builds and tests dlock on a Debian or Ubuntu without preparation: installs missing packages, starts private servers on
# free loopback ports, runs the tests with CTest and stops the servers again.
#
#     tests/run.sh [--preset dev|asan-ubsan|tsan] [--build FOLDER] [--long] [LABEL or PATTERN]
#
# LABEL is one of CTest's labels (`unit`, `conformance`, `redis`, …), PATTERN a regular expression for names of tests,
# as in `tests/run.sh conformance.redis/fifo`. Without one all tests run. --build tests a folder that is configured
# already. With the label `faults` it also prints tables of the faults that were tried and their results. With --long
# these tests take an hour instead of 10 seconds, at full speed, and those of `simulation` a night instead of a minute.
# With the label `bench` the servers are also compared with each other; see docs/benchmarks.md.
#
#     tests/run.sh mutations   breaks the core in about 40 ways, and fails unless the simulation notices each
#     tests/run.sh coverage    runs all tests in a build with counters, and prints the lines of core/ that no test runs
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/packages.sh

usage() {
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' tests/run.sh
    exit "$1"
}

preset=dev build= selection= seconds=300
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
    -h | --help) usage 0 ;;
    -*) usage 64 >&2 ;;
    coverage) preset=coverage ;;
    mutations) exec python3 -B tests/simulation/mutations.py ;;
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
# shellcheck disable=SC2086
need_test_packages $backends

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
echo "== build ($build)"
cmake --build "$build" -- --quiet

# The servers' data are in memory, if there is enough and programs may be executed there. The servers flush to the disk,
# and on a disk that compilers write to a flush sometimes takes half a second, by which locks with short leases are
# lost.
roomy() { [ "$(df --output=avail "$1" | tail -n 1)" -gt $((4 << 20)) ] && ! findmnt -n -o OPTIONS -T "$1" | grep -q noexec; }
top=${TMPDIR:-/tmp}
if [ -z "${TMPDIR:-}" ] && [ "$selection" != bench ] && roomy /dev/shm 2>/dev/null; then top=/dev/shm; fi
folder=$(mktemp -d "$top/dlock-tests.XXXXXX")
chmod a+x "$folder" # for servers and tests that run as another user
servers=() shared=

stop_servers() {
    local status=$? server
    trap - EXIT
    trap '' INT TERM HUP
    if [ -n "$shared" ]; then echo 1 >"$autogroup" || true; fi
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
        if [ -e "$folder/ctest.log" ]; then
            tests/failed.sh output "$folder/ctest.log" 40 || true
            tests/failed.sh names "$folder/ctest.log" || true
        fi
    fi
    rm -rf "$folder"
    exit "$status"
}
trap stop_servers EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# Where the kernel shares the processors between sessions (autogroup), all tests together have as much as one connection
# of PostgreSQL, which begins a session, and a session beside them as much as both: threads then wait for a processor for
# up to half a second. As root this is switched off meanwhile, for the whole machine.
autogroup=/proc/sys/kernel/sched_autogroup_enabled
if [ -w "$autogroup" ] && [ "$(cat "$autogroup")" = 1 ] && echo 0 2>/dev/null >"$autogroup"; then shared=1; fi

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
read -r -a servers <<<"$backends"
case " $backends " in *" redis "*) servers+=(redis_cluster) ;; esac
starting=()
for server in "${servers[@]}"; do
    tests/servers/"$server".sh start "$folder" >"$folder/$server.settings" &
    starting+=("$!")
done
for pid in "${starting[@]}"; do wait "$pid" || exit; done
while IFS= read -r setting; do export "${setting?}"; done < <(cat "$folder"/*.settings)
# atexit_sleep_ms=0: other processes wait for a process's end, as `dlock run` does for its guardian.
export TSAN_OPTIONS="suppressions=$PWD/tests/tsan.supp halt_on_error=1 second_deadlock_stack=1 atexit_sleep_ms=0 ${TSAN_OPTIONS:-}"
export LSAN_OPTIONS="suppressions=$PWD/tests/lsan.supp print_suppressions=0 ${LSAN_OPTIONS:-}"
export UBSAN_OPTIONS="print_stacktrace=1 ${UBSAN_OPTIONS:-}"

# Number of tests at the same time. Tests with much work count as several (PROCESSORS), or leave the processors to the
# others if time does not matter to them (nice). Tests that take longest, or count as several, begin first (COST). Tests
# that only wait (dlock_waits), and the short cases of the conformance suite, have places of their own from the
# beginning to the end; the other tests work more, and have the rest. So the processors are as busy at the beginning,
# when the long tests run, as later.
at_once=26 waits=11 cases=5
case "$preset" in
asan-ubsan | tsan) at_once=16 waits=9 cases=3 ;;  # with sanitizers tests work more
coverage) at_once=4 waits=2 cases=1 ;;            # every process writes a hundred files at its end
esac
if [ "$selection" = conformance ]; then cases=$((at_once - waits)); fi
pool() { echo '"'"$1"'": [{"id": "places", "slots": '"$2"'}]'; }
echo '{"version": {"major": 1, "minor": 0}, "local": [{'"$(pool waits $waits), $(pool cases $cases)"'}]}' \
    >"$folder/places.json"
arguments=(--test-dir "$build" --output-on-failure --no-tests=error --timeout "$seconds" -j "$at_once"
    --resource-spec-file "$folder/places.json")
if [ -n "$selection" ]; then
    if ctest --test-dir "$build" --print-labels | sed 's/^ *//' | grep -qxF -- "$selection"; then
        arguments+=(-L "^$selection\$")
    else
        arguments+=(-R "$selection")
    fi
fi
echo "== test${selection:+ ($selection)}"
if [ "$preset" = coverage ]; then
    # Tests that run as another user cannot write the counters; GCOV_ERROR_FILE keeps their complaints out of standard
    # error. Tests that measure time may fail in this build.
    find "$build" -name '*.gcda' -delete
    GCOV_ERROR_FILE=/dev/null ctest "${arguments[@]}" 2>&1 | tee "$folder/ctest.log" || true
    echo "== lines of core/"
    gcovr --root . --object-directory "$build" --filter core/ --fail-under-line 95
    exit
fi
print_faults() {
    if [ "$selection" = faults ]; then python3 tests/faults/table.py "$DLOCK_TEST_DIR/faults"; fi
}
print_standstills() {
    local count
    count=$(grep -c 'the machine stood still' "$build/Testing/Temporary/LastTest.log" || true)
    if [ "$count" != 0 ]; then echo "== tests that were run again, since the machine stood still: $count"; fi
}
if ! ctest "${arguments[@]}" 2>&1 | tee "$folder/ctest.log"; then
    print_faults
    print_standstills
    exit 1
fi
print_faults
print_standstills
if [ "$selection" = bench ]; then
    echo "== compare"
    tests/bench/compare.sh "$build"
fi
echo "== all passed"
