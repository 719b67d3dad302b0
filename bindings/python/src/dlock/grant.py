"""`Grant`, the result of an acquisition, and the part of it that `AsyncGrant` shares."""

from __future__ import annotations

import os
import weakref
from typing import Any, Dict, Generic, Optional, Type, TypeVar

from . import errors
from ._native import Handle, logger
from ._values import Seconds


def leaving(error: Optional[errors.Error], name: str, body: Optional[BaseException]) -> None:
    """Handles `error`, the result of the release at the end of a with-block: raises it, unless the block has raised
    `body`; then adds a note to that.

    Unavailable is only logged: the lock protected the work to its end, even if the server does not answer the release.
    """
    if error is None:
        return
    if body is None and not isinstance(error, errors.Unavailable):
        raise error
    logger.warning("release of lock %r: %s", name, error)
    if body is not None and hasattr(body, "add_note"):
        body.add_note(f"And the release of lock {name!r} said: {error}")


Kind = TypeVar("Kind", bound="BaseGrant")


class Kept(Dict[Kind, None], Generic[Kind]):
    """The grants of a lock that a thread or task has acquired and not released, in this order. They refer to it weakly:
    with the lock they are all dropped."""

    def last(self, name: str, owner: str) -> Kind:
        """Returns the last one. Raises NotOwner if there is none."""
        grants = [*self]  # no call, which an exception of a signal handler might follow
        if not grants:
            raise errors.NotOwner(
                f"this {owner} has not acquired lock {name!r}, or has released it; a grant of another {owner} has its "
                "own release()"
            )
        return grants[-1]


class BaseGrant:
    """The common part of the grants for threads and for asyncio. Any thread may use a grant."""

    def __init__(self, handle: Handle, entry: object = Handle.FIRST, kept: Optional[Kept[Any]] = None) -> None:
        self._handle = handle
        self._entry = entry
        self._kept = None if kept is None else weakref.ref(kept)
        self._over = False
        handle.client.add(self)

    @property
    def name(self) -> str:
        """The name of the lock."""
        return self._handle.name

    @property
    def fence(self) -> int:
        """The fence: greater than that of every earlier grant of the name. Pass it to the resource that the lock
        protects, which should refuse smaller ones. It stays readable after the release."""
        return self._handle.current_fence()

    @property
    def held(self) -> bool:
        """True while the grant is valid. Sends no request; cheap enough for the condition of a loop."""
        return not self._over and self._handle.is_held()

    @property
    def remaining(self) -> Optional[float]:
        """For how many seconds the grant stays valid without another renewal; None if it ends only with the process;
        0.0 if it was lost or released."""
        return 0.0 if self._over else self._handle.remaining()

    @property
    def token(self) -> str:
        """The token, which names this grant on the server. Raises NotOwner after the release."""
        self._check()
        return self._handle.token()

    def _check(self) -> None:
        """Raises NotOwner if this grant is released. The handle may live on: its owner may have entered it again."""
        if self._over:
            raise errors.NotOwner(f"the grant of lock {self.name!r} is released already")

    def _ends(self) -> bool:
        """Marks this grant as released. True if it was its owner's last one, so that the lock has to be released."""
        self._handle.client.check_process()
        with self._handle.mutex:
            self._check()
            self._end()
        return self._handle.leave(self._entry)

    def _end(self) -> None:
        """Marks this grant as released. May be called twice."""
        self._over = True
        kept = self._kept() if self._kept is not None else None
        if kept is not None:
            kept.pop(self, None)

    def __repr__(self) -> str:
        state = "released" if self._over else "held" if self.held else "lost"
        return f"<{type(self).__name__} of {self.name!r}, fence {self.fence}, {state}>"


class Grant(BaseGrant):
    """A grant of a `Lock`; `with grant:` releases it at the end."""

    def release(self) -> None:
        """Releases the lock. Blocks up to the URI's `timeout`.

        Raises Lost (the grant had ended before: another holder may have worked meanwhile), Unavailable (no answer; the
        grant is not held any more nevertheless), NotOwner (released already), Canceled (the client is closed), Forked.
        """
        try:
            error = self._give_back()
        except BaseException:
            self._abandon()
            raise
        if error is not None:
            raise error

    def extend(self, lease: Optional[Seconds] = None) -> None:
        """Sets the lease anew: it ends in `lease` seconds from now; None: in the lease of the lock. Meant for `fixed`
        leases; a grant that is renewed automatically is renewed now, which tells whether the server still has it.
        Raises Lost if not, NotOwner after the release."""
        self._check()
        self._handle.extend(lease)

    def guard(self, group: int) -> None:
        """Puts a process group, which works under this grant alone, under the guardian of the client; 0 takes it back, as
        does the release. Raises Lost if the grant has ended or the guardian has killed the group, NotOwner after the
        release."""
        self._check()
        self._handle.guard(group)

    def downgrade(self) -> None:
        """Turns an exclusive grant into a shared one, without a writer in between. Raises NotOwner after the release."""
        self._check()
        self._handle.downgrade()

    def export(self) -> str:
        """Turns the grant into a ticket for `Client.import_grant` in another process, and ends it here. It is not
        renewed until the import. Any process with the ticket can take the lock: keep it private. Raises NotOwner after
        the release."""
        self._check()
        ticket = self._handle.export()
        self._end()
        return ticket

    def __enter__(self) -> Grant:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], body: Optional[BaseException], trace: Any) -> None:
        try:
            error = None if self._over else self._give_back()
        except BaseException:
            self._abandon()
            raise
        leaving(error, self.name, body)

    def _abandon(self) -> None:
        """Ends this grant after an exception of a signal handler, wherever in its acquisition or release that came.
        May be called twice."""
        self._end()
        if self._handle.client._pid == os.getpid() and self._handle.leave(self._entry):
            self._handle.abandon()

    def _give_back(self) -> Optional[errors.Error]:
        try:
            if self._ends():
                return self._handle.release()
            if self._handle.is_held():
                return None
            return self._handle.lost(f'lock "{self.name}" was lost')
        except errors.Error as error:
            return error
