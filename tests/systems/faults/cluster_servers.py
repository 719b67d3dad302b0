"""A server of the fault suite: Redis Cluster with three masters, each with a replica."""
import contextlib
import os
import subprocess
import time

from redis_servers import CHANGE_S, RedisPair
from servers import LEASE_S, SCRIPTS, Redis, await_true

SLOTS, SHARDS = 16384, 3
# How long CLUSTER FAILOVER waits for the master, which does not answer before it knows that the sender is its replica.
BY_HAND_S = 5


def free_port():
    """Returns a free port, for the cluster bus of a node."""
    done = subprocess.run(["bash", "-c", ". %s/common.sh && free_port" % SCRIPTS], check=True, stdout=subprocess.PIPE)
    return int(done.stdout)


class Node(Redis):
    def cli(self, *words):
        done = subprocess.run(["redis-cli", "-p", str(self.port), *map(str, words)], check=True, stdout=subprocess.PIPE)
        return done.stdout.decode().strip()

    def do(self, *words):
        answer = self.cli("CLUSTER", *words)
        if answer != "OK":
            raise ValueError("CLUSTER %s: %s" % (words, answer))

    def is_master(self):
        return self.replication().get("role") == "master"


class Shard(RedisPair):
    """A master and its replica. The cluster decides which of the two is the master."""

    def __init__(self, master, replica):
        self.members = [master, replica]
        self.ids = {node: node.cli("CLUSTER", "MYID") for node in self.members}

    def is_settled(self):
        if not self.master.is_master():
            self.members.reverse()
        return self.master.is_master() and self.is_copied()

    def await_promotion(self):
        await_true(self.replica.is_master, CHANGE_S)
        self.members.reverse()

    def follow(self):
        """Waits until the old master, which learns of the promotion on its own, has a full copy of the new master."""
        await_true(self.is_settled, CHANGE_S)

    def promote(self):
        """Promotes the replica without losing a write."""
        end = time.monotonic() + CHANGE_S
        while not self.replica.is_master():
            self.replica.do("FAILOVER")
            with contextlib.suppress(TimeoutError):
                await_true(self.replica.is_master, min(BY_HAND_S + 1, end - time.monotonic()))
            if time.monotonic() >= end:
                raise TimeoutError("the replica is not promoted by hand")
        self.await_promotion()
        self.follow()

    def swap(self):
        self.await_promotion()

    def come_back(self):
        self.replica.again()


class RedisCluster(Redis):
    # Nodes are stopped for less than this timeout now and then, which must not cause a failover.
    options = "--cluster-enabled yes --cluster-node-timeout 3000 --cluster-require-full-coverage no " \
        "--repl-diskless-sync-delay 0 --repl-ping-replica-period 1"

    def start(self):
        # Without replicas if answers are lost: the proxies would also lose the replication's messages.
        self.members = [self.start_node(number) for number in range(SHARDS if self.loses else 2 * SHARDS)]
        self.port = None
        self.uri = "redis+cluster://%s?" % ",".join("127.0.0.1:%d" % node.port for node in self.members)
        for number, master in enumerate(self.members[:SHARDS]):
            master.do("ADDSLOTS", *range(number * SLOTS // SHARDS, (number + 1) * SLOTS // SHARDS))
        for number, node in enumerate(self.members, 1):
            node.do("SET-CONFIG-EPOCH", number)
            self.members[0].do("MEET", "127.0.0.1", node.port, node.bus)
        await_true(self.answers)
        self.shards = [Shard(*pair) for pair in zip(self.members[:SHARDS], self.members[SHARDS:])]
        for shard in self.shards:
            shard.replica.do("REPLICATE", shard.ids[shard.master])
        for shard in self.shards:
            shard.follow()
        self.places = {}  # shards by slot, of slots that have been moved

    def start_node(self, number):
        node = Node(os.path.join(self.folder, str(number)), self.clock)
        os.makedirs(node.folder)
        for last in (False, False, True):
            # Another process may take the port before the server does: there are three attempts.
            node.bus = free_port()
            options = "%s --cluster-port %d" % (self.options, node.bus)
            node.environment = dict(self.environment, DLOCK_SERVER_OPTIONS=options)
            try:
                node.start()
                return node
            except subprocess.CalledProcessError:
                if last:
                    raise

    def announce(self, proxies):
        for node in self.members:
            node.cli("CONFIG", "SET", "cluster-announce-port", proxies[node.port])
        await_true(lambda: all(self.knows(node, port) for node in self.members for port in proxies.values()))

    @staticmethod
    def knows(node, port):
        return "127.0.0.1:%d@" % port in node.cli("CLUSTER", "NODES")

    def answers(self):
        """True if every node knows all others and finds the cluster complete."""
        words = ("cluster_state:ok", "cluster_slots_ok:%d" % SLOTS, "cluster_known_nodes:%d" % len(self.members))
        return all(word in info for info in (node.cli("CLUSTER", "INFO") for node in self.members) for word in words)

    # ---- faults, which hit one shard after the other

    def next_shard(self):
        self.shards.append(self.shards.pop(0))
        return self.shards[0]

    def signal(self, number):
        self.shards[0].master.signal(number)

    def crash(self):
        self.shards[0].master.crash()

    def again(self):
        self.shards[0].master.again()
        self.shards[0].follow()
        await_true(self.answers, CHANGE_S)

    def promote(self):
        self.next_shard().promote()

    def take_over(self):
        self.next_shard().take_over()

    def forsake(self, seconds):
        self.next_shard().forsake(seconds)

    def move_slot(self, name):
        """Moves the slot of this lock to the next shard. Waits first for the end of leases that a restarted node may have
        forgotten."""
        time.sleep(LEASE_S * 1.2)
        slot = int(self.members[0].cli("CLUSTER", "KEYSLOT", name))
        of = self.places.get(slot) or next(shard for shard in self.shards if self.is_at_home(slot, shard))
        to = self.shards[(self.shards.index(of) + 1) % SHARDS]
        self.places[slot] = to
        to.master.do("SETSLOT", slot, "IMPORTING", of.ids[of.master])
        of.master.do("SETSLOT", slot, "MIGRATING", to.ids[to.master])
        while keys := of.master.cli("CLUSTER", "GETKEYSINSLOT", slot, 100).split():
            of.master.cli("MIGRATE", "127.0.0.1", to.master.port, "", 0, 5000, "KEYS", *keys)
        for shard in (to, of):
            shard.master.do("SETSLOT", slot, "NODE", to.ids[to.master])

    @staticmethod
    def is_at_home(slot, shard):
        words = [line.split() for line in shard.master.cli("CLUSTER", "NODES").splitlines() if "myself" in line][0]
        ranges = [list(map(int, word.split("-"))) for word in words[8:] if not word.startswith("[")]
        return any(ends[0] <= slot <= ends[-1] for ends in ranges)
