#!/bin/bash
# tls_test.sh rediss|memcached_tls: against a server with TLS, and against faulty ones: which certificates are accepted,
# the messages about others, and that every call ends in time.
. "$(dirname "$0")/../../support/cli.sh"
. "$servers/common.sh"
. "$servers/certificates.sh"

certificates=$work/certificates
mkdir "$certificates"
make_authority "$certificates/ca"
make_authority "$certificates/other-ca"
make_certificate "$certificates/good" "$certificates/ca" DNS:localhost,DNS:locks.test,IP:127.0.0.1
make_certificate "$certificates/elsewhere" "$certificates/ca" DNS:elsewhere.test
make_certificate "$certificates/expired" "$certificates/ca" DNS:localhost,IP:127.0.0.1 0
make_certificate "$certificates/client" "$certificates/ca" DNS:client.test
make_certificate "$certificates/stranger" "$certificates/other-ca" DNS:client.test
for name in good elsewhere expired client stranger; do
    if [ ! -s "$certificates/$name.pem" ]; then fail "no certificate $name"; fi
done

case $1 in
rediss)
    scheme=rediss plain=redis password=:hunter2 wrong=:hunter22
    wants_certificates=(--tls-auth-clients yes) wants_password=(--requirepass hunter2)
    serve() { # PORT CERTIFICATE OPTION…: in place of this process
        exec "${DLOCK_REDIS_SERVER:-redis-server}" --port 0 --tls-port "$1" --bind 127.0.0.1 --save '' --dir "$work" \
            --daemonize no --tls-cert-file "$certificates/$2.pem" --tls-key-file "$certificates/$2.key" \
            --tls-ca-cert-file "$certificates/ca.pem" --tls-auth-clients no "${@:3}"
    }
    serve_plain() { exec "${DLOCK_REDIS_SERVER:-redis-server}" --port "$1" --bind 127.0.0.1 --save '' --dir "$work"; }
    ;;
memcached_tls)
    scheme=memcached+tls plain=memcached password=user:hunter2 wrong=user:hunter22
    wants_certificates=(-o "ssl_verify_mode=2,ssl_ca_cert=$certificates/ca.pem") wants_password=(-Y users)
    echo user:hunter2 >"$work/users"
    as=()
    if [ "$(id -u)" = 0 ]; then
        as=(-u nobody)
        chmod -R a+rX "$work"
    fi
    serve() { # the users are read as `nobody`, who may lack access to a whole path
        cd "$work" || exit
        exec memcached "${as[@]}" -l 127.0.0.1 -p "$1" -U 0 -Z \
            -o "ssl_chain_cert=$certificates/$2.pem,ssl_key=$certificates/$2.key" "${@:3}"
    }
    serve_plain() { exec memcached "${as[@]}" -l 127.0.0.1 -p "$1" -U 0; }
    ;;
esac

# Called by start_on_free_port.
folder=$work served=() port=0
answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
launch() {
    if [ "${served[0]}" = plain ]; then serve_plain "$1"; else serve "$1" "${served[@]}"; fi >"$work/server.log" 2>&1 </dev/null &
    started+=("$!")
}

# server_with CERTIFICATE [OPTION…], or server_with plain: sets $port.
server_with() {
    stop_by_pid server
    served=("$@")
    start_on_free_port server
}

# uri [KEYS]: verified against the authority.
uri() { echo "$scheme://${2:-127.0.0.1}:$port?quarantine=0&timeout=30s&ca=$certificates/ca.pem${1:-}"; }
unverified() { echo "$scheme://127.0.0.1:$port?quarantine=0&timeout=30s${1:-}"; }

is_there() { "$DLOCK" inspect -b "$(uri)" "$1" >/dev/null 2>&1; }

accepted() { # WHAT URI
    run "$DLOCK" run -b "$2" tls -- echo ran
    equal "$1" "$status $out" "0 ran"
}
# Without a guardian, whose start would also count.
refused() { # WHAT URI STATUS MESSAGE
    run "$DLOCK" run -b "$2&guardian=off" tls -- echo ran
    equal "$1" "$status $out" "$3 "
    contains "$1 says why" "$err" "$4"
    lacks "$1 keeps the password" "$err" hunter2
}

describe "who needs no TLS loads no OpenSSL"
if [ -e "$DLOCK_TEST_MODULES/dlock-$plain.so" ] && ldd "$DLOCK_TEST_MODULES/dlock-$plain.so" | grep -q libssl; then
    fail "dlock-$plain.so needs libssl"
fi
if ! ldd "$DLOCK_TEST_MODULES/dlock-$1.so" | grep -q libssl; then fail "dlock-$1.so needs no libssl"; fi

describe "a certificate of the authority"
server_with good
accepted "an address" "$(uri)"
if [ "$scheme" = rediss ]; then accepted "the alias" "$(uri | sed 's,^rediss,valkeys,')"; fi
accepted "a name" "$(uri "" localhost)"
accepted "sni=" "$(uri '&sni=locks.test')"
refused "sni= of another" "$(uri '&sni=elsewhere.test')" 69 'not for "elsewhere.test": say which name it has with sni='
refused "another authority" "$(unverified "&ca=$certificates/other-ca.pem")" 69 "is not accepted"
refused "the system's authorities" "$(unverified)" 69 "name the file of its authority with ca="
accepted "insecure=on" "$(unverified '&insecure=on')"
refused "insecure=off" "$(unverified '&insecure=off')" 69 "is not accepted"

refused "a client without TLS" "$plain://127.0.0.1:$port?timeout=700ms" 69 "Over TLS it is $scheme://"

describe "locks over it are those of the server"
begin "$DLOCK" run -b "$(uri)" held -- sleep 1000
within 20 "held" is_there held
run "$DLOCK" run -n -E 9 -b "$(unverified '&insecure=on')" held true
equal "held" "$status" 9
kill "$pid"
ended "$pid"

describe "doctor"
run "$DLOCK" doctor --json "$(uri)"
contains "says what protects the connection" "$out" "TLSv1."
contains "says for whom the certificate is" "$out" 'for \"127.0.0.1\", expires on 20'
contains "which expires soon" "$out" "replace it"
run "$DLOCK" doctor "$(unverified '&insecure=on')"
equal "insecure is weak" "$status" 1
contains "insecure is spelled out" "$out" "and the server's certificate is not checked"

describe "a certificate for another name"
server_with elsewhere
refused "an address" "$(uri)" 69 'not for "127.0.0.1"'
refused "a name" "$(uri "" localhost)" 69 'not for "localhost"'
accepted "sni=" "$(uri '&sni=elsewhere.test')"

describe "an expired certificate"
server_with expired
refused "expired" "$(uri)" 69 "certificate has expired"
refused "an expired one, with a password" "$(uri | sed 's,//,//user:hunter2@,')" 69 "certificate has expired"
accepted "insecure=on" "$(unverified '&insecure=on')"

describe "a server that wants certificates"
server_with good "${wants_certificates[@]}"
refused "none" "$(uri)" 69 'does it require a client certificate, "cert"?'
lacks "it is the right server" "$err" "is this a"
if [ "$scheme" = rediss ]; then
    refused "none, by a Sentinel" "$(uri | sed 's,^rediss,&+sentinel,; s,?,/mymaster?,')" 69 'does it require a client certificate, "cert"?'
fi
accepted "cert= and key=" "$(uri "&cert=$certificates/client.pem&key=$certificates/client.key")"
cat "$certificates/client.pem" "$certificates/client.key" >"$certificates/both.pem"
accepted "both in one file" "$(uri "&cert=$certificates/both.pem")"
refused "a stranger's" "$(uri "&cert=$certificates/stranger.pem&key=$certificates/stranger.key")" 69 "the server ended TLS"
refused "another's key" "$(uri "&cert=$certificates/client.pem&key=$certificates/stranger.key")" 69 "cannot use the key in"
openssl ec -in "$certificates/client.key" -aes256 -passout pass:hunter2 -out "$certificates/locked.key" 2>/dev/null
refused "a key with a password" "$(uri "&cert=$certificates/client.pem&key=$certificates/locked.key")" 69 "without a password"
begin "$DLOCK" run -l 4s -b "$(uri "&cert=$certificates/client.pem&key=$certificates/client.key")" renewed -- sleep 6
ended "$pid"
equal "renewals, wake-ups and the release have it, too" "$status" 0

describe "a user and a password"
server_with good "${wants_password[@]}"
accepted "the right one" "$(uri | sed "s,//,//$password@,")"
refused "a wrong one" "$(uri | sed "s,//,//$wrong@,")" 69 "refused"

describe "no descriptor is left"
server_with good
run "$STARVED_TEST" "$scheme" "$port" ca "$certificates/ca.pem" cert "$certificates/client.pem" key "$certificates/client.key"
equal "no file is blamed" "$status" 0
contains "the limit is named" "$out" "raise the limit (ulimit -n)"
mkdir "$work/authorities"
cp "$certificates/ca.pem" "$work/authorities/$(openssl x509 -hash -noout -in "$certificates/ca.pem").0"
run env SSL_CERT_DIR="$work/authorities" "$STARVED_TEST" "$scheme" "$port"
equal "nor is the server, for the system's authorities" "$status" 0

describe "URIs"
refused "a relative path" "$(unverified '&ca=ca.pem')" 64 '"ca" must be the absolute path'
refused "a key alone" "$(unverified '&key=/k')" 64 '"key" belongs to a "cert"'
refused "insecure=maybe" "$(unverified '&insecure=maybe')" 64 '"insecure" must be on or off'
refused "insecure and ca" "$(uri '&insecure=on')" 64 "leave one of them out"
refused "an empty name" "$(uri '&sni=')" 64 '"sni" must be'
refused "no such file" "$(unverified "&ca=$certificates/none.pem")" 69 "cannot read the certificates in $certificates/none.pem"
refused "no certificate in it" "$(unverified "&ca=$certificates/good.key")" 69 "cannot read the certificates in"
refused "no such certificate" "$(uri "&cert=$certificates/none.pem")" 69 "cannot read the certificate in"
refused "TLS keys without TLS" "$plain://127.0.0.1:$port?ca=$certificates/ca.pem" 64 '"ca"'

describe "a plain server"
server_with plain
refused "a plain server" "$(uri '&timeout=700ms' | sed 's/timeout=30s&//')" 69 "ithout TLS it is $plain://"

# The behaviour of an impostor: `silent` says nothing, `closes` closes, `halfway` stops in its first record,
# `drips` sends a byte at a time without end, `floods` with messages that OpenSSL skips (HelloRequests) as fast as it
# can, `text` answers in plain text.
cat >"$work/impostor.py" <<'END'
import socket, ssl, sys, threading, time

kind, cert, key = sys.argv[1:]
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)

def hello():
    """The first flight of an honest server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    inward, outward = ssl.MemoryBIO(), ssl.MemoryBIO()
    return context.wrap_bio(inward, outward, server_side=True), inward, outward

def talk(client):
    first = client.recv(65536)
    if kind == "closes": client.close()
    if kind == "text": client.sendall(b"-ERR unknown command\r\n")
    while kind == "floods": client.sendall(b"\x16\x03\x03\x40\x00" + bytes(0x4000))
    if kind in ("halfway", "drips"):
        tls, inward, outward = hello()
        inward.write(first)
        try: tls.do_handshake()
        except ssl.SSLWantReadError: pass
        flight = outward.read()
        if kind == "halfway": client.sendall(flight[:len(flight) // 2])
        else:
            for i in range(len(flight) - 1):
                client.sendall(flight[i:i + 1])
                time.sleep(0.05)
    time.sleep(1000)

kept = []
while True:
    kept.append(server.accept()[0])
    threading.Thread(target=talk, args=(kept[-1],), daemon=True).start()
END
impostor() {
    python3 "$work/impostor.py" "$1" "$certificates/good.pem" "$certificates/good.key" >"$work/impostor.$1" 2>"$work/impostor.err" &
    started+=($!)
    within 20 "the impostor is there" test -s "$work/impostor.$1"
    port=$(cat "$work/impostor.$1")
}
for kind in silent halfway drips floods; do
    describe "a server that is $kind in the handshake"
    impostor "$kind"
    before=$(date +%s%3N)
    refused "$kind" "$(uri '&timeout=600ms' | sed 's/timeout=30s&//')" 69 "no answer in time; does it speak TLS?"
    took=$(($(date +%s%3N) - before))
    if [ "$took" -lt 590 ] || [ "$took" -gt 30000 ]; then fail "it took $took ms"; fi
done
describe "a server that speaks no TLS"
impostor text
refused "text" "$(uri | sed 's,//,//user:hunter2@,')" 69 "does not speak TLS at this port; without TLS it is $plain://"
impostor closes
refused "closes" "$(uri '&timeout=600ms' | sed 's/timeout=30s&//')" 69 "does it speak TLS?"

finish
