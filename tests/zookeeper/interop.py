#!/usr/bin/python3
"""dlock, Curator's InterProcessMutex and kazoo's Lock on one path: interop.py PEER

Nobody overlaps, the order is first come, first served, and whoever dies is succeeded.
"""
import itertools
import os
import select
import subprocess
import sys
import tempfile
import time
import unittest

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

PEER = sys.argv.pop(1)
HERE = os.path.dirname(os.path.abspath(__file__))
ADDRESS = os.environ["DLOCK_TEST_ZOOKEEPER"]
BASE = "/dlock-test/interop"
JARS = ":".join(f"/usr/share/java/{jar}.jar" for jar in ("curator-recipes", "zookeeper", "slf4j-nop"))
classes = tempfile.TemporaryDirectory()
plain = KazooClient(hosts=ADDRESS)


class Peer:
    """A process that takes and frees the lock `name`."""

    def __init__(self, kind, name):
        path = f"{BASE}/{name}"
        command = {
            "dlock": [PEER, f"zookeeper://{ADDRESS}{BASE}?session=4s", name],
            "curator": ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{classes.name}:{JARS}",
                        "Peer", ADDRESS, path],
            "kazoo": [sys.executable, f"{HERE}/peer.py", ADDRESS, path],
        }[kind]
        self.kind = kind
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.expect("ready")

    def send(self, command):
        self.process.stdin.write(f"{command}\n".encode())

    def answered(self, seconds):
        return bool(select.select([self.process.stdout], [], [], seconds)[0])

    def expect(self, answer, seconds=60):
        if not self.answered(seconds):
            raise AssertionError(f"{self.kind}: no answer, not {answer}")
        got = self.process.stdout.readline().decode().strip()
        if got != answer:
            raise AssertionError(f"{self.kind}: {got}, not {answer}")

    def end(self):
        self.process.stdin.close()
        self.process.wait(20)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def in_line(name):
    try:
        return len(plain.get_children(f"{BASE}/{name}"))
    except NoNodeError:
        return 0


def await_line(name, count):
    until = time.monotonic() + 20
    while in_line(name) != count:
        if time.monotonic() > until:
            raise AssertionError(f"{in_line(name)} in line, not {count}")
        time.sleep(0.01)


class Interop(unittest.TestCase):
    def peers(self, kinds, name):
        peers = []
        for kind in kinds:
            peers.append(Peer(kind, name))
            self.addCleanup(peers[-1].kill)
        return peers

    def first_come_first_served(self, peers, name):
        for place, peer in enumerate(peers):
            peer.send("take")
            await_line(name, place + 1)
        for place, peer in enumerate(peers):
            peer.expect("held")
            for later in peers[place + 1:]:
                self.assertFalse(later.answered(0.05), f"{later.kind} passed by {peer.kind}")
            peer.send("free")
            peer.expect("freed")
        await_line(name, 0)

    def test_order(self):
        peers = self.peers(["dlock", "curator", "kazoo"], "order")
        for order in itertools.permutations(peers):
            self.first_come_first_served(order, "order")
        for peer in peers:
            peer.end()

    def contend(self, kinds, rounds):
        name = "-".join(kinds)
        with tempfile.TemporaryDirectory() as folder:
            with open(f"{folder}/count", "w", encoding="ascii") as file:
                file.write("0\n")
            peers = self.peers(kinds, name)
            for peer in peers:
                peer.send(f"loop {rounds} {folder}")
            for peer in peers:
                peer.expect("done")
                peer.end()
            with open(f"{folder}/count", encoding="ascii") as file:
                self.assertEqual(int(file.read()), rounds * len(kinds))
        await_line(name, 0)

    def test_with_curator(self):
        self.contend(["dlock", "curator"], 100)

    def test_with_kazoo(self):
        self.contend(["dlock", "kazoo"], 100)

    def test_all_together(self):
        self.contend(["dlock", "curator", "kazoo", "dlock"], 60)

    def test_the_dead_are_succeeded(self):
        for first, second in ("dlock", "curator"), ("curator", "dlock"), ("kazoo", "dlock"), ("dlock", "kazoo"):
            holder, waiter = self.peers([first, second], "dead")
            holder.send("take")
            holder.expect("held")
            waiter.send("take")
            await_line("dead", 2)
            holder.kill()
            waiter.expect("held", 20)
            waiter.send("free")
            waiter.expect("freed")
            waiter.end()


if __name__ == "__main__":
    subprocess.run(["javac", "-nowarn", "-cp", JARS, "-d", classes.name, f"{HERE}/Peer.java"], check=True)
    plain.start()
    try:
        unittest.main()
    finally:
        plain.stop()
        plain.close()
