#!/bin/bash
# man_test.sh BUILD: the installed man pages have no faults, lead to each other, and man(1) finds each function by its name.
set -euo pipefail
header=$(cd "$(dirname "$0")/../../.." && pwd)/include/dlock/dlock.h
folder=$(mktemp -d "${DLOCK_TEST_DIR:-${TMPDIR:-/tmp}}/man.XXXXXX")
trap 'rm -rf "$folder"' EXIT
cmake --install "$1" --prefix "$folder" >"$folder/log" || { cat "$folder/log"; exit 1; }
export MANPATH=$folder/share/man MANWIDTH=80
cd "$MANPATH"

failed=0
complain() {
    echo "man: $*" >&2
    failed=1
}

pages=$(grep -L '^\.so ' man?/dlock*.? man3/libdlock.3)
[ "$(wc -w <<<"$pages")" -gt 20 ] || complain "too few pages: $pages"
for page in $pages; do
    faults=$(mandoc -T lint -W warning "$page") || complain "$faults"
    # groff 1.23 also warns about each line that one long word fills.
    faults=$(man --warnings -E UTF-8 -l -Tutf8 -Z "$page" 2>&1 >/dev/null | grep -v 'cannot adjust line$') || true
    [ -z "$faults" ] || complain "$page: $faults"
    for other in $(sed -n 's/\\-/-/g; s/^\.\(It \)\?Xr \(.*\)/\2/p' "$page" | grep -oE '[a-z_-]*dlock[a-z_-]* [0-9]' | tr ' ' .); do
        [ -e "man${other##*.}/$other" ] || complain "$page leads to $other, which does not exist"
    done
done

functions=$(grep -hoE '^DLOCK_EXPORT .*\bdlock_[a-z_]+\(' "$header" | grep -oE 'dlock_[a-z_]+\($' | tr -d '(')
[ "$(wc -w <<<"$functions")" -gt 30 ] || complain "too few functions: $functions"
for function in $functions; do
    shown=$(man 3 "$function" 2>&1 | col -b) || true
    grep -qE "^ {5,7}$function\(" <<<"$shown" || complain "man 3 $function does not show it"
done

if [ "$failed" = 0 ]; then echo "man: OK"; fi
exit "$failed"
