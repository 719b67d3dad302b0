#!/bin/bash
# zookeeper.sh packages | start FOLDER | again FOLDER | await FOLDER | stop FOLDER: a private ZooKeeper on a free loopback
# port. See tests/run.sh. `again` starts one that was killed, on its port; `await` waits until it answers. `ensemble FOLDER
# COUNT` starts an ensemble of COUNT members, in FOLDER/1, FOLDER/2, …, and prints their ports; each member can be stopped
# and started like a single server.
set -eu
. "$(dirname "$0")/common.sh"
folder=${2:-}

# Ticks are short, since a session ends up to one tick after its timeout.
configure() {
    mkdir -p "$folder/zookeeper"
    cat >"$folder/zookeeper/zoo.cfg" <<END
${ensemble:-}dataDir=$folder/zookeeper
clientPort=$1
clientPortAddress=127.0.0.1
tickTime=200
minSessionTimeout=400
maxSessionTimeout=60000
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=*
END
}

run() {
    java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dzookeeper.forceSync=no -Dorg.slf4j.simpleLogger.defaultLogLevel=warn \
        ${JVMFLAGS:-} \
        -cp /usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar org.apache.zookeeper.server.quorum.QuorumPeerMain \
        "$folder/zookeeper/zoo.cfg" >"$folder/zookeeper.log" 2>&1 </dev/null &
}

launch() {
    configure "$1"
    run
}

# In a subshell, whose end closes the connection. A server that is still starting answers `ruok` as well, but ends the
# connections of clients, which then wait for a sixtieth of their session before they try again.
answers() (
    exec 3<>"/dev/tcp/127.0.0.1/$1" && echo -n srvr >&3 && read -r -t 1 -N 9 answer <&3 && [ "$answer" = Zookeeper ]
) 2>/dev/null

client_port() { sed -n 's/^clientPort=//p' "$folder/zookeeper/zoo.cfg"; }

await() { await_answer zookeeper "$(client_port)" 300 || does_not_start zookeeper; }

case "$1" in
libraries) echo libzookeeper-mt-dev ;;
packages) echo zookeeper default-jdk-headless libcurator-recipes-java python3-kazoo openssl stunnel4 ;;
start)
    start_on_free_port zookeeper
    echo "DLOCK_TEST_ZOOKEEPER=127.0.0.1:$port"
    echo "DLOCK_TEST_URI_zookeeper=zookeeper://127.0.0.1:$port/dlock/tests?session=20s&lease=20s"
    echo "DLOCK_TEST_URI_zookeeper_mortal=zookeeper://127.0.0.1:$port/dlock/tests?session=2s&lease=10s"
    ;;
again)
    until_free "$(client_port)"
    run
    note_pid zookeeper "$!"
    ;;
await) await ;;
ensemble)
    all=$folder members=$(seq "$3") ensemble="initLimit=50
syncLimit=5
"
    for member in $members; do ensemble+="server.$member=127.0.0.1:$(free_port):$(free_port)"$'\n'; done
    for member in $members; do
        folder=$all/$member
        configure "$(free_port)"
        echo "$member" >"$folder/zookeeper/myid"
        run
        note_pid zookeeper "$!"
    done
    for member in $members; do
        folder=$all/$member
        await
        client_port
    done
    ;;
stop) stop_by_pid zookeeper ;;
esac
