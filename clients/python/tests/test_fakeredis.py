"""A program's tests without a server."""

import asyncio

import fakeredis

import fairlock.aio


def test_tasks_are_fair_and_can_be_cancelled():
    async def main():
        async with fairlock.aio.Locks(fakeredis.FakeAsyncRedis()) as locks:
            order = []

            async def work(number):
                async with locks("orders"):
                    order.append(number)

            held = await locks.acquire("orders")
            tasks = [asyncio.create_task(work(number)) for number in range(4)]
            while (await locks.info("orders")).waiting < 4:
                await asyncio.sleep(0.01)
            tasks[1].cancel()
            await asyncio.wait([tasks[1]])
            await held.release()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert order == [0, 2, 3]

    asyncio.run(main())
