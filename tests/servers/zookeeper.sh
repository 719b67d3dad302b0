#!/bin/bash
# zookeeper.sh packages | start FOLDER | stop FOLDER: a private ZooKeeper on a free loopback port. See tests/run.sh.
set -eu
. "$(dirname "$0")/common.sh"
folder=${2:-}

# Short ticks: a session ends within one after its timeout.
launch() {
    mkdir -p "$folder/zookeeper"
    cat >"$folder/zookeeper/zoo.cfg" <<END
dataDir=$folder/zookeeper
clientPort=$1
clientPortAddress=127.0.0.1
tickTime=200
minSessionTimeout=400
maxSessionTimeout=60000
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=*
END
    java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dzookeeper.forceSync=no -Dorg.slf4j.simpleLogger.defaultLogLevel=warn \
        -cp /usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar org.apache.zookeeper.server.quorum.QuorumPeerMain \
        "$folder/zookeeper/zoo.cfg" >"$folder/zookeeper.log" 2>&1 </dev/null &
}

answers() {
    [ "$(python3 -c 'import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 1); s.sendall(b"ruok"); print(s.recv(9).decode())' "$1" 2>/dev/null)" = imok ]
}

case "$1" in
packages) echo libzookeeper-mt-dev zookeeper default-jdk-headless libcurator-recipes-java python3-kazoo ;;
start)
    start_on_free_port zookeeper
    echo "DLOCK_TEST_ZOOKEEPER=127.0.0.1:$port"
    echo "DLOCK_TEST_URI_zookeeper=zookeeper://127.0.0.1:$port/dlock/tests?session=2s&lease=10s"
    ;;
stop) stop_by_pid zookeeper ;;
esac
