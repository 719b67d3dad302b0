#!/bin/bash
# reentry_test.sh PROGRAM: the instructions of one re-entry and its release, counted by callgrind.
set -eu
most=2000 # 1200 when nothing is optimised
if ! command -v valgrind >/dev/null; then
    echo "valgrind is missing" >&2
    exit 1
fi

instructions() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$@" 2>&1 | sed -n 's/.*Collected : //p'
}

few=$(instructions "$1" 1000)
many=$(instructions "$1" 11000)
each=$(((many - few) / 10000))
echo "$each instructions for each re-entry with its release, at most $most"
[ "$each" -gt 0 ] && [ "$each" -le "$most" ]
