#!/bin/bash
# installed.sh URI: in a minimal system, with the packages and the README's program in /given: installs them, uses all that
# is in them, with the Redis that URI names, and removes them again, which leaves nothing behind.
set -euo pipefail
redis=$1

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

# The command with every backend: each can be loaded with what its own package depends on.
install ./libdlock0.1_*.deb ./dlock_*.deb ./dlock-backend-*.deb
ours=$(dpkg-query -W -f '${source:Package} ${Package}\n' | sed -n 's/^dlock //p')
backends=$(dlock backends --json)
if grep '"error": "' <<<"$backends"; then fail "a backend cannot be loaded"; fi
equal "backends" "$(grep -o '{"name": "' <<<"$backends" | wc -l)" "$((3 + $(ls ./dlock-backend-*.deb | wc -l)))"
equal "on files" "$(dlock run -n nightly -- sh -c 'dlock inspect nightly >/dev/null && echo held')" held
equal "on Redis" "$(dlock run -b "$redis" nightly -- sh -c "dlock inspect -b '$redis' nightly >/dev/null && echo held")" held
equal "with a guardian" "$(dlock run -b "$redis&guardian=on" nightly -- echo ran)" ran
ls /usr/share/bash-completion/completions/dlock /usr/share/zsh/vendor-completions/_dlock \
    /usr/share/fish/vendor_completions.d/dlock.fish >/dev/null || fail "a shell finds no completion"
dlock top --help >/dev/null || fail "dlock top"
if dlock bench >/dev/null 2>&1; then fail "there is a bench without its package"; fi

install gcc libc6-dev pkg-config python3 ./libdlock-dev_*.deb ./dlock-bench_*.deb ./python3-dlock_*.deb
# shellcheck disable=SC2046
gcc -Wall -Werror first.c -o /tmp/first $(pkg-config --cflags --libs dlock) || fail "the README's program cannot be built"
[[ "$(/tmp/first)" = "nobody else holds it; fence "[1-9]* ]] || fail "the README's program"
dlock bench --json --time 200ms --rounds 1 -w cycle file:/tmp/locks "$redis" >/tmp/bench
equal "servers with a floor" "$(grep -o '"floor_median_ns": [1-9]' /tmp/bench | wc -l)" 2
dlock-conformance "$redis" 'names_*' >/tmp/log || { cat /tmp/log; fail "the conformance suite"; }
equal "in Python" "$(python3 - "$redis" <<'PYTHON'
import importlib.metadata, sys, dlock
with dlock.Client(sys.argv[1]).lock("nightly", timeout=5) as grant:
    assert grant.fence
print(importlib.metadata.version("dlock"))
PYTHON
)" "$(dlock --version | cut -d' ' -f2)"
for package in $(dpkg-query -W -f '${source:Package} ${Package}\n' | sed -n 's/^dlock //p'); do
    [ -s "/usr/share/doc/$package/copyright" ] && [ -s "/usr/share/doc/$package/changelog.Debian.gz" ] || fail "$package has no documentation"
done

# What was theirs is gone, or others' too.
ours=$(dpkg-query -W -f '${source:Package} ${Package}\n' | sed -n 's/^dlock //p')
equal "packages" "$(wc -w <<<"$ours")" "$(ls ./*.deb | wc -l)"
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
