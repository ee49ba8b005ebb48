"""What both flavours share: asking for a lock, waiting for it, and withdrawing.

Written once, as coroutines over a Runtime. The one for threads does its work at once where the one for asyncio
awaits, so that its coroutines never suspend and can be run without an event loop (`_threads.run`).
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import weakref
from typing import Any

import redis.exceptions as redis_errors

from . import _errors as errors
from ._ask import FIRST_PAUSE, Ask, Tries, is_passing
from ._keep import Keep
from ._lines import Deaf, Desk, Failure, Line, Lines, NotSent, Runtime, is_out_of_descriptors
from ._options import Event, Info, Options, check_name, ms
from ._route import Address, Route
from ._scripts import channel_of
from ._watch import EACH, Watch

# Refusals that say that the owner neither waits nor holds, or that another caller has its place.
SETTLED = {"TAKENOVER", "QUEUEFULL", "NOTALOCK", "WRONGTYPE", "CROSSSLOT"}
ALONE_FOR = 1.0  # seconds for which a server without replicas is believed to have none
WITHDRAW = 1.0  # seconds for which leaving the queue is tried
REDIRECTS = 16  # in a row, before they count as failures
MOST_JITTER = 1.0  # seconds, so that waiters do not all ask at once


class Core:
    """The locks at one server, or at those of one cluster."""

    def __init__(self, runtime: Runtime, route: Route, options: Options) -> None:
        self.runtime, self.route, self.options = runtime, route, options
        self.lines = Lines(runtime, route, options)
        self.subscribe = "SSUBSCRIBE" if route.is_cluster else "SUBSCRIBE"
        self.begin()
        _cores.add(self)

    def begin(self) -> None:
        self.mutex = threading.RLock()
        self.finding = self.runtime.mutex()
        self.kept: set[Keep] = set()
        self.asking = 0
        self.alone_until: dict[Address | None, float] = {}
        self.watch = Watch(self)

    def in_child(self) -> None:
        """In a forked process: the parent keeps its locks, connections and threads."""
        for keep in self.kept:
            keep.leave_to_parent()
        self.runtime.begin()
        self.lines.leave_to_parent()
        self.begin()

    # ---------------------------------------------------------------------------- acquiring

    async def acquire(self, name: str | bytes, options: Options) -> Any:
        """The Keep of a lock that is now held, or of one that this caller holds already."""
        self.check(name)
        if options.reentrant and (keep := self.runtime.mine().get((id(self), name))):
            keep.enter_again()
            return keep
        ask = Ask(name, options, self.runtime)
        self._count(+1)
        try:
            return await self._until_granted(ask)
        except BaseException:
            if ask.may_be_known:
                await self.runtime.finish(self._withdraw(ask))
            raise
        finally:
            await ask.stop_listening()
            self._count(-1)
            self.runtime.wake()

    def check(self, name: str | bytes) -> None:
        self.runtime.check()
        check_name(name)
        if self.lines.is_closing:
            raise errors.Closed("Locks is closed")

    def _count(self, more: int) -> None:
        with self.mutex:
            self.asking += more
        self.watch.update()

    async def _until_granted(self, ask: Ask) -> Keep:
        while True:
            address = None
            try:
                address = ask.asking_at or await self._where(ask)
                keep = await self._ask_at(address, ask)
                if keep is not None:
                    return keep
            except errors.FairlockError:  # among them TimeoutErrors, which are OSErrors
                raise
            except Failure as error:
                if self.lines.is_closing:
                    raise errors.Closed("Locks is closed") from error
                await self._passed(ask, error, address)

    async def _where(self, ask: Ask) -> Address | None:
        """One after another, so that callers stay in the order in which they came."""
        async with self.finding:
            if self.route.sentinels and self.runtime.now() - self.route.asked > EACH:
                await self.find()
            return await self.address(ask.name)

    def address_known(self, name: str | bytes) -> Address | None:
        with contextlib.suppress(LookupError):
            return self.route.address(name)
        return None

    async def address(self, name: str | bytes) -> Address | None:
        with contextlib.suppress(LookupError):
            return self.route.address(name)
        await self.find()
        try:
            return self.route.address(name)
        except LookupError:
            raise redis_errors.ClusterDownError("no node has the slot") from None

    async def find(self) -> None:
        """Asks for the master, or for the map of the slots, and leaves servers that are not masters."""
        if self.route.is_cluster and not hasattr(self.route, "plan"):
            await self.runtime.adopt(self.route)
        # Without the route, because another thread may have made it forget.
        self.lines.abort_except(await self.route.find(self.lines))

    async def _passed(self, ask: Ask, error: Exception, address: Address | None) -> None:
        """Returns if asking again may help; otherwise raises the caller's error."""
        asked_at, ask.asking_at = ask.asking_at, None
        await ask.stop_listening()
        where = self.route.describe(address)
        if self._is_redirected(ask.tries, error, address or asked_at):
            if isinstance(error, redis_errors.AskError) and not isinstance(error, redis_errors.MovedError):
                ask.asking_at = self.route.redirect(str(error), address, for_good=False)
            return
        if self._is_without(ask, error):
            return
        if not is_passing(error):
            raise errors.translated(error, ask.name, where, ask.options.needs_module()) from error
        is_short = is_out_of_descriptors(error)
        ask.tries.failed(error, where)
        if not is_short:
            self.distrust(address, error)
        if ask.is_over() and ask.options.wait != 0:
            self._not_in_time(ask, address)
        # Without a wait, there is still the time of one answer for another try.
        left = None if ask.options.wait == 0 else ask.left()
        if is_short and ask.options.wait != 0:
            await ask.tries.sleep(left)  # for as long as it takes until there is a descriptor
        else:
            await ask.tries.pause_after(error, left)

    def _is_redirected(self, tries: Tries, error: Exception, address: Address | None) -> bool:
        """Whether another node was named, or the same one must be asked again at once."""
        code = errors.code_of(error)
        if code not in ("MOVED", "ASK", "UNBLOCKED") or tries.redirects >= REDIRECTS:
            return False
        tries.redirects += 1
        if code == "MOVED":
            return self.route.redirect(str(error), address, for_good=True) is not None
        return True

    def _is_without(self, ask: Ask, error: Exception) -> bool:
        """Whether the server lacks a way of waiting that has a substitute."""
        if errors.is_unknown(error, "ssubscribe"):
            self.subscribe = "SUBSCRIBE"
            return True
        if not errors.is_out_of_reach(error) or self._needs_module(ask) or not ask.blocks:
            return False
        ask.blocks = False  # The connection on which it first asked has found the module.
        return True

    @staticmethod
    def _needs_module(ask: Ask) -> bool:
        return ask.options.needs_module() is not None or ask.options.module == "required"

    def distrust(self, address: Address | None, error: Exception) -> None:
        """After a failure, connections and known masters may be out of date."""
        if isinstance(error, redis_errors.TryAgainError):
            return
        if not isinstance(error, (redis_errors.ResponseError, Deaf)):
            self.lines.abort(address, only_idle=True)
        elif errors.code_of(error) == "READONLY":
            self.lines.abort(address, only_idle=False)
        self.route.forget()

    def _not_in_time(self, ask: Ask, address: Address | None) -> None:
        wait = ask.options.wait
        text = f"{errors.shown(ask.name)}: not acquired " + (f"within {wait:g} s" if wait else "at once")
        where = self.route.describe(address)
        if ask.is_unconfirmed:
            raise errors.NotReplicated(f"{text}: {where}: no replica has confirmed it") from ask.tries.first
        raise errors.NotInTime(f"{text}: {ask.tries.reason or where}") from ask.tries.first

    # ------------------------------------------------------------------------------- asking

    async def _ask_at(self, address: Address | None, ask: Ask) -> Keep | None:
        """None: ask again."""
        if ask.options.session:
            return await self._ask_on(await self.lines.take("session", address), ask)
        sent, desk = self.runtime.now(), self.lines.desk(address)
        token, retry_after = await self._first(desk, ask, address)
        if token is None:
            if ask.blocks and desk.line is not None and desk.line.has_module:
                return await self._ask_on(await self.lines.take("wait", address), ask)
            await self._until_woken(ask, address, retry_after)
            return None
        received = self.runtime.now()
        is_confirmed = await self._confirmed_elsewhere(address, ask)
        return await self._granted(ask, token, sent, received, is_confirmed, address)

    async def _ask_on(self, line: Line, ask: Ask) -> Keep | None:
        """Asks on the caller's own connection, which may block."""
        keep, address = None, line.address
        try:
            sent = self.runtime.now()
            token, _ = await self._first(line, ask, address) if ask.options.session else (None, 0)
            if token is None:
                sent, token = await self._wait(line, ask)
            session = line if ask.options.session else None
            if session is None and self.runtime.now() - sent >= ask.options.lease / 3:
                # The grant may have been on its way for longer than its lease.
                sent = self.runtime.now()
                if not await self._renewed(line, ask):
                    return None
            received = self.runtime.now()
            is_confirmed = await self.confirmed(line, ask.name, ask.options)
            keep = await self._granted(ask, token, sent, received, is_confirmed, address, session)
        finally:
            if keep is None or not ask.options.session:
                await self.lines.give(line)
        return keep

    async def _granted(
        self, ask: Ask, token: int, sent: float, received: float, is_confirmed: bool, at: Address | None,
        session: Line | None = None,
    ) -> Keep | None:  # fmt: skip
        if is_confirmed:
            return Keep(self, ask, token, sent, received, self.lines.desk(at).line, session)
        try:
            await self._send(self.lines.desk(at), ask, "FAIRLOCK.RELEASE", ask.name, ask.owner)
        except redis_errors.ResponseError as error:
            if errors.code_of(error) != "NOTHELD":  # The lease was over before.
                raise
        await self._unconfirmed(ask, at)
        return None

    async def _unconfirmed(self, ask: Ask, address: Address | None) -> None:
        ask.is_unconfirmed, ask.may_be_known = True, False
        if ask.options.wait == 0 or ask.is_over():
            self._not_in_time(ask, address)
        await self.runtime.sleep(FIRST_PAUSE)

    async def _first(self, through: Desk | Line, ask: Ask, address: Address | None) -> tuple[int | None, float]:
        """The token, if the lock is available at once; else the caller is now in the queue, and asks again later."""
        patience = ("ENQUEUE", "PATIENCE", ms(ask.options.patience))
        reply = await self._ask(through, ask, *ask.words(), *(("NOWAIT",) if ask.options.wait == 0 else patience))
        if isinstance(reply, int):
            return reply, 0
        if ask.options.wait == 0:
            self._not_in_time(ask, address)
        if not ask.is_waiting:
            ask.is_waiting = True
            ask.options.hooks.call("on_wait", Event(ask.name, ask.owner))
        return None, reply[1] / 1000

    async def _until_woken(self, ask: Ask, address: Address | None, retry_after: float) -> None:
        """Returns when to ask again: at the latest after this many seconds, and a little more."""
        left = ask.left()
        if left is not None and left <= 0:
            self._not_in_time(ask, address)
        if ask.asking_at is not None:  # The slot is on its way: subscribing is not possible there yet.
            ask.asking_at = None
            await ask.tries.sleep(left)
        elif ask.ear is None or ask.ear.address != address:
            await ask.stop_listening()
            channel = channel_of(ask.name, ask.owner)
            # It asks again after this, so that no wake-up is missed.
            ask.ear = await self.runtime.listen(self.lines, address, self.subscribe, channel)
        else:
            retry_after += min(MOST_JITTER, retry_after / 10) * random.random()
            await ask.ear.wait(retry_after if left is None else min(left, retry_after))

    async def _wait(self, line: Line, ask: Ask) -> tuple[float, int]:
        """When the successful ask was sent, and the token."""
        left = ask.left()
        if left is not None and left <= 0:
            self._not_in_time(ask, line.address)
        wait = () if left is None else ("WAIT", ms(left))
        longest = None if left is None else left + ask.options.command_timeout
        sent = self.runtime.now()
        token = await self._ask(line, ask, *ask.words(), *wait, timeout=longest, blocks=True, no_script=True)
        if token is None:
            self._not_in_time(ask, line.address)
        return sent, token

    async def _ask(self, through: Desk | Line, ask: Ask, *words: Any, **how: Any) -> Any:
        was_known, ask.may_be_known = ask.may_be_known, True
        how.setdefault("no_script", self._needs_module(ask))
        try:
            reply = await self._send(through, ask, *words, **how)
        except redis_errors.ResponseError as error:
            # A refusal changes nothing. A hold from an earlier ask whose reply was lost is still there, and so is the
            # place of a caller that asks again.
            is_settled = errors.code_of(error) in SETTLED
            ask.may_be_known = not is_settled and (was_known or (ask.is_waiting and is_passing(error)))
            raise
        ask.tries.succeeded()
        ask.may_be_known = reply is not None
        return reply

    @staticmethod
    async def _send(through: Desk | Line, ask: Ask, *words: Any, **how: Any) -> Any:
        how.setdefault("timeout", ask.options.command_timeout)
        return await through.call(*words, is_asking=ask.asking_at is not None, **how)

    # --------------------------------------------------------------------------- confirming

    def _wanted(self, name: str | bytes, options: Options) -> int:
        """How many replicas have to confirm, connected or not."""
        if options.min_replicas is not None:
            return options.min_replicas
        return min(1, self.route.replicas(name))

    def _is_alone(self, name: str | bytes, options: Options, address: Address | None) -> bool:
        if not options.sync_timeout:
            return True
        return not self._wanted(name, options) and self.alone_until.get(address, 0) > self.runtime.now()

    async def _confirmed_elsewhere(self, address: Address | None, ask: Ask) -> bool:
        if self._is_alone(ask.name, ask.options, address):
            return True
        async with self.lines.lent("confirm", address) as line:
            # WAIT covers the writes of its own connection.
            return await self._renewed(line, ask) and await self.confirmed(line, ask.name, ask.options)

    @staticmethod
    async def _renewed(line: Line, ask: Ask) -> bool:
        """Whether the lease of what was just granted is not over already."""
        renewal = ("FAIRLOCK.RENEW", ask.name, ask.owner, "LEASE", ms(ask.options.lease))
        try:
            await line.call(*renewal, timeout=ask.options.command_timeout)
        except redis_errors.ResponseError as error:
            if errors.code_of(error) != "NOTHELD":
                raise
            return False
        return True

    async def confirmed(self, line: Line, name: str | bytes, options: Options) -> bool:
        """Whether replicas have the grants and renewals of this connection, or none has to."""
        if self._is_alone(name, options, line.address):
            return True
        wanted, connected = self._wanted(name, options), await self.lines.role(line)
        if not wanted and not connected:
            self.alone_until[line.address] = self.runtime.now() + ALONE_FOR
            return True
        longest = options.sync_timeout + options.command_timeout
        confirmed = await line.call(
            "WAIT", max(wanted, connected), ms(options.sync_timeout), timeout=longest, blocks=True
        )
        return bool(confirmed >= max(wanted, min(1, connected)))

    # -------------------------------------------------------------------------- withdrawing

    async def _withdraw(self, ask: Ask) -> None:
        """For a caller that does not know whether it waits, holds the lock, or neither."""
        if await self._leave(ask, min(WITHDRAW, self.options.command_timeout)) or ask.options.owner is not None:
            return
        # A network that comes back must not leave the lock to a caller that has gone. With a given owner, the caller
        # may hold the lock again by then.
        self.runtime.later(0, lambda: self._leave(ask, ask.options.lease))

    async def _leave(self, ask: Ask, longest: float) -> bool:
        """Whether the owner neither waits nor holds any more, if the server could be asked."""
        try:
            has_left, _ = await self.control(ask.name, "FAIRLOCK.CANCEL", ask.name, ask.owner, longest=longest)
            if not has_left:
                with contextlib.suppress(errors.Refused):  # NOTHELD: it does not
                    await self.control(ask.name, "FAIRLOCK.RELEASE", ask.name, ask.owner, longest=longest)
        except (errors.FairlockError, *Failure):
            return self.lines.is_closed
        return True

    # ------------------------------------------------------------------------ other commands

    async def control(
        self, name: str | bytes, *words: Any, longest: float, confirm: Options | None = None
    ) -> tuple[Any, bool]:
        """A command on a connection that no waiter uses, tried for a time; and whether it may have been done before.

        Refusals that do not pass are raised as this package's errors.
        """
        self.runtime.check()
        tries, may_be_done = Tries(name, self.runtime, longest), False
        asking_at = None
        while True:
            address = None
            try:
                address = asking_at or await self.address(name)
                return await self._do(address, words, bool(asking_at), confirm), may_be_done
            except errors.FairlockError:
                raise
            except Failure as error:
                where = self.route.describe(address)
                if self._is_redirected(tries, error, address):
                    is_moved = isinstance(error, redis_errors.MovedError)
                    asking_at = None if is_moved else self.route.redirect(str(error), address, for_good=False)
                    continue
                asking_at = None
                if not is_passing(error):
                    refusal = errors.translated(error, name, where)
                    refusal.may_be_done = may_be_done  # type: ignore[attr-defined]
                    raise refusal from error
                may_be_done = may_be_done or not isinstance(error, (redis_errors.ResponseError, NotSent))
                tries.failed(error, where)
                self.distrust(address, error)
                await tries.pause_after(error, None)

    async def _do(self, address: Address | None, words: tuple[Any, ...], is_asking: bool, confirm: Options | None) -> Any:
        how: dict[str, Any] = {"timeout": self.options.command_timeout, "is_asking": is_asking}
        if confirm is None:
            return await self.lines.desk(address).call(*words, **how)
        async with self.lines.lent("confirm", address) as line:
            reply = await line.call(*words, **how)
            if not await self.confirmed(line, words[1], confirm):
                where = f"{errors.shown(words[1])}: {self.route.describe(address)}"
                raise errors.NotReplicated(f"{where}: no replica has confirmed the renewal")
            return reply

    async def info(self, name: str | bytes) -> Info:
        self.check(name)
        reply, _ = await self.control(name, "FAIRLOCK.INFO", name, longest=self.options.command_timeout)
        return Info.of(reply)

    async def close(self) -> None:
        """Ends all waits, which leave their queues; then all connections. Held locks are lost."""
        self.runtime.check()
        self.lines.is_closing = True
        for keep in list(self.kept):
            keep.lose("closed")
        self.watch.update()
        self.lines.end_waits()
        self.runtime.wake()
        await self.runtime.until(lambda: self.asking == 0, self.options.command_timeout)
        await self.lines.close()


_cores: weakref.WeakSet[Core] = weakref.WeakSet()


def _in_child() -> None:
    for core in list(_cores):
        core.in_child()


os.register_at_fork(after_in_child=_in_child)
