"""A server's locks in this process: the rules of FAIRLOCK.ACQUIRE and the others, for the fakes.

Shared by threads and asyncio; who waits is given a function to be called with the reply. Strictly first come, first
served; leases do not end by themselves.
"""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Callable
from typing import Any

import redis.exceptions as redis_errors

Reply = Callable[[Any], None]


@dataclasses.dataclass
class Holder:
    owner: str
    token: int
    limit: int | None  # None: no limit
    lease: int


@dataclasses.dataclass
class Waiter:
    owner: str
    limit: int | None
    lease: int
    reply: Reply


class FakeServer:
    """Locks by name, each with holders and a queue."""

    def __init__(self) -> None:
        self.mutex = threading.RLock()
        self.tokens = itertools.count(1)
        self.held: dict[Any, list[Holder]] = {}
        self.queues: dict[Any, list[Waiter]] = {}

    def do(self, words: tuple[Any, ...], reply: Reply) -> Callable[[], object]:
        """Replies at once or later; what is returned stops the waiting."""
        command = str(words[0]).rpartition(".")[2].lower()
        with self.mutex:
            leave: Callable[[], object] | None = getattr(self, f"_{command}")(*words[1:], reply=reply)
            return leave or (lambda: None)

    def _info(self, _section: str, reply: Reply) -> None:
        reply("connected_slaves:0\r\n")

    def _acquire(self, name: Any, owner: str, *options: Any, reply: Reply) -> Callable[[], object] | None:
        limit, lease = limit_of(options), int(options[options.index("LEASE") + 1])
        holders, queue = self.held.setdefault(name, []), self.queues.setdefault(name, [])
        for holder in holders:
            if holder.owner == owner:
                reply(holder.token)
                return None
        if not queue and fits(limit, holders):
            reply(self._grant(name, owner, limit, lease))
            return None
        if "NOWAIT" in options:
            reply(None)
            return None
        for waiter in [waiter for waiter in queue if waiter.owner == owner]:
            queue[queue.index(waiter)] = Waiter(owner, limit, lease, reply)
            waiter.reply(redis_errors.ResponseError("TAKENOVER the owner asks on another connection"))
            break
        else:
            queue.append(Waiter(owner, limit, lease, reply))
        return lambda: self._leave(name, owner, reply)

    def _leave(self, name: Any, owner: str, reply: Reply | None = None) -> int:
        with self.mutex:
            queue = self.queues.get(name, [])
            gone = [each for each in queue if each.owner == owner and reply in (None, each.reply)]
            for waiter in gone:
                queue.remove(waiter)
            self._serve(name)
            return len(gone)

    def _grant(self, name: Any, owner: str, limit: int | None, lease: int) -> int:
        token = next(self.tokens)
        self.held[name].append(Holder(owner, token, limit, lease))
        return token

    def _serve(self, name: Any) -> None:
        queue = self.queues.get(name, [])
        while queue and fits(queue[0].limit, self.held[name]):
            waiter = queue.pop(0)
            waiter.reply(self._grant(name, waiter.owner, waiter.limit, waiter.lease))

    def _release(self, name: Any, owner: str, *options: Any, reply: Reply) -> None:
        holder = self._holder(name, owner)
        if holder is None or ("TOKEN" in options and options[1] != holder.token):
            return reply(redis_errors.ResponseError("NOTHELD the owner does not hold the lock"))
        self.held[name].remove(holder)
        self._serve(name)
        return reply(0)

    def _renew(self, name: Any, owner: str, _lease: str, milliseconds: int, reply: Reply) -> None:
        holder = self._holder(name, owner)
        if holder is None:
            return reply(redis_errors.ResponseError("NOTHELD the owner does not hold the lock"))
        holder.lease = milliseconds
        return reply(milliseconds)

    def _cancel(self, name: Any, owner: str, reply: Reply) -> None:
        for waiter in [each for each in self.queues.get(name, []) if each.owner == owner]:
            self._leave(name, owner)
            waiter.reply(None)
            return reply(1)
        return reply(0)

    def _holder(self, name: Any, owner: str) -> Holder | None:
        return next((each for each in self.held.get(name, []) if each.owner == owner), None)

    def free(self, name: Any) -> list[int]:
        """Takes the lock from all that hold it, and serves the next ones; returns the tokens that it had."""
        with self.mutex:
            tokens = [holder.token for holder in self.held.get(name, [])]
            self.held[name] = []
            self._serve(name)
            return tokens

    def holders(self, name: Any) -> list[str]:
        with self.mutex:
            return [holder.owner for holder in self.held.get(name, [])]

    def waiting(self, name: Any) -> list[str]:
        with self.mutex:
            return [waiter.owner for waiter in self.queues.get(name, [])]


def limit_of(options: tuple[Any, ...]) -> int | None:
    """1 is exclusive, None is SHARED without a limit."""
    if "SHARED" not in options:
        return 1
    following = options[options.index("SHARED") + 1]
    return following if isinstance(following, int) else None


def fits(limit: int | None, holders: list[Holder]) -> bool:
    """Every holder tolerates at most its limit of holders in all, itself included."""
    limits = [each for each in (limit, *(holder.limit for holder in holders)) if each is not None]
    return all(len(holders) + 1 <= each for each in limits)
