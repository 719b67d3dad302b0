#!/bin/bash
# shell_lock.sh PORT NAME ROUNDS FILE: takes a lock with nothing but the text protocol, as any client could, and counts
# up in FILE under it, without another lock.
set -eu
exec 3<>"/dev/tcp/127.0.0.1/$1"
token=shell.$$

answer() {
    IFS= read -r -t 20 line <&3
    line=${line%$'\r'}
}

for ((round = 0; round < $3; round++)); do
    while
        printf 'add %s 0 30 %d\r\n%s\r\n' "$2" "${#token}" "$token" >&3
        answer
        [ "$line" != STORED ]
    do
        [ "$line" = NOT_STORED ]
        sleep 0.00"$((RANDOM % 9 + 1))"
    done
    read -r number <"$4"
    echo $((number + 1)) >"$4"
    printf 'gets %s\r\n' "$2" >&3
    answer
    set -- "$1" "$2" "$3" "$4" "${line##* }"
    answer
    [ "$line" = "$token" ]
    answer
    printf 'cas %s 0 2592001 0 %s\r\n\r\n' "$2" "$5" >&3
    answer
    [ "$line" = STORED ]
done
