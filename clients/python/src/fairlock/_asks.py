"""Acquiring: asking, waiting and leaving. clients/protocol.md tells the protocol."""

from __future__ import annotations

import math
import random
import threading
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any

from . import _errors as errors
from ._calls import FIRST_PAUSE, Calls, Tries
from ._errors import Failure
from ._options import Options, check_name, new_owner

if TYPE_CHECKING:
    from ._core import Hold

LEAVE = 1.0  # seconds for which a caller waits until it has left the queue
SHORTEST = 0.1  # seconds for which an answer is waited for, however little time is left
KEPT = 60.0  # seconds for which an ear waits for its next use
ASKS = 16  # at a time: a thousand waiters take no more connections


class Ear:
    """An owner name, and its subscription to the wake-ups. Its bell rings for them, for a subscription that stands, and to make its caller look up."""

    def __init__(self, name: str | bytes, owner: str | None, bell: Any) -> None:
        self.name, self.is_given, self.owner, self.bell = name, owner is not None, owner or new_owner(), bell
        self.channel, self.stands = b"", False  # the subscription
        self.released = 0  # the last token of this owner that was released
        self.error: Exception | None = None


class Ask(Tries):
    """One acquisition under way."""

    def __init__(self, core: Asks, name: str | bytes, options: Options) -> None:
        # Without a wait there is still the time of one answer.
        super().__init__(name, options, options.command_timeout if options.wait == 0 else options.retry_timeout, core.where)
        self.started, self.ear, self.line = core.now(), core.take_ear(name, options.owner), None
        self.bell, self.needing = self.ear.bell, options.needing
        self.over = math.inf if options.wait is None else self.started + options.wait
        self.last = self.started + self.longest if options.wait == 0 else self.over  # until when it waits for its turn to ask
        self.stop: BaseException | None = None  # the caller is cancelled, or Locks closed
        self.was_answered = self.was_late = self.is_waiting = self.is_unconfirmed = False
        self.retry_after: float | None = None  # seconds for which it is to wait, unless it is woken, before it asks again
        self.is_clean = True  # neither waits nor holds, nor ever will: the owner name can be used again


class Asks(Calls):
    """The acquisitions of one client that are under way."""

    holds: set[Hold]

    def __init__(self, options: Options, io: Any) -> None:
        super().__init__(options, io)
        self.subscribe = "SSUBSCRIBE" if io.is_cluster else "SUBSCRIBE"
        self.begin()

    def begin(self) -> None:
        """Also in a forked child."""
        self.mutex, self.gate, self.asks = threading.RLock(), self.io.gate(), set[Ask]()
        for _ in range(ASKS):
            self.gate.put_nowait(None)
        self.firsts: dict[str | bytes, deque[Ask]] = {}  # by name, those that ask for the first time
        self.idle: dict[str | bytes, list[Ear]] = defaultdict(list)

    def _hold(self, ask: Ask, token: int, sent: float) -> Any:
        raise NotImplementedError

    # Owner names are used again where no request with one is under way any more.

    def take_ear(self, name: str | bytes, owner: str | None) -> Ear:
        with self.mutex:
            if owner is None and self.idle.get(name):
                ear = self.idle[name].pop()
                self.io.timer.clear(ear)
                ear.bell.clear()
                return ear
        return Ear(name, owner, self.io.bell())

    async def _give_ear(self, ear: Ear, is_clean: bool) -> None:
        if ear.stands and is_clean and not ear.is_given and not self.is_closed:
            with self.mutex:
                self.idle[ear.name].append(ear)
                self.io.timer.set(ear, self.now() + KEPT)
        elif ear.channel:
            await self.io.drop(ear)

    def ask(self, name: str | bytes, options: Options) -> Ask:
        check_name(name)
        return Ask(self, name, options)

    def stop(self, ask: Ask, why: BaseException) -> None:
        ask.stop = ask.stop or why
        ask.ear.bell.set()

    async def acquire(self, ask: Ask) -> Any:
        """The user's side of the Hold; else the caller neither waits nor holds, or leaves in the background."""
        with self.mutex:
            if self.is_closed:
                raise errors.Closed("Locks is closed")
            self.asks.add(ask)
        try:
            held = await self._try_first(ask)
            while held is None:
                held = await self._try(ask)
            return held
        except BaseException as error:
            if not isinstance(error, GeneratorExit):
                ask.stop = ask.stop or error
                self._let_next_ask(ask)  # A signal may have raised it just there.
                await self._withdraw(ask)
            raise
        finally:
            with self.mutex:
                self.asks.discard(ask)

    async def _try_first(self, ask: Ask) -> Any:
        """The first asks for a name go one after the other, in the order of the calls."""
        try:
            with self.mutex:
                firsts = self.firsts.setdefault(ask.name, deque())
                firsts.append(ask)
            while firsts[0] is not ask and ask.stop is None:
                await self.io.pause(ask.last - self.now(), ask.bell)
                if self.now() >= ask.last:
                    raise self._not_in_time(ask)
            with self.mutex:
                ask.bell.clear()  # It rang for this, and is not to end a wait for the lock.
            return await self._try(ask)
        finally:
            self._let_next_ask(ask)

    def _let_next_ask(self, ask: Ask) -> None:
        with self.mutex:
            firsts = self.firsts.get(ask.name, deque())
            if ask in firsts:
                firsts.remove(ask)
            if firsts:
                firsts[0].bell.set()
            else:
                self.firsts.pop(ask.name, None)

    async def _withdraw(self, ask: Ask) -> None:
        is_known = ask.is_waiting or ask.is_granted or ask.is_unheard
        if not is_known or (ask.ear.is_given and self._leave_to_others(ask)):
            return await self._end(ask)
        has_left = self.io.bell()
        await self.io.behind(self._leave_and_end, ask, has_left)
        await self.io.pause(LEAVE, has_left)

    def _leave_to_others(self, ask: Ask) -> bool:
        """Whether there are others with its owner that stay: the place, or the lock, is theirs, too, and the last one gives it up."""
        with self.mutex:
            others = [each for each in self.asks if (each.name, each.ear.owner) == (ask.name, ask.ear.owner) and each.stop is None]
            for each in others:
                each.is_unheard = True
            return bool(others) or any((hold.name, hold.owner) == (ask.name, ask.ear.owner) for hold in self.holds)

    async def _leave_and_end(self, ask: Ask, has_left: Any) -> None:
        # With a given owner, the caller may hold the lock again after that.
        is_short = ask.ear.is_given or self.is_closed
        await self._leave(ask, LEAVE if is_short else ask.options.lease)
        await self._end(ask)
        has_left.set()

    async def _end(self, ask: Ask) -> None:
        await self._give_ear(ask.ear, ask.is_clean and not ask.is_unheard)
        if ask.line is not None:
            await self.io.close(ask.line)

    async def _try(self, ask: Ask) -> Any:
        """Asks once; None: again."""
        must_listen = await self._must_listen(ask)  # What a signal raises there, perhaps a TimeoutError, is no failure of the server's.
        try:
            if must_listen:
                await self.io.listen(ask.ear, self.subscribe, ask.options.command_timeout, ask.over - self.now())
            if ask.stop is not None:  # Also where that has ended the wait.
                raise ask.stop
            return await self._ask(ask)
        except Failure as error:
            if ask.line is not None:  # In a cluster another node may be the right one.
                await self.io.close(ask.line)
                ask.line = None
            if errors.is_unknown(error, "ssubscribe"):
                self.subscribe = "SUBSCRIBE"
                return None
            left = math.inf if ask.options.wait == 0 else ask.over - self.now()
            await self._failed(ask, error, left)
            if left <= 0:
                raise self._not_in_time(ask) from ask.first
            return None

    async def _ask(self, ask: Ask) -> Any:
        if ask.was_answered and self.now() >= ask.over:
            raise self._not_in_time(ask)
        if ask.options.session and ask.line is None:
            ask.line = await self.io.open(ask.name)
        try:
            await self.io.enter(self.gate, ask.last - self.now())
        except TimeoutError:
            raise
        except BaseException:  # A signal has raised it, perhaps with the place taken: rather one too many than one too few.
            if self.gate.qsize() < ASKS:
                self.gate.put_nowait(None)
            raise
        try:
            sent, words = self.now(), ("FAIRLOCK.ACQUIRE", ask.name, ask.ear.owner, *ask.options.arguments)
            left = math.inf if ask.options.wait == 0 else max(SHORTEST, ask.over - sent)
            timeout = min(left, ask.options.command_timeout)
            reply, is_confirmed = await self._call(ask, words, confirm=True, line=ask.line, timeout=timeout)
        finally:
            self.gate.put_nowait(None)
        ask.was_answered, ask.is_unconfirmed = True, not is_confirmed
        if type(reply) is int:
            return await self._granted(ask, reply, sent, is_confirmed)
        ask.reset()
        ask.is_granted = ask.was_late = False
        if reply is None:
            raise self._not_in_time(ask)
        ask.retry_after = reply[1] / 1000
        if not ask.is_waiting:
            ask.is_waiting = True
            ask.options.hooks.call("on_wait", ask.name, ask.ear.owner)
        return None

    async def _granted(self, ask: Ask, token: int, sent: float, is_confirmed: bool) -> Any:
        lease = ask.options.lease
        if token <= ask.ear.released:  # A new master does not know of the release, nor perhaps of who held the lock since.
            ask.was_answered = not await self._leave(ask, LEAVE)
            ask.ear.released = token if ask.was_answered else 0
            return None
        if is_confirmed and self.now() - sent >= (lease if ask.was_late else lease / 3):
            ask.was_answered = ask.was_late  # To ask again, once also beyond the wait, renews it, or finds that it is lost.
            ask.was_late = True
            return None
        if ask.stop is not None:
            raise ask.stop
        if is_confirmed:
            return self._hold(ask, token, sent)
        await self._leave(ask, LEAVE)
        ask.ear.released = token
        if self.now() >= ask.over:
            raise self._not_in_time(ask)
        await self.io.pause(min(FIRST_PAUSE, ask.over - self.now()), ask.ear.bell)
        return None

    async def _must_listen(self, ask: Ask) -> bool:
        """When it is time to ask again: whether to listen before. At first; and after silence, since the connection may be dead."""
        retry_after, ask.retry_after = ask.retry_after, None
        if retry_after is None or ask.stop is not None:
            return False
        if self.now() >= ask.over:
            raise self._not_in_time(ask)
        if not ask.ear.stands:
            return True
        longest = retry_after + min(1.0, retry_after / 10) * random.random()
        is_woken = await self.io.pause(min(longest, ask.over - self.now()), ask.ear.bell)
        return not is_woken and self.now() < ask.over

    def _not_in_time(self, ask: Ask) -> errors.NotInTime:
        wait = ask.options.wait
        text = f"{errors.shown(ask.name)}: not acquired " + (f"within {wait:g} s" if wait else "at once")
        if ask.is_unconfirmed:
            return errors.NotReplicated(f"{text}: {ask.where}: too few replicas have confirmed it")
        error = errors.NotInTime(f"{text}: {ask.reason or ask.where}")
        error.__cause__ = ask.first
        return error

    async def _leave(self, ask: Ask, longest: float) -> bool:
        """Whether the owner neither waits nor holds any more. A given owner may hold it by another caller's ask."""
        tries, timeout = Tries(ask.name, ask.options, longest, ask.where), min(longest, ask.options.command_timeout)
        ask.is_clean = False
        try:
            has_left = await self._again(tries, "FAIRLOCK.CANCEL", ask.name, ask.ear.owner, timeout=timeout)
            ask.is_clean = has_left == 1
            if not has_left and (ask.is_granted or ask.is_unheard or not ask.ear.is_given):
                await self._again(tries, "FAIRLOCK.RELEASE", ask.name, ask.ear.owner, timeout=timeout)
        except errors.FairlockError as failed:  # NOTHELD is as good.
            return not isinstance(failed, errors.Unavailable)
        ask.is_granted = False
        return True
