# Sourced by the servers' scripts. Each prints its Debian packages: `libraries`, to build against, and `packages`, to run.
# Each defines `launch PORT` (starts the server in the background, logging to
# $folder/NAME.log, with the words in DLOCK_SERVER_OPTIONS at the end of its command line) and `answers PORT` (succeeds
# if the server answers).

# Prints a free port that is not in the kernel's range for outgoing connections: so a server that is down for a while,
# or listens only as leader, finds its port free. No port is printed twice in a run of the tests, whose servers start at
# the same time: two servers with the same port would both take the first one's answer for their own.
free_port() {
    python3 -c '
import os, random, socket, sys
def claimed(port):
    if len(sys.argv) < 2: return True
    os.makedirs(sys.argv[1], exist_ok=True)
    try: os.close(os.open("%s/%d" % (sys.argv[1], port), os.O_CREAT | os.O_EXCL))
    except FileExistsError: return False
    return True
with open("/proc/sys/net/ipv4/ip_local_port_range") as file: end = int(file.read().split()[0])
for attempt in range(1000):
    with socket.socket() as s:
        try: s.bind(("127.0.0.1", random.randrange(10000, end) if end > 20000 and attempt < 999 else 0))
        except OSError: continue
        port = s.getsockname()[1]
        if claimed(port):
            print(port)
            break
' ${DLOCK_TEST_DIR:+"$DLOCK_TEST_DIR/ports"}
}

# began PID: prints when the process began, in the kernel's ticks.
began() {
    local stat
    read -r stat 2>/dev/null <"/proc/$1/stat" || return 0
    read -ra stat <<<"${stat##*) }"
    echo "${stat[19]}"
}

# note_pid NAME PID: a server that has just been started. Another process may have the number when it has ended.
note_pid() {
    echo "$2" >"$folder/$1.pid"
    began "$2" >"$folder/$1.began"
}

# is_there NAME: succeeds if the process that was noted has not been replaced by another one with its number.
is_there() {
    [ -e "$folder/$1.pid" ] && [ "$(began "$(cat "$folder/$1.pid")")" = "$(cat "$folder/$1.began")" ]
}

# start_on_free_port NAME: starts the server; sets `port`, and writes $folder/NAME.port and $folder/NAME.pid. Tries
# again if another process takes the port first.
start_on_free_port() {
    local attempt pid
    for attempt in 1 2 3 4 5; do
        port=$(free_port)
        launch "$port"
        pid=$!
        note_pid "$1" "$pid"
        echo "$port" >"$folder/$1.port"
        if await_answer "$1" "$port" 100; then return 0; fi
        kill -KILL "$pid" 2>/dev/null || true
    done
    rm -f "$folder/$1.pid"
    does_not_start "$1"
}

# until_free PORT: waits until no process listens there. The main thread of a server that was killed can have ended
# while others, with all descriptors, are still ending.
until_free() {
    local tried
    for tried in $(seq 200); do
        if ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; then return 0; fi
        sleep 0.05
    done
}

# launch_again NAME: starts a server that has ended, on its old port; does not wait until it answers.
launch_again() {
    until_free "$(cat "$folder/$1.port")"
    launch "$(cat "$folder/$1.port")"
    note_pid "$1" "$!"
}

# has_ended PID: succeeds if the process has ended. It may still be a zombie, for seconds if process 1 reaps slowly.
has_ended() {
    local stat
    read -r stat 2>/dev/null <"/proc/$1/stat" || return 0
    [[ "${stat##*) }" = [ZX]* ]]
}

# await_answer NAME PORT TRIES: waits for the answer of a server that was started. Fails at once if it has ended.
await_answer() {
    local pid tried
    pid=$(cat "$folder/$1.pid")
    for tried in $(seq "$3"); do
        if has_ended "$pid"; then return 1; fi
        if answers "$2"; then return 0; fi
        sleep 0.1
    done
    return 1
}

does_not_start() {
    echo "$1 does not start:" >&2
    cat "$folder/$1.log" >&2
    exit 1
}

# stop_by_pid NAME: ends the server, with SIGKILL after five seconds.
stop_by_pid() {
    local pid waited
    if ! is_there "$1"; then return 0; fi
    pid=$(cat "$folder/$1.pid")
    rm -f "$folder/$1.pid"
    kill -TERM "$pid" 2>/dev/null || return 0
    for waited in $(seq 100); do
        if has_ended "$pid"; then return 0; fi
        sleep 0.05
    done
    kill -KILL "$pid" 2>/dev/null || true
}
