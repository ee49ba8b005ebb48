"""One interface to the packages for threads and for asyncio, so that each test is written once and runs for both."""

import asyncio
import concurrent.futures
import contextlib
import os
import signal
import threading

import redis
import redis.asyncio

import fairlock
import fairlock.aio
from servers import LONGEST, until


class Interrupted(Exception):
    """What stands for KeyboardInterrupt in the tests."""


class Threads:
    name = "threads"
    many = 100  # callers
    new, client_kind, other_kind = fairlock.Locks, redis.Redis, redis.asyncio.Redis
    cancelled = Interrupted

    def locks(self, port=None, *, client=None, client_options=None, **options):
        client = client or redis.Redis(port=port, **(client_options or {}))
        return ThreadLocks(fairlock.Locks(client, **options))

    def sentinel(self, port, *, client_options=None, **options):
        sentinel = redis.Sentinel([("127.0.0.1", port)])
        return self.locks(client=sentinel.master_for("locks", **(client_options or {})), **options)

    def cluster(self, port, *, client_options=None, **options):
        return self.locks(client=redis.RedisCluster(host="127.0.0.1", port=port, **(client_options or {})), **options)

    def end(self):
        pass


class ThreadLocks:
    def __init__(self, real):
        self.real = real
        self.acquire, self.try_acquire, self.close = real.acquire, real.try_acquire, real.close
        self.info = real.info
        self.hold = real

    def begin(self, name, **options):
        """Acquires in a thread of its own."""
        future = concurrent.futures.Future()

        def work():
            try:
                future.set_result(self.real.acquire(name, **options))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        return future

    def cancel_when(self, condition, name, **options):
        """Acquires here, and is interrupted when the condition holds."""

        def interrupt():
            condition()
            os.kill(os.getpid(), signal.SIGUSR1)

        def raise_it(*_):
            raise Interrupted

        before = signal.signal(signal.SIGUSR1, raise_it)
        threading.Thread(target=interrupt, daemon=True).start()
        try:
            return self.real.acquire(name, **options)
        finally:
            signal.signal(signal.SIGUSR1, before)

    def nested(self, name, **options):
        """Holds it twice, one in the other; returns both, and what another thread gets in between."""
        with self.real(name, **options) as outer:
            with self.real(name, **options) as inner:
                pass
            other = self.begin(name, **{**options, "wait": 0})
            failure = other.exception(LONGEST)
            return outer.token, inner.token, outer is inner, failure

    def again(self, name, **options):
        with self.real(name, **options), self.real(name, **{**options, "wait": 0.05}):
            pass

    def abandon(self, name, **options):
        """Holds it in a thread that ends without a release."""
        kept = []

        def work():
            lock = self.real(name, **options)
            kept.extend([lock, lock.__enter__()])

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return kept

    def in_order(self, name, count):
        """Starts calls, each once the one before it is in the queue; returns the order of the holders by number."""
        first, order, threads = self.real.acquire(name), [], []

        def work(number):
            with self.real(name):
                order.append(number)

        for number in range(count):
            threads.append(threading.Thread(target=work, args=(number,), daemon=True))
            threads[-1].start()
            until(f"{number} is in the queue", lambda number=number: self.real.info(name).waiting == number + 1)
        first.release()
        for thread in threads:
            thread.join(LONGEST)
        return order

    def names(self):
        return [thread.name for thread in threading.enumerate() if thread.name == "fairlock"]


class Tasks:
    name = "tasks"
    many = 1000  # callers
    new, client_kind, other_kind = fairlock.aio.Locks, redis.asyncio.Redis, redis.Redis
    cancelled = asyncio.CancelledError

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def do(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(LONGEST)

    def locks(self, port=None, *, client=None, client_options=None, **options):
        async def make():
            made = client() if client else redis.asyncio.Redis(port=port, **(client_options or {}))
            return fairlock.aio.Locks(made, **options)

        return TaskLocks(self, self.do(make()))

    def sentinel(self, port, *, client_options=None, **options):
        def client():
            return redis.asyncio.Sentinel([("127.0.0.1", port)]).master_for("locks", **(client_options or {}))

        return self.locks(client=client, **options)

    def cluster(self, port, *, client_options=None, **options):
        def client():
            return redis.asyncio.RedisCluster(host="127.0.0.1", port=port, **(client_options or {}))

        return self.locks(client=client, **options)

    def end(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


class TaskHeld:
    def __init__(self, flavour, real):
        self.flavour, self.real = flavour, real
        self.name, self.owner, self.token, self.lost = real.name, real.owner, real.token, TaskLost(flavour, real.lost)

    def renew(self, *lease):
        return self.flavour.do(self.real.renew(*lease))

    def release(self):
        self.flavour.do(self.real.release())


class TaskLost:
    def __init__(self, flavour, real):
        self.flavour, self.real = flavour, real
        self.is_set = real.is_set

    @property
    def cause(self):
        return self.real.cause

    def wait(self, timeout):
        async def wait():
            try:
                async with asyncio.timeout(timeout):
                    return await self.real.wait()
            except TimeoutError:
                return False

        return self.flavour.do(wait())


class TaskLocks:
    def __init__(self, flavour, real):
        self.flavour, self.real = flavour, real

    async def _acquire(self, name, options):
        return TaskHeld(self.flavour, await self.real.acquire(name, **options))

    def acquire(self, name, **options):
        return self.flavour.do(self._acquire(name, options))

    def try_acquire(self, name, **options):
        held = self.flavour.do(self.real.try_acquire(name, **options))
        return held and TaskHeld(self.flavour, held)

    def info(self, name):
        return self.flavour.do(self.real.info(name))

    def close(self):
        self.flavour.do(self.real.aclose())

    def begin(self, name, **options):
        return asyncio.run_coroutine_threadsafe(self._acquire(name, options), self.flavour.loop)

    def cancel_when(self, condition, name, **options):
        """Acquires in a task, which is cancelled when the condition holds; waits until it has ended."""
        ended = threading.Event()

        async def work():
            try:
                return await self._acquire(name, options)
            finally:
                ended.set()

        future = asyncio.run_coroutine_threadsafe(work(), self.flavour.loop)
        condition()
        future.cancel()
        assert ended.wait(LONGEST)
        try:
            return future.result(0)
        except concurrent.futures.CancelledError:
            raise asyncio.CancelledError from None

    @contextlib.contextmanager
    def hold(self, name, **options):
        """Holds it in one task, for the length of a block here."""
        entered, left = concurrent.futures.Future(), asyncio.Future(loop=self.flavour.loop)

        async def work():
            try:
                async with self.real(name, **options) as held:
                    entered.set_result(TaskHeld(self.flavour, held))
                    await left
            except BaseException as error:
                if not entered.done():
                    entered.set_exception(error)
                raise

        task = asyncio.run_coroutine_threadsafe(work(), self.flavour.loop)
        held = entered.result(LONGEST)
        try:
            yield held
        except BaseException as error:
            self.flavour.loop.call_soon_threadsafe(left.set_exception, error)
            task.result(LONGEST)
            raise
        self.flavour.loop.call_soon_threadsafe(left.set_result, None)
        task.result(LONGEST)

    def nested(self, name, **options):
        async def work():
            async with self.real(name, **options) as outer:
                async with self.real(name, **options) as inner:
                    pass
                other = asyncio.create_task(self.real.acquire(name, **{**options, "wait": 0}))
                (failure,) = await asyncio.gather(other, return_exceptions=True)
                return outer.token, inner.token, outer is inner, failure

        return self.flavour.do(work())

    def again(self, name, **options):
        async def work():
            async with self.real(name, **options), self.real(name, **{**options, "wait": 0.05}):
                pass

        self.flavour.do(work())

    def abandon(self, name, **options):
        """Holds it in a task that ends without a release."""
        kept = []

        async def work():
            lock = self.real(name, **options)
            kept.extend([lock, await lock.__aenter__()])

        self.flavour.do(work())
        return kept

    def in_order(self, name, count):
        """Starts a number of calls at once; returns the order of the holders by number."""
        order = []

        async def work(number):
            async with self.real(name):
                order.append(number)

        async def gather():
            await asyncio.gather(*map(work, range(count)))
            return order

        return self.flavour.do(gather())

    def names(self):
        async def count():
            return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]

        return self.flavour.do(count())
