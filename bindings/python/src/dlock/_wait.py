"""Waits that Ctrl-C can end.

Python runs signal handlers in the main thread only, and only when that thread is back from C. So the main thread tries
first, which costs a fraction of a wait: if somebody else has the lock, it waits for a mutex of Python while the library
waits on another thread. An exception of a signal handler, such as
KeyboardInterrupt, cancels the library's wait, and is raised when that has ended. The caller then takes back what was
granted nevertheless; if another exception comes meanwhile, the thread that waits does that.
"""

from __future__ import annotations

import _thread
import threading
import time
from ctypes import byref, c_size_t
from typing import Any, Callable, List, Optional, Sequence, TypeVar

from . import _abi, _callbacks, errors
from ._abi import lib
from ._native import Handle

Item = TypeVar("Item")


def in_main_thread() -> bool:
    """True in the thread in which signal handlers run."""
    return threading.current_thread() is threading.main_thread()


def _append(results: List[int], function: Callable[..., int], *arguments: object) -> None:
    """results.append(function(*arguments)) within one call: an exception of a signal handler comes before both or after
    both."""
    results.extend(map(function, *zip(arguments)))


def acquire(handle: Handle, ms: int) -> Optional[errors.Error]:
    """Calls dlock_acquire. Returns the error, or None."""
    here = ms == 0 or not in_main_thread()
    began = time.monotonic()
    first = here or ms >= handle.client.timeout_ms  # a try may take as long, if the server does not answer
    error = errors.outcome(lib.dlock_acquire, handle.pointer, ms if here else 0) if first else None
    if not here and (error is not None or not first):
        spent = int((time.monotonic() - began) * 1000)
        error = _acquire_in_background(handle, ms if ms == _abi.FOREVER else max(ms - spent, 1))
    if error is None:
        handle.enter()
    return error


def _acquire_in_background(handle: Handle, ms: int) -> Optional[errors.Error]:
    begun: List[int] = []
    outcome: List[Optional[errors.Error]] = []
    given_up: List[bool] = []
    ended = _thread.allocate_lock()
    ended.acquire()

    def handler(err: Any, lock: int) -> None:  # must not refer to the handle, which would then never be collected
        _callbacks.forget(number)
        outcome.append(errors.from_struct(err) if err else None)
        ended.release()
        if given_up and not err:
            lib.dlock_release_async(lock, _callbacks.ended, None)

    number = _callbacks.register(handler)
    try:
        _append(begun, lib.dlock_acquire_async, handle.pointer, ms, _callbacks.ended, number)
        if begun != [0]:
            _callbacks.forget(number)
            return errors.make(begun[0])
        ended.acquire()
    except BaseException:
        given_up.append(True)
        handle.cancel()
        if begun == [0] and not outcome:
            ended.acquire()
        raise
    return outcome[0]


def acquire_several(handles: List[Handle], ms: int, which: Optional[c_size_t]) -> Optional[errors.Error]:
    """Calls dlock_acquire_any, or without `which` dlock_acquire_all, as `acquire` does dlock_acquire. The library has no
    asynchronous form of them, so a thread blocks in it."""
    begun: List[int] = []
    outcome: List[Optional[errors.Error]] = []
    given_up: List[bool] = []
    ended = _thread.allocate_lock()
    ended.acquire()
    pointers = _callbacks.pointers(handle.pointer for handle in handles)

    def wait() -> None:
        error = call_several(pointers, len(handles), ms, which)
        outcome.append(error)
        ended.release()
        if given_up and error is None:
            lib.dlock_release_all(pointers, len(handles), None)

    if in_main_thread():
        try:
            _append(begun, _thread.start_new_thread, wait, ())
            ended.acquire()
        except BaseException:
            given_up.append(True)
            while begun and not outcome:
                handles[0].cancel()  # repeated, since a cancel has no effect before the wait has begun
                ended.acquire(timeout=0.01)
            raise
    else:
        wait()
    for handle in chosen(handles, which) if outcome[0] is None else []:
        handle.enter()
    return outcome[0]


def call_several(pointers: Any, n: int, ms: int, which: Optional[c_size_t]) -> Optional[errors.Error]:
    """Calls dlock_acquire_any with `which`, else dlock_acquire_all. Returns the error, or None."""
    if which is None:
        return errors.outcome(lib.dlock_acquire_all, pointers, n, ms)
    return errors.outcome(lib.dlock_acquire_any, pointers, n, ms, byref(which))


def chosen(items: Sequence[Item], which: Optional[c_size_t]) -> Sequence[Item]:
    """Returns the items whose locks such a call has acquired."""
    return items if which is None else [items[which.value]]
