"""The protocol, without I/O: what is sent, and how long is waited. clients/behaviours.md tells it.

Each operation is a generator. It yields steps, which an Io carries out as its methods of that name, and is sent what came of them; a failure is thrown
into it. So it is written once for threads and asyncio, and tested without a server.
"""

from __future__ import annotations

import math
import os
import random
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import redis.exceptions as redis_errors

from . import _errors as errors
from ._errors import Failure
from ._options import Event, Info, Options, check_name, log, ms, new_owner
from ._scripts import warning, without

T = TypeVar("T")
Work = Generator[tuple[Any, ...], Any, T]
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0  # seconds between tries
LEAVE = 1.0  # seconds for which a caller waits until it has left the queue
KEPT = 60.0  # seconds for which an ear waits for its next use
REDIRECTS = 16  # in a row, before they count as failures
ASKS = 16  # at a time: a thousand waiters take no more connections


class Tries:
    """Failures in a row: the first, until when it is tried again, the next pause; and where it was last tried."""

    def __init__(self, name: str | bytes, options: Options, longest: float, where: str) -> None:
        self.name, self.options, self.longest, self.where = name, options, longest, where
        self.is_unheard = False  # a reply was lost: that request may still be carried out
        self.reset()

    def reset(self) -> None:
        self.first: BaseException | None = None
        self.end, self.reason, self.pause, self.redirects = math.inf, "", FIRST_PAUSE, 0


class Ear:
    """An owner name, and its subscription to the wake-ups. Its bell rings for them, for a subscription that stands, and to make its caller look up."""

    def __init__(self, name: str | bytes, owner: str | None, bell: Any) -> None:
        self.name, self.is_given, self.owner, self.bell = name, owner is not None, owner or new_owner(), bell
        self.channel, self.stands = b"", False  # the subscription
        self.error: Exception | None = None


class Ask(Tries):
    """One acquisition under way."""

    def __init__(self, core: Core, name: str | bytes, options: Options) -> None:
        # Without a wait there is still the time of one answer.
        super().__init__(name, options, options.command_timeout if options.wait == 0 else options.retry_timeout, core.where)
        self.started, self.ear, self.line = core.now(), core.take_ear(name, options.owner), None
        self.over = math.inf if options.wait is None else self.started + options.wait
        self.stop: BaseException | None = None  # the caller is cancelled, or Locks closed
        self.was_answered = self.is_waiting = self.is_granted = self.is_unconfirmed = False
        self.is_clean = True  # neither waits nor holds, nor ever will: the owner name can be used again

    def words(self) -> tuple[Any, ...]:
        way = ("NOWAIT",) if self.options.wait == 0 else ("ENQUEUE", "PATIENCE", ms(self.options.patience))
        return ("FAIRLOCK.ACQUIRE", self.name, self.ear.owner, *self.options.arguments(), *way)


class Hold:
    """A lock that is held: `state` is held, then lost or released; in a forked child, the parent's."""

    def __init__(self, core: Core, ask: Ask, token: int, sent: float) -> None:
        self.core, self.name, self.owner, self.token, self.options = core, ask.name, ask.ear.owner, token, ask.options
        self.ear, self.is_clean, self.line, self.where, self.lost = ask.ear, not ask.is_unheard, ask.line, ask.where, core.io.lost()
        self.lease, self.end, self.acquired = ask.options.lease, sent + ask.options.lease, core.now()
        self.state, self.holds = "held", 1
        self.user: Callable[[], Any] = lambda: self  # a weak reference to the user's side, once there is one
        self.is_holder_gone: Callable[[], bool] = lambda: False
        self.entered: dict[Any, Any] = {}  # the reentrant holds of its thread or task

    def tell(self, hook: str, **more: Any) -> None:
        self.options.hooks.call(hook, Event(self.name, self.owner, self.token, **more))

    def loss(self) -> errors.LockLost:
        return errors.LockLost(f"{errors.shown(self.name)}: {self.where}: the lock was lost ({self.lost.cause})", self.lost.cause)


class Core:
    """The locks of one client."""

    now = staticmethod(time.monotonic)

    def __init__(self, options: Options, io: Any) -> None:
        self.options, self.io, self.where = options, io, io.where
        self.subscribe = "SSUBSCRIBE" if io.is_cluster else "SUBSCRIBE"
        self.native: bool | None = None
        self.has_warned = self.is_closed = False
        self.replicas: dict[Any, int] = {}
        self.holds: set[Hold] = set()
        self.begin()
        _all.add(self)

    def begin(self) -> None:
        """Also in a forked child: the parent keeps what it holds."""
        for hold in self.holds:
            hold.state = "the parent's"
        self.holds.clear()
        self.mutex, self.gate, self.asks = threading.RLock(), self.io.gate(ASKS), set[Ask]()
        self.turns: Any = weakref.WeakValueDictionary()
        self.idle: dict[str | bytes, list[Ear]] = defaultdict(list)

    # Owner names are used again where no request with one is under way any more.

    def take_ear(self, name: str | bytes, owner: str | None) -> Ear:
        with self.mutex:
            if owner is None and self.idle.get(name):
                ear = self.idle[name].pop()
                self.io.timer.clear(ear)
                ear.bell.clear()
                return ear
        return Ear(name, owner, self.io.bell())

    def _give_ear(self, ear: Ear, is_clean: bool) -> Work[None]:
        if ear.stands and is_clean and not ear.is_given and not self.is_closed:
            with self.mutex:
                self.idle[ear.name].append(ear)
                self.io.timer.set(ear, self.now() + KEPT)
        elif ear.stands:
            yield "drop", ear

    def due(self, it: Ear | Hold) -> Work[None]:
        """The timer's."""
        if isinstance(it, Hold):
            return (yield from self._due(it))
        with self.mutex:
            if it not in self.idle.get(it.name, ()):  # It has just been taken.
                return
            self.idle[it.name].remove(it)
            if not self.idle[it.name]:
                del self.idle[it.name]
        yield "drop", it

    # Acquiring.

    def ask(self, name: str | bytes, options: Options) -> Ask:
        check_name(name)
        if self.is_closed:
            raise errors.Closed("Locks is closed")
        ask = Ask(self, name, options)
        with self.mutex:
            self.asks.add(ask)
        return ask

    def stop(self, ask: Ask, why: BaseException) -> None:
        ask.stop = ask.stop or why
        ask.ear.bell.set()

    def acquire(self, ask: Ask) -> Work[Hold]:
        """The Hold; else the caller neither waits nor holds, or leaves in the background."""
        try:
            with self.mutex:
                turn = self.turns.setdefault(ask.name, self.io.mutex())
            yield "enter", turn  # The first asks for a name go in the order of the calls.
            try:
                hold = yield from self._try(ask)
            finally:
                turn.release()
            while hold is None:
                hold = yield from self._try(ask)
            return hold
        except BaseException as error:
            if not isinstance(error, GeneratorExit):
                yield from self._withdraw(ask)
            raise
        finally:
            with self.mutex:
                self.asks.discard(ask)

    def _withdraw(self, ask: Ask) -> Work[None]:
        if ask.is_waiting or ask.is_granted or ask.is_unheard:
            # With a given owner, the caller may hold the lock again by then.
            if not (yield from self._leave(ask, LEAVE)) and not ask.ear.is_given:
                yield "behind", self._leave(ask, ask.options.lease)
        yield from self._give_ear(ask.ear, ask.is_clean and not ask.is_unheard)
        if ask.line is not None:
            yield "close", ask.line

    def _try(self, ask: Ask) -> Work[Hold | None]:
        """Asks once; None: again."""
        try:
            if ask.stop is not None:
                raise ask.stop
            return (yield from self._ask(ask))
        except Failure as error:
            if ask.line is not None:  # In a cluster another node may be the right one.
                yield "close", ask.line
                ask.line = None
            if errors.is_unknown(error, "ssubscribe"):
                self.subscribe = "SUBSCRIBE"
                return None
            left = math.inf if ask.options.wait == 0 else ask.over - self.now()
            yield from self._failed(ask, error, left)
            return None

    def _failed(self, tries: Tries, error: Exception, left: float = math.inf) -> Work[None]:
        """Returns when it is time to try again; otherwise raises the caller's error."""
        if isinstance(error, errors.FairlockError):
            raise error
        if not errors.is_passing(error):
            raise errors.translated(error, tries.name, tries.where, tries.options.needs_module()) from error
        now = self.now()
        if tries.first is None:
            tries.first, tries.reason = error, f"{tries.where}: {errors.reason(error)}"
            tries.end = min(tries.end, now + tries.longest)
        if left <= 0 and isinstance(tries, Ask):
            raise self._not_in_time(tries)
        if self.io.is_cluster:
            yield "refresh", tries.name
        if errors.code_of(error) in errors.AT_ONCE and tries.redirects < REDIRECTS:
            tries.redirects += 1
        elif now >= tries.end:
            length = f" for {tries.longest:g} s" if tries.longest else ""
            text = f"{errors.shown(tries.name)}: not available{length}: {tries.reason}"
            raise errors.Unavailable(text, errors.code_of(error) or None) from tries.first
        else:
            yield "pause", min(tries.pause, tries.end - now, left), tries.ear.bell if isinstance(tries, Ask) else None
            tries.pause = min(tries.pause * 2, LONGEST_PAUSE)

    def _ask(self, ask: Ask) -> Work[Hold | None]:
        if ask.was_answered and self.now() >= ask.over:
            raise self._not_in_time(ask)
        if ask.options.session and ask.line is None:
            ask.line = yield "open", ask.name
        yield "enter", self.gate
        sent = self.now()
        try:
            reply, is_confirmed = yield from self._call(ask, ask.words(), confirm=True, line=ask.line)
        finally:
            self.gate.release()
        ask.was_answered, ask.is_unconfirmed = True, not is_confirmed
        if type(reply) is int:
            return (yield from self._granted(ask, reply, sent, is_confirmed))
        ask.reset()
        if reply is None:
            raise self._not_in_time(ask)
        yield from self._wait(ask, reply[1] / 1000)
        return None

    def _granted(self, ask: Ask, token: int, sent: float, is_confirmed: bool) -> Work[Hold | None]:
        lease, name, owner = ask.options.lease, ask.name, ask.ear.owner
        if self.now() - sent >= lease / 3:  # It may have been on its way for longer than its lease.
            sent = self.now()
            try:
                _, is_confirmed = yield from self._call(ask, ("FAIRLOCK.RENEW", name, owner, "LEASE", ms(lease)), confirm=True)
            except redis_errors.ResponseError as error:
                ask.is_granted = errors.code_of(error) != "NOTHELD"
                if ask.is_granted:
                    raise
                return None
        if ask.stop is not None:
            raise ask.stop
        if is_confirmed:
            hold = Hold(self, ask, token, sent)
            with self.mutex:
                self.holds.add(hold)
                self._arm(hold, sent)
            hold.tell("on_acquired", waited=hold.acquired - ask.started)
            return hold
        yield from self._leave(ask, LEAVE)
        if self.now() >= ask.over:
            raise self._not_in_time(ask)
        yield "pause", min(FIRST_PAUSE, ask.over - self.now()), ask.ear.bell
        return None

    def _wait(self, ask: Ask, retry_after: float) -> Work[None]:
        """Returns when it is time to ask again."""
        if not ask.is_waiting:
            ask.is_waiting = True
            ask.options.hooks.call("on_wait", Event(ask.name, ask.ear.owner))
        if self.now() >= ask.over:
            raise self._not_in_time(ask)
        if ask.ear.stands:
            longest = retry_after + min(1.0, retry_after / 10) * random.random()
            if (yield "pause", min(longest, ask.over - self.now()), ask.ear.bell) or self.now() >= ask.over:
                return
        # At first; and after silence, since the connection may be dead.
        yield "listen", ask.ear, self.subscribe, ask.options.command_timeout

    def _not_in_time(self, ask: Ask) -> errors.NotInTime:
        wait = ask.options.wait
        text = f"{errors.shown(ask.name)}: not acquired " + (f"within {wait:g} s" if wait else "at once")
        if ask.is_unconfirmed:
            return errors.NotReplicated(f"{text}: {ask.where}: too few replicas have confirmed it")
        error = errors.NotInTime(f"{text}: {ask.reason or ask.where}")
        error.__cause__ = ask.first
        return error

    def _leave(self, ask: Ask, longest: float) -> Work[bool]:
        """Whether the owner neither waits nor holds any more. A given owner may hold it by another caller's ask."""
        tries, timeout = Tries(ask.name, ask.options, longest, ask.where), min(longest, ask.options.command_timeout)
        ask.is_clean = False
        while True:
            try:
                has_left, _ = yield from self._call(tries, ("FAIRLOCK.CANCEL", ask.name, ask.ear.owner), timeout=timeout)
                ask.is_clean = has_left == 1
                if not has_left and (ask.is_granted or ask.is_unheard or not ask.ear.is_given):
                    yield from self._call(tries, ("FAIRLOCK.RELEASE", ask.name, ask.ear.owner), timeout=timeout)
                ask.is_granted = False
                return True
            except Failure as error:
                try:
                    yield from self._failed(tries, error)
                except errors.FairlockError as failed:  # NOTHELD is as good.
                    return self.is_closed or not isinstance(failed, errors.Unavailable)

    # Commands.

    def _call(
        self, tries: Tries, words: tuple[Any, ...], confirm: bool = False, line: Any = None, timeout: float | None = None
    ) -> Work[tuple[Any, bool]]:
        """The reply, and whether enough replicas have confirmed it: WAIT covers what its own connection has written."""
        options, form = tries.options, "EVALSHA"
        pool, wanted = yield from self._where(tries, confirm)
        wait = [("WAIT", wanted, ms(options.sync_timeout))] if wanted else []
        longest = (timeout or options.command_timeout) + (options.sync_timeout if wanted else 0)
        needs_module = options.module == "required" or (isinstance(tries, Ask) and options.needs_module() is not None)
        while True:
            is_script = self.native is False and not needs_module
            commands, parse = without(words, form) if is_script else ([words], lambda replies: replies[0])
            try:
                replies = yield "send", pool, [*commands, *wait], longest, line
            except BaseException as error:
                tries.is_unheard |= not hasattr(error, "is_unsent")
                raise
            failed = next((reply for reply in replies if isinstance(reply, Exception)), None)
            if isinstance(tries, Ask) and type(replies[0]) is int and words[0] == "FAIRLOCK.ACQUIRE":
                tries.is_granted = True
            if isinstance(failed, redis_errors.NoScriptError) and form == "EVALSHA":
                form = "EVAL"
            elif not is_script and not needs_module and errors.is_out_of_reach(failed):
                self._without_module(failed, tries.where)
            elif failed is not None:
                raise failed
            else:
                self.native = self.native if is_script else True
                return parse(replies), not wanted or replies[-1] >= wanted

    def _without_module(self, error: Any, where: str) -> None:
        with self.mutex:
            self.native, has_warned, self.has_warned = False, self.has_warned, True
        if not has_warned:
            log.warning(warning(error), where)

    def _where(self, tries: Tries, confirm: bool) -> Work[tuple[Any, int]]:
        """The pool of the name's server, and how many replicas have to confirm."""
        key, tries.where, pool = yield "route", tries.name
        if not confirm or not tries.options.sync_timeout:
            return pool, 0
        if tries.options.min_replicas is not None:
            return pool, tries.options.min_replicas
        if key not in self.replicas:
            (role,) = yield "send", pool, [("ROLE",)], tries.options.command_timeout, None
            if errors.is_unknown(role, "role"):
                role = [b"master", 0, []]
            if isinstance(role, Exception):
                raise role
            if role[0] != b"master":
                return pool, 0  # It will refuse.
            key, tries.where, pool = yield "route", tries.name  # A client of Sentinel knows the master once it has connected.
            self.replicas[key] = min(1, len(role[2]))
        return pool, self.replicas[key]

    def info(self, name: str | bytes) -> Work[Info]:
        check_name(name)
        tries = Tries(name, self.options, self.options.command_timeout, self.where)
        while True:
            try:
                reply, _ = yield from self._call(tries, ("FAIRLOCK.INFO", name))
                return Info.of(reply)
            except Failure as error:
                yield from self._failed(tries, error)

    # Holding.

    def _arm(self, hold: Hold, sent: float) -> None:
        is_renewed = hold.options.renew or hold.options.session
        self.io.timer.set(hold, sent + hold.lease / 3 if is_renewed else hold.end)

    def _due(self, hold: Hold) -> Work[None]:
        """Renews, or finds that the lease is over."""
        if hold.state != "held":
            return
        if self.now() >= hold.end:
            return (yield from self.lose(hold, "lease"))
        if hold.user() is None or hold.is_holder_gone():
            return (yield from self._forget(hold, hold.line))
        self.io.timer.set(hold, hold.end)  # The lease may end while the answer does not come.
        if not (hold.options.renew or hold.options.session):
            return
        # A session's own connection is kept busy; what fails there is asked elsewhere at once.
        for line in (hold.line, None) if hold.line else (None,):
            try:
                yield from self._renew(hold, Tries(hold.name, hold.options, 0.0, hold.where), hold.lease, line)
                return
            except Exception as error:
                if hold.state != "held":  # lost, or released in between
                    return
                if self.io.is_cluster:
                    yield "refresh", hold.name
                if not (errors.is_passing(error) or isinstance(error, errors.NotReplicated)):
                    log.warning("the lock %r cannot be renewed: %s", hold.name, error)
        self.io.timer.set(hold, min(hold.end, self.now() + max(hold.lease / 10, FIRST_PAUSE)))

    def _renew(self, hold: Hold, tries: Tries, lease: float, line: Any = None) -> Work[float]:
        """Only this moves the end of the lease, and only if enough replicas confirm it."""
        sent, words = self.now(), ("FAIRLOCK.RENEW", hold.name, hold.owner, "LEASE", ms(lease))
        try:
            reply, is_confirmed = yield from self._call(tries, words, confirm=True, line=line)
        except redis_errors.ResponseError as error:
            if errors.code_of(error) != "NOTHELD" or hold.state != "held":
                raise
            yield from self.lose(hold, "notheld")
            raise hold.loss() from error
        if not is_confirmed:
            raise errors.NotReplicated(f"{errors.shown(hold.name)}: {tries.where}: too few replicas have confirmed the renewal")
        with self.mutex:
            hold.lease, hold.end, hold.where = lease, sent + lease, tries.where
            if hold.state == "held":
                self._arm(hold, sent)
        return float(reply) / 1000

    def renew(self, hold: Hold, lease: float | None) -> Work[float]:
        if lease is not None:
            hold.options.but({"lease": lease})  # checks it
        tries = Tries(hold.name, hold.options, hold.options.retry_timeout, hold.where)
        tries.end = hold.end
        while True:
            if hold.state == "lost":
                raise hold.loss()
            if hold.state != "held":
                gone = "was released" if hold.state == "released" else "is held by the process that was forked"
                raise errors.FairlockError(f"{errors.shown(hold.name)}: the lock {gone}")
            try:
                return (yield from self._renew(hold, tries, hold.lease if lease is None else lease))
            except Failure as error:
                yield from self._failed(tries, error)

    def enter_again(self, hold: Hold) -> Any:
        """The user's side of what this caller holds already."""
        with self.mutex:
            if hold.state == "lost":
                raise hold.loss()
            hold.holds += 1
        return hold.user()

    def _forget(self, hold: Hold, line: Any) -> Work[None]:
        with self.mutex:
            self.holds.discard(hold)
            self.io.timer.clear(hold)
            if hold.entered.get(hold.name) is hold:
                del hold.entered[hold.name]
        if line is not None:
            yield "close", line

    @staticmethod
    def _set_lost(hold: Hold, cause: str) -> None:
        hold.lost.cause = hold.lost.cause or cause
        hold.lost.set()

    def lose(self, hold: Hold, cause: str) -> Work[None]:
        with self.mutex:
            if hold.state != "held":
                return
            hold.state = "lost"
        self._set_lost(hold, cause)
        hold.tell("on_lost", cause=cause, held=self.now() - hold.acquired)
        yield from self._forget(hold, hold.line)

    def release(self, hold: Hold) -> Work[None]:
        with self.mutex:
            if hold.state not in ("held", "lost"):
                return
            hold.holds -= 1
            if hold.holds > 0:
                return
            was_lost, hold.state = hold.state == "lost", "released"
        yield from self._forget(hold, None)
        is_clean = False
        try:
            if was_lost:
                if hold.lost.cause == "lease":  # perhaps only by this side's clock
                    yield "behind", self._release(hold, 0.0)
                raise hold.loss()
            is_clean = (yield from self._release(hold, hold.options.release_timeout)) and hold.is_clean
        except errors.Unavailable:
            if hold.line is None:  # The end of a session's connection frees the lock, too.
                raise
        finally:
            if hold.line is not None and not was_lost:
                yield "close", hold.line
            yield from self._give_ear(hold.ear, is_clean)
        hold.tell("on_released", held=self.now() - hold.acquired)

    def _release(self, hold: Hold, longest: float) -> Work[bool]:
        """Whether the server has said that it is released, to the only request for that."""
        tries = Tries(hold.name, hold.options, longest, hold.where)
        tries.end = max(hold.end, self.now())
        while True:
            try:
                yield from self._call(tries, ("FAIRLOCK.RELEASE", hold.name, hold.owner, "TOKEN", hold.token))
                return not tries.is_unheard
            except Failure as error:
                if errors.code_of(error) == "NOTHELD":
                    if tries.is_unheard:  # The first request has released it; only its reply was lost.
                        return False
                    self._set_lost(hold, "notheld")
                    raise hold.loss() from error
                yield from self._failed(tries, error)

    def close(self) -> Work[None]:
        """All waits end, and leave their queues; held locks are lost."""
        with self.mutex:
            self.is_closed = True
            asks, holds, idle = list(self.asks), list(self.holds), [ear for kept in self.idle.values() for ear in kept]
        for hold in holds:
            yield from self.lose(hold, "closed")
        for ask in asks:
            self.stop(ask, errors.Closed("Locks is closed"))
        end = self.now() + self.options.command_timeout
        while self.asks and self.now() < end:
            yield "pause", 0.01, None
        for ear in idle:
            self.io.timer.clear(ear)
        yield ("end",)


_all: weakref.WeakSet[Core] = weakref.WeakSet()


def _in_child() -> None:
    for core in list(_all):
        core.io.in_child(core.holds)
        core.begin()


os.register_at_fork(after_in_child=_in_child)
