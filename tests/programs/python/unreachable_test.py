"""Each method against a server that is gone: which exception it raises: unreachable_test.py

The port is closed: the private Redis that gave the grants and a ticket has ended.
"""
import asyncio
import inspect
import unittest

import dlock
import support
from asyncio_test import private_redis

NOTHING = {"backend", "quarantine", "closed", "stats", "uri", "grants", "stop"}  # of both clients: asks no server
USES = {
    "lock": [
        lambda client, name, _: client.lock(name).acquire(0),
        lambda client, name, _: client.lock(name).acquire(0.2),
        lambda client, name, _: client.lock(name).try_acquire(),
        lambda client, name, _: client.lock(name, shared=True).try_acquire(),
        lambda client, name, _: client.lock(name, permits=2).try_acquire(),
        lambda client, name, _: enter(client.lock(name, timeout=0.2)),
        lambda client, name, _: enter(dlock.acquire_all(client.lock(name), client.lock(name + "-b"), timeout=0.2)),
        lambda client, name, _: enter(dlock.acquire_any(client.lock(name), client.lock(name + "-b"), timeout=0.2)),
    ],
    "locked": [lambda client, name, _: decorated(client, name)],
    "import_grant": [lambda client, name, ticket: client.import_grant(ticket)],
    "inspect": [lambda client, name, _: client.inspect(name)],
    "waiters": [lambda client, name, _: client.waiters(name)],
    "list_locks": [lambda client, name, _: client.list_locks(), lambda client, name, _: client.list_locks(name)],
    "break_lock": [lambda client, name, _: client.break_lock(name)],
    "check": [lambda client, name, _: client.check()],
}
OF_A_GRANT = {
    "extend": lambda grant: grant.extend(),
    "downgrade": lambda grant: grant.downgrade(),
    "export": lambda grant: grant.export(),
    "release": lambda grant: grant.release(),
}


def enter(block):
    """Enters a block of either kind."""
    return block.__aenter__() if hasattr(block, "__aenter__") else block.__enter__()


def decorated(client, name):
    """Calls a function under a lock."""
    if isinstance(client, dlock.Client):
        return client.locked(name, timeout=0.2)(lambda: "ran")()

    async def body():
        return "ran"

    return client.locked(name, timeout=0.2)(body)()


def methods(kind):
    """The public names of a class."""
    return {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}


class Unreachable(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        names = [f"{support.new_name()}-{word}" for word in OF_A_GRANT]
        cls.grants = {}
        with private_redis() as (uri, _):
            address = uri.split("?")[0] + "?quarantine=0&lease=1000s"
            cls.uri = address + "&timeout=100ms"
            with dlock.Client(address + "&timeout=300s") as client:
                cls.ticket = client.lock(names[0]).acquire().export()
            cls.client = dlock.Client(address + "&timeout=1s", log=None)
            cls.grants = {word: cls.client.lock(name + "-kept").acquire() for word, name in zip(OF_A_GRANT, names)}
            cls.block = cls.client.lock(names[0] + "-block")
            cls.block.__enter__()

            async def acquire():
                cls.async_client = dlock.AsyncClient(address + "&timeout=1s", log=None)
                taken = [await cls.async_client.lock(name + "-async").acquire() for name in names]
                cls.async_grants = dict(zip(OF_A_GRANT, taken))

            cls.loop = asyncio.new_event_loop()
            cls.loop.run_until_complete(acquire())

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.loop.run_until_complete(cls.async_client.close())
        cls.loop.close()

    def test_every_method_is_tried(self):
        for kind, others in ((dlock.Client, {"close", "guard", "healthy"}), (dlock.AsyncClient, {"close", "healthy"})):
            self.assertEqual(methods(kind), set(USES) | NOTHING | others)
        for kind in (dlock.Grant, dlock.AsyncGrant):
            own = methods(kind) - {"name", "fence", "held", "remaining", "token", "guard"}
            self.assertEqual(own, set(OF_A_GRANT))

    def test_client(self):
        with self.assertRaises(dlock.Unavailable):
            dlock.Client(self.uri)
        with self.assertRaises(dlock.Unavailable):
            dlock.AsyncClient(self.uri, lazy=False)
        with dlock.Client(self.uri, lazy=True, log=None) as client:
            for word, uses in USES.items():
                for use in uses:
                    with self.subTest(word), self.assertRaises(dlock.Unavailable) as caught:
                        use(client, support.new_name(), self.ticket)
                    self.assertIsInstance(caught.exception, ConnectionError)
                    self.assertTrue(str(caught.exception))
            self.nothing(client)
            self.assertFalse(client.healthy())
            with self.assertRaises(dlock.NotSupported):
                client.guard(0)

    def test_async_client(self):
        async def run():
            async with dlock.AsyncClient(self.uri, log=None) as client:
                words = [word for word, uses in USES.items() for _ in uses]
                calls = [use(client, support.new_name(), self.ticket) for uses in USES.values() for use in uses]
                results = await asyncio.gather(*calls, return_exceptions=True)
                self.assertEqual(
                    [(word, type(result)) for word, result in zip(words, results)],
                    [(word, dlock.Unavailable) for word in words],
                )
                self.nothing(client)
                self.assertFalse(await client.healthy())

        asyncio.run(run())

    def nothing(self, client):
        """What needs no server."""
        self.assertEqual(client.backend.name, "redis")
        self.assertEqual(client.quarantine, 0)
        self.assertEqual((client.stats().grants, client.stats().last_answer), (0, None))
        self.assertEqual(client.grants(), [])
        self.assertFalse(client.closed)

    def test_grants(self):
        """The server's end has not ended the leases: they are held, until their owner gives them back."""
        for word, use in OF_A_GRANT.items():
            grant = self.grants[word]
            self.assertTrue(grant.held)
            self.assertGreater(len(grant.token), 0)
            with self.subTest(word), self.assertRaises(dlock.Unavailable):
                use(grant)
            self.assertEqual(grant.held, word != "release")
        with self.assertRaises(dlock.NotOwner):
            self.grants["release"].release()

    def test_the_end_of_a_block(self):
        """Its work is done: that the release is not answered is only logged."""
        with self.assertLogs("dlock") as logs:
            self.block.__exit__(None, None, None)
        self.assertIn("release of lock", logs.output[0])

    def test_async_grants(self):
        async def run():
            results = await asyncio.gather(
                *(use(self.async_grants[word]) for word, use in OF_A_GRANT.items()), return_exceptions=True
            )
            self.assertEqual([type(result) for result in results], [dlock.Unavailable] * len(OF_A_GRANT))

        self.loop.run_until_complete(run())


if __name__ == "__main__":
    unittest.main(verbosity=2)
