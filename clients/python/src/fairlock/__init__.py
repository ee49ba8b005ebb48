"""Fair locks on Redis or Valkey.

    locks = fairlock.Locks(redis.Redis())
    with locks("orders", wait=30, lease=10) as held:
        ...  # held.token goes with what is written; held.lost fires if the lock is lost

`fairlock.aio` is the same for asyncio.
"""

from ._errors import Closed, CrossSlot, FairlockError, LockLost, NoModule, NotALock, NotInTime, NotReplicated
from ._errors import QueueFull, Refused, Unavailable, WrongType
from ._options import Event, Hooks, Info
from ._threads import Held, Locks, Lost

__version__ = "0.1.0"
__all__ = ["Closed", "CrossSlot", "Event", "FairlockError", "Held", "Hooks", "Info", "LockLost", "Locks", "Lost", "NoModule", "NotALock"]
__all__ += ["NotInTime", "NotReplicated", "QueueFull", "Refused", "Unavailable", "WrongType"]
