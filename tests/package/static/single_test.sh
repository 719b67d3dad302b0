#!/bin/bash
# single_test.sh [PROGRAM]: runs the command as one file (by default it builds the preset `static`) in a root that contains
# nothing else: on files, on a Redis by name and with a guardian that has to notice the command's death.
set -euo pipefail
. "$(dirname "$0")/../common.sh" single
need_packages redis-server util-linux binutils
program=${1:-}
if [ -z "$program" ]; then
    need_packages cmake ninja-build gcc libc6-dev 'pkg-config|pkgconf' libhiredis-dev
    cd "$source"
    quietly cmake --preset static -DDLOCK_WERROR=ON -B "$folder/build"
    quietly cmake --build "$folder/build" --target dlock-cli -- --quiet
    program=$folder/build/bin/dlock
fi
if readelf -l -d "$program" | grep -E 'NEEDED|interpreter'; then fail "it needs another file"; fi

settings=$("$source/tests/servers/redis.sh" start "$folder")
trap '"$source/tests/servers/redis.sh" stop "$folder" >/dev/null || true; rm -rf "$folder"' EXIT
redis=redis://$(sed -n "s/^DLOCK_TEST_REDIS=//p" <<<"$settings")?quarantine=0

# The root is in separate namespaces, with the usual contents of a container: /proc, and here a name for the server. Its
# init outlives the command, which it kills once the file $doom is there.
cat >"$folder/init" <<'END'
set -e
mount -t tmpfs none /mnt
cd /mnt
mkdir proc dev etc
mount -t proc none proc
touch dev/null
mount --bind /dev/null dev/null
echo 127.0.0.1 locks.example >etc/hosts
cp "$1" dlock
shift
chroot . "$@" &
if [ -z "$doom" ]; then wait $!; exit; fi
until [ -e "$doom" ]; do sleep 0.1; done
kill -KILL $!
while [ -e "$doom" ]; do sleep 0.1; done
END
inside() { env -i doom="${doom:-}" unshare --user --map-root-user --mount --pid --fork --kill-child sh "$folder/init" "$program" "$@"; }

for uri in file:/locks "${redis/127.0.0.1/locks.example}"; do
    inside /dlock run -b "$uri" name -- /dlock inspect -b "$uri" name >"$folder/out" || fail "dlock run on $uri"
    grep -q '^name .*exclusive' "$folder/out" || fail "inspect on $uri: $(cat "$folder/out")"
done
inside /dlock backends >"$folder/out"
for backend in file mem memcached redis quorum; do grep -q "^$backend " "$folder/out" || fail "there is no $backend: $(cat "$folder/out")"; done
if inside /dlock list -b etcd://locks.example 2>"$folder/out"; then fail "etcd is there"; fi
grep -q 'no backend for the scheme "etcd"' "$folder/out" || fail "etcd: $(cat "$folder/out")"

# The guardian of a killed command ends what that runs, here a wait for `blocker`, and releases its lock, whatever the lease.
"$program" run -b "$redis" blocker -- sleep 600 &
blocker=$!
until "$program" inspect -b "$redis" blocker >/dev/null; do sleep 0.1; done
doom=$folder/doom inside /dlock run -b "$redis&lease=10m&guardian=on" guarded -- /dlock run -b "$redis" blocker -- /dlock &
init=$!
until "$program" inspect -b "$redis" guarded >/dev/null; do sleep 0.1; done
touch "$folder/doom"
"$program" run -w 60 -b "$redis" guarded -- true || fail "the guardian did not release a killed command's lock"
rm "$folder/doom"
kill "$blocker"
wait "$init" || true
echo "single: OK"
