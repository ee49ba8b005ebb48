"""The package's commands at a server without the module: the scripts of clients/lua."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.resources
from collections.abc import Awaitable, Callable
from typing import Any

import redis.exceptions as redis_errors

from ._options import Options, log

Words = tuple[Any, ...]


class Script:
    def __init__(self, name: str) -> None:
        self.text = importlib.resources.files(__package__).joinpath("lua", f"{name}.lua").read_text("utf-8")
        self.sha = hashlib.sha1(self.text.encode()).hexdigest()


SCRIPTS = {f"FAIRLOCK.{name.upper()}": Script(name) for name in ("acquire", "release", "renew", "cancel")}

WARNING = (
    "%s: the server does not have the fairlock module: locks are taken by scripts. Load it for hand-off, sessions and shared "
    'locks, or set module to "required" to refuse'
)
DENIED = (
    "%s: the user may not run the commands of the fairlock module: locks are taken by scripts. Allow them for hand-off, "
    'sessions and shared locks, or set module to "required" to refuse'
)


def keys_of(name: str | bytes) -> list[bytes]:
    """The lock, its queue, the deadlines and the last token."""
    lock = name.encode() if isinstance(name, str) else name
    rest = lock if b"{" in lock else b"{%s}" % lock
    return [lock, *(b"%s:%s" % (key, rest) for key in (b"redisson_lock_queue", b"redisson_lock_timeout", b"fairlock_token"))]


def channel_of(name: str | bytes, owner: str) -> bytes:
    """The channel of an owner's wake-ups."""
    return b"redisson_lock__channel:%s:%s" % (keys_of(name)[1].partition(b":")[2], owner.encode())


async def run(send: Callable[..., Awaitable[Any]], words: Words) -> Any:
    """Does the work of the module's commands by scripts, and by reading the keys."""
    command, name, *rest = words
    keys = keys_of(name)
    if command == "FAIRLOCK.INFO":
        return _info(await send("HGETALL", keys[0]), await send("PTTL", keys[0]), await send("LLEN", keys[1]))
    script = SCRIPTS[command]
    try:
        return await send("EVALSHA", script.sha, len(keys), *keys, *rest)
    except redis_errors.NoScriptError:
        return await send("EVAL", script.text, len(keys), *keys, *rest)


def _info(fields: list[bytes], lease: int, waiting: int) -> list[Any]:
    """What FAIRLOCK.INFO replies, from the fields of a lock's hash, its expiry and the length of its queue."""
    said = dict(zip(fields[::2], fields[1::2], strict=True))
    token = said.pop(b"", None)
    owner, holds = next(iter(said.items()), (None, b"0"))
    is_held = int(owner is not None)
    reply = {
        b"owner": owner,
        b"holds": int(holds) if holds.isdigit() else 0,  # a hash that is not a lock
        b"lease": lease if is_held else 0,
        b"token": token and int(token),
        b"session": 0,
        b"waiting": waiting,
        b"holders": is_held,
        b"limit": is_held,
    }
    return [each for pair in reply.items() for each in pair]


class Module:
    """Whether the servers of a Locks have the module."""

    def __init__(self, options: Options) -> None:
        self.is_required = options.module == "required"
        self.by_server: dict[str, bool] = {}
        self.is_native: bool | None = None  # by the last answer
        self.unsaid = [True]

    def note(self, is_native: bool, where: str, is_denied: bool) -> None:
        self.is_native = self.by_server[where] = is_native
        if not is_native and not self.is_required:
            with contextlib.suppress(IndexError):  # It was said.
                self.unsaid.pop()
                log.warning(DENIED if is_denied else WARNING, where)
