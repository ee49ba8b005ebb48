"""Row 55: PORT NAME. As fork_threads, with children that are forked while the event loop runs."""

import asyncio
import os
import sys
import time

import redis.asyncio

import fairlock.aio

locks = fairlock.aio.Locks(redis.asyncio.Redis(port=int(sys.argv[1])), lease=120)
name = sys.argv[2]


async def child(parents):
    async with locks(name, wait=60) as held:
        began = time.monotonic()
        time.sleep(0.05)
        print("child", held.token, began, time.monotonic(), flush=True)
    assert await locks.try_acquire(parents.name) is None
    await parents.release()
    try:
        await parents.renew()
    except fairlock.FairlockError as error:
        print("renew", error, flush=True)


async def main():
    async with locks(name):
        pass
    parents = await locks.acquire(f"{name}:parents")
    for _ in range(4):
        if os.fork() == 0:
            try:
                asyncio.run(child(parents))
            finally:
                os._exit(0)
    for _ in range(4):
        await asyncio.to_thread(os.wait)
    assert (await locks.info(parents.name)).token == parents.token and not parents.lost.is_set()
    await parents.renew()
    await parents.release()
    print("parent", parents.token, flush=True)
    await locks.aclose()


asyncio.run(main())
