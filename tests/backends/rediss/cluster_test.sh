#!/bin/bash
# cluster_test.sh: rediss+cluster:// against three masters that speak only TLS, each with its own certificate: the name
# by which each is known, and that the URI's TLS keys apply to all of them, and as long as the connection.
. "$(dirname "$0")/../../support/cli.sh"
. "$servers/common.sh"
. "$servers/certificates.sh"

# The first is asked by the name in the URI; the others are known by what the cluster says of them. Only localhost can be
# looked up: other names are reached by the addresses that are announced beside them.
make_authority "$work/ca"
make_certificate "$work/node0" "$work/ca" DNS:localhost,DNS:node0.test,DNS:locks.test
make_certificate "$work/node1" "$work/ca" DNS:node1.test,DNS:locks.test
make_certificate "$work/node2" "$work/ca" DNS:node2.test,DNS:localhost

# ---- the cluster -----------------------------------------------------------------------------------------------------

folder=$work node=
launch() {
    rm -f "$work/$node.nodes"
    "${DLOCK_REDIS_SERVER:-redis-server}" --port 0 --tls-port "$1" --bind 127.0.0.1 --save '' --dir "$work" --daemonize no \
        --tls-cert-file "$work/$node.pem" --tls-key-file "$work/$node.key" --tls-ca-cert-file "$work/ca.pem" \
        --tls-auth-clients no --tls-cluster yes --cluster-enabled yes --cluster-config-file "$work/$node.nodes" \
        --cluster-port "$(free_port)" --cluster-require-full-coverage no >"$work/$node.log" 2>&1 </dev/null &
    started+=("$!")
}
ask() { redis-cli -h 127.0.0.1 -p "$1" --tls --cacert "$work/ca.pem" "${@:2}"; }
answers() { [ "$(ask "$1" ping 2>/dev/null)" = PONG ]; }
says() { ask "$1" "${@:3}" | grep -q "$2"; }

ports=()
for i in 0 1 2; do
    node=node$i
    start_on_free_port "$node"
    ports+=("$port")
    ask "$port" cluster set-config-epoch $((i + 1)) >/dev/null
    ask "$port" cluster addslotsrange $((i * 16384 / 3)) $(((i + 1) * 16384 / 3 - 1)) >/dev/null
    bus=$(ask "$port" cluster nodes | sed 's/.*@\([0-9]*\).*/\1/')
    ask "${ports[0]}" cluster meet 127.0.0.1 "$port" "$bus" >/dev/null
done
for port in "${ports[@]}"; do within 60 "the cluster" says "$port" cluster_slots_ok:16384 cluster info; done

names=() # one on each node
for ((i = 0; ${#names[@]} < 3; i++)); do
    slot=$(ask "${ports[0]}" cluster keyslot "lock-$i")
    if [ $((slot * 3 / 16384)) = ${#names[@]} ]; then names+=("lock-$i"); fi
done

uri() { echo "rediss+cluster://localhost:${ports[0]}?quarantine=0&timeout=20s&guardian=off&ca=$work/ca.pem${1:-}"; }

accepted() { # WHAT URI NODE…
    local node
    for node in "${@:3}"; do
        run "$DLOCK" run -b "$2" "${names[node]}" -- echo ran
        equal "$1, node $node" "$status $out" "0 ran"
    done
}
refused() { # WHAT URI NODE MESSAGE
    run "$DLOCK" run -b "$2" "${names[$3]}" -- echo ran
    equal "$1" "$status $out" "69 "
    contains "$1 says why" "$err" "$4"
}

# ---- which name is verified ------------------------------------------------------------------------------------------

describe "nodes that the cluster knows by their addresses"
accepted "the name in the URI" "$(uri)" 0
refused "an address that is not in the certificate" "$(uri)" 1 'not for "127.0.0.1": say which name it has with sni='
refused "a seed by its address" "$(uri | sed s/localhost/127.0.0.1/)" 0 'not for "127.0.0.1"'

describe "sni="
accepted "the name of two of them" "$(uri '&sni=locks.test')" 0 1
refused "which the third has not" "$(uri '&sni=locks.test')" 2 'not for "locks.test"'

describe "announced names"
for i in 0 1 2; do ask "${ports[i]}" config set cluster-announce-hostname "node$i.test" >/dev/null; done
for i in 0 1 2; do within 60 "node$i.test is known" says "${ports[0]}" "node$i.test" cluster slots; done
accepted "beside the addresses" "$(uri)" 0 1 2
ask "${ports[0]}" config set cluster-preferred-endpoint-type hostname >/dev/null
accepted "in their place" "$(uri)" 0 1 2
ask "${ports[2]}" config set cluster-announce-hostname localhost >/dev/null
within 60 "the name is known" says "${ports[0]}" localhost cluster slots
accepted "one that is looked up" "$(uri)" 0 1 2
ask "${ports[0]}" config set cluster-preferred-endpoint-type ip >/dev/null
ask "${ports[2]}" config set cluster-announce-hostname elsewhere.test >/dev/null
within 60 "the other name is known" says "${ports[0]}" elsewhere.test cluster slots
refused "another one" "$(uri)" 2 'not for "elsewhere.test"'
accepted "the others meanwhile" "$(uri)" 0 1
ask "${ports[2]}" config set cluster-announce-hostname node2.test >/dev/null
within 60 "its own again" says "${ports[0]}" node2.test cluster slots

# ---- for all nodes, and for as long as the connection ------------------------------------------------------------------

describe "the other keys"
ask "${ports[1]}" config set tls-auth-clients yes >/dev/null
make_certificate "$work/client" "$work/ca" DNS:client.test
refused "a node that wants a certificate" "$(uri)" 1 'does it require a client certificate, "cert"?'
accepted "cert= and key=" "$(uri "&cert=$work/client.pem&key=$work/client.key")" 0 1 2
ask_as_client() { ask "${ports[1]}" --cert "$work/client.pem" --key "$work/client.key" "$@"; }
begin "$DLOCK" run -l 6s -b "$(uri "&cert=$work/client.pem&key=$work/client.key")" "${names[1]}" -- sleep 6
within 20 "it is held" "$DLOCK" inspect -b "$(uri "&cert=$work/client.pem&key=$work/client.key")" "${names[1]}"
ask_as_client client kill type normal skipme yes >/dev/null
ended "$pid"
equal "a connection that is made anew for a renewal has them, too" "$status" 0
ask_as_client config set tls-auth-clients no >/dev/null
run "$DLOCK" run -b "rediss+cluster://localhost:${ports[0]}?guardian=off&ca=ca.pem" tls -- echo ran
equal "they are looked at" "$status" 64
accepted "insecure=on" "$(uri '&insecure=on' | sed "s,&ca=[^&]*,,")" 0 1 2

describe "waiting"
begin "$DLOCK" run -b "$(uri)" "${names[2]}" -- sh -c 'until [ -e "$0" ]; do sleep 0.05; done' "$work/enough"
within 20 "it is held" "$DLOCK" inspect -b "$(uri)" "${names[2]}"
(sleep 1 && touch "$work/enough") &
accepted "until it is released" "$(uri)" 2
ended "$pid"

describe "doctor"
run "$DLOCK" doctor "$(uri)"
for port in "${ports[@]}"; do contains "speaks of node $port" "$out" "127.0.0.1:$port: TLSv1."; done
run "$DLOCK" doctor "$(uri '&insecure=on' | sed "s,&ca=[^&]*,,")"
equal "insecure is weak" "$status" 1

describe "another scheme"
refused "without TLS" "redis+cluster://127.0.0.1:${ports[0]}?timeout=700ms&guardian=off" 0 "Over TLS it is rediss+cluster://"
refused "a member" "$(uri | sed s/rediss+cluster/rediss/)" 0 "use rediss+cluster://"

finish
