#!/bin/bash
# Mistakes on the command line: their messages, word by word. Nothing here needs a server.
. "$(dirname "$0")/../../support/cli.sh"

says() { # STATUS MESSAGE ARGUMENT…: its first line
    local expected="$1 dlock: $2"
    shift 2
    run "$DLOCK" "$@"
    equal "dlock $*" "$status ${err%%$'\n'*}" "$expected"
    equal "dlock $* writes nothing to stdout" "$out" ""
}
uri() { # MESSAGE URI
    says 64 "URI: $1" inspect -b "$2" a
}
backends=$("$DLOCK" backends --json)
has() { [[ $backends == *"\"name\": \"$1\""* ]]; }

describe "a host in place of a URI"
uri '"localhost:6379" has no scheme; did you mean redis://localhost:6379?' localhost:6379
uri '"10.0.0.7:11211" has no scheme; did you mean memcached://10.0.0.7:11211?' 10.0.0.7:11211
uri '"zk.example:2181" has no scheme; did you mean zookeeper://zk.example:2181?' zk.example:2181/locks
uri '"10.0.0.7:2379" has no scheme; did you mean etcd://10.0.0.7:2379?' 10.0.0.7:2379
uri '"db:5432" has no scheme; did you mean postgresql://db:5432?' "db:5432?schema=x"
uri '"localhost:7000" has no scheme; write it in front, as in redis://localhost:7000' localhost:7000
uri '"h1:2181,h2:2181" has no scheme; did you mean zookeeper://h1:2181,h2:2181?' h1:2181,h2:2181/locks
uri 'no scheme: write for example redis://localhost or file:locks' localhost

describe "strings of other programs: tests/unit/uri/hints_test.c has all of them"
uri 'write zookeeper://HOST,HOST,HOST/PATH' zk://h:2181/locks
uri 'it begins with a quotation mark: write it without any (a file of variables keeps what a shell would take away)' '"redis://h"'
if has redis; then
    uri 'a socket is written redis+unix:///path/to/socket' redis:///run/redis/redis.sock
    uri 'write redis+sentinel://HOST,HOST,HOST/MASTER?db=N' redis+sentinel://h/mymaster/0
    uri 'Redis over TLS is rediss://HOST, without this key' "redis://h?ssl=true"
fi
if has memcached; then uri 'a socket is written memcached+unix:///path/to/socket' memcached:///run/memcached.sock; fi

describe "a scheme without slashes"
for scheme in redis memcached zookeeper etcd postgresql; do
    if ! has "$scheme"; then continue; fi
    uri "\"//\" is missing; did you mean $scheme://localhost?" "$scheme:localhost"
    uri "\"//\" is missing; did you mean $scheme://h:1/2?" "$scheme:h:1/2"
    uri "\"//\" is missing before the hosts: write $scheme://HOST" "$scheme:user:hunter2@h"
done

describe "an unknown scheme"
run "$DLOCK" inspect -b oracle://h a
contains "the others are listed" "$status $err" "69 dlock: no backend for the scheme \"oracle\"; there are: "
contains "and where it was looked for" "$err" "(dlock-oracle.so is not in "
run "$DLOCK" inspect -b flie:x a
equal "the nearest is guessed" "$status ${err%% (*}" '69 dlock: no backend for the scheme "flie"; did you mean "file"?'
if has redis; then
    run "$DLOCK" inspect -b valky://h a
    equal "also among aliases" "$status ${err%% (*}" '69 dlock: no backend for the scheme "valky"; did you mean "valkey"?'
    run "$DLOCK" inspect -b reids+cluster://h a
    equal "also before a +" "$status ${err%% (*}" '69 dlock: no backend for the scheme "reids+cluster"; did you mean "redis"?'
    run "$DLOCK" inspect -b redis+cluser://h a
    equal "also among those of a module" "$status $err" '69 dlock: no backend for the scheme "redis+cluser"; did you mean "redis+cluster"?'
fi

describe "unknown keys and values in a URI"
uri 'file does not know the key "lesae"; did you mean "lease"?' "file:x?lesae=5s"
uri 'file does not know the key "mod"; did you mean "mode"?' "file:x?mod=0600"
uri 'file does not know the key "xyz"; it takes mode, group, and as every backend lease, timeout, connections, prefix, linger, quarantine, guardian, password_file, label' "file:x?xyz=1"
uri '"guardian" must be on or off; did you mean "off"?' "file:x?guardian=offf"
uri '"guardian" must be on or off' "file:x?guardian=xyz"
if has postgresql; then
    uri 'neither dlock nor libpq knows a key "lesae"; did you mean "lease"?' "postgresql://h/d?lesae=5s"
    uri 'neither dlock nor libpq knows a key "shcema"; did you mean "schema"?' "postgresql://h/d?shcema=a"
    uri 'neither dlock nor libpq knows a key "ssl_mode"; did you mean "sslmode"?' "postgresql://h/d?ssl_mode=a"
    uri 'neither dlock nor libpq knows a key "xyz"' "postgresql://h/d?xyz=1"
    uri '"mode" must be rows or session; did you mean "session"?' "postgresql://h/d?mode=sesion"
    uri '"listen" must be on or off; did you mean "on"?' "postgresql://h/d?listen=On"
fi
if has zookeeper; then
    says 64 'URI: "acl" must be open, creator or read; did you mean "creator"?' inspect -b "zookeeper://h?acl=creater" a
    says 64 'URI: "curator" must be mutex or readwrite; did you mean "readwrite"?' inspect -b "zookeeper://h?curator=readwriet" a
fi

describe "a directory in which no file can be created"
run timeout 60 "$DLOCK" run -v -b file:/proc job true
contains "it is said at once" "$status $err" " dlock: cannot create lock files in /proc: "

describe "too few descriptors: the limit is named, and no thread is blamed"
limited() { # ARGUMENT…: under limits of which the least ones do not suffice
    local limit named=0
    for limit in {4..20}; do
        run prlimit --nofile="$limit" "$DLOCK" "$@"
        equal "$limit descriptors: dlock $*" "$(grep "Too many open files" <<<"$out$err" | grep -v "; raise the limit (ulimit -n)")" ""
        lacks "$limit descriptors: dlock $*" "$out$err" thread
        if [ "$status" = 71 ]; then contains "$limit descriptors: dlock $*" "$out$err" "(ulimit -n)"; fi
        case "$out$err" in *"(ulimit -n)"*) named=$((named + 1)) ;; esac
    done
    if [ "$named" = 0 ]; then fail "dlock $* had enough descriptors each time"; fi
}
limited run -b "$DLOCK_URI?guardian=off" job -- true
limited run --metrics "$work/metrics" -b "$DLOCK_URI?guardian=off" job -- true
limited acquire job # which fails on files, but later
limited top -n 1 job

describe "other limits are named, too"
run prlimit --fsize=4096 "$DLOCK" run job true
contains "files of 4 kB" "$status $err" \
    "71 dlock: cannot share memory with the guardian: File too large; raise the limit (ulimit -f)"
for limit in 10000000 20000000 40000000 60000000; do # a sanitizer needs more, and ends the program itself
    run prlimit --as="$limit" "$DLOCK" run -b "$DLOCK_URI?guardian=off" job true
    equal "$limit bytes of memory" "$(grep "^dlock: .*thread" <<<"$err" | grep -vF "; raise the limit (ulimit -u, ulimit -v)")" ""
done

if unshare --mount mount -t tmpfs none /proc 2>/dev/null; then # as root
    describe "without /proc the programs of two commands are not found"
    # shellcheck disable=SC2016
    hidden='mount -t tmpfs none /proc && PATH=/nonexistent exec "$0" "$@"'
    missing="/proc is not mounted, and without it the folder of the program dlock is not known"
    run unshare --mount sh -c "$hidden" "$DLOCK" top -n 1 job
    equal "top" "$status $out$err" "69 dlock: cannot run dlock-top, the program of 'dlock top': $missing"
    run unshare --mount sh -c "$hidden" "$DLOCK" bench
    equal "bench" "$status $out$err" "69 dlock: cannot run dlock-bench: $missing"
fi

describe "commands and options"
says 64 "unknown command 'bnech'; did you mean \"bench\"?" bnech
says 64 "unknown command 'lsit'; did you mean \"list\"?" lsit
says 64 "unknown command 'status'; did you mean \"inspect\"?" status job
says 64 "unknown command 'unlock'; did you mean \"release\"?" unlock job
says 64 "unknown command 'lock'; did you mean \"run\"?" lock job true
says 64 "unknown command 'ls'; did you mean \"list\"?" help ls
says 64 "unknown command 'version'; did you mean \"-V\"?" version
says 64 'options must follow the command, as in `dlock run -b URI NAME COMMAND`' -b redis://:secret@host run a true
says 64 "unknown command 'rnu'; did you mean \"run\"?" help rnu
run "$DLOCK" help help
equal "help about help is the overview" "$status $err$out" "0 $("$DLOCK" --help)"
says 64 "unknown command 'xyz'; there are: run, acquire, renew, release, inspect, list, top, metrics, log, doctor, break, backends, schema, bench, help" xyz
says 64 "unknown command; there are: run, acquire, renew, release, inspect, list, top, metrics, log, doctor, break, backends, schema, bench, help" redis://:hunter2@h
says 64 'unknown or ambiguous option --nonblok; did you mean "--nonblock"?' run --nonblok a true
says 64 'unknown or ambiguous option --bakend; did you mean "--backend"?' inspect --bakend=redis://:hunter2@h a
says 64 'unknown or ambiguous option --uri; did you mean "--backend"?' list --uri=redis://:hunter2@h
says 64 'unknown or ambiguous option --xyz' run --xyz a true
says 64 'unknown option -q' run --nonblock -qv a true
says 64 'unknown option -n' inspect --backend=x -nv a
says 64 'option --nonblock takes no value' run --nonblock=x -nv a true
says 64 'option --nonbl takes no value' run --nonbl=x -nv a true
says 64 'option --pass-uri takes no value' run --pass-uri=x -uv a true
says 64 'unknown option -u; the server is given with -b' run --pass-uri -uv a true
says 64 'unknown option -M' run --metrics=x -Mv a true
says 64 'option -w needs a value' run -vw
says 64 'option --wait needs a value' run -v --wait
says 64 "-c must follow NAME: dlock run NAME -c 'SHELL LINE'" run -c true job
says 64 "-c must follow NAME: dlock run NAME -c 'SHELL LINE'" run -n --command true job
says 64 "-c must follow NAME: dlock run NAME -c 'SHELL LINE'" run --command=true job
says 64 "unknown option -c" acquire -c true job

describe "workloads and backends"
all="cycle, re-entry, hand-over, hand-over-10ms, distinct, one-lock, crash, crowd, renewal, idle, command"
says 64 "there is no workload of that name; there are: $all" bench -w xyz
says 64 'there is no workload of that name; did you mean "cycle"?' bench --workload cylce
says 64 'there is no backend of that name; did you mean "file"?' schema flie
known=$(python3 -c 'import json, sys; print(", ".join(b["name"] for b in json.loads(sys.argv[1])["backends"]))' "$backends")
says 64 "there is no backend of that name; there are: $known" schema xyz

describe "tickets"
for command in renew release; do
    says 64 "this is not a ticket of dlock acquire (dlock_export), or not a whole one" "$command" nonsense
done

describe "nothing is held: a pipe and JSON stay as they are"
run "$DLOCK" list
equal "list" "$status $out$err" "0 "
run "$DLOCK" list --json
equal "list --json" "$status $out$err" '0 {"prefix": "", "holders": []}'
run "$DLOCK" inspect a
equal "inspect" "$status $out$err" "1 a  free"

describe "80 columns"
narrow() { # WHAT TEXT
    local wide
    wide=$(python3 -c 'import sys; print("\n".join(l for l in sys.argv[1].split("\n") if len(l) > 80))' "$2")
    equal "$1" "$wide" ""
}
narrow "the list of backends" "$("$DLOCK" backends | grep -v ' /')" # a path alone may be longer
equal "which begins with a heading" "$("$DLOCK" backends | head -n 3 | tail -n 1 | cut -c -27)" "NAME                   wake"
for command in "" run acquire renew release inspect list break top metrics backends doctor schema bench; do
    help=$("$DLOCK" help $command)
    narrow "dlock help $command" "$help"
    if [ "$(wc -l <<<"$help")" -lt 5 ]; then fail "dlock help $command is short" "$help"; fi
done

finish
