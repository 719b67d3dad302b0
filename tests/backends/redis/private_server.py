"""A private Redis for the tests that are written in Python."""
import contextlib
import os
import socket
import subprocess
import tempfile
import time

import redis


@contextlib.contextmanager
def private_server():
    """A client of a server that ends with the block."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen([os.environ.get("DLOCK_REDIS_SERVER") or "redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir",
                                    folder, "--logfile", folder + "/log"])
        try:
            server = redis.Redis(port=port, decode_responses=True)
            for _ in range(1000):
                try:
                    server.ping()
                    break
                except redis.exceptions.RedisError:
                    time.sleep(0.01)
            yield server
        finally:
            process.kill()
            process.wait()
