"""Carries out by redis-py what the core asks for. Written once: where asyncio awaits, threads are answered at once, so that their coroutines never suspend."""

from __future__ import annotations

import contextlib
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

import redis
import redis.exceptions as redis_errors

from ._asks import Ear
from ._errors import Failure
from ._options import log
from ._scripts import channel_of

IDLE = 60.0  # seconds of silence after which what has nothing to do ends
LONGEST = 3600.0  # seconds that are waited for in one piece
# redis-py's cluster client for asyncio, when a command fails, closes all connections, also those that others write to.
CLOSED = AttributeError
# Before 5.3 the pool wanted the name of a command; since then it warns of one.
ANY = ("_",) if tuple(map(int, redis.__version__.split(".")[:2])) < (5, 3) else ()


class Line(NamedTuple):
    """A session's own connection, of the library's pool; it is lent as by a pool, to one after another."""

    pool: Any
    connection: Any
    mutex: Any

    async def get_connection(self, *_: str) -> Any:
        await maybe(self.mutex.acquire())
        return self.connection

    def release(self, _: Any) -> None:
        self.mutex.release()


def pushes(connection: Any) -> dict[str, bool]:
    """What read_response needs for the messages of RESP3. redis-py 5.0's Sentinel takes it nowhere else."""
    return {"push_request": True} if str(getattr(connection, "protocol", 3)) == "3" else {}


async def maybe(result: Any) -> Any:
    return await result if hasattr(result, "__await__") else result


class Listener:
    """The connection on which the waiters at one server are told that it is their turn. One reads it, others write, as with redis-py's own PubSub."""

    def __init__(self, io: Io, pool: Any, connection: Any) -> None:
        self.io, self.pool, self.connection, self.mutex, self.is_over = io, pool, connection, io.mutex(), False
        self.ears: dict[bytes, list[Ear]] = defaultdict(list)
        self.sent: deque[bytes] = deque()  # channels whose confirmation has not come yet

    async def send(self, verb: str, *channels: bytes) -> None:
        self.sent.extend(channels)  # The replies come in this order.
        try:
            await maybe(self.connection.send_command(verb, *channels, check_health=False))
        except BaseException as error:
            self.is_over = True  # For the next one the library would connect again, and two would read what comes.
            if isinstance(error, (CLOSED, ValueError)):
                raise redis_errors.ConnectionError(str(error)) from error
            raise

    async def read(self) -> None:
        error: Exception = redis_errors.ConnectionError("closed")
        try:
            while not self.is_over:
                await self._receive()
        except (*Failure, CLOSED, ValueError, TypeError) as failed:  # The last two: it was cut while it was read, TypeError by hiredis.
            error = redis_errors.ConnectionError(str(failed))
        finally:
            await self.cut()
            for channel in list(self.ears):
                self._ring(channel, error)
            await maybe(self.pool.release(self.connection))

    async def cut(self) -> None:
        async with self.mutex:
            self.is_over = True
            await maybe(self.connection.disconnect(True))

    async def _receive(self) -> None:
        try:
            reply = await self.io.receive(self.connection)
        except redis_errors.ResponseError as error:
            return self._ring(self.sent.popleft() if self.sent else b"", error)
        if reply is None:
            async with self.mutex:
                self.is_over = self.is_over or not self.ears
            return
        kind, channel = reply[:2]
        with contextlib.suppress(ValueError):
            if b"subscribe" in kind:
                self.sent.remove(channel)
        if b"unsubscribe" not in kind:
            self._ring(channel)
        elif kind == b"sunsubscribe" and channel in self.ears:
            self._ring(channel, redis_errors.ConnectionError("the slot has left this server"))

    def _ring(self, channel: bytes, error: Exception | None = None) -> None:
        for ear in list(self.ears.get(channel, ())):
            if error is not None:
                ear.stands, ear.error = False, error
            ear.bell.set()


class Io:
    """What a flavour adds: locks and events of its kind; `timer` (set, clear), `gate` and `lost` for the core; and these."""

    mutex: Any
    bell: Any
    within: Any  # a time limit, where there is one
    replies: Any  # to commands, on a connection
    receive: Any  # one message; None after silence
    rung: Any  # whether a bell has rung in time, which is then ready for the next time
    enter: Any  # a gate, or TimeoutError
    start: Any  # a coroutine, in the background
    pool_of: Any  # the connections to a cluster's node
    core: Any
    held: Any  # makes the user's side of a Hold

    def __init__(self, client: Any, library: Any, other: Any) -> None:
        check_client(client, library, other)
        self.client, self.where = client, describe(client)
        self.is_cluster = isinstance(client, library.RedisCluster)
        self.begin()

    def begin(self) -> None:
        self.opening, self.listeners = self.mutex(), dict[Any, Listener]()

    async def quietly(self, work: Callable[..., Coroutine[Any, Any, Any]], *given: Any) -> None:
        try:
            await work(*given)
        except Exception as error:
            log.debug("in the background: %s", error)

    async def route(self, name: str | bytes) -> tuple[Any, str, Any]:
        """The library's name for the server of a lock, the address for messages, and the library's pool of connections to it."""
        if self.is_cluster:
            async with self.within(self.core.options.command_timeout):
                await maybe(getattr(self.client, "initialize", dict)())
            node = self.client.get_node_from_key(name)
            return node.name, node.name, self.pool_of(node)
        at = getattr(self.client.connection_pool, "master_address", None)
        return at, "{}:{}".format(*at) if at else self.where, self.client.connection_pool

    async def refresh(self, name: str | bytes) -> None:
        """The cluster's client follows redirects, and learns from them and from failures."""
        for command in ("FAIRLOCK.INFO", "PTTL"):  # what the user may run
            with contextlib.suppress(*Failure):
                async with self.within(self.core.options.command_timeout):  # The library would wait for ever.
                    await maybe(self.client.execute_command(command, name))
                return

    async def send(self, pool: Any, commands: list[Any], timeout: float) -> list[Any]:
        """The replies to a pipeline; a refusal is an exception among them. Where a slot is on its way, the new node is asked if it has the key."""
        replies = await self.exchange(pool, commands, timeout)
        if type(replies[0]) is redis_errors.AskError and type(pool) is not Line:
            node = self.client.get_node(replies[0].host, replies[0].port)
            if node is not None:
                _, *replies = await self.exchange(self.pool_of(node), [("ASKING",), *commands], timeout)
        return replies

    async def exchange(self, pool: Any, commands: list[Any], timeout: float) -> list[Any]:
        try:
            connection = await maybe(pool.get_connection(*ANY))
        except Failure as error:
            error.is_unsent = True  # type: ignore[union-attr]
            raise
        try:
            return await self.replies(connection, commands, timeout)
        except BaseException:
            await maybe(connection.disconnect(True))
            raise
        finally:
            await maybe(pool.release(connection))

    async def open(self, name: str | bytes) -> Line:
        _, _, pool = await self.route(name)
        async with self.within(self.core.options.command_timeout):
            return Line(pool, await maybe(pool.get_connection(*ANY)), self.mutex())

    async def close(self, line: Line) -> None:
        async with line.mutex:
            await maybe(line.connection.disconnect(True))
            await maybe(line.pool.release(line.connection))

    async def listen(self, ear: Ear, verb: str, timeout: float, left: float) -> None:
        """Until the subscription stands, or its bell has rung for something else. Who has little time left does not end it for others."""
        key, _, pool = await self.route(ear.name)
        ear.channel = ear.channel or channel_of(ear.name, ear.owner)
        async with self.within(timeout):
            async with self.opening:
                listener = self.listeners.get(key)
                if listener is None or listener.is_over:
                    listener = Listener(self, pool, await maybe(pool.get_connection(*ANY)))
                    try:
                        self.start(listener.read())
                    except RuntimeError:  # no thread
                        await listener.cut()
                        await maybe(pool.release(listener.connection))
                        raise
                    self.listeners[key] = listener
            await self.drop(ear, but=listener)
            ear.bell.clear()
            async with listener.mutex:
                if listener.is_over:
                    raise redis_errors.ConnectionError("the connection has closed")
                if ear not in listener.ears[ear.channel]:
                    listener.ears[ear.channel].append(ear)
                ear.error = None
                await listener.send(verb, ear.channel)
        if not await self.rung(ear.bell, min(timeout, left)):
            if timeout <= left:
                await listener.cut()
            raise redis_errors.TimeoutError("no confirmation of a subscription in time")
        if ear.error is not None:
            raise ear.error
        async with listener.mutex:  # If it ends later, it rings.
            ear.stands = not listener.is_over

    async def drop(self, ear: Ear, but: Listener | None = None) -> None:
        """No connection listens for it any more."""
        ear.stands = False
        for listener in list(self.listeners.values()):
            if listener is but or ear not in listener.ears.get(ear.channel, ()):
                continue
            async with listener.mutex:
                listener.ears[ear.channel].remove(ear)
                if not listener.ears[ear.channel]:  # Callers with one owner share a channel.
                    del listener.ears[ear.channel]
                    with contextlib.suppress(*Failure):
                        if not listener.is_over:
                            await listener.send(self.core.subscribe.replace("SUB", "UNSUB"), ear.channel)

    async def pause(self, seconds: float, bell: Any) -> bool:
        return bool(await self.rung(bell or self.bell(), min(seconds, LONGEST)))

    async def behind(self, work: Callable[..., Coroutine[Any, Any, Any]], *given: Any) -> None:
        try:
            self.start(self.quietly(work, *given))
        except RuntimeError:  # no thread
            await self.quietly(work, *given)

    async def end(self) -> None:
        for listener in self.listeners.values():
            async with listener.mutex:
                with contextlib.suppress(*Failure):
                    if not listener.is_over:
                        listener.is_over = True
                        await listener.send("UNSUBSCRIBE")  # The reader gets the answer, and ends.
        self.listeners.clear()


def check_client(client: Any, library: Any, other: Any) -> None:
    """By its type, since mocks claim to be anything."""
    kind, pool, wanted = type(client), getattr(client, "connection_pool", None), f"Locks wants a {library.__name__}.Redis or RedisCluster"
    if issubclass(kind, (other.Redis, other.RedisCluster)):
        raise TypeError(f"{wanted}; the other flavour of fairlock takes this one: {client!r}")
    if issubclass(kind, library.RedisCluster):
        return
    if not issubclass(kind, library.Redis) or issubclass(kind, library.client.Pipeline) or not isinstance(pool, library.ConnectionPool):
        raise TypeError(f"{wanted}, not {client!r}")
    if not getattr(pool, "is_master", True):
        raise TypeError(f"{wanted} of a master, not of a replica: {client!r}")


def describe(client: Any) -> str:
    """The address for messages, before it is known which server is asked."""
    said = client.get_connection_kwargs()
    return f"{said['host']}:{said.get('port', 6379)}" if "host" in said else str(said.get("path", "the servers"))
