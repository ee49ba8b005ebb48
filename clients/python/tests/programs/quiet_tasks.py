"""Row 66: PORT NAME. As quiet_threads."""

import asyncio
import sys

import redis.asyncio

import fairlock.aio


async def main():
    async with fairlock.aio.Locks(redis.asyncio.Redis(port=int(sys.argv[1])), lease=9) as locks:

        async def work():
            async with locks(sys.argv[2]):
                await asyncio.sleep(0.01)

        first = await locks.acquire(sys.argv[2])
        tasks = [asyncio.create_task(work()) for _ in range(20)]
        # Those that have waited for more than a third of the lease renew at once, and release at the same time.
        await asyncio.sleep(4)
        await first.release()
        await asyncio.gather(*tasks)
        await asyncio.sleep(1)


asyncio.run(main())
