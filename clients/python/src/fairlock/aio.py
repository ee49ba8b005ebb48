"""The same for asyncio: `async with locks("orders", wait=30, lease=10) as held:`."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator, Coroutine
from types import TracebackType
from typing import Any, Unpack

import redis as blocking
import redis.asyncio as redis
import redis.exceptions as redis_errors

from ._asks import LEAVE, Ask
from ._core import Core, Hold
from ._face import AnyHeld, AnyLocks
from ._io import CLOSED, IDLE, Io, pushes
from ._options import Info, LockOptions, LocksOptions

__all__ = ["Held", "Locks", "Lost"]


class Lost(asyncio.Event):
    """Is set once, when the lock is known to be lost, which has a `cause` then."""

    cause: str | None = None


class NodePool:
    """The connections of a cluster's node as a pool."""

    def __init__(self, node: Any) -> None:
        self.node, self.free = node, list[Any]()

    async def get_connection(self, *_: str) -> Any:
        connection = self.free.pop() if self.free else self.node.acquire_connection()
        try:
            await connection.connect()
        except BaseException:
            await self.release(connection)
            raise
        return connection

    async def release(self, connection: Any) -> None:
        getattr(self.node, "release", self.free.append)(connection)  # Older nodes take none back.


class Tasks(Io):
    """Its coroutines run in tasks of their own: that of a cancelled caller goes on until it has left the queue."""

    mutex, bell, gate, lost = asyncio.Lock, asyncio.Event, asyncio.Queue, Lost

    def begin(self) -> None:
        super().begin()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.tasks, self.timers, self.pools = set[asyncio.Task[Any]](), dict[Any, asyncio.TimerHandle](), dict[str, NodePool]()
        self.timer = self
        self.holders: weakref.WeakKeyDictionary[asyncio.Task[Any], dict[Any, Hold]] = weakref.WeakKeyDictionary()

    @contextlib.asynccontextmanager
    async def within(self, seconds: float) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(seconds):
                yield
        except CLOSED as error:
            raise redis_errors.ConnectionError(f"closed by the client: {error}") from error
        except TimeoutError as error:
            # Perhaps redis-py paused before another try to connect: why the last one failed.
            last = error.__cause__ and error.__cause__.__context__
            if not isinstance(last, redis_errors.ConnectionError):
                raise
            raise last from last.__cause__ or last.__context__

    async def exchange(self, pool: Any, commands: list[Any], timeout: float) -> list[Any]:
        async with self.within(timeout):
            return await super().exchange(pool, commands, timeout)

    async def replies(self, connection: Any, commands: list[Any], _: float) -> list[Any]:
        # The time is limited by `exchange`; the library, too, would make a task for each command to do it.
        limit, connection.socket_timeout = connection.socket_timeout, None
        replies: list[Any] = []
        try:
            await connection.send_packed_command(connection.pack_commands(commands))
            for _command in commands:
                try:
                    replies.append(await connection.read_response(disable_decoding=True))
                except redis_errors.ResponseError as error:
                    replies.append(error)
        finally:
            connection.socket_timeout = limit
        return replies

    async def receive(self, connection: Any) -> Any:
        return await connection.read_response(disable_decoding=True, timeout=IDLE, **pushes(connection))

    async def rung(self, bell: asyncio.Event, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await bell.wait()
        is_rung = bell.is_set()
        bell.clear()
        return is_rung

    async def enter(self, gate: asyncio.Queue[None], seconds: float) -> None:
        async with asyncio.timeout(seconds):
            await gate.get()

    @staticmethod
    def run(work: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
        return work

    async def acquire(self, ask: Ask) -> Any:
        got = list[Any]()  # Not the task's result: a timeout that was in it can keep the task, and with it a lock that nobody has.

        async def acquire() -> None:
            got.append(await self.core.acquire(ask))

        task = self.start(acquire())
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as cancelled:
            self.core.stop(ask, cancelled)
            task.add_done_callback(lambda task: self._give_back(task, got))
            await asyncio.wait([task], timeout=LEAVE)
            raise
        return got.pop()

    def _give_back(self, task: asyncio.Task[Any], got: list[Any]) -> None:
        """What was granted in the moment in which the caller was cancelled."""
        if not task.cancelled() and task.exception() is None:
            self.start(self.quietly(self.core.release, got.pop()._hold))

    async def to_its_end(self, work: Coroutine[Any, Any, None]) -> None:
        await asyncio.shield(self.start(work))

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        loop = asyncio.get_running_loop()
        self.loop = self.loop or loop
        if self.loop is not loop:
            work.close()
            raise RuntimeError(
                "this Locks was first used in another event loop: make it, and its client, in the coroutine that is given to "
                "asyncio.run, one for each run"
            )
        task = loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def set(self, it: Any, when: float) -> None:
        self.clear(it)
        self.timers[it] = asyncio.get_running_loop().call_later(max(0.0, when - Core.now()), self._due, it)

    def _due(self, it: Any) -> None:
        del self.timers[it]
        self.start(self.quietly(self.core.due, it))

    def clear(self, it: Any) -> None:
        timer = self.timers.pop(it, None)
        if timer is not None:
            timer.cancel()

    def in_child(self, _: object) -> None:
        """The client's connections belong to the parent's event loop: `start` refuses in another."""

    def pool_of(self, node: Any) -> NodePool:
        if node.name not in self.pools or self.pools[node.name].node is not node:
            self.pools[node.name] = NodePool(node)
        return self.pools[node.name]

    def mine(self) -> dict[Any, Hold]:
        """The reentrant holds of this task."""
        task = asyncio.current_task()
        assert task is not None
        return self.holders.setdefault(task, {})


class Held(AnyHeld[Coroutine[Any, Any, float], Coroutine[Any, Any, None]]):
    """A lock that is held, to be released by `release()` or by the end of an `async with`."""

    lost: Lost

    async def __aenter__(self) -> Held:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._release(error)


class Locks(AnyLocks[Coroutine[Any, Any, Held], Coroutine[Any, Any, Held | None], Coroutine[Any, Any, Info]]):
    """Takes fair locks by a client of redis.asyncio: of one server, of Sentinel's master, or of a cluster. The client carries every command.

    Options, in seconds, are defaults for its locks; see clients/README.md. It belongs to the event loop in which it is first used.
    """

    def __init__(self, client: redis.Redis | redis.RedisCluster, **options: Unpack[LocksOptions]) -> None:
        self._begin(Tasks(client, redis, blocking), Held, options)

    @contextlib.asynccontextmanager
    async def __call__(self, name: str | bytes, **options: Unpack[LockOptions]) -> AsyncIterator[Held]:
        """Holds the lock for the length of an `async with` block, or of a function that it decorates."""
        async with await self.acquire(name, **options) as held:
            yield held

    async def aclose(self) -> None:
        """Ends all waits (Closed); locks that are held are lost. The client stays open."""
        await self._core.close()

    async def __aenter__(self) -> Locks:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
