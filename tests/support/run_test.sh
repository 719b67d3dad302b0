#!/bin/bash
# Tests how run.sh treats tests that fail once or twice, with a project of a few small tests.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d "${TMPDIR:-/tmp}/dlock-run.XXXXXX")
trap 'rm -rf "$folder"' EXIT
failures=0
unset DLOCK_FULL
mkdir "$folder/source"
cat >"$folder/once" <<'END'
#!/bin/sh
# Fails the first time.
[ -e "$1" ] && exit
: >"$1"
echo "FAILED: $1, as it should"
exit 1
END

# suite NAME COUNT [TEST]: runs one test that passes, COUNT that fail once, and TEST; sets $status and $said.
suite() {
    local i
    {
        printf 'cmake_minimum_required(VERSION 3.25)\nproject(small NONE)\nenable_testing()\nadd_test(NAME steady COMMAND true)\n'
        for i in $(seq "$2"); do echo "add_test(NAME once.$i COMMAND sh $folder/once $folder/$1-$i)"; done
        echo "${3:-}"
    } >"$folder/source/CMakeLists.txt"
    cmake -S "$folder/source" -B "$folder/$1" -G Ninja -DDLOCK_BACKENDS:STRING= >"$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }
    said=$(TMPDIR=$folder "$here/../run.sh" --build "$folder/$1" 2>&1)
    status=$?
}
check() { # WHAT CONDITION…
    if "${@:2}"; then return; fi
    echo "FAILED: $1: status $status"
    echo "$said"
    failures=$((failures + 1))
}
says() { grep -q -- "$1" <<<"$said"; }
never_says() { ! says "$1"; }

suite good 0
check "all pass" [ "$status" = 0 ]
check "nothing is unsteady" never_says unsteady

suite few 3
check "three that pass the second time are forgiven" [ "$status" = 0 ]
check "each is named, with its failure" says "^once.3: FAILED: .*/few-3, as it should"
check "in a file, too" [ "$(wc -l <"$folder/few/unsteady.txt")" = 3 ]

suite many 4
check "four are not" [ "$status" = 1 ]
check "each is named" says "^once.4: FAILED"

suite bad 1 'add_test(NAME never COMMAND false)'
check "who fails twice is red" [ "$status" = 1 ]
check "and is named" says "^never (Failed)"
check "unlike who does not" [ "$(cat "$folder/bad/unsteady.txt")" = "once.1: FAILED: $folder/bad-1, as it should" ]

large="add_test(NAME large COMMAND sh -c \"echo >$folder/large\")
set_tests_properties(large PROPERTIES LABELS full)"
suite default 0 "$large"
check "all pass but what is labelled full" [ "$status" = 0 ]
check "which does not run by default" [ ! -e "$folder/large" ]
export DLOCK_FULL=1
suite full 0 "$large"
check "but with --full" [ -e "$folder/large" ]

if [ "$failures" -gt 0 ]; then exit 1; fi
echo "all passed"
