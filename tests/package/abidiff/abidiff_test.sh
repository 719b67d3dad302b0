#!/bin/bash
# abidiff_test.sh [COMMIT]: compares the binary interface of libdlock.so with that of COMMIT, or of the last tag (v…). Programs
# that were built against that one must run with this one, as long as the soname is the same. First it sees that a
# function that is missing would be noticed.
set -euo pipefail
. "$(dirname "$0")/../common.sh" abidiff
cd "$source"
need_packages cmake ninja-build gcc libc6-dev git abigail-tools binutils

build() { # SOURCE NAME: the library without backends
    quietly cmake -S "$1" -B "$folder/$2" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DDLOCK_BACKENDS= -DDLOCK_TESTS=OFF -DDLOCK_TOOLS=OFF \
        -DDLOCK_EXAMPLES=OFF
    quietly cmake --build "$folder/$2" --target dlock -- --quiet
}
soname() { readelf -d "$1/lib/libdlock.so" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p'; }
compare() { # NAME HEADERS: with what is in the tree now
    abidiff --no-added-syms --headers-dir1 "$2" --headers-dir2 include/dlock "$folder/$1/lib/libdlock.so" "$folder/now/lib/libdlock.so"
}

build . now
missing=$folder/missing
mkdir "$missing"
git ls-files -z | tar -c --null -T - | tar -x -C "$missing"
sed -i '/^ *dlock_version;/d' "$missing/core/dlock.map"
build "$missing" without
if abidiff --no-added-syms "$folder/now/lib/libdlock.so" "$folder/without/lib/libdlock.so" >"$folder/log"; then
    fail "a function that is missing was not noticed"
fi
grep -q dlock_version "$folder/log" || fail "something else was noticed: $(cat "$folder/log")"

before=${1:-$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null || true)}
if [ -z "$before" ]; then
    echo "abidiff: no release to compare with"
    exit
fi
mkdir "$folder/source"
git archive "$before" | tar -x -C "$folder/source"
build "$folder/source" before
if [ "$(soname "$folder/before")" != "$(soname "$folder/now")" ]; then
    echo "abidiff: no release to compare with: $before has another soname, $(soname "$folder/before")"
    exit
fi
compare before "$folder/source/include/dlock" || fail "programs that were built against $before do not run with this: raise the soname, or undo it"
echo "abidiff: OK: compatible with $before"
