#!/bin/bash
# The recipe of docs/servers/zookeeper.md: a client's stunnel, a server's, and ZooKeeper behind it. The files beside the page
# are run, with the ports and certificates of this test.
. "$(dirname "$0")/../../support/cli.sh"
. "$servers/common.sh"
. "$servers/certificates.sh"

recipes=$(dirname "$0")/../../../docs/servers
zookeeper=${DLOCK_TEST_ZOOKEEPER:?run the tests with tests/run.sh}
make_authority "$work/ca"
make_authority "$work/other-ca"
make_certificate "$work/server" "$work/ca" DNS:zk1.example
make_certificate "$work/client" "$work/ca" DNS:client.example
make_certificate "$work/elsewhere" "$work/ca" DNS:elsewhere.example
make_certificate "$work/stranger" "$work/other-ca" DNS:zk1.example

recipe() { grep -v '^;' "$recipes/$1.conf"; }
listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# stunnel_with NAME PORT EDIT…: the recipe NAME at this port, edited by sed; sets $pid.
stunnel_with() {
    local name=$1 port=$2 edits=()
    shift 2
    for edit; do edits+=(-e "$edit"); done
    {
        printf 'foreground = yes\npid =\nsyslog = no\noutput = %s\n' "$work/$name.log"
        recipe "$name" | sed -e "s,/etc/stunnel/,$work/," "${edits[@]}"
    } >"$work/$name.conf"
    stunnel "$work/$name.conf" >"$work/$name.out" 2>&1 </dev/null &
    pid=$!
    started+=("$pid")
    within 20 "$name listens" listens "$port"
}
stop() {
    kill "$1"
    wait "$1" || true
}
serve() { # [EDIT…]
    if [ -n "${server:-}" ]; then stop "$server"; fi
    stunnel_with zookeeper-server "$far" "s/^accept = .*/accept = 127.0.0.1:$far/" "s/^connect = .*/connect = $zookeeper/" "$@"
    server=$pid
}
connect() { # [EDIT…]
    if [ -n "${client:-}" ]; then stop "$client"; fi
    stunnel_with zookeeper-client "$near" "s/^accept = .*/accept = 127.0.0.1:$near/" \
        "s/^connect = .*/connect = 127.0.0.1:$far/" "$@"
    client=$pid
}

uri() { echo "zookeeper://127.0.0.1:$near/dlock/stunnel?session=10s&timeout=$1"; }
accepted() {
    run "$DLOCK" run -b "$(uri 30s)" tls -- echo ran
    equal "$1" "$status $out" "0 ran"
}
refused() { # WHAT END REASON
    run "$DLOCK" run -b "$(uri 1s)" tls -- echo ran
    equal "$1" "$status $out" "69 "
    contains "$1, of which stunnel says" "$(cat "$work/$2.log")" "$3"
}

far=$(free_port) near=$(free_port)
describe "the recipe"
equal "is there" "$(recipe zookeeper-server | grep -c =) $(recipe zookeeper-client | grep -c =)" "8 10"
serve
connect
accepted "both have certificates of the authority"
begin "$DLOCK" run -b "$(uri 30s)" held -- sleep 1000
holder=$pid
is_there() { "$DLOCK" inspect -b "zookeeper://$zookeeper/dlock/stunnel" held >/dev/null 2>&1; }
within 20 "held" is_there
run "$DLOCK" run -n -E 9 -b "zookeeper://$zookeeper/dlock/stunnel" held true
equal "the lock is the server's" "$status" 9
serve # again, as after an update: the session outlives it
run "$DLOCK" run -n -E 9 -b "$(uri 30s)" held true
equal "still held" "$status" 9
kill "$holder"
ended "$holder"

describe "who is not verified"
connect 's/^checkHost = .*/checkHost = elsewhere.example/'
refused "a server with another name" zookeeper-client "certificate verify failed"
connect "s,^CAfile = .*,CAfile = $work/other-ca.pem,"
refused "a server of another authority" zookeeper-client "certificate verify failed"
connect /^cert/d /^key/d
refused "a client without a certificate" zookeeper-server "peer did not return a certificate"
connect s/client\\./stranger./
refused "a client of another authority" zookeeper-server "certificate verify failed"
connect
accepted "the recipe again"
serve s/server\\./elsewhere./
refused "a server that has another's certificate" zookeeper-client "certificate verify failed"

finish
