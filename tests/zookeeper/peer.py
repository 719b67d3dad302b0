#!/usr/bin/python3
"""kazoo's Lock at the command of interop.py: peer.py HOST:PORT PATH, then one command a line on stdin.

Its nodes are given Curator's name: as shipped, kazoo and Curator do not see each other's.
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
    inside, count = os.path.join(folder, "inside"), os.path.join(folder, "count")
    for _ in range(rounds):
        lock.acquire(timeout=60)
        try:
            os.close(os.open(inside, os.O_CREAT | os.O_EXCL))  # fails when somebody else is inside
            with open(count, encoding="ascii") as file:
                seen = int(file.read())
            time.sleep(0.002)
            with open(count, "w", encoding="ascii") as file:
                file.write(f"{seen + 1}\n")
            os.unlink(inside)
        finally:
            lock.release()
    return "done"


client = KazooClient(hosts=sys.argv[1], timeout=4)
client.start()
lock = CuratorsLock(client, sys.argv[2])
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
