"""Locks for asyncio: `AsyncClient`, `AsyncLock`, `AsyncGrant`.

The client is opened with DLOCK_CLIENT_MANUAL: the event loop watches the library's descriptor, and all callbacks run in
the loop. No thread waits, however many tasks do.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import weakref
from typing import Any, Awaitable, Callable, Coroutine, List, Literal, Optional, Set, Tuple, Type, TypeVar, Union
from typing import overload

from . import _abi, _callbacks, errors
from ._abi import lib
from ._block import Block, check_cancel
from ._native import Handle, NativeClient, OnEvent, OnLost, Terms, logger
from ._values import Finding, Holder, Seconds, asynchronous, callback, finished, timeout_milliseconds
from .client import BaseClient, Name
from .grant import BaseGrant, Kept, leaving
from .lock import UNSET, Unset, check_try

Function = TypeVar("Function", bound=Callable[..., Awaitable[Any]])
Result = TypeVar("Result")


class _Loop:
    """The event loop that dispatches for a client."""

    def __init__(self, native: NativeClient) -> None:
        self.native = native
        self.loop: Optional[asyncio.AbstractEventLoop] = None
        self.fd = -1
        self.closing = False
        self.tasks: Set[asyncio.Future[Any]] = set()  # tasks of on_lost: the loop itself keeps weak references only

    def bind(self) -> asyncio.AbstractEventLoop:
        """Returns the running loop. From the first call on it is the client's loop, until it is closed; raises
        RuntimeError in another one."""
        loop = asyncio.get_running_loop()
        if self.closing:
            raise errors.Canceled("the client is closed")
        if self.loop is loop:
            return loop
        if self.loop is not None and not self.loop.is_closed():
            raise RuntimeError("the dlock client belongs to another event loop; open one for each")
        self.fd = lib.dlock_client_fd(self.native.pointer)
        loop.add_reader(self.fd, _dispatch, weakref.ref(self.native))
        self.loop = loop
        return loop

    def unbind(self) -> None:
        """Removes the descriptor from the loop; to be called before the client is closed."""
        self.closing = True
        if self.loop is not None and not self.loop.is_closed():
            self.loop.remove_reader(self.fd)

    def __del__(self) -> None:
        # Clients, grants and requests refer to this object: now no callback is awaited any more.
        loop = self.loop
        if loop is None or self.closing or loop.is_closed():
            return
        if asyncio._get_running_loop() is loop or not loop.is_running():
            self.unbind()
        else:
            loop.call_soon_threadsafe(_unwatch, loop, self.fd, self.native)

    async def elsewhere(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Calls a blocking function in a thread of the loop's executor."""
        return await self.bind().run_in_executor(None, functools.partial(function, *arguments))

    def lost(self, on_lost: OnLost) -> OnLost:
        """Wraps on_lost: a coroutine becomes a task, an exception goes to the loop's exception handler."""
        callback(on_lost, "on_lost")
        if on_lost is None:
            return None
        told = on_lost

        def call(lost: errors.Lost) -> None:
            loop = self.loop
            try:
                result = told(lost)
                if loop is not None and inspect.isawaitable(result):
                    task = asyncio.ensure_future(result, loop=loop)
                    self.tasks.add(task)
                    task.add_done_callback(self.tasks.discard)
                else:
                    finished(told, result)
            except Exception as failure:
                if loop is None:
                    raise
                loop.call_exception_handler({"message": "on_lost of a dlock lock failed", "exception": failure})

        return call


def _unwatch(loop: asyncio.AbstractEventLoop, fd: int, native: NativeClient) -> None:
    """Removes the descriptor of a client from the loop. Until then `native` keeps it open, so that its number is not
    used for another one."""
    loop.remove_reader(fd)


def _dispatch(native_of: weakref.ref[NativeClient]) -> None:
    native = native_of()
    if native is not None and not native.closed:
        _callbacks.calling_back(lib.dlock_client_dispatch, native.pointer)


class _Request:
    """An asynchronous call of the library. When it has ended, the future `ended` has the error, or None."""

    def __init__(self, owner: _Loop, loop: asyncio.AbstractEventLoop, handle: Handle) -> None:
        self.handle = handle  # keeps the handle alive until the end
        self._owner = owner  # keeps dispatching until the end
        self.ended: asyncio.Future[Optional[errors.Error]] = loop.create_future()
        self._loop = loop
        self._number = _callbacks.register(self._told)
        self._told_code: Optional[int] = None
        self._given_up = False

    def start(self, function: Callable[..., int], *arguments: Any) -> _Request:
        """Begins the call; raises an error that the library returns at once."""
        code = function(self.handle.pointer, *arguments, _callbacks.ended, self._number)
        if code != 0:
            _callbacks.forget(self._number)
            raise errors.make(code)
        return self

    def give_up(self) -> None:
        """Cancels an acquisition whose task no longer waits. A lock that is granted nevertheless is released."""
        self._given_up = True
        self.handle.cancel()
        self._give_back()

    def _told(self, err: Any, lock: int) -> None:
        # Runs in the loop's thread, while it dispatches; during close() in another thread.
        _callbacks.forget(self._number)
        error = errors.from_struct(err) if err else None
        self._told_code = error.code if error else 0
        if self._given_up:
            self._give_back()
        try:
            self._loop.call_soon_threadsafe(self._settle, error)  # a handle without other references is freed there
        except RuntimeError:
            pass  # the loop is closed, so no task waits

    def _settle(self, error: Optional[errors.Error]) -> None:
        if not self.ended.done():
            self.ended.set_result(error)

    def _give_back(self) -> None:
        if self._told_code != 0:
            return
        try:
            _Request(self._owner, self._loop, self.handle).start(lib.dlock_release_async)
        except errors.Error:
            pass  # the client's end has released it, or that of the handle will; the task ends as cancelled all the same


class AsyncGrant(BaseGrant):
    """A grant of an `AsyncLock`; `async with grant:` releases it at the end. Any task may use it."""

    def __init__(
        self, handle: Handle, loop: _Loop, kept: Optional[Kept[Any]] = None, cancel_on_lost: bool = False
    ) -> None:
        super().__init__(handle, kept=kept)
        self._loop = loop
        self._cancel_on_lost = cancel_on_lost
        self._block: Optional[Block] = None

    async def release(self) -> None:
        """Releases the lock. Raises the errors of `Grant.release`. If the task is cancelled, the release goes on in the
        background."""
        error = await self._give_back()
        if error is not None:
            raise error

    async def extend(self, lease: Optional[Seconds] = None) -> None:
        """As `Grant.extend`."""
        self._check()
        await self._loop.elsewhere(self._handle.extend, lease)

    async def downgrade(self) -> None:
        """As `Grant.downgrade`."""
        self._check()
        await self._loop.elsewhere(self._handle.downgrade)

    async def export(self) -> str:
        """As `Grant.export`."""
        self._check()
        ticket = await self._loop.elsewhere(self._handle.export)
        self._end()
        return ticket

    async def __aenter__(self) -> AsyncGrant:
        self._begin_block()
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], body: Optional[BaseException], trace: Any) -> None:
        lost = self._end_block(body)
        error = None if self._over else await self._give_back()
        if lost is not None:
            raise lost from body
        leaving(error, self.name, body)

    def _begin_block(self) -> None:
        """From now on a loss cancels the running task, if the lock says so."""
        if not self._cancel_on_lost or self._over or self._block is not None:
            return
        self._block = Block()
        self._handle.to_tell[self._block] = self._block.lose
        if not self._handle.is_held():
            self._block.lose(self._handle.lost(f'lock "{self.name}" was lost'))

    def _end_block(self, body: Optional[BaseException]) -> Optional[errors.Lost]:
        """As `Block.end`; None also if no block has begun."""
        block, self._block = self._block, None
        if block is None:
            return None
        self._handle.to_tell.pop(block, None)
        return block.end(body)

    async def _give_back(self) -> Optional[errors.Error]:
        why = self._handle.why_lost()
        try:
            loop = self._loop.bind()
            self._ends()
            request = _Request(self._loop, loop, self._handle).start(lib.dlock_release_async)
            return self._handle.detailed(await asyncio.shield(request.ended), why)
        except errors.Error as error:
            return self._handle.detailed(error, why)


class AsyncLock:
    """A lock of an `AsyncClient`: `async with lock as grant:`, or `acquire` and `release`. Tasks share it; each has its
    own grant.

    It is not reentrant: a second `async with` of the same name inside of the first raises Deadlock.
    """

    def __init__(
        self, client: AsyncClient, name: str, timeout: Optional[Seconds], terms: Terms, on_lost: OnLost,
        cancel_on_lost: bool,
    ) -> None:  # fmt: skip
        self._client = client
        self._name = name
        self._timeout = timeout
        self._terms = terms
        self._on_lost = client._loop.lost(on_lost)
        self._cancel_on_lost = cancel_on_lost
        check_cancel(cancel_on_lost)
        self._waiting: weakref.WeakSet[Handle] = weakref.WeakSet()
        self._kept: weakref.WeakKeyDictionary[Any, Kept[AsyncGrant]] = weakref.WeakKeyDictionary()  # by task
        timeout_milliseconds(timeout)
        client._native.new(name, terms, None)  # raises if the name or the mode is invalid

    @property
    def name(self) -> str:
        """The name of the lock."""
        return self._name

    @overload
    async def acquire(
        self, timeout: Union[Seconds, None, Unset] = ..., *, blocking: Literal[True] = ...
    ) -> AsyncGrant: ...  # fmt: skip
    @overload
    async def acquire(self, timeout: Union[Seconds, None, Unset] = ..., *, blocking: bool) -> Optional[AsyncGrant]: ...
    async def acquire(
        self, timeout: Union[Seconds, None, Unset] = UNSET, *, blocking: bool = True
    ) -> Optional[AsyncGrant]:
        """Waits for the lock and returns the grant. The lock keeps it as in `Lock.acquire`, for this task. Arguments and
        errors are those of `Lock.acquire`.

        If the task is cancelled, the wait ends at once; a lock that is granted nevertheless is released in the
        background.
        """
        if not blocking:
            check_try(timeout)
            return await self.try_acquire()
        ms = timeout_milliseconds(self._timeout if isinstance(timeout, Unset) else timeout)
        loop = self._client._loop.bind()
        handle = self._handle()
        self._waiting.add(handle)
        try:
            request = _Request(self._client._loop, loop, handle).start(lib.dlock_acquire_async, ms)
            try:
                error = await request.ended
            except (asyncio.CancelledError, GeneratorExit):  # the latter if the loop ends before the task does
                request.give_up()
                raise
        finally:
            self._waiting.discard(handle)
        if error is not None:
            raise error
        handle.enter()
        kept = self._kept.setdefault(asyncio.current_task(), Kept())
        grant = self._grant(handle, kept)
        kept[grant] = None
        return grant

    async def release(self) -> None:
        """As `Lock.release`, of what this task has acquired."""
        await self._kept.get(asyncio.current_task(), Kept[AsyncGrant]()).last(self._name, "task").release()

    async def try_acquire(self) -> Optional[AsyncGrant]:
        """Tries once. Returns the grant, or None if the lock is held by another owner. Raises other errors."""
        try:
            return await self.acquire(0)
        except errors.Busy:
            return None

    async def locked(self) -> bool:
        """As `Lock.locked`."""
        return bool(await self._client.inspect(self._name))

    def cancel(self) -> None:
        """Ends the waits of all tasks in `acquire` of this object with Canceled. Later waits are not affected."""
        for handle in list(self._waiting):
            handle.cancel()

    async def __aenter__(self) -> AsyncGrant:
        entered = self._client._entered_here()
        if any(self._collides(grant) for _, grant in entered):
            raise errors.Deadlock(f'lock "{self._name}" is held by this task already')
        grant = await self.acquire()
        grant._begin_block()
        entered.append((self, grant))
        return grant

    async def __aexit__(self, kind: Optional[Type[BaseException]], body: Optional[BaseException], trace: Any) -> None:
        entered = self._client._entered_here()
        at = next((i for i in reversed(range(len(entered))) if entered[i][0] is self), None)
        if at is None:
            raise RuntimeError(
                f"the block of lock {self._name!r} was entered by another task; use acquire() and `async with grant:`"
            )
        await entered.pop(at)[1].__aexit__(kind, body, trace)

    def _handle(self) -> Handle:
        """Makes a handle for one acquisition. A block may add an on_lost to it."""
        return self._client._native.new(self._name, self._terms, self._on_lost, self._cancel_on_lost)

    def _grant(self, handle: Handle, kept: Optional[Kept[AsyncGrant]] = None) -> AsyncGrant:
        return AsyncGrant(handle, self._client._loop, kept, self._cancel_on_lost)

    def _collides(self, other: AsyncGrant) -> bool:
        """True if a task that has the grant `other` would wait for itself."""
        modes = {self._terms.mode, other._handle.mode}
        if other.name != self._name or other._over:
            return False
        return _abi.PERMIT not in modes and _abi.EXCLUSIVE in modes

    def __repr__(self) -> str:
        return f"<AsyncLock {self._name!r}>"


class AsyncClient(BaseClient):
    """A client for asyncio. It belongs to the event loop in which it is used first.

        async with dlock.AsyncClient("redis://locks.example") as client:
            async with client.lock("nightly-report", timeout=5) as grant:
                await write_report(fence=grant.fence)

    No method blocks the loop. So the client connects with the first operation; with `lazy=False` the constructor
    connects, blocking, and raises at once for a wrong address or password, for programs that open it before their loop
    runs. The other arguments are those of `Client`. Renewals run in dlock's own threads, however busy the loop is.
    """

    def __init__(
        self, uri: str, *, lazy: bool = True, guardian: bool = False, log: Optional[logging.Logger] = logger,
        label: Optional[str] = None, on_event: OnEvent = None,
    ) -> None:  # fmt: skip
        flags = _abi.CLIENT_MANUAL | lazy * _abi.CLIENT_LAZY | guardian * _abi.CLIENT_GUARDIAN
        self._native = NativeClient(uri, flags, log, label, on_event)
        self._loop = _Loop(self._native)
        self._entered: weakref.WeakKeyDictionary[Any, List[Tuple[AsyncLock, AsyncGrant]]]
        self._entered = weakref.WeakKeyDictionary()

    def lock(
        self, name: str, *, timeout: Optional[Seconds] = None, shared: bool = False, permits: Optional[int] = None,
        lease: Optional[Seconds] = None, fixed: bool = False, on_lost: OnLost = None, cancel_on_lost: bool = False,
    ) -> AsyncLock:  # fmt: skip
        """Makes a lock called `name`. The arguments are those of `Client.lock`, except `reentrant`.

        on_lost runs in the loop, when the loop gets to it, and may be a coroutine function.
        cancel_on_lost: when the grant is lost, the block (`async with`) is cancelled and raises Lost, as the block of
        asyncio.timeout raises TimeoutError. Needs Python 3.11.
        """
        return AsyncLock(self, name, timeout, Terms.of(shared, permits, lease, fixed), on_lost, cancel_on_lost)

    @overload
    def locked(
        self, name: Name, *, pass_grant: Literal[False] = ..., **options: Any
    ) -> Callable[[Function], Function]: ...
    @overload
    def locked(
        self, name: Name, *, pass_grant: Literal[True], **options: Any
    ) -> Callable[[Callable[..., Awaitable[Result]]], Callable[..., Coroutine[Any, Any, Result]]]: ...
    def locked(self, name: Name, *, pass_grant: bool = False, **options: Any) -> Any:
        """Decorates a coroutine function, as `Client.locked` decorates a function."""

        def decorate(function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
            if not asynchronous(function):
                raise TypeError(
                    f"{function!r} is not a coroutine function: use Client.locked, or await it in an `async def`"
                )
            same = None if callable(name) else self.lock(name, **options)

            @functools.wraps(function)
            async def call(*args: Any, **kwargs: Any) -> Any:
                async with same or self.lock(name(*args, **kwargs), **options) as grant:  # type: ignore[operator]
                    result = await (function(*args, **kwargs, grant=grant) if pass_grant else function(*args, **kwargs))
                    return finished(function, result)

            return call

        return decorate

    async def import_grant(self, ticket: str, *, on_lost: OnLost = None) -> AsyncGrant:
        """As `Client.import_grant`."""
        handle = await self._loop.elsewhere(self._native.imported, ticket, self._loop.lost(on_lost))
        return AsyncGrant(handle, self._loop)

    def grants(self) -> List[AsyncGrant]:
        """As `Client.grants`."""
        return [grant for grant in self._native.grants() if grant.held]

    async def healthy(self, *, max_age: Seconds = 10) -> bool:
        """As `Client.healthy`."""
        return not self._loop.closing and await self._loop.elsewhere(self._native.healthy, max_age)

    async def inspect(self, name: str) -> List[Holder]:
        """As `Client.inspect`."""
        return await self._loop.elsewhere(self._native.inspect, name)

    async def waiters(self, name: str) -> List[Holder]:
        """As `Client.waiters`."""
        return await self._loop.elsewhere(self._native.waiters, name)

    async def list_locks(self, prefix: str = "") -> List[Holder]:
        """As `Client.list_locks`."""
        return await self._loop.elsewhere(self._native.list, prefix)

    async def break_lock(self, name: str) -> None:
        """As `Client.break_lock`."""
        await self._loop.elsewhere(self._native.break_lock, name)

    async def check(self) -> List[Finding]:
        """As `Client.check`."""
        return await self._loop.elsewhere(self._native.check)

    def stop(self) -> None:
        """As `Client.stop`."""
        self._native.stop()

    async def close(self, *, timeout: Optional[Seconds] = None) -> None:
        """Ends waits with Canceled and releases all locks, without blocking the loop. Takes at most `timeout` seconds, as
        `Client.close`. May be called twice."""
        self._loop.unbind()
        await asyncio.get_running_loop().run_in_executor(None, self._native.close, timeout)

    async def __aenter__(self) -> AsyncClient:
        self._loop.bind()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    def _entered_here(self) -> List[Tuple[AsyncLock, AsyncGrant]]:
        """Returns the locks and grants of the with-blocks that the running task is in."""
        return self._entered.setdefault(asyncio.current_task(), [])
