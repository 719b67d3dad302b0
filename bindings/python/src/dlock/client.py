"""`Client`: the locks of a server, for threads."""

from __future__ import annotations

import functools
import logging
import threading
from typing import Any, Callable, List, Literal, Optional, TypeVar, Union, overload

from . import _abi
from ._native import NativeClient, OnEvent, OnLost, Terms, logger
from ._values import Backend, Finding, Holder, Seconds, Stats, asynchronous, finished, generating, on_lost_of_threads
from .grant import Grant
from .lock import Lock

Function = TypeVar("Function", bound=Callable[..., Any])
Result = TypeVar("Result")
Name = Union[str, Callable[..., str]]


class BaseClient:
    """The common part of the clients for threads and for asyncio."""

    _native: NativeClient

    @property
    def backend(self) -> Backend:
        """The backend of this client, with its capabilities."""
        return self._native.backend()

    @property
    def uri(self) -> str:
        """The URI of this client, without its secrets."""
        return self._native.uri

    @property
    def quarantine(self) -> float:
        """For how many seconds after its start the server grants nothing (NotReady); 0.0: no quarantine."""
        return self._native.quarantine()

    def stats(self) -> Stats:
        """Returns statistics of this client since it was opened: grants, waits and their length, losses, renewals."""
        return self._native.stats()

    @property
    def closed(self) -> bool:
        """True if the client is closed."""
        return self._native.closed

    def __reduce__(self) -> Any:
        raise TypeError("a dlock client cannot be pickled: open one in the other process")


class Client(BaseClient):
    """A client of the server that `uri` names: open one per process and server, and share it between threads.

        with dlock.Client("redis://locks.example") as client:
            with client.lock("nightly-report", timeout=5) as grant:
                write_report(fence=grant.fence)

    lazy: connect with the first operation; otherwise the constructor connects, and raises for a wrong address or
    password.
    guardian: as `guardian=on` in the URI.
    log: the logger for the library's messages, about failed renewals for example; None: no messages. Its handlers must
    not use dlock.
    label: what this program does, for people who look who holds a lock: up to 48 bytes; None: as the URI says.
    on_event: is called with each `dlock.Event` of the client, in a thread of the library; it must not use the client.

    Its methods may be called from any thread. It is closed by `close`, by the end of a with-block, or at the
    interpreter's end. In a forked child its methods raise Forked: open another client there.
    """

    def __init__(
        self, uri: str, *, lazy: bool = False, guardian: bool = False, log: Optional[logging.Logger] = logger,
        label: Optional[str] = None, on_event: OnEvent = None,
    ) -> None:  # fmt: skip
        flags = lazy * _abi.CLIENT_LAZY | guardian * _abi.CLIENT_GUARDIAN
        self._native = NativeClient(uri, flags, log, label, on_event)
        self._inside = threading.local()

    def lock(
        self, name: str, *, timeout: Optional[Seconds] = None, shared: bool = False, permits: Optional[int] = None,
        lease: Optional[Seconds] = None, fixed: bool = False, reentrant: bool = True, on_lost: OnLost = None,
    ) -> Lock:  # fmt: skip
        """Makes a lock called `name`, of 1 to 200 bytes in UTF-8. Sends no request.

        timeout: how long a with-block waits for the lock, in seconds or as a timedelta; 0 tries once, None waits for
        ever.
        shared: a reader, which excludes writers but no other readers.
        permits: up to this many holders at a time; all of them must give the same number.
        lease: how long the server keeps a grant without a renewal; None: as the URI says (10 s).
        fixed: the grant is not renewed; it ends with its lease, unless `Grant.extend` sets that anew.
        reentrant: the thread that holds the lock may acquire it again; if False, that raises Deadlock. Permits are
        never reentrant.
        on_lost: called once, with a `Lost`, for each grant that is lost before its release; one function only once for
        all grants of a thread that has acquired the lock again. It runs in a thread of dlock, must neither block for
        long nor close the client, and is no coroutine function: set an event, or log. An exception in it goes to
        sys.unraisablehook.
        """
        terms = Terms.of(shared, permits, lease, fixed)
        return Lock(self._native, self._inside, name, timeout, terms, reentrant, on_lost)

    @overload
    def locked(
        self, name: Name, *, pass_grant: Literal[False] = ..., **options: Any
    ) -> Callable[[Function], Function]: ...
    @overload
    def locked(
        self, name: Name, *, pass_grant: Literal[True], **options: Any
    ) -> Callable[[Callable[..., Result]], Callable[..., Result]]: ...
    def locked(self, name: Name, *, pass_grant: bool = False, **options: Any) -> Any:
        """Decorates a function so that it runs while holding the lock `name`. A call raises the errors of a with-block,
        and TypeError if the function returns a coroutine, another awaitable or a generator, which would run after it.

        name: a str, or a function that makes it from the call's arguments. pass_grant: the function gets the grant as
        the argument `grant`. options: those of `lock`.
        """

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            if asynchronous(function):
                raise TypeError(f"{function!r} is asynchronous: use AsyncClient.locked")
            if generating(function):
                raise TypeError(f"{function!r} is a generator: it would run after the lock is released")
            same = None if callable(name) else self.lock(name, **options)

            @functools.wraps(function)
            def call(*args: Any, **kwargs: Any) -> Any:
                with same or self.lock(name(*args, **kwargs), **options) as grant:  # type: ignore[operator]
                    result = function(*args, **kwargs, grant=grant) if pass_grant else function(*args, **kwargs)
                    return finished(function, result)

            return call

        return decorate

    def import_grant(self, ticket: str, *, on_lost: OnLost = None) -> Grant:
        """Takes over a grant that another process turned into a ticket (`Grant.export`). It gets a greater fence."""
        on_lost_of_threads(on_lost)
        return Grant(self._native.imported(ticket, on_lost))

    def grants(self) -> List[Grant]:
        """Returns the grants that this client holds; an acquisition by a thread that held the lock already is one more.
        Sends no request."""
        return [grant for grant in self._native.grants() if grant.held]

    def healthy(self, *, max_age: Seconds = 10) -> bool:
        """True if the server answered in the last `max_age` seconds, or does so now: if its last answer is older, this
        asks for the holders of the name "dlock-healthy", which blocks up to the URI's `timeout`. False also if the
        client is closed."""
        return self._native.healthy(max_age)

    def inspect(self, name: str) -> List[Holder]:
        """Returns the holders of `name`; empty if it is free. For people only: the answer may be outdated already."""
        return self._native.inspect(name)

    def waiters(self, name: str) -> List[Holder]:
        """Returns the waiters in the server's queue for `name`, in its order; `held` is how long each has waited. Raises
        NotSupported if the server has no queue that can be read."""
        return self._native.waiters(name)

    def list_locks(self, prefix: str = "") -> List[Holder]:
        """Returns the holders of all names that begin with `prefix`."""
        return self._native.list(prefix)

    def break_lock(self, name: str) -> None:
        """Takes `name` away from its holders, which may go on working until their next renewal. Raises NotOwner if
        nobody holds it."""
        self._native.break_lock(name)

    def check(self) -> List[Finding]:
        """Returns which of the server's settings are fine for locks and which weaken them."""
        return self._native.check()

    def guard(self, group: int) -> None:
        """Puts a process group, which does the protected work, under the guardian of this client; 0 takes it back.
        Raises Lost if the guardian has killed the group, because the lock was not renewed in time."""
        self._native.guard(group)

    def stop(self) -> None:
        """Ends waits with Canceled, now and later; what is held stays held and can be released. Never blocks."""
        self._native.stop()

    def close(self, *, timeout: Optional[Seconds] = None) -> None:
        """Ends waits with Canceled and releases all locks. Blocks up to the URI's `timeout`, or `timeout` seconds if that
        is less; with 0 nothing is released: every grant ends with its lease or its connection.

        May be called twice, but not from on_lost.
        """
        self._native.close(timeout)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
