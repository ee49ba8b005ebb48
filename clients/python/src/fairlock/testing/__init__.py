"""Locks without a server, for the tests of programs that use locks.

    locks = fairlock.testing.FakeLocks()
    with locks("orders") as held:
        locks.break_lock("orders")
        assert held.lost.wait(1)

It is Locks itself, with a server in this process in place of Redis: FIFO, wait, errors, hooks are the same. Leases do
not end by themselves: `expire` ends them.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any, Unpack

import redis.exceptions as redis_errors

from .._core import Core
from .._lines import Line
from .._options import LocksOptions, Options
from .._route import Address, Route
from .._threads import Locks, Threads
from ._server import FakeServer

__all__ = ["FakeLocks"]


class FakeRoute(Route):
    """There is one server, and no address."""

    def __init__(self) -> None:
        self.known, self.master = {}, None

    def describe(self, address: Address | None) -> str:
        return "the fake"


class FakeLine(Line):
    """A connection to the server in this process."""

    def __init__(self, server: FakeServer) -> None:
        super().__init__(None)
        self.server = server
        self.replies: queue.SimpleQueue[Any] = queue.SimpleQueue()

    async def exchange(self, words: tuple[Any, ...], timeout: float | None, blocks: bool) -> Any:
        return await self.noted(self._exchange(words, timeout))

    async def _exchange(self, words: tuple[Any, ...], timeout: float | None) -> Any:
        replies: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.replies = replies
        leave = self.server.do(words, replies.put)
        wait = words[-1] / 1000 if words[-2:-1] == ("WAIT",) else timeout
        try:
            reply = replies.get(timeout=wait)
        except queue.Empty:
            leave()
            return None if replies.empty() else replies.get()
        except BaseException:
            leave()
            raise
        if isinstance(reply, Exception):
            leave()
            raise reply
        return reply

    async def watch(self, timeout: float) -> None:
        reply = self.replies.get()
        raise reply

    def cut(self) -> None:
        self.replies.put(redis_errors.ConnectionError("closed"))

    async def close(self) -> None:
        self.cut()


class FakeThreads(Threads):
    """Threads, but that leases do not end and nothing has to be renewed."""

    def __init__(self, server: FakeServer) -> None:
        super().__init__()
        self.server = server

    async def open(self, route: Route, address: Address | None) -> Line:
        return FakeLine(self.server)

    def later(self, seconds: float, work: Callable[[], Any]) -> Callable[[], None]:
        return lambda: None


class Controls:
    """What a test can do to, and see of, the locks of a fake."""

    _core: Core
    _server: FakeServer

    def expire(self, name: str | bytes) -> None:
        """Ends the leases of all that hold the lock."""
        self._core.lose(self._server.free(name), "lease")

    def break_lock(self, name: str | bytes) -> None:
        """Frees the lock, as FAIRLOCK.BREAK does."""
        self._core.lose(self._server.free(name), "notheld")

    def holders(self, name: str | bytes) -> list[str]:
        """The owners that hold the lock."""
        return self._server.holders(name)

    def waiting(self, name: str | bytes) -> list[str]:
        """The owners that wait for the lock, first in, first out."""
        return self._server.waiting(name)


class FakeLocks(Controls, Locks):
    """Locks that needs no server. Two of them share no locks."""

    def __init__(self, **options: Unpack[LocksOptions]) -> None:
        self._options = Options().but(options, LocksOptions)
        self._server = FakeServer()
        self._core = Core(FakeThreads(self._server), FakeRoute(), self._options)
