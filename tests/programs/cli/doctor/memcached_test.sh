#!/bin/bash
# dlock doctor on memcached.
. "$(dirname "$0")/lib.sh"

arguments=()
name=
launch() {
    local user=()
    if [ "$(id -u)" = 0 ]; then user=(-u nobody); fi
    "${DLOCK_MEMCACHED_SERVER:-memcached}" "${user[@]}" -l 127.0.0.1 -p "$1" -U 0 "${arguments[@]}" >"$folder/$name.log" 2>&1 </dev/null &
    started+=("$!")
}
answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
server() { # NAME ARGUMENT…: starts one; sets $port
    name=$1
    shift
    arguments=("$@")
    start_on_free_port "$name"
}
old_enough() { "$DLOCK" doctor "$1" >/dev/null 2>&1; }

describe "for locks alone"
server good -M -o no_slab_reassign
settings "memcached://127.0.0.1:$port" 1
weak "grants nothing for another " "wait: a server that was restarted may have lost grants"
fine "memcached "
fine "evictions off (-M)"
fine "slab page mover off"
fine "memory: 0 of 64 MB used"
fine "flush_all: 0 so far"
fine "clients: "
within 20 "the quarantine ends" old_enough "memcached://127.0.0.1:$port?quarantine=2s&lease=2s"
settings "memcached://127.0.0.1:$port?quarantine=2s&lease=2s"
fine "up for "
contains "the quarantine" "$out" "a quarantine of 2 s covers grants lost in a restart"
settings "memcached://127.0.0.1:$port?quarantine=0" 1
contains "no quarantine" "$out" "and no quarantine"

describe "others flush"
server flushed -M -o no_slab_reassign
python3 - "$port" <<'END'
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
s.sendall(b"flush_all\r\n")
s.recv(100)
END
settings "memcached://127.0.0.1:$port?quarantine=2s&lease=2s" 1
weak "flush_all: 1 so far" "-F"

describe "a cache"
server cache -m 2
settings "memcached://127.0.0.1:$port?quarantine=2s&lease=2s" 1
weak "evictions on, 0 items evicted so far" "-M"
python3 - "$port" <<'END'
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
for i in range(40000):
    s.sendall(b"set k%d 0 0 100 noreply\r\n%s\r\n" % (i, b"x" * 100))
s.sendall(b"version\r\n")
s.recv(100)
END
settings "memcached://127.0.0.1:$port?quarantine=2s&lease=2s" 1
equal "evicted items are counted" "$(grep -cE '^weak  evictions on, [1-9][0-9]* items evicted so far' <<<"$out")" 1

describe "a server that moves its memory about"
server mover -M -m 2
fill_and_move() { # prints how many items that has cost by the server's count, or "none" (since 1.6.34)
    python3 - "$port" <<'END'
import socket, sys, time
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
replies = s.makefile("r", newline="")
def ask(line):
    s.sendall(line.encode() + b"\r\n")
    return replies.readline().strip()
def stats(of):
    s.sendall(b"stats" + of.encode() + b"\r\n")
    return dict(line.split()[1:3] for line in iter(replies.readline, "END\r\n"))
n = 0
while ask("set k%d 0 0 100\r\n%s" % (n, "x" * 100)) == "STORED":
    n += 1
pages = {name.split(":")[0]: int(value) for name, value in stats(" slabs").items() if name.endswith(":total_pages")}
assert ask("slabs reassign %s 20" % max(pages, key=pages.get)) == "OK"
for i in range(100):
    dropped = stats("").get("slab_reassign_evictions_nomem", "none")
    if dropped != "0":
        break
    time.sleep(0.1)
print(dropped)
END
}
dropped=$(fill_and_move)
if [ "$dropped" = none ]; then
    within 20 "the quarantine ends" old_enough "memcached://127.0.0.1:$port?quarantine=2s&lease=2s"
    settings "memcached://127.0.0.1:$port?quarantine=2s&lease=2s"
    fine "slab page mover on, which drops no locks in this version"
else
    settings "memcached://127.0.0.1:$port?quarantine=2s&lease=2s" 1
    weak "slab page mover on (slab_automove 1), $dropped items dropped so far" "-o no_slab_reassign"
    equal "items that -M did not keep are counted" "$((dropped > 0))" 1
fi

finish
