"""The options, checked before anything is sent. Durations are seconds, as everywhere in Python."""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import re
import socket
import uuid
from collections.abc import Callable
from numbers import Real
from typing import Any, TypedDict

MOST = 4_503_599_627_370  # seconds, of the server's greatest number of milliseconds
HOST = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:200]
log = logging.getLogger("fairlock")


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """The argument of a hook. Durations are seconds."""

    name: str | bytes
    owner: str
    token: int | None = None
    waited: float | None = None
    held: float | None = None
    cause: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Info:
    """The state of a lock at the server; with several holders, `owner` to `session` describe the first."""

    owner: str | None  # None: the lock is free
    holds: int
    lease: float | None  # remaining seconds; None: free, or held without one
    token: int | None  # None: free, or taken by a script
    session: bool
    waiting: int
    holders: int
    limit: int | None  # how many all holders tolerate; None: free, or any number

    @classmethod
    def of(cls, reply: Any) -> Info:
        pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
        said = {key.decode(): value for key, value in pairs}
        owner = said["owner"] if said["owner"] is None else said["owner"].decode(errors="backslashreplace")
        lease = said["lease"] / 1000 if said["lease"] > 0 else None
        counts = said["waiting"], said["holders"], said["limit"] or None
        return cls(owner, said["holds"], lease, said["token"], bool(said["session"]), *counts)


Hook = Callable[[Event], object]


@dataclasses.dataclass(frozen=True, slots=True)
class Hooks:
    """Functions for tracing and metrics; a failure in one has no other effect."""

    on_wait: Hook | None = None
    on_acquired: Hook | None = None
    on_lost: Hook | None = None
    on_released: Hook | None = None

    def call(self, which: str, *about: Any, **more: Any) -> None:
        hook = getattr(self, which)
        try:
            if hook is not None:
                hook(Event(*about, **more))
        except Exception:
            log.exception("the hook %s has failed", which)


class LockOptions(TypedDict, total=False):
    """The options of one lock."""

    wait: float | None
    lease: float
    renew: bool
    session: bool
    owner: str | None
    reentrant: bool
    shared: bool
    limit: int | None
    sync_timeout: float
    min_replicas: int | None
    patience: float
    module: str


class LocksOptions(LockOptions, total=False):
    """The options of a Locks: defaults for each lock, and those of all."""

    retry_timeout: float
    command_timeout: float
    release_timeout: float
    hooks: Hooks


SECONDS, COUNT, FLAG = "a number of seconds", "a whole number", (bool, "True or False", 0, 0)
# By option: its type and what that is called; from which to which size.
CHECKS: dict[str, tuple[type, str, float, float]] = {
    **{name: (Real, SECONDS, 0, MOST) for name in ("wait", "sync_timeout", "retry_timeout", "release_timeout")},
    **{name: (Real, SECONDS, 0.001, MOST) for name in ("lease", "patience", "command_timeout")},
    **{name: FLAG for name in ("renew", "session", "reentrant", "shared")},
    "owner": (str, "a str of UTF-8 bytes", 1, 256),
    "limit": (int, COUNT, 1, 1_000_000),
    "min_replicas": (int, COUNT, 0, 1_000_000),
    "module": (str, "'auto' or 'required'", 0, 0),
    "hooks": (Hooks, "a fairlock.Hooks", 0, 0),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """All options of one acquisition."""

    wait: float | None = None
    lease: float = 30
    renew: bool = True
    session: bool = False
    owner: str | None = None
    reentrant: bool = False
    shared: bool = False
    limit: int | None = None
    sync_timeout: float = 1
    min_replicas: int | None = None
    patience: float = 10
    module: str = "auto"
    retry_timeout: float = 30
    command_timeout: float = 5
    release_timeout: float = 5
    hooks: Hooks = Hooks()
    # Made of these:
    arguments: tuple[Any, ...] = dataclasses.field(init=False)  # of each ACQUIRE
    needing: str | None = dataclasses.field(init=False)  # the option that scripts do not have

    def __post_init__(self) -> None:
        for name, (kind, wanted, least, most) in CHECKS.items():
            value: Any = getattr(self, name)
            if value is None and name in ("wait", "owner", "limit", "min_replicas"):
                continue
            if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
                raise TypeError(f"{name} is not {wanted}: {value!r}")
            size: Any = len(value.encode()) if isinstance(value, str) else value
            if most and not least <= size <= most:
                raise ValueError(f"{name} is not {wanted} from {least} to {most}: {value!r}")
        if self.module not in ("auto", "required"):
            raise ValueError(f"module is not 'auto' or 'required': {self.module!r}")
        if self.owner == "*":
            raise ValueError("owner is * (a connection's own identity), which connections here are not kept for")
        limit: tuple[Any, ...] = () if self.limit is None else (self.limit,)
        shared = ("SHARED", *limit) if self.shared or limit else ()
        session = ("SESSION",) if self.session else ()
        way = ("NOWAIT",) if self.wait == 0 else ("ENQUEUE", "PATIENCE", ms(self.patience))
        object.__setattr__(self, "arguments", (*shared, "LEASE", ms(self.lease), "ONCE", *session, *way))
        needing = {"session": session, "limit": limit, "shared": shared}
        object.__setattr__(self, "needing", next((name for name, words in needing.items() if words), None))

    def but(self, changes: Any, known: Any = LockOptions) -> Options:
        """These options, overridden by a caller's."""
        for name in changes:
            if name not in known.__annotations__:
                raise TypeError(f"there is no option {name!r}; there are {', '.join(known.__annotations__)}")
        return dataclasses.replace(self, **changes) if changes else self


def check_name(name: Any) -> None:
    if not isinstance(name, (str, bytes)):
        raise TypeError(f"the name of a lock is not a str or bytes: {name!r}")
    if not name:
        raise ValueError("the name of a lock is empty")


def ms(seconds: float) -> int:
    """Whole milliseconds, rounded up, for the server."""
    return max(1, math.ceil(round(seconds * 1000, 6)))


def new_owner() -> str:
    """A unique owner that names the machine."""
    return f"{HOST}:{os.getpid()}:{uuid.uuid4()}"
