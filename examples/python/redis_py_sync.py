"""fairlock with redis-py and threads: python redis_py_sync.py [redis://127.0.0.1:6379]

The upper half is to copy; the lower half shows it at work, and fails if anything is not as it says.

Timeouts. redis-py gives up a command after `socket_timeout`, 5 seconds unless you say otherwise. It
then closes the connection, by which a waiter loses its place in the queue, and may ask again at its
end. So locks have a client of their own, whose `socket_timeout` is longer than any wait; with
`socket_timeout=None` it never gives up, and `wait=None` is possible.

Each thread that waits has a connection of the pool, and whoever releases needs one, too: let
`max_connections`, which is 100 unless you say otherwise, be more than the threads that wait.
"""

import os
import sys
import threading
import time
import uuid
from contextlib import contextmanager

import redis


class NotInTime(Exception):
    """The lock was not to be had within the wait."""


class LockLost(Exception):
    """The lease ended before the work did, or an operator broke the lock."""


@contextmanager
def fairlock(locks, name, *, wait, lease):
    """Holds a lock for the length of a `with` block, whose target is the fencing token.

    Seconds, as everywhere in Python; `wait=None` waits forever. QUEUEFULL and other refusals are
    raised as redis.ResponseError.
    """
    # Nobody else has this owner's name, so no other thread can take its place or its lock.
    owner = str(uuid.uuid4())
    try:
        token = _acquire(locks, name, owner, wait, lease)
    except BaseException:
        _withdraw(locks, name, owner)
        raise
    if token is None:
        raise NotInTime(name)
    try:
        yield token
    finally:
        _release(locks, name, owner)


def _acquire(locks, name, owner, wait, lease):
    end = None if wait is None else time.monotonic() + wait
    while True:
        # ONCE: redis-py sends a command again if the connection breaks before the reply.
        command = ["FAIRLOCK.ACQUIRE", name, owner, "LEASE", int(lease * 1000), "ONCE"]
        if end is not None:
            command += ["WAIT", max(1, int((end - time.monotonic()) * 1000))]
        try:
            return locks.execute_command(*command)
        except redis.ResponseError as error:
            # After a failover the place in the queue is still there.
            if not str(error).startswith("UNBLOCKED"):
                raise


def _release(locks, name, owner):
    try:
        locks.execute_command("FAIRLOCK.RELEASE", name, owner)
    except redis.ResponseError as error:
        if str(error).startswith("NOTHELD"):
            raise LockLost(name) from error
        raise


def _withdraw(locks, name, owner):
    """For who was interrupted and does not know whether it waits, holds the lock, or neither."""
    for command in ("FAIRLOCK.CANCEL", "FAIRLOCK.RELEASE"):
        try:
            locks.execute_command(command, name, owner)
        except redis.RedisError:
            pass  # The lease, and the end of the connection, do the same a little later.


@contextmanager
def session_lock(url, name, *, wait, lease):
    """Holds a lock for as long as a connection of its own is open.

    The server renews the lease, and frees the lock as soon as the process is gone; the lease bounds
    it if the server is. Whoever works for long asks now and then by RENEW, on this client, which is
    the target of the `with`: NOTHELD means that the connection broke.
    """
    # A client of its own, too: closing one that shares a pool only puts the connection back.
    with redis.Redis.from_url(
        url, single_connection_client=True, socket_timeout=wait + 5, retry=None
    ) as connection:
        command = ["FAIRLOCK.ACQUIRE", name, "*", "SESSION"]
        command += ["LEASE", int(lease * 1000), "WAIT", int(wait * 1000)]
        if connection.execute_command(*command) is None:
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

LOCK, STOCK = "example:redis-py", "example:redis-py:stock"
LONGEST_WAIT = 30


def many_workers_lose_nothing(app, locks):
    write = app.register_script(CONDITIONAL_WRITE)

    def work():
        for _ in range(5):
            with fairlock(locks, LOCK, wait=LONGEST_WAIT, lease=10) as token:
                amount = int(app.hget(STOCK, "amount") or 0)
                time.sleep(0.002)  # Time enough for others to write, if they could.
                write(keys=[STOCK], args=[token, amount + 1])

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    amount = int(app.hget(STOCK, "amount") or 0)
    expect(amount == 20, f"4 workers have added 5 each: {amount}")


def who_does_not_get_it_in_time_goes_on(locks):
    with fairlock(locks, LOCK, wait=LONGEST_WAIT, lease=10):
        try:
            with fairlock(locks, LOCK, wait=0.05, lease=10):
                expect(False, "two hold the lock")
        except NotInTime:
            print("not in time: somebody else has the lock")
    queue = locks.execute_command("FAIRLOCK.QUEUE", LOCK)
    expect(queue == [], "whoever gave up has left the queue")


def a_holder_past_its_lease_cannot_write(app, locks):
    write = app.register_script(CONDITIONAL_WRITE)
    try:
        with fairlock(locks, LOCK, wait=LONGEST_WAIT, lease=0.05) as old:
            # This holder sleeps. Meanwhile its lease ends, and the next one takes the lock.
            with fairlock(locks, LOCK, wait=LONGEST_WAIT, lease=10) as new:
                expect(new > old, "tokens grow")
                write(keys=[STOCK], args=[new, 7])
            try:
                write(keys=[STOCK], args=[old, 9])
                expect(False, "an old token has written")
            except redis.ResponseError as error:
                print(f"the store refuses the old token: {error}")
        expect(False, "nobody has noticed")
    except LockLost:
        print("and the release tells that the lock was lost")
    expect(app.hget(STOCK, "amount") == "7", "the newer value stays")


def a_wait_outlives_the_timeout(url, locks):
    # Somebody has it for three seconds; this client gives up after two.
    locks.execute_command("FAIRLOCK.ACQUIRE", LOCK, "somebody", "LEASE", 3000)
    hasty = redis.Redis.from_url(url, socket_timeout=2, retry=None)
    try:
        hasty.execute_command("FAIRLOCK.ACQUIRE", LOCK, "hasty", "WAIT", 10000)
        expect(False, "this client should have given up")
    except redis.TimeoutError:
        print("an ordinary client gives up")
    locks.execute_command("FAIRLOCK.ACQUIRE", LOCK, "somebody", "LEASE", 3000, "ONCE", "WAIT", 1000)
    start = time.monotonic()
    with fairlock(locks, LOCK, wait=LONGEST_WAIT, lease=10):
        expect(time.monotonic() - start > 2, "the client for locks waits")


def a_session_ends_with_its_connection(url, locks):
    with session_lock(url, LOCK, wait=LONGEST_WAIT, lease=60) as connection:
        renewed = connection.execute_command("FAIRLOCK.RENEW", LOCK, "*")
        expect(renewed == 60000, "the session holds")
        # As when the process dies: the connection ends, and nobody releases.
        threading.Timer(0.2, connection.close).start()
        start = time.monotonic()
        with fairlock(locks, LOCK, wait=LONGEST_WAIT, lease=10):
            waited = time.monotonic() - start
            expect(waited > 0.15, "the next one waits as long as the connection is open")
            expect(waited < 20, "then it has the lock at once, not when a minute's lease ends")


def expect(is_so, what):
    if not is_so:
        sys.exit(f"not so: {what}")
    print(what)


def main():
    default = os.environ.get("FAIRLOCK_URL", "redis://127.0.0.1:6379")
    url = sys.argv[1] if len(sys.argv) > 1 else default
    app = redis.Redis.from_url(url, decode_responses=True)
    locks = redis.Redis.from_url(url, socket_timeout=LONGEST_WAIT + 5)
    app.delete(STOCK)
    many_workers_lose_nothing(app, locks)
    who_does_not_get_it_in_time_goes_on(locks)
    a_holder_past_its_lease_cannot_write(app, locks)
    a_wait_outlives_the_timeout(url, locks)
    a_session_ends_with_its_connection(url, locks)


if __name__ == "__main__":
    main()
