"""A worker: takes orders from a list, and works on those of one customer one at a time.

    scripts/clients/python run examples/python/worker.py [redis://127.0.0.1:6379]

Start as many as you like. Orders of different customers are worked on side by side, those of one customer by one worker at
a time, whichever machine it is on. A worker that loses its lock stops in the middle; Ctrl-C ends it between orders.

    redis-cli RPUSH orders ann:apples bob:pears ann:plums
"""

import signal
import sys
import time

import redis

import fairlock

IDLE = 1  # seconds until an empty list is looked at again


class Worker:
    def __init__(self, url):
        self.client = redis.Redis.from_url(url, decode_responses=True)
        self.locks = fairlock.Locks(self.client, lease=10)
        self.is_stopping = False

    def run(self):
        signal.signal(signal.SIGTERM, self.stop)
        signal.signal(signal.SIGINT, self.stop)
        while not self.is_stopping:
            # Kept in a list of orders under way: a worker that dies leaves them to be put back.
            order = self.client.blmove("orders", "orders:under-way", IDLE, "LEFT", "RIGHT")
            if order:
                self.work(order)
        self.locks.close()

    def work(self, order):
        customer, _, item = order.partition(":")
        try:
            with self.locks(f"customer:{customer}") as held:
                self.bill(customer, item, held)
        except fairlock.LockLost as lost:
            print(f"{order} goes back: {lost}", flush=True)
            self.client.rpush("orders", order)
        self.client.lrem("orders:under-way", 1, order)

    def bill(self, customer, item, held):
        """Something that two must not do at a time: read, think, write."""
        count = int(self.client.hget("bills", customer) or 0)
        for _ in range(5):
            time.sleep(0.004)
            if held.lost.is_set():
                return  # The end of the block says so.
        self.client.hset("bills", customer, count + 1)
        print(f"{customer}: {item}, token {held.token}", flush=True)

    def stop(self, *_):
        self.is_stopping = True


if __name__ == "__main__":
    Worker(sys.argv[1] if len(sys.argv) > 1 else "redis://127.0.0.1:6379").run()
