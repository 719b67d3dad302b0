#!/bin/bash
# instructions_test.sh PROGRAM MOST: how many instructions a cycle takes on the client's side, by callgrind; PROGRAM is
# redis-cost. More than MOST is a failure.
set -eu

count() { DLOCK_TEST_CYCLES=$2 valgrind --tool=callgrind --callgrind-out-file=/dev/null "$1" a_cycle 2>&1 | sed -n 's/.*Collected : //p'; }

few=$(count "$1" 200)
many=$(count "$1" 1200)
each=$(((many - few) / 1000))
echo "$each instructions in a cycle"
[ "$each" -gt 0 ] && [ "$each" -le "$2" ]
