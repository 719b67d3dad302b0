#!/usr/bin/python3
"""kazoo's Lock at the command of interop_test.py: peer.py HOST:PORT PATH KIND, then one command a line on stdin.

KIND is `lock`: as dlock's documentation advises it, or `curators`: its nodes are given Curator's name, since Curator
must also wait for them.
"""
import os
import sys
import time

from kazoo.client import KazooClient
from kazoo.recipe.lock import Lock


class CuratorsLock(Lock):
    _NODE_NAME = "-lock-"
    _EXCLUDE_NAMES = ["-lock-"]  # which nodes it waits for


def loop(lock, rounds, folder):
    inside = f"w{os.getpid()}"
    for _ in range(rounds):
        lock.acquire(timeout=60)
        try:
            os.close(os.open(os.path.join(folder, inside), os.O_CREAT | os.O_EXCL))
            seen = os.listdir(folder)
            time.sleep(0.002)
            seen += os.listdir(folder)
            os.unlink(os.path.join(folder, inside))
        finally:
            lock.release()
        if seen != [inside, inside]:
            return str(seen)
    return "done"


client = KazooClient(hosts=sys.argv[1], timeout=4)
client.start()
if sys.argv[3] == "curators":
    lock = CuratorsLock(client, sys.argv[2])
else:
    lock = Lock(client, sys.argv[2], extra_lock_patterns=["-lock-"])
print("ready", flush=True)
for line in sys.stdin:
    command, *rest = line.split()
    answer = "unknown"
    try:
        if command == "take":
            answer = "held" if lock.acquire(timeout=60) else "timeout"
        elif command == "free":
            lock.release()
            answer = "freed"
        elif command == "loop":
            answer = loop(lock, int(rest[0]), rest[1])
    except Exception as error:
        answer = repr(error)
    print(answer, flush=True)
client.stop()
