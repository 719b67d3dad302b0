"""`acquire_all` and `acquire_any` for asyncio."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from ctypes import c_size_t
from typing import Any, AsyncIterator, List, Optional, Sequence, Tuple

from . import _callbacks, _wait, errors
from ._abi import lib
from ._native import Handle
from ._values import Seconds, timeout_milliseconds
from .aio import AsyncGrant, AsyncLock
from .grant import leaving


class _Wait:
    """A call of dlock_acquire_all, or with `which` of dlock_acquire_any, in a thread of its own: the library has no
    asynchronous form of them."""

    def __init__(self, handles: List[Handle], ms: int, which: Optional[c_size_t]) -> None:
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[Optional[errors.Error]] = self._loop.create_future()
        self._handles = handles
        self._pointers = _callbacks.pointers(handle.pointer for handle in handles)
        self._ms = ms
        self._which = which
        self._mutex = threading.Lock()
        self._given_up = False
        self._over = threading.Event()
        self._granted = False
        threading.Thread(target=self._run, name="dlock-wait", daemon=True).start()

    def give_up(self) -> None:
        """Cancels the call after its task has stopped waiting. Locks that are granted nevertheless are released, in
        another thread."""
        with self._mutex:
            self._given_up = True
            over = self._over.is_set()
        if not over:
            _callbacks.in_thread(self._cancel)
        elif self._granted:
            _callbacks.in_thread(self._give_back)

    def _cancel(self) -> None:
        while not self._over.wait(0.01):
            self._handles[0].cancel()  # repeated, since a cancel has no effect before the wait has begun

    def _run(self) -> None:
        error = _wait.call_several(self._pointers, len(self._handles), self._ms, self._which)
        with self._mutex:
            self._granted = error is None
            self._over.set()
            wanted = not self._given_up
        try:
            if wanted:
                self._loop.call_soon_threadsafe(self._settle, error)
        except RuntimeError:
            wanted = False  # the loop is closed, so no task waits
        if self._granted and not wanted:
            self._give_back()

    def _settle(self, error: Optional[errors.Error]) -> None:
        if not self.ended.done():
            self.ended.set_result(error)

    def _give_back(self) -> None:
        errors.outcome(lib.dlock_release_all, self._pointers, len(self._handles))


async def _acquire(
    locks: Tuple[AsyncLock, ...], ms: int, which: Optional[c_size_t]
) -> Sequence[Tuple[AsyncLock, AsyncGrant]]:
    for lock in locks:
        lock._client._loop.bind()
        if any(lock._collides(grant) for _, grant in lock._client._entered_here()):
            raise errors.Deadlock(f'lock "{lock.name}" is held by this task already')
    handles = [lock._handle() for lock in locks]
    for lock, handle in zip(locks, handles):
        lock._waiting.add(handle)
    wait = _Wait(handles, ms, which)
    try:
        error = await wait.ended
    except BaseException:
        wait.give_up()
        raise
    finally:
        for lock, handle in zip(locks, handles):
            lock._waiting.discard(handle)
    if error is not None:
        raise error
    inside = _wait.chosen(list(zip(locks, handles)), which)
    for _, handle in inside:
        handle.enter()
    return [(lock, lock._grant(handle)) for lock, handle in inside]


async def _release(grants: List[AsyncGrant]) -> Optional[errors.Error]:
    """Releases all grants, even if one release fails. Returns the first error, or None."""
    outcomes: List[Any] = await asyncio.gather(*(grant._give_back() for grant in grants))
    return next((error for error in outcomes if error is not None), None)


@asynccontextmanager
async def acquire_any(locks: Tuple[AsyncLock, ...], timeout: Optional[Seconds]) -> AsyncIterator[AsyncGrant]:
    """As `dlock.acquire_any`, with `async with`."""
    async with acquire_all(locks, timeout, c_size_t()) as (grant,):
        yield grant


@asynccontextmanager
async def acquire_all(
    locks: Tuple[AsyncLock, ...], timeout: Optional[Seconds], which: Optional[c_size_t] = None
) -> AsyncIterator[Tuple[AsyncGrant, ...]]:
    """As `dlock.acquire_all`, with `async with`; with `which` only one of the locks."""
    inside = await _acquire(locks, timeout_milliseconds(timeout), which)
    grants = tuple(grant for _, grant in inside)
    for lock, grant in inside:
        lock._client._entered_here().append((lock, grant))
        grant._begin_block()
    error: Optional[errors.Error] = None
    body: Optional[BaseException] = None
    try:
        yield grants
    except BaseException as raised:
        body = raised
        raise
    finally:
        losses = [grant._end_block(body) for grant in grants]  # all: each takes its own cancellation back
        for lock, grant in inside:
            entered = lock._client._entered_here()
            entered[:] = [entry for entry in entered if entry[1] is not grant]
        error = await _release([grant for grant in grants if not grant._over])
        for lost in filter(None, losses):
            raise lost from body
        leaving(error, ", ".join(lock.name for lock in locks), body)
