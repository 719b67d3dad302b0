#!/bin/bash
# client.sh BACKEND: guardian_test.c against the private server that tests/run.sh has started.
set -eu
server=DLOCK_TEST_URI_$1
GUARDIAN_URI=${!server:?"no server for $1: run the tests with tests/run.sh"} exec "${GUARDIAN_TEST:?}"
