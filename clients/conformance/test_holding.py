"""One server: holding, renewing, losing, releasing."""

import contextlib
import threading
import time

import pytest
from driving import Failed
from servers import on, until
from view import AT_ONCE, LONG, waiting


@pytest.mark.parametrize(("fail", "is_lost", "error"), [(False, False, None), (True, False, "Body"), (False, True, "LockLost"), (True, True, "Body")])
def test_r02_block(locks, view, name, fail, is_lost, error):
    """Leaving the block releases, also when its body fails: that error arrives unchanged, with that of the release attached where the language can.
    The body succeeds, the lock was lost: LockLost."""
    block = locks.block(name, fail=fail)
    assert view.owner(name) == block.owner
    if is_lost:
        view.breaks(name)
    with pytest.raises(Failed) if error else contextlib.nullcontext() as raised:
        block.leave()
    assert view.is_free(name) and (raised and raised.value.type) == error
    if fail and is_lost and locks.driver.language in ("go", "java", "python"):
        assert "NOTHELD" in raised.value.all or "was lost" in raised.value.all


def test_r11_renewed(locks, view, name, mode):
    """Held for more than two leases, with one token; so is a session, which the server itself renews: INFO says so. Its connection closes with the
    release."""
    for options in [{}] + [{"session": True}] * (mode == "module"):
        held = locks.acquire(name, lease=4.5, **options)
        assert held.lost(9.5) is None and view.info(name)["token"] == held.token
        assert bool(view.info(name).get("session")) == bool(options)
        before = {each["id"] for each in view.clients()}
        held.release()
        assert view.is_free(name)
    if mode == "module":
        until("the session's connection is closed", lambda: before - {each["id"] for each in view.clients()})


def test_r12_not_renewed(locks, view, name):
    """Renewal off: lost with cause `lease` when that is over; the lock is free, and `renew()` raises LockLost."""
    start = time.monotonic()
    held = locks.acquire(name, lease=1, renew=False)
    assert held.lost() == "lease" and time.monotonic() - start >= 0.7
    until("it is free", lambda: view.is_free(name))
    with pytest.raises(Failed) as raised:
        held.renew()
    assert (raised.value.type, raised.value.cause) == ("LockLost", "lease")


def test_r13_renew(locks, view, name):
    """`renew()` sets the lease: its own, or the one given."""
    held = locks.acquire(name, lease=30)
    assert held.renew(90) == 90 and 80_000 < view.info(name)["lease"] <= 90_000
    held.release()
    held = locks.acquire(name, lease=30, renew=False)
    assert held.renew() == 30 and 20_000 < view.info(name)["lease"] <= 30_000
    held.release()


def test_r14_after_release(driver, own, name):
    """After release no renewal is sent, and a second release does nothing."""
    view, locks = own.view(), driver.new(own.client())
    held = locks.acquire(name, lease=4.5)
    before = view.calls("renew")
    until("renewed", lambda: view.calls("renew") > before)
    held.release()
    other, renewals = locks.acquire(name, renew=False), view.calls("renew")
    held.release()
    threading.Event().wait(2)
    assert view.calls("renew") == renewals and view.owner(name) == other.owner


@pytest.mark.parametrize("command", ["acquire", "renew"])
def test_r14a_not_used_again(driver, own, name, command):
    """The reply to an ask of a waiter or to a renewal is lost: one hold; after the release the owner name is not used again, since the ask may still
    come, with its lease."""
    view, locks = own.view(), driver.new(own.through_proxy(), lease=LONG)
    view.acquire(name)
    (call,) = waiting(locks, view, name, 1)
    own.lose(command)
    view.release(name)
    held = call.result()
    held.renew()
    info = view.info(name)
    assert own.proxy().lost == info["holds"] == 1 and (info["owner"], info["token"]) == (held.owner, held.token)
    held.release()
    assert view.is_free(name) and locks.acquire(name).owner != held.owner


@pytest.mark.module
def test_r14b_refused_renewal(driver, own, name):
    """A renewal that was refused was answered: after the release the owner name is used again."""
    view, locks = own.view(), driver.new(own.client(), lease=LONG)
    view.acquire(name)
    (call,) = waiting(locks, view, name, 1)
    view.release(name)
    held = call.result()
    own.at().config_set("min-replicas-to-write", 1)
    renewal = driver.begin("renew", of=held.id)
    until("it is refused", lambda: own.at().info("commandstats").get("cmdstat_fairlock.renew", {}).get("rejected_calls"))
    own.at().config_set("min-replicas-to-write", 0)
    renewal.result()
    held.release()
    assert locks.acquire(name).owner == held.owner


@pytest.mark.parametrize(("op", "kind"), [("acquire", "one"), ("abandon", "one"), ("acquire", "cluster")])
def test_r15a_not_listened_for(driver, servers, name, op, kind):
    """Lost, or abandoned by its holder, after a wait: it is not renewed, and nothing is listened for any more, also without a release, in a cluster,
    too."""
    if op == "abandon" and driver.language == "rust":
        pytest.skip("what is dropped is released")
    group, name = servers(kind), on("a", name)
    view, locks = group.view(), driver.new(group.client())
    view.acquire(name)
    call = locks.begin(name, op=op, lease=1)
    view.waits(name)
    view.release(name)
    call.result()
    if op == "acquire":
        view.breaks(name)
    elif driver.language == "go":  # where it is a context
        driver.ask("end", of=call.id)
    until("nothing is listened for", lambda: view.listened_for(name) == 0, longest=AT_ONCE)
    until("another acquisition", lambda: view.is_free(name))
    locks.acquire(name).release()
    stats = group.at("a").info("commandstats")
    assert sum(stats.get(f"cmdstat_{kind}unsubscribe", {}).get("calls", 0) for kind in ("s", "")) < 10  # It is not said again and again.


def test_r17_anothers(locks, view, name, mode):
    """Deleted and another's, also a session: lost with cause `notheld` within a third of the lease; release leaves the other's alone, and raises
    LockLost."""
    for options in [{}] + [{"session": True}] * (mode == "module"):
        held = locks.acquire(name, lease=9, **options)
        view.breaks(name)
        token = view.acquire(name)
        assert held.lost() == "notheld"
        with pytest.raises(Failed) as raised:
            held.release()
        assert (raised.value.type, raised.value.cause, raised.value.code) == ("LockLost", "notheld", "NOTHELD")
        assert view.info(name)["token"] == token
        view.release(name)


@pytest.mark.parametrize("command_timeout", [1, LONG])
def test_r18_silence(driver, own, name, command_timeout):
    """Server not reachable: lost with cause `lease`, no later than a lease after the last renewal."""
    locks = driver.new(own.through_proxy(), command_timeout=command_timeout)
    held = locks.acquire(name, lease=1.5)
    own.proxy().freeze()
    start = time.monotonic()
    assert held.lost() == "lease" and time.monotonic() - start < 1.5 + AT_ONCE
    own.proxy().mend()


@pytest.mark.parametrize("options", [{}, {"renew": False}], ids=str)
def test_r18a_late_grant(driver, own, name, options):
    """A grant that arrives when its lease is over is none: the caller asks again."""
    view, locks = own.view(), driver.new(own.through_proxy(), lease=1, **options)
    view.acquire(name, "first", LONG)
    (call,) = waiting(locks, view, name, 1)
    own.proxy().freeze()
    view.release(name, "first")
    until("that lease is over", lambda: view.is_free(name) and view.run("FAIRLOCK.ACQUIRE", name, "second", "NOWAIT", "LEASE", LONG * 1000))
    token = view.info(name)["token"]
    own.proxy().mend()
    until("it waits again, or takes itself for the holder", lambda: call.done() or view.queue(name))
    assert not call.done()
    view.release(name, "second")
    assert call.result().token > token  # On a busy machine so short a lease may be over before a release.


def test_r18c_short_lease(driver, own, name):
    """A lease that is over before its grant arrives: NotInTime when `wait` is over."""
    locks = driver.new(own.through_proxy(), lease=0.2, renew=False)
    locks.acquire(name, lease=LONG).release()
    own.proxy().slow({("server", None)})
    assert locks.fails(name, wait=1).type == "NotInTime"


def test_r18d_slow_renewal(driver, own, name):
    """A grant that comes a third of the lease after its ask is renewed before the caller has it, by RENEW or by asking again. If that takes longer than
    the lease, the caller asks again."""
    view, locks = own.view(), driver.new(own.through_proxy(), lease=9, renew=False, command_timeout=LONG)
    locks.acquire(name).release()
    own.proxy().freeze()
    call = locks.begin(name)
    until("the server has granted it", lambda: not view.is_free(name))
    until("it is late", lambda: view.info(name)["lease"] < 5500)
    own.lose("renew", "acquire", only_held=True)
    own.proxy().mend()
    until("it is renewed", lambda: view.info(name)["lease"] > 5500)
    until("that lease is over", lambda: view.is_free(name))
    own.proxy().mend()
    held = call.result()
    assert view.owner(name) == held.owner


def test_r37_reentrant(locks, view, name):
    """Reentrant: held at once with the same token; the last release frees it; another thread or task waits, and without the option the same, too."""
    block = locks.block(name, reentrant=True, inner={"reentrant": True})
    inner = block.inside.result()
    assert inner.token == block.token and view.owner(name) == block.owner
    inner.release()
    assert view.owner(name) == block.owner
    assert locks.fails(name, reentrant=True, wait=0).type == "NotInTime"
    block.leave()
    assert view.is_free(name)
    block = locks.block(name, inner={"wait": 0.05})
    assert block.inside.failure().type == "NotInTime"
    block.leave()
