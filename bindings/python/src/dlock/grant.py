"""What one acquisition of a lock gives: `Grant`, and what that of asyncio shares with it."""

from __future__ import annotations

from typing import Any, Callable, Optional, Type

from . import errors
from ._native import Handle, logger
from ._values import Seconds

OnLost = Optional[Callable[[errors.Lost], Any]]


def leaving(error: Optional[errors.Error], name: str, body: Optional[BaseException]) -> None:
    """The end of a with-block whose release said `error`: raises it, unless the block has raised `body` already.

    That the server does not answer a release is no failure of the work, which the lock protected to its end.
    """
    if error is None:
        return
    if body is None and not isinstance(error, errors.Unavailable):
        raise error
    logger.warning("release of lock %r: %s", name, error)
    if body is not None and hasattr(body, "add_note"):
        body.add_note(f"And the release of lock {name!r} said: {error}")


class BaseGrant:
    """What grants for threads and for asyncio share. Any thread may use a grant."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._over = False
        handle.current_fence()  # known from now on, whatever becomes of the grant

    @property
    def name(self) -> str:
        """The name of the lock."""
        return self._handle.name

    @property
    def fence(self) -> int:
        """The fence: greater than that of every earlier grant of the name. Hand it to whatever the lock protects, and
        let that refuse smaller ones. After a release it is still the last one."""
        return self._handle.current_fence()

    @property
    def held(self) -> bool:
        """Whether the grant is in force: cheap enough for the condition of a loop. Asks no server."""
        return not self._over and self._handle.is_held()

    @property
    def remaining(self) -> float:
        """For how many seconds the grant is in force without a further renewal; math.inf where it ends only with the
        process; 0.0 when it was lost or released."""
        return 0.0 if self._over else self._handle.remaining()

    @property
    def token(self) -> str:
        """The word that names the holder on the server."""
        return self._handle.token()

    def _ends(self) -> bool:
        """The caller leaves. True: nothing else of the same owner is inside, and the lock is to be released."""
        self._handle.client.check_process()
        with self._handle.mutex:
            if self._over:
                raise errors.NotOwner(f"the grant of lock {self.name!r} is released already")
            self._over = True
        return self._handle.leave()

    def __repr__(self) -> str:
        state = "released" if self._over else "held" if self.held else "lost"
        return f"<{type(self).__name__} of {self.name!r}, fence {self.fence}, {state}>"


class Grant(BaseGrant):
    """One acquisition of a `Lock`; `with grant:` releases it at the end."""

    def release(self) -> None:
        """Gives the lock back. Blocks up to the URI's `timeout`.

        Raises Lost (it had ended before: somebody else may have worked meanwhile), Unavailable (no answer; it is not
        held any more all the same), NotOwner (released already), Canceled (the client is closed), Forked.
        """
        error = self._give_back()
        if error is not None:
            raise error

    def extend(self, lease: Optional[Seconds] = None) -> None:
        """Sets the lease anew: it ends in `lease` seconds from now, or in those of the lock. For `fixed` leases; one
        that is renewed by itself is renewed now, which asks the server whether it is still held."""
        self._handle.extend(lease)

    def downgrade(self) -> None:
        """Turns an exclusive grant into a shared one; no writer comes in between."""
        self._handle.downgrade()

    def export(self) -> str:
        """Turns the grant into a ticket for `Client.import_grant` in another process, and ends it here: nobody renews
        it until then. A ticket is as good as the grant: keep it private."""
        ticket = self._handle.export()
        self._over = True
        return ticket

    def __enter__(self) -> Grant:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], body: Optional[BaseException], trace: Any) -> None:
        if not self._over:
            leaving(self._give_back(), self.name, body)

    def _give_back(self) -> Optional[errors.Error]:
        if self._ends():
            return self._handle.release()
        if self._handle.is_held():
            return None
        return self._handle.lost(f'lock "{self.name}" was lost')
