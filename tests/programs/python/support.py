"""What the tests of the Python package share. A test is called with the word of a backend: `threads_test.py redis`."""
import atexit
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import uuid

import dlock

# Longer than anything takes on a busy machine; nothing waits for it to pass. What has to time out has 2 s: in less a
# busy server may not have answered at all, which is another error.
LONG = 100

backend = ""


def main():
    """Runs the tests of the calling file against the backend that the command line names."""
    global backend
    backend = sys.argv.pop(1)
    unittest.main(verbosity=2)


def uri(**keys):
    """The server's URI, with other values for some of its keys."""
    setting = f"DLOCK_TEST_URI_{backend}"
    if setting not in os.environ and backend == "file":
        folder = tempfile.mkdtemp()
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        os.environ[setting] = f"file:{folder}"
    if setting not in os.environ:
        sys.exit(f"no server for {backend}: run the tests with tests/run.sh")
    address, _, query = os.environ[setting].partition("?")
    query = dict(pair.split("=", 1) for pair in query.split("&") if pair)
    query.update(keys)
    return address + "?" + "&".join("=".join(pair) for pair in query.items())


def new_name():
    """An unused one."""
    return f"python-{uuid.uuid4().hex}"


def in_thread(function):
    """Calls it in another thread, and waits for the end of that."""
    thread = threading.Thread(target=function)
    thread.start()
    thread.join(LONG)


class Case(unittest.TestCase):
    """Tests with a client, `self.client`, and their own name."""

    def setUp(self):
        self.name = new_name()
        self.client = self.open()

    def open(self, **keys):
        """Another client, as another process would have it, until the test ends."""
        client = dlock.Client(uri(**keys))
        self.addCleanup(client.close)
        return client

    def need(self, capability):
        """Skips a test that the backend cannot carry."""
        if capability not in self.client.backend.capabilities:
            self.skipTest(f"{backend} has no {capability}")

    def process(self, code, *arguments):
        """A Python process that runs `code`, with URI and name and `arguments` in sys.argv."""
        process = Process(code, uri(), self.name, *arguments)
        self.addCleanup(process.end)
        return process


class Process:
    """Another Python, which tells how far it is by lines on its standard output."""

    def __init__(self, code, *arguments):
        command = [sys.executable, "-B", "-X", "dev", "-c", "import sys, dlock\nuri, name = sys.argv[1:3]\n" + code]
        self.process = subprocess.Popen(
            [*command, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )

    def line(self):
        """Its next line; whatever happens it comes within LONG seconds, or the test fails."""
        if not select.select([self.process.stdout], [], [], LONG)[0]:
            raise AssertionError("the process says nothing")
        return self.process.stdout.readline().decode().strip()

    def go_on(self):
        """Gives it a line to read."""
        self.process.stdin.write(b"\n")

    def kill(self, number=signal.SIGKILL):
        """Sends it a signal."""
        self.process.send_signal(number)

    def wait(self):
        """Its status, and what it wrote on standard error."""
        _, errors = self.process.communicate(timeout=LONG)
        return self.process.returncode, errors.decode()

    def end(self):
        """Whatever it does."""
        self.process.kill()
        self.process.communicate()
