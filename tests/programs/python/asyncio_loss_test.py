"""Grants for asyncio that end before their release, or that alone are kept: asyncio_loss_test.py BACKEND"""
import asyncio
import gc
import sys
import time
import unittest
import warnings
import weakref

import dlock
import support
from asyncio_test import Case, timed, turns
from dlock import _native


class Loss(Case):
    async def test_on_lost(self):
        """It runs in the loop, and may be a coroutine."""
        client = await self.open(lease="3s")
        lost = asyncio.get_running_loop().create_future()

        async def told(error):
            lost.set_result(error)

        async def break_it():
            await (await self.open()).break_lock(self.name)

        with self.assertRaises(dlock.Lost) as caught:
            async with client.lock(self.name, on_lost=told) as grant:
                await break_it()
                error = await timed(lost)
                self.assertEqual((error.name, error.fence), (self.name, grant.fence))
                self.assertFalse(grant.held)
        self.assertEqual((caught.exception.fence, caught.exception.why), (error.fence, error.why))
        self.assertIn(error.why, (dlock.Loss.BROKEN, dlock.Loss.FORGOTTEN))

    async def test_a_loop_that_is_busy_until_the_release(self):
        """No on_lost comes after it, nor one without the grant's fence."""
        told = []
        client = await self.open(lease="500ms")
        with self.assertRaises(dlock.Lost) as caught:
            async with client.lock(self.name, lease=0.5, fixed=True, on_lost=told.append) as grant:
                while grant.held:
                    time.sleep(0.01)
        self.assertEqual((caught.exception.fence, caught.exception.why), (grant.fence, dlock.Loss.FIXED_END))
        await turns(10)
        self.assertEqual(told, [])

    async def test_an_exception_in_on_lost(self):
        client = await self.open(lease="3s")
        told = asyncio.Event()
        seen = []

        def handler(loop, context):
            seen.append(type(context["exception"]))
            told.set()

        def broken(lost):
            raise LookupError("on_lost is broken")

        asyncio.get_running_loop().set_exception_handler(handler)
        grant = await client.lock(self.name, on_lost=broken).acquire()
        await (await self.open()).break_lock(self.name)
        await timed(told.wait())
        self.assertEqual(seen, [LookupError])
        with self.assertRaises(dlock.Lost):
            await grant.release()


@unittest.skipIf(sys.version_info < (3, 11), "there is no Task.uncancel")
class CancelOnLost(Case):
    """As the block of asyncio.timeout."""

    async def asyncSetUp(self):
        await super().asyncSetUp()
        self.lossy = await self.open(lease="3s")
        self.lock = self.lossy.lock(self.name, cancel_on_lost=True)

    async def lose(self, name=None):
        await self.client.break_lock(name or self.name)
        await asyncio.sleep(support.LONG)
        self.fail("the block goes on")

    async def raises_lost(self, block):
        """The task is as before: not cancelled."""
        with self.assertRaises(dlock.Lost) as caught:
            async with block as grant:
                await self.lose()
        self.assertEqual(asyncio.current_task().cancelling(), 0)
        self.assertIsInstance(caught.exception.__cause__, asyncio.CancelledError)
        self.assertEqual((caught.exception.name, caught.exception.fence), (self.name, grant.fence))
        await asyncio.sleep(0)

    async def test_blocks(self):
        told = []
        also_told = self.lossy.lock(self.name, cancel_on_lost=True, on_lost=told.append)
        await self.raises_lost(also_told)
        self.assertEqual(len(told), 1)
        await self.raises_lost(await self.lock.acquire())

        @self.lossy.locked(self.name, cancel_on_lost=True)
        async def work():
            await self.lose()

        with self.assertRaises(dlock.Lost):
            await work()
        async with self.lock:
            pass

    async def test_timeouts_around_it(self):
        """Inside and outside, which are not over; and one that is over at the same time, whose error is the greater."""
        async with asyncio.timeout(support.LONG):
            with self.assertRaises(dlock.Lost):
                async with self.lock, asyncio.timeout(support.LONG):
                    await self.lose()
        with self.assertLogs("dlock", "WARNING") as logs, self.assertRaises(TimeoutError):
            async with asyncio.timeout(None) as outer, self.lock as grant:
                with dlock.Client(support.uri()) as other:
                    other.break_lock(self.name)
                while grant.held:  # the loop learns of both when it runs again
                    time.sleep(0.01)
                outer.reschedule(0)
                await asyncio.sleep(support.LONG)
        self.assertTrue([line for line in logs.output if "release of lock" in line])
        self.assertEqual(asyncio.current_task().cancelling(), 0)
        with self.assertRaises(TimeoutError):
            async with self.lock, asyncio.timeout(0):
                await asyncio.sleep(support.LONG)

    async def test_a_cancellation_from_outside_is_not_swallowed(self):
        """Neither one that comes before the loss, nor one after it."""
        for order in (1, -1):
            inside, ends = asyncio.Event(), asyncio.Event()

            async def work():
                async with self.lock as grant:
                    task, lose = asyncio.current_task(), grant._block._cancel
                    for cancel in (task.cancel, lambda: lose(dlock.Lost("now")))[::order]:
                        asyncio.get_running_loop().call_soon(cancel)
                    inside.set()
                    await ends.wait()

            await self.cancelled(work())

    async def cancelled(self, work):
        task = asyncio.create_task(work)
        with self.assertRaises(asyncio.CancelledError):
            await timed(task)
        self.assertTrue(task.cancelled())

    async def test_an_exception_of_the_block_wins(self):
        with self.assertLogs("dlock", "WARNING"), self.assertRaises(KeyError) as caught:
            async with self.lock:
                try:
                    await self.lose()
                except asyncio.CancelledError:
                    raise KeyError("cleaning up")
        self.assertIn("lost", caught.exception.__notes__[0])
        self.assertEqual(asyncio.current_task().cancelling(), 0)

    async def test_lost_before_the_block(self):
        grant = await self.lock.acquire()
        await self.client.break_lock(self.name)
        while grant.held:
            await turns(1)
        with self.assertRaises(dlock.Lost):
            async with grant:
                await asyncio.sleep(support.LONG)
        async with self.lock as grant:
            await grant.release()
            await turns(2)
        async with grant:
            await turns(2)

    async def test_several(self):
        other = self.lossy.lock(self.name + "-other", cancel_on_lost=True)
        for names in ([self.name], [other.name], [self.name, other.name]):
            with self.assertRaises(dlock.Lost) as caught:
                async with dlock.acquire_all(self.lock, other):
                    for name in names:
                        await self.client.break_lock(name)
                    await asyncio.sleep(support.LONG)
            self.assertIn(caught.exception.name, names)
            self.assertEqual(asyncio.current_task().cancelling(), 0)

    async def test_a_task_that_nobody_awaits(self):
        """It is collected with its grant: the library keeps no task."""

        async def work():
            async with self.lossy.lock(self.name, cancel_on_lost=True):
                inside.set()
                await asyncio.get_running_loop().create_future()

        inside = asyncio.Event()
        task = weakref.ref(asyncio.create_task(work()))
        await inside.wait()
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)  # "Task was destroyed"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gc.collect()
        self.assertIsNone(task())
        await self.free()


class OnlyTheGrant(Case):
    """The application keeps neither the client nor the lock."""

    async def fewer_clients(self, most):
        """Waits until no more than so many are open."""

        async def wait():
            while len(_native._clients) > most:
                await turns(1)

        await timed(wait())

    async def take(self, **options):
        grant = await dlock.AsyncClient(support.uri(lease="3s")).lock(self.name, **options).acquire()
        gc.collect()
        return grant

    async def test_release(self):
        await (await self.take()).release()
        await self.free()

    async def test_on_lost(self):
        lost = asyncio.get_running_loop().create_future()
        grant = await self.take(on_lost=lost.set_result)
        await self.client.break_lock(self.name)
        self.assertEqual((await timed(lost)).fence, grant.fence)
        with self.assertRaises(dlock.Lost):
            await grant.release()

    async def test_collected_while_held(self):
        """The client is collected in the thread that frees the grant; the loop continues without its descriptor."""
        clients = len(_native._clients)
        for on_lost in (None, print):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                await self.take(on_lost=on_lost)
                gc.collect()
                await self.free()
                clients += 1  # self.free() has opened another one
                await self.fewer_clients(clients)

    async def test_a_wait_that_is_cancelled(self):
        """Nothing of it is left: neither in the queue nor in this process."""
        clients = len(_native._clients)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            async with self.client.lock(self.name):
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(self.take(), 0.3)
            gc.collect()
            await self.fewer_clients(clients)
        await self.free()


if __name__ == "__main__":
    support.main()
