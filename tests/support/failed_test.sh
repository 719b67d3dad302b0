#!/bin/bash
# Tests failed.sh with output of CTest and of the valgrind step of .ci/run.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d "${TMPDIR:-/tmp}/dlock-failed.XXXXXX")
trap 'rm -rf "$folder"' EXIT
failures=0

# expect WHAT WANTED COMMAND…: expects WANTED, the command's exit status and then its output.
expect() {
    local what=$1 wanted=$2 said
    shift 2
    said=$("$@" 2>&1)
    said="$? $said"
    if [ "$said" = "$wanted" ]; then return; fi
    printf 'FAILED: %s\n-- wanted\n%s\n-- said\n%s\n' "$what" "$wanted" "$said"
    failures=$((failures + 1))
}

# Output of several tests mixed, a test whose name is the beginning of another one's, output that looks like a summary,
# an apostrophe.
cat >"$folder/two" <<'END'
        Start   1: unit/uri
  1/5 Test   #1: unit/uri ...........   Passed    0.01 sec
  2/5 Test  #20: redis/queue ........***Failed    1.25 sec
[ RUN      ] first
[  ERROR   ] --- 0 != 1

isn't so: 1 - of many (Failed)
        Start   3: redis/queue_cost
  3/5 Test   #3: redis/queue_cost ...   Passed    0.50 sec
  4/5 Test   #4: cli/run ............***Timeout  20.00 sec
still waiting
  5/5 Test   #5: mem/skipped ........***Skipped   0.00 sec
needs a queue

60% tests passed, 2 tests failed out of 5

Label Time Summary:
cli    =  20.00 sec*proc (1 test)

The following tests did not run:
	  5 - mem/skipped (Skipped)

The following tests FAILED:
	 20 - redis/queue (Failed)
	  4 - cli/run (Timeout)
Errors while running CTest
END
expect "the names" "0 redis/queue (Failed)
cli/run (Timeout)" "$here/failed.sh" names "$folder/two"
expect "what they printed" "0 --- redis/queue
[ RUN      ] first
[  ERROR   ] --- 0 != 1
isn't so: 1 - of many (Failed)
--- cli/run
still waiting" "$here/failed.sh" output "$folder/two" 40
expect "its end, where there is little room" "0 --- cli/run
last but three
last but two
last but one
last" "$here/failed.sh" output <(sed 's/^still waiting/first\n&\nlast but three\nlast but two\nlast but one\nlast/; /redis\/queue /d' \
    "$folder/two") 4
expect "a failed assertion far from the end" "0 --- unit/uri
[ RUN      ] first
[  ERROR   ] --- 0 != 1
[   LINE   ] --- uri_test.c:7: error: Failure!
[       OK ] third
[==========] 3 test(s) run.
[  FAILED  ] 1 test(s), listed below:
[  FAILED  ] first" "$here/failed.sh" output - 4 <<'END'
  1/1 Test   #1: unit/uri ...........***Failed    0.01 sec
[==========] Running 3 test(s).
[ RUN      ] first
[  ERROR   ] --- 0 != 1
[   LINE   ] --- uri_test.c:7: error: Failure!
[  FAILED  ] first
[ RUN      ] second
[   LINE   ] --- uri_test.c:9: error: Failure!
[  FAILED  ] second
[ RUN      ] third
[       OK ] third
[==========] 3 test(s) run.
[  FAILED  ] 1 test(s), listed below:
[  FAILED  ] first

0% tests passed, 1 tests failed out of 1

The following tests FAILED:
  1 - unit/uri (Failed)
END

cat >"$folder/valgrind" <<'END'
2/3 Test #2: unit/lock_all ***Failed
==12== Invalid read of size 8
valgrind: 2 of 3 unit tests passed
The following tests FAILED:
2 - unit/lock_all (status 99)
END
expect "the first failure of each" "0 redis/queue: [  ERROR   ] --- 0 != 1
cli/run: still waiting" "$here/failed.sh" first "$folder/two"
expect "under valgrind" "0 unit/lock_all (status 99)" "$here/failed.sh" names "$folder/valgrind"
expect "what it printed" "0 --- unit/lock_all
==12== Invalid read of size 8" "$here/failed.sh" output "$folder/valgrind" 40

{
    echo "The following tests FAILED:"
    seq -f ' 7 - test/%g (Failed)' 50
} >"$folder/many"
expect "many" "0 $(seq -f 'test/%g (Failed)' 40)
and 10 more" "$here/failed.sh" names "$folder/many"

printf '1/1 Test #1: unit/uri ...   Passed    0.01 sec\n100%% tests passed, 0 tests failed out of 1\n' >"$folder/none"
expect "no names where none has failed" "1 " "$here/failed.sh" names "$folder/none"
expect "no output either" "1 " "$here/failed.sh" output "$folder/none" 40

if [ "$failures" -gt 0 ]; then exit 1; fi
echo "all passed"
