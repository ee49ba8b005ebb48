"""The errors of the package, and what a failure of redis-py or the server means."""

from __future__ import annotations

import os
from typing import Any

import redis.exceptions as redis_errors

HELP = (
    " (unknown command 'FAIRLOCK.ACQUIRE'). "
    'Load it: "loadmodule /path/to/libfairlock.so" in its redis.conf, or MODULE LOAD. '
    "See docs/operations.md at https://fairlock.example"
)


class FairlockError(Exception):
    """Base of all errors here. `code` is the first word of the server's error, if it was one."""

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code


class NotInTime(FairlockError, TimeoutError):
    """The lock did not become available within `wait`."""


class NotReplicated(NotInTime):
    """Too few replicas confirmed the acquisition within `wait`, or a renewal."""


class LockLost(FairlockError):
    """The holder has lost the lock. `cause`: lease, notheld, connection or closed."""

    def __init__(self, message: str, cause: str | None = None) -> None:
        super().__init__(message, "NOTHELD" if cause == "notheld" else None)
        self.cause = cause


class QueueFull(FairlockError):
    """The lock has as many waiters as the server allows (`fairlock.max-waiters`)."""


class NotALock(FairlockError):
    """The key holds a hash that is not a lock."""


class WrongType(FairlockError):
    """One of the lock's keys holds something else."""


class CrossSlot(FairlockError):
    """In a cluster: the braces in the name would put the lock's keys in different slots."""


class NoModule(FairlockError):
    """An option needs the fairlock module, which the server does not have."""


class Unavailable(FairlockError, ConnectionError):
    """The server could not be reached, or could not serve, for `retry_timeout`."""


class Refused(FairlockError):
    """Any other refusal of the server: NOPERM, NOAUTH, OOM, ..."""


class Closed(FairlockError):
    """Locks was closed."""


# All that redis-py may raise for a command. The package's own errors can be OSErrors, too: they are let through first.
Failure = (redis_errors.RedisError, redis_errors.RedisClusterException, OSError)
PASSING = {"CLUSTERDOWN", "TRYAGAIN", "LOADING", "READONLY", "MASTERDOWN", "NOREPLICAS", "BUSY", "MOVED", "ASK", "UNBLOCKED"}
KINDS: dict[str, type[FairlockError]] = {
    "QUEUEFULL": QueueFull,
    "NOTALOCK": NotALock,
    "WRONGTYPE": WrongType,
    "CROSSSLOT": CrossSlot,
}
# redis-py takes these codes off the text. LOADING comes first: it is a kind of ConnectionError; MOVED is a kind of ASK.
CODES: tuple[tuple[type[Exception], str], ...] = (
    (redis_errors.BusyLoadingError, "LOADING"),
    (redis_errors.ClusterCrossSlotError, "CROSSSLOT"),
    (redis_errors.MovedError, "MOVED"),
    (redis_errors.AskError, "ASK"),
    (redis_errors.MasterDownError, "MASTERDOWN"),
    (redis_errors.ClusterDownError, "CLUSTERDOWN"),
    (redis_errors.TryAgainError, "TRYAGAIN"),
    (redis_errors.ReadOnlyError, "READONLY"),
    (redis_errors.OutOfMemoryError, "OOM"),
    (redis_errors.NoPermissionError, "NOPERM"),
)
HINTS = {
    "NOAUTH": "give the client a password",
    "WRONGPASS": "the client's username or password is not that of the server",
    "NOPERM": "SECURITY.md of fairlock has the rules for such a user",
}


def code_of(error: BaseException) -> str:
    """The first word of the error as the server wrote it; empty if it was not the server's."""
    for kind, code in CODES:
        if isinstance(error, kind):
            return code
    if isinstance(error, redis_errors.AuthenticationError):
        return "WRONGPASS" if "invalid" in str(error).lower() else "NOAUTH"
    if not isinstance(error, redis_errors.ResponseError):
        return ""
    word = str(error).split(" ", 1)[0]
    return word if word.isupper() and word.isalpha() else "ERR"


def is_passing(error: BaseException) -> bool:
    """Whether asking again a little later may help."""
    if isinstance(error, (redis_errors.AuthenticationError, redis_errors.AuthorizationError)):
        return False
    code = code_of(error)
    if code:
        return code in PASSING
    return isinstance(error, (redis_errors.ConnectionError, redis_errors.TimeoutError, redis_errors.RedisClusterException, OSError))


def is_unknown(error: Any, command: str) -> bool:
    """Whether the server does not know a command that begins with this. Upstash says that it is not available."""
    text = str(error).lower()
    is_said = "unknown command" in text or "command is not available" in text
    return isinstance(error, redis_errors.ResponseError) and is_said and command in text


def is_out_of_reach(error: Any) -> bool:
    """Whether the module cannot be used: the server does not have it, or the user may not run its commands."""
    is_denied = isinstance(error, redis_errors.NoPermissionError) and "'fairlock." in str(error).lower()
    return is_denied or is_unknown(error, "fairlock.")


def shown(name: str | bytes) -> str:
    return name if isinstance(name, str) else name.decode(errors="backslashreplace")


def reason(error: BaseException) -> str:
    """The failure's own text, without redis-py's words around it."""
    cause = error if isinstance(error, OSError) else error.__cause__ or error.__context__
    if isinstance(cause, OSError) and (cause.errno or 0) > 0:
        return os.strerror(cause.errno or 0)
    code, text = code_of(error), str(error)
    return (text if text.startswith(code) else f"{code} {text}") or "no answer in time"


def translated(error: Exception, name: str | bytes, where: str, needing: str | None = None) -> FairlockError:
    """The error of this package for a refusal of the server; `needing`: the option that only the module can serve."""
    if is_unknown(error, "fairlock."):
        lack = f"{needing} needs the fairlock module, which the server does not have"
        return NoModule(f"{where}: {lack if needing else 'the server does not have the fairlock module'}{HELP}", "ERR")
    code, text = code_of(error), reason(error)
    hint = HINTS.get(code, "")
    if code == "NOPERM" and ("'role'" in text.lower() or "'wait'" in text.lower()):
        hint = f"allow ROLE and WAIT, which confirm that a replica has the lock, or say sync_timeout=0; {hint}"
    return KINDS.get(code, Refused)(f"{shown(name)}: {where}: {text}" + (f" ({hint})" if hint else ""), code or None)
