#!/bin/bash
# mem.sh packages | start FOLDER | stop FOLDER: nothing to start, for locks in a process's own memory. See tests/run.sh.
set -eu
case "$1" in
libraries | packages) ;;
start) echo "DLOCK_TEST_URI_mem=mem:" ;;
stop) ;;
esac
