"""The lock of kazoo, on a server of zookeeper://."""
import logging
import sys

import peer

try:
    import kazoo
    import kazoo.client
    import kazoo.version
except ImportError:
    sys.exit(peer.SKIPPED)

address = peer.Address(sys.stdin.readline().rstrip("\n"), "zookeeper")
logging.disable()


class Lock:
    def __init__(self):
        login = [("digest", f"{address.user}:{address.password}")] if address.user else None
        client = kazoo.client.KazooClient(hosts=address.hosts, timeout=peer.PATIENCE, auth_data=login)
        client.start(timeout=peer.PATIENCE)
        self.lock = client.Lock(address.path.rstrip("/") + "/dlock-bench:kazoo")

    def take(self):
        self.lock.acquire(timeout=peer.PATIENCE)

    def give(self):
        self.lock.release()


peer.main(f"kazoo.recipe.lock.Lock of kazoo {kazoo.version.__version__} in Python {sys.version.split()[0]}; "
          "a waiter watches the node before its own", Lock)
