"""Waits that Ctrl-C can end.

Python runs signal handlers in the main thread only, and only when that thread is back from C. So the main thread waits
for a threading.Event while the library waits on another thread. An exception of a signal handler, such as
KeyboardInterrupt, cancels the library's wait, and is raised when that has ended.
"""

from __future__ import annotations

import threading
from typing import Any, List, Optional

from . import _callbacks, errors
from ._abi import lib
from ._native import Handle


def in_main_thread() -> bool:
    """True in the thread in which signal handlers run."""
    return threading.current_thread() is threading.main_thread()


def acquire(handle: Handle, ms: int) -> Optional[errors.Error]:
    """Calls dlock_acquire. Returns the error, or None. The handle's `count` is 1 if it now holds the lock, else 0."""
    if ms == 0 or not in_main_thread():
        try:
            error = errors.outcome(lib.dlock_acquire, handle.pointer, ms)
            handle.count = int(error is None)
        except BaseException:  # of a signal handler, which runs as soon as the main thread is back from C
            handle.count = int(lib.dlock_held(handle.pointer))
            raise
        return error
    outcome: List[Optional[errors.Error]] = []
    ended = threading.Event()

    def handler(err: Any, lock: int) -> None:  # must not refer to the handle, which would then never be collected
        _callbacks.forget(number)
        outcome.append(errors.from_struct(err) if err else None)
        ended.set()

    number = _callbacks.register(handler)
    code = lib.dlock_acquire_async(handle.pointer, ms, _callbacks.ended, number)
    if code != 0:
        _callbacks.forget(number)
        return errors.make(code)
    try:
        ended.wait()
    except BaseException:
        handle.cancel()
        ended.wait()
        raise
    finally:
        handle.count = int(outcome == [None])
    return outcome[0]


def acquire_all(handles: List[Handle], ms: int) -> Optional[errors.Error]:
    """Calls dlock_acquire_all, as `acquire` does dlock_acquire. The library has no asynchronous form of it, so a thread
    blocks in it."""
    outcome: List[Optional[errors.Error]] = []
    ended = threading.Event()
    pointers = _callbacks.pointers(handle.pointer for handle in handles)

    def wait() -> None:
        error = errors.outcome(lib.dlock_acquire_all, pointers, len(handles), ms)
        for handle in handles:
            handle.count = int(error is None)
        outcome.append(error)
        ended.set()

    if not in_main_thread():
        wait()
        return outcome[0]
    threading.Thread(target=wait, name="dlock-wait", daemon=True).start()
    try:
        ended.wait()
    except BaseException:
        while not ended.wait(0.01):
            handles[0].cancel()  # repeated, since a cancel has no effect before the wait has begun
        raise
    return outcome[0]
