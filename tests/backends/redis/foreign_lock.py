#!/usr/bin/python3
"""redis-py's Lock, at the command of interop_test: foreign_lock.py PORT NAME, then one command a line on stdin.

try -> held | busy; wait -> held | busy (up to 5 s); turn -> held | busy (up to 30 s, at redis-py's own polling
interval); extend, release -> done | the exception's name; token TOKEN: pretends to be that holder, -> done.
"""
import sys

import redis
from redis.exceptions import RedisError

port, name = int(sys.argv[1]), sys.argv[2]
lock = redis.Redis(port=port).lock(name, timeout=60, sleep=0.02, thread_local=False)
for line in sys.stdin:
    command, *rest = line.split()
    answer = "done"
    try:
        if command == "try":
            answer = "held" if lock.acquire(blocking=False) else "busy"
        elif command == "wait":
            answer = "held" if lock.acquire(blocking_timeout=5) else "busy"
        elif command == "turn":
            answer = "held" if lock.acquire(sleep=0.1, blocking_timeout=30) else "busy"
        elif command == "extend":
            lock.extend(120, replace_ttl=True)
        elif command == "release":
            lock.release()
        elif command == "token":
            lock.local.token = rest[0].encode()
        else:
            answer = "unknown"
    except RedisError as error:
        answer = type(error).__name__
    print(answer, flush=True)
