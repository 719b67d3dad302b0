#!/bin/bash
# install_test.sh [BUILD]: installs a build under a temporary prefix and uses it from there as others would: a C11 and a C++11
# program, each through find_package and through pkg-config, a backend built out of tree, the command, its bench with the
# floors. Then the prefix moves, and everything has to work again. Last it is uninstalled. Without BUILD it builds the
# preset `release` first.
# CFLAGS, CXXFLAGS and LDFLAGS are passed on.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$(dirname "$0")/../common.sh" install
need_packages cmake make gcc g++ libc6-dev 'pkg-config|pkgconf' binutils libcurl4-openssl-dev libssl-dev

if [ $# -gt 0 ]; then
    build=$(cd "$1" && pwd)
else
    need_packages ninja-build python3 libhiredis-dev libssl-dev
    build=$source/build-release
    (cd "$source" && quietly cmake --preset release && quietly cmake --build --preset release -j "$(nproc)")
fi

# Nothing may leak in from outside, nor from the build tree.
unset DLOCK_PLUGIN_PATH DLOCK_URI LD_LIBRARY_PATH PKG_CONFIG_PATH CMAKE_PREFIX_PATH
cc=${CC:-gcc} cxx=${CXX:-g++}

# The installed files and their places. CMake knows the folders' names from the build.
cache() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
lib=$(cache CMAKE_INSTALL_LIBDIR) bin=$(cache CMAKE_INSTALL_BINDIR) include=$(cache CMAKE_INSTALL_INCLUDEDIR)
static=";$(cache DLOCK_STATIC_BACKENDS);"

# Texts that the package files and the binaries' dynamic sections must not contain.
check_leaks() { # PREFIX
    local file
    if grep -rn -e "$build" -e "$source" "$1/$lib/cmake" "$1/$lib/pkgconfig"; then fail "build paths in package files"; fi
    if grep -rn -e "$1" "$1/$lib/cmake" "$1/$lib/pkgconfig"; then fail "the prefix stands in package files"; fi
    for file in $(find "$1/$lib" "$1/$bin" -maxdepth 2 -name '*.so*' -o -path "*/$bin/*"); do
        if readelf -d "$file" | grep -F -e "$build" -e "$source" -e "$1"; then fail "a path in $file"; fi
    done
}

# The servers' own libraries are those that the distribution keeps up to date, not copies of them.
check_libraries() { # PREFIX
    local pair module
    for pair in redis:hiredis rediss:ssl postgresql:pq zookeeper:zookeeper_mt etcd:curl mysql:mariadb; do
        module=$1/$lib/dlock/0.1/dlock-${pair%%:*}.so
        if [ ! -e "$module" ]; then continue; fi
        readelf -d "$module" | grep -qF "Shared library: [lib${pair#*:}.so" || fail "$module does not need lib${pair#*:}"
    done
}

# The library exports exactly the functions of dlock.h, each with the version that introduced it.
check_exports() { # PREFIX
    local declared exported
    declared=$(grep -hoE '^DLOCK_EXPORT .*\bdlock_[a-z_]+\(' "$1/$include/dlock/dlock.h" | grep -oE 'dlock_[a-z_]+\($' | tr -d '(' | sort)
    exported=$(nm -D --defined-only "$1/$lib/libdlock.so" | sed -n 's/.* T \(.*\)@@DLOCK_0\.1$/\1/p' | sort)
    [ "$(wc -l <<<"$declared")" -gt 30 ] || fail "too few functions in dlock.h: $declared"
    diff <(echo "$declared") <(echo "$exported") || fail "core/dlock.map (>) and dlock.h (<) differ"
    exported=$(nm -D --defined-only "$1/$lib/libdlock.so" | grep -v ' T .*@@DLOCK_0\.1$' | sed 's/.* //' | sort)
    [ "$exported" = "$(printf '%s\n' DLOCK_0.1 DLOCK_PRIVATE dlock__guardian_main@@DLOCK_PRIVATE)" ] ||
        fail "the library exports more: $exported"
}

# Each header needs nothing before it, and has no warnings; backend_tls.h is for C only.
check_headers() { # PREFIX
    local header flags=(-D_GNU_SOURCE -Wall -Wextra -Wpedantic -Wconversion -Wno-sign-conversion -Werror -fsyntax-only -I "$1/$include")
    for header in "$1/$include"/dlock/*.h; do
        quietly "$cc" -std=c11 -DDLOCK_STREAM_TLS='"plain"' "${flags[@]}" -x c - <<<"#include <dlock/${header##*/}>"
        if [ "${header##*/}" = backend_tls.h ]; then continue; fi
        quietly "$cc" -std=c11 "${flags[@]}" -x c - <<<"#include <dlock/${header##*/}>"
        quietly "$cxx" -std=c++11 "${flags[@]}" -x c++ - <<<"#include <dlock/${header##*/}>"
    done
}

# A program that was written for another version is not built against this one.
check_versions() { # PREFIX
    local wanted
    for wanted in 0.0 0.2 1.0; do
        if cmake -S "$here/consumer" -B "$folder/wanted" -DWANTED=$wanted -DCMAKE_PREFIX_PATH="$1" >"$folder/log" 2>&1; then
            fail "find_package(dlock $wanted) finds this one"
        fi
        grep -q 'not accepted' "$folder/log" || fail "find_package(dlock $wanted): $(cat "$folder/log")"
    done
}

# Builds and runs everything against PREFIX, in FOLDER.
use() { # PREFIX FOLDER
    local prefix=$1 work=$2 moduledir flags program
    mkdir "$work"
    export PKG_CONFIG_PATH=$prefix/$lib/pkgconfig

    quietly cmake -S "$here/consumer" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" \
        -DCMAKE_CXX_COMPILER="$cxx"
    quietly cmake --build "$work/cmake"

    [ "$(pkg-config --modversion dlock)" = "$("$prefix/$bin/dlock" --version | cut -d' ' -f2)" ] ||
        fail "dlock.pc and the command differ in their version"
    moduledir=$(pkg-config --variable=moduledir dlock)
    [ -d "$moduledir" ] || fail "moduledir of dlock.pc, $moduledir, is no folder"
    [[ "$static" = *";file;"* ]] || [ -e "$moduledir/0.1/dlock-file.so" ] || fail "$moduledir/0.1 has no dlock-file.so"
    flags=(-Wall -Wextra -Wpedantic -Werror "$(pkg-config --variable=libdir dlock | sed 's/^/-Wl,-rpath,/')")
    # shellcheck disable=SC2046,SC2086
    quietly "$cc" -std=c11 ${CFLAGS:-} ${LDFLAGS:-} "${flags[@]}" "$here/consumer/consumer.c" \
        -o "$work/pkgconfig-c" $(pkg-config --cflags --libs dlock)
    # shellcheck disable=SC2046,SC2086
    quietly "$cxx" -std=c++11 ${CXXFLAGS:-} ${LDFLAGS:-} "${flags[@]}" "$here/consumer/consumer.cpp" \
        -o "$work/pkgconfig-cxx" $(pkg-config --cflags --libs dlock)

    for program in "$work"/cmake/consumer-c "$work"/cmake/consumer-cxx "$work"/pkgconfig-c "$work"/pkgconfig-cxx; do
        "$program" "file:$work/locks" "$prefix/$lib/dlock/0.1/" || fail "$program"
    done

    quietly cmake -S "$source/examples/toy" -B "$work/toy" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc"
    quietly cmake --build "$work/toy"
    [ "$(DLOCK_PLUGIN_PATH=$work/toy "$prefix/$bin/dlock" run -b toy: anything -- sh -c 'echo "$DLOCK_FENCE"')" = 256 ] ||
        fail "the backend built out of tree"
    [ "$("$prefix/$bin/dlock" run -b "file:$work/locks" -n anything -- echo yes)" = yes ] || fail "the command"
    "$prefix/$bin/dlock" top --count 1 -b "file:$work/locks" >"$work/top.out" || fail "dlock top"
    if [ "$(cache DLOCK_TOOLS)" = ON ]; then
        "$prefix/$bin/dlock" bench --json --time 200ms --rounds 1 -w cycle "file:$work/locks" >"$work/bench.json" || fail "the bench"
        grep -q '"floor_median_ns": [1-9]' "$work/bench.json" || fail "no floor in $(cat "$work/bench.json")"
    fi
}

# Only foreign files stay, and folders that are not named after us.
check_uninstall() { # PREFIX
    local left
    quietly cmake --install "$build" --prefix "$1"
    cp "$1/$lib/libdlock.so" "$1/$lib/dlock/dlock-foreign.so"
    rm "$1/$include/dlock/dlock.h" # removed by hand: no reason to stop
    quietly cmake --build "$build" --target uninstall
    left=$(cd "$1" && find . ! -type d -o -path '*dlock*')
    [ "$(sort <<<"$left")" = "$(printf './%s\n' "$lib/dlock" "$lib/dlock/dlock-foreign.so")" ] || fail "uninstall leaves: $left"
    rm "$1/$lib/dlock/dlock-foreign.so"
    quietly cmake --build "$build" --target uninstall
    if [ -e "$1/$lib/dlock" ]; then fail "uninstall leaves the folder of the modules"; fi
    if cmake -DMANIFEST="$folder/none" -P "$source/cmake/uninstall.cmake" >"$folder/log" 2>&1; then fail "nothing to uninstall, and no error"; fi
    grep -q 'Nothing has been installed' "$folder/log" || fail "uninstall without an installation: $(cat "$folder/log")"
}

prefix=$folder/prefix
quietly cmake --install "$build" --prefix "$prefix"
[ -e "$prefix/$include/dlock/dlock.h" ] && [ -e "$prefix/$include/dlock/backend.h" ] || fail "a header is missing"
[ -L "$prefix/$lib/libdlock.so" ] && [ -L "$prefix/$lib/libdlock.so.0.1" ] || fail "a library link is missing"
[ "$(readelf -d "$prefix/$lib/libdlock.so" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')" = libdlock.so.0.1 ] || fail "the soname"
check_leaks "$prefix"
check_libraries "$prefix"
check_exports "$prefix"
check_headers "$prefix"
check_versions "$prefix"
use "$prefix" "$folder/first"

moved=$folder/moved/somewhere/else
mkdir -p "$(dirname "$moved")"
mv "$prefix" "$moved"
use "$moved" "$folder/second"
# Programs from before the move find the library where they are told, and the modules beside it.
for program in "$folder"/first/cmake/consumer-c "$folder"/first/pkgconfig-cxx; do
    LD_LIBRARY_PATH=$moved/$lib "$program" "file:$folder/locks" "$moved/$lib/dlock/0.1/" || fail "$program after the move"
done
check_uninstall "$folder/uninstalled"
echo "install: OK"
