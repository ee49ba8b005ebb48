"""The commands of the protocol: sent by the module or as scripts, confirmed by replicas, and tried again after passing failures."""

from __future__ import annotations

import math
import time
from typing import Any

import redis.exceptions as redis_errors

from . import _errors as errors
from ._errors import Failure
from ._options import Info, Options, check_name, log, ms
from ._scripts import scripted, warning

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0  # seconds between tries


class Tries:
    """Failures in a row: the first, until when it is tried again, the next pause; and where it was last tried."""

    def __init__(self, name: str | bytes, options: Options, longest: float, where: str) -> None:
        self.name, self.options, self.longest, self.where = name, options, longest, where
        self.is_unheard = False  # a reply was lost: that request may still be carried out
        self.is_granted = False
        self.bell: Any = None  # of an Ask, to end a pause
        self.needing: str | None = None  # the option that only the module can serve
        self.reset()

    def reset(self) -> None:
        self.first: BaseException | None = None
        self.end, self.reason, self.pause = math.inf, "", FIRST_PAUSE


class Calls:
    """What is asked of an Io: route, send, refresh, pause."""

    now = staticmethod(time.monotonic)
    mutex: Any

    def __init__(self, options: Options, io: Any) -> None:
        self.options, self.io, self.where = options, io, io.where
        self.native: bool | None = None
        self.is_closed = False
        self.replicas: dict[Any, int] = {}

    async def _failed(self, tries: Tries, error: Exception, left: float = math.inf) -> None:
        """Returns when it is time to try again; otherwise raises the caller's error."""
        if isinstance(error, errors.FairlockError):
            raise error
        if not errors.is_passing(error):
            raise errors.translated(error, tries.name, tries.where, tries.needing) from error
        now = self.now()
        if tries.first is None:
            tries.first, tries.reason = error, f"{tries.where}: {errors.reason(error)}"
            tries.end = min(tries.end, now + tries.longest)
        if left <= 0:
            return  # The caller says so.
        if self.io.is_cluster:
            await self.io.refresh(tries.name)
        if now >= tries.end:
            length = f" for {tries.longest:g} s" if tries.longest else ""
            text = f"{errors.shown(tries.name)}: not available{length}: {tries.reason}"
            raise errors.Unavailable(text, errors.code_of(error) or None) from tries.first
        await self.io.pause(min(tries.pause, tries.end - now, left), tries.bell)
        tries.pause = min(tries.pause * 2, LONGEST_PAUSE)

    async def _call(
        self, tries: Tries, words: tuple[Any, ...], confirm: bool = False, line: Any = None, timeout: float | None = None
    ) -> tuple[Any, bool]:
        """The reply, and whether enough replicas have confirmed it: WAIT covers what its own connection has written."""
        options, form = tries.options, "EVALSHA"
        pool, wanted = await self._where(tries, confirm)
        wait = [("WAIT", wanted, ms(options.sync_timeout))] if wanted else []
        longest = (timeout or options.command_timeout) + (options.sync_timeout if wanted else 0)
        needs_module = options.module == "required" or tries.needing is not None
        while True:
            is_script = self.native is False and not needs_module
            try:
                replies = await self.io.send(line or pool, [scripted(words, form) if is_script else words, *wait], longest)
            except BaseException as error:
                tries.is_unheard |= not hasattr(error, "is_unsent")
                raise
            failed = next((reply for reply in replies if isinstance(reply, Exception)), None)
            tries.is_granted |= words[0] == "FAIRLOCK.ACQUIRE" and type(replies[0]) is int
            if failed is None:
                if self.native is None:
                    self.native = True
                return replies[0], not wanted or replies[-1] >= wanted
            if isinstance(failed, redis_errors.NoScriptError) and form == "EVALSHA":
                form = "EVAL"
            elif not is_script and not needs_module and errors.is_out_of_reach(failed):
                self._without_module(failed, tries.where)
            else:
                raise failed

    async def _again(self, tries: Tries, *words: Any, timeout: float | None = None) -> Any:
        """The reply, also after failures that pass."""
        while True:
            try:
                return (await self._call(tries, words, timeout=timeout))[0]
            except Failure as error:
                await self._failed(tries, error)

    def _without_module(self, error: Any, where: str) -> None:
        with self.mutex:
            is_news, self.native = self.native is not False, False
        if is_news:
            log.warning(warning(error), where)

    async def _where(self, tries: Tries, confirm: bool) -> tuple[Any, int]:
        """The pool of the name's server, and how many replicas have to confirm."""
        key, tries.where, pool = await self.io.route(tries.name)
        if not confirm or not tries.options.sync_timeout:
            return pool, 0
        if tries.options.min_replicas is not None:
            return pool, tries.options.min_replicas
        if key not in self.replicas:
            (role,) = await self.io.send(pool, [("ROLE",)], tries.options.command_timeout)
            if errors.is_unknown(role, "role"):
                role = [b"master", 0, []]
            if isinstance(role, Exception):
                raise role
            if role[0] != b"master":
                return pool, 0  # It will refuse.
            key, tries.where, pool = await self.io.route(tries.name)  # A client of Sentinel knows the master once it has connected.
            self.replicas[key] = min(1, len(role[2]))
        return pool, self.replicas[key]

    async def info(self, name: str | bytes) -> Info:
        check_name(name)
        return Info.of(await self._again(Tries(name, self.options, self.options.command_timeout, self.where), "FAIRLOCK.INFO", name))
