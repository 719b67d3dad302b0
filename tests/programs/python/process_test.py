"""Locks among processes: how they end, fork, Ctrl-C. Against the server of a backend: process_test.py BACKEND"""
import signal
import tempfile
import time
import unittest.mock

import dlock
import support

HOLD = """
client = dlock.Client(uri)
grant = client.lock(name).acquire()
print("held", grant.fence)
"""


class Contention(support.Case):
    def test_processes_exclude_each_other(self):
        """Each reads a number, and writes one more."""
        with tempfile.NamedTemporaryFile("w+") as file:
            file.write("0")
            file.flush()
            code = """
path = sys.argv[3]
with dlock.Client(uri) as client:
    print("ready")
    sys.stdin.readline()
    for _ in range(50):
        with client.lock(name, timeout=100) as grant:
            with open(path) as file:
                number = int(file.read())
            with open(path, "w") as file:
                file.write(str(number + 1))
            print(grant.fence)
"""
            processes = [self.process(code, file.name) for _ in range(2)]
            for process in processes:
                self.assertEqual(process.line(), "ready")
            for process in processes:
                process.go_on()
            fences = [[int(process.line()) for _ in range(50)] for process in processes]
            for process in processes:
                self.assertEqual(process.wait(), (0, ""))
            file.seek(0)
            self.assertEqual(file.read(), "100")
        self.assertEqual(len({fence for row in fences for fence in row}), 100)
        self.assertEqual(fences, [sorted(row) for row in fences])


class Ends(support.Case):
    def test_killed(self):
        """On files it is free at once; elsewhere with the lease."""
        holder = self.process(HOLD.replace("(uri)", "(uri.replace('lease=10s', 'lease=1s'))") + "sys.stdin.readline()")
        fence = int(holder.line().split()[1])
        self.assertIsNone(self.client.lock(self.name).try_acquire())
        holder.kill()
        with self.client.lock(self.name, timeout=support.LONG) as grant:
            self.assertGreater(grant.fence, fence)

    def test_exit_releases(self):
        """Also a lock in a global variable: no client has to wait for the end of its lease."""
        self.assertEqual(self.ended(HOLD), (0, ""))
        with self.client.lock(self.name, timeout=0):
            pass

    def test_exit_while_others_wait(self):
        code = """
import threading
client, other = dlock.Client(uri, log=None), dlock.Client(uri)
grant = client.lock(name, on_lost=print).acquire()
threading.Thread(target=other.lock(name, on_lost=print).acquire, daemon=True).start()
"""
        status, errors = self.process(code).wait()
        self.assertEqual(status, 0, errors)
        self.assertNotIn("Fatal", errors)
        with self.client.lock(self.name, timeout=support.LONG):
            pass

    def test_a_daemon_thread_keeps_its_lock_to_the_end(self):
        """It continues to work while the interpreter ends, which must not release its lock."""
        code = """
import atexit, threading, time
from dlock import _native
client, held = dlock.Client(uri), threading.Event()
def work():
    with client.lock(name) as grant:
        held.set()
        time.sleep(1000)
threading.Thread(target=work, daemon=True).start()
held.wait()
_native._close_all()
other = dlock.Client(uri)
print(client.closed, other.lock(name).try_acquire(), len(other.inspect(name)))
"""
        process = self.process(code)
        self.assertEqual(process.line(), "False None 1")
        self.assertEqual(process.wait()[0], 0)

    def test_no_thread_begins_at_the_end(self):
        """A grant that a daemon thread drops then: a thread to release it could crash the interpreter."""
        code = """
import threading, time
from dlock import _native
client, held, kept = dlock.Client(uri), threading.Event(), []
def work():
    kept.append(client.lock(name).acquire())
    held.set()
    time.sleep(1000)
threading.Thread(target=work, daemon=True).start()
held.wait()
_native._close_all()
threading.Thread.start = lambda thread: print("starts", thread.name)
kept.clear()
print("dropped")
"""
        process = self.process(code)
        self.assertEqual(process.line(), "dropped")
        self.assertEqual(process.wait()[0], 0)

    def ended(self, code):
        process = self.process(code)
        self.assertIn("held", process.line())
        return process.wait()


class Interrupts(support.Case):
    def interrupted(self, wait):
        code = f"""
client = dlock.Client(uri)
lock, other = client.lock(name), client.lock(name + "-other")
try:
    print("ready")
    {wait}
except KeyboardInterrupt:
    print("interrupted", client.closed)
sys.stdin.readline()
"""
        with self.client.lock(self.name):
            process = self.process(code)
            self.assertEqual(process.line(), "ready")
            time.sleep(0.5)  # until it waits; where that takes longer the test sees less
            process.kill(signal.SIGINT)
            self.assertEqual(process.line(), "interrupted False")
        for name in (self.name, self.name + "-other"):
            self.client.lock(name).acquire(support.LONG).release()  # the process lives, and holds nothing
        process.go_on()
        self.assertEqual(process.wait(), (0, ""))

    def test_wait(self):
        self.interrupted("lock.acquire()")

    def test_wait_for_several(self):
        self.interrupted("dlock.acquire_all(lock, other).__enter__()")

    def test_a_handler_that_returns(self):
        """The wait continues."""
        code = """
import signal
signal.signal(signal.SIGUSR1, lambda *_: print("handled"))
client = dlock.Client(uri)
print("ready")
with client.lock(name):
    print("held")
"""
        with self.client.lock(self.name):
            process = self.process(code)
            self.assertEqual(process.line(), "ready")
            process.kill(signal.SIGUSR1)
            self.assertEqual(process.line(), "handled")
            self.assertIsNone(process.process.poll())
        self.assertEqual(process.line(), "held")
        self.assertEqual(process.wait(), (0, ""))


    def test_a_try_that_an_exception_interrupts(self):
        """The handler of Ctrl-C runs when the main thread is back from C. Keeping the traceback keeps no lock."""
        acquire = dlock._abi.lib.dlock_acquire

        def interrupted(*arguments):
            acquire(*arguments)
            signal.raise_signal(signal.SIGINT)

        with unittest.mock.patch.object(dlock._abi.lib, "dlock_acquire", interrupted):
            try:
                self.client.lock(self.name).acquire(0)
                kept = None
            except KeyboardInterrupt as error:
                kept = error.__traceback__
        self.assertIsNotNone(kept)
        with dlock.Client(support.uri()) as other, other.lock(self.name, timeout=0):
            pass


class Greenlets(support.Case):
    """One thread for all: a wait of one would stop the one that is to release the lock."""

    def test_patched_threads(self):
        for module, patch in (
            ("gevent", "from gevent.monkey import patch_all as patch"),
            ("eventlet", "from eventlet import monkey_patch as patch"),
        ):
            code = f"""
client = dlock.Client(uri)
lock, grant = client.lock(name), client.lock(name + "-other").acquire()
{patch}
patch()
for use in (lambda: dlock.Client(uri), lambda: dlock.AsyncClient(uri), lambda: client.lock(name), lock.acquire):
    try:
        print("no error", use())
    except RuntimeError as error:
        print(error)
grant.release()
client.close()
print("closed")
"""
            process = self.process(code)
            for _ in range(4):
                self.assertIn(f"{module} has patched the module threading", process.line())
            self.assertEqual(process.line(), "closed", module)
            self.assertEqual(process.wait()[0], 0)

    def test_others(self):
        """As tasks: no second one is let in."""
        code = """
import greenlet
client = dlock.Client(uri)
def enter():
    try:
        client.lock(name).acquire()
        print("two hold it")
    except dlock.Deadlock as error:
        print(error)
with client.lock(name) as outer, client.lock(name) as inner:
    greenlet.greenlet(enter).switch()
"""
        process = self.process(code)
        self.assertIn("another task or greenlet", process.line())
        self.assertEqual(process.wait(), (0, ""))


class Fork(support.Case):
    def test_child(self):
        code = """
import gc, os, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12 and newer, about any fork beside threads
client = dlock.Client(uri)
lock = client.lock(name)
with lock as grant:
    child = os.fork()
    if child == 0:
        for call in (lock.acquire, lambda: client.lock("x"), lambda: client.inspect(name), grant.extend, grant.release):
            try:
                call()
                print("no error", call)
            except dlock.Forked as error:
                print(error.code)
        print(grant.held, grant.fence > 0)
        client.close()
        with dlock.Client(uri) as own:
            with own.lock(name + "-own", timeout=5) as mine:
                print(own.lock(name).try_acquire(), mine.held)
        del lock, grant, client
        gc.collect()
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)
    print("parent", grant.held)
"""
        process = self.process(code)
        lines = [process.line() for _ in range(8)]
        self.assertEqual(lines, ["-15"] * 5 + ["False True", "None True", "parent True"])
        self.assertEqual(process.wait(), (0, ""))

    def test_a_child_that_leaves_a_block_by_an_exception(self):
        """It ends by that exception, here sys.exit, not by one about the release of its parent's lock."""
        code = """
import os, warnings
warnings.simplefilter("ignore", DeprecationWarning)
client = dlock.Client(uri)
for block in (client.lock(name), dlock.acquire_all(client.lock(name + "-1"), client.lock(name + "-2"))):
    with block:
        child = os.fork()
        if child == 0:
            sys.exit(3)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
        process = self.process(code)
        self.assertEqual([process.line(), process.line()], ["3", "3"])
        self.assertEqual(process.wait()[0], 0)

    def test_multiprocessing(self):
        """A pool's workers end as always, and the parent's lock stays."""
        code = """
import multiprocessing
client = dlock.Client(uri)
lock = client.lock(name)
def work(number):
    with dlock.Client(uri) as own:
        return own.lock(name).try_acquire() is None
with lock as grant:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(pool.map(work, range(4)), grant.held)
"""
        process = self.process(code)
        self.assertEqual(process.line(), "[True, True, True, True] True")
        self.assertEqual(process.wait()[0], 0)


if __name__ == "__main__":
    support.main()
