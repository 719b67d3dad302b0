#!/bin/bash
# Shows dlock at work, on a Debian or Ubuntu without preparation and without a server: installs missing packages, builds
# into build/quickstart, and lets several processes contend for one lock on files. Fails if an update was lost or a
# fence did not grow.
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/packages.sh

fail() {
    echo "quickstart: FAILED: $*" >&2
    exit 1
}

folder=$(mktemp -d "${TMPDIR:-/tmp}/dlock-quickstart.XXXXXX")
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# ---- packages: only CMake and a C compiler, since locks on files need no client library

missing=()
has() { command -v "$1" >/dev/null; }
if ! has cmake; then missing+=(cmake); fi
if ! has ninja && ! has make; then missing+=(ninja-build); fi
if ! has cc && ! has gcc && ! has clang; then missing+=(gcc); fi
if [ ! -e /usr/include/pthread.h ]; then missing+=(libc6-dev); fi
if [ ${#missing[@]} -gt 0 ]; then need_packages "${missing[@]}"; fi

# ---- build, in a folder of its own, since tests/run.sh configures build/ with other options

build=build/quickstart
configure() {
    local options=(-DCMAKE_BUILD_TYPE=Release -DDLOCK_BACKENDS=file -DDLOCK_TESTS=OFF -DDLOCK_TOOLS=OFF -DDLOCK_MAN=OFF)
    if [ ! -e "$build/CMakeCache.txt" ] && has ninja; then options+=(-G Ninja); fi
    cmake -S . -B "$build" "${options[@]}"
}
echo "== build ($build)"
log=$folder/build.log
if ! configure >"$log" 2>&1; then # the folder may belong to another source tree or generator
    rm -rf "$build"
    configure >"$log" 2>&1 || { cat "$log" >&2; fail "CMake cannot configure the build"; }
fi
cmake --build "$build" -j "$(nproc)" >"$log" 2>&1 || { cat "$log" >&2; fail "the build failed"; }
dlock=$build/bin/dlock
export DLOCK_URI=file:$folder/locks

# ---- C: several processes add to one number in one file, under one lock (examples/counter.c)

processes=4 rounds=50 total=200
echo "== $processes processes, $rounds updates each, one file, one lock (examples/counter.c)"
pids=()
for ((i = 0; i < processes; i++)); do
    "$build/examples/counter" "$DLOCK_URI" "$folder/number" "$rounds" >>"$folder/updates" &
    pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid" || fail "a process did not finish its updates"; done

show() { # FILE, which has "fence value process" for each update, in the order in which the lock was held
    printf '   %-20s %6s %8s\n' fence value process
    awk -v last="$(wc -l <"$1")" 'NR <= 4 || NR > last - 3 { printf "   %-20s %6s %8s\n", $1, $2, $3 }
        NR == 5 { print "   …" }' "$1"
    awk '{ holders[$3]; if (NR > 1 && $3 != before) changes++; before = $3 }
        END { for (h in holders) n++; printf "   %d updates by %d processes; the lock changed hands %d times\n", NR, n, changes }' "$1"
}
# Fences have up to 20 digits, more than awk's numbers: fences of equal length are compared as text.
check() { # FILE TOTAL
    awk -v total="$2" '
        NR > 1 && (length($1) < length(before) || (length($1) == length(before) && $1 "" <= before "")) {
            print "the fence of update " NR " is " $1 ", not greater than " before; bad = 1 }
        $2 != NR { print "update " NR " wrote " $2 " instead of " NR; bad = 1 }
        { before = $1 }
        END { if (NR != total) { print NR " updates instead of " total; bad = 1 } exit bad }' "$1"
}
show "$folder/updates"
check "$folder/updates" "$total" || fail "an update was lost or a fence did not grow: see above"
read -r value _ <"$folder/number"
[ "$value" = "$total" ] || fail "the file contains $value instead of $total"
echo "   the file contains $value: no update was lost, and every fence is greater than the one before"

# ---- shell: the same with the command, and without a lock for comparison

jobs=20
add_one='n=$(cat "$1"); sleep 0.01; echo $((n + 1)) >"$1"'
race() { # FILE COMMAND…: runs 20 jobs at once
    local file=$1 i pids=()
    shift
    echo 0 >"$file"
    for ((i = 0; i < jobs; i++)); do
        "$@" sh -c "$add_one; if [ -n \"\${DLOCK_FENCE:-}\" ]; then echo \"\$DLOCK_FENCE \$((n + 1)) \$\$\" >>\"\$1.log\"; fi" \
            sh "$file" &
        pids+=($!)
    done
    for i in "${pids[@]}"; do wait "$i" || fail "a job failed"; done
}
echo "== $jobs jobs at once: dlock run number -- sh -c '$add_one'"
race "$folder/with" "$dlock" run number --
show "$folder/with.log"
check "$folder/with.log" "$jobs" || fail "an update was lost or a fence did not grow: see above"
[ "$(cat "$folder/with")" = "$jobs" ] || fail "the file contains $(cat "$folder/with") instead of $jobs"
race "$folder/without" env -u DLOCK_FENCE
echo "   with the lock the file contains $(cat "$folder/with") of $jobs; without it $(cat "$folder/without") of $jobs"

echo "== OK: no update was lost. The command is $dlock; see README.md for the next steps"
