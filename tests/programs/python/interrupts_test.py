"""An exception of a signal handler, such as KeyboardInterrupt, wherever it can come: interrupts_test.py BACKEND

Python runs signal handlers after a call of C, at the begin of a function and at the end of a loop's turn. These tests
raise KeyboardInterrupt at each of these places in the package in turn. A caller that catches it, and keeps its
traceback, finds the lock free and can close the client. Places that no code in Python can protect are left out: the
begin of the `__exit__` or `release` that the application calls.
"""
import dis
import inspect
import itertools
import os
import sys
import threading

import dlock
import support

PACKAGE = os.path.dirname(dlock.__file__)


def in_package(frame):
    return frame is not None and os.path.dirname(frame.f_code.co_filename) == PACKAGE


class Interrupt:
    """Raises KeyboardInterrupt at the place number `at`. To be used as `with Interrupt(at):`."""

    def __init__(self, at):
        self.at = at
        self.places = 0
        self.calling = set()  # frames whose last instruction has called a function of Python

    def __enter__(self):
        sys.settrace(self.begin)

    def __exit__(self, *_):
        sys.settrace(None)

    def begin(self, frame, event, argument):
        """A function begins."""
        caller = frame
        while in_package(caller):
            if caller.f_code.co_name == "__del__":  # Python ignores all exceptions there
                return None
            caller = caller.f_back
        if not in_package(frame):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if frame.f_code.co_name != "__init__" and not frame.f_code.co_flags & inspect.CO_GENERATOR:
            self.calling.add(frame.f_back)
        before = ""
        names = [dis.opname[code] for code in frame.f_code.co_code]
        called = caller is frame.f_back and frame.f_code.co_name in ("__exit__", "release")

        def step(frame, event, argument):
            nonlocal before
            if event == "opcode":
                if frame in self.calling and before in ("CALL", "CALL_KW"):
                    before = ""
                self.calling.discard(frame)
                if before.startswith(("CALL", "JUMP_BACKWARD")) or (before == "RESUME" and not called):
                    self.places += 1
                    if self.places == self.at:
                        raise KeyboardInterrupt
                before = names[frame.f_lasti]
            return step

        return step


class Everywhere(support.Case):
    def interrupted(self, use, names=None):
        """Runs `use` with an interrupt at each place. Afterwards the locks are free."""
        other = self.open()
        for at in itertools.count(1):
            interrupt, kept = Interrupt(at), None
            try:
                with interrupt:
                    use()
            except KeyboardInterrupt as error:
                kept = error  # with its traceback, and so all variables of the package's functions
            for name in names or [self.name]:
                try:
                    other.lock(name).acquire(support.LONG).release()
                except dlock.Timeout:
                    raise AssertionError(f"not released after an interrupt at place {at}") from kept
            if interrupt.places < at:
                break
        self.assertGreater(at, 20)
        close = threading.Thread(target=self.client.close, daemon=True)
        close.start()
        close.join(support.LONG)
        self.assertFalse(close.is_alive())

    def test_a_block(self):
        def use():
            with self.client.lock(self.name, timeout=support.LONG):
                pass

        self.interrupted(use)

    def test_a_block_of_a_lock_that_stays(self):
        lock = self.client.lock(self.name)

        def use():
            with lock as grant:
                grants.append(grant)

        grants = []
        self.interrupted(use)

    def test_entered_again(self):
        def use():
            with lock as outer, lock as inner:
                grants.extend([outer, inner])

        grants, told = [], []
        lock = self.client.lock(self.name, on_lost=told.append)
        self.interrupted(use)
        self.assertEqual(told, [])

    def test_in_the_background(self):
        """A timeout that is shorter than the URI's: the main thread does not try first."""
        client = self.open(timeout="1h")

        def use():
            with client.lock(self.name, timeout=support.LONG):
                pass

        self.interrupted(use)

    def test_a_try(self):
        lock = self.client.lock(self.name)
        self.interrupted(lambda: self.end(lock.try_acquire()))

    def test_a_grant(self):
        lock = self.client.lock(self.name)

        def use():
            with lock.acquire() as grant:
                grants.append(grant)

        grants = []
        self.interrupted(use)

    def test_release_by_the_lock(self):
        lock = self.client.lock(self.name)

        def use():
            with lock:
                lock.acquire()
                lock.release()

        self.interrupted(use)

    def test_several(self):
        names = [self.name + letter for letter in "ab"]
        locks = [self.client.lock(name) for name in names]

        def use():
            with dlock.acquire_all(*locks) as taken:
                grants.extend(taken)

        grants = []
        self.interrupted(use, names)

    def test_any_of_several(self):
        names = [self.name + letter for letter in "ab"]
        locks = [self.client.lock(name) for name in names]

        def use():
            with dlock.acquire_any(*locks) as taken:
                grants.append(taken)

        grants = []
        self.interrupted(use, names)

    def test_a_wait(self):
        """For a lock that another client holds until there is a waiter."""
        holder, lock = self.open().lock(self.name), self.client.lock(self.name)

        def hold(held, over):
            with holder:
                held.set()
                while not over.is_set() and self.client.stats().waiting == 0:
                    over.wait(0.001)

        def use():
            held, over = threading.Event(), threading.Event()
            thread = threading.Thread(target=hold, args=(held, over))
            thread.start()
            held.wait()
            try:
                self.end(lock.acquire())
            finally:
                over.set()
                thread.join()

        self.interrupted(use)

    def test_closing(self):
        """Of a client whose lock is held: it is closed then, or can be closed."""
        grants = []

        def use():
            client = self.open()
            grants.append(client.lock(self.name).acquire(0))
            try:
                client.close()
            finally:
                sys.settrace(None)
                client.close()

        self.interrupted(use)

    def test_looking(self):
        """ctypes ignores an exception at the ends of a callback; the thread is not in that afterwards."""
        self.addCleanup(setattr, sys, "unraisablehook", sys.unraisablehook)
        sys.unraisablehook = lambda row: None

        def use():
            with self.client.lock(self.name):
                self.client.inspect(self.name)

        self.interrupted(use)
        self.open().close()

    def end(self, grant):
        """Releases it; an interrupt before that finds a grant without a reference."""
        grant.release()


if __name__ == "__main__":
    support.main()
