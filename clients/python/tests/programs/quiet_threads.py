"""Row 66: PORT NAME. Twenty callers that wait, and hold one after another."""

import sys
import threading
import time

import redis

import fairlock

locks = fairlock.Locks(redis.Redis(port=int(sys.argv[1])), lease=9)


def work():
    with locks(sys.argv[2]):
        time.sleep(0.01)


first = locks.acquire(sys.argv[2])
threads = [threading.Thread(target=work) for _ in range(20)]
for thread in threads:
    thread.start()
# Those that have waited for more than a third of the lease renew at once, and release at the same time.
time.sleep(4)
first.release()
for thread in threads:
    thread.join()
time.sleep(1)
