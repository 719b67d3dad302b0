#!/bin/bash
# file.sh packages | start FOLDER | stop FOLDER: makes a folder for locks on files, which need no server. See
# tests/run.sh.
set -eu
case "$1" in
libraries | packages) ;;
start)
    mkdir -m 755 "$2/locks"
    echo "DLOCK_TEST_URI_file=file:$2/locks"
    ;;
stop) ;;
esac
