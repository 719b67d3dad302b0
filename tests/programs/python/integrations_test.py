"""Integrations with other packages: pytest's fixtures and the collector for prometheus_client."""
import asyncio
import os
import subprocess
import sys
import tempfile
import threading
import types
import unittest
import uuid

import dlock
import prometheus_client
from dlock import otel
from dlock.prometheus import Collector

TESTS = """
import dlock

def test_the_same_server(dlock_uri, dlock_client):
    with dlock_client.lock("x", timeout=0), dlock.Client(dlock_uri) as other:
        assert other.lock("x").try_acquire() is None

def test_another_server(dlock_client):
    assert not dlock_client.list_locks()
"""


class Pytest(unittest.TestCase):
    def run_pytest(self, text, **variables):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "test_it.py")
            with open(path, "w") as file:
                file.write(text)
            done = subprocess.run(
                [sys.executable, "-m", "pytest", "-q", "-p", "dlock.pytest_plugin", "-p", "no:cacheprovider", path],
                cwd=folder, env=dict(os.environ, **variables), capture_output=True, text=True,
            )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    def test_fixtures(self):
        status, said = self.run_pytest(TESTS)
        self.assertEqual(status, 0, said)
        self.assertIn("2 passed", said)


class Prometheus(unittest.TestCase):
    def setUp(self):
        self.uri = f"mem:{uuid.uuid4().hex}"
        self.client = self.open()
        self.registry = prometheus_client.CollectorRegistry(auto_describe=True)
        self.registry.register(Collector(self.client))

    def open(self):
        client = dlock.Client(self.uri)
        self.addCleanup(client.close)
        return client

    def sample(self, name, **labels):
        return self.registry.get_sample_value(name, dict(labels, server=self.uri))

    def test_a_wait(self):
        with self.open().lock("x"):
            thread = threading.Thread(target=lambda: self.client.lock("x").acquire().release())
            thread.start()
            while self.sample("dlock_waiting") != 1:
                pass
        thread.join()
        self.assertEqual(self.sample("dlock_acquires_total"), 1)
        self.assertEqual(self.sample("dlock_losses_total"), 0)
        self.assertEqual(self.sample("dlock_wait_seconds_count"), 1)
        self.assertEqual(self.sample("dlock_wait_seconds_bucket", le="+Inf"), 1)
        self.assertEqual(self.sample("dlock_wait_seconds_bucket", le="0.0001"), 0)
        self.assertEqual(self.sample("dlock_wait_seconds_sum"), self.client.stats().wait_seconds)

    def test_the_text(self):
        text = prometheus_client.generate_latest(self.registry).decode()
        self.assertIn(f'dlock_renewals_total{{server="{self.uri}"}} 0.0', text)

    def test_a_closed_client(self):
        self.client.close()
        self.assertIsNone(self.sample("dlock_acquires_total"))

    def test_the_same_server_twice(self):
        with self.assertRaises(ValueError):
            Collector(self.client, self.open())


if __name__ == "__main__":
    unittest.main(verbosity=2)


class Tracer:
    """What dlock.otel uses of OpenTelemetry's tracer and spans."""

    def __init__(self):
        self.ended = []

    def start_span(self, what, start_time, attributes):
        span = types.SimpleNamespace(**{"set_attribute": attributes.__setitem__})
        span.end = lambda end_time: self.ended.append((what, end_time - start_time, attributes))
        return span


class Events(unittest.TestCase):
    def setUp(self):
        self.tracer, self.events = Tracer(), []
        self.uri = f"mem:{uuid.uuid4().hex}"
        spans = otel.Spans(self.tracer)
        self.client = dlock.Client(self.uri, on_event=lambda event: (self.events.append(event), spans(event)))

    def tearDown(self):
        self.client.close()

    def test_spans(self):
        with dlock.Client(self.uri) as other, other.lock("x"), self.assertRaises(dlock.Timeout):
            self.client.lock("x", timeout=0.05).acquire()
        with self.client.lock("x") as grant:
            pass
        self.client.close()  # passes on what is left
        self.assertEqual([event.kind for event in self.events], ["waiting", "given-up", "granted", "released"])
        self.assertEqual([event.fence == grant.fence for event in self.events], [False, False, True, True])
        waits, holds = ([row for row in self.tracer.ended if row[0] == f"dlock {what}"] for what in ("wait", "hold"))
        (_, waited, about), *_ = waits
        self.assertGreaterEqual(waited, 50_000_000)
        self.assertEqual((about["dlock.name"], about["dlock.outcome"]), ("x", "given-up"))
        [(_, _, about)] = holds
        self.assertEqual((about["dlock.fence"], about["dlock.outcome"]), (grant.fence, "released"))

    def test_an_exception_is_reported(self):
        with dlock.Client(self.uri, on_event=lambda event: 1 / 0) as client, client.lock("x"):
            pass

    def test_asyncio(self):
        async def run():
            async with dlock.AsyncClient(self.uri, on_event=self.events.append) as client, client.lock("y"):
                pass

        asyncio.run(run())
        self.assertEqual([event.kind for event in self.events], ["granted", "released"])
