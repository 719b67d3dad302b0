#!/usr/bin/python3
"""dlock, Curator's locks and kazoo's Lock on one path: interop_test.py PEER

No two holders overlap, the order is first come, first served, and a dead holder is succeeded.
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
FULL = "DLOCK_FULL" in os.environ
JARS = ":".join(f"/usr/share/java/{jar}.jar" for jar in ("curator-recipes", "zookeeper", "slf4j-nop"))
classes = tempfile.TemporaryDirectory()
plain = KazooClient(hosts=ADDRESS)


class Peer:
    """A process that takes and frees the lock `name`. `who`: dlock or curator, then what as, like "curator read"."""

    def __init__(self, who, name):
        path = f"{BASE}/{name}"
        who, _, kind = who.partition(" ")
        command = {
            "dlock": [PEER, f"zookeeper://{ADDRESS}{BASE}?session=4s", name, kind or "write"],
            "dlock-rw": [PEER, f"zookeeper://{ADDRESS}{BASE}?session=4s&curator=readwrite", name, kind or "write"],
            "curator": ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{classes.name}:{JARS}",
                        "Peer", ADDRESS, path, kind or "mutex"],
            "kazoo": [sys.executable, f"{HERE}/peer.py", ADDRESS, path, kind or "lock"],
        }[who]
        self.kind = f"{who} {kind}"
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
    """How many hold it or wait for it. A try of dlock's that is not first leaves at once."""
    try:
        nodes = plain.get_children(f"{BASE}/{name}")
    except NoNodeError:
        return 0
    line = sorted((node for node in nodes if node not in ("leases", "locks")), key=lambda node: node[-10:])
    return len(line[:1] + [node for node in line[1:] if "-try-" not in node]) + sum(
        in_line(f"{name}/{node}") for node in nodes if node in ("leases", "locks"))


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
        for kinds in ["dlock", "curator", "kazoo curators"], ["dlock", "kazoo", "dlock"]:
            peers = self.peers(kinds, "order")
            for order in itertools.permutations(peers):
                self.first_come_first_served(order, "order")
            for peer in peers:
                peer.end()

    def contend(self, kinds, rounds):
        name = "-".join(kinds).replace(" ", "-").replace(":", "-")
        with tempfile.TemporaryDirectory() as folder:
            peers = self.peers(kinds, name)
            for peer in peers:
                peer.send(f"loop {rounds} {folder}")
            for peer in peers:
                peer.expect("done")
                peer.end()
            self.assertEqual(os.listdir(folder), [])
        await_line(name, 0)

    @unittest.skipUnless(FULL, "test_all_together has both")
    def test_with_curator(self):
        self.contend(["dlock", "curator"], 100)

    @unittest.skipUnless(FULL, "test_all_together has both")
    def test_with_kazoo(self):
        self.contend(["dlock", "kazoo"], 100)

    def test_all_together(self):
        self.contend(["dlock", "curator", "kazoo curators", "dlock"], 60)

    def test_readers_and_writers(self):
        self.contend(["dlock-rw write", "dlock-rw read", "curator write", "curator read"], 60)

    def test_either_kind_of_writer(self):
        self.contend(["dlock write", "dlock read", "dlock-rw write"], 60)

    def test_order_of_readers_and_writers(self):
        first, second, third, fourth, fifth = self.peers(
            ["curator write", "dlock read", "curator read", "dlock-rw write", "curator read"], "reading")
        for place, peer in enumerate([first, second, third, fourth, fifth]):
            peer.send("take")
            await_line("reading", place + 1)
        first.expect("held")
        for peer in second, third, fourth, fifth:
            self.assertFalse(peer.answered(0.05))
        for freed, next_ones, later in ((first, [second, third], [fourth, fifth]), (second, [], [fourth, fifth]),
                                        (third, [fourth], [fifth]), (fourth, [fifth], [])):
            freed.send("free")
            freed.expect("freed")
            for peer in next_ones:
                peer.expect("held")
            for peer in later:
                self.assertFalse(peer.answered(0.05), f"{peer.kind} came too early")
        fifth.send("free")
        fifth.expect("freed")

    def test_curators_writer_does_not_slip_in(self):
        holder, writer, reader = self.peers(["dlock-rw write", "curator write", "curator read"], "down")
        holder.send("take")
        holder.expect("held")
        writer.send("take")
        await_line("down", 2)
        holder.send("downgrade")
        holder.expect("downgraded")
        self.assertFalse(writer.answered(0.3))
        reader.send("take")
        await_line("down", 3)
        self.assertFalse(reader.answered(0.3))
        holder.send("free")
        holder.expect("freed")
        writer.expect("held")
        writer.send("free")
        reader.expect("held")
        reader.send("free")
        reader.expect("freed")

    def test_permits(self):
        self.contend(["dlock permits:2", "curator permits:2", "dlock permits:2", "curator permits:2"], 60)

    def test_one_permit(self):
        self.contend(["dlock permits:1", "curator permits:1", "dlock permits:1"], 60)

    def test_permits_hand_over(self):
        for first, second in ("dlock permits:1", "curator permits:1"), ("curator permits:1", "dlock permits:1"):
            holder, waiter = self.peers([first, second], "permits")
            holder.send("take")
            holder.expect("held")
            waiter.send("take")
            await_line("permits", 3)  # two leases, of which one is held, and a place in the queue
            self.assertFalse(waiter.answered(0.3))
            holder.send("free")
            waiter.expect("held", 5)
            waiter.send("free")
            waiter.expect("freed")
            await_line("permits", 0)

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
