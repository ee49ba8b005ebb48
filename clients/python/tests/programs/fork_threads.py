"""Row 55: PORT NAME. Prints what each child was given, then what the parent has still."""

import os
import sys
import time

import redis

import fairlock

locks = fairlock.Locks(redis.Redis(port=int(sys.argv[1])), lease=120)
name = sys.argv[2]


def child():
    with locks(name, wait=60) as held:
        began = time.monotonic()
        time.sleep(0.05)
        print("child", held.token, began, time.monotonic(), flush=True)
    assert locks.try_acquire(parents.name) is None
    parents.release()
    try:
        parents.renew()
    except fairlock.FairlockError as error:
        print("renew", error, flush=True)


with locks(name):
    pass
parents = locks.acquire(f"{name}:parents")
for _ in range(4):
    if os.fork() == 0:
        try:
            child()
        finally:
            os._exit(0)
for _ in range(4):
    os.wait()
assert locks.info(parents.name).token == parents.token and not parents.lost.is_set()
parents.renew()
parents.release()
print("parent", parents.token, flush=True)
