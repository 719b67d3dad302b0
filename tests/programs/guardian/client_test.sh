#!/bin/bash
# client_test.sh BACKEND: guardian_test.c against the private server that tests/run.sh has started.
set -eu
server=DLOCK_TEST_URI_$1
uri=${!server:?"no server for $1: run the tests with tests/run.sh"}
# No lease ends as long as a test waits: whatever becomes free was released.
case $uri in
*lease=10s*) uri=${uri/lease=10s/lease=30s} ;;
*\?*) uri="$uri&lease=30s" ;;
*) uri="$uri?lease=30s" ;;
esac
GUARDIAN_URI=$uri exec "${GUARDIAN_TEST:?}"
