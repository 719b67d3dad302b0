"""Shared by the clients for threads and for asyncio: an open client of the library, and its handles.

A client's memory and a handle are freed by the garbage collector only, so that no thread ever uses a freed one.

Ctrl-C may raise KeyboardInterrupt after any call that the main thread makes. So nothing depends on a second statement
that has to follow a first one: what is undone may be undone twice, and what is done once is done within one call.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import sys
import threading
import types
import warnings
import weakref
from contextlib import ExitStack
from ctypes import byref, c_int64, create_string_buffer, sizeof
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Set

from . import _abi, _callbacks, _values, errors
from ._abi import lib

_LEVELS = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)
logger = logging.getLogger("dlock")
logger.addHandler(logging.NullHandler())

OnLost = Optional[Callable[[errors.Lost], Any]]
OnEvent = Optional[Callable[[_values.Event], Any]]

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


def check_threads() -> None:
    """Raises RuntimeError if greenlets stand in for threads. A wait of one would stop them all, also the one that is to
    release the lock."""
    if not isinstance(threading.get_ident, types.BuiltinFunctionType):
        patcher = threading.get_ident.__module__.partition(".")[0]
        raise RuntimeError(
            f"{patcher} has patched the module threading, and a wait for a lock would stop all of its greenlets: leave "
            "threads unpatched, or use dlock in another process (docs/python.md)"
        )


class NativeClient:
    """An open client of the library."""

    def __init__(
        self, uri: str, flags: int, log: Optional[logging.Logger], label: Optional[str],
        on_event: OnEvent,
    ) -> None:  # fmt: skip
        check_threads()
        self._pid = os.getpid()
        self._mutex = threading.Lock()
        self._grants: weakref.WeakSet[Any] = weakref.WeakSet()
        self._handlers: List[int] = []
        self.logger = log
        self._pointer = _abi.ClientPointer()
        self._within = c_int64(_abi.FOREVER)
        # It closes at the first next(), only then.
        self._closing: Iterator[None] = map(lib.dlock_close_within, [self._pointer], [self._within])
        self.closed = True
        self._anchor = _abi.LockPointer()
        options = _abi.ClientOptions(sizeof(_abi.ClientOptions), flags)
        options.label = None if label is None else _values.text(label, "the label")
        anchor = _options(Terms(flags=_abi.FIXED_LEASE, lease_ms=100))
        if log is not None:
            self._handlers.append(_callbacks.register(_log_handler(log)))
            options.log, options.log_arg = _callbacks.logged, self._handlers[-1]
        if on_event is not None:
            self._handlers.append(_callbacks.register(_event_handler(on_event)))
            options.event, options.event_arg = _callbacks.happened, self._handlers[-1]
        try:
            errors.call(lib.dlock_open, _values.text(uri, "the URI"), byref(options), byref(self._pointer))
            errors.call(lib.dlock_new, self._pointer, b"anchor", byref(anchor), byref(self._anchor))
        except BaseException:
            _end(self._closing, self._handlers)
            raise
        self.timeout_ms = _timeout_ms(uri)
        self.uri = uri_without_secrets(uri)
        self.closed = False
        _clients.add(self)

    def check_process(self) -> None:
        """Raises Forked in a forked child. To be called before a mutex is used, which a thread of the parent may have
        held during the fork."""
        if self._pid != os.getpid():
            raise errors.make(-15, "the client was opened before fork(); open one in the child")

    def check_open(self) -> None:
        """Raises Canceled if the client is closed, and Forked in a forked child."""
        self.check_process()
        if self.closed:
            raise errors.Canceled("the client is closed")

    @property
    def pointer(self) -> _abi.ClientPointer:
        """The client, for a call of the library while this object is referenced. Raises the errors of `check_open`. The
        client may be closed before or during the call, which then ends with ECANCELED: a handle, the anchor, keeps its
        memory."""
        self.check_open()
        return self._pointer

    def stop(self) -> None:
        """Ends waits with Canceled, now and later."""
        lib.dlock_client_stop(self.pointer)

    def close(self, timeout: Optional[_values.Seconds] = None) -> None:
        """Closes the client at the first call; in a forked child it only marks it as closed."""
        self._within.value = _values.timeout_milliseconds(timeout)
        if self._pid == os.getpid() and _callbacks.inside():
            raise RuntimeError("a client must not be closed from a callback")
        self.closed = True
        if self._pid == os.getpid():
            _end(self._closing, self._handlers)

    def close_at_exit(self) -> None:
        """As `close`, but does nothing while a daemon thread holds a lock: that thread ends with the process, and must
        not lose its lock before."""
        here = threading.current_thread()
        threads = [grant._handle.thread for grant in self.grants() if grant._handle.count]
        if not any(thread is not here and thread.is_alive() for thread in threads):
            self.close()

    def __del__(self) -> None:
        if getattr(self, "_anchor", None) is None or self._pid != os.getpid():
            return
        if not self.closed or not sys.is_finalizing():
            _callbacks.outside(_end, self._closing, self._handlers, self._anchor)
        if not self.closed:
            warnings.warn("unclosed dlock client", ResourceWarning, source=self)  # may raise

    # ---- operations of both kinds of client

    def inspect(self, name: str) -> List[_values.Holder]:
        """Returns the holders of `name`."""
        return self._walk(lib.dlock_inspect, _callbacks.each_info, _values.holder, _values.text(name, "the name"))

    def waiters(self, name: str) -> List[_values.Holder]:
        """Returns the waiters for `name`."""
        return self._walk(lib.dlock_waiters, _callbacks.each_info, _values.holder, _values.text(name, "the name"))

    def list(self, prefix: str) -> List[_values.Holder]:
        """Returns the holders of all names that begin with `prefix`."""
        return self._walk(lib.dlock_list, _callbacks.each_info, _values.holder, _values.text(prefix, "the prefix"))

    def check(self) -> List[_values.Finding]:
        """Returns the findings about the server's settings."""
        return self._walk(lib.dlock_check, _callbacks.each_finding, _values.finding)

    def break_lock(self, name: str) -> None:
        """Takes `name` away from its holders."""
        errors.call(lib.dlock_break, self.pointer, _values.text(name, "the name"))

    def guard(self, group: int) -> None:
        """Sets the process group that the guardian ends with the client."""
        errors.call(lib.dlock_client_guard, self.pointer, _values.group(group))

    def backend(self) -> _values.Backend:
        """Returns the backend of this client."""
        return _values.backend(lib.dlock_client_backend(self.pointer).contents)

    def healthy(self, max_age: _values.Seconds) -> bool:
        """True if the server's last answer is younger, or it answers now."""
        ms = _values.milliseconds(max_age, "max_age")
        try:
            last = self.stats().last_answer
            if last is None or last * 1000 >= ms:
                self.inspect("dlock-healthy")
            return True
        except errors.Error:
            return False

    def quarantine(self) -> float:
        """Returns for how many seconds after its start the server grants nothing."""
        return int(lib.dlock_client_quarantine_ms(self.pointer)) / 1000

    def stats(self) -> _values.Stats:
        """Returns the statistics of this client."""
        row = _abi.StatsStruct(sizeof(_abi.StatsStruct))
        errors.call(lib.dlock_client_stats, self.pointer, byref(row))
        return _values.stats(row)

    def _walk(self, function: Any, each: Any, convert: Callable[[Any], Any], *arguments: object) -> List[Any]:
        return _callbacks.collect(
            lambda number: errors.call(function, self.pointer, *arguments, each, number), convert
        )

    # ---- handles

    def new(self, name: str, terms: Terms, on_lost: OnLost, reentrant: bool = False) -> Handle:
        """Makes a handle (DLOCK_OWNER_HANDLE). reentrant: who enters it, or enters it again, may add an on_lost."""
        return self._handle(lib.dlock_new, _values.text(name, "the name"), terms, on_lost, reentrant)

    def imported(self, ticket: str, on_lost: OnLost) -> Handle:
        """Makes a handle that holds the grant of a ticket."""
        handle = self._handle(lib.dlock_import, _values.text(ticket, "the ticket"), Terms(), on_lost, False)
        handle.enter()
        return handle

    def check_lease(self, ms: int) -> None:
        """Raises Invalid if a lease is too long for the server's quarantine; 0 is the default."""
        most = int(lib.dlock_client_quarantine_ms(self.pointer)) if ms else 0
        if ms > most > 0:
            raise errors.Invalid(
                f"lease is {ms / 1000:g} seconds, and the quarantine of this server, which protects leases when it "
                f"restarts, only {most / 1000:g} seconds; set lease= or quarantine= in the URI"
            )

    def _handle(self, make: Any, text: bytes, terms: Terms, on_lost: OnLost, reentrant: bool) -> Handle:
        check_threads()
        self.check_lease(terms.lease_ms)
        options = _options(terms)
        handle = Handle(self, terms.mode, on_lost)
        if on_lost is not None or reentrant:
            handle.on_lost = _callbacks.register(_lost_handler(handle.to_tell))
            options.on_lost, options.on_lost_arg = _callbacks.ended, handle.on_lost
        errors.call(make, self.pointer, text, byref(options), byref(handle.pointer))
        handle.name = _name(handle.pointer)
        return handle

    def add(self, grant: object) -> None:
        """Adds a grant to `grants`, for as long as somebody refers to it."""
        with self._mutex:
            self._grants.add(grant)

    def grants(self) -> List[Any]:
        """Returns the grants of this client, those that are over too."""
        self.check_process()
        with self._mutex:
            return list(self._grants)


def uri_without_secrets(uri: str) -> str:
    """Returns `uri` without its password and other secrets, for logs. Raises Invalid."""
    text = _values.text(uri, "the URI")
    out = create_string_buffer(len(text) + 1)
    errors.call(lib.dlock_uri_without_secrets, text, out, len(out))
    return _values.plain(out.value)


def _timeout_ms(uri: str) -> int:
    """Returns the `timeout` of a valid URI: for how long a call may block."""
    given = re.search("[?&]timeout=([^&#]*)", uri)
    ms = c_int64(3000)
    if given:
        lib.dlock_parse_duration(_values.text(given.group(1), "the timeout"), byref(ms), None)
    return ms.value


def _end(closing: Iterator[None], handlers: List[int], anchor: Optional[_abi.LockPointer] = None) -> None:
    """Closes a client that is not closed yet, and frees its memory if it gets the anchor."""
    next(closing, None)
    for number in handlers:
        _callbacks.forget(number)
    if anchor is not None:
        lib.dlock_free(anchor)


def _options(terms: Terms) -> _abi.Options:
    return _abi.Options(sizeof(_abi.Options), terms.mode, _abi.OWNER_HANDLE, *terms[1:])


def _log_handler(log: logging.Logger) -> Callable[..., None]:
    return lambda level, line: log.log(_LEVELS[min(level, 3)], "%s", line)


def _event_handler(on_event: Callable[[_values.Event], Any]) -> Callable[..., Any]:
    return lambda row: on_event(_values.event(row))


def _name(lock: Any) -> str:
    return _values.plain(lib.dlock_name(lock))


def _lost_handler(to_tell: Dict[object, Callable[[errors.Lost], Any]]) -> Callable[..., None]:
    """Returns what calls each different function of `to_tell` once, in its order, even if some raise exceptions."""

    def handler(err: Any, lock: int) -> None:
        lost = errors.lost(_values.plain(err.message), _name(lock), lib.dlock_fence(lock), errors.why_lost(lock))
        told = list(to_tell.values())
        with ExitStack() as calls:
            for at in reversed(range(len(told))):
                if told[at] not in told[:at]:
                    calls.callback(_tell, told[at], lost)

    return handler


def _tell(on_lost: Callable[[errors.Lost], Any], lost: errors.Lost) -> None:
    _values.finished(on_lost, on_lost(lost))


class Handle:
    """A handle of the library for one acquisition.

    Its owner enters it once, and again if it is reentrant: `count` times. Each entry is an object, not a number, so
    that it may be taken back twice, or without having been made. The entry of the acquisition itself is FIRST.
    """

    FIRST = object()

    def __init__(self, client: NativeClient, mode: int, on_lost: OnLost) -> None:
        self.client = client
        self.name = ""
        self.mode = mode
        self.pointer = _abi.LockPointer()
        self.on_lost = 0  # the number of what calls those of to_tell
        self.fence = 0
        self.thread = threading.current_thread()
        self.task: Any = None
        self.mutex = threading.Lock()
        self.entries: Set[object] = set()
        self.to_tell = {} if on_lost is None else {self.FIRST: on_lost}  # by entry

    def __del__(self) -> None:
        if not hasattr(self, "to_tell") or self.client._pid != os.getpid() or sys.is_finalizing():
            return
        if self.count and not self.client.closed:
            # Freeing a held lock releases it, which may block for the server's timeout.
            _callbacks.in_thread(_callbacks.free, self.pointer, self.on_lost)
            text = f"lock {self.name!r} is released because its grant was dropped: keep the Lock or the grant"
            if self.client.logger is not None:
                self.client.logger.warning("%s", text)
            warnings.warn(text, ResourceWarning, source=self)  # may raise
        else:
            _callbacks.outside(_callbacks.free, self.pointer, self.on_lost)

    @property
    def count(self) -> int:
        """How often its owner has entered; 0: it holds nothing."""
        return len(self.entries)

    def enter(self) -> None:
        """Notes that the library has granted the lock, and keeps the fence for the time after a loss."""
        self.entries.add(self.FIRST)
        self.current_fence()

    def abandon(self) -> None:
        """Takes back an acquisition that an exception of a signal handler has interrupted, however far it has come."""
        self.entries.clear()
        lib.dlock_release(self.pointer, None)

    def is_held(self) -> bool:
        """True if the grant is valid."""
        return bool(self.count) and lib.dlock_held(self.pointer)

    def remaining(self) -> Optional[float]:
        """Returns the seconds until the grant ends unless it is renewed; None: it does not end by itself."""
        return _values.left(lib.dlock_remaining_ms(self.pointer)) if self.count else 0.0

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

    def enter_again(self, entry: object, on_lost: OnLost) -> bool:
        """Adds an entry. False if the grant is released. Raises Lost if it was lost."""
        with self.mutex:
            if not self.entries:
                return False
            if on_lost is not None:
                self.to_tell[entry] = on_lost  # before the check, so that no loss comes between them
            if not lib.dlock_held(self.pointer):
                self.to_tell.pop(entry, None)
                raise self.lost(f'lock "{self.name}" was lost; release it before it is acquired again')
            self.entries.add(entry)
        return True

    def leave(self, entry: object) -> bool:
        """Takes an entry back. True if it was the last one, and the grant has to be released."""
        self.client.check_process()
        with self.mutex:
            self.current_fence()
            self.entries.discard(entry)
            if self.entries:
                self.to_tell.pop(entry, None)
            return not self.entries

    def lost(self, text: str) -> errors.Lost:
        """Returns the exception for the loss of this grant."""
        return errors.lost(text, self.name, self.current_fence(), errors.why_lost(self.pointer))

    def detailed(self, error: Optional[errors.Error], why: Optional[errors.Loss] = None) -> Optional[errors.Error]:
        """Adds name, fence and reason to a `Lost`. Returns `error`."""
        if isinstance(error, errors.Lost):
            error.name, error.fence, error.why = self.name, self.fence, why or errors.why_lost(self.pointer)
        return error

    def why_lost(self) -> errors.Loss:
        """Returns why a release will raise `Lost` if it does. Afterwards the library does not tell any more."""
        return errors.why_lost(self.pointer) or errors.Loss.FORGOTTEN

    def release(self) -> Optional[errors.Error]:
        """Releases the grant after the last `leave`; blocks until the server has answered."""
        why = self.why_lost()
        return self.detailed(errors.outcome(lib.dlock_release, self.pointer), why)

    def extend(self, lease: Optional[_values.Seconds]) -> None:
        """Sets the lease anew, to `lease` or to that of the lock."""
        ms = _values.lease_milliseconds(lease)
        self.client.check_lease(ms)
        self._call(lib.dlock_extend, ms)

    def guard(self, group: int) -> None:
        """Sets the process group that the guardian ends with this grant."""
        self._call(lib.dlock_guard, _values.group(group))

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
            self.entries.clear()
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
