"""How a waiter that does not block hears that it is its turn: its owner's channel is subscribed to.

With threads on a connection of its own; with asyncio one connection to a server hears for all that wait there. A waiter that is woken, or whose connection ends, asks again.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import time
from typing import TYPE_CHECKING, Any

import redis.exceptions as redis_errors

from ._lines import Deaf, Failure, Line, Lines
from ._route import Address

if TYPE_CHECKING:
    from .aio import TaskLine, Tasks


def opposite(verb: str) -> str:
    return verb.replace("SUB", "UNSUB")


class ThreadEar:
    def __init__(self, lines: Lines, line: Any, verb: str, channel: bytes) -> None:
        self.lines, self.line, self.verb, self.channel = lines, line, verb, channel
        self.address: Address | None = line.address

    async def begin(self) -> None:
        reply = await self.line.call(self.verb, self.channel, timeout=self.lines.options.command_timeout)
        end = time.monotonic() + self.lines.options.command_timeout
        # Messages of the waiter that used this connection before may be left.
        while reply[:2] != [self.verb.lower().encode(), self.channel]:
            reply = await self.line.noted(self.line.hear(end - time.monotonic()))
            if reply is None:
                raise redis_errors.TimeoutError("no answer in time")

    async def wait(self, seconds: float) -> None:
        try:
            await self.line.noted(self.line.hear(seconds))
        except Failure as error:
            raise Deaf(str(error)) from error

    async def close(self) -> None:
        with contextlib.suppress(*Failure):
            if self.line.is_sound:
                self.line.send(opposite(self.verb), self.channel)
        await self.lines.give(self.line)


class TaskEar:
    def __init__(self, board: Board, verb: str, channel: bytes) -> None:
        self.board, self.verb, self.channel = board, verb, channel
        self.address = board.address
        self.woken = asyncio.Event()
        self.error: Exception | None = None

    def wake(self, error: Exception | None = None) -> None:
        self.error = self.error or error
        self.woken.set()

    async def wait(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.woken.wait()
        if self.error is not None:
            raise self.error
        is_woken = self.woken.is_set()
        self.woken.clear()
        return is_woken

    async def close(self) -> None:
        self.board.leave(self)


class Board:
    """The connection to one server on which the tasks of a Locks hear wake-ups."""

    def __init__(self, runtime: Tasks, lines: Lines, address: Address | None) -> None:
        self.runtime, self.lines, self.address = runtime, lines, address
        self.opening = asyncio.Lock()
        self.line: TaskLine | None = None
        self.reader: asyncio.Task[Any] | None = None
        self.ears: dict[bytes, set[TaskEar]] = collections.defaultdict(set)
        self.sent: collections.deque[tuple[bytes, bytes]] = collections.deque()  # not answered yet

    async def listen(self, verb: str, channel: bytes) -> TaskEar:
        async with self.opening:
            if self.line is not None and self.reader is None and not self.line.is_sound:
                await self._end(self.line, redis_errors.ConnectionError("the connection has closed"))
            if self.line is None:
                self.line = await self.lines.connect(self.address, "wake")  # type: ignore[assignment]
        ear = TaskEar(self, verb, channel)
        self.ears[channel].add(ear)
        try:
            self._send(verb, channel)
            # The confirmation wakes the waiter in the same way as its turn.
            if not await ear.wait(self.lines.options.command_timeout):
                raise redis_errors.TimeoutError("no answer in time")
        except BaseException:
            self.leave(ear)
            raise
        return ear

    def leave(self, ear: TaskEar) -> None:
        others = self.ears[ear.channel]  # that ask with the same owner
        others.discard(ear)
        if others:
            return
        del self.ears[ear.channel]
        if self.line is not None:
            with contextlib.suppress(*Failure):
                self._send(opposite(ear.verb), ear.channel)

    def _send(self, verb: str, channel: bytes) -> None:
        if self.line is None:
            raise redis_errors.ConnectionError("the connection has closed")
        self.line.send(verb, channel)
        self.sent.append((verb.lower().encode(), channel))
        if self.reader is None:
            self.reader = self.runtime.start(self._read(self.line))

    async def _read(self, line: TaskLine) -> None:
        """Until no task waits, and the last to leave has had its answer."""
        try:
            while self.ears or self.sent:
                try:
                    kind, channel, *_ = await line.hear(None)
                except redis_errors.ResponseError as error:
                    self._wake(self.sent.popleft()[1] if self.sent else b"", error)
                    continue
                is_answer = bool(self.sent) and self.sent[0] == (kind, channel)
                if is_answer:
                    self.sent.popleft()
                # Another may listen to it by now, and is not subscribed yet.
                if not (is_answer and kind.endswith(b"unsubscribe")):
                    self._wake(channel)
            self.reader = None
        except Failure as error:
            await self._end(line, error)

    def _wake(self, channel: bytes, error: Exception | None = None) -> None:
        for ear in self.ears.get(channel, ()):
            ear.wake(error)

    def end_waits(self, why: str = "closed") -> None:
        for channel in self.ears:
            self._wake(channel, Deaf(why))

    async def _end(self, line: Line, error: Exception) -> None:
        self.line = self.reader = None
        self.sent.clear()
        self.end_waits(str(error))
        await self.lines.drop(line)
