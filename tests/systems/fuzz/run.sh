#!/bin/bash
# Builds the fuzzers and runs them, as many at a time as there are processors. Each starts from its corpus in the tree.
# Inputs that fail are kept in a folder that is named at the end.
#
#     tests/systems/fuzz/run.sh [--seconds N | --long] [NAME…]      runs each for N seconds, default 30; --long: for an hour
set -uo pipefail
cd "$(dirname "$0")/../../.." || exit

seconds=30
case "${1-}" in
--seconds) seconds=$2 && shift 2 ;;
--long) seconds=3600 && shift ;;
-*) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' tests/systems/fuzz/run.sh >&2 && exit 64 ;;
esac
names=("$@")
if [ $# = 0 ]; then mapfile -t names < <(ls tests/systems/fuzz/corpus); fi

cmake -S . -B build-fuzz -G Ninja -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ \
    -DCMAKE_BUILD_TYPE=RelWithDebInfo -DDLOCK_WERROR=ON -DDLOCK_CHECK_STATES=ON -DDLOCK_FUZZ=ON \
    -DDLOCK_SANITIZE=fuzzer-no-link,address,undefined >build-fuzz.log 2>&1 || { cat build-fuzz.log && exit 1; }
rm -f build-fuzz.log
cmake --build build-fuzz --target "${names[@]/#/fuzz-}" -- --quiet || exit

finds=$(mktemp -d "${TMPDIR:-/tmp}/dlock-fuzz.XXXXXX")
# one NAME: runs a fuzzer. Prints one line if it found nothing, else the end of its output.
one() {
    local name=$1 options=("-max_total_time=$seconds" -max_len=1500 -timeout=60 -rss_limit_mb=1500 -print_final_stats=1 -verbosity=0)
    if [ -e "tests/systems/fuzz/$name.dict" ]; then options+=("-dict=tests/systems/fuzz/$name.dict"); fi
    mkdir "$finds/$name"
    if "build-fuzz/bin/fuzz-$name" "${options[@]}" "-artifact_prefix=$finds/$name-" "$finds/$name" \
        "tests/systems/fuzz/corpus/$name" >"$finds/$name.log" 2>&1; then
        sed -n 's/^stat::number_of_executed_units: */fuzz\/'"$name"': nothing found in so many runs: /p' "$finds/$name.log"
    else
        tail -n 60 "$finds/$name.log"
        echo "fuzz/$name FAILED: add $finds/$name-* to tests/systems/fuzz/corpus/$name with the correction"
        return 1
    fi
}
export -f one
export finds seconds
if printf '%s\n' "${names[@]}" | xargs -P "$(nproc)" -I{} bash -c 'one {}'; then
    rm -rf "$finds"
else
    exit 1
fi
