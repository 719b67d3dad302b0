#!/bin/bash
# The time that `dlock run` adds to a command, on files. The median of many, since the machine may be busy.
. "$(dirname "$0")/../../support/cli.sh"

# median COMMAND…: microseconds
median() {
    local before after
    for _ in $(seq 41); do
        before=${EPOCHREALTIME/[.,]/}
        "$@" || return
        after=${EPOCHREALTIME/[.,]/}
        echo $((after - before))
    done | sort -n | sed -n 21p
}

describe "the cost of an uncontended lock"
true=$(type -P true)
plain=$(median "$true")
locked=$(median "$DLOCK" run speed "$true")
echo "   true: $plain us; dlock run speed true: $locked us; dlock adds $((locked - plain)) us"
if [ $((locked - plain)) -gt 100000 ]; then fail "dlock adds more than 100 ms"; fi

finish
