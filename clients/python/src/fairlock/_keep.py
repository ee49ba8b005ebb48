"""A lock that is held: its renewal, how it is noticed that it was lost, and its release."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import _errors as errors
from ._options import Event, log, ms

if TYPE_CHECKING:
    from ._core import Ask, Core, Line

SOON = 0.05  # seconds: the shortest pause between tries to renew


class Keep:
    """The package's side of a held lock. It refers to the user's side, Held, only weakly: where nobody has that any
    more, nobody can release, and renewing would hold the lock for ever.
    """

    def __init__(self, core: Core, ask: Ask, token: int, sent: float, received: float, line: Line | None) -> None:
        self.core, self.name, self.owner, self.token = core, ask.name, ask.owner, token
        self.options, self.line = ask.options, line
        self.runtime = core.runtime
        self.lease = ask.options.lease
        # A process that was stopped while it waited may have lost the lock before it read that it has it.
        was_quick = received - sent < self.lease / 3
        self.end = (sent if was_quick else received) + self.lease
        self.acquired, self.waited = received, received - ask.started
        self.lost = self.runtime.new_lost()
        self.mutex = threading.RLock()
        self.state = "held"  # then lost or released
        self.holds = 1
        self.held: Callable[[], Any] = lambda: self  # until Held is made
        self.is_holder_gone: Callable[[], bool] = lambda: False
        self.entered: dict[Any, Any] = {}
        self.timer: Callable[[], None] = lambda: None
        self.enter()
        if line is not None:
            self.runtime.later(0, self._watch)
        else:
            self._arm(0 if not was_quick else self.lease / 3)
        self.options.hooks.call("on_acquired", self.event(waited=self.waited))
        with core.mutex:
            cause = core.gone.pop(token, None)
        if cause:
            self.lose(cause)

    def event(self, **more: Any) -> Event:
        return Event(self.name, self.owner, self.token, **more)

    def belongs_to(self, held: Any) -> None:
        self.held = weakref.ref(held)

    # -------------------------------------------------------------------------- reentrancy

    def enter(self) -> None:
        with self.core.mutex:
            self.core.kept.add(self)
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
        if self.entered.get((id(self.core), self.name)) is self:
            del self.entered[id(self.core), self.name]

    # ----------------------------------------------------------------------------- renewal

    def _arm(self, due: float) -> None:
        """Sees to the next renewal, or to the end of the lease if that comes first."""
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
        except errors.LockLost:
            return
        except errors.FairlockError as error:
            if not isinstance(error, errors.Unavailable):
                log.warning("the lock %r cannot be renewed: %s", self.name, error)
            self._arm(max(self.lease / 10, SOON))

    async def renew(self, lease: float | None) -> float:
        """Sets the lease anew; the end as far as the client knows moves only by this."""
        if self.state == "lost":
            raise self.loss()
        if self.state != "held":
            raise errors.FairlockError("the lock was released")
        lease = self.lease if lease is None else lease
        sent = self.runtime.now()
        try:
            words = ("FAIRLOCK.RENEW", self.name, self.owner, "LEASE", ms(lease))
            reply, _ = await self.core.control(self.name, *words, longest=0.0)
        except errors.FairlockError as error:
            if error.code != "NOTHELD" or self.state == "released":
                raise
            self.lose("notheld")
            raise self.loss() from error
        self.lease, self.end = lease, sent + lease
        if self.line is None:
            self._arm(lease / 3)
        return float(reply) / 1000

    async def _watch(self) -> None:
        """A session lives as long as its connection, which is asked now and then whether the lock is still there."""
        line = self.line
        assert line is not None
        try:
            while self.state == "held":
                await line.watch(self.lease / 3)
                if self.state != "held":
                    return
                if self.held() is None or self.is_holder_gone():
                    return self.leave()
                sent = self.runtime.now()
                words = ("FAIRLOCK.RENEW", self.name, self.owner, "LEASE", ms(self.lease))
                # What was left of the lease at the last check, if this one is in time.
                await line.call(*words, timeout=max(SOON, self.lease * 2 / 3))
                self.end = sent + self.lease
        except Exception as error:
            self.lose("notheld" if str(error).startswith("NOTHELD") else "connection")
        finally:
            await self.core.drop(line)

    # -------------------------------------------------------------------------------- loss

    def lose(self, cause: str) -> None:
        with self.mutex:
            if self.state != "held":
                return
            self.state = "lost"
        self.leave()
        if self.line is not None:
            self.line.abort()
        self.lost._set(cause)
        held = self.runtime.now() - self.acquired
        self.options.hooks.call("on_lost", self.event(cause=cause, held=held))

    def loss(self) -> errors.LockLost:
        name = self.name if isinstance(self.name, str) else self.name.decode(errors="replace")
        return errors.LockLost(f"{name}: the lock was lost ({self.lost.cause})", self.lost.cause)

    # ----------------------------------------------------------------------------- release

    async def release(self) -> None:
        with self.mutex:
            if self.state == "released":
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
            if self.line is not None:
                self.line.abort()  # Whoever watches it closes it.

    async def _release_if_still_ours(self) -> None:
        """The lease is over by our clock only, perhaps."""
        try:
            await self.core.control(self.name, *self._words(), longest=0.0)
        except errors.FairlockError as error:
            log.debug("a lost lock was not there to release: %s", error)
