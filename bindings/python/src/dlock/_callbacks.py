"""Calls from dlock's threads into Python.

The library is given one of a few functions that live as long as the process, and a number: so nothing that it may still
call is ever collected, whatever the application lets go of.
"""

from __future__ import annotations

import itertools
import threading
from typing import Any, Callable, Dict, Iterable, List

from ._abi import Callback, Each, EachBackend, EachFinding, LockPointer, Log, lib

_handlers: Dict[int, Callable[..., None]] = {}
_numbers = itertools.count(1)
_thread = threading.local()
_exiting = False


def register(handler: Callable[..., None]) -> int:
    """The number that stands for `handler` until it is forgotten."""
    number = next(_numbers)
    _handlers[number] = handler
    return number


def forget(number: int) -> None:
    """Lets go of a handler, once the library calls it no more."""
    _handlers.pop(number, None)


def inside() -> bool:
    """Whether this thread is inside of a callback, where the library must not be closed, or not even be called."""
    return getattr(_thread, "depth", 0) > 0


def outside(function: Callable[..., Any], *arguments: object) -> None:
    """Calls `function`; in a thread of its own inside of a callback, where the collector runs, too."""
    if inside():
        in_thread(function, *arguments)
    else:
        function(*arguments)


def exit_begins() -> None:
    """From now on `in_thread` starts nothing: a thread that begins while the interpreter ends can crash it."""
    global _exiting
    _exiting = True


def in_thread(function: Callable[..., Any], *arguments: object) -> None:
    """Calls `function` elsewhere; not at the interpreter's end: what it would end then ends with the process."""
    if _exiting:
        return
    try:
        threading.Thread(target=function, args=arguments, name="dlock-finalizer", daemon=True).start()
    except RuntimeError:
        pass


def _call(number: int, *arguments: object) -> None:
    handler = _handlers.get(number)
    if handler is None:
        return
    _thread.depth = getattr(_thread, "depth", 0) + 1
    try:
        handler(*arguments)
    finally:
        _thread.depth -= 1


@Callback  # type: ignore[misc]
def ended(lock: int, err: Any, number: int) -> None:
    """dlock_callback: handler(error or None, lock)."""
    _call(number, err.contents if err else None, lock)


@Log  # type: ignore[misc]
def logged(level: int, message: bytes, number: int) -> None:
    """The log of dlock_client_options: handler(level, text)."""
    _call(number, level, message.decode(errors="replace"))


def _step(row: Any, number: int) -> int:
    verdict: List[int] = []
    _call(number, row.contents, verdict)
    return len(verdict)


each_info = Each(_step)
each_finding = EachFinding(_step)
each_backend = EachBackend(_step)


def collect(walk: Callable[[int], None], convert: Callable[[Any], Any]) -> List[Any]:
    """What a walk of the library shows; `walk` gets the number that stands for the list."""
    rows: List[Any] = []
    failures: List[BaseException] = []

    def take(row: Any, verdict: List[int]) -> None:
        try:
            rows.append(convert(row))
        except BaseException as failure:  # KeyboardInterrupt, too: ctypes would swallow it
            failures.append(failure)
            verdict.append(1)

    number = register(take)
    try:
        walk(number)
    finally:
        forget(number)
    if failures:
        raise failures[0]
    return rows


def pointers(locks: Iterable[LockPointer]) -> Any:
    """Handles as an array of C."""
    rows = list(locks)
    return (LockPointer * len(rows))(*rows)


def free(lock: Any, number: int) -> None:
    """Ends a handle, and lets go of its on_lost, which is not called afterwards."""
    lib.dlock_free(lock)
    forget(number)
