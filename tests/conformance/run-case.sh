#!/bin/sh
# run-case.sh BACKEND PROGRAM [--contract] [CASE]: runs one case of the suite, a file of the contract suite, or another
# program, against the private server that tests/run.sh has started. Memory and files need none.
set -eu
backend=$1 program=$2
shift 2
option=
if [ "${1:-}" = --contract ]; then
    option=$1
    shift
fi
eval "uri=\${DLOCK_TEST_URI_$backend:-}"
case "$backend${uri:+ given}" in
mem) uri=mem: ;;
file)
    folder=$(mktemp -d "${TMPDIR:-/tmp}/dlock-case.XXXXXX")
    trap 'rm -rf "$folder"' EXIT
    "$program" $option "file:$folder" "$@"
    exit
    ;;
esac
if [ -z "$uri" ]; then
    echo "no server for $backend: run the tests with tests/run.sh" >&2
    exit 1
fi
exec "$program" $option "$uri" "$@"
