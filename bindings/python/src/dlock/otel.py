"""Spans for OpenTelemetry: one for each wait, and one for each grant while it is held.

    client = dlock.Client(uri, on_event=dlock.otel.Spans(opentelemetry.trace.get_tracer("dlock")))
"""

from __future__ import annotations

import time
from typing import Any, Dict, Tuple

from ._values import Event


class Spans:
    """An on_event that reports to a tracer of the package opentelemetry, which this module does not import."""

    def __init__(self, tracer: Any) -> None:
        self._tracer = tracer
        self._held: Dict[Tuple[str, int], Any] = {}

    def __call__(self, event: Event) -> None:
        now = time.time_ns()
        if event.waited and event.kind in ("granted", "given-up"):
            wait = self._begin("dlock wait", event, now - int(event.waited * 1e9))
            wait.set_attribute("dlock.outcome", event.kind)
            wait.end(end_time=now)
        if event.kind == "granted":
            self._held[event.token, event.fence] = self._begin("dlock hold", event, now)
        elif event.kind in ("released", "lost"):
            hold = self._held.pop((event.token, event.fence), None)
            if hold is not None:
                hold.set_attribute("dlock.outcome", event.kind)
                hold.end(end_time=now)

    def _begin(self, what: str, event: Event, at: int) -> Any:
        attributes = {"dlock.name": event.name, "dlock.token": event.token, "dlock.fence": event.fence}
        if event.text:
            attributes["dlock.text"] = event.text
        return self._tracer.start_span(what, start_time=at, attributes=attributes)
