#!/bin/bash
# client.sh BACKEND: guardian_test.c against the private server that tests/run.sh has started.
set -eu
server=DLOCK_TEST_URI_$1
uri=${!server:?"no server for $1: run the tests with tests/run.sh"}
# A busy machine stands still for longer than the short session of other tests; what a guardian releases it releases
# long before the end of either.
GUARDIAN_URI=${uri/session=2s/session=10s} exec "${GUARDIAN_TEST:?}"
