#!/bin/bash
# MySQL's servers that do not decide alone who has a lock: a node of Galera, and one that is read-only, as replicas are.
. "$(dirname "$0")/../../support/cli.sh"
. "$servers/common.sh"

chmod a+rx "$work" # the server runs as another user than root
stop_server() { "$servers/mysql.sh" stop "$work"; }
at_exit+=(stop_server)
settings=$("$servers/mysql.sh" start "$work") || exit 1
address=$(sed -n 's/^DLOCK_TEST_MYSQL=//p' <<<"$settings")
port=${address##*:}
is_up() { (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; }
server_with() { # OPTION…: from here on it has these
    stop_server
    DLOCK_SERVER_OPTIONS="$*" "$servers/mysql.sh" again "$work"
    within 60 "the server is there again" is_up
}
uri() { echo "mysql://dlock:secret@$1/locks?timeout=${within:-30s}&guardian=off${2:-}"; } # HOSTS [KEYS]

for mode in rows session; do
    run "$DLOCK" run -b "$(uri "$address" "&mode=$mode")" roles -- echo ran
    equal "served before, $mode" "$status $out" "0 ran"
done

describe "a node of Galera"
server_with --wsrep-on=ON --wsrep-provider=/usr/lib/galera/libgalera_smm.so --wsrep-cluster-address=gcomm:// \
    --wsrep-node-address=127.0.0.1 "--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:$(free_port)" \
    --binlog-format=ROW --innodb-autoinc-lock-mode=2
for mode in rows session; do
    run "$DLOCK" run -b "$(uri "$address" "&mode=$mode")" roles -- echo ran
    equal "refused, $mode" "$status $out" "69 "
    contains "and says why, $mode" "$err" "is a node of a Galera cluster"
    contains "and what to do, $mode" "$err" "use a single primary"
done
run "$DLOCK" doctor -b "$(uri "$address")"
contains "doctor says so, too" "$out$err" "is a node of a Galera cluster"

describe "a server that is read-only"
server_with --read-only=ON
for mode in rows session; do
    within=2s
    run "$DLOCK" run -b "$(uri "$address" "&mode=$mode")" roles -- echo ran
    equal "refused, $mode" "$status $out" "69 "
    contains "and says what to do, $mode" "$err" "is read-only (a replica?): look for the primary"
    within=30s
    # The other host's grant is the one that counts: it is seen there.
    run "$DLOCK" run -b "$(uri "$address,$DLOCK_TEST_MYSQL" "&mode=$mode&prefix=roles-$$:")" roles -- \
        "$DLOCK" run -n -b "$(uri "$DLOCK_TEST_MYSQL" "&mode=$mode&prefix=roles-$$:")" roles -- echo ran
    equal "passed over for the primary, $mode" "$status $out" "1 "
done

within=5s
# A switchover ends no session, and the new primary knows nothing of its locks. The server itself refuses nothing to admin.
for mode in rows session; do
    for user in dlock admin; do
        describe "a server that becomes read-only: $mode, $user"
        "$servers/mysql.sh" sql "$work" "SET GLOBAL read_only = OFF"
        uri=$(uri "$address" "&mode=$mode")
        begin "$DLOCK" run -l 3 -b "${uri/dlock:/$user:}" roles -- sh -c "touch '$work/held'; exec sleep 40"
        holder=$pid
        within 30 "held" test -e "$work/held"
        begin "$DLOCK" bench -w distinct --threads 1 --rounds 1 --time 8s --floors "" "${uri/dlock:/$user:}"
        sleep 1 # its connection takes one lock after the other
        "$servers/mysql.sh" sql "$work" "SET GLOBAL read_only = ON"
        ended "$holder"
        equal "the holder is told" "$status" 75
        ended "$pid"
        equal "nothing is granted" "$status" 69
        rm "$work/held"
    done
done

finish
