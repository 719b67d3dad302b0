#!/bin/bash
# `dlock run` with readers and permits, -s, -x and -p: on files, and on a Redis where that is built.
. "$(dirname "$0")/../../support/cli.sh"

starts=0
# hold NAME OPTION…: a `dlock run` that holds until it is killed; sets $pid
hold() {
    local name=$1 mark
    shift
    starts=$((starts + 1))
    mark=$work/started.$starts
    begin "$DLOCK" run "$@" "$name" -- sh -c 'echo >"$0"; exec sleep 1000' "$mark"
    within 10 "held: $name $*" written "$mark"
}
# try STATUS NAME OPTION…
try() {
    local expected=$1 name=$2
    shift 2
    gives "$name $*" "$expected" "$DLOCK" run -n "$@" "$name" true
}
modes_of() { "$DLOCK" inspect "$1" | awk -F '  +' 'NR > 1 { print $2 }' | sort | xargs; }

readers() {
    describe "$1: readers"
    hold page -s
    local first=$pid
    hold page --shared
    local second=$pid
    equal "inspect shows both" "$(modes_of page)" "shared shared"
    try 1 page
    try 1 page -s -x
    try 0 page -x -s
    stop "$first"
    try 1 page -e
    stop "$second"
    try 0 page
    hold page --exclusive
    try 1 page -s
    equal "inspect shows the writer" "$(modes_of page)" "exclusive"
    "$DLOCK" run -w 30 -s page -- true &
    local reader=$!
    sleep 0.3
    stop "$pid"
    wait "$reader"
    equal "a reader that waits is served" "$?" 0
    export DLOCK
    run "$DLOCK" run -s page -c 'a=$DLOCK_FENCE; exec "$DLOCK" run -s page -c "test \$DLOCK_FENCE -gt $a && echo grows"'
    equal "each reader has a fence of its own" "$out" grows
}

permits() {
    describe "$1: permits"
    hold pool -p 2
    local first=$pid
    hold pool --permits=2
    equal "inspect shows both" "$(modes_of pool)" "permit of 2 permit of 2"
    equal "and so does JSON" "$("$DLOCK" inspect --json pool | grep -o '"mode": "permit"[^}]*"limit": 2' | wc -l)" 2
    try 1 pool -p 2
    try 64 pool -p 3
    contains "another limit is an error" "$err" permits
    try 64 pool
    contains "and so is a lock" "$err" permits
    stop "$first"
    try 0 pool -p 2
    gives "break" 0 "$DLOCK" break pool
    ends "ends its holder" 75 "$pid"
    try 0 pool -p 3
}

readers file
permits file
if "$DLOCK" backends --json | grep -q '"redis", "schemes"'; then
    use_redis
    DLOCK_URI+="&lease=2s" # a holder learns of a break at its next renewal
    readers redis
    permits redis
fi

finish
