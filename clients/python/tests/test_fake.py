"""Rows 48, 49 and 52."""

import pytest

import fairlock
from servers import until


@pytest.fixture
def fake(flavour):
    made = flavour.locks(fake=True)
    yield made
    made.close()


def waits(fake, name, count=1):
    until(f"{count} wait", lambda: len(fake.real.waiting(name)) == count)


def test_r48_the_fake_is_fair(flavour, fake):
    first = fake.acquire("orders")
    with pytest.raises(fairlock.NotInTime):
        fake.acquire("orders", wait=0.05)
    assert fake.try_acquire("orders") is None
    with pytest.raises(flavour.cancelled):
        fake.cancel_when(lambda: waits(fake, "orders"), "orders")
    assert fake.real.waiting("orders") == []
    waiting = []
    for count in range(1, 4):
        waiting.append(fake.begin("orders"))
        waits(fake, "orders", count)
    order = fake.real.waiting("orders")
    first.release()
    tokens = [first.token]
    for future, owner in zip(waiting, order, strict=True):
        held = future.result(60)
        assert held.owner == owner
        tokens.append(held.token)
        held.release()
    assert tokens == sorted(set(tokens))
    outer, inner, is_same, failure = fake.nested("orders", reentrant=True)
    assert outer == inner and is_same and isinstance(failure, fairlock.NotInTime)
    with pytest.raises(ValueError):
        fake.acquire("orders", lease=0)
    assert fake.real.holders("orders") == []


def test_r48_the_fake_calls_hooks(flavour):
    told = []
    hooks = fairlock.Hooks(
        on_wait=lambda event: told.append("wait"),
        on_acquired=lambda event: told.append("acquired"),
        on_lost=lambda event: told.append(event.cause),
        on_released=lambda event: told.append("released"),
    )
    fake = flavour.locks(fake=True, hooks=hooks)
    with fake.hold("orders"):
        waiting = fake.begin("orders")
        waits(fake, "orders")
    waiting.result(60)
    fake.real.break_lock("orders") if flavour.name == "threads" else on_loop(flavour, fake.real.break_lock)
    until("all told", lambda: sorted(told) == ["acquired", "acquired", "notheld", "released", "wait"])
    fake.close()


def on_loop(flavour, work):
    async def do():
        work("orders")

    flavour.do(do())


@pytest.mark.parametrize(("way", "cause"), [("expire", "lease"), ("break_lock", "notheld")])
def test_r49_a_fake_lock_is_lost(flavour, fake, way, cause):
    held = fake.acquire("orders")
    waiting = fake.begin("orders")
    waits(fake, "orders")
    work = getattr(fake.real, way)
    work("orders") if flavour.name == "threads" else on_loop(flavour, work)
    assert held.lost.wait(60) and held.lost.cause == cause
    second = waiting.result(60)
    with pytest.raises(fairlock.LockLost):
        held.release()
    assert fake.real.holders("orders") == [second.owner]
    second.release()


def test_r49_a_lock_is_lost_that_its_holder_does_not_know_of_yet(flavour, fake):
    first, second = fake.acquire("orders"), fake.begin("orders")
    waits(fake, "orders")

    def both(name):
        fake.real.expire(name)
        fake.real.break_lock(name)

    both("orders") if flavour.name == "threads" else on_loop(flavour, both)
    held = second.result(60)
    assert held.lost.wait(60) and (first.lost.cause, held.lost.cause) == ("lease", "notheld")
    assert fake.real.holders("orders") == []


def test_r52_the_fake_knows_shared_and_limited_locks(fake):
    readers = [fake.acquire("orders", shared=True) for _ in range(3)]
    writer = fake.begin("orders")
    waits(fake, "orders")
    late = fake.begin("orders", shared=True)
    waits(fake, "orders", 2)
    for reader in readers:
        assert not writer.done()
        reader.release()
    held = writer.result(60)
    assert not late.done()
    held.release()
    late.result(60).release()
    first, second = fake.acquire("slots", limit=2), fake.acquire("slots", limit=2)
    assert fake.try_acquire("slots", limit=2) is None
    third = fake.begin("slots", limit=2)
    waits(fake, "slots")
    first.release()
    third.result(60).release()
    second.release()
