"""What can be asked for, checked before anything is sent. Seconds, as everywhere in Python."""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import re
import socket
import uuid
from collections.abc import Callable
from typing import Any, TypedDict

MAX_LIMIT = 1_000_000
MAX_OWNER = 256
# The server's greatest number of milliseconds.
MAX_MS = 4_503_599_627_370_496
HOST = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:200]
log = logging.getLogger("fairlock")


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """What a hook is told. Durations are seconds."""

    name: str | bytes
    owner: str
    token: int | None = None
    waited: float | None = None
    held: float | None = None
    cause: str | None = None


Hook = Callable[[Event], object]


@dataclasses.dataclass(frozen=True, slots=True)
class Hooks:
    """Functions for tracing and metrics; one that fails disturbs nothing."""

    on_wait: Hook | None = None
    on_acquired: Hook | None = None
    on_lost: Hook | None = None
    on_released: Hook | None = None

    def call(self, which: str, event: Event) -> None:
        hook = getattr(self, which)
        if hook is None:
            return
        try:
            hook(event)
        except Exception:
            log.exception("the hook %s has failed", which)


class LockOptions(TypedDict, total=False):
    """What can be said of one lock."""

    wait: float | None
    lease: float
    renew: bool
    session: bool
    owner: str | None
    reentrant: bool
    shared: bool
    limit: int | None
    sync_timeout: float


class LocksOptions(LockOptions, total=False):
    """What can be said of all locks of a Locks: defaults for each, and the rest."""

    retry_timeout: float
    command_timeout: float
    release_timeout: float
    hooks: Hooks


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
    retry_timeout: float = 30
    command_timeout: float = 5
    release_timeout: float = 5
    hooks: Hooks = Hooks()

    def __post_init__(self) -> None:
        if self.wait is not None:
            _check("wait", self.wait, least=0)
        for name in ("sync_timeout", "retry_timeout", "release_timeout"):
            _check(name, getattr(self, name), least=0)
        for name in ("lease", "command_timeout"):
            _check(name, getattr(self, name), least=0.001)
        if self.limit is not None and not 1 <= self.limit <= MAX_LIMIT:
            raise ValueError(f"limit is not from 1 to {MAX_LIMIT}: {self.limit}")
        if self.owner is not None and not 1 <= len(self.owner.encode()) <= MAX_OWNER:
            raise ValueError(f"owner is not 1 to {MAX_OWNER} bytes long")
        if self.owner == "*":
            raise ValueError("owner is * (a connection's own identity), which connections here are not kept for")

    def but(self, changes: Any) -> Options:
        return dataclasses.replace(self, **changes) if changes else self

    def arguments(self) -> list[Any]:
        """What ACQUIRE is given in every ask."""
        words: list[Any] = []
        if self.shared or self.limit is not None:
            words.append("SHARED")
        if self.limit is not None:
            words.append(self.limit)
        words += ["LEASE", ms(self.lease), "ONCE"]
        return [*words, "SESSION"] if self.session else words


def _check(name: str, seconds: float, least: float) -> None:
    if not least <= seconds <= MAX_MS / 1000:
        raise ValueError(f"{name} is not from {least} to {MAX_MS // 1000} seconds: {seconds}")


def ms(seconds: float) -> int:
    """Whole milliseconds, rounded up, for the server."""
    return max(1, math.ceil(round(seconds * 1000, 6)))


def new_owner() -> str:
    """An owner that nobody else has, and that names the machine."""
    return f"{HOST}:{os.getpid()}:{uuid.uuid4()}"
