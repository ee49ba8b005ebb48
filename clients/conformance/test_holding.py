"""One server: acquiring, waiting, holding, releasing."""

import re
import socket
import threading
import time
import uuid

import pytest
from driving import Failed
from servers import until

AT_ONCE = 20  # seconds, where the alternative is a minute
LONG = 120


def test_r01_free(locks, view, name):
    """A free lock is acquired, with INFO's `token`, above 0; `release` frees it; the next token is greater."""
    held = locks.acquire(name)
    assert held.token > 0 and view.info(name)["token"] == held.token
    held.release()
    assert view.is_free(name)
    second = locks.acquire(name)
    assert second.token > held.token
    second.release()


def test_r02_block(locks, view, name):
    """Leaving the block releases, also when its body fails; that error arrives unchanged."""
    block = locks.block(name)
    assert view.owner(name) == block.owner
    block.leave()
    assert view.is_free(name)
    with pytest.raises(Failed) as raised:
        locks.block(name, fail=True).leave()
    assert raised.value.type == "Body" and view.is_free(name)


def test_r03_owners(locks, view, name):
    """Acquisitions by one Locks exclude each other; the owner names host, process and a uuid; a given owner is used."""
    held = locks.acquire(name)
    host, process, unique = view.owner(name).rsplit(":", 2)
    assert host == re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:200]
    assert process.isdigit() and str(uuid.UUID(unique)) == unique
    assert locks.fails(name, wait=0.05).type == "NotInTime" and view.owner(name) == held.owner
    held.release()
    held = locks.acquire(name, owner="the nightly job")
    assert view.owner(name) == held.owner == "the nightly job"
    held.release()


def test_r04_try(locks, view, name):
    """`wait=0` and `try_acquire` of a held lock: NotInTime and none, at once; QUEUE is empty."""
    held = locks.acquire(name)
    assert locks.fails(name, wait=0).type == "NotInTime"
    assert locks.try_acquire(name) is None
    assert view.queue(name) == []
    held.release()
    assert locks.try_acquire(name).token > held.token


def test_r05_wait(locks, view, name):
    """`wait` runs out: NotInTime, not before; QUEUE is empty."""
    locks.acquire(name)
    start = time.monotonic()
    assert locks.fails(name, wait=0.3).type == "NotInTime"
    assert time.monotonic() - start >= 0.3
    assert view.queue(name) == []


def waiting(locks, view, name, count, **options):
    """So many that wait, one after the other."""
    calls = []
    for number in range(1, count + 1):
        calls.append(locks.begin(name, **options))
        view.waits(name, number)
    return calls


def test_r06_order(locks, view, name):
    """Three waiters hold the lock in the order of asking."""
    first, tokens = locks.acquire(name), []
    calls = waiting(locks, view, name, 3)
    first.release()
    for call in calls:
        held = call.result()
        tokens.append(held.token)
        held.release()
    assert tokens == sorted(tokens) and len(set(tokens)) == 3


def test_r07_hand_off(locks, view, name):
    """Released, the lock is the next waiter's at once, with leases and patience of minutes."""
    first = locks.acquire(name, lease=LONG)
    (second,) = waiting(locks, view, name, 1, lease=LONG, patience=LONG)
    start = time.monotonic()
    first.release()
    second.result().release()
    assert time.monotonic() - start < AT_ONCE


@pytest.mark.parametrize("options", [{}, {"wait": 60}], ids=str)
def test_r08_read_timeout(driver, one, view, name, options):
    """A wait, also without a limit, outlives the read timeout of the user's client."""
    if driver.language == "rust":
        pytest.skip("its client has no read timeout")
    locks = driver.new(one.client(readTimeout=0.3))
    held = locks.acquire(name)
    (call,) = waiting(locks, view, name, 1, **options)
    threading.Event().wait(1)
    assert not call.done()
    held.release()
    call.result().release()


def test_r09_cancelled(locks, view, name):
    """Cancelling: the language's own error; QUEUE is empty."""
    held = locks.acquire(name)
    (call,) = waiting(locks, view, name, 1)
    call.cancel()
    assert call.failure().type == "Cancelled"
    until("it has left", lambda: view.queue(name) == [], longest=AT_ONCE)
    held.release()
    assert view.is_free(name)


def test_r10_late_grant(driver, servers, name):
    """A waiter cancelled while its grant is under way keeps no lock, and its owner name is not used again."""
    one = servers()
    view, locks = one.view(), driver.new(one.through_proxy(), lease=LONG, command_timeout=0.5)
    first = locks.acquire(name)
    (call,) = waiting(locks, view, name, 1)
    (owner,) = view.queue(name)
    one.proxy().freeze()
    view.release(name, first.owner)
    # It has the lock; or it has been woken, and asks; the test does so in its name.
    if view.owner(name) != owner:
        view.run("FAIRLOCK.ACQUIRE", name, owner, "ENQUEUE", "LEASE", LONG * 1000, "ONCE")
    assert view.owner(name) == owner
    try:
        call.cancel()
        assert call.failure().type == "Cancelled"
    finally:  # Also where nothing can be cancelled.
        one.proxy().mend()
    until("it is free", lambda: view.is_free(name), longest=AT_ONCE)
    assert locks.acquire(name).owner != owner  # Nobody has said that it left the queue.


def test_r11_renewed(locks, view, name):
    """Held for more than two leases, with one token."""
    held = locks.acquire(name, lease=9)
    assert held.lost(19) is None and view.info(name)["token"] == held.token
    held.release()


def test_r12_not_renewed(locks, view, name):
    """Renewal off: lost with cause `lease` when that is over; the lock is free."""
    start = time.monotonic()
    held = locks.acquire(name, lease=0.4, renew=False)
    assert held.lost() == "lease" and time.monotonic() - start >= 0.3
    until("it is free", lambda: view.is_free(name))


def test_r13_renew(locks, view, name):
    """`renew()` sets the lease: its own, or the one given."""
    held = locks.acquire(name, lease=30)
    assert held.renew(90) == 90 and 80_000 < view.info(name)["lease"] <= 90_000
    held.release()
    held = locks.acquire(name, lease=30, renew=False)
    assert held.renew() == 30 and 20_000 < view.info(name)["lease"] <= 30_000
    held.release()


def test_r14_after_release(driver, servers, name):
    """After release no renewal is sent."""
    one = servers()
    view, locks = one.view(), driver.new(one.client())
    held = locks.acquire(name, lease=3)
    until("renewed", lambda: view.calls("renew") > 1)
    held.release()
    renewals = view.calls("renew")
    threading.Event().wait(2.2)
    assert view.calls("renew") == renewals


def test_r15_abandoned(locks, view, name):
    """Renewal ends with its holder: the lock becomes free."""
    call = locks.begin(name, op="abandon", lease=0.6)
    call.result()
    if locks.driver.language == "go":  # where it is a context
        locks.driver.ask("end", of=call.id)
    until("it is free", lambda: view.is_free(name))


@pytest.mark.module
@pytest.mark.parametrize("options", [{}, {"session": True}], ids=str)
def test_r16_broken(locks, view, name, options):
    """BREAK, also of a session: lost with cause `notheld` within a third of the lease; release raises LockLost."""
    held = locks.acquire(name, lease=6, **options)
    view.breaks(name)
    assert held.lost() == "notheld"
    with pytest.raises(Failed) as raised:
        held.release()
    assert (raised.value.type, raised.value.cause, raised.value.code) == ("LockLost", "notheld", "NOTHELD")


def test_r17_anothers(locks, view, name):
    """Deleted and another's: lost with cause `notheld`; release leaves the other's alone."""
    held = locks.acquire(name, lease=6)
    view.run("DEL", name)
    token = view.acquire(name)
    assert held.lost() == "notheld"
    with pytest.raises(Failed, match="LockLost"):
        held.release()
    assert view.info(name)["token"] == token


def test_r18_silence(driver, servers, name):
    """Server not reachable: lost with cause `lease`, no later than a lease after the last renewal."""
    one = servers()
    locks = driver.new(one.through_proxy(), command_timeout=1)
    held = locks.acquire(name, lease=1.5)
    one.proxy().freeze()
    start = time.monotonic()
    assert held.lost() == "lease" and time.monotonic() - start < 1.5 + AT_ONCE
    one.proxy().mend()


@pytest.mark.parametrize("options", [{}, {"renew": False}], ids=str)
def test_r18a_late_grant(driver, servers, name, options):
    """A grant that arrives when its lease is over is none: the caller asks again."""
    one = servers()
    view, locks = one.view(), driver.new(one.through_proxy(), lease=1, **options)
    view.acquire(name, "first", LONG)
    (call,) = waiting(locks, view, name, 1)
    one.proxy().freeze()
    view.release(name, "first")
    until("that lease is over", lambda: view.is_free(name) and view.run("FAIRLOCK.ACQUIRE", name, "second", "NOWAIT", "LEASE", LONG * 1000))
    token = view.info(name)["token"]
    one.proxy().mend()
    until("it waits again, or takes itself for the holder", lambda: call.done() or view.queue(name))
    assert not call.done()
    view.release(name, "second")
    assert call.result().token > token  # On a busy machine so short a lease may be over before a release.


def test_r18b_slow_grant(driver, servers, name):
    """A grant that comes a third of the lease after its ask is renewed before the caller has it."""
    one = servers()
    view, locks = one.view(), driver.new(one.through_proxy(), lease=6, renew=False)
    locks.acquire(name).release()
    one.proxy().freeze()
    call = locks.begin(name)
    until("the server has granted it", lambda: not view.is_free(name))
    until("it is late", lambda: view.info(name)["lease"] < 3500)
    one.proxy().mend()
    call.result()
    assert view.info(name)["lease"] > 3500


def test_r18c_short_lease(driver, servers, name):
    """A lease that is over before its grant arrives: NotInTime when `wait` is over."""
    one = servers()
    locks = driver.new(one.through_proxy(), lease=0.2, renew=False)
    locks.acquire(name, lease=LONG).release()
    one.proxy().slow({("server", None)})
    assert locks.fails(name, wait=1).type == "NotInTime"


def test_r19_lost_is_lost(locks, name):
    """After `lost`, `renew()` raises LockLost."""
    held = locks.acquire(name, lease=0.2, renew=False)
    held.lost()
    with pytest.raises(Failed) as raised:
        held.renew()
    assert (raised.value.type, raised.value.cause) == ("LockLost", "lease")


def test_r25_both_fail(locks, view, name):
    """Body and release fail: the body's error, with that of the release attached where the language can."""
    block = locks.block(name, fail=True)
    view.breaks(name)
    with pytest.raises(Failed) as raised:
        block.leave()
    assert raised.value.type == "Body"
    if locks.driver.language in ("go", "java", "python"):
        assert "NOTHELD" in raised.value.all or "was lost" in raised.value.all


def test_r26_lost_in_block(locks, view, name):
    """The body succeeds, the lock was lost: LockLost. A second release does nothing."""
    block = locks.block(name)
    view.breaks(name)
    with pytest.raises(Failed, match="LockLost"):
        block.leave()
    held = locks.acquire(name)
    held.release()
    other = locks.acquire(name)
    held.release()
    assert view.owner(name) == other.owner
    other.release()


def test_r37_reentrant(locks, view, name):
    """Reentrant: held at once with the same token; the last release frees it; another thread or task waits."""
    block = locks.block(name, reentrant=True, inner={"reentrant": True})
    inner = block.inside.result()
    assert inner.token == block.token and view.owner(name) == block.owner
    inner.release()
    assert view.owner(name) == block.owner
    assert locks.fails(name, reentrant=True, wait=0).type == "NotInTime"
    block.leave()
    assert view.is_free(name)


def test_r38_not_reentrant(locks, view, name):
    """Not reentrant: the same caller asking again is NotInTime."""
    block = locks.block(name, inner={"wait": 0.05})
    assert block.inside.failure().type == "NotInTime"
    block.leave()
    assert view.is_free(name)


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
    held = locks.acquire(name)
    calls = [locks.begin(name, owner="me") for _ in range(2)]
    view.waits(name)
    held.release()
    first, second = [call.result() for call in calls]
    assert first.token == second.token and first.owner == second.owner == "me"
    first.release()


@pytest.mark.parametrize("is_many", [False, True], ids=["few", "many"])
def test_r54_calls(driver, one, view, name, is_many):
    """Ten callers and a thousand (threads and goroutines: a hundred, one queued after the other) hold the lock in the order of their calls."""
    limits = dict.fromkeys(("lease", "patience", "command_timeout", "release_timeout"), LONG)  # What a thousand ask takes long on a busy machine.
    locks, count = driver.new(one.client(), **limits), driver.many if is_many else 10
    first, calls, tokens = locks.acquire(name), [], []
    for number in range(1, count + 1):
        calls.append(locks.begin(name))
        if not driver.is_ordered or number == count:  # A process that is busy with asking could be late for its turn.
            until(f"{number} are in the queue", lambda number=number: len(view.queue(name)) == number, pause=0.002)
    first.release()
    for call in calls:
        held = call.result()
        tokens.append(held.token)
        held.release()
    assert tokens == sorted(tokens)


def test_r61_info(locks, view, name):
    """`info(name)`: owner, holds, lease, token, session, waiting, holders, limit; no owner for a free lock."""
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


def release_as_they_come(calls, **limit):
    """Each call gets the lock in its turn, and gives it up; the order is not known here."""
    while calls:
        until("the next one has it", lambda: any(call.done() for call in calls), **limit)
        done = next(call for call in calls if call.done())
        calls.remove(done)
        done.result().release()


def test_r66_quiet(driver, one, name, mode):
    """Twenty callers leave nothing in the log but the one warning."""
    before = driver.size()
    locks = driver.new(one.client(), lease=3)
    first = locks.acquire(name)
    calls = [locks.begin(name) for _ in range(20)]
    assert first.lost(2) is None  # Those that have waited for more than a third of the lease renew at once.
    first.release()
    release_as_they_come(calls)
    said = driver.said(before)
    assert "locks are taken by scripts" in said if mode == "scripts" else not said, said


def test_r81_one_subscription(driver, servers, name):
    """Twenty waits on two locks share one connection that listens, and block none; a later wait has it still, with an owner name of before."""
    one, owners = servers(), []
    view, locks = one.view(), driver.new(one.client(), lease=LONG, patience=LONG)
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
        release_as_they_come(calls)
    assert owners[0] & owners[1]
