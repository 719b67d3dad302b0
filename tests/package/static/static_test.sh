#!/bin/bash
# static_test.sh [FOLDER]: builds libdlock.a in FOLDER (a temporary one) with all backends in it, installs it and uses it as
# others would: a C11 and a C++11 program, each through find_package and through pkg-config, the command, a guardian.
set -euo pipefail
. "$(dirname "$0")/../common.sh" static
need_packages cmake ninja-build gcc g++ libc6-dev 'pkg-config|pkgconf' binutils

build=$(realpath -m "${1:-$folder/build}") prefix=$folder/prefix
cd "$source"
consumer=$source/tests/package/install/consumer

quietly cmake -S "$source" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DDLOCK_TESTS=OFF \
    -DDLOCK_EXAMPLES=OFF -DDLOCK_WERROR=ON -DCMAKE_INSTALL_PREFIX="$prefix" -DCMAKE_INSTALL_LIBDIR=lib
quietly cmake --build "$build" -- --quiet
quietly cmake --install "$build"
archive=$prefix/lib/libdlock.a
[ -e "$archive" ] || fail "there is no $archive"
[ -z "$(find "$prefix" -name '*.so*')" ] || fail "shared objects are installed: $(find "$prefix" -name '*.so*')"

# Names that an application may use for itself. The one that is left out is what <sys/sdt.h> gives every file with probes.
others=$(nm -g --defined-only "$archive" 2>/dev/null | sed -n 's/.* [A-Z] //p' | grep -v -e '^_\{0,2\}dlock_' -e '^_\.stapsdt\.base$' || true)
[ -z "$others" ] || fail "the archive defines names that are not its own: $others"

unset DLOCK_PLUGIN_PATH DLOCK_URI LD_LIBRARY_PATH CMAKE_PREFIX_PATH
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
quietly cmake -S "$consumer" -B "$folder/cmake" -DCMAKE_PREFIX_PATH="$prefix"
quietly cmake --build "$folder/cmake"
# shellcheck disable=SC2046
quietly gcc -std=c11 -Wall -Wextra -Werror "$consumer/consumer.c" -o "$folder/pkgconfig-c" $(pkg-config --cflags --libs dlock)
# shellcheck disable=SC2046
quietly g++ -std=c++11 -Wall -Wextra -Werror "$consumer/consumer.cpp" -o "$folder/pkgconfig-cxx" \
    $(pkg-config --cflags --libs dlock)
for program in "$folder"/cmake/consumer-c "$folder"/cmake/consumer-cxx "$folder"/pkgconfig-c "$folder"/pkgconfig-cxx; do
    "$program" "file:$folder/locks" "$prefix/lib/dlock/" || fail "$program"
    if readelf -d "$program" | grep -F libdlock; then fail "$program needs a shared libdlock"; fi
    # Far away from the prefix, and with its own guardian.
    "$program" "file:$folder/locks?guardian=on" "$prefix/lib/dlock/" || fail "$program with a guardian"
done

dlock=$prefix/bin/dlock
[ "$("$dlock" run -b "file:$folder/locks" -n anything -- echo yes)" = yes ] || fail "the command"
for backend in $(default_backends); do
    "$dlock" backends | grep -q "^$backend " || fail "the command lacks the backend $backend: $("$dlock" backends)"
done
echo "static: OK"
