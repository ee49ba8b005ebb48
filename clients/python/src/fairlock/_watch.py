"""Checks once a second that the master is still the master, while a lock is held or waited for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from . import _errors as errors
from ._lines import WAITING, Failure

if TYPE_CHECKING:
    from ._core import Core
    from ._route import Address

EACH = 1.0  # seconds


class Watch:
    """One for each Locks that has Sentinels or a cluster."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.cancel: Callable[[], None] | None = None

    def update(self) -> None:
        """Begins when there is something to watch for, and ends when there is not."""
        core = self.core
        if not core.route.is_watched:
            return
        with core.mutex:
            is_needed = bool(core.kept or core.asking) and not core.lines.is_closing
            if is_needed and self.cancel is None:
                self.cancel = core.runtime.later(EACH, self._look)
            elif not is_needed and self.cancel is not None:
                self.cancel()
                self.cancel = None

    async def _look(self) -> None:
        try:
            if self.cancel is not None:
                await self._check_all()
        finally:
            with self.core.mutex:
                is_going_on, self.cancel = self.cancel is not None, None
            if is_going_on:
                self.update()

    async def _check_all(self) -> None:
        try:
            # Connections to a former master are closed: callers that wait there ask at the new one.
            await self.core.find()
        except (errors.FairlockError, *Failure):
            return
        for address in self._used():
            await self._check_at(address)

    def _used(self) -> set[Address | None]:
        core, masters = self.core, self.core.route.masters()
        with core.mutex, core.lines.mutex:
            used = {line.address for line in core.lines.all if line.kind in WAITING}
            used |= {core.address_known(keep.name) for keep in core.kept}
        return {address for address in used if address in masters}

    async def _check_at(self, address: Address | None) -> None:
        core = self.core
        desk = core.lines.desk(address)
        try:
            await core.lines.role(desk)
            line = desk.line
            for keep in list(core.kept):
                # Another connection: another master, or one that may have started anew.
                if keep.checked_on is not line and core.address_known(keep.name) == address:
                    await keep.check(desk)
                    keep.checked_on = line
        except errors.FairlockError:
            return  # Locks was closed.
        except Failure as error:
            core.distrust(address, error)
