#!/bin/bash
# inherited_test.sh BACKEND: which descriptors the command of `dlock run` has there.
. "$(dirname "$0")/../../support/cli.sh"
server=DLOCK_TEST_URI_$1
export DLOCK_URI=${!server:?"no server for $1: run the tests with tests/run.sh"}

describe "$1: descriptors"
ls /proc/self/fd 9>&1 >"$work/without"
"$DLOCK" run "inherited-$$" ls /proc/self/fd 9>&1 >"$work/with"
equal "none of ours, not even of the client library" "$(<"$work/with")" "$(<"$work/without")"
contains "and the caller's" "$(<"$work/with")" 9

finish
