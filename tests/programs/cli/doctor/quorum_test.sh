#!/bin/bash
# dlock doctor on a quorum of Redis servers.
. "$(dirname "$0")/lib.sh"

redis=$here/../../../servers/redis.sh
at_exit+=(stop_servers)
stop_servers() { for member in a b c; do "$redis" stop "$folder/$member"; done; }
where=()
for member in a b c; do
    mkdir "$folder/$member"
    where[${#where[@]}]=$("$redis" start "$folder/$member" | sed -n 's/^DLOCK_TEST_REDIS=//p')
done
of() { # ADDRESS…
    local uri=quorum: mark='?' address
    for address; do uri="$uri${mark}of=redis%3A%2F%2F$address" mark='&'; done
    echo "$uri"
}

describe "everything is fine"
quorum=$(of "${where[@]}")
for _ in $(seq 100); do # they are young, for a second
    if ! "$DLOCK" doctor "$quorum&quarantine=1s" | grep -q "grants nothing"; then break; fi
    sleep 0.1
done
settings "$quorum&quarantine=1s"
fine "3 members, of which 1 may fail at a time"
for address in "${where[@]}"; do fine "$address: redis "; done

describe "without a quarantine"
settings "$quorum&quarantine=0" 1
weak "${where[1]}: appendonly no, and no quarantine" "remove quarantine=0"

describe "a quarantine of one member's own"
settings "quorum:?of=redis%3A%2F%2F${where[0]}%3Fquarantine=0&of=redis%3A%2F%2F${where[1]}&of=redis%3A%2F%2F${where[2]}" 1
weak "${where[0]}: appendonly no, and no quarantine"
weak "${where[1]}: grants nothing for another"

describe "an even number, and a server that stands there twice"
settings "$(of "${where[@]}" "${where[2]}/1")&quarantine=1s" 1
weak "4 members, of which 1 may fail" "add or remove one"
weak "members 3 and 4 are both at ${where[2]}" "name another one"

describe "one is away"
"$redis" stop "$folder/b"
settings "$quorum&quarantine=1s&timeout=3s" 1
weak "${where[1]}: cannot connect" "bring it back"
fine "${where[2]}: redis "

describe "two are"
"$redis" stop "$folder/c"
settings "$quorum&timeout=1s" 69
contains "they are named" "$err" "of 3 members of the quorum can be reached, and 2 are needed"

finish
