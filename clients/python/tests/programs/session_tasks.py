"""Row 55: PORT NAME. As session_threads."""

import asyncio
import os
import signal
import sys

import redis.asyncio

import fairlock.aio


async def main():
    locks = fairlock.aio.Locks(redis.asyncio.Redis(port=int(sys.argv[1])), lease=120)
    held = await locks.acquire(sys.argv[2], session=True)
    if os.fork() == 0:
        print("held", flush=True)
        sys.stdin.read()
        os._exit(0)
    signal.pause()
    return held


asyncio.run(main())
