"""`fairlock.aio.Locks` without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Unpack

import redis.exceptions as redis_errors

from .._core import Core
from .._lines import Line
from .._options import LocksOptions, Options
from .._route import Address, Route
from ..aio import Locks, Tasks
from . import Controls, FakeRoute
from ._server import FakeServer

__all__ = ["FakeLocks"]


class FakeLine(Line):
    """A connection to the server in this process."""

    def __init__(self, server: FakeServer) -> None:
        super().__init__(None)
        self.server = server
        self.reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def exchange(self, words: tuple[Any, ...], timeout: float | None, blocks: bool) -> Any:
        return await self.noted(self._exchange(words, timeout))

    async def _exchange(self, words: tuple[Any, ...], timeout: float | None) -> Any:
        self.reply = reply = asyncio.get_running_loop().create_future()
        leave = self.server.do(words, lambda result: settle(reply, result))
        wait = words[-1] / 1000 if words[-2:-1] == ("WAIT",) else timeout
        try:
            async with asyncio.timeout(wait):
                return await asyncio.shield(reply)
        except TimeoutError:
            leave()
            return reply.result() if reply.done() else None
        except BaseException:
            leave()
            raise

    async def watch(self, timeout: float) -> None:
        await self.reply

    def cut(self) -> None:
        settle(self.reply, redis_errors.ConnectionError("closed"))

    async def close(self) -> None:
        self.reply.cancel()


def settle(reply: asyncio.Future[Any], result: Any) -> None:
    if reply.done():
        return
    if isinstance(result, Exception):
        reply.set_exception(result)
    else:
        reply.set_result(result)


class FakeTasks(Tasks):
    """Tasks, but that leases do not end and nothing has to be renewed."""

    def __init__(self, server: FakeServer) -> None:
        super().__init__()
        self.server = server

    async def open(self, route: Route, address: Address | None) -> Line:
        return FakeLine(self.server)

    def later(self, seconds: float, work: Callable[[], Any]) -> Callable[[], None]:
        return lambda: None


class FakeLocks(Controls, Locks):
    """Locks that needs no server. Two of them share no locks. To be used from one event loop."""

    def __init__(self, **options: Unpack[LocksOptions]) -> None:
        self._options = Options().but(options, LocksOptions)
        self._server = FakeServer()
        self._core = Core(FakeTasks(self._server), FakeRoute(), self._options)
