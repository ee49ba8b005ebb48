"""A store that checks fencing tokens: it refuses what was written with an older one.

    scripts/clients/python run examples/python/token_store.py [redis://127.0.0.1:6379]

A holder that sleeps longer than its lease has lost the lock and does not know it yet. Only the store can keep it from
overwriting the work of the next one. Here the store is a hash in Redis and a script; in SQL it is

    UPDATE stock SET amount = :amount, token = :token WHERE item = :item AND token <= :token
"""

import sys
import time

import redis

import fairlock

CONDITIONAL_WRITE = """
if tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'token') or 0) then
    return redis.error_reply('STALE token')
end
return redis.call('HSET', KEYS[1], 'token', ARGV[1], 'amount', ARGV[2])
"""


class Store:
    """Amounts by item, each with the token that it was written with."""

    def __init__(self, client):
        self.client = client
        self.script = client.register_script(CONDITIONAL_WRITE)

    def write(self, item, amount, token):
        self.script(keys=[f"stock:{item}"], args=[token, amount])

    def amount(self, item):
        return int(self.client.hget(f"stock:{item}", "amount") or 0)


def main(url):
    client = redis.Redis.from_url(url)
    store = Store(client)
    with fairlock.Locks(client) as locks:
        # The first one sleeps; its lease ends without a renewal.
        sleeper = locks.acquire("stock", lease=0.1, renew=False)
        while not sleeper.lost.is_set():
            time.sleep(0.01)
        with locks("stock", wait=30) as held:
            store.write("apples", 7, held.token)
            print("the next holder has written 7")
        try:
            store.write("apples", 9, sleeper.token)
            sys.exit("an old token has written")
        except redis.ResponseError as error:
            print(f"the store refuses the sleeper's 9: {error}")
        try:
            sleeper.release()
        except fairlock.LockLost as lost:
            print(f"and the release says so: {lost}")
    print(f"apples: {store.amount('apples')}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "redis://127.0.0.1:6379")
