"""PORT NAME FLAVOUR: prints what children are told that renew what their parent holds."""

import asyncio
import os
import sys
import traceback

import redis.asyncio

import fairlock.aio

port, name, is_async = int(sys.argv[1]), sys.argv[2], sys.argv[3] == "tasks"


def started():
    """A Locks, and how a call of its is carried out."""
    if is_async:
        return fairlock.aio.Locks(redis.asyncio.Redis(port=port)), asyncio.new_event_loop().run_until_complete
    return fairlock.Locks(redis.Redis(port=port)), lambda result: result


def child(locks, run, parents):
    if is_async:  # Its client belongs to the parent's event loop.
        locks, run = started()
    held = run(locks.acquire(name, wait=60))
    assert run(locks.info(name)).token == held.token
    run(held.release())
    assert run(locks.try_acquire(parents.name)) is None
    run(parents.release())
    try:
        run(parents.renew())
    except fairlock.FairlockError as error:
        os.write(1, f"{error}\n".encode())  # In one piece: four write at a time.


locks, run = started()
run(run(locks.acquire(name)).release())
parents = run(locks.acquire(f"{name}:parents"))
for _ in range(4):
    if os.fork() == 0:
        try:
            child(locks, run, parents)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
assert all(os.wait()[1] == 0 for _ in range(4))
assert run(locks.info(parents.name)).token == parents.token and not parents.lost.is_set()
run(parents.renew())
run(parents.release())
