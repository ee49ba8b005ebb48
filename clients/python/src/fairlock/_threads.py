"""Locks for threads."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Coroutine, Iterator
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, TypeVar, Unpack

import redis
import redis.asyncio
import redis.exceptions as redis_errors

from ._asks import Ask
from ._core import Hold
from ._face import AnyHeld, AnyLocks
from ._io import IDLE, LONGEST, Io, pushes
from ._options import Info, LockOptions, LocksOptions

T = TypeVar("T")


def finish(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that never suspends."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("a coroutine of the threads' own has suspended")


class Lost(threading.Event):
    """Is set once, when the lock is known to be lost, which has a `cause` then."""

    cause: str | None = None


class Mutex:
    """What a thread has left locked, as a signal raised an error just there, it locks again."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.acquire = self.lock.acquire

    def release(self) -> None:
        with contextlib.suppress(RuntimeError):
            while True:
                self.lock.release()

    async def __aenter__(self) -> None:
        self.lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        self.release()


class Bell:
    """A lock that is free once it has rung. Each acquisition has one, and a threading.Event would cost twice as much."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.lock.acquire()

    def set(self) -> None:
        with contextlib.suppress(RuntimeError):  # It has rung before.
            self.lock.release()

    def clear(self) -> None:
        self.lock.acquire(blocking=False)


class Timer:
    """One thread for all holds. What is due runs in a thread of its own; if that cannot start, it is due again soon."""

    def __init__(self, io: Threads) -> None:
        self.io, self.mutex, self.next, self.is_running = io, threading.RLock(), 0.0, False
        self.changed = threading.Condition(self.mutex)
        self.entries: dict[Any, float] = {}

    def set(self, it: Any, when: float) -> None:
        with self.mutex:
            if not self.is_running:
                threading.Thread(target=self._tick, name="fairlock-timer", daemon=True).start()
                self.is_running = True
            self.entries[it] = when
            if when < self.next:
                self.next = when
                self.changed.notify()

    def clear(self, it: Any) -> None:
        with self.mutex:
            self.entries.pop(it, None)

    def _tick(self) -> None:
        with self.changed:
            while True:
                now = time.monotonic()
                for it in [it for it, when in self.entries.items() if when <= now]:
                    try:
                        self.io.start(self.io.quietly(self.io.core.due, it))
                        del self.entries[it]
                    except RuntimeError:
                        self.entries[it] = now + 0.05
                # If there is none any more, it sleeps on all the same: the next one should not have to wake it.
                self.next = min(self.entries.values(), default=self.next if self.next > now else now + IDLE)
                if not self.changed.wait(min(max(0.005, self.next - now), LONGEST)) and not self.entries:
                    self.is_running = False
                    return


class Threads(Io):
    """Its coroutines never suspend."""

    mutex, bell, gate, lost = Mutex, Bell, SimpleQueue, Lost

    def begin(self) -> None:
        super().begin()
        self.timer, self.local = Timer(self), threading.local()

    within = contextlib.nullcontext
    run = staticmethod(finish)

    def acquire(self, ask: Ask) -> Coroutine[Any, Any, Any]:
        return self.core.acquire(ask)

    def to_its_end(self, work: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None]:
        return work

    async def replies(self, connection: Any, commands: list[Any], timeout: float) -> list[Any]:
        connection.send_packed_command(connection.pack_commands(commands))
        # The library limits the time itself, but replicas may take longer.
        is_limited, replies = 0 < (connection.socket_timeout or 0) <= timeout, list[Any]()
        for word, *_ in commands:
            if (word == "WAIT" or not is_limited) and not connection.can_read(min(timeout, LONGEST)):
                raise redis_errors.TimeoutError("no answer in time")
            try:
                replies.append(connection.read_response(disable_decoding=True))
            except redis_errors.ResponseError as error:
                replies.append(error)
        return replies

    async def receive(self, connection: Any) -> Any:
        return connection.read_response(disable_decoding=True, **pushes(connection)) if connection.can_read(IDLE) else None

    async def rung(self, bell: Bell, seconds: float) -> bool:
        return bell.lock.acquire(timeout=min(max(0.0, seconds), LONGEST))

    async def enter(self, gate: SimpleQueue[None], seconds: float) -> None:
        try:
            gate.get(timeout=min(max(0.0, seconds), LONGEST))
        except Empty:
            raise TimeoutError from None

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            threading.Thread(target=finish, args=(work,), name="fairlock", daemon=True).start()
        except RuntimeError:
            work.close()
            raise

    def in_child(self, holds: set[Hold]) -> None:
        """The server must see the end of a session when the parent ends, although the child has inherited its connection."""
        for hold in holds:
            if hold.line is not None:
                hold.line.connection.disconnect()
        self.begin()

    def pool_of(self, node: Any) -> Any:
        return self.client.get_redis_connection(node).connection_pool

    def mine(self) -> dict[Any, Hold]:
        """The reentrant holds of this thread."""
        return self.local.__dict__.setdefault("held", {})


class Held(AnyHeld[float, None]):
    """A lock that is held, to be released by `release()` or by the end of a `with`."""

    lost: Lost

    def __enter__(self) -> Held:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        finish(self._release(error))


class Locks(AnyLocks[Held, Held | None, Info]):
    """Takes fair locks by a redis-py client: of one server, of Sentinel's master, or of a cluster. The client carries every command.

    Options, in seconds, are defaults for its locks; see clients/README.md. Make one for the process.
    """

    def __init__(self, client: redis.Redis | redis.RedisCluster, **options: Unpack[LocksOptions]) -> None:
        self._begin(Threads(client, redis, redis.asyncio), Held, options)

    @contextlib.contextmanager
    def __call__(self, name: str | bytes, **options: Unpack[LockOptions]) -> Iterator[Held]:
        """Holds the lock for the length of a `with` block, or of a function that it decorates."""
        with self.acquire(name, **options) as held:
            yield held

    def close(self) -> None:
        """Ends all waits (Closed); locks that are held are lost. The client stays open."""
        finish(self._core.close())

    def __enter__(self) -> Locks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
