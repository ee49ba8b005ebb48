"""fairlock with redis-py and asyncio: python redis_py_asyncio.py [redis://127.0.0.1:6379]

The upper half is to copy; the lower half shows it at work, and fails if anything is not as it says.

A blocked ACQUIRE takes a connection of the client's pool for as long as it waits, and a release
needs one, too: the pool has 100 unless you say otherwise. Where waiters are many, `Queue` lets all
of them share a client's connections, and one more for the wake-ups.

Timeouts. redis-py gives up a command after `socket_timeout`, 5 seconds unless you say otherwise. It
then closes the connection, by which a waiter loses its place in the queue, and may ask again at its
end. So locks have a client of their own, whose `socket_timeout` is longer than any wait; with
`socket_timeout=None` it never gives up, and `wait=None` is possible. The commands of a `Queue` are
answered at once, so it shares the client of everything else. `asyncio.timeout` goes around either.
"""

import asyncio
import itertools
import os
import sys
import time
import uuid
from contextlib import asynccontextmanager, suppress

import redis.asyncio as redis


class NotInTime(Exception):
    """The lock was not to be had within the wait."""


class LockLost(Exception):
    """The lease ended before the work did, or an operator broke the lock."""


@asynccontextmanager
async def fairlock(locks, name, *, wait, lease):
    """Holds a lock for the length of an `async with`, whose target is the fencing token.

    `locks` is a client or a `Queue`. Seconds, as everywhere in Python; `wait=None` waits forever.
    QUEUEFULL and other refusals are raised as redis.ResponseError.
    """
    # Nobody else has this owner's name, so no other task can take its place or its lock.
    owner = locks.new_owner() if isinstance(locks, Queue) else str(uuid.uuid4())
    acquire = locks.acquire if isinstance(locks, Queue) else _acquire_blocking
    client = locks.client if isinstance(locks, Queue) else locks
    # ONCE: redis-py sends a command again if the connection breaks before the reply.
    command = ["FAIRLOCK.ACQUIRE", name, owner, "LEASE", int(lease * 1000), "ONCE"]
    try:
        token = await acquire(client, command, wait)
    except BaseException:
        await asyncio.shield(_withdraw(client, name, owner))
        raise
    if token is None:
        raise NotInTime(name)
    try:
        yield token
    finally:
        await asyncio.shield(_release(client, name, owner))


async def _acquire_blocking(client, command, wait):
    end = _end(wait)
    while True:
        waiting = [] if wait is None else ["WAIT", max(1, int(_left(end) * 1000))]
        try:
            return await client.execute_command(*command, *waiting)
        except redis.ResponseError as error:
            # After a failover the place in the queue is still there.
            if not str(error).startswith("UNBLOCKED"):
                raise


class Queue:
    """Any number of waiters on one client: `async with Queue(client) as queue`."""

    def __init__(self, client):
        self.client = client
        self._id = str(uuid.uuid4())
        self._numbers = itertools.count(1)
        self._wake_ups = {}

    def new_owner(self):
        return f"{self._id}:{next(self._numbers)}"

    async def __aenter__(self):
        self._pubsub = self.client.pubsub(ignore_subscribe_messages=True)
        # One pattern for all owners of this queue, whatever lock they wait for. A cluster has no
        # patterns: there, SSUBSCRIBE to an owner's channel before it asks for the first time.
        await self._pubsub.psubscribe(f"redisson_lock__channel:*:{self._id}:*")
        self._listener = asyncio.create_task(self._listen())
        return self

    async def __aexit__(self, *_):
        self._listener.cancel()
        with suppress(asyncio.CancelledError):
            await self._listener
        await self._pubsub.aclose()

    async def _listen(self):
        while True:
            try:
                async for message in self._pubsub.listen():
                    channel = _text(message["channel"])
                    wake_up = self._wake_ups.get(channel[channel.rindex(self._id) :])
                    if wake_up:
                        wake_up.set()
            except redis.RedisError:
                # It subscribes again when it reads on. What was missed, retry-after makes up for.
                await asyncio.sleep(0.1)

    async def acquire(self, client, command, wait):
        name, owner = command[1:3]
        wake_up = self._wake_ups[owner] = asyncio.Event()
        end = _end(wait)
        try:
            while True:
                wake_up.clear()
                reply = await client.execute_command(*command, "ENQUEUE")
                if isinstance(reply, int):
                    return reply
                if _left(end) <= 0:
                    await client.execute_command("FAIRLOCK.CANCEL", name, owner)
                    return None
                _position, retry_after = reply
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(wake_up.wait(), min(retry_after / 1000, _left(end)))
        finally:
            del self._wake_ups[owner]


async def _release(client, name, owner):
    try:
        await client.execute_command("FAIRLOCK.RELEASE", name, owner)
    except redis.ResponseError as error:
        if str(error).startswith("NOTHELD"):
            raise LockLost(name) from error
        raise


async def _withdraw(client, name, owner):
    """For who was interrupted and does not know whether it waits, holds the lock, or neither."""
    for command in ("FAIRLOCK.CANCEL", "FAIRLOCK.RELEASE"):
        # Without it the lease, and the end of the connection, do the same a little later.
        with suppress(redis.RedisError):
            await client.execute_command(command, name, owner)


def _end(wait):
    return float("inf") if wait is None else time.monotonic() + wait


def _left(end):
    return end - time.monotonic()


def _text(value):
    return value.decode() if isinstance(value, bytes) else value


@asynccontextmanager
async def session_lock(url, name, *, wait, lease):
    """Holds a lock for as long as a connection of its own is open.

    The server renews the lease, and frees the lock as soon as the process is gone; the lease bounds
    it if the server is. Whoever works for long asks now and then by RENEW, on this client, which is
    the target of the `async with`: NOTHELD means that the connection broke.
    """
    # A client of its own, too: closing one that shares a pool only puts the connection back.
    async with redis.Redis.from_url(
        url, single_connection_client=True, socket_timeout=wait + 5, retry=None
    ) as connection:
        command = ["FAIRLOCK.ACQUIRE", name, "*", "SESSION"]
        command += ["LEASE", int(lease * 1000), "WAIT", int(wait * 1000)]
        if await connection.execute_command(*command) is None:
            raise NotInTime(name)
        yield connection


# A store that has seen a token refuses all that are smaller.
CONDITIONAL_WRITE = """
if tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'token') or 0) then
    return redis.error_reply('STALE token')
end
return redis.call('HSET', KEYS[1], 'token', ARGV[1], 'amount', ARGV[2])
"""

# ----------------------------------------------------------------------------------- at work

LOCK, STOCK = "example:asyncio", "example:asyncio:stock"
LONGEST_WAIT = 30


async def many_workers_lose_nothing(app, locks):
    await app.delete(STOCK)
    write = app.register_script(CONDITIONAL_WRITE)

    async def work():
        for _ in range(5):
            # In a queue nobody asks again before half of this lease is over unless woken, and by
            # then it is too late.
            async with fairlock(locks, LOCK, wait=LONGEST_WAIT, lease=120) as token:
                amount = int(await app.hget(STOCK, "amount") or 0)
                await asyncio.sleep(0.002)  # Time enough for others to write, if they could.
                await write(keys=[STOCK], args=[token, amount + 1])

    await asyncio.gather(*(work() for _ in range(4)))
    amount = int(await app.hget(STOCK, "amount") or 0)
    expect(amount == 20, f"4 workers have added 5 each: {amount}")


async def who_does_not_get_it_in_time_goes_on(app, locks):
    async with fairlock(locks, LOCK, wait=LONGEST_WAIT, lease=10):
        try:
            async with fairlock(locks, LOCK, wait=0.05, lease=10):
                expect(False, "two hold the lock")
        except NotInTime:
            print("not in time: somebody else has the lock")

        async def wait_forever():
            async with fairlock(locks, LOCK, wait=None, lease=10):
                expect(False, "two hold the lock")

        try:
            await asyncio.wait_for(wait_forever(), 0.2)
        except asyncio.TimeoutError:
            print("cancelled while it waited")
        queue = await app.execute_command("FAIRLOCK.QUEUE", LOCK)
        expect(queue == [], "both have left the queue")


async def a_holder_past_its_lease_cannot_write(app, locks):
    write = app.register_script(CONDITIONAL_WRITE)
    try:
        async with fairlock(locks, LOCK, wait=LONGEST_WAIT, lease=0.05) as old:
            # This holder sleeps. Meanwhile its lease ends, and the next one takes the lock.
            async with fairlock(locks, LOCK, wait=LONGEST_WAIT, lease=10) as new:
                expect(new > old, "tokens grow")
                await write(keys=[STOCK], args=[new, 7])
            try:
                await write(keys=[STOCK], args=[old, 9])
                expect(False, "an old token has written")
            except redis.ResponseError as error:
                print(f"the store refuses the old token: {error}")
        expect(False, "nobody has noticed")
    except LockLost:
        print("and the release tells that the lock was lost")
    expect(await app.hget(STOCK, "amount") == "7", "the newer value stays")


async def a_wait_outlives_the_timeout(url, app, locks):
    # Somebody has it for three seconds; this client gives up after two.
    take = ["FAIRLOCK.ACQUIRE", LOCK, "somebody", "LEASE", 3000, "ONCE", "WAIT", 1000]
    hasty = redis.Redis.from_url(url, socket_timeout=2, retry=None)
    async with hasty, Queue(hasty) as queue:
        await app.execute_command(*take)
        try:
            await hasty.execute_command("FAIRLOCK.ACQUIRE", LOCK, "hasty", "WAIT", 10000)
            expect(False, "this client should have given up")
        except redis.TimeoutError:
            print("an ordinary client gives up")
        for waiting, who in ((locks, "the client for locks"), (queue, "a queue")):
            await app.execute_command(*take)
            start = time.monotonic()
            async with fairlock(waiting, LOCK, wait=LONGEST_WAIT, lease=10):
                expect(time.monotonic() - start > 2, f"{who} waits")


async def a_session_ends_with_its_connection(url, locks):
    async with session_lock(url, LOCK, wait=LONGEST_WAIT, lease=60) as connection:
        renewed = await connection.execute_command("FAIRLOCK.RENEW", LOCK, "*")
        expect(renewed == 60000, "the session holds")
        start = time.monotonic()

        async def succeed():
            async with fairlock(locks, LOCK, wait=LONGEST_WAIT, lease=10):
                waited = time.monotonic() - start
                expect(waited < 20, "then it has the lock at once, not when a minute's lease ends")

        successor = asyncio.create_task(succeed())
        await asyncio.sleep(0.2)
        expect(not successor.done(), "the next one waits as long as the connection is open")
        await connection.aclose()  # As when the process dies: nobody releases.
        await successor


def expect(is_so, what):
    if not is_so:
        sys.exit(f"not so: {what}")
    print(what)


async def main():
    default = os.environ.get("FAIRLOCK_URL", "redis://127.0.0.1:6379")
    url = sys.argv[1] if len(sys.argv) > 1 else default
    app = redis.Redis.from_url(url, decode_responses=True)
    blocking = redis.Redis.from_url(url, socket_timeout=LONGEST_WAIT + 5)
    async with app, blocking, Queue(app) as queue:
        for locks in (blocking, queue):
            print(f"-- waiting by {'ENQUEUE' if locks is queue else 'blocking'}")
            await many_workers_lose_nothing(app, locks)
            await who_does_not_get_it_in_time_goes_on(app, locks)
            await a_holder_past_its_lease_cannot_write(app, locks)
            await a_session_ends_with_its_connection(url, locks)
        await a_wait_outlives_the_timeout(url, app, blocking)


if __name__ == "__main__":
    asyncio.run(main())
