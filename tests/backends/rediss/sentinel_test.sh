#!/bin/bash
# rediss+sentinel: a master, its replica and three Sentinels that all speak TLS alone: whose certificate has to have which
# name, and a failover. The master and its replica are known by a name, and have no certificate for an address.
. "$(dirname "$0")/../../support/cli.sh"
. "$servers/common.sh"
. "$servers/certificates.sh"

certificates=$work/certificates
mkdir "$certificates"
make_authority "$certificates/ca"
make_certificate "$certificates/address" "$certificates/ca" DNS:locks.test,IP:127.0.0.1
make_certificate "$certificates/name" "$certificates/ca" DNS:locks.test
name=0x7f000001 # of 127.0.0.1 on every machine: localhost may stand for ::1 first, which is all that a Sentinel would use
make_certificate "$certificates/local" "$certificates/ca" DNS:locks.test,DNS:$name
program=${DLOCK_REDIS_SERVER:-redis-server}
folder=$work

tls() { # CERTIFICATE: the options
    echo "--port 0 --tls-cert-file $certificates/$1.pem --tls-key-file $certificates/$1.key" \
        "--tls-ca-cert-file $certificates/ca.pem --tls-auth-clients no --tls-replication yes --bind 127.0.0.1 --dir $work"
}
said() { redis-cli -h 127.0.0.1 -p "$1" --tls --cacert "$certificates/ca.pem" --sni locks.test "${@:2}" 2>/dev/null; }
answers() { [ "$(said "$1" ping)" = PONG ]; }

certificate=local sentinel=
launch() {
    local options=(--save '' --appendonly no)
    if [ -n "$sentinel" ]; then
        printf 'tls-port %s\nsentinel resolve-hostnames yes\nsentinel announce-hostnames yes\n' "$1" >"$work/$sentinel.conf"
        printf 'sentinel monitor mymaster %s %s 2\nsentinel failover-timeout mymaster 3000\n' "$name" "$master" \
            >>"$work/$sentinel.conf"
        options=("$work/$sentinel.conf" --sentinel)
    fi
    # shellcheck disable=SC2046
    "$program" "${options[@]}" --tls-port "$1" $(tls "$certificate") >"$work/server.$1.log" 2>&1 </dev/null &
    started+=("$!")
}

start_on_free_port master
master=$port
start_on_free_port replica
replica=$port
said "$replica" config set replica-announce-ip "$name" >/dev/null
said "$replica" replicaof 127.0.0.1 "$master" >/dev/null
hosts= certificate=address
for sentinel in first second third; do
    if [ "$sentinel" = third ]; then certificate=name; fi
    start_on_free_port "$sentinel"
    hosts+=${hosts:+,}127.0.0.1:$port
done
one=$(cat "$work/first.port") third=$(cat "$work/third.port")
agree() { said "$one" info sentinel | grep -q "slaves=1,sentinels=3" && said "$third" info sentinel | grep -q "slaves=1,sentinels=3"; }
within 60 "the Sentinels know each other" agree

uri() { echo "rediss+sentinel://${2:-$hosts}/mymaster?lease=8s&timeout=5s&ca=$certificates/ca.pem${1:-}"; }
accepted() { # WHAT URI
    run "$DLOCK" run -w 60s -b "$2" tls -- echo ran
    equal "$1" "$status $out" "0 ran"
}
refused() { # WHAT URI MESSAGE
    run "$DLOCK" run -b "$2&guardian=off" tls -- echo ran
    equal "$1" "$status $out" "69 "
    contains "$1 says why" "$err" "$3"
}

describe "names in certificates"
accepted "the addresses, of a majority" "$(uri)"
accepted "sni=, of all" "$(uri '&sni=locks.test')"
refused "sni= of another" "$(uri '&sni=elsewhere.test')" 'not for "elsewhere.test": say which name it has with sni='
run "$DLOCK" doctor "$(uri)"
contains "doctor says how many answer" "$out" "2 of 3 Sentinels answer"
run "$DLOCK" doctor "$(uri '&sni=locks.test')"
contains "and how many with the name" "$out" "3 of 3 Sentinels answer"
contains "and what protects the connection" "$out" "TLSv1."
contains "and the master's name, which is the one in its certificate" "$out" "the master is $name port $master"

describe "Sentinels without TLS, and clients"
refused "a client without TLS" "redis+sentinel://$hosts/mymaster?timeout=1s" "the Sentinel at 127.0.0.1 port"

describe "a failover by hand"
begin "$DLOCK" run -b "$(uri '&sni=locks.test')" held -- sleep 1000
is_there() { "$DLOCK" inspect -b "$(uri '&sni=locks.test')" held >/dev/null 2>&1; }
within 20 "held" is_there
said "$one" sentinel failover mymaster >/dev/null
promoted() { said "$third" sentinel get-master-addr-by-name mymaster | grep -qx "$replica"; }
within 60 "promoted" promoted
accepted "the new master by its name" "$(uri)"
accepted "another lock at the new master" "$(uri '&sni=locks.test')"
if ! kill -0 "$pid"; then fail "a holder that the new master knows of has lost its lock"; fi
kill "$pid"
ended "$pid"

finish
