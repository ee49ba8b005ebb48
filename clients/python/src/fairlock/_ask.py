"""One acquisition under way, and how often temporary failures are tried again."""

from __future__ import annotations

from typing import Any

import redis.exceptions as redis_errors

from . import _errors as errors
from ._lines import Ear, Runtime
from ._options import Options, new_owner
from ._route import Address

# Temporary refusals: the same owner asks again, and still has its place.
PASSING = {"CLUSTERDOWN", "TRYAGAIN", "LOADING", "READONLY", "MASTERDOWN", "NOREPLICAS"}
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0  # seconds between tries


class Tries:
    """How long, and how often, a temporary failure is tried again."""

    def __init__(self, name: str | bytes, runtime: Runtime, longest: float) -> None:
        self.name, self.runtime, self.longest = name, runtime, longest
        self.succeeded()

    def succeeded(self) -> None:
        self.since: float | None = None
        self.first: Exception | None = None
        self.reason = ""
        self.pause, self.redirects = FIRST_PAUSE, 0

    def failed(self, error: Exception, where: str) -> None:
        """The caller is told the first failure."""
        if self.first is None:
            self.since, self.first = self.runtime.now(), error
            self.reason = f"{where}: {errors.reason(error)}"

    async def pause_after(self, error: Exception, left: float | None) -> None:
        """Sleeps, or raises Unavailable when the time is up."""
        assert self.since is not None
        until_end = self.since + self.longest - self.runtime.now()
        if until_end <= 0:
            code = errors.code_of(error) if isinstance(error, redis_errors.ResponseError) else None
            length = f" for {self.longest:g} s" if self.longest else ""
            raise errors.Unavailable(f"{errors.shown(self.name)}: not available{length}: {self.reason}", code) from self.first
        await self.sleep(until_end, left)

    async def sleep(self, *limits: float | None) -> None:
        await self.runtime.sleep(max(0.0, min(self.pause, *(each for each in limits if each is not None), LONGEST_PAUSE)))
        self.pause = min(self.pause * 2, LONGEST_PAUSE)


class Ask:
    """One acquisition under way."""

    def __init__(self, name: str | bytes, options: Options, runtime: Runtime) -> None:
        self.name, self.options, self.runtime = name, options, runtime
        self.owner = options.owner or new_owner()
        self.started = runtime.now()
        # Without a wait there is still the time of one answer.
        self.tries = Tries(name, runtime, options.command_timeout if options.wait == 0 else options.retry_timeout)
        self.is_waiting = False
        self.may_be_known = False  # to the server, as waiter or holder
        self.is_unconfirmed = False
        self.asking_at: Address | None = None
        # With a given owner, only a blocked waiter learns of TAKENOVER.
        self.blocks = runtime.blocks or options.owner is not None
        self.ear: Ear | None = None

    def left(self) -> float | None:
        wait = self.options.wait
        return None if wait is None else self.started + wait - self.runtime.now()

    def is_over(self) -> bool:
        left = self.left()
        return left is not None and left <= 0

    async def stop_listening(self) -> None:
        ear, self.ear = self.ear, None
        if ear is not None:
            await ear.close()

    def words(self) -> tuple[Any, ...]:
        return ("FAIRLOCK.ACQUIRE", self.name, self.owner, *self.options.arguments())


def is_passing(error: Exception) -> bool:
    """Whether trying again a little later may help."""
    if isinstance(error, (redis_errors.AuthenticationError, redis_errors.AuthorizationError)):
        return False
    if isinstance(error, (redis_errors.ResponseError, redis_errors.BusyLoadingError)):
        return errors.code_of(error) in PASSING | {"UNBLOCKED", "MOVED", "ASK"}
    return isinstance(error, (redis_errors.ConnectionError, redis_errors.TimeoutError, OSError))
