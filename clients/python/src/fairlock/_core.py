"""What both flavours share: how a lock is asked for, waited for, withdrawn from, renewed and released.

Written once, as coroutines over a Runtime. The one for threads does its work at once where the one for asyncio
awaits, so that its coroutines never suspend and can be run without an event loop (`_threads.run`).
"""

from __future__ import annotations

import collections
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import redis.exceptions as redis_errors

from . import _errors as errors
from ._keep import Keep
from ._options import Event, Options, ms, new_owner
from ._route import Address, Route

# Refusals that pass: the same owner asks again, and has its place still.
PASSING = {"CLUSTERDOWN", "TRYAGAIN", "LOADING", "READONLY", "MASTERDOWN", "NOREPLICAS"}
# Refusals that say that the owner neither waits nor holds, or that another caller has its place.
SETTLED = {"TAKENOVER", "QUEUEFULL", "NOTALOCK", "WRONGTYPE", "CROSSSLOT"}
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0  # seconds between tries
MAX_IDLE = 16  # connections of a kind, for each server
ALONE_FOR = 1.0  # seconds for which a server without replicas is believed to have none
WITHDRAW = 1.0  # seconds for which leaving the queue is tried
REDIRECTS = 16  # in a row, before they count as failures
Failure = (redis_errors.RedisError, OSError)


class Line(Protocol):
    """A connection of ours."""

    @property
    def address(self) -> Address | None: ...
    async def call(self, *words: Any, timeout: float | None) -> Any: ...
    async def watch(self, timeout: float) -> None: ...
    def abort(self) -> None: ...
    async def close(self) -> None: ...


class Runtime(Protocol):
    """What threads and asyncio do differently."""

    kinds: Any

    def now(self) -> float: ...
    async def open(self, route: Route, address: Address | None) -> Line: ...
    async def adopt(self, route: Route) -> None: ...
    async def sleep(self, seconds: float) -> None: ...
    async def finish(self, work: Coroutine[Any, Any, Any]) -> Any: ...
    def later(self, seconds: float, work: Callable[[], Any]) -> Callable[[], None]: ...
    def new_lost(self) -> Any: ...
    def mine(self) -> dict[Any, Any]: ...
    async def until(self, condition: Callable[[], bool], longest: float) -> None: ...
    def wake(self) -> None: ...


class Tries:
    """How long, and how often, something that fails for the time being is tried again."""

    def __init__(self, runtime: Runtime, longest: float) -> None:
        self.runtime, self.longest = runtime, longest
        self.since: float | None = None
        self.pause, self.redirects = FIRST_PAUSE, 0

    def succeeded(self) -> None:
        self.since, self.pause, self.redirects = None, FIRST_PAUSE, 0

    async def after(self, error: Exception, left: float | None = None) -> None:
        """Sleeps, or raises Unavailable when it has been long enough."""
        now = self.runtime.now()
        self.since = now if self.since is None else self.since
        if now - self.since >= self.longest:
            code = errors.code_of(error) if isinstance(error, redis_errors.ResponseError) else None
            raise errors.Unavailable(f"not available for {self.longest:g} s: {error}", code) from error
        limits = [self.pause, self.since + self.longest - now, *([] if left is None else [left])]
        await self.runtime.sleep(max(0.0, min(limits)))
        self.pause = min(self.pause * 2, LONGEST_PAUSE)


class Ask:
    """One acquisition under way."""

    def __init__(self, name: str | bytes, options: Options, runtime: Runtime) -> None:
        self.name, self.options, self.runtime = name, options, runtime
        self.owner = options.owner or new_owner()
        self.started = runtime.now()
        # With no time to wait there is that of one answer.
        self.tries = Tries(runtime, options.command_timeout if options.wait == 0 else options.retry_timeout)
        self.is_waiting = False
        self.may_be_known = False  # to the server, as waiter or holder
        self.is_unconfirmed = False
        self.asking_at: Address | None = None

    def left(self) -> float | None:
        wait = self.options.wait
        return None if wait is None else self.started + wait - self.runtime.now()

    def is_over(self) -> bool:
        left = self.left()
        return left is not None and left <= 0


class Core:
    """The locks at one server, or at those of one cluster."""

    def __init__(self, runtime: Runtime, route: Route, options: Options) -> None:
        self.runtime, self.route, self.options = runtime, route, options
        self.mutex = threading.RLock()
        self.idle: dict[tuple[str, Address | None], list[Line]] = collections.defaultdict(list)
        self.busy: set[Line] = set()
        self.kept: set[Keep] = set()
        self.gone: dict[int, str] = {}  # for the fake: causes by token
        self.asking = 0
        self.alone_until: dict[Address | None, float] = {}
        self.is_closing = self.is_closed = False

    # ---------------------------------------------------------------------------- acquiring

    async def acquire(self, name: str | bytes, options: Options) -> Any:
        """The Keep of a lock that is now held, or of one that this caller holds already."""
        if self.is_closing:
            raise errors.Closed("Locks is closed")
        if options.reentrant and (keep := self.runtime.mine().get((id(self), name))):
            keep.enter_again()
            return keep
        ask = Ask(name, options, self.runtime)
        with self.mutex:
            self.asking += 1
        try:
            return await self._until_granted(ask)
        except BaseException:
            if ask.may_be_known:
                await self.runtime.finish(self._withdraw(ask))
            raise
        finally:
            with self.mutex:
                self.asking -= 1
            self.runtime.wake()

    async def _until_granted(self, ask: Ask) -> Keep:
        while True:
            address = None
            try:
                address = await self._where(ask)
                keep = await self._ask_at(address, ask)
                if keep is not None:
                    return keep
                await self._unconfirmed(ask)
            except errors.FairlockError:  # among them TimeoutErrors, which are OSErrors
                raise
            except Failure as error:
                if self.is_closing:
                    raise errors.Closed("Locks is closed") from error
                await self._passed(ask, error, address)

    async def _where(self, ask: Ask) -> Address | None:
        if ask.asking_at:
            return ask.asking_at
        return await self.address(ask.name)

    async def address(self, name: str | bytes) -> Address | None:
        if not hasattr(self.route, "options"):
            await self.runtime.adopt(self.route)
        with contextlib.suppress(LookupError):
            return self.route.address(name)
        await self._read_slots()
        try:
            return self.route.address(name)
        except LookupError:
            raise redis_errors.ClusterDownError("CLUSTERDOWN no node has the slot") from None

    async def _read_slots(self) -> None:
        last: Exception | None = None
        for node in self.route.nodes:
            try:
                reply = await self._call_once("control", node, "CLUSTER", "SLOTS")
                return self.route.learn(reply, node)
            except Failure as error:
                last = error
        raise last or redis_errors.ConnectionError("no node of the cluster is known")

    async def _passed(self, ask: Ask, error: Exception, address: Address | None) -> None:
        """Returns if it is worth asking again; raises what the caller gets if not."""
        asked_at, ask.asking_at = ask.asking_at, None
        if self._is_redirected(ask.tries, error, address or asked_at):
            if isinstance(error, redis_errors.AskError) and not isinstance(error, redis_errors.MovedError):
                ask.asking_at = self.route.redirect(str(error), address, for_good=False)
            return
        if not is_passing(error):
            raise self._refusal(error, ask.options, address) from error
        self._distrust(address, error)
        if ask.is_over() and ask.options.wait != 0:
            self._not_in_time(ask, error)
        # With no time to wait, the time of one answer is there for trying again.
        await ask.tries.after(error, None if ask.options.wait == 0 else ask.left())

    def _refusal(self, error: Exception, options: Options, address: Address | None) -> errors.FairlockError:
        refusal = errors.translated(error, self.route.describe(address))
        text = str(refusal).lower()
        if refusal.code == "NOPERM" and options.sync_timeout and ("'info'" in text or "'wait'" in text):
            refusal.add_note("fairlock: allow INFO and WAIT, which confirm that a replica has the lock, or say sync_timeout=0")
        return refusal

    def _is_redirected(self, tries: Tries, error: Exception, address: Address | None) -> bool:
        """Whether another node was named, or the same is to be asked again at once."""
        code = errors.code_of(error)
        if code not in ("MOVED", "ASK", "UNBLOCKED") or tries.redirects >= REDIRECTS:
            return False
        tries.redirects += 1
        if code == "MOVED":
            return self.route.redirect(str(error), address, for_good=True) is not None
        return True

    def _distrust(self, address: Address | None, error: Exception) -> None:
        """After a failure, connections and what is known of the cluster may be those of the past."""
        if isinstance(error, redis_errors.TryAgainError):
            return
        with self.mutex:
            stale = [line for key in list(self.idle) if key[1] == address for line in self.idle.pop(key)]
        for line in stale:
            line.abort()
        if self.route.is_cluster:
            self.route.slots.clear()

    @staticmethod
    def _not_in_time(ask: Ask, cause: BaseException | None = None) -> None:
        name = ask.name if isinstance(ask.name, str) else ask.name.decode(errors="replace")
        if ask.is_unconfirmed:
            raise errors.NotReplicated(f"{name}: no replica has confirmed it in time") from cause
        raise errors.NotInTime(f"{name}: not in time") from cause

    async def _ask_at(self, address: Address | None, ask: Ask) -> Keep | None:
        await self._reserve(address)
        kind = "session" if ask.options.session else "ask"
        line = await self.take(kind, address)
        try:
            token, sent = await self._token(line, ask)
            received = self.runtime.now()
            is_confirmed = await self._confirm(line, ask)
            if not is_confirmed:
                await self._give_back(line, ask)
        except BaseException as error:
            # The answer to a refusal was read, so the connection is as good as before.
            if isinstance(error, (redis_errors.ResponseError, errors.FairlockError)):
                await self.give(kind, line)
            else:
                await self.drop(line)
            raise
        if not is_confirmed or not ask.options.session:
            await self.give(kind, line)
        if not is_confirmed:
            return None
        return Keep(self, ask, token, sent, received, line if ask.options.session else None)

    async def _give_back(self, line: Line, ask: Ask) -> None:
        try:
            await self._call(line, ask, "FAIRLOCK.RELEASE", ask.name, ask.owner)
        except redis_errors.ResponseError as error:
            if errors.code_of(error) != "NOTHELD":  # The lease was over before.
                raise

    async def _unconfirmed(self, ask: Ask) -> None:
        ask.is_unconfirmed, ask.may_be_known = True, False
        if ask.options.wait == 0 or ask.is_over():
            self._not_in_time(ask)
        await self.runtime.sleep(FIRST_PAUSE)

    async def _token(self, line: Line, ask: Ask) -> tuple[int, float]:
        """The fencing token, and when the ask was sent that brought it."""
        words = ("FAIRLOCK.ACQUIRE", ask.name, ask.owner, *ask.options.arguments())
        if not ask.is_waiting:
            sent = self.runtime.now()
            token = await self._ask(line, ask, *words, "NOWAIT")
            if token is not None:
                return token, sent
            if ask.options.wait == 0:
                self._not_in_time(ask)
            ask.is_waiting = True
            ask.options.hooks.call("on_wait", Event(ask.name, ask.owner))
        left = ask.left()
        if left is not None and left <= 0:
            self._not_in_time(ask)
        wait = () if left is None else ("WAIT", ms(left))
        longest = None if left is None else left + ask.options.command_timeout
        sent = self.runtime.now()
        token = await self._ask(line, ask, *words, *wait, timeout=longest)
        if token is None:
            self._not_in_time(ask)
        return token, sent

    async def _ask(self, line: Line, ask: Ask, *words: Any, timeout: float | None = 0) -> Any:
        was_known, ask.may_be_known = ask.may_be_known, True
        try:
            token = await self._call(line, ask, *words, timeout=timeout)
        except redis_errors.ResponseError as error:
            # A refusal changes nothing: what an earlier ask brought is still there, though its reply was lost, and so
            # is the place of a caller that is to ask again.
            is_settled = errors.code_of(error) in SETTLED
            ask.may_be_known = not is_settled and (was_known or (ask.is_waiting and is_passing(error)))
            raise
        ask.tries.succeeded()
        ask.may_be_known = token is not None
        return token

    async def _call(self, line: Line, ask: Ask, *words: Any, timeout: float | None = 0) -> Any:
        if timeout == 0:
            timeout = ask.options.command_timeout
        if ask.asking_at:
            await line.call("ASKING", timeout=ask.options.command_timeout)
        return await line.call(*words, timeout=timeout)

    async def _confirm(self, line: Line, ask: Ask) -> bool:
        """Whether a replica has the acquisition, or there is none.

        INFO comes right before WAIT: WAIT covers what was written before the last command of this connection,
        which a grant to a blocked client is not until another command has been run.
        """
        longest = ask.options.sync_timeout
        if not longest or self.alone_until.get(line.address, 0) > self.runtime.now():
            return True
        text = await line.call("INFO", "replication", timeout=ask.options.command_timeout)
        replicas = int(field(text, "connected_slaves") or 0)
        if replicas == 0:
            self.alone_until[line.address] = self.runtime.now() + ALONE_FOR
            return True
        confirmed = await line.call("WAIT", replicas, ms(longest), timeout=longest + ask.options.command_timeout)
        return bool(confirmed >= 1)

    async def _withdraw(self, ask: Ask) -> None:
        """For a caller that does not know whether it waits, holds the lock, or neither."""
        if await self._leave(ask, min(WITHDRAW, self.options.command_timeout)) or ask.options.owner is not None:
            return
        # A network that comes back must not leave the lock to a caller that has gone. With an owner that was given,
        # the caller may hold the lock again by then.
        self.runtime.later(0, lambda: self._leave(ask, ask.options.lease))

    async def _leave(self, ask: Ask, longest: float) -> bool:
        """Whether the owner neither waits nor holds any more, as far as the server could be asked."""
        try:
            for command in ("FAIRLOCK.CANCEL", "FAIRLOCK.RELEASE"):
                with contextlib.suppress(errors.Refused):  # NOTHELD: it does not
                    await self.control(ask.name, command, ask.name, ask.owner, longest=longest)
        except (errors.FairlockError, *Failure):
            return self.is_closed
        return True

    # ------------------------------------------------------------------------- connections

    async def control(self, name: str | bytes, *words: Any, longest: float) -> tuple[Any, bool]:
        """A command on a connection that no waiter can have, tried for so long; and whether it may have been done before.

        Refusals that do not pass are raised as this package's errors.
        """
        tries, may_be_done = Tries(self.runtime, longest), False
        asking_at = None
        while True:
            address = None
            try:
                address = asking_at or await self.address(name)
                return await self._call_once("control", address, *words, is_asking=bool(asking_at)), may_be_done
            except Failure as error:
                if self._is_redirected(tries, error, address):
                    is_moved = isinstance(error, redis_errors.MovedError)
                    asking_at = None if is_moved else self.route.redirect(str(error), address, for_good=False)
                    continue
                asking_at = None
                if not is_passing(error):
                    refusal = errors.translated(error, self.route.describe(address))
                    refusal.may_be_done = may_be_done  # type: ignore[attr-defined]
                    raise refusal from error
                may_be_done = may_be_done or not isinstance(error, redis_errors.ResponseError)
                self._distrust(address, error)
                await tries.after(error)

    async def _call_once(self, kind: str, address: Address | None, *words: Any, is_asking: bool = False) -> Any:
        line = await self.take(kind, address)
        try:
            if is_asking:
                await line.call("ASKING", timeout=self.options.command_timeout)
            reply = await line.call(*words, timeout=self.options.command_timeout)
        except redis_errors.ResponseError:
            await self.give(kind, line)
            raise
        except BaseException:
            await self.drop(line)
            raise
        await self.give(kind, line)
        return reply

    async def _reserve(self, address: Address | None) -> None:
        """A connection to release by, before one is taken to wait on: a full server must not keep a holder from it."""
        with self.mutex:
            is_there = ("control", address) in self.idle
        if not is_there:
            await self.give("control", await self.take("control", address))

    async def take(self, kind: str, address: Address | None) -> Line:
        with self.mutex:
            if self.is_closed or (self.is_closing and kind != "control"):
                raise errors.Closed("Locks is closed")
            idle = self.idle.get((kind, address))
            line = idle.pop() if idle else None
            if line is not None:
                self.busy.add(line)
                return line
        line = await self.runtime.open(self.route, address)
        with self.mutex:
            self.busy.add(line)
            if not self.is_closing or kind == "control":
                return line
        await self.drop(line)
        raise errors.Closed("Locks is closed")

    async def give(self, kind: str, line: Line) -> None:
        """Puts a connection back, unless it was a session's: its holds are bound to it."""
        with self.mutex:
            idle = self.idle[kind, line.address]
            if kind != "session" and not self.is_closed and len(idle) < MAX_IDLE:
                self.busy.discard(line)
                idle.append(line)
                return
        await self.drop(line)

    async def drop(self, line: Line) -> None:
        with self.mutex:
            self.busy.discard(line)
        with contextlib.suppress(*Failure):
            await line.close()

    def lose(self, tokens: list[int], cause: str) -> None:
        """For the fake: the locks with these tokens are lost, at once or as soon as their holders know of them."""
        with self.mutex:
            kept = {keep.token: keep for keep in self.kept}
            self.gone |= {token: cause for token in tokens if token not in kept}
        for token in tokens:
            if token in kept:
                kept[token].lose(cause)

    async def close(self) -> None:
        """Ends all waits, which leave their queues; then all connections. Held locks are lost to us."""
        self.is_closing = True
        for keep in list(self.kept):
            keep.lose("closed")
        with self.mutex:
            blocked = list(self.busy)
        for line in blocked:
            line.abort()
        self.runtime.wake()
        await self.runtime.until(lambda: self.asking == 0, self.options.command_timeout)
        with self.mutex:
            self.is_closed = True
            busy, idle = list(self.busy), [line for lines in self.idle.values() for line in lines]
            self.idle.clear()
        for line in busy:
            line.abort()  # Whoever uses it closes it.
        for line in idle:
            await self.drop(line)


def is_passing(error: Exception) -> bool:
    """Whether it is worth trying again a little later."""
    if isinstance(error, (redis_errors.AuthenticationError, redis_errors.AuthorizationError)):
        return False
    if isinstance(error, (redis_errors.ResponseError, redis_errors.BusyLoadingError)):
        return errors.code_of(error) in PASSING | {"UNBLOCKED", "MOVED", "ASK"}
    return isinstance(error, (redis_errors.ConnectionError, redis_errors.TimeoutError, OSError))


def field(text: bytes | str, name: str) -> str | None:
    """A line of what INFO says."""
    decoded = text.decode() if isinstance(text, bytes) else text
    for line in decoded.splitlines():
        if line.startswith(name + ":"):
            return line.partition(":")[2]
    return None
