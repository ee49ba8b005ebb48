"""What callers see, written once: what threads are given at once, asyncio awaits."""

from __future__ import annotations

import weakref
from typing import Any, Generic, TypeVar, Unpack

from . import _errors as errors
from ._core import Core, Hold
from ._options import LockOptions, LocksOptions, Options

# What a flavour's calls give: a lock; perhaps a lock; Info; a lease; nothing.
Got = TypeVar("Got")
Tried = TypeVar("Tried")
Said = TypeVar("Said")
Lease = TypeVar("Lease")
Done = TypeVar("Done")


class AnyHeld(Generic[Lease, Done]):
    def __init__(self, hold: Hold) -> None:
        self._hold, self._io, hold.user = hold, hold.core.io, weakref.ref(self)
        self.name, self.owner, self.token, self.lost = hold.name, hold.owner, hold.token, hold.lost

    def renew(self, lease: float | None = None) -> Lease:
        """Sets the lease anew, to its own length or another; returns the new lease in seconds."""
        return self._io.run(self._hold.core.renew(self._hold, lease))

    def release(self) -> Done:
        """Gives up the lock. LockLost: it was lost before. Releasing again does nothing."""
        return self._io.run(self._release(None))

    async def _release(self, error: BaseException | None) -> None:
        """`error`: that of the block which ends, to which a failure of the release is added."""
        if self._hold.state not in ("held", "lost"):
            return
        try:
            await self._io.to_its_end(self._hold.core.release(self._hold))
        except errors.FairlockError as failed:
            if error is None:
                raise
            error.add_note(f"fairlock: the release failed, too: {failed}")


class AnyLocks(Generic[Got, Tried, Said]):
    def _begin(self, io: Any, held: Any, options: Any) -> None:
        self._io, io.held, self._options = io, held, Options().but(options, LocksOptions)
        self._core = io.core = Core(self._options, io)

    def acquire(self, name: str | bytes, **options: Unpack[LockOptions]) -> Got:
        """The lock, to be released by `held.release()`. NotInTime: not within `wait`."""
        return self._io.run(self._acquire(name, options))

    def try_acquire(self, name: str | bytes, **options: Unpack[LockOptions]) -> Tried:
        """The lock if it is available at once, else None."""
        return self._io.run(self._try_acquire(name, {**options, "wait": 0}))

    def info(self, name: str | bytes) -> Said:
        """The lock's holder, its lease, and how many wait for it."""
        return self._io.run(self._core.info(name))

    @property
    def native(self) -> bool | None:
        """Whether the server has the module; False: locks are taken by scripts. None: it was not asked yet."""
        return self._core.native

    async def _acquire(self, name: str | bytes, options: Any) -> Any:
        wanted = self._options.but(options)
        mine = self._io.mine() if wanted.reentrant else {}
        if (hold := mine.get(name)) is not None:
            return self._core.enter_again(hold)
        held = await self._io.acquire(self._core.ask(name, wanted))
        if wanted.reentrant:
            mine[name], held._hold.entered = held._hold, mine
        return held

    async def _try_acquire(self, name: str | bytes, options: Any) -> Any:
        try:
            return await self._acquire(name, options)
        except errors.NotReplicated:
            raise
        except errors.NotInTime:
            return None
