"""The errors of the package, by the server's codes."""

from __future__ import annotations

import os

import redis.exceptions as redis_errors

NO_MODULE = "the server does not have the fairlock module"
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
    """No replica confirmed the acquisition within `wait`."""


class LockLost(FairlockError):
    """The holder has lost the lock. `cause`: lease, notheld, connection or closed."""

    def __init__(self, message: str, cause: str) -> None:
        super().__init__(message, "NOTHELD" if cause == "notheld" else None)
        self.cause = cause


class TakenOver(FairlockError):
    """The same owner asks elsewhere, and has the place in the queue now."""


class QueueFull(FairlockError):
    """The lock has as many waiters as the server allows (`fairlock.max-waiters`)."""


class NotALock(FairlockError):
    """The key holds a hash that is not a lock."""


class WrongType(FairlockError):
    """One of the lock's keys holds something else."""


class CrossSlot(FairlockError):
    """In a cluster: the braces in the name would put the lock's keys in different slots."""


class NoModule(FairlockError):
    """The server does not have the fairlock module."""


class Refused(FairlockError):
    """Any other refusal of the server: NOPERM, OOM, ERR, ..."""


class Unavailable(FairlockError, ConnectionError):
    """For `retry_timeout` the server could not be reached, or refused temporarily."""


class Closed(FairlockError):
    """Locks was closed."""


_KINDS: dict[str, type[FairlockError]] = {
    "TAKENOVER": TakenOver,
    "QUEUEFULL": QueueFull,
    "NOTALOCK": NotALock,
    "WRONGTYPE": WrongType,
    "CROSSSLOT": CrossSlot,
}

# redis-py takes the code off the texts that it knows; a class stands for it, or (newer ones) an attribute. LOADING comes
# first: it is a kind of ConnectionError there, and MOVED is a kind of ASK.
_CODES: tuple[tuple[type[Exception], str], ...] = (
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


def code_of(error: Exception) -> str:
    """The first word of the error as the server wrote it."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    if isinstance(error, redis_errors.AuthenticationError):
        return "NOAUTH" if "required" in str(error) else "WRONGPASS"
    word = str(error).split(" ", 1)[0]
    return word if word.isupper() and word.isalpha() else "ERR"


def shown(name: str | bytes) -> str:
    return name if isinstance(name, str) else name.decode(errors="backslashreplace")


def reason(error: BaseException) -> str:
    """The failure's own text, without redis-py's words around it."""
    cause = error if isinstance(error, OSError) else error.__cause__ or error.__context__
    if isinstance(cause, OSError) and (cause.errno or 0) > 0:
        return os.strerror(cause.errno or 0)
    if isinstance(error, redis_errors.ResponseError):
        return _as_sent(error)
    return str(error) or "no answer in time"


def _as_sent(error: Exception) -> str:
    code, text = code_of(error), str(error)
    return text if text.startswith(code) else f"{code} {text}"


def is_unknown(error: Exception, command: str) -> bool:
    """Whether the server does not know a command that begins with this. Upstash says that it is not available."""
    text = str(error).lower()
    is_said = "unknown command" in text or "command is not available" in text
    return isinstance(error, redis_errors.ResponseError) and is_said and command in text


def is_denied(error: Exception) -> bool:
    """Whether the user may not run a command of the module."""
    return isinstance(error, redis_errors.NoPermissionError) and "'fairlock." in str(error).lower()


def is_out_of_reach(error: Exception) -> bool:
    """Whether the module's commands cannot be used: the server does not have them, or the user may not run them."""
    return is_unknown(error, "fairlock.") or is_denied(error)


def translated(error: Exception, name: str | bytes, where: str, needing: str | None = None) -> FairlockError:
    """The error of this package for a refusal of the server; `needing`: the option that only the module can serve."""
    if is_unknown(error, "fairlock."):
        lack = f"{needing} needs the fairlock module, which the server does not have" if needing else NO_MODULE
        return NoModule(f"{where}: {lack}{HELP}", "ERR")
    code, text = code_of(error), _as_sent(error)
    lower = text.lower()
    hint = HINTS.get(code, "")
    if code == "NOPERM" and ("'role'" in lower or "'wait'" in lower):
        hint = f"allow ROLE and WAIT, which confirm that a replica has the lock, or say sync_timeout=0; {hint}"
    text = f"{shown(name)}: {where}: {text}" + (f" ({hint})" if hint else "")
    return _KINDS.get(code, Refused)(text, code)
