#!/bin/bash
# packages_test.sh: makes the Debian packages, has lintian look at them, and installs them on a minimal system that knows
# nothing of this one (installed.sh), where locks on files and on a Redis of this machine have to work.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../../.."
. tests/packages.sh
# shellcheck disable=SC2046
need_test_packages $(default_backends)
need_packages dpkg-dev file lintian debootstrap

fail() {
    echo "packages: FAILED: $*" >&2
    exit 1
}

work=$(mktemp -d "${TMPDIR:-/tmp}/dlock-packages.XXXXXX")
clean_up() {
    tests/servers/redis.sh stop "$work" >/dev/null || true
    rm -rf "$work"
}
trap clean_up EXIT

echo "== packages"
rm -rf build-debian/packages # those of an earlier version
(umask 077 && cmake --workflow --preset debian) >"$work/log" 2>&1 || { tail -n 40 "$work/log" >&2; fail "cannot make the packages"; }
packages=(build-debian/packages/*.deb)
ls "${packages[@]}"
lintian --allow-root --fail-on error,warning "${packages[@]}" || fail "see above: what lintian says"

# Each file that is installed is in one package, and only in one.
DESTDIR=$work/all cmake --install build-debian >/dev/null
(cd "$work/all" && find . ! -type d | sort) >"$work/installed"
for package in "${packages[@]}"; do dpkg-deb --fsys-tarfile "$package" | tar -t; done | grep -v '/$\|^\./usr/share/doc/' |
    sed '/\/man[1-9]\//s/\.gz$//' | sort >"$work/packed"
diff "$work/installed" "$work/packed" || fail "installed (<) and packed (>) differ"

echo "== a minimal system"
settings=$(tests/servers/redis.sh start "$work")
redis=$(sed -n 's/^DLOCK_TEST_URI_redis=//p' <<<"$settings")
sudo=
if [ "$(id -u)" != 0 ]; then sudo=sudo; fi
$sudo "$here/system.sh" "$here/installed.sh" "$redis" examples/first.c "${packages[@]}" || fail "the packages on a minimal system"
echo "packages: OK"
