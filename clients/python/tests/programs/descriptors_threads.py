"""Row 56: PORT NAME. A hundred waiters, and descriptors for half of them; prints the order in which they held the lock."""

import resource
import sys
import threading
import time

import redis

import fairlock

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
locks = fairlock.Locks(redis.Redis(port=int(sys.argv[1])), lease=120)
name, order = sys.argv[2], []


def work(number):
    with locks(name, wait=100):
        order.append(number)


def is_room():
    try:
        with open("/dev/null"):
            return True
    except OSError:
        return False


first = locks.acquire(name)
threads = []
for number in range(100):
    threads.append(threading.Thread(target=work, args=(number,)))
    threads[-1].start()
    while locks.info(name).waiting <= number:
        time.sleep(0.005)
while is_room():
    time.sleep(0.01)
print("Too many open files")
first.renew()
first.release()
for thread in threads:
    thread.join()
print(*order)
