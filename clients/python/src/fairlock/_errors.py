"""The errors of the package, and what the server's codes become."""

from __future__ import annotations

import redis.exceptions as redis_errors

HELP = (
    "the server does not have the fairlock module (unknown command 'FAIRLOCK.ACQUIRE'). "
    'Load it: "loadmodule /path/to/libfairlock.so" in its redis.conf, or MODULE LOAD. '
    "See docs/operations.md at https://fairlock.example"
)


class FairlockError(Exception):
    """Base of all errors here. `code` is the first word of the server's error, if it was one."""

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code


class NotInTime(FairlockError, TimeoutError):
    """The lock was not to be had within `wait`."""


class NotReplicated(NotInTime):
    """No replica confirmed the acquisition within `wait`."""


class LockLost(FairlockError):
    """The lock is not its holder's any more. `cause`: lease, notheld, connection or closed."""

    def __init__(self, message: str, cause: str) -> None:
        super().__init__(message, "NOTHELD" if cause == "notheld" else None)
        self.cause = cause


class TakenOver(FairlockError):
    """The same owner asks elsewhere, and has the place in the queue now."""


class QueueFull(FairlockError):
    """The lock has as many waiters as the server allows (`fairlock.max-waiters`)."""


class NotALock(FairlockError):
    """The key holds a hash that is no lock."""


class WrongType(FairlockError):
    """One of the lock's keys holds something else."""


class CrossSlot(FairlockError):
    """In a cluster: the braces in the name would put the lock's keys in different slots."""


class NoModule(FairlockError):
    """The server does not have the fairlock module."""


class Refused(FairlockError):
    """Any other refusal of the server: NOPERM, OOM, ERR, ..."""


class Unavailable(FairlockError, ConnectionError):
    """The server could not be reached, or refused for the time being, for `retry_timeout`."""


class Closed(FairlockError):
    """Locks was closed."""


_KINDS: dict[str, type[FairlockError]] = {
    "TAKENOVER": TakenOver,
    "QUEUEFULL": QueueFull,
    "NOTALOCK": NotALock,
    "WRONGTYPE": WrongType,
    "CROSSSLOT": CrossSlot,
}

# redis-py takes the code off the texts that it knows; a class stands for it. LOADING comes first: it is
# a kind of ConnectionError there, and MOVED is a kind of ASK.
_CODES: tuple[tuple[type[Exception], str], ...] = (
    (redis_errors.BusyLoadingError, "LOADING"),
    (redis_errors.ClusterCrossSlotError, "CROSSSLOT"),
    (redis_errors.MovedError, "MOVED"),
    (redis_errors.AskError, "ASK"),
    (redis_errors.ClusterDownError, "CLUSTERDOWN"),
    (redis_errors.TryAgainError, "TRYAGAIN"),
    (redis_errors.MasterDownError, "MASTERDOWN"),
    (redis_errors.ReadOnlyError, "READONLY"),
    (redis_errors.OutOfMemoryError, "OOM"),
    (redis_errors.NoPermissionError, "NOPERM"),
)


def code_of(error: Exception) -> str:
    """The first word of the error as the server wrote it."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    word = str(error).split(" ", 1)[0]
    return word if word.isupper() and word.isalpha() else "ERR"


def translated(error: Exception, where: str) -> FairlockError:
    """The error of this package for a refusal of the server."""
    code, text = code_of(error), str(error)
    if code == "ERR" and text.lower().startswith("unknown command") and "FAIRLOCK." in text.upper():
        return NoModule(f"{where}: {HELP}", "ERR")
    if not text.startswith(code):
        text = f"{code} {text}"
    return _KINDS.get(code, Refused)(text, code)
