"""Locks for asyncio, against the server of a backend: asyncio_test.py BACKEND"""
import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import tempfile
import threading
import unittest
import unittest.mock
import warnings

import dlock
import support

SERVERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "servers")


def timed(task):
    """A test that takes too long fails."""
    return asyncio.wait_for(task, support.LONG)


async def turns(count=20):
    """Lets the loop run for a while."""
    for _ in range(count):
        await asyncio.sleep(0.005)


@contextlib.contextmanager
def private_redis():
    """One that may be stopped: its URI, with times too long to wait for, and its number."""
    script = os.path.join(SERVERS, "redis.sh")
    with tempfile.TemporaryDirectory() as folder:
        words = subprocess.run(["bash", script, "start", folder], check=True, capture_output=True, text=True).stdout
        try:
            with open(os.path.join(folder, "redis.pid")) as file:
                pid = int(file.read())
            address = words.split("DLOCK_TEST_URI_redis=")[1].split("?")[0]
            yield f"{address}?quarantine=0&lease=1000s&timeout=300s", pid
        finally:
            subprocess.run(["bash", script, "stop", folder], check=True)


class Case(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.name = support.new_name()
        self.client = await self.open()

    async def open(self, **keys):
        client = dlock.AsyncClient(support.uri(**keys))
        self.addAsyncCleanup(client.close)
        return client

    async def cancel(self, task):
        """It ends at once."""
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await timed(task)

    async def free(self, name=None):
        """The lock is free, or soon will be: another client gets it."""
        other = await self.open()
        await (await other.lock(name or self.name).acquire(support.LONG)).release()


class Locks(Case):
    async def test_a_hundred_tasks(self):
        lock = self.client.lock(self.name)
        fences, inside, most = [], 0, 0

        async def work():
            nonlocal inside, most
            async with lock as grant:
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0)
                fences.append(grant.fence)
                inside -= 1

        await timed(asyncio.gather(*(work() for _ in range(100))))
        self.assertEqual((most, len(set(fences))), (1, 100))
        self.assertEqual(fences, sorted(fences))
        self.assertEqual(await self.client.inspect(self.name), [])

    async def test_the_loop_goes_on(self):
        """While a task waits."""
        other = await self.open()
        async with self.client.lock(self.name) as grant:
            waiter = asyncio.create_task(other.lock(self.name).acquire())
            await turns()
            self.assertFalse(waiter.done())
            self.assertTrue(grant.held)
        taken = await timed(waiter)
        self.assertGreater(taken.fence, grant.fence)
        await taken.release()
        with self.assertRaises(dlock.NotOwner):
            await taken.release()

    async def test_busy_and_timeout(self):
        other = await self.open()
        async with self.client.lock(self.name, timeout=5):
            with self.assertRaises(dlock.Busy):
                async with other.lock(self.name, timeout=0):
                    self.fail("two hold it")
            with self.assertRaises(dlock.Timeout):
                await other.lock(self.name).acquire(2)
            self.assertIsNone(await other.lock(self.name).try_acquire())
        async with await other.lock(self.name).try_acquire() as grant:
            self.assertTrue(grant.held)

    async def test_as_in_threading(self):
        lock, other = self.client.lock(self.name), (await self.open()).lock(self.name)
        self.assertFalse(await lock.locked())
        async with await lock.acquire(timeout=-1):
            self.assertTrue(await other.locked())
            self.assertIsNone(await other.acquire(blocking=False))
        self.assertFalse(await lock.locked())
        async with await other.acquire(blocking=False):
            pass
        with self.assertRaises(ValueError):
            await lock.acquire(1, blocking=False)

    async def test_the_lock_keeps_what_it_acquired(self):
        lock, other = self.client.lock(self.name), (await self.open()).lock(self.name)
        if await lock.acquire(timeout=5):
            gc.collect()
            self.assertIsNone(await other.try_acquire())
        with self.assertRaisesRegex(dlock.NotOwner, "this task has not acquired"):
            await asyncio.create_task(lock.release())
        await lock.release()
        await (await other.acquire(5)).release()
        async with await lock.acquire():
            pass
        for each in (lock, other):
            with self.assertRaises(dlock.NotOwner):
                await each.release()

    async def test_modes(self):
        lock = self.client.lock(self.name, permits=2)
        async with lock as first, lock as second:
            self.assertNotEqual(first.fence, second.fence)
            self.assertIsNone(await lock.try_acquire())
        shared = support.new_name()
        async with self.client.lock(shared) as grant:
            self.assertIsNone(await self.client.lock(shared, shared=True).try_acquire())
            await grant.downgrade()
            async with self.client.lock(shared, shared=True, timeout=5):
                pass

    async def test_tickets(self):
        if "export" not in self.client.backend.capabilities:
            self.skipTest("the backend has no export")
        grant = await self.client.lock(self.name).acquire()
        await grant.extend()
        other = await self.open()
        async with await other.import_grant(await grant.export()) as taken:
            self.assertEqual(taken.name, self.name)
            self.assertGreater(taken.fence, grant.fence)
        await self.free()

    async def test_a_task_does_not_enter_twice(self):
        async with self.client.lock(self.name):
            with self.assertRaises(dlock.Deadlock):
                async with self.client.lock(self.name):
                    self.fail("it is held")
        async with self.client.lock(self.name):
            pass

    async def test_a_block_ends_in_another_task(self):
        lock = self.client.lock(self.name)
        grant = await lock.__aenter__()
        with self.assertRaisesRegex(RuntimeError, "another task"):
            await asyncio.create_task(lock.__aexit__(None, None, None))
        await grant.release()

    async def test_decorator(self):
        other = await self.open()

        @self.client.locked(lambda part: f"{self.name}-{part}", timeout=5, pass_grant=True)
        async def work(part, grant):
            self.assertIsNone(await other.lock(f"{self.name}-{part}").try_acquire())
            return grant.fence > 0

        class Job:
            async def __call__(self, part, grant):
                return await work.__wrapped__(part, grant)

        self.assertTrue(await work("x"))
        named = self.client.locked(lambda part: f"{self.name}-{part}", pass_grant=True)
        self.assertTrue(await named(Job())("y"))

    async def test_what_would_run_without_the_lock(self):
        ran = []

        async def coroutine():
            ran.append("coroutine")

        async def later():
            return coroutine()

        async def task():
            return asyncio.ensure_future(coroutine())

        async def generator():
            yield ran.append("generator")

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for function in (lambda: None, lambda: coroutine(), generator):
                with self.assertRaises(TypeError):
                    self.client.locked(self.name)(function)
            for function in (later, task):
                with self.assertRaisesRegex(TypeError, "would run later"):
                    await self.client.locked(self.name)(function)()
            await turns(2)
            gc.collect()
        self.assertEqual(ran, [])
        await self.free()

    async def test_looking(self):
        async with self.client.lock(self.name):
            [holder] = await self.client.list_locks(self.name)
            self.assertEqual(holder.mode, "exclusive")
            self.assertEqual([grant.name for grant in self.client.grants()], [self.name])
        self.assertEqual(self.client.grants(), [])
        self.assertTrue(await self.client.healthy(max_age=0))
        await self.client.check()
        with self.assertRaises(dlock.NotOwner):
            await self.client.break_lock(self.name)


class Several(Case):
    """acquire_all and acquire_any."""

    async def asyncSetUp(self):
        await super().asyncSetUp()
        self.names = [self.name + letter for letter in "abc"]
        self.locks = [self.client.lock(name) for name in self.names]

    async def all_free(self):
        for name in self.names:
            await self.free(name)

    async def test_all_or_none(self):
        other = await self.open()
        async with dlock.acquire_all(*self.locks, timeout=5) as grants:
            self.assertEqual([grant.name for grant in grants], self.names)
            self.assertTrue(all(grant.held for grant in grants))
            self.assertIsNone(await other.lock(self.names[2]).try_acquire())
            await grants[2].release()
            await (await other.lock(self.names[2]).acquire(5)).release()
            for inner in (self.locks[0], dlock.acquire_all(*self.locks)):
                with self.assertRaises(dlock.Deadlock):
                    async with inner:
                        self.fail("it waits for itself")
        async with other.lock(self.names[1]):
            with self.assertRaises(dlock.Timeout):
                async with dlock.acquire_all(*self.locks, timeout=2):
                    self.fail("one is taken")
        await self.all_free()

    async def test_any(self):
        other = await self.open()
        async with other.lock(self.names[0]), dlock.acquire_any(*self.locks, timeout=5) as grant:
            self.assertEqual((grant.name, grant.held), (self.names[1], True))
            await (await other.lock(self.names[2]).acquire(5)).release()
            with self.assertRaises(dlock.Deadlock):
                async with self.locks[1]:
                    self.fail("it waits for itself")
        await self.all_free()

    async def test_any_cancelled_at_every_moment(self):
        for step in range(30):
            task = asyncio.create_task(self.hold_any())
            await asyncio.sleep(step / 10000)
            await self.cancel(task)
        await self.all_free()

    async def hold_any(self):
        async with dlock.acquire_any(*self.locks):
            await asyncio.sleep(support.LONG)

    async def test_an_exception_in_the_block(self):
        with self.assertRaises(ZeroDivisionError):
            async with dlock.acquire_all(*self.locks, timeout=5):
                1 / 0
        await self.all_free()

    async def test_both_ways_at_once(self):
        """No task waits without end, and no two are inside together."""
        inside = 0

        async def work(locks):
            nonlocal inside
            for _ in range(10):
                async with dlock.acquire_all(*locks):
                    inside += 1
                    self.assertEqual(inside, 1)
                    await asyncio.sleep(0)
                    inside -= 1

        other = await self.open()
        others = [other.lock(name) for name in reversed(self.names)]
        await timed(asyncio.gather(work(self.locks), work(others)))

    async def test_cancelled_at_every_moment(self):
        """The task ends at once, and nothing stays taken."""
        for step in range(30):
            task = asyncio.create_task(self.hold_all())
            await asyncio.sleep(step / 10000)
            await self.cancel(task)
        await self.all_free()

    async def test_cancelled_while_one_is_taken(self):
        other = await self.open()
        async with other.lock(self.names[1]):
            task = asyncio.create_task(self.hold_all())
            await turns()
            await self.cancel(task)
            while any(thread.name == "dlock-wait" for thread in threading.enumerate()):
                await turns(1)
        await self.all_free()

    async def hold_all(self):
        async with dlock.acquire_all(*self.locks):
            await asyncio.sleep(support.LONG)

    async def test_by_the_lock(self):
        other = await self.open()
        async with other.lock(self.names[1]):
            task = asyncio.create_task(self.hold_all())
            await turns()
            self.assertFalse(task.done())
            self.locks[1].cancel()
            with self.assertRaises(dlock.Canceled):
                await timed(task)
        await self.all_free()

    async def test_wrong_locks(self):
        with dlock.Client(support.uri()) as client, self.assertRaises(TypeError):
            dlock.acquire_all(client.lock(self.name), self.locks[0])


class Cancellation(Case):
    async def test_a_wait(self):
        """It ends at once, and nothing is left of it."""
        grant = await self.client.lock(self.name).acquire()
        other = await self.open()
        waiter = asyncio.create_task(other.lock(self.name).acquire())
        await turns()
        await self.cancel(waiter)
        if "queue" in self.client.backend.capabilities:
            while (await self.client.inspect(self.name))[0].waiters:
                await turns(1)
        await grant.release()
        await self.free()

    async def test_at_every_moment(self):
        """Whenever the cancellation comes, before or after the grant: the lock is free in the end."""
        lock = self.client.lock(self.name)
        for moment in range(60):
            task = asyncio.create_task(lock.acquire())
            for _ in range(moment % 6):
                await asyncio.sleep(0)
            if moment % 3 == 2:
                await asyncio.sleep(0.001)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await (await timed(task)).release()
        await self.free()

    async def test_of_a_grant_when_the_client_is_closed(self):
        """Both come before the task learns that it has the lock: it ends as cancelled."""
        client = await self.open()
        task = asyncio.create_task(client.lock(self.name).acquire())
        settle = dlock.aio._Request._settle

        def end_all(request, error):
            settle(request, error)
            task.cancel()
            client._loop.unbind()
            client._native.close()

        with unittest.mock.patch.object(dlock.aio._Request, "_settle", end_all):
            with self.assertRaises(asyncio.CancelledError):
                await timed(task)
        await self.free()

    async def test_many_of_many(self):
        """Of tasks that hand the lock on, every other one is cancelled while it waits."""
        lock, done = self.client.lock(self.name), []

        async def work(number):
            async with lock:
                await asyncio.sleep(0)
                done.append(number)

        tasks = [asyncio.create_task(work(number)) for number in range(60)]
        for task in tasks[::2]:
            await asyncio.sleep(0)
            task.cancel()
        ends = await timed(asyncio.gather(*tasks, return_exceptions=True))
        self.assertEqual(ends[1::2], [None] * 30)
        self.assertLessEqual(set(range(1, 60, 2)), set(done))
        await self.free()

    async def test_in_the_block(self):
        held = asyncio.Event()

        async def work():
            async with self.client.lock(self.name):
                held.set()
                await asyncio.sleep(1000)

        task = asyncio.create_task(work())
        await timed(held.wait())
        await self.cancel(task)
        await self.free()

    async def test_by_the_lock(self):
        lock = self.client.lock(self.name)
        async with await self.open() as other, other.lock(self.name):
            waiter = asyncio.create_task(lock.acquire())
            while not waiter.done():
                lock.cancel()
                await turns(1)
        with self.assertRaises(dlock.Canceled):
            await waiter

    async def test_by_stop(self):
        client = await self.open()
        grant = await client.lock("kept." + self.name).acquire()
        async with await self.open() as other, other.lock(self.name):
            waiter = asyncio.create_task(client.lock(self.name).acquire())
            await turns(2)
            client.stop()
            for wait in (waiter, client.lock(self.name).acquire()):
                with self.assertRaises(dlock.Canceled):
                    await timed(wait)
        self.assertTrue(grant.held)
        await grant.release()

    async def test_while_the_server_hangs(self):
        """The task ends although the server has not answered; a later grant is released."""
        if support.backend != "redis":
            self.skipTest("there is no server to stop")
        with private_redis() as (uri, pid):
            async with dlock.AsyncClient(uri) as client, dlock.AsyncClient(uri) as other:
                await (await client.lock("warm").acquire()).release()
                os.kill(pid, signal.SIGSTOP)
                try:
                    waiter = asyncio.create_task(client.lock(self.name).acquire())
                    await turns()
                    await self.cancel(waiter)
                finally:
                    os.kill(pid, signal.SIGCONT)
                await (await other.lock(self.name).acquire(support.LONG)).release()


class Ends(Case):
    async def test_a_release_waits_for_its_answer(self):
        """However long that takes: an hour, by the loop's clock."""
        grant = await self.client.lock(self.name).acquire()
        loop, release, calls = asyncio.get_running_loop(), dlock._abi.lib.dlock_release_async, []
        clock = loop.time

        def keep(*arguments):
            calls.append(arguments)
            return 0

        with unittest.mock.patch.object(dlock._abi.lib, "dlock_release_async", keep):
            task = asyncio.create_task(grant.release())
            await turns(1)
        self.assertEqual(len(calls), 1)
        with unittest.mock.patch.object(loop, "time", lambda: clock() + 3600):
            for _ in range(10):
                await asyncio.sleep(0)
        self.assertFalse(task.done())
        self.assertEqual(release(*calls[0]), 0)
        await timed(task)
        await self.free()

    async def test_close(self):
        client = await self.open()
        grant = await client.lock(self.name).acquire()
        waiter = asyncio.create_task(client.lock(self.name).acquire())
        await turns(2)
        await timed(client.close())
        with self.assertRaises(dlock.Canceled):
            await timed(waiter)
        await self.free()
        for late in (grant.release, lambda: client.inspect(self.name)):
            with self.assertRaises(dlock.Canceled):
                await late()
        with self.assertRaises(dlock.Canceled):
            client.lock(self.name)
        self.assertFalse(await client.healthy())
        await client.close()

    async def test_collected_while_held(self):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            await self.client.lock(self.name).acquire()
            gc.collect()
        self.assertIn(ResourceWarning, [row.category for row in caught])
        await self.free()


class Loops(unittest.TestCase):
    def test_one_loop_after_the_other(self):
        """A client goes with its loop, and to the next one when that is closed."""
        client, name = dlock.AsyncClient(support.uri()), support.new_name()

        async def use():
            async with client.lock(name, timeout=support.LONG):
                pass

        async def abandon():
            asyncio.get_running_loop().call_soon(asyncio.create_task, client.lock(name).acquire())
            await asyncio.sleep(0)

        asyncio.run(use())
        asyncio.run(abandon())  # the loop is closed before the grant comes
        asyncio.run(use())
        asyncio.run(client.close())
        self.assertTrue(client.closed)

    def test_two_loops(self):
        client, name = dlock.AsyncClient(support.uri()), support.new_name()

        async def use():
            async with client.lock(name):
                with self.assertRaisesRegex(RuntimeError, "another event loop"):
                    await asyncio.get_running_loop().run_in_executor(None, asyncio.run, client.inspect(name))
            await client.close()

        asyncio.run(use())


if __name__ == "__main__":
    support.main()
