"""Rows 32 to 34 and 47."""

import time

import pytest
from redis.crc import key_slot

import fairlock
from servers import View, until

# A lock on each master: by name of the node.
SLOTS = {"a": range(0, 5461), "b": range(5461, 10923), "c": range(10923, 16384)}


def name_on(node, name):
    return next(each for each in (f"{name}:{n}" for n in range(1000)) if key_slot(each.encode()) in SLOTS[node])


def test_r32_locks_on_all_masters(flavour, cluster, name):
    locks = flavour.cluster(cluster.ports["b"])
    for node in SLOTS:
        lock, view = name_on(node, name), View(cluster.at(node))
        held = locks.acquire(lock, lease=120)
        assert view.owner(lock) == held.owner
        waiting = locks.begin(lock, lease=120)
        view.waits(lock)
        start = time.monotonic()
        held.release()
        second = waiting.result(60)
        assert time.monotonic() - start < 20
        second.release()
        assert view.is_free(lock)
    locks.close()


def test_r33_the_slot_moves_under_a_waiter(flavour, servers, name):
    cluster = servers("cluster")
    lock = name_on("b", name)
    locks = flavour.cluster(cluster.ports["a"])
    held = locks.acquire(lock, lease=120)
    waiting = locks.begin(lock, lease=120)
    View(cluster.at("b")).waits(lock)
    cluster.tell("move", key_slot(lock.encode()), "c")
    view = View(cluster.at("c"))
    until("it waits there", lambda: view.waiting(lock) == 1)
    start = time.monotonic()
    held.release()
    second = waiting.result(60)
    assert time.monotonic() - start < 20
    assert view.owner(lock) == second.owner
    second.release()
    locks.close()


def test_r34_a_master_is_gone_for_a_while(flavour, servers, name):
    cluster = servers("cluster")
    here, there = name_on("b", name), name_on("c", name)
    locks = flavour.cluster(cluster.ports["a"], retry_timeout=60)
    held = [locks.acquire(lock, lease=120) for lock in (here, there)]
    waiting = [locks.begin(lock, lease=120) for lock in (here, there)]
    for node, lock in (("b", here), ("c", there)):
        View(cluster.at(node)).waits(lock)
    cluster.tell("kill", "c")
    until("the cluster is down", lambda: "state:fail" in str(cluster.at("b").execute_command("CLUSTER INFO")) or
          cluster.at("b").execute_command("CLUSTER INFO").get("cluster_state") == "fail")
    assert not any(future.done() for future in waiting)
    cluster.tell("start", "c")
    for node, lock in (("b", here), ("c", there)):
        view = View(cluster.at(node))
        until(f"{node} serves again", lambda view=view, lock=lock: is_waiting(view, lock))
    for each, future in zip(held, waiting, strict=True):
        each.release()
        future.result(60).release()
    locks.close()


def is_waiting(view, lock):
    try:
        return view.waiting(lock) == 1
    except Exception:
        return False


def test_r47_braces_that_would_spread_a_lock(flavour, cluster):
    locks = flavour.cluster(cluster.ports["a"])
    with pytest.raises(fairlock.CrossSlot) as raised:
        locks.acquire("a{b")
    assert raised.value.code == "CROSSSLOT"
    locks.close()
