"""The keys of a lock, and the module's commands as the scripts of clients/lua."""

from __future__ import annotations

import functools
import hashlib
import importlib.resources
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


def scripted(words: tuple[Any, ...], form: str) -> tuple[Any, ...]:
    """A command of the module as EVALSHA or EVAL."""
    command, name, *rest = words
    keys = keys_of(name)
    return (form, script(command)[form == "EVAL"], len(keys), *keys, *rest)
