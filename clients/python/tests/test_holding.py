"""Rows 01 to 19, 25 to 30, 37 to 46: one server."""

import asyncio
import gc
import re
import socket
import threading
import time
import uuid

import pytest
import redis.asyncio

import fairlock
import fairlock.aio
from servers import View, until, until_one

AT_ONCE = 20  # seconds, where the alternative is a minute
LONG = 120


class BodyError(Exception):
    pass


def test_r01_a_free_lock_is_acquired_and_released(locks, view, name):
    held = locks.acquire(name)
    assert held.token > 0 and view.info(name)["token"] == held.token
    held.release()
    assert view.is_free(name)
    second = locks.acquire(name)
    assert second.token > held.token
    second.release()


def test_r02_leaving_the_block_releases_also_when_it_fails(locks, view, name):
    with locks.hold(name) as held:
        assert view.owner(name) == held.owner
    assert view.is_free(name)
    error = BodyError("the body's own")
    with pytest.raises(BodyError) as raised, locks.hold(name):
        raise error
    assert raised.value is error
    assert view.is_free(name)


def test_r03_the_owner_names_the_machine_and_is_new_each_time(locks, view, name):
    with locks.hold(name) as held:
        host, process, unique = view.owner(name).rsplit(":", 2)
        assert host == re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:200]
        assert process.isdigit() and str(uuid.UUID(unique)) == unique
        with pytest.raises(fairlock.NotInTime):
            locks.acquire(name, wait=0.05)
        assert view.owner(name) == held.owner
    with locks.hold(name, owner="the nightly job"):
        assert view.owner(name) == "the nightly job"


def test_r04_no_time_to_wait(locks, view, name):
    with locks.hold(name):
        with pytest.raises(fairlock.NotInTime):
            locks.acquire(name, wait=0)
        assert locks.try_acquire(name) is None
        assert view.queue(name) == []
    held = locks.try_acquire(name)
    assert held.token > 0
    held.release()


def test_r05_the_wait_runs_out(locks, view, name):
    with locks.hold(name):
        start = time.monotonic()
        with pytest.raises(TimeoutError) as raised:
            locks.acquire(name, wait=0.3)
        assert isinstance(raised.value, fairlock.NotInTime)
        assert time.monotonic() - start >= 0.3
        assert view.queue(name) == []


def test_r06_first_come_first_served(locks, view, name):
    first, waiting, order = locks.acquire(name), [], []
    for count in range(1, 4):
        waiting.append(locks.begin(name))
        view.waits(name, count)
    first.release()
    for future in waiting:
        held = future.result(60)
        order.append(held.token)
        held.release()
    assert order == sorted(order) and len(set(order)) == 3


def test_r07_the_next_one_has_it_at_once(locks, view, name):
    first = locks.acquire(name, lease=LONG)
    waiting = locks.begin(name, lease=LONG)
    view.waits(name)
    start = time.monotonic()
    first.release()
    second = waiting.result(60)
    assert time.monotonic() - start < AT_ONCE
    second.release()


@pytest.mark.parametrize("wait", [None, 60])
def test_r08_a_wait_outlives_the_clients_read_timeout(flavour, one, view, name, wait):
    locks = flavour.locks(one.ports["a"], client_options={"socket_timeout": 0.3})
    held = locks.acquire(name)
    waiting = locks.begin(name, wait=wait)
    view.waits(name)
    threading.Event().wait(1)
    assert not waiting.done()
    held.release()
    waiting.result(60).release()
    locks.close()


def test_r09_cancelling_leaves_the_queue(flavour, locks, view, name):
    with locks.hold(name):
        with pytest.raises(flavour.cancelled):
            locks.cancel_when(lambda: view.waits(name), name)
        assert view.queue(name) == []
    assert view.is_free(name)


def test_r10_a_grant_on_its_way_to_one_that_was_cancelled_is_given_back(flavour, servers, name):
    one = servers("one")
    view = View(one.at("a"))
    locks = flavour.locks(one.ports["proxy"], lease=LONG, command_timeout=0.5)
    first = locks.acquire(name)

    def granted_unseen():
        view.waits(name)
        (owner,) = view.queue(name)
        one.tell("freeze")
        view.run("FAIRLOCK.RELEASE", name, first.owner)
        # Or it has been woken, and asks; the test does so in its name.
        assert view.owner(name) == owner or view.run("FAIRLOCK.ACQUIRE", name, owner, "ENQUEUE", "LEASE", LONG * 1000, "ONCE")
        assert view.owner(name) == owner

    with pytest.raises(flavour.cancelled):
        locks.cancel_when(granted_unseen, name)
    one.tell("thaw")
    until("it is free", lambda: view.is_free(name), AT_ONCE)
    locks.close()


def test_r09_cancelling_at_any_moment_leaves_nothing(view, one, name):
    async def work():
        client = redis.asyncio.Redis(port=one.ports["a"])
        async with client, fairlock.aio.Locks(client) as locks:
            for moment in range(200):
                task = asyncio.create_task(locks.acquire(name))
                await asyncio.sleep(moment / 100_000)
                if not task.done():
                    task.cancel()
                (held,) = await asyncio.gather(task, return_exceptions=True)
                if not isinstance(held, BaseException):
                    await held.release()
                assert view.is_free(name) and view.queue(name) == [], moment

    asyncio.run(work())


def test_r11_the_lease_is_renewed(locks, view, name):
    with locks.hold(name, lease=9) as held:
        threading.Event().wait(19)
        assert view.info(name)["token"] == held.token and not held.lost.is_set()


def test_r12_without_renewal_the_lease_ends(locks, view, name):
    start = time.monotonic()
    held = locks.acquire(name, lease=0.4, renew=False)
    assert held.lost.wait(60)
    assert 0.3 <= time.monotonic() - start
    assert held.lost.cause == "lease"
    until("it is free", lambda: view.is_free(name))


def test_r13_renew_sets_the_lease(locks, view, name):
    with locks.hold(name, lease=30) as held:
        assert held.renew(90) == 90
        assert 80_000 < view.info(name)["lease"] <= 90_000
    with locks.hold(name, lease=30, renew=False) as held:
        assert held.renew() == 30
        assert 20_000 < view.info(name)["lease"] <= 30_000


def test_r14_nothing_is_left_after_the_release(flavour, servers, name):
    one = servers("one")
    view = View(one.at("a"))
    locks = flavour.locks(one.ports["a"])
    held = locks.acquire(name, lease=9)
    until("renewed", lambda: view.calls("renew") > 1)
    held.release()
    until("the last one has ended", lambda: not locks.names())
    renewals = view.calls("renew")
    threading.Event().wait(6.3)
    assert view.calls("renew") == renewals
    assert not locks.names()
    locks.close()


def test_r15_renewal_does_not_outlive_the_holder(locks, view, name):
    kept = locks.abandon(name, lease=0.4)
    until("its holder has ended", lambda: view.is_free(name))
    assert kept
    locks.acquire(name, lease=0.4)
    gc.collect()
    until("it was collected", lambda: view.is_free(name))


def test_r16_a_lock_that_is_broken_is_lost(locks, view, name):
    held = locks.acquire(name, lease=6)
    view.run("FAIRLOCK.BREAK", name)
    assert held.lost.wait(60) and held.lost.cause == "notheld"
    with pytest.raises(fairlock.LockLost) as raised:
        held.release()
    assert raised.value.cause == "notheld" and raised.value.code == "NOTHELD"


def test_r17_the_lock_of_another_is_left_alone(locks, view, name):
    held = locks.acquire(name, lease=6)
    view.run("DEL", name)
    token = view.run("FAIRLOCK.ACQUIRE", name, "another", "NOWAIT")
    assert held.lost.wait(60) and held.lost.cause == "notheld"
    with pytest.raises(fairlock.LockLost):
        held.release()
    assert view.info(name)["token"] == token


def test_r18_a_server_that_is_silent(flavour, servers, name):
    one = servers("one")
    locks = flavour.locks(one.ports["proxy"])
    held = locks.acquire(name, lease=1.5)
    start = time.monotonic()
    one.tell("freeze")
    assert held.lost.wait(60) and held.lost.cause == "lease"
    # The last renewal may have been answered just before.
    assert time.monotonic() - start < 1.5 + AT_ONCE
    one.tell("thaw")
    locks.close()


@pytest.mark.parametrize("renew", [True, False])
def test_a_grant_that_arrives_when_its_lease_is_over_is_none(flavour, servers, name, renew):
    one = servers("one")
    view = View(one.at("a"))
    locks = flavour.locks(one.ports["proxy"], lease=1, renew=renew)
    assert view.run("FAIRLOCK.ACQUIRE", name, "first", "LEASE", LONG * 1000) > 0
    waiting = locks.begin(name)
    view.waits(name)
    one.tell("freeze")
    view.run("FAIRLOCK.RELEASE", name, "first")
    # Another gets the lock after that lease.
    token = view.run("FAIRLOCK.ACQUIRE", name, "second", "LEASE", LONG * 1000)
    one.tell("thaw")
    until("it waits again, or takes itself for the holder", lambda: waiting.done() or view.queue(name))
    assert not waiting.done()
    view.run("FAIRLOCK.RELEASE", name, "second")
    held = waiting.result(60)
    assert held.token > token and not held.lost.is_set()
    locks.close()


def test_r19_a_lost_lock_is_not_renewed(locks, name):
    held = locks.acquire(name, lease=0.2, renew=False)
    assert held.lost.wait(60)
    with pytest.raises(fairlock.LockLost) as raised:
        held.renew()
    assert raised.value.cause == "lease"


def test_r24_waiters_do_not_keep_the_holder_from_releasing(flavour, one, view, name):
    locks = flavour.locks(one.ports["a"], client_options={"max_connections": 2}, lease=LONG)
    held = locks.acquire(name)
    waiting = [locks.begin(name) for _ in range(10)]
    view.waits(name, 10)
    held.release()
    while waiting:
        until_one(waiting).result().release()
    assert view.is_free(name)
    locks.close()


def test_r25_a_failing_release_does_not_hide_the_bodys_error(locks, view, name):
    error = BodyError("the body's own")
    with pytest.raises(BodyError) as raised, locks.hold(name):
        view.run("FAIRLOCK.BREAK", name)
        raise error
    assert raised.value is error
    assert any("NOTHELD" in note or "was lost" in note for note in error.__notes__)


def test_r26_a_lost_lock_is_told_at_the_end(locks, view, name):
    with pytest.raises(fairlock.LockLost), locks.hold(name):
        view.run("FAIRLOCK.BREAK", name)
    held = locks.acquire(name)
    held.release()
    other = locks.acquire(name)
    held.release()
    assert view.owner(name) == other.owner
    other.release()


def test_r27_the_reply_to_release_is_lost(flavour, servers, name):
    one = servers("one")
    view = View(one.at("a"))
    locks = flavour.locks(one.ports["proxy"])
    held = locks.acquire(name)
    one.lose("release")
    held.release()
    assert one.tell("lost") == ["1"]
    assert view.is_free(name)
    locks.close()


@pytest.mark.parametrize("is_taken", [False, True], ids=["free", "waiting"])
def test_r28_the_reply_to_acquire_is_lost(flavour, servers, name, is_taken):
    one = servers("one")
    view = View(one.at("a"))
    locks = flavour.locks(one.ports["proxy"])
    if is_taken:
        first = locks.acquire(name)
        waiting = locks.begin(name)
        view.waits(name)
        is_blocked = not view.polls(name)
        # If it is blocked the request has passed already: its reply goes with the connections.
        one.tell("cut") if is_blocked else one.lose("acquire")
        view.run("FAIRLOCK.RELEASE", name, first.owner)
        one.tell("mend")
    else:
        is_blocked = False
        one.lose("acquire")
        waiting = locks.begin(name)
    held = waiting.result(60)
    assert is_blocked or one.tell("lost") == ["1"]
    info = view.info(name)
    assert (info["holds"], info["owner"], info["token"]) == (1, held.owner, held.token)
    held.release()
    assert view.is_free(name)
    locks.close()


def test_r28_the_reply_is_lost_and_the_next_ask_refused(flavour, servers, name):
    one = servers("one")
    view = View(one.at("a"))
    locks = flavour.locks(one.ports["proxy"], lease=LONG)
    locks.acquire(name).release()
    one.tell("freeze")
    waiting = locks.begin(name)
    until("the server has granted it", lambda: not view.is_free(name))
    view.client.config_set("maxmemory", 1)
    one.tell("cut")
    one.tell("thaw")
    one.tell("mend")
    with pytest.raises(fairlock.Refused) as raised:
        waiting.result(60)
    assert raised.value.code == "OOM"
    until("it is free", lambda: view.is_free(name))
    locks.close()


def test_r29_connections_are_cut_while_a_caller_waits(flavour, servers, name):
    one = servers("one")
    view = View(one.at("a"))
    locks = flavour.locks(one.ports["proxy"])
    assert view.run("FAIRLOCK.ACQUIRE", name, "another", "NOWAIT") > 0
    waiting = locks.begin(name)
    view.waits(name)
    one.tell("cut")
    view.waits(name, 0)
    one.tell("mend")
    view.waits(name)
    view.run("FAIRLOCK.RELEASE", name, "another")
    waiting.result(60).release()
    locks.close()


@pytest.mark.module
@pytest.mark.parametrize("owner", [None, "me"])
def test_r30_unblocked_it_asks_again(flavour, locks, view, name, owner):
    if flavour.name == "tasks" and owner is None:
        return  # It is not blocked.
    assert view.run("FAIRLOCK.ACQUIRE", name, "another", "NOWAIT") > 0
    waiting = locks.begin(name, owner=owner)
    view.waits(name)
    (owner,) = view.queue(name)
    (blocked,) = [each["id"] for each in view.clients() if "b" in each["flags"]]
    asked = view.calls("acquire")
    view.run("CLIENT", "UNBLOCK", blocked, "ERROR")
    until("it asks again", lambda: view.calls("acquire") > asked and view.queue(name) == [owner])
    view.run("FAIRLOCK.RELEASE", name, "another")
    held = waiting.result(60)
    assert held.owner == owner
    held.release()


def test_r30_a_server_is_started_again_while_callers_wait(flavour, servers, name):
    one = servers("one", "--appendfsync", "always")
    view = View(one.at("a"))
    locks = flavour.locks(one.ports["a"], patience=LONG)
    assert view.run("FAIRLOCK.ACQUIRE", name, "another", "NOWAIT", "LEASE", LONG * 1000) > 0
    waiting = []
    for count in (1, 2):
        waiting.append(locks.begin(name))
        view.waits(name, count)
    owners = view.queue(name)
    one.tell("kill", "a")
    one.tell("start", "a")
    view.waits(name, 2)
    if view.polls(name):  # A blocked waiter has joined again.
        assert view.queue(name) == owners
    owners = view.queue(name)
    view.run("FAIRLOCK.RELEASE", name, "another")
    for owner in owners:
        held = until_one(waiting).result()
        assert held.owner == owner
        held.release()
    locks.close()


def test_r37_the_same_caller_holds_it_again(locks, view, name):
    outer, inner, is_same, failure = locks.nested(name, reentrant=True)
    assert outer == inner and is_same
    assert isinstance(failure, fairlock.NotInTime)
    assert view.is_free(name)


def test_r38_not_reentrant_unless_asked(locks, view, name):
    with pytest.raises(fairlock.NotInTime):
        locks.again(name)
    assert view.is_free(name)


def test_r39_hooks(flavour, one, view, name):
    told = []
    hooks = fairlock.Hooks(
        **{f"on_{which}": lambda event, which=which: told.append((which, event)) for which in HOOKS}
    )
    locks = flavour.locks(one.ports["a"], hooks=hooks)
    first = locks.acquire(name)
    waiting = locks.begin(name)
    view.waits(name)
    first.release()
    second = waiting.result(60)
    until("all told", lambda: len(told) == 4)
    assert sorted(which for which, _ in told) == ["acquired", "acquired", "released", "wait"]
    assert [which for which, event in told if event.owner == second.owner] == ["wait", "acquired"]
    assert all(event.name == name for _, event in told)
    acquired = [event for which, event in told if which == "acquired"][1]
    assert acquired.token == second.token and acquired.waited > 0
    released = next(event for which, event in told if which == "released")
    assert (released.owner, released.token) == (first.owner, first.token) and released.held > 0
    told.clear()
    view.run("FAIRLOCK.BREAK", name)
    with pytest.raises(fairlock.LockLost):
        second.renew()
    with pytest.raises(fairlock.LockLost):
        second.release()
    assert [(which, event.cause, event.token) for which, event in told] == [("lost", "notheld", second.token)]
    locks.close()


HOOKS = ("wait", "acquired", "lost", "released")


def test_r40_a_hook_that_fails_disturbs_nothing(flavour, one, view, name, caplog):
    def fail(event):
        raise BodyError("a hook")

    locks = flavour.locks(one.ports["a"], hooks=fairlock.Hooks(on_wait=fail, on_acquired=fail, on_released=fail))
    first = locks.acquire(name)
    waiting = locks.begin(name)
    view.waits(name)
    first.release()
    waiting.result(60).release()
    assert view.is_free(name)
    assert sum("has failed" in record.message for record in caplog.records) == 5
    locks.close()


def test_r41_a_server_without_the_module(flavour, servers, name):
    plain = servers("plain")
    locks = flavour.locks(plain.ports["a"], module="required")
    start = time.monotonic()
    with pytest.raises(fairlock.NoModule) as raised:
        locks.acquire(name)
    assert time.monotonic() - start < AT_ONCE
    said = str(raised.value)
    assert f":{plain.ports['a']}: the server does not have the fairlock module" in said
    assert "loadmodule /path/to/libfairlock.so" in said and "docs/operations.md" in said and "\n" not in said
    locks.close()


@pytest.mark.module
def test_r42_the_queue_is_full(flavour, servers, name):
    one = servers("one", "--fairlock.max-waiters", "1")
    view = View(one.at("a"))
    locks = flavour.locks(one.ports["a"])
    held = locks.acquire(name)
    waiting = locks.begin(name)
    view.waits(name)
    with pytest.raises(fairlock.QueueFull) as raised:
        locks.acquire(name)
    assert raised.value.code == "QUEUEFULL" and "QUEUEFULL" in str(raised.value)
    held.release()
    waiting.result(60).release()
    locks.close()


def test_r42_refusals_are_typed(flavour, servers):
    one = servers("one")
    view = View(one.at("a"))
    locks = flavour.locks(one.ports["a"])
    view.run("SET", "text", "hello")
    with pytest.raises(fairlock.WrongType) as raised:
        locks.acquire("text")
    assert raised.value.code == "WRONGTYPE" and "wrong kind of value" in str(raised.value)
    view.run("HSET", "person", "name", "Ann")
    with pytest.raises(fairlock.NotALock) as raised:
        locks.acquire("person")
    assert raised.value.code == "NOTALOCK" and "NOTALOCK" in str(raised.value)
    locks.close()


def test_r43_one_owner_has_one_place(locks, view, name):
    with locks.hold(name):
        first = locks.begin(name, owner="me")
        view.waits(name)
        second = locks.begin(name, owner="me")
        with pytest.raises(fairlock.TakenOver) as raised:
            first.result(60)
        assert raised.value.code == "TAKENOVER"
        assert view.queue(name) == ["me"]
    second.result(60).release()


def test_r44_a_server_that_is_not_there(flavour, servers, name):
    one = servers("one")
    one.tell("kill", "a")
    locks = flavour.locks(one.ports["a"], retry_timeout=0.3)
    with pytest.raises(ConnectionError) as raised:
        locks.acquire(name)
    assert isinstance(raised.value, fairlock.Unavailable) and raised.value.__cause__ is not None
    locks.close()
    locks = flavour.locks(one.ports["a"])
    waiting = locks.begin(name)
    threading.Event().wait(0.2)
    assert not waiting.done()
    one.tell("start", "a")
    waiting.result(60).release()
    locks.close()


def test_r45_arguments_are_checked_before_anything_is_sent(flavour, servers, name):
    one = servers("one")
    view = View(one.at("a"))
    locks = flavour.locks(one.ports["a"])
    wrong = [{"lease": 0}, {"lease": -1}, {"wait": -1}, {"limit": 0}, {"limit": 1_000_001}, {"owner": ""}]
    for options in [*wrong, {"owner": "x" * 257}, {"sync_timeout": -1}]:
        with pytest.raises(ValueError):
            locks.acquire(name, **options)
    assert view.clients() == []
    locks.close()


def test_r46_closing(flavour, servers, name):
    one = servers("one")
    view = View(one.at("a"))
    locks = flavour.locks(one.ports["a"])
    held = locks.acquire(name)
    waiting = locks.begin(name)
    view.waits(name)
    locks.close()
    with pytest.raises(fairlock.Closed):
        waiting.result(60)
    assert view.queue(name) == []
    assert held.lost.wait(60) and held.lost.cause == "closed"
    until("all connections are closed", lambda: view.clients() == [])
    with pytest.raises(fairlock.Closed):
        locks.acquire(name)
