"""Rows 48 and 49: a program's tests without a server."""

import fakeredis
import pytest

import fairlock
from servers import View, until


class Fake:
    def __init__(self, flavour):
        self.flavour, self.server = flavour, fakeredis.FakeServer()
        self.view = View(fakeredis.FakeRedis(server=self.server, decode_responses=True))

    def locks(self, **options):
        kind = {"threads": fakeredis.FakeRedis, "tasks": fakeredis.FakeAsyncRedis}[self.flavour.name]
        client = kind(server=self.server)
        return self.flavour.locks(client=client if self.flavour.name == "threads" else lambda: client, **options)

    def waits(self, count=1):
        until(f"{count} wait", lambda: len(self.view.queue("orders")) == count)


@pytest.fixture
def fake(flavour):
    return Fake(flavour)


@pytest.fixture
def locks(fake):
    made = fake.locks()
    yield made
    made.close()


def test_r48_locks_on_fakeredis_are_fair(flavour, fake, locks):
    first = locks.acquire("orders")
    with pytest.raises(fairlock.NotInTime):
        locks.acquire("orders", wait=0.05)
    assert locks.try_acquire("orders") is None
    with pytest.raises(flavour.cancelled):
        locks.cancel_when(fake.waits, "orders")
    assert fake.view.queue("orders") == []
    waiting = []
    for count in range(1, 4):
        waiting.append(locks.begin("orders"))
        fake.waits(count)
    order = fake.view.queue("orders")
    first.release()
    tokens = [first.token]
    for future, owner in zip(waiting, order, strict=True):
        held = future.result(60)
        assert held.owner == owner
        tokens.append(held.token)
        held.release()
    assert tokens == sorted(set(tokens))
    outer, inner, is_same, failure = locks.nested("orders", reentrant=True)
    assert outer == inner and is_same and isinstance(failure, fairlock.NotInTime)
    with pytest.raises(ValueError):
        locks.acquire("orders", lease=0)
    assert locks.info("orders").owner is None


def test_r48_hooks_are_called_on_fakeredis(fake):
    told = []
    hooks = fairlock.Hooks(
        on_wait=lambda event: told.append("wait"),
        on_acquired=lambda event: told.append("acquired"),
        on_lost=lambda event: told.append(event.cause),
        on_released=lambda event: told.append("released"),
    )
    locks = fake.locks(hooks=hooks, lease=1)
    with locks.hold("orders"):
        waiting = locks.begin("orders")
        fake.waits()
    held = waiting.result(60)
    fake.view.client.delete("orders")
    until("all told", lambda: sorted(told) == ["acquired", "acquired", "notheld", "released", "wait"])
    assert held.lost.is_set()
    locks.close()


@pytest.mark.parametrize(("cause", "options"), [("lease", {"renew": False}), ("notheld", {})])
def test_r49_a_lock_is_lost_on_fakeredis(fake, locks, cause, options):
    held = locks.acquire("orders", lease=1, **options)
    waiting = locks.begin("orders")
    if cause == "notheld":
        fake.waits()
        fake.view.client.delete("orders")
    assert held.lost.wait(60) and held.lost.cause == cause
    second = waiting.result(60)
    with pytest.raises(fairlock.LockLost):
        held.release()
    assert locks.info("orders").owner == second.owner
    second.release()


def test_r68_shared_and_limited_locks_need_a_server(locks):
    for options in ({"shared": True}, {"limit": 2}):
        with pytest.raises(fairlock.NoModule):
            locks.acquire("orders", **options)


def test_closing_ends_the_waits_on_fakeredis(fake, flavour):
    locks = fake.locks()
    locks.acquire("orders")
    waiting = locks.begin("orders")
    fake.waits()
    locks.close()
    with pytest.raises(fairlock.Closed):
        waiting.result(60)
