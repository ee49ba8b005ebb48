"""Holding: renewal, loss and release; and the whole of what a Locks does."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any

import redis.exceptions as redis_errors

from . import _errors as errors
from ._asks import Ask, Asks, Ear
from ._calls import FIRST_PAUSE, Tries
from ._errors import Failure
from ._options import Options, log, ms


class Hold:
    """A lock that is held: `state` is held, then lost or released; in a forked child, the parent's."""

    def __init__(self, core: Core, ask: Ask, token: int, sent: float) -> None:
        self.core, self.name, self.owner, self.token, self.options = core, ask.name, ask.ear.owner, token, ask.options
        self.ear, self.is_clean, self.line, self.where, self.lost = ask.ear, not ask.is_unheard, ask.line, ask.where, core.io.lost()
        self.lease, self.end, self.acquired = ask.options.lease, sent + ask.options.lease, core.now()
        self.state, self.holds = "held", 1
        self.unanswered = set[Tries]()  # renewals, which may still set their lease
        self.user: Callable[[], Any]  # a weak reference to the user's side
        self.entered: dict[Any, Any] = {}  # the reentrant holds of its thread or task

    def tell(self, hook: str, **more: Any) -> None:
        self.options.hooks.call(hook, self.name, self.owner, self.token, **more)

    def loss(self) -> errors.LockLost:
        return errors.LockLost(f"{errors.shown(self.name)}: {self.where}: the lock was lost ({self.lost.cause})", self.lost.cause)


class Core(Asks):
    """The locks of one client. What waits or does I/O is the Io's, so this is written once for threads and asyncio."""

    def __init__(self, options: Options, io: Any) -> None:
        self.holds: set[Hold] = set()
        super().__init__(options, io)
        _all.add(self)

    def begin(self) -> None:
        super().begin()
        for hold in self.holds:
            hold.state = "the parent's"
        self.holds.clear()

    def _hold(self, ask: Ask, token: int, sent: float) -> Any:
        """The user's side: without it the lock is not renewed, so that it is not kept if that never arrives."""
        hold = Hold(self, ask, token, sent)
        held = self.io.held(hold)
        with self.mutex:
            if self.is_closed:
                raise errors.Closed("Locks is closed")
            self.holds.add(hold)
            self._arm(hold, sent)
        hold.tell("on_acquired", waited=hold.acquired - ask.started)
        return held

    async def due(self, it: Ear | Hold) -> None:
        """The timer's."""
        if isinstance(it, Hold):
            return await self._due(it)
        with self.mutex:
            if it not in self.idle.get(it.name, ()):  # It has just been taken.
                return
            self.idle[it.name].remove(it)
            if not self.idle[it.name]:
                del self.idle[it.name]
        await self.io.drop(it)

    def _arm(self, hold: Hold, sent: float) -> None:
        is_renewed = hold.options.renew or hold.options.session
        self.io.timer.set(hold, sent + hold.lease / 3 if is_renewed else hold.end)

    async def _due(self, hold: Hold) -> None:
        """Renews, or finds that the lease is over."""
        if hold.state != "held":
            return
        if self.now() >= hold.end:
            return await self.lose(hold, "lease")
        if hold.user() is None:
            return await self._over(hold)
        self.io.timer.set(hold, hold.end)  # The lease may end while the answer does not come.
        if not (hold.options.renew or hold.options.session):
            return
        # A session's own connection is kept busy; what fails there is asked elsewhere at once.
        for line in (hold.line, None) if hold.line else (None,):
            try:
                await self._renew(hold, Tries(hold.name, hold.options, 0.0, hold.where), hold.lease, line)
                return
            except Exception as error:
                if hold.state != "held":  # lost, or released in between
                    return
                if self.io.is_cluster:
                    await self.io.refresh(hold.name)
                if not (errors.is_passing(error) or isinstance(error, errors.NotReplicated)):
                    log.warning("the lock %r cannot be renewed: %s", hold.name, error)
        self.io.timer.set(hold, min(hold.end, self.now() + max(hold.lease / 10, FIRST_PAUSE)))

    async def _renew(self, hold: Hold, tries: Tries, lease: float, line: Any = None) -> float:
        """Only this moves the end of the lease, and only if enough replicas confirm it."""
        with self.mutex:
            if hold.state == "lost":
                raise hold.loss()
            if hold.state != "held":
                gone = "was released" if hold.state == "released" else "is held by the process that was forked"
                raise errors.FairlockError(f"{errors.shown(hold.name)}: the lock {gone}")
            hold.unanswered.add(tries)
        sent, words = self.now(), ("FAIRLOCK.RENEW", hold.name, hold.owner, "LEASE", ms(lease))
        try:
            reply, is_confirmed = await self._call(tries, words, confirm=True, line=line)
        except redis_errors.ResponseError as error:
            if errors.code_of(error) != "NOTHELD" or hold.state != "held":
                raise
            await self.lose(hold, "notheld")
            raise hold.loss() from error
        finally:
            if not tries.is_unheard:
                hold.unanswered.discard(tries)
        if not is_confirmed:
            raise errors.NotReplicated(f"{errors.shown(hold.name)}: {tries.where}: too few replicas have confirmed the renewal")
        with self.mutex:
            hold.lease, hold.end, hold.where = lease, sent + lease, tries.where
            if hold.state == "held":
                self._arm(hold, sent)
        return float(reply) / 1000

    async def renew(self, hold: Hold, lease: float | None) -> float:
        if lease is not None:
            hold.options.but({"lease": lease})  # checks it
        tries = Tries(hold.name, hold.options, hold.options.retry_timeout, hold.where)
        tries.end = hold.end
        while True:
            try:
                return await self._renew(hold, tries, hold.lease if lease is None else lease)
            except Failure as error:
                await self._failed(tries, error)

    def enter_again(self, hold: Hold) -> Any:
        """The user's side of what this caller holds already."""
        with self.mutex:
            if hold.state == "lost":
                raise hold.loss()
            hold.holds += 1
        return hold.user()

    def _forget(self, hold: Hold) -> None:
        with self.mutex:
            self.holds.discard(hold)
            self.io.timer.clear(hold)
            if hold.entered.get(hold.name) is hold:
                del hold.entered[hold.name]

    async def _over(self, hold: Hold) -> None:
        """Lost, or abandoned: it need not be released."""
        self._forget(hold)
        if hold.line is not None:
            await self.io.close(hold.line)
        await self.io.drop(hold.ear)

    @staticmethod
    def _set_lost(hold: Hold, cause: str) -> None:
        hold.lost.cause = hold.lost.cause or cause
        hold.lost.set()

    async def lose(self, hold: Hold, cause: str) -> None:
        with self.mutex:
            if hold.state != "held":
                return
            hold.state = "lost"
        self._set_lost(hold, cause)
        hold.tell("on_lost", cause=cause, held=self.now() - hold.acquired)
        await self._over(hold)

    async def release(self, hold: Hold) -> None:
        with self.mutex:
            if hold.state not in ("held", "lost"):
                return
            hold.holds -= 1
            if hold.holds > 0:
                return
            was_lost, hold.state = hold.state == "lost", "released"
        self._forget(hold)
        if was_lost:
            if hold.lost.cause == "lease":  # perhaps only by this side's clock
                await self.io.behind(self._release, hold, 0.0)
            raise hold.loss()
        is_clean = False
        try:
            is_clean = await self._release(hold, hold.options.release_timeout) and hold.is_clean and not hold.unanswered
            hold.ear.released = hold.token
        except errors.Unavailable:
            if hold.line is None:  # The end of a session's connection frees the lock, too.
                raise
        finally:
            if hold.line is not None:
                await self.io.close(hold.line)
            await self._give_ear(hold.ear, is_clean)
        hold.tell("on_released", held=self.now() - hold.acquired)

    async def _release(self, hold: Hold, longest: float) -> bool:
        """Whether the server has said that it is released, to the only request for that."""
        tries = Tries(hold.name, hold.options, longest, hold.where)
        tries.end = max(hold.end, self.now())
        try:
            await self._again(tries, "FAIRLOCK.RELEASE", hold.name, hold.owner, "TOKEN", hold.token)
        except errors.Refused as refused:
            if refused.code != "NOTHELD":
                raise
            if tries.is_unheard:  # The first request has released it; only its reply was lost.
                return False
            self._set_lost(hold, "notheld")
            raise hold.loss() from refused
        return not tries.is_unheard

    async def close(self) -> None:
        """All waits end, and leave their queues; held locks are lost."""
        with self.mutex:
            self.is_closed = True
            asks, holds, idle = list(self.asks), list(self.holds), [ear for kept in self.idle.values() for ear in kept]
        for hold in holds:
            await self.lose(hold, "closed")
        for ask in asks:
            self.stop(ask, errors.Closed("Locks is closed"))
        end = self.now() + self.options.command_timeout
        while self.asks and self.now() < end:
            await self.io.pause(0.01, None)
        for ear in idle:
            self.io.timer.clear(ear)
        await self.io.end()


_all: weakref.WeakSet[Core] = weakref.WeakSet()


def _in_child() -> None:
    for core in list(_all):
        core.io.in_child(core.holds)
        core.begin()


os.register_at_fork(after_in_child=_in_child)
