"""The keys of a lock, and the module's commands as the scripts of clients/lua."""

from __future__ import annotations

import functools
import hashlib
import importlib.resources
from collections.abc import Callable
from typing import Any

from ._errors import is_unknown


def warning(error: Exception) -> str:
    lack, cure = "the user may not run the commands of the fairlock module", "Allow them"
    if is_unknown(error, "fairlock."):
        lack, cure = "the server does not have the fairlock module", "Load it"
    return (
        f"%s: {lack}: locks are taken by scripts. {cure} for hand-off, sessions and shared locks, "
        'or set module to "required" to refuse'
    )


def keys_of(name: str | bytes) -> list[bytes]:
    """The lock, its queue, the deadlines and the last token."""
    lock = name.encode() if isinstance(name, str) else name
    rest = lock if b"{" in lock else b"{%s}" % lock
    return [lock, *(b"%s:%s" % (key, rest) for key in (b"redisson_lock_queue", b"redisson_lock_timeout", b"fairlock_token"))]


def channel_of(name: str | bytes, owner: str) -> bytes:
    """The channel of an owner's wake-ups."""
    return b"redisson_lock__channel:%s:%s" % (keys_of(name)[1].partition(b":")[2], owner.encode())


@functools.cache
def script(command: str) -> tuple[str, str]:
    """Its SHA-1 and its text."""
    name = command.removeprefix("FAIRLOCK.").lower()
    text = importlib.resources.files(__package__).joinpath("lua", f"{name}.lua").read_text("utf-8")
    return hashlib.sha1(text.encode()).hexdigest(), text


def without(words: tuple[Any, ...], form: str) -> tuple[list[tuple[Any, ...]], Callable[[list[Any]], Any]]:
    """A command of the module as EVALSHA or EVAL; INFO by reading the keys. And what makes its reply of theirs."""
    command, name, *rest = words
    keys = keys_of(name)
    if command == "FAIRLOCK.INFO":
        return [("HGETALL", keys[0]), ("PTTL", keys[0]), ("LLEN", keys[1])], info_of
    return [(form, script(command)[form == "EVAL"], len(keys), *keys, *rest)], lambda replies: replies[0]


def info_of(replies: list[Any]) -> dict[bytes, Any]:
    fields, lease, waiting = replies
    said = fields if isinstance(fields, dict) else dict(zip(fields[::2], fields[1::2], strict=True))
    token = said.pop(b"", None)
    owner, holds = next(iter(said.items()), (None, b"0"))
    is_held = int(owner is not None)
    return {
        b"owner": owner,
        b"holds": int(holds) if holds.isdigit() else 0,  # a hash that is not a lock
        b"lease": lease if is_held else 0,
        b"token": token and int(token),
        b"session": 0,
        b"waiting": waiting,
        b"holders": is_held,
        b"limit": is_held,
    }
