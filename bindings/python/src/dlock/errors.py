"""The exceptions: one for each code of dlock.h, all below `Error`."""

from __future__ import annotations

import enum
from ctypes import byref
from typing import Callable, Optional

from ._abi import ErrorStruct, lib


class Error(Exception):
    """The base class of all errors of dlock. `str(error)` is the library's message: what is wrong, and what to do.

    code: the number of the error in dlock.h, negative.
    """

    code: int = 0


class NotAcquired(Error):
    """The lock could not be had in the time that the caller gave: Busy, Timeout or NotReady. Try later."""


class Busy(NotAcquired):
    """DLOCK_EBUSY: a try (`timeout=0`) found the lock held. Try later, or with a timeout."""

    code = -1


class Timeout(NotAcquired, TimeoutError):
    """DLOCK_ETIMEDOUT: the lock was not free in time. Try later, or wait longer."""

    code = -2


class Canceled(Error):
    """DLOCK_ECANCELED: the wait was cancelled, or the client is stopped or closed. Do not try again."""

    code = -3


class Loss(enum.Enum):
    """Why a grant was lost: enum dlock_loss."""

    EXPIRED = 1
    """It was not renewed in time: no answer, or this process did not run."""
    FIXED_END = 2
    """Its fixed lease has ended."""
    BROKEN = 3
    """Somebody took it away: `break_lock`, or a deletion by hand."""
    FORGOTTEN = 4
    """The server no longer has it and cannot tell why: broken, or forgotten in a restart."""
    SESSION = 5
    """The connection or session in which it lived has ended."""


class Lost(Error):
    """DLOCK_ELOST: the grant ended before its release. Another holder may have worked at the same time.

    name: the name of the lock. fence: the fence of the lost grant. why: a `Loss`; None: unknown. The text says more.
    """

    code = -4
    name: str = ""
    fence: int = 0
    why: Optional[Loss] = None


class NotOwner(Error):
    """DLOCK_EOWNER: the grant is released already; from `break_lock`: nobody holds the lock."""

    code = -5


class Deadlock(Error):
    """DLOCK_EDEADLK: the wait could never end, since the caller itself holds the lock."""

    code = -6


class Unavailable(Error, ConnectionError):
    """DLOCK_EUNAVAILABLE: the server cannot be reached, or did not answer in time. Try later; check the server."""

    code = -7


class AuthError(Error):
    """DLOCK_EAUTH: the server refused the credentials, or they lack a right."""

    code = -8


class Invalid(Error, ValueError):
    """DLOCK_EINVAL: an argument, or a part of the URI, is invalid. The message names it."""

    code = -9


class OutOfResources(Error):
    """DLOCK_ENOMEM: out of memory, threads, descriptors or disk."""

    code = -10


class NotSupported(Error):
    """DLOCK_ENOTSUP: this backend cannot do that."""

    code = -11


class ProtocolError(Error):
    """DLOCK_EPROTO: the server sent an invalid answer. Check that the URI names the right kind of server."""

    code = -12


class NoBackend(Error):
    """DLOCK_ENOBACKEND: no backend for this URI's scheme. Install it, or set DLOCK_PLUGIN_PATH."""

    code = -13


class AbiError(Error):
    """DLOCK_EABI: the backend's module does not fit the library."""

    code = -14


class Forked(Error):
    """DLOCK_EFORKED: the client was opened before fork(). Open one in the child."""

    code = -15


class NotReady(NotAcquired):
    """DLOCK_ENOTREADY: the server was started recently and grants nothing yet. The message says for how long."""

    code = -16


BY_CODE = {kind.code: kind for base in (NotAcquired, Error) for kind in base.__subclasses__() if kind.code}


def make(code: int, text: str = "") -> Error:
    """Returns the exception for a code, with `text` or the library's text for the code."""
    error = BY_CODE.get(code, Error)(text or lib.dlock_strerror(code).decode())
    error.code = code
    return error


def from_struct(err: ErrorStruct) -> Error:
    """Returns the exception for the error that a callback got."""
    return make(err.code, err.message.decode(errors="replace"))


def lost(text: str, name: str, fence: int, why: Optional[Loss]) -> Lost:
    """Returns a `Lost` with the name and fence of the grant."""
    error = Lost(text)
    error.name, error.fence, error.why = name, fence, why
    return error


def why_lost(lock: object) -> Optional[Loss]:
    """Returns why the grant of a handle was lost, until it is released; None: it was not."""
    why = lib.dlock_lost(lock, None)
    return Loss(why) if why > 0 else None


def outcome(function: Callable[..., int], *arguments: object) -> Optional[Error]:
    """Calls a function whose last parameter is a struct dlock_error. Returns the exception to raise, or None."""
    err = ErrorStruct()
    code = function(*arguments, byref(err))
    return None if code >= 0 else make(code, err.message.decode(errors="replace"))


def call(function: Callable[..., int], *arguments: object) -> None:
    """As `outcome`, but raises the exception."""
    error = outcome(function, *arguments)
    if error is not None:
        raise error
