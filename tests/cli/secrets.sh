#!/bin/bash
# Whatever goes wrong with a URI, its password and the values in its query are not printed.
. "$(dirname "$0")/lib.sh"

secret=hunter2
uris=(
    "redis://:$secret@127.0.0.1:1" "redis://user:$secret@127.0.0.1:1/x/y" "redis://:$secret@no-such-host.invalid"
    "redis://:$secret@127.0.0.1:1?nosuchkey=$secret" "redis://:$secret@127.0.0.1:1?lease=$secret"
    "redis://:$secret@127.0.0.1:99999" "redis://:$secret@[::1" "redis://:$secret@h?%zz=$secret" "redis//:$secret@h"
    "nosuchserver://user:$secret@h" "file://user:$secret@h/x" "file:$work/locks?key=$secret" "://:$secret@h" ":$secret@h"
)
commands=("run s true" "run -v -n s true" "run -w 1 s true" "inspect s" "inspect --json s" "list --json" "break s" "doctor --json"
    "acquire s" "renew nonsense" "release nonsense")

describe "from the environment, and from -b"
for uri in "${uris[@]}"; do
    for command in "${commands[@]}"; do
        # shellcheck disable=SC2086
        run env DLOCK_URI="$uri" "$DLOCK" $command
        lacks "$command, DLOCK_URI=$uri" "$out$err" "$secret"
        if [ "$status" != 64 ] && [ "$status" != 69 ]; then fail "$command, DLOCK_URI=$uri: status $status: $err"; fi
        # shellcheck disable=SC2086
        run "$DLOCK" ${command%% *} -b "$uri" ${command#* }
        lacks "$command -b $uri" "$out$err" "$secret"
    done
done

describe "in the wrong place"
uri=redis://:$secret@h
for arguments in "$uri" "help $uri" "run --bakend=$uri s true" "run --nonblock=$uri s true" "run -E $uri s true" \
    "inspect a $uri" "inspect --bakend=$uri a" "list a $uri" "backends $uri" "schema $uri" "doctor -b $uri $uri" "run -w $uri s true" "run -l $uri s true" \
    "acquire a $uri" "acquire -p $uri a" "renew -b $uri" "release a $uri" "renew $uri" "release $uri"; do
    # shellcheck disable=SC2086
    run "$DLOCK" $arguments
    equal "$arguments" "$status" 64
    lacks "$arguments" "$out$err" "$secret"
done

finish
