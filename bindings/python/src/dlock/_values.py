"""What goes into the library and comes out of it: texts, times, and what there is to see of locks and servers."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any, FrozenSet, List, NamedTuple, Optional, Tuple, Union

from . import _abi
from .errors import Invalid

Seconds = Union[int, float, timedelta]

MODES = ("exclusive", "shared", "permit")


class Holder(NamedTuple):
    """One holder of a name, as the server reports it. It may be over already: never decide by it whether to work."""

    name: str
    token: str
    mode: str
    """"exclusive", "shared" or "permit"."""
    waiters: int
    """How many are queued; 0 where the server keeps no queue."""
    limit: int
    """Permits: how many there are; 1 otherwise."""
    fence: int
    """0 when unknown."""
    remaining: Optional[float]
    """Seconds of the lease; None when unknown, math.inf when it ends with its holder."""


class Finding(NamedTuple):
    """One thing that `check` looked at."""

    fine: bool
    """False: the lock works, and promises less than it could."""
    what: str
    advice: str
    """Empty when fine."""


class Stats(NamedTuple):
    """What a client has done since it was opened. All numbers but `waiting` only grow; dlock.h says what each counts."""

    grants: int
    """Acquisitions that an owner got; re-entries are none."""
    local_grants: int
    """Of these, those for which the server was asked for no new grant."""
    reentries: int
    """0: this package enters a lock again without asking the library."""
    losses: int
    """Grants that ended before their release."""
    renewals: int
    renewal_failures: int
    """Renewals that were refused, or not answered in time."""
    reconnects: int
    """Connections opened in place of one that broke."""
    waiting: int
    """Waits in progress, now."""
    waits: int
    """Waits that have ended, by a grant or without."""
    wait_seconds: float
    """How long these took together."""
    wait_buckets: Tuple[Tuple[float, int], ...]
    """(bound, count): how many took at most `bound` seconds, and longer than the bound before; the last is math.inf."""


class Backend(NamedTuple):
    """A backend as this process sees it."""

    name: str
    schemes: Tuple[str, ...]
    capabilities: FrozenSet[str]
    """The words of the guide's table: "shared", "permit", "export", …"""
    path: Optional[str]
    error: Optional[str]
    """Why its module cannot be loaded; None when it can."""
    schema: Optional[str]
    """What an administrator has to run on the server first; None: nothing."""


def text(value: str, what: str) -> bytes:
    """A str as C has it. A NUL, which would cut it short there, is refused."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {type(value).__name__}")
    if "\0" in value:
        raise Invalid(f"{what} has a NUL in it")
    return value.encode("utf-8", "surrogateescape")


def plain(value: Optional[bytes]) -> str:
    """A C string as a str."""
    return (value or b"").decode("utf-8", "surrogateescape")


def _or_none(value: Optional[bytes]) -> Optional[str]:
    return None if value is None else plain(value)


def milliseconds(value: Optional[Seconds], what: str) -> int:
    """Seconds as the library takes them, rounded up; None, for ever, is dlock.h's DLOCK_FOREVER."""
    if value is None:
        return _abi.FOREVER
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"{what} must be a number of seconds, a timedelta or None, not {type(value).__name__}")
    if not seconds >= 0:
        raise ValueError(f"{what} is {seconds}: it must not be negative (None waits for ever)")
    return _abi.FOREVER if seconds > 9e15 else math.ceil(round(seconds * 1000, 3))


def seconds(ms: int) -> float:
    """Milliseconds of the library as seconds."""
    return math.inf if ms == _abi.FOREVER else ms / 1000


def holder(info: Any) -> Holder:
    """A struct dlock_info as a Holder."""
    return Holder(
        plain(info.name),
        plain(info.token),
        MODES[info.mode],
        info.waiters,
        info.limit,
        info.fence,
        None if info.remaining_ms < 0 else seconds(info.remaining_ms),
    )


def finding(row: Any) -> Finding:
    """A struct dlock_finding as a Finding."""
    return Finding(row.health == _abi.FINE, plain(row.what), plain(row.advice))


def stats(row: Any) -> Stats:
    """A struct dlock_stats as a Stats."""
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
    )


def backend(info: Any) -> Backend:
    """A struct dlock_backend_info as a Backend."""
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
