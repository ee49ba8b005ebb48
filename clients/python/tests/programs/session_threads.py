"""Row 55: PORT NAME. Holds a session, forks a child that lives on, and dies."""

import os
import signal
import sys

import redis

import fairlock

locks = fairlock.Locks(redis.Redis(port=int(sys.argv[1])), lease=120)
held = locks.acquire(sys.argv[2], session=True)
if os.fork() == 0:
    print("held", flush=True)
    sys.stdin.read()
    os._exit(0)
signal.pause()
