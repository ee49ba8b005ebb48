"""Rows 31, 35 and 36: a master with a replica, and a sentinel."""

import time

import pytest

import fairlock
from servers import View, until


def test_r31_sentinel_fails_over(flavour, servers, name):
    group = servers("sentinel")
    view = View(group.at("a"))
    # There is no other replica to confirm anything.
    locks = flavour.sentinel(group.ports["s"], min_replicas=0)
    held = locks.acquire(name, lease=30)
    waiting = []
    for count in (1, 2):
        waiting.append(locks.begin(name))
        view.waits(name, count)
    owners = view.queue(name)
    group.tell("failover")
    view = View(group.at("b"))
    assert view.owner(name) == held.owner and view.info(name)["token"] == held.token
    until("renewed at the new master", lambda: renewed(held))
    held.release()
    for future, owner in zip(waiting, owners, strict=True):
        second = future.result(60)
        assert view.owner(name) == second.owner == owner
        second.release()
    locks.close()


def renewed(held):
    try:
        return held.renew() == 30
    except fairlock.Unavailable:
        return False


def test_r35_an_acquisition_is_on_the_replica(flavour, servers, name):
    group = servers("replica")
    view, replica = View(group.at("a")), group.at("b")
    locks = flavour.locks(group.ports["a"])
    for _ in range(50):
        with locks.hold(name) as held:
            assert replica.hexists(name, held.owner)
    for _ in range(20):
        first = locks.acquire(name)
        waiting = locks.begin(name)
        view.waits(name)
        first.release()
        second = waiting.result(60)
        assert replica.hexists(name, second.owner)
        second.release()
    locks.close()


def test_r36_no_replica_confirms(flavour, servers, name):
    group = servers("replica")
    view = View(group.at("a"))
    locks = flavour.locks(group.ports["a"], sync_timeout=0.1)
    group.tell("stop", "b")
    with pytest.raises(fairlock.NotReplicated) as raised:
        locks.acquire(name, wait=0.5)
    assert isinstance(raised.value, fairlock.NotInTime)
    assert view.is_free(name)
    # The lease is over before the wait for replicas.
    with pytest.raises(fairlock.NotReplicated):
        locks.acquire(name, wait=0.5, lease=0.02, renew=False)
    start = time.monotonic()
    locks.acquire(name, sync_timeout=0, wait=0).release()
    assert time.monotonic() - start < 20
    before = view.calls("release")
    waiting = locks.begin(name, wait=60)
    until("it was released again", lambda: view.calls("release") > before + 1)
    group.tell("cont", "b")
    held = waiting.result(60)
    assert view.owner(name) == held.owner
    held.release()
    locks.close()
