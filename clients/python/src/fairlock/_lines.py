"""The connections of a Locks: which callers may use which, and which must not be used any more.

- A desk, one for each server: all that is answered at once, in the order of the calls. It is opened at the first ask and
  kept, so that a holder needs no new descriptor to release.
- "confirm": for renewals, and to have replicas confirm. One for each server is opened with its desk.
- "wait" and "session": one for each caller that is blocked.
- "wake": to hear whose turn it is. With asyncio one for each server, with threads one for each caller.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from typing import Any, Protocol

import redis.exceptions as redis_errors

from . import _errors as errors
from . import _scripts as scripts
from ._options import Options
from ._route import Address, Route

WAITING = ("wait", "wake", "session")  # the kinds on which callers wait
MAX_IDLE = 16  # connections of a kind, for each server
SOON = 0.05  # seconds
Failure = (redis_errors.RedisError, OSError)


class NotSent(redis_errors.TimeoutError):
    """The server has not answered an earlier command on the connection."""


class Deaf(redis_errors.ConnectionError):
    """The connection for a waiter's wake-ups has ended. This says nothing about other connections."""


class Line:
    """A connection of the package."""

    kind = where = ""
    module: scripts.Module
    was_asked = False  # for a lock

    def __init__(self, address: Address | None) -> None:
        self.address = address
        self.is_aborted = self.is_under_way = False

    @property
    def is_sound(self) -> bool:
        """Whether the next reply belongs to the next command."""
        return not (self.is_aborted or self.is_under_way)

    @property
    def has_module(self) -> bool | None:
        """By the last answer on any of the server's connections, False also where the user may not use it; None: this one
        was not asked yet.
        """
        return self.module.by_server.get(self.where) if self.was_asked else None

    async def call(
        self, *words: Any, timeout: float | None, is_asking: bool = False, blocks: bool = False, no_script: bool = False
    ) -> Any:
        """A reply. `blocks`: the server may take its time; the caller can still give up. `no_script`: without
        the module it cannot be done.
        """

        async def send(*words: Any) -> Any:
            if is_asking:
                await self.exchange(("ASKING",), timeout, False)
            return await self.exchange(words, timeout, blocks)

        if not str(words[0]).startswith("FAIRLOCK."):
            return await send(*words)
        no_script = no_script or self.module.is_required
        if self.has_module is not False or no_script:
            try:
                return await self._native(send, words)
            except redis_errors.ResponseError as error:
                if no_script or not errors.is_out_of_reach(error):
                    raise
        return await scripts.run(send, words)

    async def _native(self, send: Callable[..., Coroutine[Any, Any, Any]], words: tuple[Any, ...]) -> Any:
        try:
            reply = await send(*words)
        except redis_errors.ResponseError as error:
            is_denied = errors.is_denied(error)
            if not is_denied or words[0] != "FAIRLOCK.INFO":  # which a user may lack alone
                self._note(not errors.is_out_of_reach(error), is_denied)
            raise
        self._note(True)
        return reply

    def _note(self, has_module: bool, is_denied: bool = False) -> None:
        self.was_asked = True
        self.module.note(has_module, self.where, is_denied)

    async def noted(self, exchange: Coroutine[Any, Any, Any]) -> Any:
        self.is_under_way = True
        try:
            reply = await exchange
        except redis_errors.ResponseError:
            self.is_under_way = False
            raise
        self.is_under_way = False
        return reply

    def abort(self) -> None:
        """Ends all waits on it."""
        self.is_aborted = True
        self.cut()

    async def exchange(self, words: tuple[Any, ...], timeout: float | None, blocks: bool) -> Any:
        raise NotImplementedError

    async def hear(self, timeout: float) -> Any:
        """A pushed message, or None when the time is over; raises if the connection ends before."""
        raise NotImplementedError

    def cut(self) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    def fileno(self) -> int:
        raise NotImplementedError


class Ear(Protocol):
    """Hears when it is a waiter's turn."""

    address: Address | None

    async def wait(self, seconds: float) -> object: ...
    async def close(self) -> None: ...


class Runtime(Protocol):
    """What threads and asyncio do differently."""

    kinds: Any
    blocks: bool  # Waiters block in the server, where it has the module.

    def begin(self) -> None: ...
    def check(self) -> None: ...
    def now(self) -> float: ...
    def mutex(self) -> Any: ...
    def gate(self) -> Any: ...
    async def open(self, route: Route, address: Address | None) -> Line: ...
    async def adopt(self, route: Route) -> None: ...
    async def listen(self, lines: Lines, address: Address | None, verb: str, channel: bytes) -> Ear: ...
    async def sleep(self, seconds: float) -> None: ...
    async def finish(self, work: Coroutine[Any, Any, Any]) -> Any: ...
    def later(self, seconds: float, work: Callable[[], Any]) -> Callable[[], None]: ...
    def new_lost(self) -> Any: ...
    def mine(self) -> dict[Any, Any]: ...
    async def until(self, condition: Callable[[], bool], longest: float) -> None: ...
    def wake(self) -> None: ...


class Desk:
    """One connection for callers that use it one after another, in the order in which they came."""

    def __init__(self, lines: Lines, address: Address | None, kind: str) -> None:
        self.lines, self.address, self.kind = lines, address, kind
        self.mutex = lines.runtime.mutex()
        self.line: Line | None = None
        self.silences = 0

    async def call(self, *words: Any, timeout: float | None, blocks: bool = False, **how: bool) -> Any:
        silences = self.silences
        async with self.mutex:
            if self.silences != silences:
                raise NotSent("no answer in time")
            try:
                line = await self._open()
                return await line.call(*words, timeout=timeout, **how)
            except (redis_errors.TimeoutError, TimeoutError):
                self.silences += 1
                raise
            finally:
                await self._close_unless_sound()

    async def _open(self) -> Line:
        await self._close_unless_sound()
        if self.line is None:
            if self.kind == "control" and not self.lines.is_closing:
                await self.lines.reserve("confirm", self.address)
            self.line = await self.lines.connect(self.address, self.kind)
        return self.line

    async def _close_unless_sound(self) -> None:
        if self.line is not None and not self.line.is_sound:
            line, self.line = self.line, None
            await self.lines.drop(line)


class Lines:
    """All connections."""

    def __init__(self, runtime: Runtime, route: Route, options: Options) -> None:
        self.runtime, self.route, self.options = runtime, route, options
        self.module = scripts.Module(options)
        self.is_closing = self.is_closed = False
        self.begin()

    def begin(self) -> None:
        self.mutex = threading.RLock()
        self.desks: dict[tuple[str, Address | None], Desk] = {}
        self.gates: dict[Any, Any] = collections.defaultdict(self.runtime.gate)
        self.idle: dict[tuple[str, Address | None], list[Line]] = collections.defaultdict(list)
        self.all: set[Line] = set()

    def desk(self, address: Address | None, kind: str = "control") -> Desk:
        """The connection for commands that do not block; "guide": by a Sentinel, or by any node."""
        with self.mutex:
            if (kind, address) not in self.desks:
                self.desks[kind, address] = Desk(self, address, kind)
            return self.desks[kind, address]

    # ----------------------------------------------------------------------------- opening

    async def connect(self, address: Address | None, kind: str) -> Line:
        self._refuse_if_closed(kind)
        if kind != "guide":
            await self._ask_sentinels_for(address)
        line = await self.runtime.open(self.route, address)
        line.kind, line.module, line.where = kind, self.module, self.route.describe(address)
        with self.mutex:
            self.all.add(line)
        try:
            if kind != "guide":
                await self._check_role(line)
            self._refuse_if_closed(kind)
        except BaseException:
            await self.drop(line)
            raise
        return line

    def _refuse_if_closed(self, kind: str) -> None:
        if self.is_closed or (self.is_closing and kind not in ("control", "guide")):
            raise errors.Closed("Locks is closed")

    async def _ask_sentinels_for(self, address: Address | None) -> None:
        if not self.route.sentinels:
            return
        if address not in await self.route.find(self):
            raise redis_errors.ConnectionError("the Sentinels name another master")

    async def _check_role(self, line: Line) -> None:
        try:
            await self.role(line)
        except redis_errors.NoPermissionError:
            # Callers that need ROLE fail later. The Sentinels' answer alone is not enough.
            if self.route.sentinels:
                raise

    async def role(self, through: Line | Desk) -> int:
        """How many replicas are connected to the server, if it is a master."""
        try:
            role, *rest = await through.call("ROLE", timeout=self.options.command_timeout)
        except redis_errors.ResponseError as error:
            # A proxy or a fake, without replicas. Masters under Sentinels know ROLE.
            if errors.is_unknown(error, "role") and not self.route.sentinels:
                return 0
            raise
        if role != b"master":
            raise redis_errors.ReadOnlyError(f"its ROLE is {role.decode()}, not master")
        return len(rest[1])

    # ----------------------------------------------------------------------- lending lines

    async def take(self, kind: str, address: Address | None) -> Line:
        while True:
            with self.mutex:
                self._refuse_if_closed(kind)
                idle = self.idle.get((kind, address))
                if idle:
                    return idle.pop()
            try:
                return await self.connect(address, kind)
            except Failure as error:
                # A holder waits for the next one that is given back.
                if kind != "confirm" or not self._has(kind, address) or not is_out_of_descriptors(error):
                    raise
            await self.runtime.sleep(SOON)

    def _has(self, kind: str, address: Address | None) -> bool:
        with self.mutex:
            return any((line.kind, line.address) == (kind, address) for line in self.all)

    async def reserve(self, kind: str, address: Address | None) -> None:
        if not self._has(kind, address):
            await self.give(await self.take(kind, address))

    async def give(self, line: Line) -> None:
        """Puts a connection back, unless it was a session's: its holds are bound to it."""
        with self.mutex:
            idle = self.idle[line.kind, line.address]
            if line.kind != "session" and line.is_sound and not self.is_closed and len(idle) < MAX_IDLE:
                idle.append(line)
                return
        await self.drop(line)

    @contextlib.asynccontextmanager
    async def lent(self, kind: str, address: Address | None) -> AsyncIterator[Line]:
        with self.mutex:
            gate = self.gates[kind, address]
        async with gate:
            line = await self.take(kind, address)
            try:
                yield line
            finally:
                await self.give(line)

    # ----------------------------------------------------------------------------- closing

    async def drop(self, line: Line) -> None:
        with self.mutex:
            self.all.discard(line)
        with contextlib.suppress(*Failure):
            await line.close()

    def abort(self, address: Address | None, only_idle: bool) -> None:
        """After a failure, the connections to a server may be out of date."""
        with self.mutex:
            idle = [line for key in list(self.idle) if key[1] == address for line in self.idle.pop(key)]
            others = [line for line in self.all if line.address == address and (line.kind == "wake" or not only_idle)]
        self._cut({*idle, *others}, idle)

    def abort_except(self, masters: set[Address]) -> None:
        """Former masters are no longer asked."""
        with self.mutex:
            stale = [line for line in self.all if line.kind != "guide" and line.address not in masters]
            idle = [line for key in list(self.idle) if key[1] not in masters for line in self.idle.pop(key)]
        self._cut(stale, idle)

    def _cut(self, stale: Iterable[Line], unused: list[Line]) -> None:
        """The caller that uses one closes it."""
        for line in stale:
            line.abort()
        with self.mutex:
            self.all -= set(unused)

    def end_waits(self) -> None:
        self.is_closing = True
        with self.mutex:
            blocked = [line for line in self.all if line.kind in WAITING]
        for line in blocked:
            line.abort()

    async def close(self) -> None:
        with self.mutex:
            self.is_closed = True
            unused = [line for lines in self.idle.values() for line in lines]
            unused += [desk.line for desk in self.desks.values() if desk.line is not None]
            self.idle.clear()
            self.desks.clear()
        for line in list(self.all):
            line.abort()
        for line in unused:
            await self.drop(line)

    def leave_to_parent(self) -> None:
        """In a forked child: the sockets belong to the parent, which may be using them. They must not stay open
        here: a session would outlive the parent.
        """
        with contextlib.suppress(OSError):
            nothing = os.open(os.devnull, os.O_RDWR)
            for line in self.all:
                with contextlib.suppress(OSError, AttributeError):
                    os.dup2(nothing, line.fileno(), inheritable=False)
            os.close(nothing)
        self.begin()


def is_out_of_descriptors(error: BaseException) -> bool:
    """Resolving a host's name does not say why it failed, so that another descriptor is tried."""
    if isinstance(error, redis_errors.ResponseError):
        return False
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as failed:
        return failed.errno in (errno.EMFILE, errno.ENFILE)
    cause = error if isinstance(error, OSError) else error.__cause__ or error.__context__
    return isinstance(cause, OSError) and cause.errno in (errno.EMFILE, errno.ENFILE)
