"""Locks for threads, against the server of a backend: threads_test.py BACKEND"""
import asyncio
import datetime
import functools
import gc
import json
import os
import pickle
import sys
import threading
import time
import unittest.mock
import warnings

import dlock
import support
from dlock import _native
from dlock._abi import lib


class Grants(support.Case):
    def test_a_grant(self):
        with self.client.lock(self.name, timeout=5) as first:
            self.assertTrue(first.held)
            self.assertGreater(first.fence, 0)
            if support.backend == "file":
                self.assertIsNone(first.remaining)  # it ends with this process
            else:
                self.assertGreater(first.remaining, 0)
            [holder] = self.client.inspect(self.name)
            self.assertEqual((holder.name, holder.token, holder.mode), (self.name, first.token, "exclusive"))
            self.assertEqual([row.token for row in self.client.list_locks(self.name)], [first.token])
            json.dumps([first.remaining, holder], allow_nan=False)
        self.assertFalse(first.held)
        self.assertEqual(first.remaining, 0.0)
        with self.client.lock(self.name) as second:
            self.assertGreater(second.fence, first.fence)
        self.assertEqual(self.client.inspect(self.name), [])

    def test_who_and_since_when(self):
        with dlock.Client(support.uri(), label="50% off é") as client, client.lock(self.name):
            [holder] = self.client.inspect(self.name)
            self.assertEqual((holder.pid, holder.label), (os.getpid(), "50% off é"))
            self.assertTrue(holder.host)
            if holder.held is not None: self.assertLess(holder.held, 60)
            try:
                self.assertEqual(self.client.waiters(self.name), [])
            except dlock.NotSupported as error:
                self.assertIn("cannot show who waits", str(error))
        with self.assertRaisesRegex(dlock.Invalid, "label is longer than 48 bytes"):
            dlock.Client(support.uri(), label="x" * 49)

    def test_busy_and_timeout(self):
        other = self.open()
        with self.client.lock(self.name):
            with self.assertRaises(dlock.Busy), other.lock(self.name, timeout=0):
                self.fail("two hold it")
            with self.assertRaises(dlock.Timeout) as caught:
                other.lock(self.name).acquire(timeout=datetime.timedelta(seconds=2))
            self.assertIsInstance(caught.exception, TimeoutError)
            self.assertIsInstance(caught.exception, dlock.NotAcquired)
            self.assertEqual(caught.exception.code, -2)
            self.assertIn(self.name, str(caught.exception))
            self.assertIsNone(other.lock(self.name).try_acquire())
        # Another name: on a busy server the wait above may still be leaving the queue.
        with other.lock(self.name + "-free").try_acquire() as grant:
            self.assertTrue(grant.held)

    def test_nothing_is_left_of_a_wait_in_vain(self):
        """Not even a warning that something was not released."""
        with self.open().lock(self.name), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for timeout in (0, 0.05):
                with self.assertRaises(dlock.Error):
                    self.client.lock(self.name).acquire(timeout)
            gc.collect()
        self.assertEqual(caught, [])

    def test_release_by_hand(self):
        grant = self.client.lock(self.name).acquire()
        grant.release()
        with self.assertRaises(dlock.NotOwner):
            grant.release()
        with self.client.lock(self.name) as grant:
            grant.release()

    def test_the_lock_keeps_what_it_acquired(self):
        """Until its own release, as in threading; each acquisition has one, from the last on."""
        lock, other = self.client.lock(self.name), self.open().lock(self.name)
        if lock.acquire(timeout=5):
            gc.collect()
            self.assertIsNone(other.try_acquire())
        inner = lock.acquire()
        lock.release()
        self.assertFalse(inner.held)
        self.assertTrue(lock.owned())
        lock.release()
        other.acquire(5)
        other.release()
        with lock.acquire():
            pass
        with lock as grant:
            lock.release()
            self.assertFalse(grant.held)
            other.acquire(5).release()
        for each in (lock, other):
            with self.assertRaises(dlock.NotOwner):
                each.release()

    def test_a_thread_releases_what_it_acquired_itself(self):
        lock, caught = self.client.lock(self.name), []
        lock.acquire()

        def release():
            try:
                lock.release()
            except dlock.NotOwner as error:
                caught.append(str(error))

        support.in_thread(release)
        self.assertTrue(lock.owned())
        self.assertIn("this thread has not acquired", caught[0])
        lock.release()

    def test_a_released_grant_does_nothing_to_the_one_around_it(self):
        lock = self.client.lock(self.name)
        with lock as outer:
            inner = lock.acquire()
            inner.release()
            for use in (inner.extend, inner.downgrade, inner.export):
                with self.assertRaises(dlock.NotOwner):
                    use()
            self.assertIsNone(self.open().lock(self.name, shared=True).try_acquire())
            self.assertTrue(outer.held)

    def test_threads_share_a_lock(self):
        lock = self.client.lock(self.name)
        inside, most = [], []

        def work():
            for _ in range(20):
                with lock as grant:
                    inside.append(grant.fence)
                    most.append(len(inside))
                    inside.remove(grant.fence)

        threads = [threading.Thread(target=work) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(support.LONG)
        self.assertEqual(most, [1] * 100)

    def test_any_thread_may_use_a_grant(self):
        grant = self.client.lock(self.name).acquire()
        seen = []

        def use():
            seen.extend([grant.fence, grant.held])
            grant.release()

        support.in_thread(use)
        self.assertEqual(seen, [grant.fence, True])
        self.open().lock(self.name).acquire(5).release()

    def test_the_main_thread_tries_first(self):
        """A free lock costs it what it costs another thread. Where a try might outlast the timeout, it only waits."""
        calls = []

        def counted(word):
            function = getattr(lib, word)

            def call(handle, ms, *others):
                calls.append((word, ms))
                return function(handle, ms, *others)

            return unittest.mock.patch.object(lib, word, call)

        client, other = self.open(timeout="50s"), self.open()
        with counted("dlock_acquire"), counted("dlock_acquire_async"):
            for timeout in (None, 50, 60):
                with client.lock(self.name, timeout=timeout):
                    pass
            self.assertEqual(calls, [("dlock_acquire", 0)] * 3)
            calls.clear()
            with client.lock(self.name, timeout=49):
                pass
            self.assertEqual(calls, [("dlock_acquire_async", 49000)])
        with other.lock(self.name), counted("dlock_acquire"), counted("dlock_acquire_async"):
            calls.clear()
            lock = self.open(timeout="2s").lock(self.name)
            with self.assertRaises(dlock.Timeout):
                lock.acquire(2)
            (first, no_time), (second, rest) = calls
            self.assertEqual((first, no_time, second), ("dlock_acquire", 0, "dlock_acquire_async"))
            self.assertTrue(0 < rest <= 2000)

    def test_as_in_threading(self):
        lock, other = self.client.lock(self.name), self.open().lock(self.name)
        self.assertFalse(lock.owned() or lock.locked())
        with lock.acquire(timeout=-1):
            self.assertTrue(lock.owned() and lock.locked() and other.locked())
            self.assertFalse(other.owned())
            self.assertIsNone(other.acquire(blocking=False))
            with self.assertRaises(dlock.Busy):
                other.acquire(0)
        self.assertFalse(lock.owned() or lock.locked())
        with other.acquire(blocking=False):
            self.assertTrue(other.owned())
        with self.assertRaises(ValueError):
            lock.acquire(1, blocking=False)
        with self.assertRaisesRegex(TypeError, "blocking=False"):
            lock.acquire(False)

    def test_a_lost_lock_is_not_owned(self):
        lock = self.client.lock(self.name)
        grant = lock.acquire()
        self.client.break_lock(self.name)
        with self.assertRaises(dlock.Lost):
            grant.extend()
        self.assertFalse(lock.owned())
        with self.assertRaises(dlock.Lost):
            grant.release()

    def test_permits_belong_to_no_thread(self):
        with self.client.lock(self.name, permits=2) as grant:
            self.assertTrue(grant.held)
            with self.assertRaises(dlock.NotSupported):
                self.client.lock(self.name, permits=2).owned()

    def test_cancel(self):
        lock = self.client.lock(self.name)
        caught = []

        def wait():
            try:
                lock.acquire()
            except dlock.Error as error:
                caught.append(type(error))

        with self.open().lock(self.name):
            thread = threading.Thread(target=wait)
            thread.start()
            while thread.is_alive():
                lock.cancel()  # is not remembered: until it waits, that is for nothing
                thread.join(0.01)
        self.assertEqual(caught, [dlock.Canceled])

    def test_by_stop(self):
        client = self.open()
        grant = client.lock(self.name).acquire()
        client.stop()
        with self.assertRaises(dlock.Canceled):
            client.lock("other." + self.name).acquire()
        grant.release()


class Reentry(support.Case):
    def test_the_thread_that_holds_it_enters_again(self):
        other = self.open()
        with self.client.lock(self.name) as outer:
            with self.client.lock(self.name, timeout=0) as inner:
                self.assertEqual(inner.fence, outer.fence)
            self.assertTrue(outer.held)
            self.assertIsNone(other.lock(self.name).try_acquire())
            seen = []
            support.in_thread(lambda: seen.append(self.client.lock(self.name).try_acquire()))
            self.assertEqual(seen, [None])
        other.lock(self.name).acquire(0).release()

    def test_not_reentrant(self):
        lock = self.client.lock(self.name, reentrant=False)
        with lock, self.assertRaises(dlock.Deadlock):
            lock.acquire()

    def test_released_elsewhere(self):
        """Another thread has given the grant back: there is nothing to enter again."""
        grant = self.client.lock(self.name).acquire()
        support.in_thread(grant.release)
        with self.client.lock(self.name, timeout=5) as again:
            self.assertGreater(again.fence, grant.fence)

    def test_tasks_of_a_thread_exclude_each_other(self):
        async def hold():
            with self.client.lock(self.name):
                await asyncio.create_task(enter())

        async def enter():
            self.client.lock(self.name).acquire()

        with self.assertRaisesRegex(dlock.Deadlock, "AsyncClient"):
            asyncio.run(hold())


class Modes(support.Case):
    def test_readers_and_writers(self):
        self.need("shared")
        other = self.open()
        with self.client.lock(self.name, shared=True):
            other.lock(self.name, shared=True).acquire(5).release()
            self.assertIsNone(other.lock(self.name).try_acquire())
            with self.assertRaises(dlock.Deadlock):
                self.client.lock(self.name).acquire()
        with self.client.lock(self.name) as grant:
            self.assertIsNone(other.lock(self.name, shared=True).try_acquire())
            grant.downgrade()
            other.lock(self.name, shared=True).acquire(5).release()

    def test_a_downgrade_without_an_answer(self):
        """It is treated as done: other readers may be there, so its thread does not enter as a writer."""
        self.need("shared")

        class Silent:  # the answer to a downgrade is lost
            def __getattr__(self, function):
                return getattr(lib, function)

            def dlock_downgrade(self, *arguments):
                lib.dlock_downgrade(*arguments)
                return dlock.Unavailable.code

        with self.client.lock(self.name) as grant:
            with unittest.mock.patch.object(_native, "lib", Silent()), self.assertRaises(dlock.Unavailable):
                grant.downgrade()
            self.open().lock(self.name, shared=True).acquire(5).release()
            with self.assertRaises(dlock.Deadlock):
                self.client.lock(self.name).acquire()
            self.client.lock(self.name, shared=True).acquire().release()

    def test_permits(self):
        self.need("permit")
        lock = self.client.lock(self.name, permits=2)
        with lock as first, lock as second:
            self.assertNotEqual(first.fence, second.fence)
            self.assertIsNone(lock.try_acquire())
            first.release()
            lock.acquire(5).release()
            lock.acquire(5)
            lock.release()
            self.assertTrue(second.held)

    def test_tickets(self):
        self.need("export")
        with self.client.lock(self.name) as grant:
            ticket = grant.export()
        self.assertFalse(grant.held)
        other = self.open()
        with other.import_grant(ticket) as taken:
            self.assertEqual(taken.name, self.name)
            self.assertGreater(taken.fence, grant.fence)
            self.assertIsNone(self.client.lock(self.name).try_acquire())
        self.client.lock(self.name).acquire(5).release()

    def test_a_ticket_has_the_name_without_the_prefix(self):
        self.need("export")
        name = self.name + "\xe4\udcff"  # also a byte that is not UTF-8
        ticket = self.open(prefix="python%3A").lock(name).acquire().export()
        taken = self.open(prefix="python%3A").import_grant(ticket)
        self.assertEqual(taken.name, name)
        self.assertIn(repr(name), repr(taken))
        taken.release()
        with self.assertRaises(dlock.NotOwner) as caught:
            taken.extend()
        self.assertIn(repr(name), str(caught.exception))

    def test_extend(self):
        if support.backend == "file":
            self.skipTest("grants of files end with their process")
        with self.client.lock(self.name, lease=8, fixed=True) as grant:
            self.assertLessEqual(grant.remaining, 8)
            grant.extend(300)
            self.assertGreater(grant.remaining, 8)
            for wrong in (0.001, 0, datetime.timedelta(0), 1e-9):
                with self.assertRaises(dlock.Invalid):
                    grant.extend(wrong)

    def test_several_at_once(self):
        names = [self.name + letter for letter in "abc"]
        locks = [self.client.lock(name) for name in names]
        other = self.open()
        with dlock.acquire_all(*locks, timeout=5) as grants:
            self.assertEqual([grant.name for grant in grants], names)
            self.assertTrue(all(grant.held for grant in grants))
            self.assertIsNone(other.lock(names[2]).try_acquire())
            grants[2].release()
            other.lock(names[2]).acquire(5).release()
            with self.assertRaises(dlock.Deadlock), dlock.acquire_all(*locks):
                self.fail("it waits for itself")
        with other.lock(names[1]), self.assertRaises(dlock.Timeout), dlock.acquire_all(*locks, timeout=2):
            self.fail("one is taken")
        self.assertEqual([self.client.inspect(name) for name in names], [[], [], []])

    def test_any_of_several(self):
        names = [self.name + letter for letter in "abc"]
        locks = [self.client.lock(name) for name in names]
        other = self.open()
        with other.lock(names[0]):
            with dlock.acquire_any(*locks, timeout=5) as grant:
                self.assertEqual((grant.name, grant.held), (names[1], True))
                other.lock(names[2]).acquire(5).release()
                with self.assertRaises(dlock.Deadlock), dlock.acquire_any(*locks):
                    self.fail("it waits for itself")
            with other.lock(names[1]), other.lock(names[2]):
                with self.assertRaises(dlock.Busy), dlock.acquire_any(*locks, timeout=0):
                    self.fail("all are taken")
                with self.assertRaises(dlock.Timeout), dlock.acquire_any(*locks, timeout=0.5):
                    self.fail("all are taken")
        self.assertEqual([self.client.inspect(name) for name in names], [[], [], []])
        with self.assertRaises(ValueError):
            dlock.acquire_any()
        with self.assertRaises(dlock.Invalid), dlock.acquire_any(locks[0], other.lock(names[1])):
            self.fail("they are of two clients")


class Decorator(support.Case):
    def test_runs_under_the_lock(self):
        other = self.open()

        @self.client.locked(self.name, timeout=5)
        def work(number):
            """What it does."""
            self.assertIsNone(other.lock(self.name).try_acquire())
            return number + 1

        self.assertEqual(work(1), 2)
        self.assertEqual(work.__doc__, "What it does.")
        with other.lock(self.name), self.assertRaises(dlock.Busy):
            self.client.locked(self.name, timeout=0)(work)(1)

    def test_name_of_the_arguments(self):
        @self.client.locked(lambda part: f"{self.name}-{part}", pass_grant=True)
        def work(part, grant):
            self.assertEqual([holder.name for holder in self.client.inspect(f"{self.name}-{part}")], [grant.name])
            return grant

        self.assertEqual(work("x").name, f"{self.name}-x")

    def test_what_would_run_without_the_lock(self):
        """It is refused, decorated or called. None of it has run then, and nothing warns of it."""
        ran = []

        async def coroutine():
            ran.append("coroutine")

        async def asynchronous_generator():
            yield ran.append("asynchronous generator")

        def generator():
            yield ran.append("generator")

        class Awaitable:
            def __await__(self):
                yield ran.append("awaitable")

        for function in (coroutine, asynchronous_generator, generator):
            called = type("Job", (), {"__call__": staticmethod(function)})()
            for decorated in (function, functools.partial(function), called):
                with self.assertRaises(TypeError):
                    self.client.locked(self.name)(decorated)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for function in (coroutine, asynchronous_generator, generator, Awaitable):
                for pass_grant in (False, True):
                    with self.assertRaisesRegex(TypeError, "would run later"):
                        self.client.locked(self.name, pass_grant=pass_grant)(lambda grant=None: function())()
            gc.collect()
        self.assertEqual(ran, [])
        self.assertEqual(self.client.locked(self.name)(lambda: [1])(), [1])
        self.assertEqual(self.client.inspect(self.name), [])


class Clients(support.Case):
    def test_close_at_once(self):
        """It releases nothing: a lock that does not live in the connection is held until its lease ends."""
        client = self.open()
        grant = client.lock(self.name).acquire()
        with self.assertRaises(TypeError):
            client.close(timeout="1")
        self.assertTrue(grant.held)
        client.close(timeout=0)
        self.assertTrue(client.closed)
        if "session" not in self.client.backend.capabilities:
            self.assertIsNone(self.client.lock(self.name).try_acquire())

    def test_close(self):
        client = self.open()
        lock = client.lock(self.name)
        grant = lock.acquire()
        waiting, ended = client.lock(self.name), []

        def wait():
            try:
                waiting.acquire()
            except dlock.Error as error:
                ended.append(type(error))

        thread = threading.Thread(target=wait)
        thread.start()
        client.close()
        thread.join(support.LONG)
        self.assertEqual(ended, [dlock.Canceled])
        self.client.lock(self.name).acquire(5).release()
        for late in (lock.acquire, grant.release, lambda: client.inspect(self.name), lambda: client.backend):
            with self.assertRaises(dlock.Canceled):
                late()
        self.assertTrue(client.closed)
        client.close()

    def test_collected_while_held(self):
        """As for files a warning, which the log has too, and it is released."""
        with warnings.catch_warnings(record=True) as caught, self.assertLogs("dlock", "WARNING") as logs:
            warnings.simplefilter("always")
            self.client.lock(self.name).acquire()
            gc.collect()
        self.assertEqual([row.category for row in caught], [ResourceWarning])
        for text in (str(caught[0].message), logs.output[0]):
            self.assertIn(self.name, text)
        self.open().lock(self.name).acquire(support.LONG).release()

    def test_collected_open(self):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            dlock.Client(support.uri())
            gc.collect()
        self.assertEqual([row.category for row in caught], [ResourceWarning])

    def test_collected_where_warnings_are_errors(self):
        """As with `python -W error`: the grants are released all the same."""
        client = self.open()
        ignored = []
        self.addCleanup(setattr, sys, "unraisablehook", sys.unraisablehook)
        sys.unraisablehook = lambda row: ignored.append(row.exc_type)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.client.lock(self.name).acquire()
            gc.collect()
            client.lock(self.name).acquire(support.LONG).release()
            dlock.Client(support.uri()).lock(self.name).acquire()
            gc.collect()
            client.lock(self.name).acquire(support.LONG).release()
        self.assertEqual(set(ignored), {ResourceWarning})

    def test_pickle(self):
        with self.assertRaisesRegex(TypeError, "other process"):
            pickle.dumps(self.client)
        error = pickle.loads(pickle.dumps(dlock.Busy("x")))
        self.assertEqual((type(error), error.code, str(error)), (dlock.Busy, -1, "x"))

    def test_break(self):
        with self.assertRaises(dlock.NotOwner):
            self.client.break_lock(self.name)
        grant = self.client.lock(self.name).acquire()
        self.open().break_lock(self.name)
        self.open().lock(self.name).acquire(5).release()
        with self.assertRaises(dlock.Lost):
            grant.release()

    def test_not_acquired(self):
        """What says that the lock could not be had in time, and nothing else."""
        kinds = {kind for kind in dlock.errors.BY_CODE.values() if issubclass(kind, dlock.NotAcquired)}
        self.assertEqual(kinds, {dlock.Busy, dlock.Timeout, dlock.NotReady})
        for number in (-1, -2, -16):
            self.assertIsInstance(dlock.errors.make(number), dlock.NotAcquired)

    def test_what_is_held(self):
        outer, other = self.client.lock(self.name), self.open()
        self.assertEqual((self.client.grants(), self.client.stats().held), ([], 0))
        with outer as first, outer as inner, self.client.lock(self.name + "-other") as second:
            self.assertCountEqual(self.client.grants(), [first, inner, second])
            self.assertEqual((self.client.stats().held, other.grants()), (2, []))
            inner.release()
            second.release()
            self.assertEqual(self.client.grants(), [first])
            other.break_lock(self.name)
            with self.assertRaises(dlock.Lost):
                first.extend()
            self.assertEqual((self.client.grants(), self.client.stats().held), ([], 0))
            with self.assertRaises(dlock.Lost):
                first.release()

    def test_healthy(self):
        """By the last answer, or else by asking."""
        client = dlock.Client(support.uri(), lazy=True)
        self.assertIsNone(client.stats().last_answer)
        self.assertTrue(client.healthy())
        time.sleep(0.1)
        self.assertTrue(client.healthy(max_age=support.LONG))
        self.assertGreaterEqual(client.stats().last_answer, 0.1)
        began = time.monotonic()
        self.assertTrue(client.healthy(max_age=0.1))
        self.assertLessEqual(client.stats().last_answer, time.monotonic() - began + 0.001)
        client.close()
        self.assertFalse(client.healthy())

    def test_check(self):
        for finding in self.client.check():
            self.assertTrue(finding.what)
            self.assertNotEqual(finding.fine, bool(finding.advice))


class Errors(support.Case):
    def test_arguments(self):
        for name in ("", "a\nb", "x" * 201, "a\0b"):
            with self.assertRaises(dlock.Invalid, msg=repr(name)):
                self.client.lock(name)
        for wrong in (b"bytes", None, 3):
            with self.assertRaises(TypeError):
                self.client.lock(wrong)
        for timeout in (-2, float("nan")):
            with self.assertRaises(ValueError):
                self.client.lock(self.name, timeout=timeout)
        with self.assertRaises(TypeError):
            self.client.lock(self.name, timeout="5s")
        async def coroutine(lost):
            pass

        for on_lost in (5, coroutine):
            with self.assertRaisesRegex(TypeError, "on_lost"):
                self.client.lock(self.name, on_lost=on_lost)
            with self.assertRaisesRegex(TypeError, "on_lost"):
                self.client.import_grant("ticket", on_lost=on_lost)
        for permits in ("3", 3.5, True):
            with self.assertRaisesRegex(TypeError, "permits"):
                self.client.lock(self.name, permits=permits)
        for permits in (0, -1, 2**31):
            with self.assertRaises(dlock.Invalid):
                self.client.lock(self.name, permits=permits)
        with self.assertRaises(ValueError):
            self.client.lock(self.name, shared=True, permits=2)
        for lease in (0.001, 0, 0.0, datetime.timedelta(0), 1e-9):
            with self.assertRaises(dlock.Invalid, msg=repr(lease)):
                self.client.lock(self.name, lease=lease)
        with self.assertRaises(dlock.Invalid):
            self.client.import_grant("no ticket")

    def test_messages_speak_python(self):
        """They name what the caller wrote, as it is called here."""
        client = self.open(quarantine="20s")
        grant = client.lock(self.name).acquire()
        released = client.lock(self.name + "-other").acquire()
        released.release()
        quarantine = (
            (lambda: client.lock(self.name, lease=20.5), dlock.Invalid, "lease is 20.5 seconds, .* only 20 seconds"),
            (lambda: grant.extend(30), dlock.Invalid, "lease is 30 seconds, "),
        )
        for call, kind, words in (
            *(quarantine if client.quarantine else ()),
            (lambda: client.lock(self.name, lease=0.01), dlock.Invalid, "lease is 0.01: .* 0.1 to 31622400 seconds"),
            (lambda: client.lock(self.name, lease=1e9), dlock.Invalid, "lease is 1000000000.0: .* 31622400 seconds"),
            (lambda: client.lock(self.name, lease=float("inf")), dlock.Invalid, "lease is inf: .* 31622400 seconds"),
            (lambda: client.lock(self.name, lease=0), dlock.Invalid, "lease is 0: .* None is the default"),
            (lambda: grant.extend(0.01), dlock.Invalid, "lease is 0.01: "),
            (lambda: grant.extend(5), dlock.Invalid, "a fixed lease"),
            (lambda: client.lock(self.name, timeout=-2), ValueError, "timeout is -2"),
            (lambda: client.lock(self.name, permits=0), dlock.Invalid, "permits is 0"),
            (lambda: client.guard("5"), TypeError, "group must be an int, not str"),
            (lambda: grant.guard("5"), TypeError, "group must be an int, not str"),
            (lambda: grant.guard(0), dlock.NotSupported, "no guardian"),
            (lambda: released.guard(0), dlock.NotOwner, "released already"),
            (released.release, dlock.NotOwner, "released already"),
            (released.extend, dlock.NotOwner, "released already"),
            (lambda: released.token, dlock.NotOwner, "released already"),
        ):
            with self.assertRaisesRegex(kind, words) as caught:
                call()
            self.assertNotRegex(str(caught.exception), "_ms|DLOCK_|dlock_|handle")
        grant.release()

    def test_uris(self):
        for uri, kind in (
            ("nonsense", dlock.Invalid),
            ("no-such-server://x", dlock.NoBackend),
            (support.uri(no_such_key="1"), dlock.Invalid),
            ("redis://127.0.0.1:1?timeout=1s", dlock.Unavailable),
        ):
            with self.assertRaises(kind) as caught:
                dlock.Client(uri)
            self.assertTrue(str(caught.exception))
        with dlock.Client("redis://127.0.0.1:1?timeout=1s", lazy=True) as client, self.assertRaises(ConnectionError):
            client.lock(self.name).acquire(3)

    def test_module(self):
        self.assertIn(support.backend, [backend.name for backend in dlock.backends()])
        self.assertIn(support.backend, self.client.backend.schemes)
        self.assertEqual(dlock.parse_duration("1.5m"), 90)
        with self.assertRaises(dlock.Invalid):
            dlock.parse_duration("soon")
        self.assertEqual(dlock.uri_without_secrets("redis://u:secret@h"), "redis://u@h")
        self.assertGreaterEqual(self.client.quarantine, 0)


if __name__ == "__main__":
    support.main()
