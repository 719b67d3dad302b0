#!/bin/sh
# run-case.sh BACKEND PROGRAM [CASE]: runs one case of the suite, or another program, against the private server that
# tests/run.sh has started. Memory and files need none.
set -eu
eval "uri=\${DLOCK_TEST_URI_$1:-}"
case "$1${uri:+ given}" in
mem) uri=mem: ;;
file)
    folder=$(mktemp -d "${TMPDIR:-/tmp}/dlock-case.XXXXXX")
    trap 'rm -rf "$folder"' EXIT
    "$2" "file:$folder" ${3:+"$3"}
    exit
    ;;
esac
if [ -z "$uri" ]; then
    echo "no server for $1: run the tests with tests/run.sh" >&2
    exit 1
fi
exec "$2" "$uri" ${3:+"$3"}
