#!/bin/bash
# PostgreSQL over TLS with sslmode=verify-full, which libpq does: whose certificate is accepted, and what is said of others.
. "$(dirname "$0")/../../support/cli.sh"
. "$servers/certificates.sh"

certificates=$work/certificates
mkdir "$certificates"
make_authority "$certificates/ca"
make_authority "$certificates/other-ca"
make_certificate "$certificates/good" "$certificates/ca" DNS:localhost,DNS:locks.test
make_certificate "$certificates/elsewhere" "$certificates/ca" DNS:elsewhere.test
make_certificate "$certificates/expired" "$certificates/ca" DNS:localhost 0
make_certificate "$certificates/lasting" "$certificates/ca" DNS:localhost 100
for name in good elsewhere expired lasting; do
    if [ ! -s "$certificates/$name.pem" ]; then fail "no certificate $name"; fi
done
chmod -R a+rX "$work" # the server runs as another user than root

settings=$("$servers/postgresql.sh" start "$work") || exit 1
stop_server() { "$servers/postgresql.sh" stop "$work"; }
at_exit+=(stop_server)
IFS=: read -r _ port data programs <<<"$(sed -n 's/^DLOCK_TEST_POSTGRESQL=//p' <<<"$settings")"

sql() { "$programs/psql" -X -q -t -A -h 127.0.0.1 -p "$port" -U dlock -c "$1" postgres; }

# server_with CERTIFICATE: from here on it has this one; the key has to be the server's alone.
server_with() {
    install -m 600 "$certificates/$1.pem" "$data/$1.pem"
    install -m 600 "$certificates/$1.key" "$data/$1.key"
    if [ "$(id -u)" = 0 ]; then chown postgres "$data/$1.pem" "$data/$1.key"; fi
    sql "ALTER SYSTEM SET ssl_cert_file = '$1.pem'"
    sql "ALTER SYSTEM SET ssl_key_file = '$1.key'"
    sql "ALTER SYSTEM SET ssl = on"
    sql "SELECT pg_reload_conf()" >/dev/null
    within 20 "the server has the certificate $1" has "$1"
}
# The certificate that it shows to clients.
has() {
    openssl s_client -connect "127.0.0.1:$port" -starttls postgres </dev/null 2>/dev/null |
        cmp -s <(openssl x509 -outform DER 2>/dev/null) <(openssl x509 -in "$certificates/$1.pem" -outform DER)
}

# uri [KEYS [NAME]]: verified against the authority; with a NAME that no name server knows.
uri() {
    local where="localhost:$port/postgres?"
    if [ -n "${2:-}" ]; then where="/postgres?host=$2&hostaddr=127.0.0.1&port=$port&"; fi
    echo "postgresql://dlock@${where}sslmode=verify-full&timeout=30s&sslrootcert=${ca:-$certificates/ca.pem}${1:-}"
}

accepted() { # WHAT URI
    run "$DLOCK" run -b "$2" tls -- echo ran
    equal "$1" "$status $out" "0 ran"
}
refused() { # WHAT URI MESSAGE
    run "$DLOCK" run -b "$2" tls -- echo ran
    equal "$1" "$status $out" "69 "
    contains "$1 says why" "$err" "$3"
}

describe "a server without TLS"
refused "verify-full" "$(uri)" "does not support SSL"

describe "a certificate of the authority"
server_with good
accepted "its name" "$(uri)"
accepted "another of its names" "$(uri "" locks.test)"
accepted "with sessions" "$(uri "&mode=session&schema=sessions")"
begin "$DLOCK" run -l 2s -b "$(uri)" renewed -- sleep 3
ended "$pid"
equal "renewals, wake-ups and the release have it, too" "$status" 0
refused "a name that it has not" "$(uri "" elsewhere.test)" "does not match host name"
refused "another authority" "$(ca=$certificates/other-ca.pem uri)" "or its authority is not in the file that sslrootcert= names"
refused "no file of an authority" "$(ca=$certificates/none.pem uri)" "name the file of the server's authority with sslrootcert="
contains "the file's name" "$err" "\"$certificates/none.pem\""

describe "exit without dlock_close"
DLOCK_TEST_POSTGRESQL=127.0.0.1:$port run "$EXIT_TEST"
equal "OpenSSL keeps its state" "$status $out" "0 "

describe "an address beside a host in front"
run "$DLOCK" run -b "postgresql://dlock@locks.test:$port/postgres?hostaddr=127.0.0.1" tls true
equal "refused" "$status" 64
contains "says how" "$err" "postgresql:///db?host=NAME&hostaddr=ADDRESS"

describe "a certificate for another name"
server_with elsewhere
refused "wrong name" "$(uri)" "does not match host name"
accepted "its name" "$(uri "" elsewhere.test)"

describe "the doctor"
# doctor_says CERTIFICATE FINDING
doctor_says() {
    server_with "$1"
    run "$DLOCK" doctor --no-try -b "$(uri)"
    contains "when its certificate expires" "$out" "$2  TLSv1.3, and the server's certificate expires on $(date -u -d "$(
        openssl x509 -in "$certificates/$1.pem" -noout -enddate | cut -d= -f2)" +%F)"
}
doctor_says lasting fine
doctor_says good weak

describe "an expired certificate"
server_with expired
refused "expired" "$(uri)" "it has ended"

finish
