"""Grants that end before their release, against the server of a backend: loss_test.py BACKEND"""
import contextlib
import gc
import logging
import sys
import threading
import warnings

import dlock
import support
from dlock import _callbacks, _native


class Loss(support.Case):
    def setUp(self):
        super().setUp()
        self.client = self.open(lease="3s")
        self.losses = []
        self.told = threading.Event()

    def on_lost(self, lost):
        self.losses.append((lost, threading.current_thread()))
        self.told.set()

    def lose(self):
        """Breaks the lock, and waits until dlock reports it."""
        with contextlib.suppress(dlock.NotOwner):  # lost already, where the machine hangs
            self.open().break_lock(self.name)
        self.assertTrue(self.told.wait(support.LONG))

    def test_the_end_of_the_block_raises(self):
        with self.assertRaises(dlock.Lost) as caught:
            with self.client.lock(self.name, on_lost=self.on_lost) as grant:
                fence = grant.fence
                self.lose()
                self.assertFalse(grant.held)
                self.assertEqual(grant.remaining, 0.0)
        [(lost, thread)] = self.losses
        self.assertIsNot(thread, threading.current_thread())
        for error in (lost, caught.exception):
            self.assertEqual((type(error), error.code, error.name), (dlock.Lost, -4, self.name))
            self.assertIn(self.name, str(error))
            self.assertEqual(error.fence, fence)
            self.assertIn(error.why, (dlock.Loss.BROKEN, dlock.Loss.FORGOTTEN))
        self.client.lock(self.name).acquire(5).release()

    def test_what_the_block_raised_wins(self):
        with self.assertLogs("dlock", logging.WARNING) as logs, self.assertRaises(KeyError) as caught:
            with self.client.lock(self.name, on_lost=self.on_lost):
                self.lose()
                raise KeyError("the block's own")
        self.assertTrue([line for line in logs.output if "release of lock" in line and "lost" in line], logs.output)
        if hasattr(caught.exception, "__notes__"):
            self.assertIn("lost", caught.exception.__notes__[0])

    def test_entered_twice(self):
        """Both blocks learn of it, and no thread enters a third time."""
        lock = self.client.lock(self.name, on_lost=self.on_lost)
        caught = []
        with contextlib.suppress(dlock.Lost), lock:
            try:
                with lock:
                    self.lose()
                    with self.assertRaises(dlock.Lost):
                        lock.acquire()
            except dlock.Lost as error:
                caught.append(error)
                raise
        self.assertEqual(len(caught), 1)
        self.assertEqual(len(self.losses), 1)
        lock.acquire(5).release()

    def test_entered_again_by_another_lock(self):
        """Each on_lost is called, as long as its grant is not released, though another one fails."""
        told = []

        def lock(word):
            def on_lost(lost):
                told.append((word, lost.name, lost.fence))
                if word == "last":
                    self.told.set()
                raise LookupError(word)

            return self.client.lock(self.name, on_lost=on_lost)

        self.addCleanup(setattr, sys, "unraisablehook", sys.unraisablehook)
        sys.unraisablehook = lambda row: None
        without = self.client.lock(self.name)
        with contextlib.suppress(dlock.Lost), without as outer:
            with lock("released"):
                pass
            with lock("inner"), lock("inmost"), lock("last"):
                self.lose()
                with self.assertRaises(dlock.Lost):
                    lock("late").acquire()
        self.assertEqual(sorted(told), [(word, self.name, outer.fence) for word in ("inmost", "inner", "last")])
        with lock("anew"):
            pass

    def test_the_grant_of_a_ticket(self):
        """Its loss also tells the name."""
        self.need("export")
        ticket = self.client.lock(self.name).acquire().export()
        with self.assertRaises(dlock.Lost) as caught, self.client.import_grant(ticket, on_lost=self.on_lost):
            self.lose()
        [(lost, _)] = self.losses
        self.assertEqual((lost.name, caught.exception.name), (self.name, self.name))

    def test_a_fixed_lease_ends(self):
        if support.backend == "file":
            self.skipTest("grants of files end with their process")
        lock = self.client.lock(self.name, lease=1, fixed=True, on_lost=self.on_lost)
        with self.assertRaises(dlock.Lost) as caught, lock as grant:
            self.assertTrue(self.told.wait(support.LONG))
            with self.assertRaises(dlock.Lost) as extended:
                grant.extend()
        for error in (self.losses[0][0], caught.exception, extended.exception):
            self.assertIs(error.why, dlock.Loss.FIXED_END)
        with self.client.lock(self.name, lease=1, fixed=True, on_lost=self.on_lost) as grant:
            for _ in range(3):
                grant.extend()

    def test_references(self):
        """The application keeps only the grant: the callback is not collected."""
        names = [f"{self.name}-{i}" for i in range(50)]
        losses, all_told = [], threading.Event()

        def lock(name):
            def told(lost):
                losses.append((name, lost.name))
                if len(losses) == len(names):
                    all_told.set()

            return self.client.lock(name, on_lost=told)

        grants = [lock(name).acquire(5) for name in names]
        gc.collect()
        other = self.open()
        for name in names:
            with contextlib.suppress(dlock.NotOwner):
                other.break_lock(name)
        self.assertTrue(all_told.wait(support.LONG))
        self.assertEqual(sorted(losses), sorted((name, name) for name in names))
        for grant in grants:
            with self.assertRaises(dlock.Lost):
                grant.release()

    def test_what_is_let_go_of_is_collected(self):
        """Neither a lock nor its callback is kept for good."""
        gc.collect()
        before = len(_callbacks._handlers)
        for _ in range(20):
            with self.client.lock(self.name, on_lost=self.on_lost):
                pass
        gc.collect()
        self.assertEqual(len(_callbacks._handlers), before)

    def test_an_on_lost_that_fails(self):
        """Its exception goes where Python reports those that cannot be caught, and the grant is lost as always. An on_lost
        that returns a coroutine, which no loop runs, does nothing: that is told as an exception in it."""
        seen, told = [], threading.Event()

        def hook(row):
            seen.append(row.exc_type)
            told.set()

        def broken(lost):
            raise LookupError("on_lost is broken")

        async def nobody(lost):
            seen.append("ran")

        self.addCleanup(setattr, sys, "unraisablehook", sys.unraisablehook)
        sys.unraisablehook = hook
        for on_lost, kind in ((broken, LookupError), (lambda lost: nobody(lost), TypeError)):
            with self.subTest(kind):
                seen.clear()
                told.clear()
                grant = self.client.lock(self.name, on_lost=on_lost).acquire()
                self.open().break_lock(self.name)
                self.assertTrue(told.wait(support.LONG))
                self.assertEqual(seen, [kind])
                with self.assertRaises(dlock.Lost):
                    grant.release()

    def test_on_lost_must_not_close_the_client(self):
        refused = []

        def close(lost):
            try:
                self.client.close()
            except RuntimeError as error:
                refused.append(str(error))
            self.told.set()

        grant = self.client.lock(self.name, on_lost=close).acquire()
        self.lose()
        self.assertEqual(len(refused), 1)
        with self.assertRaises(dlock.Lost):
            grant.release()

    def test_a_client_is_collected_in_on_lost(self):
        """The collector may run in any thread: it must not close a client in the thread that closing would wait for."""
        closed = threading.Event()
        end = _native._end

        def ends(closing, *others):
            end(closing, *others)
            if closing is dropped:
                closed.set()

        self.addCleanup(setattr, _native, "_end", end)
        _native._end = ends
        kept = [dlock.Client(support.uri(lease="3s"))]
        dropped = kept[0]._native._closing

        def drop(lost):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                kept.clear()
                gc.collect()
            self.told.set()

        kept.append(kept[0].lock(self.name, on_lost=drop).acquire())
        self.lose()
        self.assertTrue(closed.wait(support.LONG))


class Log(support.Case):
    def test_renewals_that_fail(self):
        """They are told to logging's logger "dlock". In memory servers fail as often as a test wishes."""
        if "mem" not in [backend.name for backend in dlock.backends()]:
            self.skipTest("there is no mem")
        lines, logged = [], threading.Event()

        class Keep(logging.Handler):
            def emit(self, record):
                lines.append((record.levelno, record.getMessage()))
                if len(lines) > 1:
                    logged.set()

        keep = Keep()
        logging.getLogger("dlock").addHandler(keep)
        self.addCleanup(logging.getLogger("dlock").removeHandler, keep)
        with dlock.Client(f"mem:{self.name}?fail=0.5&lease=500ms&timeout=100ms") as client:
            while not logged.is_set():
                with contextlib.suppress(dlock.Error), client.lock(support.new_name(), timeout=5):
                    logged.wait(1)
        self.assertEqual([level for level, _ in lines[:2]], [logging.WARNING] * 2)
        self.assertIn("the threads of this process only", lines[0][1])
        self.assertIn("renewal", lines[1][1])


if __name__ == "__main__":
    support.main()
