#!/bin/bash
# dlock doctor on Redis.
. "$(dirname "$0")/lib.sh"

arguments=()
name=
launch() {
    mkdir -p "$folder/$name"
    redis-server --port "$1" --bind 127.0.0.1 --save '' --dir "$folder/$name" --daemonize no "${arguments[@]}" \
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

describe "persistence"
server plain
settings "redis://127.0.0.1:$port"
fine "redis "
fine "maxmemory 0: nothing is evicted"
fine "appendonly no: what a restart forgets, the quarantine of 10 s covers"
fine "no replicas"
fine "clients: "
settings "redis://127.0.0.1:$port?quarantine=0" 1
weak "appendonly no, and no quarantine" "quarantine=0"
ask config set appendonly yes
settings "redis://127.0.0.1:$port?quarantine=0" 1
weak "appendonly yes, appendfsync everysec, and no quarantine"
settings "redis://127.0.0.1:$port?quarantine=30s"
fine "appendonly yes, appendfsync everysec: what a restart forgets, the quarantine of 30 s covers"
ask config set appendfsync always
settings "redis://127.0.0.1:$port?quarantine=0"
fine "appendonly yes, appendfsync always: a restart forgets nothing"

describe "memory"
ask config set maxmemory 1gb
settings "redis://127.0.0.1:$port"
fine "maxmemory-policy noeviction"
fine "memory: "
for policy in allkeys-lru volatile-ttl; do
    ask config set maxmemory-policy $policy
    settings "redis://127.0.0.1:$port" 1
    weak "maxmemory-policy $policy, 0 keys evicted so far" "set maxmemory-policy noeviction"
done
ask config set maxmemory-policy noeviction
ask config set maxmemory 1
settings "redis://127.0.0.1:$port" 1
weak "memory: " "raise maxmemory"
ask config set maxmemory 0

describe "replicas"
master=$port
server replica --replicaof "127.0.0.1 $master"
linked() { redis-cli -h 127.0.0.1 -p "$master" info replication | grep -q '^connected_slaves:1'; }
within 30 "the replica comes" linked
settings "redis://127.0.0.1:$master" 1
weak "1 replica" "failover"
settings "redis://127.0.0.1:$port" 69
contains "its master is named" "$err" "is a replica; name its master (it says 127.0.0.1:$master)"
equal "and nothing is printed" "$out" ""

describe "CONFIG is forbidden, and a password"
server closed --appendonly yes --rename-command CONFIG '""' --requirepass hunter2
settings "redis://:hunter2@127.0.0.1:$port" 1
weak "appendonly yes, appendfsync cannot be looked at" "+config|get"
lacks "the password" "$out$err" hunter2
settings "redis://:hunter3@127.0.0.1:$port" 69
lacks "the password" "$out$err" hunter3

describe "clients"
server few --maxclients 10
others=()
for _ in 1 2 3 4 5 6 7 8 9; do
    begin redis-cli -h 127.0.0.1 -p "$port" subscribe nothing
    others+=("$pid")
done
crowded() { [ "$(redis-cli -h 127.0.0.1 -p "$port" info clients | sed -n 's/^connected_clients:\([0-9]*\).*/\1/p')" = 10 ]; }
within 10 "ten clients" crowded
settings "redis://127.0.0.1:$port" 1
weak "clients: 10 of 10" "raise maxclients"
kill "${others[@]}"

finish
