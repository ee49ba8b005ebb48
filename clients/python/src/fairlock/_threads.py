"""Locks for threads."""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Coroutine, Iterator
from types import TracebackType
from typing import Any, TypeVar, Unpack

import redis
import redis.asyncio
import redis.exceptions as redis_errors

from . import _errors as errors
from ._core import Core, Hold
from ._io import IDLE, LONGEST, Io, pushes
from ._options import Info, LockOptions, LocksOptions, Options

T = TypeVar("T")


def finish(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that never suspends."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise RuntimeError("a coroutine of the threads' own has suspended")


class Lost(threading.Event):
    """Is set once, when the lock is known to be lost, which has a `cause` then."""

    cause: str | None = None


class Mutex:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.acquire, self.release = self.lock.acquire, self.lock.release

    async def __aenter__(self) -> None:
        self.lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        self.lock.release()


class Bell(Mutex):
    """Free once it has rung. Each acquisition has one, and a threading.Event would cost twice as much."""

    def __init__(self) -> None:
        super().__init__()
        self.acquire()

    def set(self) -> None:
        with contextlib.suppress(RuntimeError):  # It has rung before.
            self.release()

    def clear(self) -> None:
        self.acquire(blocking=False)


class Timer:
    """One thread for all holds. What is due runs in a thread of its own; if that cannot start, it is due again soon."""

    def __init__(self, io: Threads) -> None:
        self.io, self.changed, self.next, self.is_running = io, threading.Condition(), 0.0, False
        self.entries: dict[Any, float] = {}

    def start(self) -> None:
        """Before anything is held, so that no hold is without it."""
        with self.changed:
            if not self.is_running:
                threading.Thread(target=self._tick, name="fairlock-timer", daemon=True).start()
                self.is_running = True

    def set(self, it: Any, when: float) -> None:
        with self.changed:
            self.entries[it] = when
            if when < self.next:
                self.next = when
                self.changed.notify()

    def clear(self, it: Any) -> None:
        with self.changed:
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

    mutex, bell, gate, lost = Mutex, Bell, threading.BoundedSemaphore, Lost

    def begin(self) -> None:
        super().begin()
        self.timer, self.local = Timer(self), threading.local()

    within = contextlib.nullcontext

    async def read(self, connection: Any, timeout: float, is_wait: bool) -> Any:
        # By the library; replicas may take longer.
        is_limited = not is_wait and 0 < (connection.socket_timeout or 0) <= timeout
        if not is_limited and not connection.can_read(min(timeout, LONGEST)):
            raise redis_errors.TimeoutError("no answer in time")
        return connection.read_response(disable_decoding=True)

    async def receive(self, connection: Any) -> Any:
        return connection.read_response(disable_decoding=True, **pushes(connection)) if connection.can_read(IDLE) else None

    async def rung(self, bell: Bell, seconds: float) -> bool:
        return bell.acquire(timeout=min(max(0.0, seconds), LONGEST))

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
        self.local.__dict__.setdefault("held", {})
        held: dict[Any, Hold] = self.local.held
        return held


class Held:
    """A lock that is held, to be released by `release()` or by the end of a `with`."""

    def __init__(self, io: Threads, hold: Hold) -> None:
        self._io, self._hold = io, hold
        hold.user = weakref.ref(self)
        self.name, self.owner, self.token = hold.name, hold.owner, hold.token
        self.lost: Lost = hold.lost

    def renew(self, lease: float | None = None) -> float:
        """Sets the lease anew, to its own length or another; returns the new lease in seconds."""
        return finish(self._hold.core.renew(self._hold, lease))

    def release(self) -> None:
        """Gives up the lock. LockLost: it was lost before. Releasing again does nothing."""
        finish(self._hold.core.release(self._hold))

    def __enter__(self) -> Held:
        thread = threading.current_thread()
        self._hold.is_holder_gone = lambda: not thread.is_alive()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self.release()
        except errors.FairlockError as failed:
            if error is None:
                raise
            error.add_note(f"fairlock: the release failed, too: {failed}")


class Locks:
    """Takes fair locks by a redis-py client: of one server, of Sentinel's master, or of a cluster. The client carries every command.

    Options, in seconds, are defaults for its locks; see clients/README.md. Make one for the process.
    """

    def __init__(self, client: redis.Redis | redis.RedisCluster, **options: Unpack[LocksOptions]) -> None:
        self._options = Options().but(options, LocksOptions)
        self._io = Threads(client, redis, redis.asyncio)
        self._core = self._io.core = Core(self._options, self._io)

    @contextlib.contextmanager
    def __call__(self, name: str | bytes, **options: Unpack[LockOptions]) -> Iterator[Held]:
        """Holds the lock for the length of a `with` block, or of a function that it decorates."""
        with self._acquire(name, self._options.but(options)) as held:
            yield held

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
        return finish(self._core.info(name))

    @property
    def native(self) -> bool | None:
        """Whether the server has the module; False: locks are taken by scripts. None: it was not asked yet."""
        return self._core.native

    def _acquire(self, name: str | bytes, options: Options) -> Held:
        mine = self._io.mine() if options.reentrant else {}
        if (hold := mine.get(name)) is not None:
            held: Held = self._core.enter_again(hold)
            return held
        self._io.timer.start()
        hold = finish(self._core.acquire(self._core.ask(name, options)))
        if options.reentrant:
            mine[name], hold.entered = hold, mine
        return Held(self._io, hold)

    def close(self) -> None:
        """Ends all waits (Closed); locks that are held are lost. The client stays open."""
        finish(self._core.close())

    def __enter__(self) -> Locks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
