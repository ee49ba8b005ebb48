"""Rows 50 and 51: shared and limited locks."""

import pytest

import fairlock


def test_r50_shared_holders_hold_together(locks, view, name):
    readers = [locks.acquire(name, shared=True) for _ in range(3)]
    assert len({reader.token for reader in readers}) == 3
    writer = locks.begin(name)
    view.waits(name)
    late = locks.begin(name, shared=True)
    view.waits(name, 2)
    for reader in readers:
        assert not writer.done()
        reader.release()
    held = writer.result(60)
    assert not late.done()
    held.release()
    late.result(60).release()
    assert view.is_free(name)


def test_r51_at_most_so_many_hold(locks, view, name):
    first, second = locks.acquire(name, limit=2), locks.acquire(name, limit=2)
    with pytest.raises(fairlock.NotInTime):
        locks.acquire(name, limit=2, wait=0)
    third = locks.begin(name, limit=2)
    view.waits(name)
    second.release()
    third.result(60).release()
    first.release()
    assert view.is_free(name)
