#!/bin/bash
# packages_test.sh [ARCHIVE FOLDER]: makes the Debian packages, source and binary, without network, has lintian look at them,
# and installs them on a minimal system that knows nothing of this one (installed.sh), where they have to work. Their source is
# the working tree, or ARCHIVE, of which they stay in FOLDER. With DLOCK_FULL=1 the build also runs the conformance suite.
set -euo pipefail
cd "$(dirname "$0")/../../.."
. tests/package/common.sh packages
here=$source/tests/package/debian
# shellcheck disable=SC2046
need_build_packages $(default_backends)
need_packages dpkg-dev debhelper dh-python python3-all python3-setuptools pybuild-plugin-pyproject lintian debootstrap
sudo=
if [ "$(id -u)" != 0 ]; then sudo=sudo; fi

version=$(dpkg-parsechangelog --show-field Version)
made=$folder/made
mkdir "$made"
orig=$folder/dlock_${version%-*}.orig.tar.gz
if [ $# -gt 0 ]; then
    cp "$1" "$orig"
else
    git ls-files -z | tar --create --gzip --null --files-from=- --transform="s|^|dlock-${version%-*}/|S" --file="$orig"
fi
tar -x -f "$orig" -C "$folder"
cd "$folder/dlock-${version%-*}"

echo "== packages"
export DEB_BUILD_OPTIONS="parallel=$(nproc)"
if [ -z "${DLOCK_FULL:-}" ]; then DEB_BUILD_OPTIONS+=" nocheck"; fi
# With the Python of the distribution, and no other that may be in front of it.
quietly unshare --user --map-current-user --net env PATH=/usr/sbin:/usr/bin:/sbin:/bin dpkg-buildpackage --no-sign
mv ../*.deb ../*.dsc ../*.tar.* ../*.changes ../*.buildinfo "$made/"
packages=("$made"/*.deb)
ls "${packages[@]}"
# no-debian-changes: debian/ is part of the archive, since the project makes its own packages.
lintian --allow-root --suppress-tags no-debian-changes --fail-on error,warning "$made"/*.changes || fail "see above: what lintian says"

# Each file that is installed is in one package, and only in one.
DESTDIR=$folder/all cmake --install build-debian >/dev/null
(cd "$folder/all" && find . ! -type d | sort) >"$folder/installed"
for package in "${packages[@]}"; do
    case "$package" in */python3-dlock_* | *-dbgsym_*) continue ;; esac
    dpkg-deb --fsys-tarfile "$package" | tar -t
done | grep -v '/$\|^\./usr/share/doc/' | sed '/\/man[1-9]\//s/\.gz$//' | sort >"$folder/packed"
diff "$folder/installed" "$folder/packed" || fail "installed (<) and packed (>) differ"

echo "== a minimal system"
shopt -s extglob
$sudo "$here/system.sh" "$here/installed.sh" examples/first.c debian/tests/quickstart "$made"/!(*-dbgsym_*).deb ||
    fail "the packages on a minimal system"
if [ $# -gt 0 ]; then cp "$made"/* "$2/"; fi
echo "packages: OK"
