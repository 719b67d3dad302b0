"""dlock: one lock API, many coordination servers.

    import dlock

    client = dlock.Client("redis://locks.example")
    with client.lock("nightly-report", timeout=5) as grant:
        write_report(fence=grant.fence)

`Client` is for threads, `AsyncClient` for asyncio. Every error is a `dlock.Error`. Times are seconds.
"""

from __future__ import annotations

from ctypes import byref, c_int64
from typing import List

from . import _callbacks, _values
from ._abi import lib as _lib
from ._native import uri_without_secrets
from ._values import Backend, Event, Finding, Holder, Stats
from ._version import __version__
from .aio import AsyncClient, AsyncGrant, AsyncLock
from .client import Client
from .errors import (
    AbiError,
    AuthError,
    Busy,
    Canceled,
    Deadlock,
    Error,
    Forked,
    Invalid,
    Loss,
    Lost,
    NoBackend,
    NotAcquired,
    NotOwner,
    NotReady,
    NotSupported,
    OutOfResources,
    ProtocolError,
    Timeout,
    Unavailable,
)
from .errors import call as _call
from .grant import Grant
from .lock import Lock
from .multi import acquire_all, acquire_any

__all__ = [
    "AbiError", "AsyncClient", "AsyncGrant", "AsyncLock", "AuthError", "Backend", "Busy", "Canceled", "Client",
    "Deadlock", "Error", "Event", "Finding", "Forked", "Grant", "Holder", "Invalid", "Lock", "Loss", "Lost", "NoBackend",
    "NotAcquired", "NotOwner", "NotReady", "NotSupported", "OutOfResources", "ProtocolError", "Stats", "Timeout",
    "Unavailable", "__version__", "acquire_all", "acquire_any", "backends", "library_version", "parse_duration",
    "uri_without_secrets",
]  # fmt: skip


def library_version() -> str:
    """Returns the version of the C library that was loaded; `__version__` is that of this package."""
    return _values.plain(_lib.dlock_version())


def backends() -> List[Backend]:
    """Returns all backends that are built in or found as modules, also modules that cannot be loaded (`error`)."""
    return _callbacks.collect(
        lambda number: _call(_lib.dlock_backends, _callbacks.each_backend, number), _values.backend
    )


def parse_duration(text: str) -> float:
    """Returns the seconds of a duration as it is written in URIs: "500ms", "10s", "2m", "1h". Raises Invalid."""
    ms = c_int64()
    _call(_lib.dlock_parse_duration, _values.text(text, "the duration"), byref(ms))
    return ms.value / 1000
