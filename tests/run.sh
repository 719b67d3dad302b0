#!/bin/bash
# Builds and tests dlock on Debian or Ubuntu, with nothing prepared: installs what is missing, starts private servers on
# free loopback ports, runs the tests through CTest and stops the servers again.
#
#     tests/run.sh [--preset dev|asan-ubsan|tsan] [--build FOLDER] [LABEL or PATTERN]
#
# LABEL is one of CTest's (`unit`, `conformance`, `redis`, …), PATTERN a regular expression for names of tests, as in
# `tests/run.sh conformance.redis/fifo`. Without one, everything runs. --build tests a folder that is configured already.
# With the label `bench` the servers are also compared with each other; see docs/benchmarks.md.
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/packages.sh

usage() {
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' tests/run.sh
    exit "$1"
}

preset=dev build= selection=
while [ $# -gt 0 ]; do
    case "$1" in
    --preset | --build)
        if [ $# -lt 2 ]; then usage 64 >&2; fi
        if [ "$1" = --preset ]; then preset=$2; else build=$2; fi
        shift
        ;;
    -h | --help) usage 0 ;;
    -*) usage 64 >&2 ;;
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

folder=$(mktemp -d "${TMPDIR:-/tmp}/dlock-tests.XXXXXX")
chmod a+x "$folder" # for servers and tests that run as another user
servers=()

stop_servers() {
    local status=$? server
    trap - EXIT
    trap '' INT TERM HUP
    for server in "${servers[@]}"; do
        tests/servers/"$server".sh stop "$folder" || true
        if [ "$status" != 0 ] && [ -s "$folder/$server.log" ]; then
            echo "== the last lines of $server's log"
            tail -n 40 "$folder/$server.log"
        fi
    done
    if [ "$status" != 0 ]; then
        echo "== FAILED"
        if [ -e "$folder/ctest.log" ]; then tests/failed.sh names "$folder/ctest.log"; fi
    fi
    rm -rf "$folder"
    exit "$status"
}
trap stop_servers EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

export DLOCK_TEST_DIR=$folder/work
mkdir "$DLOCK_TEST_DIR"
for server in $backends; do
    servers+=("$server")
    settings=$(tests/servers/"$server".sh start "$folder")
    while IFS= read -r setting; do export "${setting?}"; done <<<"$settings"
done
# No process sleeps at its end: others wait for it, as `dlock run` does for its guardian.
export TSAN_OPTIONS="suppressions=$PWD/tests/tsan.supp halt_on_error=1 second_deadlock_stack=1 atexit_sleep_ms=0 ${TSAN_OPTIONS:-}"
export LSAN_OPTIONS="suppressions=$PWD/tests/lsan.supp print_suppressions=0 ${LSAN_OPTIONS:-}"
export UBSAN_OPTIONS="print_stacktrace=1 ${UBSAN_OPTIONS:-}"

# So many at once, since they wait more than they work. Those that do work count as several (PROCESSORS), and those that
# take longest begin first (COST). With a sanitizer all of them work.
at_once=14
if [ -n "$(cache DLOCK_SANITIZE)" ]; then at_once=12; fi
arguments=(--test-dir "$build" --output-on-failure --no-tests=error --timeout 120 -j "$at_once")
if [ -n "$selection" ]; then
    if ctest --test-dir "$build" --print-labels | sed 's/^ *//' | grep -qxF -- "$selection"; then
        arguments+=(-L "^$selection\$")
    else
        arguments+=(-R "$selection")
    fi
fi
echo "== test${selection:+ ($selection)}"
ctest "${arguments[@]}" 2>&1 | tee "$folder/ctest.log"
if [ "$selection" = bench ]; then
    echo "== compare"
    tests/bench/compare.sh "$build"
fi
echo "== all passed"
