#!/bin/bash
# etcd over TLS, with users: whose certificate is accepted, and what is said of others.
. "$(dirname "$0")/../../support/cli.sh"
. "$servers/common.sh"
. "$servers/certificates.sh"
export ETCDCTL_API=3
make_authority "$work/ca"
make_authority "$work/other"
make_certificate "$work/good" "$work/ca" DNS:localhost,IP:127.0.0.1
make_certificate "$work/elsewhere" "$work/ca" DNS:elsewhere.test
make_certificate "$work/expired" "$work/ca" DNS:localhost,IP:127.0.0.1 0
make_certificate "$work/client" "$work/ca" DNS:client.test

ctl() { etcdctl --endpoints "https://127.0.0.1:$port" --insecure-skip-tls-verify --insecure-transport=false --command-timeout 2s "$@"; }
healthy() { (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; }
# serve CERTIFICATE [OPTION…]: sets $port and $peer.
serve() {
    if [ -n "${etcd_pid:-}" ]; then kill -KILL "$etcd_pid"; fi
    port=$(free_port) peer=$(free_port)
    rm -rf "$work/data"
    launch "$@"
}
launch() {
    etcd --data-dir "$work/data" --logger zap --log-level error --listen-client-urls "https://127.0.0.1:$port" \
        --advertise-client-urls "https://127.0.0.1:$port" --listen-peer-urls "http://127.0.0.1:$peer" \
        --initial-advertise-peer-urls "http://127.0.0.1:$peer" --initial-cluster "default=http://127.0.0.1:$peer" \
        --cert-file "$work/$1.pem" --key-file "$work/$1.key" "${@:2}" >"$work/log" 2>&1 </dev/null &
    etcd_pid=$!
    started+=("$etcd_pid")
    within 20 "the server is there" healthy
}
# says STATUS PART KEYS [USER]
says() {
    run "$DLOCK" run -b "etcd+tls://${4:-}127.0.0.1:$port?timeout=10s&$3" -n a -- true
    equal "$3" "$status" "$1"
    contains "$3" "$err" "$2"
    lacks "$3" "$err" hunter2
}

describe "certificates"
serve good
says 0 "" "ca=$work/ca.pem"
says 69 "certificate" "ca=$work/other.pem"
says 69 "certificate" ""
says 0 "" "insecure=on"
# The test's authority in place of the system's file; the system's directory does not have it.
system_ca=$(curl-config --ca 2>/dev/null)
if [ -f "$system_ca" ] && unshare -rm true 2>/dev/null; then
    run unshare -rm sh -c 'mount --bind "$1" "$2" && shift 2 && "$@"' sh "$work/ca.pem" "$system_ca" \
        "$DLOCK" run -b "etcd+tls://127.0.0.1:$port?timeout=10s&guardian=off" -n a -- true
    equal "an authority of the system" "$status" 0
fi
says 0 "" "ca=$work/ca.pem&sni=localhost"
says 69 "TLS with etcd" "ca=$work/ca.pem&sni=elsewhere.test"
run "$DLOCK" run -b "etcd://127.0.0.1:$port?timeout=2s&guardian=off" -n a -- true
equal "without TLS" "$status" 69

describe "the end of the server's certificate"
run "$DLOCK" doctor "etcd+tls://127.0.0.1:$port?ca=$work/ca.pem"
contains "the doctor says it" "$out" "weak  TLS, and the server's certificate expires on $(date -u -d '2 days' +%Y-%m-%d)"

describe "another authority while a lock is held"
cp "$work/ca.pem" "$work/trusted.pem"
make_certificate "$work/later" "$work/other" DNS:localhost,IP:127.0.0.1
begin "$DLOCK" run -b "etcd+tls://127.0.0.1:$port?session=60s&lease=60s&ca=$work/trusted.pem" a -- \
    sh -c "until [ -e '$work/go' ]; do sleep 0.05; done"
holder=$pid
held_on_tls() { "$DLOCK" inspect -b "etcd+tls://127.0.0.1:$port?ca=$work/trusted.pem" a | grep -q exclusive; }
within 60 "it is held" held_on_tls
cp "$work/other.pem" "$work/trusted.pem"
kill -KILL "$etcd_pid"
launch later
within 60 "it is held under the new one" held_on_tls
touch "$work/go"
ended "$holder"
equal "the holder's release" "$status" 0
equal "complaints" "$(<"$work/bg.err")" ""
run "$DLOCK" inspect -b "etcd+tls://127.0.0.1:$port?ca=$work/trusted.pem" a
equal "it is free" "$out" "a  free"

# A resumed one is not asked for its certificate, which may have ended.
describe "no TLS session is resumed"
PYTHONPATH=$(dirname "$0") python3 -B - "$work/later" "$work/resumed" >"$work/proxy" <<'END' &
import json, proxy, ssl, sys
class Handler(proxy.Handler):
    def do_POST(self):
        self.read_body()
        with open(sys.argv[2], "a") as f: print(self.connection.session_reused, file=f)
        self.close_connection = True
        self.answer(200, json.dumps({
            "header": {"raft_term": "2", "revision": "5"}, "ID": "123456789", "TTL": "60", "succeeded": True,
            "deleted": "1"}).encode())
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1] + ".pem", sys.argv[1] + ".key")
class Server(proxy.Server):
    def finish_request(self, request, address): # in its own thread
        super().finish_request(context.wrap_socket(request, server_side=True), address)
proxy.Server = Server
proxy.serve(Handler)
END
started+=("$!")
within 60 "the proxy is there" written "$work/proxy"
run "$DLOCK" run -b "etcd+tls://127.0.0.1:$(<"$work/proxy")?guardian=off&ca=$work/other.pem" a -- true
equal "connections, one for each request" "$(sort "$work/resumed" | uniq -c | xargs)" "4 False"

describe "no descriptor is left"
serve good
run "$STARVED_TEST" etcd+tls "$port" ca "$work/ca.pem" cert "$work/client.pem" key "$work/client.key"
equal "no file is blamed" "$status" 0

describe "users"
ctl user add root:hunter2 >/dev/null
ctl user add me:hunter2 >/dev/null
ctl role add locker >/dev/null
ctl role grant-permission locker --prefix=true readwrite dlock/ >/dev/null
ctl user grant-role me locker >/dev/null
ctl user grant-role root root >/dev/null
ctl auth enable >/dev/null || fail "no users"
says 0 "" "ca=$work/ca.pem" me:hunter2@
says 69 "refused the user or the password" "ca=$work/ca.pem" me:hunter22@
says 69 "wants a user and a password" "ca=$work/ca.pem"
run "$DLOCK" run -b "etcd+tls://me:hunter2@127.0.0.1:$port/elsewhere?ca=$work/ca.pem" -n a -- true
equal "another path" "$status" 69
contains "another path" "$err" "grant-permission ROLE --prefix=true readwrite elsewhere/"

describe "a wrong name, and an expired one"
serve elsewhere
says 69 "TLS with etcd" "ca=$work/ca.pem"
serve expired
says 69 "expired" "ca=$work/ca.pem"

describe "a server that wants certificates"
serve good --client-cert-auth --trusted-ca-file "$work/ca.pem"
says 69 "" "ca=$work/ca.pem"
kill -KILL "$etcd_pid"

finish
