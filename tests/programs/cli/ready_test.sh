#!/bin/bash
# A server that was started recently and grants nothing yet, and leases that would outlast its quarantine: on a Redis and
# a memcached of the test's own.
. "$(dirname "$0")/../../support/cli.sh"

use_redis
young="redis://$address?lease=10m"
why="quarantine after a restart, because it may have lost grants; the URI's quarantine= (default: the lease) sets its length"
# The message, with TIME in place of its remaining time.
said() { sed -E 's/for another ([0-9]+h)?([0-9]+m)?([0-9]+s)?:/for another TIME:/'; }
not_ready() { printf 'lock "%s": the server grants nothing for another TIME: %s' "$1" "$why"; }
# How long the quarantine has been going on, and a URI with which the server grants something in about that many seconds.
quarantined_s() {
    local since
    since=$(ask get '{}:dlock:incarnation' | cut -d' ' -f3)
    echo $((($(date +%s%3N) - since) / 1000))
}
ready_in() { echo "redis://$address?lease=1s&quarantine=$(($(quarantined_s) + $1))s"; }

describe "a cron job is not skipped: a try waits for the server, and says so"
run "$DLOCK" inspect -b "$young" backup # the first client writes down since when the server has been up
for options in "-n -E 0" "-n -v" "-n -s" "-w 0"; do
    # shellcheck disable=SC2086
    run "$DLOCK" run -b "$(ready_in 3)" $options backup -- echo ran
    equal "$options" "$status $out $(said <<<"$err" | head -n 1)" "0 ran dlock: waiting for $(not_ready backup)"
done
begin "$DLOCK" run -b "$young" -n backup -- touch "$work/never"
within 10 "it waits" grep -q "waiting for" "$work/bg.err"
kill -TERM "$pid"
ends "a signal ends it" 143 "$pid"
equal "for how long" "$(grep -cE 'for another (10m|9m([1-5]?[0-9]s)?): ' "$work/bg.err")" 1

describe "nor does a wait end without a word, or with -E's status"
for options in "-w .5" "-w .5 -E 0" "-w .5 -s -E 0" "-v -w .5"; do
    # shellcheck disable=SC2086
    run "$DLOCK" run -b "$young" $options backup -- touch "$work/never"
    equal "$options" "$status $(said <<<"$err")" "69 dlock: waiting for $(not_ready backup)
dlock: $(not_ready backup)"
done
if [ -e "$work/never" ]; then fail "the command was run all the same"; fi

describe "tickets"
run "$DLOCK" acquire -b "$(ready_in 3)" -n -E 0 tried
equal "a try" "$status $(said <<<"$err")" "0 dlock: waiting for $(not_ready tried)"
gives "its release" 0 "$DLOCK" release -b "$young" "$out"
run "$DLOCK" acquire -b "$young" -w .5 -E 0 backup
equal "a wait" "$status $out $(said <<<"$err")" "69  dlock: waiting for $(not_ready backup)
dlock: $(not_ready backup)"
gives "one from before" 0 "$DLOCK" acquire -b "redis://$address?quarantine=0" backup
ticket=$out
run "$DLOCK" renew -b "$young" "$ticket"
equal "is renewed" "$status $err" "0 "
run "$DLOCK" run -b "$young" -n -E 7 backup -- touch "$work/never"
equal "and makes the lock busy, as ever" "$status $err" "7 "
run "$DLOCK" run -b "$young" -w .3 -E 7 backup -- touch "$work/never"
equal "a wait, too" "$status $err" "7 "
gives "it is shown" 0 "$DLOCK" inspect -b "$young" backup
run "$DLOCK" release -b "$young" "$ticket"
equal "and released" "$status $err" "0 "
prints "then it is free" "1 backup  free" "$DLOCK" inspect -b "$young" backup
prints "and there is nothing to break" "1 backup  free" "$DLOCK" break -b "$young" backup
prints "nor to list" "0 " "$DLOCK" list -b "$young"

describe "a wait goes on through it, and says so once"
begin "$DLOCK" run -b "$(ready_in 5)" later -- echo done
ended "$pid"
equal "status and output" "$status $(<"$work/bg.out")" "0 done"
equal "one line" "$(said <"$work/bg.err")" "dlock: waiting for $(not_ready later)"
uri=$(ready_in 8)
"$DLOCK" run -b "$uri" queue -- true 2>"$work/first" &
first=$!
"$DLOCK" run -v -b "$uri" queue -- true 2>"$work/second" &
second=$!
run "$DLOCK" run -b "$uri" queue -- true
equal "one of several" "$status $(said <<<"$err")" "0 dlock: waiting for $(not_ready queue)"
ended "$first"
equal "another one" "$status $(said <"$work/first")" "0 dlock: waiting for $(not_ready queue)"
ended "$second"
equal "-v" "$status $(said <"$work/second" | head -n 1)" "0 dlock: waiting for $(not_ready queue)"
contains "-v says that it got it" "$(tail -n 1 "$work/second")" 'dlock: got "queue", fence '

describe "a signal ends such a wait"
begin "$DLOCK" run -b "$young" signalled -- touch "$work/never"
within 10 "it waits" grep -q "waiting for" "$work/bg.err"
kill -TERM "$pid"
ends "status" 143 "$pid"
equal "nobody waits any more" "$("$DLOCK" list -b "$young")" ""

describe "a bench waits for it, or says why not"
run "$DLOCK" bench --time 100ms --rounds 1 --workload cycle "$(ready_in 5)"
equal "a short one" "$status $(said <<<"$err")" "0 dlock: redis: waiting for $(not_ready dlock-bench:ready)"
run "$DLOCK" bench --time 100ms --rounds 1 --workload cycle "$young"
equal "a long one" "$status $out $(said <<<"$err")" "69  dlock: redis: waiting for $(not_ready dlock-bench:ready)
dlock: redis: $(not_ready dlock-bench:ready)"

describe "-l beyond the quarantine"
too_long() { # URI LEASE QUARANTINE EXPECTED-URI
    local command
    for command in "run s true" "acquire s"; do
        # shellcheck disable=SC2086
        run "$DLOCK" ${command%% *} -b "$1" -l "$2" ${command#* }
        equal "$command -b $1 -l $2" "$status $err" "64 dlock: -l $2 is longer than the quarantine of this server ($3), which protects leases when it restarts: use '$4', on every host"
    done
}
too_long "redis://$address?lease=10m" 20m 10m "redis://$address?lease=20m"
too_long "redis://$address" 20m 10s "redis://$address?lease=20m"
too_long "redis://$address/3" 11 10s "redis://$address/3?lease=11"
too_long "redis://$address?quarantine=90s" 1h 1m30s "redis://$address?quarantine=1h"
too_long "redis://$address?lease=1s&quarantine=1500ms" 2s 1500ms "redis://$address?lease=…&quarantine=2s"
too_long "redis://$address?timeout=1s&lease=2s&prefix=hunter2" 1.5m 2s "redis://$address?timeout=…&lease=1.5m&prefix=…"
ask acl setuser me on '>hunter2' '~*' '&*' +@all >/dev/null
too_long "redis://me:hunter2@$address/?db=0" 20m 10s "redis://…@$address/?db=…&lease=20m"
run env DLOCK_URI="redis://$address?lease=10m" "$DLOCK" run -l 20m s true
contains "of DLOCK_URI" "$err" "use 'redis://$address?lease=20m', on every host"
run "$DLOCK" run -n -b "redis://$address?quarantine=0" -l 20m s true
equal "without a quarantine any goes" "$status $err" "0 "
run "$DLOCK" run -l 20m -b "file:$work/locks" s true
equal "and where none is needed" "$status $err" "0 "

describe "leases that are none"
for lease in 0 10ms 0.099; do
    run "$DLOCK" run -l $lease s true
    equal "-l $lease" "$status $(head -n 1 <<<"$err")" "64 dlock: -l $lease is too short: a lease is at least 100ms"
    run "$DLOCK" acquire -l $lease s
    equal "acquire -l $lease" "$status $(head -n 1 <<<"$err")" "64 dlock: -l $lease is too short: a lease is at least 100ms"
done
run "$DLOCK" run -l 9000h s true
equal "-l 9000h" "$status $(head -n 1 <<<"$err")" "64 dlock: -l 9000h is too long: a lease is at most 8784h"
run "$DLOCK" run -b "$young" -l 8770h s true
equal "-l 8770h, more than a quarantine may have" "$status $err" \
    "64 dlock: -l 8770h is too long: a lease is at most 8760h on a server that forgets locks when it restarts"
run "$DLOCK" run -l 100ms -b "file:$work/locks" s true
equal "-l 100ms" "$status $err" "0 "

if "$DLOCK" backends | grep -q '^memcached '; then
    describe "memcached"
    settings=$("$servers/memcached.sh" start "$work") || exit 1
    at_exit+=(stop_memcached)
    stop_memcached() { "$servers/memcached.sh" stop "$work"; }
    address=$(sed -n 's/^DLOCK_TEST_MEMCACHED=//p' <<<"$settings")
    young="memcached://$address?lease=10m"
    memcached_uptime_s() {
        local line
        exec 3<>"/dev/tcp/${address%:*}/${address#*:}"
        printf 'stats\r\n' >&3
        while read -r -t 5 line <&3 && [ "${line%% uptime*}" != STAT ]; do :; done
        tr -dc 0-9 <<<"$line"
    }
    run "$DLOCK" run -b "memcached://$address?lease=1s&quarantine=$(($(memcached_uptime_s) + 3))s" -n -E 0 backup -- echo ran
    equal "a try" "$status $out $(said <<<"$err")" "0 ran dlock: waiting for $(not_ready backup)"
    run "$DLOCK" run -b "$young" -w .5 -E 0 backup -- touch "$work/never"
    equal "a wait" "$status $(said <<<"$err")" "69 dlock: waiting for $(not_ready backup)
dlock: $(not_ready backup)"
    begin "$DLOCK" run -b "memcached://$address?lease=1s&quarantine=$(($(memcached_uptime_s) + 5))s" later -- echo done
    ended "$pid"
    equal "one that is long enough" "$status $(<"$work/bg.out") $(said <"$work/bg.err")" \
        "0 done dlock: waiting for $(not_ready later)"
    run "$DLOCK" run -b "$young" -l 20m s true
    equal "-l" "$status $err" "64 dlock: -l 20m is longer than the quarantine of this server (10m), which protects leases when it restarts: use 'memcached://$address?lease=20m', on every host"
fi
if [ -e "$work/never" ]; then fail "the command was run all the same"; fi

finish
