"""A held lock: its renewal, the detection of its loss, and its release."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import redis.exceptions as redis_errors

from . import _errors as errors
from ._options import Event, Info, log, ms

if TYPE_CHECKING:
    from ._ask import Ask
    from ._core import Core
    from ._lines import Desk, Line

SOON = 0.05  # seconds: the shortest pause between tries to renew


class Keep:
    """The package's side of a held lock. It has only a weak reference to the user's side, Held: once that is
    collected, no one can release the lock, and renewing would hold it for ever.
    """

    def __init__(
        self, core: Core, ask: Ask, token: int, sent: float, received: float, checked_on: Line | None, line: Line | None
    ) -> None:
        self.core, self.name, self.owner, self.token = core, ask.name, ask.owner, token
        self.options, self.line = ask.options, line
        self.checked_on = checked_on  # the connection under which the master was known to have the lock
        self.runtime = core.runtime
        self.lease = ask.options.lease
        # Of a session, the server renews the lease as long as its connection is open.
        self.end = (received if line is not None else sent) + self.lease
        self.acquired, self.waited = received, received - ask.started
        self.lost = self.runtime.new_lost()
        self.mutex = threading.RLock()
        self.state = "held"  # then lost or released; in a child that was forked, the parent's
        # A session's connection must not close before its release is answered: the server would take that for the end.
        self.may_close, self.is_unwatched = False, False
        self.holds = 1
        self.held: Callable[[], Any] = lambda: self  # until Held is made
        self.is_holder_gone: Callable[[], bool] = lambda: False
        self.entered: dict[Any, Any] = {}
        self.timer: Callable[[], None] = lambda: None
        self.enter()
        if line is not None:
            self.runtime.later(0, self._watch)
        else:
            self._arm(sent + self.lease / 3 - self.runtime.now())
        self.options.hooks.call("on_acquired", self.event(waited=self.waited))

    def event(self, **more: Any) -> Event:
        return Event(self.name, self.owner, self.token, **more)

    def belongs_to(self, held: Any) -> None:
        self.held = weakref.ref(held)

    # -------------------------------------------------------------------------- reentrancy

    def enter(self) -> None:
        with self.core.mutex:
            self.core.kept.add(self)
        self.core.watch.update()
        if self.options.reentrant:
            self.entered = self.runtime.mine()
            self.entered[id(self.core), self.name] = self

    def enter_again(self) -> None:
        with self.mutex:
            if self.state == "lost":
                raise self.loss()
            self.holds += 1

    def leave(self) -> None:
        self.timer()
        with self.core.mutex:
            self.core.kept.discard(self)
        self.core.watch.update()
        if self.entered.get((id(self.core), self.name)) is self:
            del self.entered[id(self.core), self.name]

    def leave_to_parent(self) -> None:
        """In a forked process: threads of the parent may have had the mutex."""
        self.mutex, self.state = threading.RLock(), "the parent's"

    # ----------------------------------------------------------------------------- renewal

    def _arm(self, due: float) -> None:
        """Schedules the next renewal, or the end of the lease if that comes first."""
        left = self.end - self.runtime.now()
        wait = min(due, left) if self.options.renew else left
        with self.mutex:
            if self.state == "held":
                self.timer()
                self.timer = self.runtime.later(max(0.0, wait), self._due)

    async def _due(self) -> None:
        if self.state != "held":
            return
        if self.runtime.now() >= self.end:
            return self.lose("lease")
        if self.held() is None or self.is_holder_gone():
            return self.leave()
        if not self.options.renew:
            return self._arm(self.lease)
        # The lease may end while the answer does not come.
        self._arm(self.end - self.runtime.now())
        try:
            await self.renew(None)
        except errors.FairlockError as error:
            if self.state != "held":  # lost, or released in between
                return
            if not isinstance(error, (errors.Unavailable, errors.NotReplicated)):
                log.warning("the lock %r cannot be renewed: %s", self.name, error)
            self._arm(max(self.lease / 10, SOON))

    async def renew(self, lease: float | None) -> float:
        """Sets the lease anew; only this moves the end that the client knows, and only if replicas confirm it."""
        if self.state == "lost":
            raise self.loss()
        if self.state != "held":
            gone = "was released" if self.state == "released" else "is held by the process that was forked"
            raise errors.FairlockError(f"{errors.shown(self.name)}: the lock {gone}")
        if lease is not None:
            self.options.but({"lease": lease})  # checks it
        lease = self.lease if lease is None else lease
        sent = self.runtime.now()
        try:
            reply, _ = await self.core.control(self.name, *self._renewal(lease), longest=0.0, confirm=self.options)
        except errors.FairlockError as error:
            if error.code != "NOTHELD" or self.state != "held":
                raise
            self.lose("notheld")
            raise self.loss() from error
        self.lease, self.end = lease, sent + lease
        if self.line is None:
            self._arm(lease / 3)
        return float(reply) / 1000

    def _renewal(self, lease: float) -> tuple[Any, ...]:
        return ("FAIRLOCK.RENEW", self.name, self.owner, "LEASE", ms(lease))

    async def check(self, desk: Desk) -> None:
        """Whether the master, perhaps a new one, has the lock. Replicas do not confirm it, so the end does not move."""
        if self.line is not None or self.held() is None or self.is_holder_gone():
            return
        timeout = self.options.command_timeout
        try:
            if self.options.renew:
                await desk.call(*self._renewal(self.lease), timeout=timeout)
                return
            info = Info.of(await desk.call("FAIRLOCK.INFO", self.name, timeout=timeout))
        except redis_errors.ResponseError as error:
            if errors.code_of(error) != "NOTHELD":
                raise
            return self.lose("notheld")
        # INFO shows only the first of several holders.
        if info.holders <= 1 and (info.owner, info.token) != (self.owner, self.token):
            self.lose("notheld")

    async def _watch(self) -> None:
        """A session lives as long as its connection, which is asked now and then whether the lock is still there."""
        line = self.line
        assert line is not None
        try:
            while self.state == "held":
                if await line.hear(self.lease / 3) is not None:
                    raise redis_errors.ConnectionError("an answer to nothing")
                if self.state != "held":
                    return
                if self.held() is None or self.is_holder_gone():
                    return self.leave()
                sent = self.runtime.now()
                # The rest of the lease at the last check, if this one is in time.
                await line.call(*self._renewal(self.lease), timeout=max(SOON, self.lease * 2 / 3))
                self.end = sent + self.lease
        except Exception as error:
            self.lose("notheld" if str(error).startswith("NOTHELD") else "connection")
        finally:
            with self.mutex:
                self.is_unwatched, may_close = True, self.may_close or self.state != "released"
            if may_close:
                await self.core.lines.drop(line)

    # -------------------------------------------------------------------------------- loss

    def lose(self, cause: str) -> None:
        with self.mutex:
            if self.state != "held":
                return
            self.state, self.may_close = "lost", True
        self.leave()
        if self.line is not None:
            self.line.abort()
        self.lost._set(cause)
        held = self.runtime.now() - self.acquired
        self.options.hooks.call("on_lost", self.event(cause=cause, held=held))

    def loss(self) -> errors.LockLost:
        return errors.LockLost(f"{errors.shown(self.name)}: the lock was lost ({self.lost.cause})", self.lost.cause)

    # ----------------------------------------------------------------------------- release

    async def release(self) -> None:
        with self.mutex:
            if self.state not in ("held", "lost"):
                return
            if self.holds > 1:
                self.holds -= 1
                return
            was_lost, self.state = self.state == "lost", "released"
        self.leave()
        if was_lost:
            if self.lost.cause == "lease":
                await self.runtime.finish(self._release_if_still_ours())
            raise self.loss()
        await self.runtime.finish(self._release())
        held = self.runtime.now() - self.acquired
        self.options.hooks.call("on_released", self.event(held=held))

    def _words(self) -> tuple[Any, ...]:
        return ("FAIRLOCK.RELEASE", self.name, self.owner, "TOKEN", self.token)

    async def _release(self) -> None:
        longest = min(self.options.release_timeout, max(0.0, self.end - self.runtime.now()))
        try:
            await self.core.control(self.name, *self._words(), longest=longest)
        except errors.FairlockError as error:
            if self.line is not None and isinstance(error, errors.Unavailable):
                return  # The end of its connection frees the lock as well.
            if error.code != "NOTHELD":
                raise
            # If only the reply was lost, the first try has released it.
            if not getattr(error, "may_be_done", False):
                self.lost._set("notheld")
                raise self.loss() from error
        finally:
            await self._end_session()

    async def _end_session(self) -> None:
        """The watcher of the connection closes it first."""
        if self.line is None:
            return
        self.line.abort()
        with self.mutex:
            self.may_close, is_unwatched = True, self.is_unwatched
        if is_unwatched:
            await self.core.lines.drop(self.line)

    async def _release_if_still_ours(self) -> None:
        """The lease is over perhaps only by this side's clock."""
        try:
            await self.core.control(self.name, *self._words(), longest=0.0)
        except errors.FairlockError as error:
            log.debug("a lost lock was not there to release: %s", error)
