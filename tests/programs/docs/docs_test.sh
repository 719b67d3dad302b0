#!/bin/bash
# docs_test.sh DLOCK: nothing that a user can meet is undocumented, and the documentation names nothing that does not exist.
# tests/programs/cli/docs_test.sh does the same for the command's man page.
set -eu # without pipefail: grep -q leaves its pipe early
dlock=$(realpath "$1")
cd "$(dirname "$0")/../../.."
unset DLOCK_URI DLOCK_PLUGIN_PATH

failed=0
complain() {
    echo "docs: $*" >&2
    failed=1
}
# An empty list would make a check that cannot fail.
at_least() { # NUMBER WHAT LIST
    [ "$(wc -w <<<"$3")" -ge "$1" ] || complain "found fewer than $1 $2: $3"
}
# The first column of a table's rows in a file, without backquotes, one entry a line.
rows() { sed -n 's/^| \(`[^|]*`\) |.*/\1/p' "$1" | tr -d '`,' | tr ' ' '\n'; }
text=(README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md docs/*.md docs/servers/*.md bindings/*/README.md)

# ---- error codes: each has its row
header=include/dlock/dlock.h
codes=$(sed -n '/define DLOCK_ERRORS/,/^$/s/.*X(\(E[A-Z]*\), -[0-9].*/DLOCK_\1/p' "$header")
at_least 15 "error codes" "$codes"
for code in $codes; do rows docs/guide.md | grep -qx "$code" || complain "docs/guide.md has no row for $code"; done

# ---- functions and constants that the texts name exist
for name in $(grep -ohE '\b(dlock|DLOCK)_[A-Za-z_]+\b' "${text[@]}" docs/man/*.1 | sort -u); do
    case "$name" in
    dlock_backend_* | DLOCK_TEST_* | dlock__*) continue ;;
    esac
    grep -rqE "\b$name\b" include cmake CMakeLists.txt core cli tests/servers backends bindings/python/src bindings/go/link_static.go bindings/rust/build.rs || grep -qF "X(${name#DLOCK_}," "$header" ||
        grep -qF "X(${name#DLOCK_CAP_}," "$header" ||
        complain "there is no $name"
done

# ---- capabilities
words=$(sed -n '/define DLOCK_CAPS/,/^$/s/.*X([A-Z]*, *[0-9]*, "\([a-z]*\)".*/\1/p' "$header")
at_least 12 capabilities "$words"
for word in $words; do rows docs/guide.md | grep -qx "$word" || complain "docs/guide.md has no row for capability $word"; done

# ---- the keys that every backend takes; servers_test.py looks at their own
common=
for scheme in $("$dlock" backends --json | grep -o '"schemes": \["[a-z+]*' | cut -d'"' -f4); do
    [ -n "$common" ] || common=$("$dlock" list -b "$scheme:?no-such-key=1" 2>&1 >/dev/null | sed -n 's/.*and as every backend //p' | tr -d ,)
done
at_least 7 "common keys" "$common"
for key in $common; do rows docs/guide.md | grep -qx "$key" || complain "docs/guide.md has no row for the key $key"; done

# ---- environment variables
variables=$(grep -rohE 'getenv\("[A-Z_]+"\)' core cli backends | grep -oE '[A-Z_]+' | sort -u)
at_least 3 "environment variables" "$variables"
for variable in $variables; do
    grep -qF "\`$variable\`" docs/guide.md || grep -qE "^\.(It )?Ev $variable\b" docs/man/*.1 ||
        complain "nothing says what \$$variable does"
done

# ---- what is called not there yet is not there
not_yet=$(sed -n '/^### Not yet/,/^## /p' CHANGELOG.md)
at_least 3 "words on what is not there yet" "$not_yet"
for name in $(grep -oE '\bdlock_[a-z_]+\b' <<<"$not_yet" | sort -u); do
    if grep -qE "\b$name\(" "$header"; then complain "CHANGELOG.md lists $name as not there yet, and $header has it"; fi
done

# ---- the README's two commands can be run
for script in $(sed -n 's/^\([a-z]*\/[a-z]*\.sh\) .*/\1/p' README.md); do
    [ -x "$script" ] || complain "README.md names $script, which cannot be run"
done

# ---- examples: short, shown to the reader, and tried
examples=$(ls examples/*.c examples/*.cpp examples/*.py)
at_least 10 examples "$examples"
for file in $examples; do
    [ "$(wc -l <"$file")" -le 120 ] || complain "$file has more than 120 lines"
    grep -qF "$file" "${text[@]}" || complain "nothing tells of $file"
    grep -qE "examples/$(basename "${file%.c*}")\"" tests/programs/docs/examples_test.sh || complain "nothing tries $file"
done

# ---- links
for file in "${text[@]}" tests/README.md; do
    for link in $(grep -oE '\]\([^)]*\)|^\[[^]]*\]: .*' "$file" | sed 's/^](\(.*\))$/\1/; s/^\[[^]]*\]: //; s/#.*//'); do
        case "$link" in
        http*) ;;
        *) [ -e "$(dirname "$file")/$link" ] || complain "$file links to $link, which does not exist" ;;
        esac
    done
done

# ---- blocks of code: docs/blocks runs them
python3 -B tests/programs/docs/blocks_test.py --list >/dev/null || failed=1

if [ "$failed" = 0 ]; then echo "docs: OK"; fi
exit "$failed"
