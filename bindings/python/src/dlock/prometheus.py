"""A collector for prometheus_client:

    prometheus_client.REGISTRY.register(dlock.prometheus.Collector(client))

The families are those that `dlock run --metrics` writes, with the label `server`.
"""

from __future__ import annotations

from typing import Dict, Iterable, List, Tuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector as BaseCollector

from . import errors
from ._values import Stats
from .client import BaseClient

COUNTERS = (
    ("grants", "dlock_acquires", "Grants of the lock."),
    ("losses", "dlock_losses", "Grants that ended before their release."),
    ("renewals", "dlock_renewals", "Renewals that the server confirmed."),
    ("renewal_failures", "dlock_renewal_failures", "Renewals that were refused or not answered; they are tried again."),
    ("reconnects", "dlock_reconnects", "Connections to the server in place of broken ones."),
)


class Collector(BaseCollector):
    """The statistics of one client, or of several of different servers."""

    def __init__(self, *clients: BaseClient) -> None:
        servers = [client.uri for client in clients]
        if len(set(servers)) < len(servers):
            raise ValueError("two clients have the same server: open one per process and server")
        self._clients = clients

    def collect(self) -> Iterable[Metric]:
        """Called by prometheus_client. A closed client has no samples."""
        rows = self._rows()
        for field, family, text in COUNTERS:
            counter = CounterMetricFamily(family, text, labels=["server"])
            for server, stats in rows:
                counter.add_metric([server], getattr(stats, field))
            yield counter
        holds = HistogramMetricFamily("dlock_hold_seconds", "How long grants were held.", labels=["server"])
        waiting = GaugeMetricFamily("dlock_waiting", "Waits that are in progress.", labels=["server"])
        waits = HistogramMetricFamily("dlock_wait_seconds", "How long these waits took.", labels=["server"])
        for server, stats in rows:
            waiting.add_metric([server], stats.waiting)
            waits.add_metric([server], _cumulative(stats.wait_buckets), stats.wait_seconds)
            holds.add_metric([server], _cumulative(stats.hold_buckets), stats.hold_seconds)
        yield waiting
        yield waits
        yield holds

    def _rows(self) -> List[Tuple[str, Stats]]:
        rows: Dict[str, Stats] = {}
        for client in self._clients:
            try:
                rows[client.uri] = client.stats()
            except (errors.Canceled, errors.Forked):
                pass
        return list(rows.items())


def _cumulative(counts: Tuple[Tuple[float, int], ...]) -> List[Tuple[str, int]]:
    total, buckets = 0, []
    for bound, count in counts:
        total += count
        buckets.append(("+Inf" if bound == float("inf") else f"{bound:g}", total))
    return buckets
