#!/bin/bash
# dlock doctor on Redis.
. "$(dirname "$0")/lib.sh"

arguments=()
name=
launch() {
    mkdir -p "$folder/$name"
    "${DLOCK_REDIS_SERVER:-redis-server}" --port "$1" --bind 127.0.0.1 --save '' --dir "$folder/$name" --daemonize no "${arguments[@]}" \
        >"$folder/$name.log" 2>&1 </dev/null &
    started+=("$!")
}
answers() { redis-cli -h 127.0.0.1 -p "$1" ping 2>&1 | grep -qE 'PONG|NOAUTH'; }
# server NAME ARGUMENT…: starts one; sets $port.
server() {
    name=$1
    shift
    arguments=("$@")
    start_on_free_port "$name"
}
ask() { redis-cli -h 127.0.0.1 -p "$port" "$@" >/dev/null; }

# Until it grants locks to clients with a quarantine of two seconds.
grow_up() { within 20 "the quarantine ends" is_old; }
is_old() { "$DLOCK" inspect -b "redis://127.0.0.1:$port?lease=1s" nothing >/dev/null 2>&1; [ "$(age_ms)" -gt 2000 ]; }
age_ms() { echo $(($(date +%s%3N) - $(redis-cli -h 127.0.0.1 -p "$port" get '{}:dlock:incarnation' | cut -d' ' -f3))); }

describe "a server that was just started"
server plain
settings "redis://127.0.0.1:$port?lease=10m" 1
weak "grants nothing for another " "wait: a server that was restarted may have lost grants"
fine "appendonly no: a quarantine of 600 s covers grants lost in a restart"
gives "status" 1 "$DLOCK" doctor --json "redis://127.0.0.1:$port?lease=10m"
another='grants nothing for another (10m|9m[0-9]*s): quarantine after a restart'
equal "JSON says for how long" "$(grep -cE "{\"health\": \"weak\", \"what\": \"$another\", \"advice\": \"wait: " <<<"$out")" 1
run "$DLOCK" doctor --json "redis://127.0.0.1:$port?quarantine=0"
lacks "without a quarantine" "$out" "grants nothing"

describe "persistence"
grow_up
settings "redis://127.0.0.1:$port?lease=1s"
fine "redis "
fine "maxmemory 0: nothing is evicted"
fine "appendonly no: a quarantine of 1 s covers grants lost in a restart"
fine "no replicas"
# Servers before 6.2 do not say how many there may be.
tells_clients() { redis-cli -h 127.0.0.1 -p "$port" info clients | grep -q '^maxclients:'; }
if tells_clients; then fine "clients: "; fi
settings "redis://127.0.0.1:$port?quarantine=0" 1
weak "appendonly no, and no quarantine" "quarantine=0"
ask config set appendonly yes
settings "redis://127.0.0.1:$port?quarantine=0" 1
weak "appendonly yes, appendfsync everysec, and no quarantine"
settings "redis://127.0.0.1:$port?quarantine=2s"
fine "appendonly yes, appendfsync everysec: a quarantine of 2 s covers grants lost in a restart"
ask config set appendfsync always
settings "redis://127.0.0.1:$port?quarantine=0"
fine "appendonly yes, appendfsync always: a restart that keeps these settings forgets nothing"
settings "redis://127.0.0.1:$port?lease=1s"
fine "appendonly yes, appendfsync always: a quarantine of 1 s covers grants lost in a restart"
fine "the quarantine is counted by the server's wall clock"
fine "this user may run all commands that dlock needs"

describe "memory"
ask config set maxmemory 1gb
settings "redis://127.0.0.1:$port?lease=1s"
fine "maxmemory-policy noeviction"
fine "memory: "
for policy in allkeys-lru volatile-ttl; do
    ask config set maxmemory-policy $policy
    settings "redis://127.0.0.1:$port?lease=1s" 1
    weak "maxmemory-policy $policy, 0 keys evicted so far" "set maxmemory-policy noeviction"
done
ask config set maxmemory-policy noeviction
ask config set maxmemory 1
settings "redis://127.0.0.1:$port?lease=1s" 1
weak "memory: " "raise maxmemory"
ask config set maxmemory 0

# Nor can it record when its quarantine began: the server's reason is told in place of that.
describe "a server that refuses to write"
server strict --min-replicas-to-write 1
gives "status" 1 "$DLOCK" doctor "redis://127.0.0.1:$port?lease=10m"
weak "does not grant and release locks: Redis at 127.0.0.1:$port refused: NOREPLICAS " "no program gets a lock"
contains "what to do" "$out" "; min-replicas-to-write asks for more replicas than follow it"
lacks "the quarantine" "$out" "grants nothing for another"
gives "and nobody waits for its end" 69 timeout 60 "$DLOCK" run -n -b "redis://127.0.0.1:$port?lease=10m" strict true

describe "replicas"
master=$port
server replica --replicaof 127.0.0.1 "$master"
linked() { redis-cli -h 127.0.0.1 -p "$master" info replication | grep -q '^connected_slaves:1'; }
within 30 "the replica comes" linked
settings "redis://127.0.0.1:$master?lease=1s"
fine "1 replica: a quarantine of 1 s covers grants lost in a failover"
settings "redis://127.0.0.1:$master?quarantine=0" 1
weak "1 replica, and no quarantine" "failover"
settings "redis://127.0.0.1:$port" 69
contains "its master is named" "$err" "is a replica; name its master (it says 127.0.0.1:$master)"
equal "and nothing is printed" "$out" ""

describe "CONFIG is forbidden, and a password"
echo 'rename-command CONFIG ""' >"$work/closed.conf" # which versions quote differently in arguments
server closed --appendonly yes --requirepass hunter2 --include "$work/closed.conf"
settings "redis://:hunter2@127.0.0.1:$port?quarantine=0" 1
weak "appendonly yes, appendfsync cannot be looked at" "+config|get"
lacks "the password" "$out$err" hunter2
settings "redis://:hunter3@127.0.0.1:$port" 69
lacks "the password" "$out$err" hunter3

describe "rights"
server rights
grow_up
if redis-cli -h 127.0.0.1 -p "$port" info server | grep -q '^redis_version:6\.0\.'; then
    without='&dlock:*' # which came with 6.2
else
    without=
fi
documented=$(sed -n '/ACL SETUSER locks/,/^```/{/^```/!p}' "$here/../../../../docs/servers/redis.md" | sed 's/ACL SETUSER locks//; s/>PASSWORD/>pw/')
# shellcheck disable=SC2086
ask acl setuser locks ${documented/"$without"/}
settings "redis://locks:pw@127.0.0.1:$port?lease=1s&prefix=lock/"
fine "this user may run all commands that dlock needs"
rights=$(printf '%s\n' $documented | grep '^+' | grep -vE 'auth|select|info|publish|incr|subscribe|eval$|\|')
# shellcheck disable=SC2086
ask acl setuser locks ${rights//+/-}
settings "redis://locks:pw@127.0.0.1:$port?lease=1s&prefix=lock/" 1
weak "rights that are missing: " "ACL SETUSER"
for right in $rights; do contains "$right is missed" "$out" " $right"; done
# shellcheck disable=SC2086
ask acl setuser locks $rights -incr -subscribe
settings "redis://locks:pw@127.0.0.1:$port?lease=1s&prefix=lock/" 1
weak "rights that are missing: +incr +subscribe" "ACL SETUSER"
ask acl setuser locks +incr +subscribe -eval
settings "redis://locks:pw@127.0.0.1:$port?lease=1s&prefix=lock/" 1
weak "this user may not see whether the server was restarted or promoted" "+eval and ~{lock/}:dlock:incarnation"
settings "redis://locks:pw@127.0.0.1:$port?quarantine=0" 1
lacks "which is not needed without a quarantine" "$out" "restarted or promoted"
ask acl setuser locks +eval
ask acl setuser locks -publish
settings "redis://locks:pw@127.0.0.1:$port?lease=1s&prefix=lock/" 69
contains "the right is named" "$err" "+publish"

describe "clients"
server few --maxclients 10
grow_up
others=()
for _ in 1 2 3 4 5 6 7 8 9; do
    begin redis-cli -h 127.0.0.1 -p "$port" subscribe nothing
    others+=("$pid")
done
crowded() { [ "$(redis-cli -h 127.0.0.1 -p "$port" info clients | sed -n 's/^connected_clients:\([0-9]*\).*/\1/p')" = 10 ]; }
within 10 "ten clients" crowded
if tells_clients; then
    settings "redis://127.0.0.1:$port?lease=1s" 1
    weak "clients: 10 of 10" "raise maxclients"
fi
kill "${others[@]}"

finish
