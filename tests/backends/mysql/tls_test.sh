#!/bin/bash
# MySQL over TLS, which libmariadb does: which certificates are accepted, the messages about others, and that every call
# ends in time.
. "$(dirname "$0")/../../support/cli.sh"
. "$servers/certificates.sh"

certificates=$work/certificates
mkdir "$certificates"
make_authority "$certificates/ca"
make_authority "$certificates/other-ca"
make_certificate "$certificates/good" "$certificates/ca" DNS:localhost,DNS:locks.test,IP:127.0.0.1
make_certificate "$certificates/elsewhere" "$certificates/ca" DNS:elsewhere.test
# This one bears the address that a wrong name has: it is the name that counts.
make_certificate "$certificates/address" "$certificates/ca" DNS:elsewhere.test,IP:127.0.0.1
make_certificate "$certificates/expired" "$certificates/ca" DNS:localhost,IP:127.0.0.1 0
make_certificate "$certificates/client" "$certificates/ca" DNS:client.test
for name in good elsewhere address expired client; do
    if [ ! -s "$certificates/$name.pem" ]; then fail "no certificate $name"; fi
done
cat >"$work/users.sql" <<'SQL'
CREATE USER IF NOT EXISTS 'certified'@'%' IDENTIFIED BY 'secret' REQUIRE X509;
GRANT ALL ON locks.* TO 'certified'@'%';
SQL
chmod -R a+rX "$work" "$certificates" # the server runs as another user than root

stop_server() { "$servers/mysql.sh" stop "$work"; }
at_exit+=(stop_server)
# MariaDB 11.4 and newer make themselves a certificate.
settings=$(DLOCK_SERVER_OPTIONS=--skip-ssl "$servers/mysql.sh" start "$work") || exit 1
port=$(cat "$work/mysql.port")
contains "a server" "$settings" ":$port"

is_up() { (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; }
# server_with CERTIFICATE: from here on it has this one.
server_with() {
    stop_server
    DLOCK_SERVER_OPTIONS="--ssl-cert=$certificates/$1.pem --ssl-key=$certificates/$1.key --ssl-ca=$certificates/ca.pem --init-file=$work/users.sql" \
        "$servers/mysql.sh" again "$work"
    within 60 "the server is there again" is_up
}

# uri [KEYS [HOST]]: verified against the authority.
uri() { echo "mysql+tls://dlock:secret@${2:-localhost}:${at:-$port}/locks?timeout=${within:-30s}&ca=$certificates/ca.pem${1:-}"; }
unverified() { echo "mysql+tls://dlock:secret@${2:-localhost}:$port/locks?timeout=30s${1:-}"; }

accepted() { # WHAT URI
    run "$DLOCK" run -b "$2" tls -- echo ran
    equal "$1" "$status $out" "0 ran"
}
# Without a guardian, whose start would also count.
refused() { # WHAT URI STATUS MESSAGE
    run "$DLOCK" run -b "$2&guardian=off" tls -- echo ran
    equal "$1" "$status $out" "$3 "
    contains "$1 says why" "$err" "$4"
    lacks "$1 keeps the password" "$err" secret
}

# An address of this machine: libmariadb 3.4 and newer do not compare it with the certificate.
if [ "$(python3 -c 'import ctypes; print(ctypes.CDLL("libmariadb.so.3").mysql_get_client_version())')" -ge 30400 ]; then
    address_accepted() { refused "$1" "$2" 69 "write localhost, or sni="; }
    address_refused() { address_accepted "$1" "$2"; }
else
    address_accepted() { accepted "$1" "$2"; }
    address_refused() { refused "$1" "$2" 69 'for "127.0.0.1"'; }
fi

describe "URIs"
refused "a relative path" "$(unverified '&ca=ca.pem')" 64 '"ca" must be the absolute path'
refused "a key alone" "$(unverified '&key=/k')" 64 '"key" belongs to a "cert"'
refused "insecure=maybe" "$(unverified '&insecure=maybe')" 64 '"insecure" must be on or off'
refused "insecure and ca" "$(uri '&insecure=on')" 64 "leave one of them out"
refused "an empty name" "$(uri '&sni=')" 64 '"sni" must be'
refused "a socket" "mysql+tls://dlock@%2Frun%2Fsocket/locks?timeout=1s" 64 "TLS is for hosts"
refused "TLS keys without TLS" "mysql://dlock@127.0.0.1:$port/locks?ca=$certificates/ca.pem" 64 '"ca" belongs to TLS'
refused "no such file" "$(unverified "&ca=$certificates/none.pem")" 69 "cannot read the certificates in $certificates/none.pem"

describe "a server without TLS"
refused "verified" "$(uri)" 69 "offers no TLS"
refused "not verified" "$(unverified '&insecure=on')" 69 "offers no TLS"

describe "SIGPIPE without TLS"
PORT=$port run "$PROCESS_TEST"
equal "stays the program's own" "$status" 0

describe "SIGPIPE and exit over TLS"
server_with good
PORT=$port OVER_TLS=yes run "$PROCESS_TEST"
equal "SIGPIPE stays the program's own" "$status" 0
lacks "OpenSSL keeps its state" "$out" "has freed"

describe "no descriptor is left"
run "$STARVED_TEST" mysql+tls "$port" sni localhost ca "$certificates/ca.pem" cert "$certificates/client.pem" key "$certificates/client.key"
equal "no file is blamed" "$status" 0

describe "a certificate of the authority"
address_accepted "an address" "$(uri "" 127.0.0.1)"
accepted "a name" "$(uri)"
accepted "an address with sni=" "$(uri '&sni=locks.test' 127.0.0.1)"
accepted "sni=" "$(uri '&sni=locks.test')"
accepted "sessions" "$(uri '&mode=session')"
accepted "the other name of the scheme" "$(uri | sed 's,mysql+,mariadb+,')"
refused "sni= of another" "$(uri '&sni=elsewhere.test')" 69 'for "elsewhere.test"'
refused "another authority" "$(unverified "&ca=$certificates/other-ca.pem")" 69 "issued by an authority in ca="
refused "the system's authorities" "$(unverified)" 69 "issued by an authority in ca="
address_refused "the system's authorities, by address" "$(unverified "" 127.0.0.1)"
refused "no certificate in ca=" "$(unverified "&ca=$certificates/good.key")" 69 "TLS with MySQL"
accepted "insecure=on" "$(unverified '&insecure=on')"
accepted "insecure=on and an address" "$(unverified '&insecure=on' 127.0.0.1)"
refused "a wrong password" "$(uri | sed 's,:secret@,:hunter2@,')" 69 "Access denied"
begin "$DLOCK" run -l 2s -b "$(uri)" renewed -- sleep 3
ended "$pid"
equal "renewals and the release have it, too" "$status" 0

describe "doctor"
run "$DLOCK" doctor "$(uri)"
contains "says what protects the connection" "$out" "the certificate is verified"
contains "and which version" "$out" "TLSv1."
contains "and how long" "$out" "and expires on 20"
contains "which is soon" "$out" "replace it"
run "$DLOCK" doctor "$(unverified '&insecure=on')"
equal "insecure is weak" "$status" 1
contains "insecure is spelled out" "$out" "anybody on the network path can pose as the server"

describe "a user who needs a certificate"
certified() { uri "${1:-}" | sed 's,//dlock:,//certified:,'; }
refused "none" "$(certified)" 69 "Access denied"
contains "says what is missing" "$err" "also needs cert= and key="
refused "no TLS" "$(certified | sed 's,mysql+tls,mysql,; s,&ca=[^&]*,,')" 69 "REQUIRE SSL or X509 needs mysql+tls://"
accepted "cert= and key=" "$(certified "&cert=$certificates/client.pem&key=$certificates/client.key")"
cat "$certificates/client.pem" "$certificates/client.key" >"$certificates/both.pem"
accepted "both in one file" "$(certified "&cert=$certificates/both.pem")"
openssl ec -in "$certificates/client.key" -aes256 -passout pass:hunter2 -out "$certificates/locked.key" 2>/dev/null
refused "a key with a password" "$(certified "&cert=$certificates/client.pem&key=$certificates/locked.key")" 69 "TLS with MySQL"

describe "a server that stops in the handshake"
# It greets as the real one does; says no more, a part of the real answer, or hangs up.
cat >"$work/impostor.py" <<'END2'
import socket, sys, threading, time
kind, real = sys.argv[1], int(sys.argv[2])
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)

def talk(client):
    if kind == "mute": time.sleep(1000)
    behind = socket.create_connection(("127.0.0.1", real))
    client.sendall(behind.recv(65536))
    if kind == "silent": time.sleep(1000)
    behind.sendall(client.recv(36))         # asks for TLS
    behind.sendall(client.recv(65536))      # its hello
    answer = behind.recv(65536)
    if kind == "closes":
        client.close()
        return
    if kind == "halfway": answer = answer[:len(answer) // 2]
    for byte in answer[:-1]:
        client.sendall(bytes([byte]))
        if kind == "drips": time.sleep(0.05)
    time.sleep(1000)

kept = []
while True:
    kept.append(server.accept()[0])
    threading.Thread(target=talk, args=(kept[-1],), daemon=True).start()
END2
for kind in mute silent halfway drips closes; do
    python3 "$work/impostor.py" "$kind" "$port" >"$work/impostor.$kind" 2>"$work/impostor.err" &
    started+=($!)
    within 20 "the impostor is there" test -s "$work/impostor.$kind"
    before=$(date +%s%3N)
    message="no answer in time"
    if [ "$kind" = closes ]; then message="ended the connection during the TLS handshake"; fi
    refused "$kind" "$(at=$(cat "$work/impostor.$kind") within=600ms uri)" 69 "$message"
    took=$(($(date +%s%3N) - before))
    if [ "$took" -gt 30000 ]; then fail "$kind took $took ms"; fi
done

describe "a certificate for another name"
server_with elsewhere
address_refused "an address" "$(uri "" 127.0.0.1)"
refused "a name" "$(uri)" 69 'for "localhost"'
accepted "sni=" "$(uri '&sni=elsewhere.test')"

describe "a certificate for another name, and for the address"
server_with address
address_accepted "the address" "$(uri "" 127.0.0.1)"
refused "a name with this address" "$(uri)" 69 'for "localhost"'

describe "an expired certificate"
server_with expired
refused "expired" "$(uri)" 69 "certificate has expired"
accepted "insecure=on" "$(unverified '&insecure=on')"

finish
