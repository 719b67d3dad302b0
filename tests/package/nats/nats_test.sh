#!/bin/bash
# nats_test.sh BUILD: builds examples/nats-backend outside of the tree, with a dlock that it installs from BUILD under a temporary
# prefix, and does with it what docs/writing-a-backend.md says: contract, conformance, random answers. Then the server is
# killed, refuses, and has other programs' data.
set -euo pipefail
. "$(dirname "$0")/../common.sh" nats
# shellcheck disable=SC2046
need_packages cmake make gcc libc6-dev clang binutils 'pkg-config|pkgconf' $("$source/tests/servers/nats.sh" libraries) $("$source/tests/servers/nats.sh" packages)
cmake --install "$1" --prefix "$folder/prefix" >"$folder/log" 2>&1 || { cat "$folder/log" >&2; fail "installing"; }
unset DLOCK_PLUGIN_PATH DLOCK_URI LD_LIBRARY_PATH
export CMAKE_PREFIX_PATH=$folder/prefix PATH=$folder/prefix/bin:$PATH SOURCE=$source

server() { "$source/tests/servers/nats.sh" "$1" "$folder/$2"; }
mkdir "$folder/server" "$folder/strict" "$folder/empty"
trap 'server stop server; server stop strict; rm -rf "$folder"' EXIT
settings=$(server start server) || fail "$settings"
uri=${settings#*=} port=${settings##*:}
cd "$folder/empty"

# ---- the page's commands: the blocks that a comment gives to this test
awk '/^<!-- run by tests\/package\/nats\// { ours = 1 } ours && /^```$/ { ours = inside = 0 } inside; ours && /^```sh$/ { inside = 1 }' \
    "$source/docs/writing-a-backend.md" | sed "s|nats://127.0.0.1:4222|$uri|; s|\$SOURCE/tests/package/nats/corpus|corpus|" >commands
[ "$(wc -l <commands)" -gt 5 ] || fail "the page has no commands for this test"
cp -r "$source/tests/package/nats/corpus" .
# The rest of a page of 256 revisions: none is there any more.
for n in {9..261}; do printf 'MSG _I.%d 1 28\r\n{"error":{"err_code":10037}}\r\n' "$n"; done >>corpus/list
set -x
# shellcheck source=/dev/null
. ./commands
{ set +x; } 2>/dev/null

if nm -D --undefined-only nats/dlock-nats.so | grep dlock; then fail "the module takes more of dlock than headers"; fi
[ "$(nm -D --defined-only nats/dlock-nats.so | grep -c ' T \| [BDR] ')" = 1 ] || fail "the module exports more than its table"
dlock schema nats | grep -q '^nats kv add' || fail "the schema"
dlock doctor -b "$uri" >doctor || true # something is weak
if ! grep -q '^fine  NATS' doctor || ! grep -q '^weak  1 replica' doctor; then fail "the doctor: $(cat doctor)"; fi

# ask PATTERN LINE…: what the server answers to these lines that matches.
ask() {
    exec 3<>"/dev/tcp/127.0.0.1/$port"
    printf '%s\r\n' 'CONNECT {"verbose":false}' 'SUB _INBOX.x 1' "${@:2}" PING >&3
    grep -om 1 -e "$1" <&3
    exec 3>&-
}

# ---- a server that is killed: what is held stays held, fences grow, a waiter is served
# shellcheck disable=SC2016
dlock run -b "$uri?lease=30s" name -- sh -c 'echo "$DLOCK_FENCE" >fence; until [ -e go ]; do sleep 0.1; done' &
holder=$!
until [ -s fence ]; do sleep 0.1; done
# shellcheck disable=SC2016
dlock run -b "$uri?lease=30s" -w 60 name -- sh -c 'echo "$DLOCK_FENCE" >next' &
waiter=$!
# shellcheck disable=SC2016
until [ "$(ask '"consumer_count":[0-9]*' 'PUB $JS.API.STREAM.INFO.KV_dlock _INBOX.x 0' '')" = '"consumer_count":1' ]; do sleep 0.1; done
kill -KILL "$(cat "$folder/server/nats.pid")"
server again server
if dlock run -b "$uri" -n name -- true; then fail "free after a restart of the server"; fi
touch go
wait "$holder" || fail "the holder lost its lock at a restart of the server"
wait "$waiter" || fail "the waiter got nothing after a restart of the server"
[ "$(cat next)" -gt "$(cat fence)" ] || fail "fences: $(cat fence), then $(cat next)"

# ---- what is refused, and why
refused() { # MENTION URI
    if dlock run -b "$2" name -- true 2>"$folder/error"; then fail "$2 is accepted"; fi
    grep -qF -- "$1" "$folder/error" || fail "$2: no \"$1\" in: $(cat "$folder/error")"
}
dlock run -b "$uri/foreign" another -- true
# shellcheck disable=SC2016
ask PONG 'PUB $KV.foreign.name 5' hello >asked
refused "another program's value" "$uri/foreign"
memory='{"name":"KV_memory","subjects":["$KV.memory.>"],"storage":"memory"}'
ask PONG "PUB \$JS.API.STREAM.CREATE.KV_memory _INBOX.x ${#memory}" "$memory" >asked
refused "in memory" "$uri/memory"
refused "a bucket has" "$uri/a/b"
refused "a user and a password" "nats://user@127.0.0.1:$port"
settings=$(DLOCK_SERVER_OPTIONS='--user it --pass secret' server start strict) || fail "$settings"
refused "Authorization" "${settings#*=}"
refused "Authorization" "nats://it:wrong@127.0.0.1:${settings##*:}"
if grep wrong "$folder/error"; then fail "a password in an error"; fi
dlock run -b "nats://it:secret@127.0.0.1:${settings##*:}" name -- true || fail "the right password"
echo "nats: OK"
