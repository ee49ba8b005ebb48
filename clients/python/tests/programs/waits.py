"""Row 70: PORT NAME FLAVOUR. Waits for a lock."""

import asyncio
import sys

import redis
import redis.asyncio

import fairlock
import fairlock.aio

port, name, flavour = int(sys.argv[1]), sys.argv[2], sys.argv[3]


async def wait():
    await fairlock.aio.Locks(redis.asyncio.Redis(port=port)).acquire(name)


if flavour == "tasks":
    asyncio.run(wait())
else:
    fairlock.Locks(redis.Redis(port=port)).acquire(name)
