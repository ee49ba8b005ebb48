"""Replicas, Sentinel, clusters."""

import threading

import pytest
import redis
from driving import Failed
from redis.crc import key_slot
from servers import HOST, SLOTS, on, until
from view import AT_ONCE, LONG, release_in_turn, waiting


def test_r31_sentinel(driver, servers, name):
    """Sentinel, the master is killed: the holder renews at the new one, which has no replica that must confirm, and two waiters get the lock in
    order. A lock that the new one lacks is lost with cause `notheld` at the next renewal."""
    group = servers("sentinel")
    locks = driver.new(group.client())
    held, gone = locks.acquire(name, lease=LONG), locks.acquire(f"{name}:gone")
    calls = waiting(locks, group.view(), name, 2)
    owners, view = group.view().queue(name), group.view("b")
    until("the replica has all", lambda: view.owner(name) == held.owner and view.queue(name) == owners and view.owner(gone.name))
    view.client.config_set("replica-read-only", "no")
    view.breaks(gone.name)
    group.fail_over()
    assert view.owner(name) == held.owner and view.info(name)["token"] == held.token
    until("renewed at the new master", held.renew)
    assert gone.lost() == "notheld"
    held.release()
    release_in_turn(calls, owners, view, name)


# What the nodes of a cluster are told; and what else they may lack.
CLUSTERS = {
    "host names": ["--cluster-preferred-endpoint-type", "hostname"],
    "no endpoints": ["--cluster-preferred-endpoint-type", "unknown-endpoint"],
    "plain channels": ["--rename-command", "SSUBSCRIBE", ""],
}


@pytest.mark.parametrize("kind", CLUSTERS)
def test_r32_masters(request, driver, servers, name, mode, kind):
    """Cluster: locks on all masters, of which one has a replica, are acquired, waited for, released. Also one that asks for a password, and announces
    host names that only the client's address map knows; one that announces no endpoints; and one without sharded channels."""
    if kind == "no endpoints" and driver.client in ("go", "ioredis"):
        request.applymarker(pytest.mark.xfail(reason="the library itself cannot: not even SET works", strict=True))
    without = ["--fairlock.pubsub", "publish"] if mode == "module" else ["--rename-command", "SPUBLISH", ""]
    cluster = servers("cluster", *CLUSTERS[kind], *(without if kind == "plain channels" else []))
    locks = driver.new(cluster.client(**(hidden(cluster) if kind == "host names" else {})), lease=LONG)
    for node in SLOTS:
        lock, view = on(node, name), cluster.view(node)
        held = locks.acquire(lock, wait=AT_ONCE)
        assert view.owner(lock) == held.owner
        (call,) = waiting(locks, view, lock, 1)
        held.release()
        call.result(AT_ONCE).release()
        assert view.is_free(lock)


def hidden(cluster):
    """The nodes have names that no resolver knows, and a password; a client's options that lead to them."""
    names = {f"{node}.invalid": cluster.port(node) for node in "abcd"}
    for node in "abcd":
        cluster.at(node).config_set("cluster-announce-hostname", f"{node}.invalid")
        cluster.at(node).acl_setuser("worker", enabled=True, passwords=["+secret"], keys=["*"], channels=["*"], commands=["+@all"])
        for option, value in (("masteruser", "worker"), ("masterauth", "secret")):
            cluster.at(node).config_set(option, value)
    for node in "abcd":
        until("all are announced", lambda node=node: all(each in str(cluster.at(node).execute_command("CLUSTER SLOTS")) for each in names))
        cluster.at(node).acl_setuser("default", enabled=False)  # Who is connected already, as this client, stays so.
    addresses = {f"{host}:{port}": f"{HOST}:{port}" for name, port in names.items() for host in (name, HOST)}
    return {"username": "worker", "password": "secret", "map": addresses}


def test_r33_slot_moves(driver, servers, name):
    """Cluster, the slot moves: the holder releases, and the waiter gets the lock at the new node."""
    cluster, lock = servers("cluster"), on("b", name)
    locks, view = driver.new(cluster.client(), lease=LONG), cluster.view("c")
    held = locks.acquire(lock)
    (call,) = waiting(locks, cluster.view("b"), lock, 1)
    with cluster.moving(key_slot(lock.encode()), "b", "c"):
        pass
    until("it waits there", lambda: view.waiting(lock) == 1)
    held.release()
    second = call.result(AT_ONCE)
    assert view.owner(lock) == second.owner
    second.release()


@pytest.mark.module
def test_r33a_slot_on_its_way(driver, servers, name):
    """Cluster, the lock's keys are at the new node, and the slot is not yet: the holder renews and releases, confirmed by the replica there."""
    cluster, lock = servers("cluster"), on("a", name)
    held = driver.new(cluster.client(), lease=LONG, sync_timeout=3).acquire(lock)
    cluster.follow("d", "c")
    with cluster.moving(key_slot(lock.encode()), "a", "c"):
        assert held.renew(LONG) == LONG
        held.release()
    assert cluster.view("c").is_free(lock)


def test_r34_master_gone(driver, servers, name):
    """Cluster, a master without replica is killed and restarted: waiters get their locks."""
    cluster, nodes = servers("cluster"), ("b", "c")
    locks = driver.new(cluster.client(), retry_timeout=60, lease=LONG)
    held = [locks.acquire(on(node, name)) for node in nodes]
    calls = [waiting(locks, cluster.view(node), on(node, name), 1)[0] for node in nodes]
    cluster.die("c")
    until("the cluster is down", lambda: cluster.at("b").cluster("INFO")["cluster_state"] == "fail")
    assert not any(call.done() for call in calls)
    cluster.start("c")
    for node, call in zip(nodes, calls, strict=True):  # One that is done has failed, and says why.
        until(f"{node} serves again", lambda node=node, call=call: call.done() or is_waited_for(cluster.view(node), on(node, name)))
    for each, call in zip(held, calls, strict=True):
        each.release()
        call.result().release()


def is_waited_for(view, lock):
    try:
        return view.waiting(lock) == 1
    except redis.RedisError:
        return False


def test_r35_on_the_replica(driver, servers, name):
    """When `acquire` returns the replica has the key, also after a hand-off."""
    group = servers("replica")
    view, replica, locks = group.view(), group.at("b"), driver.new(group.client(), sync_timeout=30)
    held = locks.acquire(name)
    for is_handed_off in (False, True):
        calls = waiting(locks, view, name, 1) if is_handed_off else []
        group.stop("b")
        held.release()
        (call,) = calls or [locks.begin(name)]
        until("it is granted", lambda before=held.owner: view.owner(name) not in (None, before))
        threading.Event().wait(0.3)
        assert not call.done()
        group.go_on("b")
        held = call.result()
        assert replica.hexists(name, held.owner)


def test_r36_replica_stopped(driver, servers, name):
    """The replica is stopped: NotReplicated when `wait` is over (also past the lease); acquired once it goes on, or with `sync_timeout` 0. It goes down:
    NotReplicated all the same, unless `min_replicas` is 0."""
    group = servers("replica")
    view, locks = group.view(), driver.new(group.client(), sync_timeout=0.1)
    locks.acquire(f"{name}:first").release()
    group.stop("b")
    assert locks.fails(name, wait=3).type == "NotReplicated"
    assert view.is_free(name)
    assert locks.fails(name, wait=3, lease=0.02, renew=False).type == "NotReplicated"
    locks.begin(name, sync_timeout=0, wait=0).result(AT_ONCE).release()
    before = view.calls("release")
    call = locks.begin(name, wait=60)
    until("it was released again", lambda: view.calls("release") > before + 1)
    group.go_on("b")
    held = call.result()
    assert view.owner(name) == held.owner
    held.release()
    group.kill("b")
    until("it is disconnected", lambda: group.at().role()[2] == [])
    failed = locks.fails(name, wait=3)
    assert failed.type == "NotReplicated" and name in failed.text
    locks.acquire(name, min_replicas=0).release()


def test_r36a_given_back(driver, servers, name):
    """Too few replicas confirm a grant, and a new master does not know that it was given back: another, greater token is acquired."""
    group = servers("replica")
    view, locks = group.view(), driver.new(group.client(), sync_timeout=8)
    locks.acquire(f"{name}:first").release()
    group.stop("b")
    call = locks.begin(name)
    until("it is granted", lambda: not view.is_free(name))
    owner, token = view.owner(name), view.info(name)["token"]
    view.client.hset(name, owner, 2)  # Of two holds one is left.
    until("it is given back", lambda: view.client.hget(name, owner) == "1")
    group.go_on("b")
    held = call.result()
    assert held.token > token
    held.release()


@pytest.mark.module
@pytest.mark.parametrize("options", [{}, {"owner": "me"}], ids=str)
def test_r36b_not_given_back_at_once(driver, own, name, options):
    """Too few replicas confirm a grant, also of a given owner, and it cannot be given back at once: it is when the caller leaves."""
    view, locks = own.view(), driver.new(own.client(), lease=LONG, sync_timeout=2)
    call = locks.begin(name, wait=4, min_replicas=1, **options)
    until("it is granted", lambda: not view.is_free(name))
    own.at().config_set("min-replicas-to-write", 1)
    until("it leaves", lambda: own.at().info("commandstats").get("cmdstat_fairlock.cancel", {}).get("rejected_calls"))
    own.at().config_set("min-replicas-to-write", 0)
    assert call.failure().type in ("NotReplicated", "NotInTime")
    until("it is free", lambda: view.is_free(name), longest=AT_ONCE)


def test_r47_braces(driver, shared, mode):
    """Cluster: a name such as `a{b` is CrossSlot."""
    failed = driver.new(shared("cluster", mode).client()).fails("a{b")
    assert (failed.type, failed.code) == ("CrossSlot", "CROSSSLOT")


def test_r64_new_master(driver, servers, name):
    """Cluster, change of master: a lock that the new one lacks is lost with cause `notheld` at the next renewal; others go on."""
    cluster = servers("cluster")
    locks, client = driver.new(cluster.client()), cluster.at("d")
    gone, there = (locks.acquire(on(node, name)) for node in "ab")
    client.config_set("replica-read-only", "no")
    client.flushall()
    cluster.fail_over()
    assert gone.lost() == "notheld" and there.lost(0) is None
    assert cluster.view("b").owner(there.name) == there.owner
    there.release()


def test_r65_unconfirmed(driver, servers, name, mode):
    """A renewal that no replica confirms does not count, also of a session: lost with cause `lease`, unless the replica goes on in time."""
    group = servers("replica")
    view, locks = group.view(), driver.new(group.client(), lease=9, sync_timeout=0.2)
    held = locks.acquire(name)
    group.stop("b")
    with pytest.raises(Failed, match="NotReplicated"):
        held.renew()
    renewals = view.calls("renew")
    until("it is tried again", lambda: view.calls("renew") > renewals)
    group.go_on("b")
    threading.Event().wait(9)
    assert held.lost(0) is None and view.owner(name) == held.owner
    all_held = [held] + [locks.acquire(f"{name}:session", session=True) for _ in range(mode == "module")]
    group.stop("b")
    assert [each.lost() for each in all_held] == ["lease"] * len(all_held)
    group.go_on("b")
