"""Grants for asyncio that end before their release, or that alone are kept: asyncio_loss_test.py BACKEND"""
import asyncio
import gc
import time
import warnings

import dlock
import support
from asyncio_test import Case, timed, turns
from dlock import _native


class Loss(Case):
    async def test_on_lost(self):
        """It runs in the loop, may be a coroutine, and may end the task that works."""
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
        self.assertEqual(caught.exception.fence, error.fence)

        work = asyncio.current_task()
        with self.assertLogs("dlock"), self.assertRaises(asyncio.CancelledError):
            async with client.lock(self.name, on_lost=lambda _: work.cancel()):
                await break_it()
                await timed(asyncio.sleep(1000))
        if hasattr(work, "uncancel"):
            work.uncancel()

    async def test_a_loop_that_is_busy_until_the_release(self):
        """No on_lost comes after it, nor one without the grant's fence."""
        told = []
        client = await self.open(lease="500ms")
        with self.assertRaises(dlock.Lost) as caught:
            async with client.lock(self.name, lease=0.5, fixed=True, on_lost=told.append) as grant:
                while grant.held:
                    time.sleep(0.01)
        self.assertEqual(caught.exception.fence, grant.fence)
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
