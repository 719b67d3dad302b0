#!/bin/bash
# ports_test.sh: builds what needs no server's client library with musl in the place of glibc, and for another processor. With
# musl it also has to work: the conformance suite on files and in memory, and a guardian.
set -euo pipefail
. "$(dirname "$0")/../common.sh" ports
need_packages cmake ninja-build gcc libc6-dev linux-libc-dev musl-tools gcc-aarch64-linux-gnu libc6-dev-arm64-cross binutils

build() { # NAME, and options for CMake
    local name=$1
    shift
    quietly cmake -S "$source" -B "$folder/$name" -G Ninja -DCMAKE_BUILD_TYPE=Release -DDLOCK_WERROR=ON -DDLOCK_TESTS=OFF \
        -DDLOCK_EXAMPLES=OFF "-DDLOCK_BACKENDS=file;mem;quorum" "$@"
    quietly cmake --build "$folder/$name" -- --quiet
}

build aarch64 -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc
for file in bin/dlock lib/libdlock.so lib/dlock/0.1/dlock-file.so; do
    readelf -h "$folder/aarch64/$file" | grep -q 'Machine: *AArch64' || fail "$file is not for aarch64"
done
echo "ports: aarch64 builds"

# Debian's musl-gcc does not find the kernel's headers, which Alpine has in a separate package.
mkdir "$folder/kernel"
for headers in linux asm-generic "$(gcc -print-multiarch)/asm"; do ln -s "/usr/include/$headers" "$folder/kernel/"; done
mkdir "$folder/musl"
git -C "$source" ls-files -z | tar -c -C "$source" --null -T - | tar -x -C "$folder/musl"
# As Alpine builds and checks its package, but for the modules that take a client library.
for step in build check package; do
    (
        export CC=musl-gcc CFLAGS="-Werror -idirafter $folder/kernel" pkgdir=$folder/package _backends=memcached
        export PKG_CONFIG_LIBDIR=$folder/none # the client libraries that are here take glibc
        . "$source/packaging/APKBUILD"
        cd "$folder/musl"
        quietly "$step"
    )
done
bin=$folder/musl/build/bin
readelf -d "$folder/package/usr/lib/libdlock.so" | grep -q 'NEEDED.*\[libc.so\]' || fail "libdlock.so does not use musl"
"$bin/dlock" backends | grep -q '^memcached ' || fail "no module is loaded: $("$bin/dlock" backends)"
"$bin/dlock-conformance" -j 16 "file:$folder/guarded?guardian=on" >"$folder/log" 2>&1 || { cat "$folder/log" >&2; fail "conformance with a guardian"; }
fence=$("$bin/dlock" run -b "file:$folder/locks" -n anything -- sh -c 'echo "$DLOCK_FENCE"')
[ "$fence" -gt 0 ] || fail "dlock run gave the fence '$fence'"
echo "ports: OK"
