"""Locks for threads."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from types import SimpleNamespace, TracebackType
from typing import Any, TypeVar, Unpack

import redis
import redis.asyncio
import redis.exceptions as redis_errors
from redis.retry import Retry

from . import _errors as errors
from ._core import Core
from ._ears import ThreadEar
from ._keep import Keep
from ._lines import Ear, Line, Lines
from ._options import Info, LockOptions, LocksOptions, Options, check_name
from ._route import Address, Route

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that never suspends."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise RuntimeError("a coroutine of the threads' own has suspended")


class ThreadLine(Line):
    """A blocking connection."""

    def __init__(self, connection: Any, address: Address | None) -> None:
        super().__init__(address)
        self.connection = connection

    async def exchange(self, words: tuple[Any, ...], timeout: float | None, blocks: bool) -> Any:
        return await self.noted(self._exchange(words, timeout))

    async def _exchange(self, words: tuple[Any, ...], timeout: float | None) -> Any:
        if self.connection._sock is None:  # It would connect again by itself.
            raise redis_errors.ConnectionError("the connection has closed")
        self.connection.send_command(*words)
        if not self.connection.can_read(timeout):
            raise redis_errors.TimeoutError("no answer in time")
        return self.connection.read_response()

    async def hear(self, timeout: float) -> Any:
        return self.connection.read_response() if self.connection.can_read(timeout) else None

    def send(self, *words: Any) -> None:
        self.connection.send_command(*words)

    def cut(self) -> None:
        sock = self.connection._sock
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    async def close(self) -> None:
        self.connection.disconnect()

    def fileno(self) -> int:
        return int(self.connection._sock.fileno())


class Mutex:
    """A lock for the coroutines of threads, which block."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    async def __aenter__(self) -> None:
        self.lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        self.lock.release()


class Clock:
    """One thread that starts others at their times. It ends by itself when it is no longer needed."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.entries: list[tuple[float, int, list[Callable[[], Any] | None]]] = []
        self.numbers = itertools.count()
        self.cancelled = 0
        self.thread: threading.Thread | None = None

    def later(self, seconds: float, work: Callable[[], Any]) -> Callable[[], None]:
        if seconds <= 0:
            self.start(work)
            return lambda: None
        cell: list[Callable[[], Any] | None] = [work]
        entry = (time.monotonic() + seconds, next(self.numbers), cell)
        with self.changed:
            heapq.heappush(self.entries, entry)
            if self.thread is None:
                self.thread = threading.Thread(target=self.tick, name="fairlock-clock", daemon=True)
                self.thread.start()
            elif self.entries[0] is entry:
                self.changed.notify()
        return lambda: self.cancel(cell)

    def cancel(self, cell: list[Callable[[], Any] | None]) -> None:
        with self.changed:
            if cell[0] is None:
                return
            cell[0] = None
            self.cancelled += 1
            # Locks that are held for a moment would leave an entry for ten seconds.
            if self.cancelled > 50 and self.cancelled * 2 > len(self.entries):
                self.entries = [entry for entry in self.entries if entry[2][0] is not None]
                heapq.heapify(self.entries)
                self.cancelled = 0

    def tick(self) -> None:
        while True:
            with self.changed:
                if not self.entries:
                    self.thread = None
                    return
                due, _, cell = self.entries[0]
                left = due - time.monotonic()
                if left > 0:
                    self.changed.wait(left)
                    continue
                heapq.heappop(self.entries)
                work, cell[0] = cell[0], None
                if work is None:
                    self.cancelled = max(0, self.cancelled - 1)
            if work is not None:
                self.start(work)

    @staticmethod
    def start(work: Callable[[], Any]) -> None:
        threading.Thread(target=lambda: run(work()), name="fairlock", daemon=True).start()


class Lost:
    """Fires once, when the lock is known to be lost."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.cause: str | None = None

    def _set(self, cause: str) -> None:
        self.cause = self.cause or cause
        self._event.set()

    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        return self._event.wait(timeout)

    def __repr__(self) -> str:
        return f"<fairlock.Lost cause={self.cause}>"


class Threads:
    """The Runtime of threads."""

    kinds = SimpleNamespace(
        client=redis.Redis,
        cluster=redis.RedisCluster,
        tcp=redis.Connection,
        ssl=redis.SSLConnection,
        retry=Retry,
        is_async=False,
        module="redis",
        locks="fairlock.Locks",
        others=(redis.asyncio.Redis, redis.asyncio.RedisCluster),
        other="fairlock.aio.Locks",
    )

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.clock = Clock()
        self.changed = threading.Condition()
        self.is_woken = False
        self.local = threading.local()

    now = staticmethod(time.monotonic)
    blocks = True
    mutex = Mutex
    gate = contextlib.nullcontext
    new_lost = Lost

    def check(self) -> None:
        """Any thread may use it."""

    async def open(self, route: Route, address: Address | None) -> Line:
        connection = route.connection(address)
        connection.connect()
        return ThreadLine(connection, address)

    async def listen(self, lines: Lines, address: Address | None, verb: str, channel: bytes) -> Ear:
        line = await lines.take("wake", address)
        ear = ThreadEar(lines, line, verb, channel)
        try:
            await ear.begin()
        except BaseException:
            line.abort()
            await lines.give(line)
            raise
        return ear

    async def adopt(self, route: Route) -> None:
        route.adopt(route.client.get_default_node(), route.client.get_nodes())

    async def sleep(self, seconds: float) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self.is_woken, seconds)

    async def finish(self, work: Any) -> Any:
        return await work

    def later(self, seconds: float, work: Callable[[], Any]) -> Callable[[], None]:
        return self.clock.later(seconds, work)

    def mine(self) -> dict[Any, Any]:
        if not hasattr(self.local, "held"):
            self.local.held = {}
        held: dict[Any, Any] = self.local.held
        return held

    async def until(self, condition: Callable[[], bool], longest: float) -> None:
        with self.changed:
            self.is_woken = True
            self.changed.notify_all()
            self.changed.wait_for(condition, longest)

    def wake(self) -> None:
        with self.changed:
            self.changed.notify_all()


class Held:
    """A lock that is held, to be released by `release()` or by the end of a `with`."""

    def __init__(self, keep: Keep) -> None:
        self._keep = keep
        keep.belongs_to(self)
        self.name, self.owner, self.token = keep.name, keep.owner, keep.token
        self.lost: Lost = keep.lost

    def renew(self, lease: float | None = None) -> float:
        """Sets the lease anew, to its own length or another; returns the new lease in seconds."""
        return run(self._keep.renew(lease))

    def release(self) -> None:
        """Gives up the lock. LockLost: it was lost before. Releasing again does nothing."""
        run(self._keep.release())

    def __enter__(self) -> Held:
        thread = threading.current_thread()
        self._keep.is_holder_gone = lambda: not thread.is_alive()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self.release()
        except errors.FairlockError as failed:
            if error is None:
                raise
            error.add_note(f"fairlock: the release failed, too: {failed}")

    def __repr__(self) -> str:
        return f"<fairlock.Held {self.name!r} {self._keep.state} token={self.token}>"


class Lock:
    """A lock to be held for the length of a `with` block."""

    def __init__(self, locks: Locks, name: str | bytes, options: Options) -> None:
        self._locks, self._name, self._options = locks, name, options
        self._held: Held | None = None

    def __enter__(self) -> Held:
        if self._held is not None:
            raise RuntimeError("this object is in use: ask for the lock by another")
        self._held = self._locks._acquire(self._name, self._options)
        return self._held.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        held, self._held = self._held, None
        assert held is not None
        held.__exit__(kind, error, at)

    def __repr__(self) -> str:
        return f"<fairlock.Lock {self._name!r}>"


class Locks:
    """Takes fair locks at the servers of a redis-py client: one server, Sentinel's master, or a cluster.

    Options, in seconds, are defaults for its locks; see the package's README. It has connections of its own, and
    leaves the client alone.
    """

    def __init__(self, client: redis.Redis | redis.RedisCluster, **options: Unpack[LocksOptions]) -> None:
        self._options = Options().but(options, LocksOptions)
        runtime = Threads()
        self._core = Core(runtime, Route(client, runtime.kinds, self._options.command_timeout), self._options)

    def __call__(self, name: str | bytes, **options: Unpack[LockOptions]) -> Lock:
        check_name(name)
        return Lock(self, name, self._options.but(options))

    def acquire(self, name: str | bytes, **options: Unpack[LockOptions]) -> Held:
        """The lock, to be released by `held.release()`. NotInTime: not within `wait`."""
        return self._acquire(name, self._options.but(options))

    def try_acquire(self, name: str | bytes, **options: Unpack[LockOptions]) -> Held | None:
        """The lock if it is available at once, else None."""
        try:
            return self._acquire(name, self._options.but({**options, "wait": 0}))
        except errors.NotReplicated:
            raise
        except errors.NotInTime:
            return None

    def info(self, name: str | bytes) -> Info:
        """The lock's holder, its lease, and how many wait for it."""
        return run(self._core.info(name))

    @property
    def native(self) -> bool | None:
        """Whether the server has the module; False: locks are taken by scripts. None: it was not asked yet."""
        return self._core.lines.module.is_native

    def _acquire(self, name: str | bytes, options: Options) -> Held:
        keep = run(self._core.acquire(name, options))
        with self._core.mutex:
            return keep.held() if isinstance(keep.held(), Held) else Held(keep)

    def close(self) -> None:
        """Ends all waits (Closed) and closes the connections; locks that are held are lost."""
        run(self._core.close())

    def __enter__(self) -> Locks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<fairlock.Locks {self._core.route.describe(None)}>"
