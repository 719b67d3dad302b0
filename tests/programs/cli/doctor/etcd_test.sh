#!/bin/bash
# dlock doctor on etcd.
. "$(dirname "$0")/lib.sh"

server=$here/../../../servers/etcd.sh
where=$("$server" start "$folder" | sed -n 's/^DLOCK_TEST_ETCD=//p')
at_exit+=(stop_server)
stop_server() { "$server" stop "$folder"; }

describe "everything is fine"
settings "etcd://$where"
fine "etcd 3."
fine "store: "
fine "one member"
fine "session 10 s; the URI asks for 10"

describe "two that are not one cluster"
mkdir "$folder/other" "$folder/full"
other=$("$server" start "$folder/other" | sed -n 's/^DLOCK_TEST_ETCD=//p')
stop_other() { "$server" stop "$folder/other"; }
at_exit+=(stop_other)
settings "etcd://$where,$other" 1
weak "etcd at $other is of another cluster" "one cluster"
stop_other
settings "etcd://$where,$other" 1
weak "no connection to etcd at $other" "to answer"

describe "no space"
DLOCK_SERVER_OPTIONS="--quota-backend-bytes 200000" "$server" start "$folder/full" >"$folder/full.uri"
stop_full() { "$server" stop "$folder/full"; }
at_exit+=(stop_full)
full=$(sed -n 's/^DLOCK_TEST_ETCD=//p' "$folder/full.uri")
fill() { ! head -c 30000 /dev/zero | tr '\0' x | ETCDCTL_API=3 etcdctl --endpoints "http://$full" put filling >/dev/null 2>&1; }
within 60 "it is full" fill
settings "etcd://$full" 1
weak "alarm NOSPACE" "disarm"
gives "locks are listed" 0 "$DLOCK" list -b "etcd://$full"
run "$DLOCK" run -b "etcd://$full" -n a -- true
contains "none is granted" "$err" "no space left"
stop_full

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
