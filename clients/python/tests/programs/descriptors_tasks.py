"""Row 56: PORT NAME. As descriptors_threads."""

import asyncio
import resource
import sys

import redis.asyncio

import fairlock.aio

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
name, order = sys.argv[2], []


async def main():
    locks = fairlock.aio.Locks(redis.asyncio.Redis(port=int(sys.argv[1])), lease=120)

    async def work(number):
        async with locks(name, wait=100):
            order.append(number)

    first = await locks.acquire(name)
    tasks = [asyncio.create_task(work(number)) for number in range(100)]
    while (await locks.info(name)).waiting < 100 or is_room():
        await asyncio.sleep(0.01)
    print("Too many open files")
    await first.renew()
    await first.release()
    await asyncio.gather(*tasks)
    print(*order)
    await locks.aclose()


def is_room():
    try:
        with open("/dev/null"):
            return True
    except OSError:
        return False


asyncio.run(main())
