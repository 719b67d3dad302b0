"""Shared by the clients for threads and for asyncio: an open client of the library, and its handles.

A client must not be closed while another thread calls the library with it: so calls are counted. A handle is freed by
the garbage collector only, so that no thread ever uses a freed one.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import warnings
import weakref
from contextlib import ExitStack, contextmanager
from ctypes import byref, create_string_buffer, sizeof
from typing import Any, Callable, Iterator, List, NamedTuple, Optional

from . import _abi, _callbacks, _values, errors
from ._abi import lib

_LEVELS = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)
logger = logging.getLogger("dlock")
logger.addHandler(logging.NullHandler())

OnLost = Optional[Callable[[errors.Lost], Any]]

_clients: weakref.WeakSet[NativeClient] = weakref.WeakSet()


class Terms(NamedTuple):
    """The mode, limit, flags and lease of a lock."""

    mode: int = _abi.EXCLUSIVE
    limit: int = 0
    flags: int = 0
    lease_ms: int = 0

    @staticmethod
    def of(shared: bool, permits: Optional[int], lease: Optional[_values.Seconds], fixed: bool) -> Terms:
        """Makes the terms from the arguments of `lock`."""
        if shared and permits is not None:
            raise ValueError("a lock is either shared or has permits, not both")
        if permits is not None and (isinstance(permits, bool) or not isinstance(permits, int)):
            raise TypeError(f"permits must be an int or None, not {type(permits).__name__}")
        if permits is not None and not 1 <= permits < 2**31:
            raise errors.Invalid(f"permits is {permits}: it must be 1 to 2147483647")
        mode = _abi.SHARED if shared else _abi.EXCLUSIVE if permits is None else _abi.PERMIT
        return Terms(mode, permits or 0, _abi.FIXED_LEASE if fixed else 0, _values.lease_milliseconds(lease))


class NativeClient:
    """An open client of the library."""

    def __init__(self, uri: str, flags: int, log: Optional[logging.Logger]) -> None:
        self._pid = os.getpid()
        self._pointer: Optional[_abi.ClientPointer] = None
        self._mutex = threading.Lock()
        self._idle = threading.Condition(self._mutex)
        self._calls = 0
        self._handles: weakref.WeakSet[Handle] = weakref.WeakSet()
        self._log = 0
        options = _abi.ClientOptions(sizeof(_abi.ClientOptions), flags)
        if log is not None:
            self._log = _callbacks.register(_log_handler(log))
            options.log, options.log_arg = _callbacks.logged, self._log
        pointer = _abi.ClientPointer()
        try:
            errors.call(lib.dlock_open, _values.text(uri, "the URI"), byref(options), byref(pointer))
        except BaseException:
            _callbacks.forget(self._log)
            raise
        self._pointer = pointer
        _clients.add(self)

    def check_process(self) -> None:
        """Raises Forked in a forked child. To be called before a mutex is used, which a thread of the parent may have
        held during the fork."""
        if self._pid != os.getpid():
            raise errors.make(-15, "the client was opened before fork(); open one in the child")

    @contextmanager
    def use(self) -> Iterator[_abi.ClientPointer]:
        """Yields the client, and keeps `close` waiting meanwhile. Raises Canceled if it is closed."""
        self.check_process()
        with self._mutex:
            if self._pointer is None:
                raise errors.Canceled("the client is closed")
            pointer = self._pointer
            self._calls += 1
        try:
            yield pointer
        finally:
            with self._mutex:
                self._calls -= 1
                self._idle.notify_all()

    @property
    def closed(self) -> bool:
        """True if the client is closed."""
        return self._pointer is None

    def close(self) -> None:
        """Closes the client at the first call; in a forked child it only marks it as closed."""
        if self._pid != os.getpid():
            self._pointer = None
            return
        if _callbacks.inside():
            raise RuntimeError("a client must not be closed from a callback")
        with self._mutex:
            pointer, self._pointer = self._pointer, None
            while pointer and self._calls:
                self._idle.wait()
        if pointer:
            lib.dlock_close(pointer)
            _callbacks.forget(self._log)

    def close_at_exit(self) -> None:
        """As `close`, but does nothing while a daemon thread holds a lock: that thread ends with the process, and must
        not lose its lock before."""
        with self._mutex:
            handles = list(self._handles)
        here = threading.current_thread()
        if not any(h.count and h.thread is not here and h.thread.is_alive() for h in handles):
            self.close()

    def __del__(self) -> None:
        if getattr(self, "_pointer", None) is not None and self._pid == os.getpid():
            _callbacks.outside(self.close)
            warnings.warn("unclosed dlock client", ResourceWarning, source=self)  # may raise

    # ---- operations of both kinds of client

    def inspect(self, name: str) -> List[_values.Holder]:
        """Returns the holders of `name`."""
        return self._walk(lib.dlock_inspect, _callbacks.each_info, _values.holder, _values.text(name, "the name"))

    def list(self, prefix: str) -> List[_values.Holder]:
        """Returns the holders of all names that begin with `prefix`."""
        return self._walk(lib.dlock_list, _callbacks.each_info, _values.holder, _values.text(prefix, "the prefix"))

    def check(self) -> List[_values.Finding]:
        """Returns the findings about the server's settings."""
        return self._walk(lib.dlock_check, _callbacks.each_finding, _values.finding)

    def break_lock(self, name: str) -> None:
        """Takes `name` away from its holders."""
        with self.use() as pointer:
            errors.call(lib.dlock_break, pointer, _values.text(name, "the name"))

    def guard(self, group: int) -> None:
        """Sets the process group that the guardian ends with the lock."""
        with self.use() as pointer:
            errors.call(lib.dlock_client_guard, pointer, group)

    def backend(self) -> _values.Backend:
        """Returns the backend of this client."""
        with self.use() as pointer:
            return _values.backend(lib.dlock_client_backend(pointer).contents)

    def quarantine(self) -> float:
        """Returns for how many seconds after its start the server grants nothing."""
        with self.use() as pointer:
            return int(lib.dlock_client_quarantine_ms(pointer)) / 1000

    def stats(self) -> _values.Stats:
        """Returns the statistics of this client."""
        row = _abi.StatsStruct(sizeof(_abi.StatsStruct))
        with self.use() as pointer:
            errors.call(lib.dlock_client_stats, pointer, byref(row))
        return _values.stats(row)

    def _walk(self, function: Any, each: Any, convert: Callable[[Any], Any], *arguments: object) -> List[Any]:
        with self.use() as pointer:
            return _callbacks.collect(
                lambda number: errors.call(function, pointer, *arguments, each, number), convert
            )

    # ---- handles

    def new(self, name: str, terms: Terms, on_lost: OnLost, reentrant: bool = False) -> Handle:
        """Makes a handle (DLOCK_OWNER_HANDLE). reentrant: who enters again may add an on_lost."""
        return self._handle(lib.dlock_new, _values.text(name, "the name"), terms, on_lost, reentrant)

    def imported(self, ticket: str, on_lost: OnLost) -> Handle:
        """Makes a handle that holds the grant of a ticket."""
        handle = self._handle(lib.dlock_import, _values.text(ticket, "the ticket"), Terms(), on_lost, False)
        handle.count = 1
        return handle

    def _handle(self, make: Any, text: bytes, terms: Terms, on_lost: OnLost, reentrant: bool) -> Handle:
        options = _abi.Options(sizeof(_abi.Options), terms.mode, _abi.OWNER_HANDLE, *terms[1:])
        number = 0
        to_tell = [] if on_lost is None else [on_lost]
        if to_tell or reentrant:
            number = _callbacks.register(_lost_handler(to_tell))
            options.on_lost, options.on_lost_arg = _callbacks.ended, number
        pointer = _abi.LockPointer()
        try:
            with self.use() as client:
                errors.call(make, client, text, byref(options), byref(pointer))
        except BaseException:
            _callbacks.forget(number)
            raise
        handle = Handle(self, _name(pointer), terms.mode, pointer, number, to_tell)
        with self._mutex:
            self._handles.add(handle)
        return handle


def _log_handler(log: logging.Logger) -> Callable[..., None]:
    return lambda level, line: log.log(_LEVELS[min(level, 3)], "%s", line)


def _name(lock: Any) -> str:
    return _values.plain(lib.dlock_name(lock))


def _lost_handler(to_tell: List[Callable[[errors.Lost], Any]]) -> Callable[..., None]:
    """Returns what calls each different function of the list once, in its order, even if some raise exceptions."""

    def handler(err: Any, lock: int) -> None:
        lost = errors.lost(_values.plain(err.message), _name(lock), lib.dlock_fence(lock))
        told = list(to_tell)
        with ExitStack() as calls:
            for at in reversed(range(len(told))):
                if told[at] not in told[:at]:
                    calls.callback(_tell, told[at], lost)

    return handler


def _tell(on_lost: Callable[[errors.Lost], Any], lost: errors.Lost) -> None:
    _values.finished(on_lost, on_lost(lost))


class Handle:
    """A handle of the library for one acquisition. `count` is how often its owner has entered; 0: it holds nothing."""

    def __init__(
        self, client: NativeClient, name: str, mode: int, pointer: _abi.LockPointer, on_lost: int,
        to_tell: List[Callable[[errors.Lost], Any]],
    ) -> None:  # fmt: skip
        self.client = client
        self.name = name
        self.mode = mode
        self.pointer = pointer
        self.count = 0
        self.fence = 0
        self.thread = threading.current_thread()
        self.task: Any = None
        self.mutex = threading.Lock()
        self.to_tell = to_tell  # the on_lost of each of its grants that has one
        self._on_lost = on_lost  # the number of what calls them

    def __del__(self) -> None:
        if self.client._pid != os.getpid() or sys.is_finalizing():
            return
        if self.count and not self.client.closed:
            # Freeing a held lock releases it, which may block for the server's timeout.
            _callbacks.in_thread(_callbacks.free, self.pointer, self._on_lost)
            warnings.warn(f"the lock {self.name!r} was not released", ResourceWarning, source=self)  # may raise
        else:
            _callbacks.outside(_callbacks.free, self.pointer, self._on_lost)

    def is_held(self) -> bool:
        """True if the grant is valid."""
        return bool(self.count) and lib.dlock_held(self.pointer)

    def remaining(self) -> float:
        """Returns the seconds until the grant ends unless it is renewed."""
        return _values.seconds(lib.dlock_remaining_ms(self.pointer)) if self.count else 0.0

    def current_fence(self) -> int:
        """Returns the fence; after the release, the last one."""
        if self.count:
            self.fence = lib.dlock_fence(self.pointer) or self.fence
        return self.fence

    def token(self) -> str:
        """Returns the token, which names the grant on the server."""
        token = create_string_buffer(_abi.TOKEN_MAX + 1)
        self._call(lib.dlock_token, token, len(token))
        return _values.plain(token.value)

    def enter_again(self, on_lost: OnLost) -> bool:
        """Increments the count. False if the grant is released. Raises Lost if it was lost."""
        with self.mutex:
            if not self.count:
                return False
            if on_lost is not None:
                self.to_tell.append(on_lost)  # before the check, so that no loss comes between them
            if not lib.dlock_held(self.pointer):
                if on_lost is not None:
                    self.to_tell.remove(on_lost)
                raise self.lost(f'lock "{self.name}" was lost; release it before it is acquired again')
            self.count += 1
        return True

    def leave(self, on_lost: OnLost = None) -> bool:
        """Decrements the count; `on_lost` is that of the grant that ends. True if the count is 0 now and the grant has
        to be released."""
        self.client.check_process()
        with self.mutex:
            self.current_fence()
            self.count -= 1
            if self.count and on_lost is not None:
                self.to_tell.remove(on_lost)
            return self.count == 0

    def lost(self, text: str) -> errors.Lost:
        """Returns the exception for the loss of this grant."""
        return errors.lost(text, self.name, self.current_fence())

    def detailed(self, error: Optional[errors.Error]) -> Optional[errors.Error]:
        """Adds name and fence to a `Lost`. Returns `error`."""
        if isinstance(error, errors.Lost):
            error.name, error.fence = self.name, self.fence
        return error

    def release(self) -> Optional[errors.Error]:
        """Releases the grant after the last `leave`; blocks until the server has answered."""
        return self.detailed(errors.outcome(lib.dlock_release, self.pointer))

    def extend(self, lease: Optional[_values.Seconds]) -> None:
        """Sets the lease anew, to `lease` or to that of the lock."""
        self._call(lib.dlock_extend, _values.lease_milliseconds(lease))

    def downgrade(self) -> None:
        """Turns the exclusive grant into a shared one. It counts as shared also if no answer has confirmed that."""
        try:
            self._call(lib.dlock_downgrade)
        except errors.Unavailable:
            self.mode = _abi.SHARED
            raise
        self.mode = _abi.SHARED

    def export(self) -> str:
        """Turns the grant into a ticket."""
        ticket = create_string_buffer(_abi.TICKET_MAX + 1)
        self.client.check_process()
        with self.mutex:
            if self.count != 1:
                raise errors.Invalid(f"the lock {self.name!r} was entered {self.count} times; leave it, then export it")
            self.current_fence()
            self._call(lib.dlock_export, ticket, len(ticket))
            self.count = 0
        return _values.plain(ticket.value)

    def cancel(self) -> None:
        """Ends a wait on this handle."""
        self.client.check_process()
        lib.dlock_cancel(self.pointer)

    def _call(self, function: Callable[..., int], *arguments: object) -> None:
        self.client.check_process()
        error = self.detailed(errors.outcome(function, self.pointer, *arguments))
        if error is not None:
            raise error


@atexit.register
def _close_all() -> None:
    _callbacks.exit_begins()
    for client in list(_clients):
        if client._pid == os.getpid():
            client.close_at_exit()
