"""A worker of the failover experiment: takes locks again and again, and says when it holds which.

    scripts/clients/python run clients/testing/failover/worker.py

It is told what to do by FAILOVER_* (below), prints a line of JSON for each event, and ends when its standard input closes.
"""

import json
import os
import random
import socket
import sys
import threading
import time

import redis

import fairlock

WAIT = 2  # seconds
printing = threading.Lock()


def say(event, **more):
    with printing:
        print(json.dumps({"event": event, **more}), flush=True)


def between(variable, usual):
    """A time from the range in a variable, in seconds."""
    low, high = (os.environ.get(variable) or usual).split("-")
    return random.uniform(int(low), int(high)) / 1000


def work(locks, name, limit):
    options = {"limit": limit} if limit > 1 else {}
    while True:
        try:
            held = locks.acquire(name, wait=WAIT, **options)
        except fairlock.NotInTime:
            continue
        except Exception as error:
            say("error", lock=name, error=f"{type(error).__name__}: {error}", at=time.time())
            time.sleep(0.1)
            continue
        say("begin", lock=name, limit=limit, owner=held.owner, token=held.token, at=time.time())
        hold(held)
        time.sleep(between("FAILOVER_IDLE_MS", "0-0"))


def hold(held):
    is_lost = held.lost.wait(between("FAILOVER_HOLD_MS", "50-150"))
    say("end", lock=held.name, token=held.token, at=time.time(), how=f"lost:{held.lost.cause}" if is_lost else "release")
    try:
        if not is_lost:
            held.release()
    except fairlock.LockLost as lost:
        say("late", lock=held.name, token=held.token, at=time.time(), cause=lost.cause)
    except fairlock.FairlockError as error:
        say("error", lock=held.name, error=f"{type(error).__name__}: {error}", at=time.time())


def come_from(address):
    """All connections of this process have this address at this end."""

    class From(socket.socket):
        def connect(self, other):
            self.bind((address, 0))
            super().connect(other)

    socket.socket = From


def client_of(given):
    if given.get("FAILOVER_NODES"):
        nodes = [address.rsplit(":", 1) for address in given["FAILOVER_NODES"].split(",")]
        nodes = [redis.cluster.ClusterNode(host, int(port)) for host, port in nodes]
        return redis.RedisCluster(startup_nodes=nodes)
    sentinels = [address.rsplit(":", 1) for address in given["FAILOVER_SENTINELS"].split(",")]
    return redis.Sentinel(sentinels).master_for(given["FAILOVER_MASTER"])


def main():
    given = os.environ
    if given.get("FAILOVER_SOURCE"):
        come_from(given["FAILOVER_SOURCE"])
    client = client_of(given)
    options = {"lease": int(given["FAILOVER_LEASE_MS"]) / 1000} if given.get("FAILOVER_LEASE_MS") else {}
    if given.get("FAILOVER_MIN_REPLICAS"):
        options["min_replicas"] = int(given["FAILOVER_MIN_REPLICAS"])
    if given.get("FAILOVER_SYNC_MS"):
        options["sync_timeout"] = int(given["FAILOVER_SYNC_MS"]) / 1000
    locks = fairlock.Locks(client, **options)
    for each in given["FAILOVER_LOCKS"].split(","):
        name, _, limit = each.partition(":")
        for _ in range(int(given.get("FAILOVER_WORKERS") or 1)):
            threading.Thread(target=work, args=(locks, name, int(limit or 1)), daemon=True).start()
    sys.stdin.read()
    os._exit(0)  # The threads are in the middle of something.


if __name__ == "__main__":
    main()
