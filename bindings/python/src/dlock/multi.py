"""`acquire_all` and `acquire_any`: several locks at once, and the first of several."""

from __future__ import annotations

from contextlib import contextmanager
from ctypes import c_size_t
from typing import Any, AsyncContextManager, ContextManager, Iterator, List, Optional, Tuple, Union, overload

from . import _callbacks, _wait, aio_multi, errors
from ._abi import lib
from ._native import Handle
from ._values import Seconds, timeout_milliseconds
from .aio import AsyncGrant, AsyncLock
from .grant import Grant, leaving
from .lock import Lock


@overload
def acquire_all(*locks: Lock, timeout: Optional[Seconds] = None) -> ContextManager[Tuple[Grant, ...]]: ...
@overload
def acquire_all(*locks: AsyncLock, timeout: Optional[Seconds] = None) -> AsyncContextManager[Tuple[AsyncGrant, ...]]: ...
def acquire_all(*locks: Union[Lock, AsyncLock], timeout: Optional[Seconds] = None) -> Any:
    """Acquires several locks, of one or several clients: all or none, without deadlock, whatever their order:

        with dlock.acquire_all(client.lock("a"), client.lock("b"), timeout=5) as (a, b):

    With locks of an `AsyncClient` it is `async with`. timeout: seconds for all locks together; the locks' own timeouts
    are ignored. If this thread or task holds one of them already, it raises Deadlock. The end of the block releases all
    of them, and raises the first error of these releases.
    """
    make: Any = aio_multi.acquire_all if _asynchronous(locks) else _acquired
    return make(locks, timeout)


@overload
def acquire_any(*locks: Lock, timeout: Optional[Seconds] = None) -> ContextManager[Grant]: ...
@overload
def acquire_any(*locks: AsyncLock, timeout: Optional[Seconds] = None) -> AsyncContextManager[AsyncGrant]: ...
def acquire_any(*locks: Union[Lock, AsyncLock], timeout: Optional[Seconds] = None) -> Any:
    """Acquires whichever of several locks of one client is free first; of several free ones the first in the list:

        with dlock.acquire_any(client.lock("printer-1"), client.lock("printer-2"), timeout=5) as grant:
            print_on(grant.name)

    Otherwise as `acquire_all`.
    """
    if not locks:
        raise ValueError("acquire_any needs at least one lock")
    make: Any = aio_multi.acquire_any if _asynchronous(locks) else _acquired_any
    return make(locks, timeout)


def _asynchronous(locks: Tuple[Any, ...]) -> bool:
    """True if these are locks of an AsyncClient."""
    kinds = {isinstance(lock, AsyncLock) for lock in locks}
    if len(kinds) > 1:
        raise TypeError("locks of a Client and of an AsyncClient cannot be acquired together")
    return True in kinds


@contextmanager
def _acquired_any(locks: Tuple[Any, ...], timeout: Optional[Seconds]) -> Iterator[Grant]:
    with _acquired(locks, timeout, c_size_t()) as (grant,):
        yield grant


@contextmanager
def _acquired(
    locks: Tuple[Any, ...], timeout: Optional[Seconds], which: Optional[c_size_t] = None
) -> Iterator[Tuple[Grant, ...]]:
    ms = timeout_milliseconds(timeout)
    for lock in locks:
        held = lock.held_by_me()
        if held is not None:
            raise errors.Deadlock(f'lock "{lock.name}" is held by this thread already, and would not be entered again')
    handles = [lock.handle() for lock in locks]
    names = ", ".join(lock.name for lock in locks)
    grants: Tuple[Grant, ...] = ()
    try:
        error = _wait.acquire_several(handles, ms, which) if handles else None
        if error is None:
            inside = _wait.chosen(list(zip(locks, handles)), which)
            grants = tuple(Grant(handle) for _, handle in inside)
            for lock, handle in inside:
                lock.note(handle)
    except BaseException:
        _abandon(handles)
        raise
    if error is not None:
        raise error
    try:
        yield grants
    except BaseException as body:
        leaving(_release_all(grants), names, body)
        raise
    leaving(_release_all(grants), names, None)


def _release_all(grants: Tuple[Grant, ...]) -> Optional[errors.Error]:
    """Releases the grants that were not released inside of the block. Returns the first error, or None."""
    inside: List[Handle] = []
    try:
        inside += [grant._handle for grant in grants if not grant._over]
        for grant in grants:
            grant._over = True
        return _give_back(inside)
    except errors.Forked as error:
        return error
    except BaseException:
        _abandon([grant._handle for grant in grants])
        raise


def _give_back(handles: List[Handle]) -> Optional[errors.Error]:
    """Releases the handles that are held, with one request for each server. Returns the first error, or None."""
    handles = [handle for handle in handles if handle.count and handle.leave(Handle.FIRST)]
    if not handles:
        return None
    gone = [handle for handle in handles if not lib.dlock_held(handle.pointer)]
    first = (gone or handles)[0]
    why = first.why_lost()
    return first.detailed(errors.outcome(lib.dlock_release_all, *_pointers(handles)), why)


def _abandon(handles: List[Handle]) -> None:
    """Takes back an acquisition of all, as `Handle.abandon` does that of one."""
    for handle in handles:
        handle.entries.clear()
    lib.dlock_release_all(*_pointers(handles), None)


def _pointers(handles: List[Handle]) -> Tuple[Any, int]:
    return _callbacks.pointers(handle.pointer for handle in handles), len(handles)
