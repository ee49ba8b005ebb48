"""Row 56: PORT NAME. A hundred waiters, and no descriptor for the connection on which they would hear that it is their turn;
prints the order in which they held the lock.
"""

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
    files = []
    while is_room():
        files.append(open("/dev/null"))
    tasks = [asyncio.create_task(work(number)) for number in range(100)]
    while (await locks.info(name)).waiting < 100:
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
