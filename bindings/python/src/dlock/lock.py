"""`Lock`: a lock for threads."""

from __future__ import annotations

import sys
import threading
import weakref
from typing import Any, List, Literal, Optional, Set, Type, Union, overload

from . import _abi, _wait, errors
from ._native import Handle, NativeClient, OnLost, Terms
from ._values import Seconds, on_lost_of_threads, timeout_milliseconds
from .grant import Grant, Kept


class Unset:
    """The default of `timeout` in `acquire`: the lock's own timeout."""

    def __repr__(self) -> str:
        return "the lock's timeout"


UNSET = Unset()


def check_try(timeout: object) -> None:
    """Refuses a timeout for a try, as `threading` does: one of both is a mistake."""
    if not isinstance(timeout, Unset):
        raise ValueError("a call with blocking=False is one try: leave out its timeout")


class _Mine(threading.local):
    """A thread's grants of a lock, and the grants of the with-blocks of the lock that it is in."""

    def __init__(self) -> None:
        self.kept: Kept[Grant] = Kept()
        self.blocks: List[Grant] = []


class Lock:
    """A lock of a client: `with lock as grant:`, or `acquire` and `release`. Threads share it; each has its own grant.

    The thread that holds it may acquire it again, unless it has permits or `reentrant=False`; it is free for others
    after the last release.
    """

    def __init__(
        self, client: NativeClient, inside: threading.local, name: str, timeout: Optional[Seconds], terms: Terms,
        reentrant: bool, on_lost: OnLost,
    ) -> None:  # fmt: skip
        self._client = client
        self._inside = inside
        self._name = name
        self._timeout = timeout
        self._terms = terms
        self._reentrant = reentrant
        self._on_lost = on_lost
        self._mine = _Mine()
        self._waiting: Set[Handle] = set()  # only with calls that are atomic, so without a mutex
        timeout_milliseconds(timeout)
        on_lost_of_threads(on_lost)
        client.new(name, terms, None)  # raises if the name or the mode is invalid

    @property
    def name(self) -> str:
        """The name of the lock."""
        return self._name

    @overload
    def acquire(
        self, timeout: Union[Seconds, None, Unset] = ..., *, blocking: Literal[True] = ...
    ) -> Grant: ...  # fmt: skip
    @overload
    def acquire(self, timeout: Union[Seconds, None, Unset] = ..., *, blocking: bool) -> Optional[Grant]: ...
    def acquire(self, timeout: Union[Seconds, None, Unset] = UNSET, *, blocking: bool = True) -> Optional[Grant]:
        """Waits for the lock and returns the grant. The lock keeps it until this thread calls `release`, or the grant is
        released by `Grant.release` or `with grant:`.

        timeout: seconds; 0 tries once; None and -1 wait for ever; without it the lock's own timeout counts. Ctrl-C ends
        the wait. blocking=False is `try_acquire`.
        Raises Busy (a try), Timeout, NotReady (the server was started recently), Deadlock (this thread holds the lock
        already), Lost (this thread's grant was lost and has to be released first), Canceled, Unavailable and others.
        """
        if not blocking:
            check_try(timeout)
            return self.try_acquire()
        ms = timeout_milliseconds(self._timeout if isinstance(timeout, Unset) else timeout)
        kept = self._mine.kept
        again = self._enter_again(kept)
        if again is not None:
            return again
        grant = Grant(self.handle(), kept=kept)
        try:
            error = self._wait(grant._handle, ms)
            if error is None:
                self.note(grant._handle)
                kept[grant] = None
                return grant
        except BaseException:
            grant._abandon()
            raise
        raise error

    def try_acquire(self) -> Optional[Grant]:
        """Tries once. Returns the grant, or None if the lock is held by another owner. Raises other errors."""
        try:
            return self.acquire(0)
        except errors.Busy:
            return None

    def release(self) -> None:
        """Releases the grant that this thread has acquired last, with the errors of `Grant.release`. Raises NotOwner if
        this thread holds none."""
        grant = self._mine.kept.last(self._name, "thread")
        try:  # an exception at the begin of the grant's own release is not caught there
            grant.release()
        except BaseException:
            grant._abandon()
            raise

    def locked(self) -> bool:
        """True if somebody holds the name, in whatever mode. For people only: the answer may be outdated already."""
        return bool(self._client.inspect(self._name))

    def owned(self) -> bool:
        """True if this thread holds the lock. Sends no request. Permits belong to no thread, so there it raises
        NotSupported: ask the grant (`Grant.held`)."""
        if self._terms.mode == _abi.PERMIT:
            raise errors.NotSupported(f'the permits of lock "{self._name}" belong to no thread: ask Grant.held')
        handle = self.held_by_me()
        return handle is not None and handle.is_held()

    def cancel(self) -> None:
        """Ends the waits of all threads in `acquire` of this object with Canceled. Later waits are not affected."""
        for handle in self._waiting.copy():
            handle.cancel()

    def __enter__(self) -> Grant:
        blocks = self._mine.blocks
        grant = self.acquire()
        try:
            blocks.append(grant)
            return grant
        except BaseException:
            if grant in blocks:
                blocks.remove(grant)
            grant._abandon()
            raise

    def __exit__(self, kind: Optional[Type[BaseException]], body: Optional[BaseException], trace: Any) -> None:
        blocks = self._mine.blocks
        if not blocks:
            raise RuntimeError(
                f"the with-block of lock {self._name!r} was entered by another thread; use acquire() and `with grant:`"
            )
        grant = blocks[-1]
        del blocks[-1]
        try:  # an exception at the begin of the grant's own __exit__ is not caught there
            grant.__exit__(kind, body, trace)
        except BaseException:
            grant._abandon()
            raise

    def __repr__(self) -> str:
        return f"<Lock {self._name!r}>"

    def handle(self) -> Handle:
        """Makes a handle for one acquisition."""
        return self._client.new(self._name, self._terms, self._on_lost, self._reentrant)

    # ---- entering again

    def note(self, handle: Handle) -> None:
        """Remembers, for re-entry, that this thread holds the lock by `handle`."""
        if self._terms.mode != _abi.PERMIT:
            handle.task = _task()
            _held_here(self._inside)[self._name] = handle

    def held_by_me(self) -> Optional[Handle]:
        """Returns the handle by which this thread holds the lock, or None."""
        handle = _held_here(self._inside).get(self._name)
        return handle if handle is not None and handle.count and self._terms.mode != _abi.PERMIT else None

    def _wait(self, handle: Handle, ms: int) -> Optional[errors.Error]:
        self._waiting.add(handle)
        try:
            return _wait.acquire(handle, ms)
        finally:
            self._waiting.discard(handle)

    def _enter_again(self, kept: Kept[Grant]) -> Optional[Grant]:
        handle = self.held_by_me()
        if handle is None:
            return None
        self._client.check_open()
        self._refuse(handle)
        grant = Grant(handle, object(), kept)
        try:
            if not handle.enter_again(grant._entry, self._on_lost):
                return None
            kept[grant] = None
            return grant
        except BaseException:
            grant._abandon()
            raise

    def _refuse(self, handle: Handle) -> None:
        """Raises Deadlock if a wait for the lock, which this thread holds by `handle`, would never end."""
        if not self._reentrant:
            raise errors.Deadlock(f'lock "{self._name}" is held by this thread already, and is not reentrant')
        if handle.task != _task():
            raise errors.Deadlock(
                f'lock "{self._name}" is held by another task or greenlet of this thread; tasks use dlock.AsyncClient'
            )
        if handle.mode == _abi.SHARED and self._terms.mode == _abi.EXCLUSIVE:
            raise errors.Deadlock(f'lock "{self._name}" is held shared by this thread; release it, then acquire it')


def _held_here(inside: threading.local) -> weakref.WeakValueDictionary[str, Handle]:
    """Returns the handles by which this thread holds locks of the client, by name."""
    if not hasattr(inside, "handles"):
        inside.handles = weakref.WeakValueDictionary()
    handles: weakref.WeakValueDictionary[str, Handle] = inside.handles
    return handles


def _task() -> Any:
    """Returns what identifies the asyncio task and the greenlet that run in this thread. They exclude each other."""
    asyncio, greenlet = sys.modules.get("asyncio"), sys.modules.get("greenlet")
    try:
        task = asyncio.current_task() if asyncio else None
    except RuntimeError:
        task = None
    return task, weakref.ref(greenlet.getcurrent()) if greenlet else None
