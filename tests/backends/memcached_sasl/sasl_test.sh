#!/bin/bash
# sasl_test.sh: logins over SASL, right and wrong ones; messages about other servers, and their time.
. "$(dirname "$0")/../../support/cli.sh"
. "$servers/common.sh"
serve=$(dirname "$0")/serve.sh

# Called by start_on_free_port.
folder=$work served=()
answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
launch() {
    if [ "${served[0]:-}" = plain ]; then
        local as=()
        if [ "$(id -u)" = 0 ]; then as=(-u nobody); fi
        memcached "${as[@]}" -l 127.0.0.1 -p "$1" -U 0 "${served[@]:1}" >"$work/server.log" 2>&1 </dev/null &
    else
        sh "$serve" "$work" "$1" >"$work/server.log" 2>&1 </dev/null &
    fi
    started+=("$!")
}
server_with() { # [plain [OPTION…]]: sets $port
    stop_by_pid server
    served=("$@")
    start_on_free_port server
}

uri() { echo "memcached+sasl://${1:-user:hunter2}@127.0.0.1:$port?quarantine=0&timeout=30s${2:-}"; }

accepted() { # WHAT URI
    run "$DLOCK" run -w 30s -b "$2" sasl -- echo ran
    equal "$1" "$status $out" "0 ran"
}
# Without a guardian, whose start would also count.
refused() { # WHAT URI STATUS MESSAGE
    run "$DLOCK" run -b "$2&guardian=off" sasl -- echo ran
    equal "$1" "$status $out" "$3 "
    contains "$1 says why" "$err" "$4"
    lacks "$1 keeps the password" "$err" hunter2
}
in_time() { # WHAT URI STATUS MESSAGE: of a timeout of 600 ms; on a busy machine it takes longer
    local before took
    before=$(date +%s%3N)
    refused "$@"
    took=$(($(date +%s%3N) - before))
    if [ "$took" -gt 30000 ]; then fail "$1 took $took ms"; fi
}
soon() { echo "memcached+sasl://user:hunter2@127.0.0.1:$port?timeout=600ms"; }

describe "who needs no SASL loads no libsasl"
for module in memcached memcached_tls; do
    if ldd "$DLOCK_TEST_MODULES/dlock-$module.so" 2>/dev/null | grep -q 'libsasl\|libmemcached'; then
        fail "dlock-$module.so needs libsasl or libmemcached"
    fi
done
if ! ldd "$DLOCK_TEST_MODULES/dlock-memcached_sasl.so" | grep -q libsasl; then fail "dlock-memcached_sasl.so needs no libsasl"; fi

describe "logins"
server_with
accepted "the right password" "$(uri)"
accepted "a user of another realm" "$(uri user%40elsewhere:hunter2)"
refused "a wrong password" "$(uri user:hunter22)" 69 "refused the user or the password"
refused "an unknown user" "$(uri joe:hunter2)" 69 "refused the user or the password"
refused "a user of an unknown realm" "$(uri user%40nowhere:hunter2)" 69 "whose realm is not the server's host name is written user%40realm"
printf hunter2 >"$work/password"
accepted "a password in a file" "$(uri user "&password_file=$work/password")"
refused "the text protocol" "memcached://127.0.0.1:$port?timeout=30s" 69 "one that runs with -S is memcached+sasl://user:password@host"
begin "$DLOCK" run -l 3s -b "$(uri)" renewed -- sleep 5
ended "$pid"
equal "renewals and the release have it, too" "$status" 0

describe "URIs"
refused "no user" "memcached+sasl://127.0.0.1:$port?timeout=30s" 64 "memcached+sasl://user:password@host"
refused "no password" "memcached+sasl://user@127.0.0.1:$port?timeout=30s" 64 "memcached+sasl://user:password@host"
refused "a folder" "memcached+sasl://user:hunter2@127.0.0.1:$port/folder?timeout=30s" 64 "no databases or folders"

describe "doctor"
run "$DLOCK" doctor "$(uri)"
contains "says what of the connection is weak" "$out" "in clear text"

describe "a server that is stopped"
kill -STOP "$(cat "$work/server.pid")"
in_time "stopped" "$(soon)" 69 "no answer in time"
kill -CONT "$(cat "$work/server.pid")"
accepted "once it goes on" "$(uri)"

describe "servers without SASL"
server_with plain
refused "a plain memcached" "$(uri)" 69 "Without SASL (-S) it is memcached://"
server_with plain -B ascii
in_time "one that speaks text only" "$(soon)" 69 "Without SASL (-S) it is memcached://"
stop_by_pid server

# Servers of another kind, by what they do to the first request. None of them may end the program, as what libmemcached says
# of surprising answers often does.
cat >"$work/impostor.py" <<'END'
import socket, sys, threading, time

kind = sys.argv[1]
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)

def reply(status, body):
    return bytes([0x81, 0x20, 0, 0, 0, 0, 0, status]) + len(body).to_bytes(4, "big") + bytes(12) + body

def talk(client):
    if kind == "greets": client.sendall(b"220 mail.example ESMTP\r\n" * 3)
    if client.recv(65536) == b"": return
    if kind == "text": client.sendall(b"ERROR\r\n" * 9)
    if kind == "http": client.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n<html>" + b"x" * 300)
    if kind == "zeros": client.sendall(bytes(300))
    if kind == "late": client.sendall(reply(0, b"PLAIN") + reply(0, b"PLAIN") * 5)
    if kind == "other": client.sendall(reply(0, b"GSSAPI"))
    if kind == "halfway": client.sendall(reply(0, b"PLAIN")[:20])
    if kind in ("silent", "halfway"): time.sleep(1000)
    client.close()

kept = []
while True:
    kept.append(server.accept()[0])
    threading.Thread(target=talk, args=(kept[-1],), daemon=True).start()
END
impostor() {
    python3 "$work/impostor.py" "$1" >"$work/impostor.$1" 2>"$work/impostor.err" &
    started+=($!)
    within 20 "the impostor is there" test -s "$work/impostor.$1"
    port=$(cat "$work/impostor.$1")
}
for kind in silent halfway; do
    describe "a server that is $kind"
    impostor "$kind"
    in_time "$kind" "$(soon)" 69 "no answer in time"
done
for kind in greets text http zeros late closes; do
    describe "a server that is none ($kind)"
    impostor "$kind"
    refused "$kind" "$(uri)" 69 "127.0.0.1:$port"
done
describe "a server with other mechanisms"
impostor other
refused "GSSAPI" "$(uri)" 69 "no SASL mechanism that this host has"

finish
