"""The lock of redis-py, on a server of redis://."""
import sys

import peer

try:
    import redis
except ImportError:
    sys.exit(peer.SKIPPED)

address = peer.Address(sys.stdin.readline().rstrip("\n"), "redis")
if "," in address.hosts or address.hosts.startswith("["):
    sys.exit(peer.SKIPPED)


class Lock:
    def __init__(self):
        host, _, port = address.hosts.partition(":")
        database = address.path.strip("/") or address.keys.get("db", "0")
        server = redis.Redis(host=host, port=int(port or 6379), db=int(database), username=address.user or None,
                             password=address.password or None)
        self.lock = server.lock("dlock-bench:redis-py", timeout=peer.PATIENCE)

    def take(self):
        if not self.lock.acquire(blocking_timeout=peer.PATIENCE):
            raise TimeoutError("the lock was not free in time")

    def give(self):
        self.lock.release()


peer.main(f"redis.lock.Lock of redis-py {redis.__version__} in Python {sys.version.split()[0]}; a waiter asks every 0.1 s",
          Lock)
