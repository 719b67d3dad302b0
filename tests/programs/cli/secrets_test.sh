#!/bin/bash
# Whenever something is wrong with a URI, its password and the values in its query are not printed.
. "$(dirname "$0")/../../support/cli.sh"

secret=hunter2
uris=(
    "redis://:$secret@127.0.0.1:1" "redis://user:$secret@127.0.0.1:1/x/y" "redis://:$secret@no-such-host.invalid"
    "redis://:$secret@127.0.0.1:1?nosuchkey=$secret" "redis://:$secret@127.0.0.1:1?lease=$secret"
    "redis://:$secret@127.0.0.1:99999" "redis://:$secret@[::1" "redis://:$secret@h?%zz=$secret" "redis//:$secret@h"
    "redis:/user:$secret@h" "redis:///user:$secret@h" "etcd:user:$secret@127.0.0.1"
    "quorum:?of=redis://u:$secret@h&of=redis://h&of=redis://i" "nosuchserver://user:$secret@h"
    "file://user:$secret@h/x" "file:$work/locks?key=$secret" "://:$secret@h" ":$secret@h"
)
commands=("run s true" "run -v -n s true" "run -w 1 s true" "inspect s" "inspect --json s" "list --json" "break s" "doctor --json"
    "acquire s" "renew nonsense" "release nonsense" "metrics s" "run --metrics $work/job.prom s true")

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
        if [ -e "$work/job.prom" ]; then lacks "--metrics, $uri" "$(<"$work/job.prom")" "$secret"; fi
        rm -f "$work/job.prom"
    done
done

describe "in the wrong place"
uri=redis://:$secret@h
for arguments in "$uri" "help $uri" "run --bakend=$uri s true" "run --nonblock=$uri s true" "run -E $uri s true" \
    "inspect a $uri" "inspect --bakend=$uri a" "list a $uri" "backends $uri" "schema $uri" "doctor -b $uri $uri" "run -w $uri s true" "run -l $uri s true" \
    "acquire a $uri" "acquire -p $uri a" "renew -b $uri" "release a $uri" "renew $uri" "release $uri"; do
    # shellcheck disable=SC2086
    gives "$arguments" 64 "$DLOCK" $arguments
    lacks "$arguments" "$out$err" "$secret"
done

# shows EXPECTED OPTION…: the DLOCK_URI that a command gets, set or not.
shows() {
    local expected=$1
    shift
    # shellcheck disable=SC2016
    run "$DLOCK" run "$@" s -c 'printf "%s" "${DLOCK_URI-none}"'
    equal "run $*, DLOCK_URI=${DLOCK_URI-none}" "$status $out $err" "0 $expected "
}

describe "what the command of run inherits"
export SHELL=/bin/sh
here=$DLOCK_URI
shows "$here"
unset DLOCK_URI
shows "$here" -b "$here"
DLOCK_URI="" shows "$here" -b "$here"
DLOCK_URI="redis://user:$secret@h/2?lease=5s" shows "redis://user@h/2?lease=5s" -b "$here"
DLOCK_URI="postgresql://h/db?password=$secret&schema=a" shows "postgresql://h/db?schema=a" -b "$here"
DLOCK_URI="zookeeper://h/x?session=5s&auth=digest:user:$secret" shows "zookeeper://h/x?session=5s" -b "$here"
DLOCK_URI="quorum:?of=redis://u:$secret@h&of=redis://i" shows "quorum:?of=redis://i" -b "$here"
DLOCK_URI="redis://user@h?password_file=/run/password" shows "redis://user@h?password_file=/run/password" -b "$here"
DLOCK_URI="redis://:$secret@h" shows "$here" -b "$here" --pass-uri
shows "$here" -b "$here" --pass-uri
DLOCK_URI=$here shows "$here" --pass-uri
for broken in "redis//:$secret@h" "redis://:$secret@[::1"; do
    gives "what is no URI" 64 env DLOCK_URI="$broken" "$DLOCK" run -b "$here" s true
    contains "is not handed on" "$err" "dlock: the command cannot have this DLOCK_URI: URI: "
    lacks "nor shown" "$out$err" "$secret"
    DLOCK_URI=$broken shows "$here" -b "$here" --pass-uri
done

finish
