"""Calls from dlock's threads into Python.

The library gets one of a few functions that live as long as the process, and a number as their argument. So a function
that the library may still call is never garbage-collected, whatever the application drops.
"""

from __future__ import annotations

import itertools
import threading
from typing import Any, Callable, Dict, Iterable, List, TypeVar

from ._abi import Callback, Each, EachBackend, EachFinding, LockPointer, Log, OnEvent, lib

Result = TypeVar("Result")

_handlers: Dict[int, Callable[..., None]] = {}
_numbers = itertools.count(1)
_thread = threading.local()
_exiting = False


def register(handler: Callable[..., None]) -> int:
    """Keeps `handler` until `forget`. Returns the number that stands for it."""
    number = next(_numbers)
    _handlers[number] = handler
    return number


def forget(number: int) -> None:
    """Drops a handler, which the library must not call any more."""
    _handlers.pop(number, None)


def inside() -> bool:
    """True if this thread is in a callback, where a client must not be closed and some functions must not be called."""
    return getattr(_thread, "inside", False)


def calling_back(function: Callable[..., Result], *arguments: object) -> Result:
    """Calls a function of the library that calls back in this thread. `inside` is right afterwards, even if
    KeyboardInterrupt came at the end of a callback, where ctypes ignores it."""
    outer = inside()
    try:
        return function(*arguments)
    finally:
        _thread.inside = outer


def outside(function: Callable[..., Any], *arguments: object) -> None:
    """Calls `function`; inside of a callback, where the garbage collector may run, too, in a new thread."""
    if inside():
        in_thread(function, *arguments)
    else:
        function(*arguments)


def exit_begins() -> None:
    """Makes `in_thread` do nothing from now on: a thread that starts while the interpreter ends can crash it."""
    global _exiting
    _exiting = True


def in_thread(function: Callable[..., Any], *arguments: object) -> None:
    """Calls `function` in a new thread; does nothing at the interpreter's end, when the process ends everything."""
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
    outer = inside()
    _thread.inside = True
    try:
        handler(*arguments)
    finally:
        _thread.inside = outer


@Callback  # type: ignore[misc]
def ended(lock: int, err: Any, number: int) -> None:
    """The dlock_callback: calls handler(error or None, lock)."""
    _call(number, err.contents if err else None, lock)


@Log  # type: ignore[misc]
def logged(level: int, message: bytes, number: int) -> None:
    """The log of dlock_client_options: calls handler(level, text)."""
    _call(number, level, message.decode(errors="replace"))


@OnEvent  # type: ignore[misc]
def happened(row: Any, number: int) -> None:
    """The event of dlock_client_options: calls handler(event)."""
    _call(number, row.contents)


def _step(row: Any, number: int) -> int:
    verdict: List[int] = []
    _call(number, row.contents, verdict)
    return len(verdict)


each_info = Each(_step)
each_finding = EachFinding(_step)
each_backend = EachBackend(_step)


def collect(walk: Callable[[int], None], convert: Callable[[Any], Any]) -> List[Any]:
    """Returns the converted rows that a function of the library shows to its callback. `walk` calls that function; its
    argument is the number for the callback."""
    rows: List[Any] = []
    failures: List[BaseException] = []

    def take(row: Any, verdict: List[int]) -> None:
        try:
            rows.append(convert(row))
        except BaseException as failure:  # KeyboardInterrupt, too: ctypes would ignore it
            failures.append(failure)
            verdict.append(1)

    number = register(take)
    try:
        calling_back(walk, number)
    finally:
        forget(number)
    if failures:
        raise failures[0]
    return rows


def pointers(locks: Iterable[LockPointer]) -> Any:
    """Returns a C array of handles."""
    rows = list(locks)
    return (LockPointer * len(rows))(*rows)


def free(lock: Any, number: int) -> None:
    """Frees a handle, and drops its on_lost, which is not called afterwards."""
    lib.dlock_free(lock)
    forget(number)
