#!/bin/bash
# installed.sh: in a minimal system, with the packages, their test and the README's program in /given: installs them, runs the
# test, and removes them again, which leaves nothing behind.
set -euo pipefail

fail() {
    echo "packages: FAILED: $*" >&2
    exit 1
}
install() {
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/tmp/log 2>&1 || { cat /tmp/log; fail "install $*"; }
}
equal() { [ "$2" = "$3" ] || fail "$1: \"$2\", not \"$3\""; }
printf 'force-unsafe-io\n' >/etc/dpkg/dpkg.cfg.d/unsafe-io
apt-get update -qq
cd /given
mkdir examples
mv first.c examples/

# The command with every backend: each can be loaded with what its own package depends on.
install ./libdlock0.1*.deb ./dlock_*.deb
if dlock backends --json | grep '"error": "'; then fail "a backend cannot be loaded"; fi
ls /usr/share/bash-completion/completions/dlock /usr/share/zsh/vendor-completions/_dlock \
    /usr/share/fish/vendor_completions.d/dlock.fish >/dev/null || fail "a shell finds no completion"
if dlock bench >/dev/null 2>&1; then fail "there is a bench without its package"; fi

# With what debian/tests/control lists for the test.
install ./*.deb gcc libc6-dev pkgconf python3 redis-server
./quickstart || fail "the packages' own test"
ours=$(dpkg-query -W -f '${source:Package} ${Package}\n' | sed -n 's/^dlock //p')
equal "packages" "$(wc -w <<<"$ours")" "$(ls ./*.deb | wc -l)"

# Their files are gone, or also belong to others.
# shellcheck disable=SC2086
dpkg -L $ours | sort -u >/tmp/theirs
# shellcheck disable=SC2086
dpkg -P $ours >/tmp/log 2>&1 || { cat /tmp/log; fail "cannot be removed"; }
while IFS= read -r path; do
    if [ -e "$path" ] || [ -L "$path" ]; then dpkg -S "$path" >/dev/null 2>&1 || fail "$path is left behind"; fi
done <<<"$(grep -vx '/\.' /tmp/theirs)"
left=$(find / -xdev \( -path /given -o -path /tmp -o -path /root \) -prune -o \( -name 'dlock*' -o -name '*[-_]dlock*' -o -name 'libdlock*' \) -print)
equal "left behind" "$left" ""
if ldconfig -p | grep dlock; then fail "the loader still knows the library"; fi
