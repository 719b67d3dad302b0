#!/bin/bash
# dlock doctor on ZooKeeper.
. "$(dirname "$0")/lib.sh"

server=$here/../../../servers/zookeeper.sh
where=$("$server" start "$folder" | sed -n 's/^DLOCK_TEST_ZOOKEEPER=//p')
patient="&timeout=20s" # a server that has just started may be slow to make its first session
at_exit+=(stop_server)
stop_server() { "$server" stop "$folder"; }
# again KEY=VALUE…: restarts it with these settings.
again() {
    local setting
    "$server" stop "$folder"
    for setting; do
        sed -i "/^${setting%%=*}=/d" "$folder/zookeeper/zoo.cfg"
        echo "$setting" >>"$folder/zookeeper/zoo.cfg"
    done
    "$server" again "$folder"
    "$server" await "$folder" || fail "it does not start again"
}

describe "everything can be looked at"
settings "zookeeper://$where?session=10s$patient"
fine "ZooKeeper 3."
fine "mode standalone"
fine "tickTime 200 ms"
fine "session timeout 10000 ms; the server allows 400 to 60000"
fine "no limit to the connections"
fine "transaction logs: "

describe "old logs"
truncate -s 2G "$folder/zookeeper/version-2/old" # it takes no space
settings "zookeeper://$where?session=10s$patient" 1
weak "transaction logs: 21" "autopurge.purgeInterval=1"
rm "$folder/zookeeper/version-2/old"

describe "more hosts than the ensemble has"
settings "zookeeper://$where,127.0.0.1:1?session=10s$patient" 1
weak "the URI names 2 hosts, and this ensemble has 1" "one ensemble"

describe "a short session"
settings "zookeeper://$where?session=4s$patient" 1
weak "session timeout 4000 ms" "silently drops"

describe "few connections"
again maxClientCnxns=10
settings "zookeeper://$where?session=10s$patient" 1
weak "maxClientCnxns 10; " "raise maxClientCnxns"
again maxClientCnxns=100
settings "zookeeper://$where?session=10s$patient"
fine "maxClientCnxns 100; "

describe "no connection more"
again maxClientCnxns=1
exec 3<>"/dev/tcp/${where/:/\/}"
settings "zookeeper://$where?timeout=2s" 69
contains "why" "$err" "ends connections at once, as ZooKeeper does above maxClientCnxns"
exec 3>&-
again maxClientCnxns=100

describe "long ticks"
again tickTime=6000
settings "zookeeper://$where?session=20s$patient" 1
weak "tickTime 6000 ms" "2000 or less"
fine "session timeout 20000 ms"
settings "zookeeper://$where?session=2s$patient" 1
weak "session timeout 2000 ms" "two ticks"

describe "conf is not allowed, as by default"
again tickTime=2000 4lw.commands.whitelist=srvr # which the script asks
settings "zookeeper://$where/a/path?session=9s$patient" 1
fine "ZooKeeper 3."
fine "mode standalone"
weak "tickTime cannot be looked at" "4lw.commands.whitelist=srvr,conf"
fine "session timeout 9000 ms, as negotiated"

describe "a password"
settings "zookeeper://$where?auth=digest:me:hunter2$patient" 1
weak "tickTime cannot be looked at"
lacks "the password" "$out$err" hunter2

describe "it is away"
stop_server
settings "zookeeper://$where?timeout=500ms" 69

describe "an ensemble of two"
at_exit+=(stop_members)
stop_members() { for n in 1 2; do "$server" stop "$folder/$n"; done; }
where=127.0.0.1:$("$server" ensemble "$folder" 2 | head -n 1)
settings "zookeeper://$where?session=10s$patient" 1
weak "ensemble of 2" "no locks at all"
fine "tickTime 200 ms"

finish
