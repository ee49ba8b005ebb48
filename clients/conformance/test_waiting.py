"""One server: acquiring and waiting."""

import re
import socket
import threading
import time
import uuid

import pytest
from driving import Failed, loss_of
from servers import until
from view import AT_ONCE, LONG, release_as_they_come, waiting


def test_r01_free(locks, view, name):
    """A free lock is acquired, with INFO's `token`, above 0; the owner names host, process and a uuid; `release` frees it; the next token is greater."""
    held = locks.acquire(name)
    assert view.info(name)["token"] == held.token > 0
    host, process, unique = view.owner(name).rsplit(":", 2)
    assert host == re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:200]
    assert process.isdigit() and str(uuid.UUID(unique)) == unique
    held.release()
    assert view.is_free(name) and locks.acquire(name).token > held.token


def test_r04_try(locks, view, name):
    """`wait=0` and `try_acquire` of a held lock: NotInTime and none, at once; `wait` runs out: NotInTime, not before. QUEUE is empty."""
    held = locks.acquire(name)
    assert locks.fails(name, wait=0).type == "NotInTime" and locks.try_acquire(name) is None
    start = time.monotonic()
    assert locks.fails(name, wait=0.3).type == "NotInTime" and time.monotonic() - start >= 0.3
    assert view.queue(name) == []
    held.release()
    assert locks.try_acquire(name).token > held.token


def test_r04a_silent_server(driver, own, name):
    """The server is silent: twenty callers with a `wait` do not wait for one another."""
    locks = driver.new(own.through_proxy(readTimeout=1), command_timeout=AT_ONCE)
    locks.acquire(f"{name}:first").release()
    own.proxy().freeze()
    calls = [locks.begin(name, wait=1) for _ in range(20)]
    until("all have failed", lambda: all(call.done() for call in calls), longest=LONG)
    own.proxy().mend()
    assert [call.failure().type for call in calls] == 20 * ["NotInTime"]


def test_r04b_falls_silent(driver, own, name):
    """The server falls silent while callers wait, or begin to listen: they fail when `wait` is over; QUEUE is empty as
    soon as it answers again."""
    view, locks = own.view(), driver.new(own.through_proxy(readTimeout=10), command_timeout=LONG, patience=LONG)
    view.acquire(name)
    before, calls = view.calls("acquire"), [locks.begin(name, wait=9)]
    until("it listens, and has asked again", lambda: view.calls("acquire") >= before + 2)
    own.proxy().lose("subscribe", only_held=True)
    calls.append(locks.begin(name, wait=3))
    assert [call.failure(AT_ONCE).type for call in calls] == 2 * ["NotInTime"]
    own.proxy().mend()
    until("they have left", lambda: view.queue(name) == [], longest=AT_ONCE)


def test_r07a_release_forgotten(locks, view, name):
    """A master that took over and does not know of a release replies the old token to the same owner: another, greater one is acquired."""
    view.acquire(name)
    (call,) = waiting(locks, view, name, 1)
    view.release(name)
    held = call.result()
    for options in ({}, {"wait": 0}):
        held.release()
        view.client.hset(name, mapping={held.owner: 1, "": held.token})
        view.client.pexpire(name, 1000 * LONG)
        released, held = held, locks.acquire(name, **options)
        assert held.token > released.token
    held.release()


def test_r09_cancelled(locks, view, cancel, name, mode):
    """Cancelling a wait, also that of a session: the language's own error; QUEUE is empty."""
    held = locks.acquire(name)
    for options in [{}] + [{"session": True}] * (mode == "module"):
        (call,) = waiting(locks, view, name, 1, **options)
        cancel(call)
        assert call.failure().type == "Cancelled"
        until("it has left", lambda: view.queue(name) == [], longest=AT_ONCE)
    held.release()
    assert view.is_free(name)


def test_r09a_cancelled_at_first(driver, own, cancel, name):
    """Cancelling a caller whose first ask is under way: QUEUE is empty as soon as the server answers again."""
    view, locks = own.view(), driver.new(own.through_proxy(), patience=LONG)
    locks.acquire(f"{name}:first").release()
    view.acquire(name)
    own.proxy().freeze()
    call = locks.begin(name)
    until("it is in the queue", lambda: view.queue(name) != [])
    cancel(call)
    assert call.failure().type == "Cancelled"
    own.proxy().mend()
    until("it has left", lambda: view.queue(name) == [], longest=AT_ONCE)


def test_r10_late_grant(driver, own, cancel, name):
    """A waiter cancelled while its grant is under way keeps no lock, and its owner name is not used again."""
    view, locks = own.view(), driver.new(own.through_proxy(), lease=LONG, command_timeout=0.5)
    first = locks.acquire(name)
    (call,) = waiting(locks, view, name, 1)
    (owner,) = view.queue(name)
    own.proxy().freeze()
    view.release(name, first.owner)
    # It has the lock; or it has been woken, and asks; the test does so in its name.
    if view.owner(name) != owner:
        view.run("FAIRLOCK.ACQUIRE", name, owner, "ENQUEUE", "LEASE", LONG * 1000, "ONCE")
    assert view.owner(name) == owner
    cancel(call)
    assert call.failure().type == "Cancelled"
    own.proxy().mend()
    until("it is free", lambda: view.is_free(name), longest=AT_ONCE)
    assert locks.acquire(name).owner != owner  # Nobody has said that it left the queue.


def test_r09b_cancelled_before_it_listens(driver, own, cancel, name):
    """Cancelling a caller whose subscription is not confirmed: when another waits, nothing else is listened for."""
    view, locks = own.view(), driver.new(own.through_proxy(), patience=LONG)
    view.acquire(name)
    own.proxy().lose("subscribe", only_held=True)
    call = locks.begin(name)
    until("its subscription is under way", lambda: view.listened_for(name) == 1)
    cancel(call)
    assert call.failure().type == "Cancelled"
    own.proxy().mend()
    until("it has left", lambda: view.queue(name) == [])
    locks.info(name)  # Its own side knows that by now: replies come in order.
    (call,) = waiting(locks, view, name, 1)
    until("one is listened for", lambda: view.listened_for(name) == 1, longest=AT_ONCE)
    view.release(name)
    call.result().release()


def test_r39_hooks(driver, one, view, name):
    """Hooks, with their records: on_wait only where it waited, on_acquired, on_released; after on_lost no on_released."""
    locks = driver.new(one.client(), hooks="tell")
    first = locks.acquire(name)
    (call,) = waiting(locks, view, name, 1)
    first.release()
    second = call.result()
    until("all told", lambda: len(locks.hooks()) == 4)
    told = locks.hooks()
    assert sorted(event["hook"] for event in told) == ["acquired", "acquired", "released", "wait"]
    assert [event["hook"] for event in told if event["owner"] == second.owner] == ["wait", "acquired"]
    assert all(event["name"] == name for event in told)
    acquired = [event for event in told if event["hook"] == "acquired"][1]
    assert acquired["token"] == second.token and acquired["waited"] > 0
    (released,) = (event for event in told if event["hook"] == "released")
    assert (released["owner"], released["token"]) == (first.owner, first.token) and released["held"] > 0
    view.breaks(name)
    for use in (second.renew, second.release):
        with pytest.raises(Failed, match="LockLost"):
            use()
    until("it is told", lambda: len(locks.hooks()) == 5)
    lost = locks.hooks()[4]
    assert (lost["hook"], lost["cause"], lost["token"]) == ("lost", "notheld", second.token)


def test_r40_failing_hooks(driver, one, view, name):
    """A hook that fails disturbs neither acquisition nor release, and is logged."""
    locks, before = driver.new(one.client(), hooks="fail"), driver.size()
    first = locks.acquire(name)
    (call,) = waiting(locks, view, name, 1)
    first.release()
    call.result().release()
    assert view.is_free(name) and driver.said(before)


def test_r43_one_owner(locks, view, name):
    """Callers with one owner share its place, and hold the lock together, with one token."""
    held, before = locks.acquire(name, lease=LONG), view.calls("acquire")
    calls = [locks.begin(name, owner="me", lease=LONG, patience=LONG) for _ in range(2)]
    view.waits(name)
    # The second need not ask again if it asks for the first time when the first listens.
    until("both have asked, and one listens and has asked again", lambda: view.calls("acquire") >= before + 3)
    held.release()
    first, second = [call.result(AT_ONCE) for call in calls]
    assert first.token == second.token and first.owner == second.owner == "me"
    first.release()


def test_r43a_one_owner_ends(driver, own, name):
    """Of callers with one owner one ends as another begins to listen: that one is woken all the same."""
    view, locks, proxy = own.view(), driver.new(own.through_proxy(), patience=LONG), own.proxy()
    view.acquire(name)
    (call,) = waiting(locks, view, name, 1, owner="me", lease=3, renew=False)
    view.release(name)
    lost = call.result().losing()
    view.breaks(name)
    view.acquire(name)
    proxy.lose("subscribe", only_held=True)
    call = locks.begin(name, owner="me", lease=LONG)
    assert loss_of(lost) == "lease"
    proxy.lose()
    proxy.mend()
    view.waits(name)
    view.release(name)
    call.result(AT_ONCE).release()


def test_r43b_one_owner_leaves(driver, own, name):
    """Of callers with one owner one ends, also with a lost reply: another one still has their place, or the lock."""
    view, locks, proxy = own.view(), driver.new(own.through_proxy(), lease=LONG, patience=LONG), own.proxy()
    view.acquire(name)
    (call,) = waiting(locks, view, name, 1, owner="me")
    assert locks.fails(name, owner="me", wait=0.5).type == "NotInTime" and view.queue(name) == ["me"]
    view.release(name)
    held = call.result(AT_ONCE)
    proxy.lose("fairlock.acquire", "evalsha", only_held=True)
    call = locks.begin(name, owner="me", wait=0.5)
    assert call.failure().type == "NotInTime"
    proxy.mend()
    locks.acquire(f"{name}:other").release()
    held.release()


def test_r43c_one_owner_in_doubt(driver, own, cancel, name):
    """Of callers with one owner one ends with its grant under way, and another is cancelled then: the lock is free."""
    view, locks, proxy = own.view(), driver.new(own.through_proxy(readTimeout=1), lease=LONG, patience=LONG, command_timeout=1), own.proxy()
    view.acquire(name)
    (last,) = waiting(locks, view, name, 1, owner="me")
    locks.acquire(f"{name}:other").release()  # A connection is idle.
    proxy.freeze()
    view.release(name)
    call = locks.begin(name, owner="me", wait=3)
    until("it has the lock", lambda: view.owner(name) == "me")
    assert call.failure().type == "NotInTime"
    cancel(last)
    proxy.mend()
    assert last.failure().type == "Cancelled"
    until("it is free", lambda: view.is_free(name), longest=AT_ONCE)


def test_r54_calls(driver, one, view, name):
    """A thousand callers (threads, goroutines: a hundred, queued one by one) hold the lock in the order of their calls, by few connections."""
    limits = dict.fromkeys(("lease", "patience", "command_timeout", "release_timeout"), LONG)  # What a thousand ask takes long on a busy machine.
    locks, count = driver.new(one.client(), **limits), driver.many
    first, calls, tokens = locks.acquire(name), [], []
    for number in range(1, count + 1):
        calls.append(locks.begin(name))
        if not driver.is_ordered or number == count:  # A process that is busy with asking could be late for its turn.
            until(f"{number} are in the queue", lambda number=number: len(view.queue(name)) == number, pause=0.002)
    assert len(view.clients()) < 60
    first.release()
    for call in calls:
        held = call.result()
        tokens.append(held.token)
        held.release()
    assert tokens == sorted(set(tokens))


def test_r61_info(locks, view, name, mode):
    """`info(name)`: owner, holds, lease, token, session, waiting, holders, limit, also of a session and of several holders; no owner for a free lock."""
    free = {"owner": None, "holds": 0, "lease": None, "token": None, "session": False, "waiting": 0, "holders": 0, "limit": None}
    assert locks.info(name) == free
    held = locks.acquire(name, lease=60, owner="me")
    (call,) = waiting(locks, view, name, 1)
    info = locks.info(name)
    assert 30 < info.pop("lease") <= 60
    assert info == {"owner": "me", "holds": 1, "token": held.token, "session": False, "waiting": 1, "holders": 1, "limit": 1}
    held.release()
    call.result().release()
    view.run("HSET", name, "a script", 1)
    info = locks.info(name)
    assert info["token"] is None and info["lease"] is None
    view.run("DEL", name)
    if mode == "module":
        for options in ({"limit": 3, "session": True}, {"limit": 2}):
            locks.acquire(name, **options)
        info = locks.info(name)
        assert info["session"] and (info["holders"], info["limit"]) == (2, 2)


def test_r66_quiet(driver, one, name, mode):
    """Twenty callers that wait for longer than the read timeout of the user's client leave nothing in the log but, without the module, one warning;
    `native` tells which it is, once it is known."""
    before = driver.size()
    locks = driver.new(one.client(readTimeout=1), lease=6)
    assert locks.native() is None
    first = locks.acquire(name)
    calls = [locks.begin(name) for _ in range(20)]
    assert first.lost(2.2) is None  # Those that have waited for more than a third of the lease renew at once.
    first.release()
    release_as_they_come(calls)
    assert locks.native() is (mode == "module")
    if mode == "module":
        assert driver.said(before) == ""
        return
    warning = ": the server does not have the fairlock module: locks are taken by scripts. "
    until("it has warned", lambda: driver.said(before).count(warning) == 1)
    said = driver.said(before)
    assert f":{one.port('a')}" in said and said.count("taken by scripts") == 1
    assert said.count("\n") <= 2, said  # Java's logger and Node add a line of their own.


def test_r81_one_subscription(driver, own, name):
    """Twenty waits on two locks share one connection that listens, and block none; once it is released, a lock is the next one's at once, with leases
    and patience of minutes; a later wait has that connection still, with an owner name of before."""
    owners = []
    view, locks = own.view(), driver.new(own.client(), lease=LONG, patience=LONG)
    for names in ([name, f"{name}:other"], [name]):
        held = [locks.acquire(each) for each in names]
        calls = [locks.begin(each) for _ in range(10) for each in names]
        for each in names:
            view.waits(each, 10)
        assert view.client.info("clients")["blocked_clients"] == 0
        assert sum(each["sub"] != "0" or each["ssub"] != "0" for each in view.clients()) == 1
        owners.append(set(view.queue(name)))
        for each in held:
            each.release()
        release_as_they_come(calls, longest=AT_ONCE)
    assert owners[0] & owners[1]
