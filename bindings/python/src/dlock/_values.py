"""The values that go into the library and come out of it: texts, times, holders, findings, statistics, backends."""

from __future__ import annotations

import asyncio
import inspect
import math
from datetime import timedelta
from typing import Any, AsyncGenerator, Awaitable, Callable, Coroutine, FrozenSet, Generator, List, NamedTuple, Optional
from typing import Tuple, Union

from . import _abi
from .errors import Invalid

Seconds = Union[int, float, timedelta]

MODES = ("exclusive", "shared", "permit")


class Holder(NamedTuple):
    """One holder of a name, as the server reports it. The grant may have ended since: never decide by this whether to
    work."""

    name: str
    token: str
    mode: str
    """"exclusive", "shared" or "permit"."""
    waiters: int
    """Number of waiters in the server's queue; 0 if the server keeps no queue."""
    limit: int
    """Number of permits that the name has; 1 for other modes."""
    fence: int
    """0 if unknown."""
    remaining: Optional[float]
    """Seconds that are left of the lease; None if unknown, or if the grant ends with its holder."""
    host: str
    """The holder's machine, as it says; empty if it does not."""
    pid: int
    """Its process there; 0 if unknown."""
    label: str
    """What it says that it does; empty if it does not."""
    held: Optional[float]
    """Seconds since the grant, by the server's clock; None if unknown."""


class Finding(NamedTuple):
    """One finding of `check` about the server."""

    fine: bool
    """False: this weakens what the locks promise."""
    what: str
    advice: str
    """What to do about it; empty if `fine`."""


class Stats(NamedTuple):
    """Statistics of a client since it was opened; dlock.h defines each."""

    grants: int
    """Acquisitions that succeeded, without re-entries."""
    local_grants: int
    """Those among them that needed no new grant from the server."""
    reentries: int
    """0: this package enters a lock again without asking the library."""
    losses: int
    """Grants that ended before their release."""
    renewals: int
    renewal_failures: int
    """Renewals that were refused, or not answered in time."""
    reconnects: int
    """Connections that were opened in place of broken ones."""
    waiting: int
    """Waits that are in progress now."""
    waits: int
    """Waits that have ended, with a grant or without."""
    wait_seconds: float
    """Duration of these waits together."""
    wait_buckets: Tuple[Tuple[float, int], ...]
    """Pairs (bound, count): `count` waits took at most `bound` seconds and more than the bound before; the last bound
    is math.inf."""
    held: int
    """Grants that are held now."""
    last_answer: Optional[float]
    """How many seconds ago the server last answered; None: it has not yet."""
    holds: int
    """Grants that have ended, by a release or a loss."""
    hold_seconds: float
    """For how long they were held, together."""
    hold_buckets: Tuple[Tuple[float, int], ...]
    """As `wait_buckets`, for the times of these holds."""
    quarantines: int
    """Answers that the server grants nothing yet."""


class Event(NamedTuple):
    """Something that happened to a client's locks; dlock.h describes the kinds."""

    kind: str
    """"granted", "released", "lost", "waiting", "given-up", "late", "reconnected" or "quarantine"."""
    name: str
    token: str
    text: str
    """A message for people, such as who has the lock; "": none."""
    fence: int
    waited: Optional[float]
    """Seconds since the call that acquires; None: the event is of another kind."""
    held: Optional[float]
    """Seconds since the grant; None: the event is of another kind."""
    dropped: int
    """Events before this one that were dropped, since on_event was too slow."""


class Backend(NamedTuple):
    """A backend that this process can use, or whose module it cannot load."""

    name: str
    schemes: Tuple[str, ...]
    capabilities: FrozenSet[str]
    """The words in the guide's table: "shared", "permit", "export", …"""
    path: Optional[str]
    error: Optional[str]
    """Why its module cannot be loaded; None if it can."""
    schema: Optional[str]
    """The statements that an administrator has to run on the server first; None if there are none."""


def text(value: str, what: str) -> bytes:
    """Returns a str as a C string. Refuses a NUL, which would end the C string. `what` names the value in errors."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {type(value).__name__}")
    if "\0" in value:
        raise Invalid(f"{what} has a NUL in it")
    return value.encode("utf-8", "surrogateescape")


def plain(value: Optional[bytes]) -> str:
    """Returns a C string as a str."""
    return (value or b"").decode("utf-8", "surrogateescape")


def _or_none(value: Optional[bytes]) -> Optional[str]:
    return None if value is None else plain(value)


def callback(value: Any, what: str) -> None:
    """Refuses what cannot be called: otherwise nobody would be told when it is needed."""
    if value is not None and not callable(value):
        raise TypeError(f"{what} must be callable or None, not {type(value).__name__}")


def on_lost_of_threads(value: Any) -> None:
    """Refuses what cannot be called, and what needs an event loop: a thread of dlock calls it, which has none."""
    callback(value, "on_lost")
    if value is not None and (asynchronous(value) or generating(value)):
        raise TypeError(f"on_lost is {value!r}, which a thread cannot run: use a function, or AsyncClient")


def _called(function: Any) -> Tuple[Any, Any]:
    # `inspect` does not look into objects with a `__call__`.
    return function, getattr(type(function), "__call__", None)


def asynchronous(function: Any) -> bool:
    """True if a call of `function` returns a coroutine."""
    return any(map(inspect.iscoroutinefunction, _called(function)))


def generating(function: Any) -> bool:
    """True if a call of `function` returns a generator, of either kind."""
    return any(inspect.isgeneratorfunction(part) or inspect.isasyncgenfunction(part) for part in _called(function))


def finished(function: Callable[..., Any], result: Any) -> Any:
    """Returns `result`, which `function` returned. Raises TypeError if it is a coroutine, another awaitable or a
    generator: the body of `function` has then not ended. It is closed or cancelled, so that nothing runs later."""
    if not isinstance(result, (Awaitable, Generator, AsyncGenerator)):
        return result
    if isinstance(result, (Coroutine, Generator)):
        result.close()
    elif isinstance(result, asyncio.Future):
        result.cancel()
    raise TypeError(f"{function!r} returned {result!r}, whose code would run later: return what it returns in the end")


def milliseconds(value: Optional[Seconds], what: str) -> int:
    """Returns seconds as the library's milliseconds, rounded up; None is DLOCK_FOREVER. `what` names the value in
    errors."""
    if value is None:
        return _abi.FOREVER
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"{what} must be a number of seconds, a timedelta or None, not {type(value).__name__}")
    if not seconds >= 0:
        raise ValueError(f"{what} is {seconds}: it must not be negative")
    return _abi.FOREVER if seconds > 9e15 else math.ceil(round(seconds * 1000, 3))


def timeout_milliseconds(value: Optional[Seconds]) -> int:
    """Returns a timeout as the library's milliseconds. -1 waits for ever, as in `threading` and filelock."""
    if isinstance(value, bool):
        raise TypeError(f"timeout is {value}: for one try write timeout=0, or blocking=False")
    return _abi.FOREVER if value == -1 else milliseconds(value, "timeout")


def lease_milliseconds(value: Optional[Seconds]) -> int:
    """Returns a lease as the library's milliseconds; None is 0, the default."""
    ms = 0 if value is None else milliseconds(value, "lease")
    if value is not None and not _abi.LEASE_MIN_MS <= ms <= _abi.LEASE_MAX_MS:
        low, high = _abi.LEASE_MIN_MS / 1000, _abi.LEASE_MAX_MS / 1000
        raise Invalid(f"lease is {value}: it must be {low:.10g} to {high:.10g} seconds; None is the default")
    return ms


def group(value: int) -> int:
    """Checks the number of a process group."""
    if not isinstance(value, int):
        raise TypeError(f"group must be an int, not {type(value).__name__}")
    return value


def left(ms: int) -> Optional[float]:
    """Returns the library's remaining milliseconds as seconds; None if they are unknown or have no end: JSON has no
    infinity."""
    return None if ms < 0 or ms == _abi.FOREVER else ms / 1000


def holder(info: Any) -> Holder:
    """Converts a struct dlock_info."""
    return Holder(
        plain(info.name),
        plain(info.token),
        MODES[info.mode],
        info.waiters,
        info.limit,
        info.fence,
        left(info.remaining_ms),
        plain(info.host),
        info.pid,
        plain(info.label),
        left(info.held_ms),
    )


def finding(row: Any) -> Finding:
    """Converts a struct dlock_finding."""
    return Finding(row.health == _abi.FINE, plain(row.what), plain(row.advice))


def stats(row: Any) -> Stats:
    """Converts a struct dlock_stats."""
    bounds = [(100 << i) / 1e6 for i in range(_abi.WAIT_BUCKETS - 1)] + [math.inf]
    return Stats(
        row.grants,
        row.local_grants,
        row.reentries,
        row.losses,
        row.renewals,
        row.renewal_failures,
        row.reconnects,
        row.waiting,
        row.waits,
        row.wait_us / 1e6,
        tuple(zip(bounds, row.wait_counts)),
        row.held,
        left(row.last_answer_ms),
        row.holds,
        row.hold_us / 1e6,
        tuple(zip(bounds, row.hold_counts)),
        row.quarantines,
    )


def event(row: Any) -> Event:
    """Converts a struct dlock_event."""
    kind = _abi.EVENTS[row.kind] if row.kind < len(_abi.EVENTS) else str(row.kind)
    waited, held = (None if us < 0 else us / 1e6 for us in (row.waited_us, row.held_us))
    return Event(kind, plain(row.name), plain(row.token), plain(row.text), row.fence, waited, held, row.dropped)


def backend(info: Any) -> Backend:
    """Converts a struct dlock_backend_info."""
    schemes: List[str] = []
    while info.schemes and info.schemes[len(schemes)] is not None:
        schemes.append(plain(info.schemes[len(schemes)]))
    return Backend(
        plain(info.name),
        tuple(schemes),
        frozenset(word for bit, word in enumerate(_abi.CAPABILITIES) if info.caps >> bit & 1),
        _or_none(info.path),
        _or_none(info.error),
        _or_none(info.schema),
    )
