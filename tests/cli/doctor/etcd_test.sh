#!/bin/bash
# dlock doctor on etcd.
. "$(dirname "$0")/lib.sh"

server=$here/../../servers/etcd.sh
where=$("$server" start "$folder" | sed -n 's/^DLOCK_TEST_ETCD=//p')
at_exit+=(stop_server)
stop_server() { "$server" stop "$folder"; }

describe "everything is fine"
settings "etcd://$where"
fine "etcd 3."
fine "store: "
fine "one member"
fine "session 10 s; the URI asks for 10"

describe "a short session"
settings "etcd://$where?session=2s" 1
weak "a short session" "5s or more"

describe "it is away"
stop_server
settings "etcd://$where?timeout=500ms" 69

describe "a cluster of two, of which the URI names one"
at_exit+=(stop_members)
stop_members() { for n in 1 2; do "$server" stop "$folder/$n"; done; }
where=127.0.0.1:$("$server" cluster "$folder" 2 | head -n 1)
settings "etcd://$where" 1
weak "a cluster of 2" "make it one, or three"
weak "the URI names 1 of 2 members" "name all members"

finish
