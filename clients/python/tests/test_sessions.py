"""Rows 20 to 23."""

import threading
import time

import pytest

import fairlock
from servers import until

LEASE = 60


@pytest.fixture
def one(servers):
    return servers("one")


def test_r20_the_server_renews_a_session(locks, view, name):
    with locks.hold(name, session=True, lease=3) as held:
        assert view.info(name)["session"] == 1
        threading.Event().wait(7)
        assert view.info(name)["token"] == held.token and not held.lost.is_set()
    assert view.is_free(name)


def test_r21_a_session_ends_with_its_connection(locks, view, name):
    held = locks.acquire(name, session=True, lease=LEASE, sync_timeout=0)
    (session,) = [each["id"] for each in view.clients() if each["cmd"].startswith("fairlock.acquire")]
    waiting = locks.begin(name)
    view.waits(name)
    start = time.monotonic()
    view.run("CLIENT", "KILL", "ID", session)
    assert held.lost.wait(60) and held.lost.cause == "connection"
    second = waiting.result(60)
    assert time.monotonic() - start < 20
    second.release()
    with pytest.raises(fairlock.LockLost):
        held.release()


def test_r22_a_session_that_is_broken_is_lost(locks, view, name):
    held = locks.acquire(name, session=True, lease=6)
    view.run("FAIRLOCK.BREAK", name)
    assert held.lost.wait(60) and held.lost.cause == "notheld"


def test_r23_a_session_waits_and_is_released_at_once(flavour, locks, view, name):
    first = locks.acquire(name)
    with pytest.raises(flavour.cancelled):
        locks.cancel_when(lambda: view.waits(name), name, session=True, lease=LEASE)
    assert view.queue(name) == []
    waiting = locks.begin(name, session=True, lease=LEASE)
    view.waits(name)
    first.release()
    held = waiting.result(60)
    assert view.info(name)["session"] == 1
    before = len(view.clients())
    held.release()
    assert view.is_free(name)
    until("its connection is closed", lambda: len(view.clients()) == before - 1)


def test_r23_a_session_that_is_released_while_it_is_checked_was_not_lost(locks, view, name):
    for _ in range(30):
        held = locks.acquire(name, session=True, lease=0.6)
        threading.Event().wait(0.2)  # a third of the lease: the check is due
        held.release()
    assert view.is_free(name)
