"""Rows 62 to 65: which server is asked, and what counts."""

import threading
import time

import pytest

import fairlock
from servers import View, until

AT_ONCE = 20  # seconds
LONG = 120


def test_r62_the_only_replica_is_down(flavour, servers, name):
    group = servers("sentinel")
    locks = flavour.sentinel(group.ports["s"], sync_timeout=0.1)
    locks.acquire(name, wait=60).release()
    group.tell("kill", "b")
    until("it is disconnected", lambda: group.at("a").role()[2] == [])
    with pytest.raises(fairlock.NotReplicated) as raised:
        locks.acquire(name, wait=0.5)
    assert name in str(raised.value) and "no replica has confirmed" in str(raised.value)
    start = time.monotonic()
    locks.acquire(name, wait=60, min_replicas=0).release()
    plain = flavour.locks(group.ports["a"])
    plain.acquire(name, wait=60).release()
    assert time.monotonic() - start < AT_ONCE
    with pytest.raises(fairlock.NotReplicated):
        plain.acquire(name, wait=0.3, sync_timeout=0.1, min_replicas=1)
    plain.close()
    # One that has never seen the replica knows of it from the Sentinel.
    other = flavour.sentinel(group.ports["s"], sync_timeout=0.1)
    with pytest.raises(fairlock.NotReplicated):
        other.acquire(name, wait=0.3)
    other.close()
    locks.close()


def test_r62_the_only_replica_of_a_clusters_master_is_down(flavour, servers):
    cluster = servers("cluster")
    cluster.tell("kill", "d")
    until("it is disconnected", lambda: cluster.at("a").role()[2] == [])
    locks = flavour.cluster(cluster.ports["b"], sync_timeout=0.1)
    with pytest.raises(fairlock.NotReplicated):
        locks.acquire("on a: 3", wait=0.5)
    locks.acquire("on b: 0", wait=60).release()
    locks.acquire("on a: 3", wait=60, min_replicas=0).release()
    locks.close()


def test_r63_a_master_that_comes_back_is_not_asked(flavour, servers, name):
    group = servers("sentinel")
    locks = flavour.sentinel(group.ports["s"], min_replicas=0)
    locks.acquire(name).release()
    group.tell("failover")
    group.tell("start", "a")
    old, new = View(group.at("a")), View(group.at("b"))
    is_master = True
    for _ in range(20):
        is_master = is_master and old.client.role()[0] == "master"
        with locks.hold(name, wait=60) as held:
            assert new.owner(name) == held.owner
    assert is_master, "the Sentinel was quicker than this test"
    # A Locks that is new, and one that has found the old one before, ask the Sentinels.
    fresh = flavour.sentinel(group.ports["s"], min_replicas=0)
    fresh.acquire(name, wait=60).release()
    assert old.calls("acquire") == 0
    fresh.close()
    locks.close()


def test_r63_a_server_that_is_no_master_is_not_asked(flavour, servers, name):
    group = servers("replica")
    locks = flavour.locks(group.ports["b"], retry_timeout=0.3)
    with pytest.raises(fairlock.Unavailable) as raised:
        locks.acquire(name)
    assert "READONLY" in str(raised.value)
    assert View(group.at("b")).calls("acquire") == 0
    locks.close()


def test_r64_each_holder_checks_at_a_new_master(flavour, servers, name):
    group = servers("sentinel")
    locks = flavour.sentinel(group.ports["s"], lease=LONG)
    options = [{}, {"renew": False}]
    gone = [locks.acquire(f"{name}:gone:{n}", **each) for n, each in enumerate(options)]
    there = [locks.acquire(f"{name}:there:{n}", **each) for n, each in enumerate(options)]
    successor = group.at("b")
    successor.config_set("replica-read-only", "no")
    for held in gone:
        assert successor.delete(held.name)
    group.tell("failover")
    start = time.monotonic()
    for held in gone:
        assert held.lost.wait(60) and held.lost.cause == "notheld"
    assert time.monotonic() - start < AT_ONCE
    assert not any(held.lost.is_set() for held in there)
    for held in there:
        assert View(successor).owner(held.name) == held.owner
        held.release()
    locks.close()


def test_r64_also_in_a_cluster(flavour, servers, name):
    cluster = servers("cluster")
    locks = flavour.cluster(cluster.ports["b"], lease=LONG)
    gone = locks.acquire(f"{{on a: 3}}{name}")
    there = locks.acquire(f"{{on b: 0}}{name}")
    successor = cluster.at("d")
    successor.config_set("replica-read-only", "no")
    successor.flushall()
    cluster.tell("failover")
    start = time.monotonic()
    assert gone.lost.wait(60) and gone.lost.cause == "notheld"
    assert time.monotonic() - start < AT_ONCE
    assert not there.lost.is_set()
    there.release()
    locks.close()


def test_r65_a_renewal_counts_when_a_replica_has_confirmed_it(flavour, servers, name):
    group = servers("replica")
    view = View(group.at("a"))
    locks = flavour.locks(group.ports["a"], lease=9, sync_timeout=0.2)
    held = locks.acquire(name)
    group.tell("stop", "b")
    with pytest.raises(fairlock.NotReplicated):
        held.renew()
    renewals = view.calls("renew")
    until("it is tried again", lambda: view.calls("renew") > renewals)
    group.tell("cont", "b")
    threading.Event().wait(9)
    assert not held.lost.is_set() and view.owner(name) == held.owner
    group.tell("stop", "b")
    assert held.lost.wait(60) and held.lost.cause == "lease"
    group.tell("cont", "b")
    locks.close()
