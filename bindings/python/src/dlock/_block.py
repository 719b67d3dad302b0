"""`Block`: a block of an asyncio task that the loss of its grant cancels, as asyncio.timeout does at its end."""

from __future__ import annotations

import asyncio
import sys
import weakref
from typing import Any, Optional

from . import errors


def check_cancel(wanted: bool) -> None:
    """Refuses what needs Task.uncancel, which tells one cancellation from another."""
    if wanted and sys.version_info < (3, 11):
        raise RuntimeError("cancel_on_lost needs Python 3.11 or newer: use on_lost")


class Block:
    """The rest of the running task, until `end`."""

    def __init__(self) -> None:
        task: Any = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        self._task = weakref.ref(task)  # the library keeps this object: a task that nobody awaits can be collected
        self._before = task.cancelling()
        self._lost: Optional[errors.Lost] = None
        self._ended = False

    def lose(self, lost: errors.Lost) -> None:
        """The on_lost: cancels the task. Called in any thread."""
        try:
            self._loop.call_soon_threadsafe(self._cancel, lost)
        except RuntimeError:
            pass  # the loop is closed, and with it the task ended

    def _cancel(self, lost: errors.Lost) -> None:
        task = self._task()
        if task is not None and not self._ended and self._lost is None:
            self._lost = lost
            task.cancel()

    def end(self, body: Optional[BaseException]) -> Optional[errors.Lost]:
        """Ends the block, which has raised `body`. Returns the loss if that is its cancellation, and nobody else has
        cancelled the task."""
        self._ended = True
        task: Any = self._task()
        if self._lost is None or task.uncancel() > self._before or not isinstance(body, asyncio.CancelledError):
            return None
        return self._lost
