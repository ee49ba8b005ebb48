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
    is_session: bool


@dataclasses.dataclass
class Waiter:
    holder: Holder  # what it will be, but for the token
    reply: Reply | None  # None: it will ask again

    @property
    def owner(self) -> str:
        return self.holder.owner


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

    def _role(self, reply: Reply) -> None:
        reply([b"master", 0, []])

    def _info(self, name: Any, reply: Reply) -> None:
        holders = self.held.get(name, [])
        first = holders[0] if holders else None
        limits = [holder.limit for holder in holders if holder.limit is not None]
        said = {
            b"owner": first and first.owner.encode(),
            b"holds": 1 if first else 0,
            b"lease": first.lease if first else 0,
            b"token": first and first.token,
            b"session": 1 if first and first.is_session else 0,
            b"waiting": len(self.queues.get(name, [])),
            b"holders": len(holders),
            b"limit": min(limits, default=0),
        }
        reply([each for pair in said.items() for each in pair])

    def _acquire(self, name: Any, owner: str, *options: Any, reply: Reply) -> Callable[[], object] | None:
        lease = int(options[options.index("LEASE") + 1])
        asker = Holder(owner, 0, limit_of(options), lease, "SESSION" in options)
        holders, queue = self.held.setdefault(name, []), self.queues.setdefault(name, [])
        for holder in holders:
            if holder.owner == owner:
                reply(holder.token)
                return None
        places = [each.owner for each in queue]
        is_first = places[:1] in ([], [owner])
        if is_first and fits(asker.limit, holders):
            del queue[: len(places) and 1]
            reply(self._grant(name, asker))
            self._serve(name)
            return None
        if "NOWAIT" in options:
            reply(None)
            return None
        waiter = Waiter(asker, None if "ENQUEUE" in options else reply)
        if owner in places:
            before, queue[places.index(owner)] = queue[places.index(owner)], waiter
            if before.reply is not None:
                before.reply(redis_errors.ResponseError("TAKENOVER the owner asks on another connection"))
        else:
            queue.append(waiter)
        if waiter.reply is None:
            reply([queue.index(waiter) + 1, 1000])
            return None
        return lambda: self._leave(name, owner, reply)

    def _leave(self, name: Any, owner: str, reply: Reply | None = None) -> int:
        with self.mutex:
            queue = self.queues.get(name, [])
            gone = [each for each in queue if each.owner == owner and reply in (None, each.reply)]
            for waiter in gone:
                queue.remove(waiter)
            self._serve(name)
            return len(gone)

    def _grant(self, name: Any, asker: Holder) -> int:
        asker.token = next(self.tokens)
        self.held[name].append(asker)
        return asker.token

    def _serve(self, name: Any) -> None:
        queue = self.queues.get(name, [])
        while queue and queue[0].reply and fits(queue[0].holder.limit, self.held[name]):
            reply = queue[0].reply
            reply(self._grant(name, queue.pop(0).holder))

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
            if waiter.reply is not None:
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
