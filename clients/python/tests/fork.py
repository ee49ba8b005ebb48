"""PORT NAME FLAVOUR: prints what children are told that renew what their parent holds."""

import asyncio
import contextlib
import inspect
import os
import sys
import traceback

import redis
import redis.asyncio

import fairlock
import fairlock.aio

port, name, is_async = int(sys.argv[1]), sys.argv[2], sys.argv[3] == "tasks"
locks = fairlock.aio.Locks(redis.asyncio.Redis(port=port)) if is_async else fairlock.Locks(redis.Redis(port=port))


async def maybe(result):
    return await result if inspect.isawaitable(result) else result


def run(work):
    if is_async:
        return asyncio.run(work)
    with contextlib.suppress(StopIteration):
        work.send(None)


async def child(parents):
    global locks
    if is_async:  # Its client belongs to the parent's event loop.
        locks = fairlock.aio.Locks(redis.asyncio.Redis(port=port))
    held = await maybe(locks.acquire(name, wait=60))
    assert (await maybe(locks.info(name))).token == held.token
    await maybe(held.release())
    assert await maybe(locks.try_acquire(parents.name)) is None
    await maybe(parents.release())
    try:
        await maybe(parents.renew())
    except fairlock.FairlockError as error:
        os.write(1, f"{error}\n".encode())  # In one piece: four write at a time.


async def main():
    await maybe((await maybe(locks.acquire(name))).release())
    parents = await maybe(locks.acquire(f"{name}:parents"))
    for _ in range(4):
        if os.fork() == 0:
            try:
                run(child(parents))
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
    for _ in range(4):
        assert (await asyncio.to_thread(os.wait) if is_async else os.wait())[1] == 0
    assert (await maybe(locks.info(parents.name))).token == parents.token and not parents.lost.is_set()
    await maybe(parents.renew())
    await maybe(parents.release())


run(main())
