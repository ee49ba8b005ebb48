"""The same for asyncio: `async with locks("orders", wait=30, lease=10) as held:`."""

from __future__ import annotations

import asyncio
import functools
import weakref
from collections.abc import Callable, Coroutine
from types import SimpleNamespace, TracebackType
from typing import Any, Unpack

import redis as blocking
import redis.asyncio as redis
import redis.exceptions as redis_errors
from redis.asyncio.retry import Retry

from . import _errors as errors
from ._core import Core
from ._ears import Board
from ._keep import Keep
from ._lines import MAX_IDLE, Ear, Line, Lines
from ._options import Info, LockOptions, LocksOptions, Options, check_name
from ._route import Address, Route

__all__ = ["Held", "Lock", "Locks", "Lost"]


class TaskLine(Line):
    """A connection of the package."""

    def __init__(self, connection: Any, address: Address | None) -> None:
        super().__init__(address)
        self.connection = connection

    async def exchange(self, words: tuple[Any, ...], timeout: float | None, blocks: bool) -> Any:
        if blocks:
            return await self.noted(self._exchange(words, timeout))
        # Even a cancelled caller awaits an answer that comes at once: otherwise its withdrawal, on another connection,
        # could overtake its request.
        task = asyncio.ensure_future(self.noted(self._exchange(words, timeout)))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])
            raise

    async def _exchange(self, words: tuple[Any, ...], timeout: float | None) -> Any:
        async with asyncio.timeout(timeout):
            await self.connection.send_command(*words)
            return await self.connection.read_response()

    async def hear(self, timeout: float | None) -> Any:
        try:
            async with asyncio.timeout(timeout):
                return await self.connection.read_response(disconnect_on_error=False)
        except TimeoutError:
            return None

    def send(self, *words: Any) -> None:
        """Sends without awaiting an answer: others listen on the connection."""
        if self.connection._writer is None:
            raise redis_errors.ConnectionError("the connection has closed")
        self.connection._writer.writelines(self.connection.pack_command(*words))

    def cut(self) -> None:
        transport = getattr(self.connection._writer, "transport", None)  # fakeredis has none
        if transport is not None:
            transport.abort()

    async def close(self) -> None:
        await self.connection.disconnect(nowait=True)

    def fileno(self) -> int:
        return int(self.connection._writer.get_extra_info("socket").fileno())


class Lost:
    """Fires once, when the lock is known to be lost."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.cause: str | None = None

    def _set(self, cause: str) -> None:
        self.cause = self.cause or cause
        self._event.set()

    def is_set(self) -> bool:
        return self._event.is_set()

    async def wait(self) -> bool:
        return await self._event.wait()

    def __repr__(self) -> str:
        return f"<fairlock.aio.Lost cause={self.cause}>"


class Tasks:
    """The Runtime of asyncio."""

    kinds = SimpleNamespace(
        client=redis.Redis,
        cluster=redis.RedisCluster,
        tcp=redis.Connection,
        ssl=redis.SSLConnection,
        retry=Retry,
        is_async=True,
        module="redis.asyncio",
        locks="fairlock.aio.Locks",
        others=(blocking.Redis, blocking.RedisCluster),
        other="fairlock.Locks",
    )
    blocks = False
    mutex = asyncio.Lock
    # Thousands of tasks may acquire or renew at the same moment.
    gate = functools.partial(asyncio.Semaphore, MAX_IDLE)
    new_lost = Lost

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.closing = asyncio.Event()
        self.changed = asyncio.Event()
        self.holders: weakref.WeakKeyDictionary[asyncio.Task[Any], dict[Any, Any]] = weakref.WeakKeyDictionary()
        self.tasks: set[asyncio.Task[Any]] = set()
        self.boards: dict[Address | None, Board] = {}

    def check(self) -> None:
        """Connections belong to the event loop in which they were opened."""
        loop = asyncio.get_running_loop()
        self.loop = self.loop or loop
        if self.loop is not loop:
            raise RuntimeError(
                "this Locks was first used in another event loop: make it in the coroutine that is given to asyncio.run, "
                "one for each run"
            )

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def open(self, route: Route, address: Address | None) -> Line:
        connection = route.connection(address)
        try:
            async with asyncio.timeout(route.command_timeout):
                await connection.connect()
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return TaskLine(connection, address)

    async def adopt(self, route: Route) -> None:
        await route.client.initialize()
        route.adopt(route.client.get_default_node(), route.client.get_nodes())

    async def listen(self, lines: Lines, address: Address | None, verb: str, channel: bytes) -> Ear:
        if address not in self.boards:
            self.boards[address] = Board(self, lines, address)
        return await self.boards[address].listen(verb, channel)

    async def sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.closing.wait()
        except TimeoutError:
            return

    async def finish(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Goes on even if the caller is cancelled (again)."""
        return await asyncio.shield(self.start(work))

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def later(self, seconds: float, work: Callable[[], Any]) -> Callable[[], None]:
        loop = asyncio.get_running_loop()
        return loop.call_later(max(0.0, seconds), lambda: self.start(work())).cancel

    def mine(self) -> dict[Any, Any]:
        task = asyncio.current_task()
        assert task is not None
        return self.holders.setdefault(task, {})

    async def until(self, condition: Callable[[], bool], longest: float) -> None:
        self.closing.set()
        for board in self.boards.values():
            board.end_waits()
        end = self.now() + longest
        while not condition() and self.now() < end:
            self.changed.clear()
            try:
                async with asyncio.timeout_at(end):
                    await self.changed.wait()
            except TimeoutError:
                return

    def wake(self) -> None:
        self.changed.set()


class Held:
    """A lock that is held, to be released by `release()` or by the end of an `async with`."""

    def __init__(self, keep: Keep) -> None:
        self._keep = keep
        keep.belongs_to(self)
        self.name, self.owner, self.token = keep.name, keep.owner, keep.token
        self.lost: Lost = keep.lost

    async def renew(self, lease: float | None = None) -> float:
        """Sets the lease anew, to its own length or another; returns the new lease in seconds."""
        return await self._keep.renew(lease)

    async def release(self) -> None:
        """Gives up the lock. LockLost: it was lost before. Releasing again does nothing."""
        await self._keep.release()

    async def __aenter__(self) -> Held:
        task = asyncio.current_task()
        assert task is not None
        self._keep.is_holder_gone = task.done
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        try:
            await self.release()
        except errors.FairlockError as failed:
            if error is None:
                raise
            error.add_note(f"fairlock: the release failed, too: {failed}")

    def __repr__(self) -> str:
        return f"<fairlock.aio.Held {self.name!r} {self._keep.state} token={self.token}>"


class Lock:
    """A lock to be held for the length of an `async with` block."""

    def __init__(self, locks: Locks, name: str | bytes, options: Options) -> None:
        self._locks, self._name, self._options = locks, name, options
        self._held: Held | None = None

    async def __aenter__(self) -> Held:
        if self._held is not None:
            raise RuntimeError("this object is in use: ask for the lock by another")
        self._held = await self._locks._acquire(self._name, self._options)
        return await self._held.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        held, self._held = self._held, None
        assert held is not None
        await held.__aexit__(kind, error, at)

    def __repr__(self) -> str:
        return f"<fairlock.aio.Lock {self._name!r}>"


class Locks:
    """Takes fair locks at the servers of a client of redis.asyncio: one server, Sentinel's master, or a cluster.

    Options, in seconds, are defaults for its locks; see the package's README. It has connections of its own, and
    leaves the client alone. It belongs to the event loop in which it is first used.
    """

    def __init__(self, client: redis.Redis | redis.RedisCluster, **options: Unpack[LocksOptions]) -> None:
        self._options = Options().but(options, LocksOptions)
        runtime = Tasks()
        self._core = Core(runtime, Route(client, runtime.kinds, self._options.command_timeout), self._options)

    def __call__(self, name: str | bytes, **options: Unpack[LockOptions]) -> Lock:
        check_name(name)
        return Lock(self, name, self._options.but(options))

    async def acquire(self, name: str | bytes, **options: Unpack[LockOptions]) -> Held:
        """The lock, to be released by `held.release()`. NotInTime: not within `wait`."""
        return await self._acquire(name, self._options.but(options))

    async def try_acquire(self, name: str | bytes, **options: Unpack[LockOptions]) -> Held | None:
        """The lock if it is available at once, else None."""
        try:
            return await self._acquire(name, self._options.but({**options, "wait": 0}))
        except errors.NotReplicated:
            raise
        except errors.NotInTime:
            return None

    async def info(self, name: str | bytes) -> Info:
        """The lock's holder, its lease, and how many wait for it."""
        return await self._core.info(name)

    @property
    def native(self) -> bool | None:
        """Whether the server has the module; False: locks are taken by scripts. None: it was not asked yet."""
        return self._core.lines.module.is_native

    async def _acquire(self, name: str | bytes, options: Options) -> Held:
        keep = await self._core.acquire(name, options)
        return keep.held() if isinstance(keep.held(), Held) else Held(keep)

    async def aclose(self) -> None:
        """Ends all waits (Closed) and closes the connections; locks that are held are lost."""
        await self._core.close()

    async def __aenter__(self) -> Locks:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<fairlock.aio.Locks {self._core.route.describe(None)}>"
