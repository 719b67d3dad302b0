#!/bin/bash
# quorum.sh packages | start FOLDER | stop FOLDER: three private Redis servers on free loopback ports, as one quorum. See
# tests/run.sh and redis.sh.
set -eu
folder=${2:-}
redis=$(dirname "$0")/redis.sh

case "$1" in
libraries | packages) "$redis" "$1" ;;
start)
    uri=quorum:
    separator='?'
    for member in 1 2 3; do
        mkdir -p "$folder/quorum-$member"
        chmod a+rx "$folder/quorum-$member"
        settings=$("$redis" start "$folder/quorum-$member")
        address=$(sed -n 's/^DLOCK_TEST_REDIS=//p' <<<"$settings")
        uri="$uri${separator}of=redis%3A%2F%2F$address"
        separator='&'
    done
    echo "DLOCK_TEST_URI_quorum=$uri&quarantine=0&lease=10s"
    ;;
again) for member in 1 2 3; do "$redis" again "$folder/quorum-$member"; done ;;
stop) for member in 1 2 3; do "$redis" stop "$folder/quorum-$member"; done ;;
esac
