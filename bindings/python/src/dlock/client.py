"""`Client`: a server's locks, for threads."""

from __future__ import annotations

import functools
import inspect
import logging
import threading
from typing import Any, Callable, List, Optional, TypeVar, Union

from . import _abi
from ._native import NativeClient, Terms, logger
from ._values import Backend, Finding, Holder, Seconds, Stats
from .grant import Grant, OnLost
from .lock import Lock

Function = TypeVar("Function", bound=Callable[..., Any])
Name = Union[str, Callable[..., str]]


class BaseClient:
    """What clients for threads and for asyncio share."""

    _native: NativeClient

    @property
    def backend(self) -> Backend:
        """The backend that serves this client, and what it can do."""
        return self._native.backend()

    @property
    def quarantine(self) -> float:
        """For how many seconds after its start the server grants nothing (NotReady)."""
        return self._native.quarantine()

    def stats(self) -> Stats:
        """What this client has done since it was opened: grants, waits and how long they took, losses, renewals."""
        return self._native.stats()

    @property
    def closed(self) -> bool:
        """Whether the client is closed."""
        return self._native.closed

    def __reduce__(self) -> Any:
        raise TypeError("a dlock client cannot be pickled: open one in the other process")


class Client(BaseClient):
    """A client of the server that `uri` names: open one per process and server, and share it between threads.

        with dlock.Client("redis://locks.example") as client:
            with client.lock("nightly-report", timeout=5) as grant:
                write_report(fence=grant.fence)

    lazy: do not connect now, but with the first operation; else a wrong address or password raises here.
    guardian: as `guardian=on` in the URI.
    log: gets what the library has to say of renewals that fail and the like; None: nothing. Its handlers must not use
    dlock.

    Its methods may be called from any thread. It is closed by `close`, by the end of a with-block, or at the
    interpreter's end. After a fork it raises Forked in the child: open another one there.
    """

    def __init__(
        self, uri: str, *, lazy: bool = False, guardian: bool = False, log: Optional[logging.Logger] = logger
    ) -> None:
        flags = lazy * _abi.CLIENT_LAZY | guardian * _abi.CLIENT_GUARDIAN
        self._native = NativeClient(uri, flags, log)
        self._inside = threading.local()

    def lock(
        self, name: str, *, timeout: Optional[Seconds] = None, shared: bool = False, permits: Optional[int] = None,
        lease: Optional[Seconds] = None, fixed: bool = False, reentrant: bool = True, on_lost: OnLost = None,
    ) -> Lock:  # fmt: skip
        """A lock called `name`, of 1 to 200 bytes in UTF-8. Asks no server.

        timeout: how long a with-block waits to get in, in seconds or as a timedelta; 0 tries once, None waits for ever.
        shared: beside other readers, but no writer.
        permits: up to so many may hold it at a time; everybody gives the same number.
        lease: how long the server keeps a grant without hearing from its holder; None: as the URI says (10 s).
        fixed: never renew; the grant ends with its lease, unless `Grant.extend` sets that anew.
        reentrant: the thread that holds the lock may enter again; False: that raises Deadlock. Permits never are.
        on_lost: called once, with a `Lost`, for each grant that is lost before its release. It runs in a thread of
        dlock's: it must not block for long, nor close the client. Set an event, or log. An exception in it goes to
        sys.unraisablehook.
        """
        terms = Terms.of(shared, permits, lease, fixed)
        return Lock(self._native, self._inside, name, timeout, terms, reentrant, on_lost)

    def locked(self, name: Name, *, pass_grant: bool = False, **options: Any) -> Callable[[Function], Function]:
        """Decorates a function: it runs while it holds the lock `name`, and raises what the with-block would.

        name: a str, or a function that makes it of the call's arguments. pass_grant: the function gets the grant as its
        argument `grant`. options: those of `lock`.
        """

        def decorate(function: Function) -> Function:
            if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
                raise TypeError(f"{function!r} is asynchronous: use AsyncClient.locked")
            if inspect.isgeneratorfunction(function):
                raise TypeError(f"{function!r} is a generator: it would run after the lock is released")
            same = None if callable(name) else self.lock(name, **options)

            @functools.wraps(function)
            def call(*args: Any, **kwargs: Any) -> Any:
                with same or self.lock(name(*args, **kwargs), **options) as grant:  # type: ignore[operator]
                    return function(*args, **kwargs, grant=grant) if pass_grant else function(*args, **kwargs)

            return call  # type: ignore[return-value]

        return decorate

    def import_grant(self, ticket: str, *, on_lost: OnLost = None) -> Grant:
        """Takes over the grant that another process made a ticket of (`Grant.export`). Its fence is a greater one."""
        return Grant(self._native.imported(ticket, on_lost))

    def inspect(self, name: str) -> List[Holder]:
        """Who holds `name`; empty when it is free. For people: it may be over already."""
        return self._native.inspect(name)

    def list_locks(self, prefix: str = "") -> List[Holder]:
        """The holders of all names that begin with `prefix`."""
        return self._native.list(prefix)

    def break_lock(self, name: str) -> None:
        """Takes `name` away from whoever holds it, and may go on working until its next renewal. Raises NotOwner when
        nobody holds it."""
        self._native.break_lock(name)

    def check(self) -> List[Finding]:
        """What in the server's version and settings strengthens or weakens locks."""
        return self._native.check()

    def guard(self, group: int) -> None:
        """For a client with a guardian: the process group that does the protected work; 0: no longer. Raises
        Lost when the group is taken back, and the guardian has killed it since nothing was renewed in time."""
        self._native.guard(group)

    def close(self) -> None:
        """Ends waits with Canceled and releases what is held. Blocks up to the URI's `timeout`.

        May be called twice, but not from on_lost.
        """
        self._native.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
