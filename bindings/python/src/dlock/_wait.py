"""Waits that Ctrl-C ends.

Python runs signal handlers in the main thread alone, and not before that thread is back from C. So it waits for an
event of Python's while the library waits elsewhere. An exception of a handler, KeyboardInterrupt most of all, cancels
the wait, and is raised when that has ended.
"""

from __future__ import annotations

import threading
from typing import Any, List, Optional

from . import _callbacks, errors
from ._abi import lib
from ._native import Handle


def in_main_thread() -> bool:
    """Whether this is the thread that signal handlers run in."""
    return threading.current_thread() is threading.main_thread()


def acquire(handle: Handle, ms: int) -> Optional[errors.Error]:
    """dlock_acquire: the error, or None. Afterwards the handle's `count` says whether it holds."""
    if ms == 0 or not in_main_thread():
        error = errors.outcome(lib.dlock_acquire, handle.pointer, ms)
        handle.count = int(error is None)
        return error
    outcome: List[Optional[errors.Error]] = []
    ended = threading.Event()

    def handler(err: Any, lock: int) -> None:  # without the handle: it would never be collected
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
    """dlock_acquire_all, as `acquire`. The library has no such call that does not block: a thread waits in it."""
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
            handles[0].cancel()  # again and again: one that comes before the wait has begun is not remembered
        raise
    return outcome[0]
