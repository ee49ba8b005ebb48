"""Rows 54 to 61 and 66: programs that use the package."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import redis
import redis.asyncio

import fairlock
import fairlock.aio
import flavours
from servers import BY_SCRIPTS, LONGEST, View, rule_of, until

HERE = os.path.dirname(__file__)


def run(flavour, program, port, name):
    return subprocess.run(command(flavour, program, port, name), capture_output=True, text=True, timeout=3 * LONGEST)


def command(flavour, program, port, name):
    return [sys.executable, os.path.join(HERE, "programs", f"{program}_{flavour.name}.py"), str(port), name]


@pytest.mark.parametrize("is_many", [False, True], ids=["few", "many"])
def test_r54_the_order_of_the_calls(flavour, locks, name, is_many):
    count = flavour.many if is_many else 10
    assert locks.in_order(name, count) == list(range(count))


def test_tasks_wait_on_one_connection(one, view, name):
    flavour = flavours.Tasks()
    locks = flavour.locks(one.ports["a"])
    held = locks.acquire(name)
    before = len(view.clients())
    waiting = [locks.begin(name) for _ in range(50)]
    view.waits(name, 50)
    assert len(view.clients()) == before + 1
    held.release()
    for future in waiting:
        future.result(LONGEST).release()
    locks.close()
    flavour.end()


def test_r55_children_that_are_forked(flavour, one, view, name):
    ended = run(flavour, "fork", one.ports["a"], name)
    said = [line.split(maxsplit=1) for line in ended.stdout.splitlines()]
    assert [which for which, _ in said].count("parent") == 1, ended.stderr
    holds = sorted([float(each) for each in rest.split()] for which, rest in said if which == "child")
    assert len({token for token, _, _ in holds}) == 4
    for (_, _, ended_at), (_, began, _) in zip(holds, holds[1:], strict=False):
        assert ended_at <= began
    assert [rest for which, rest in said if which == "renew"] == [
        f"{name}:parents: the lock is held by the process that was forked"
    ] * 4
    assert view.is_free(name) and view.is_free(f"{name}:parents")


@pytest.mark.module
def test_r55_a_session_ends_with_the_parent(flavour, one, view, name):
    parent = subprocess.Popen(
        command(flavour, "session", one.ports["a"], name), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout.readline() == "held\n" and not view.is_free(name)
    parent.send_signal(signal.SIGKILL)
    until("it is free", lambda: view.is_free(name), 20)
    parent.stdin.close()  # The child has waited for this.
    parent.stdout.close()
    parent.wait()


def test_r56_no_descriptors_left(flavour, one, view, name):
    ended = run(flavour, "descriptors", one.ports["a"], name)
    assert ended.stdout.splitlines() == ["Too many open files", " ".join(map(str, range(100)))], ended.stderr
    assert view.is_free(name)


def test_r57_the_wrong_client(flavour):
    pool, sentinel = redis.ConnectionPool(), redis.Sentinel([("127.0.0.1", 1)])
    wrong = ["redis://127.0.0.1", b"", None, {}, pool, sentinel, sentinel.slave_for("locks"), flavour.other_kind()]
    for client in wrong:
        with pytest.raises(TypeError) as raised:
            flavour.new(client)
        assert f"wants a {flavour.client_kind.__module__.rpartition('.')[0]}.Redis" in str(raised.value), client


def test_r58_options_that_there_are_not(flavour, servers):
    one = servers("one")
    locks = flavour.locks(one.ports["a"])
    wrong = [{"waitt": 3}, {"wait": "3"}, {"wait": True}, {"lease": None}, {"renew": "no"}, {"limit": 1.5}, {"owner": 7}]
    for options in [*wrong, {"min_replicas": "1"}, {"shared": 1}]:
        with pytest.raises(TypeError) as raised:
            locks.acquire("orders", **options)
        assert next(iter(options)) in str(raised.value)
        with pytest.raises(TypeError):
            flavour.new(flavour.client_kind(), **options)
    with pytest.raises(TypeError):
        locks.acquire("orders", retry_timeout=1)  # one of Locks only
    with pytest.raises(TypeError):
        flavour.new(flavour.client_kind(), hooks=print)
    for name, error in ((None, TypeError), (7, TypeError), ("", ValueError), (b"", ValueError)):
        for use in (locks.acquire, locks.try_acquire, locks.real, locks.info):
            with pytest.raises(error):
                use(name)
    assert View(one.at("a")).clients() == []
    locks.close()


def test_r59_what_failed_first(flavour, servers, name):
    one = servers("one")
    port = one.ports["a"]
    locks = flavour.locks(port)
    one.tell("kill", "a")
    with pytest.raises(fairlock.NotInTime) as raised:
        locks.acquire(name, wait=0.5)
    assert str(raised.value) == f"{name}: not acquired within 0.5 s: localhost:{port}: Connection refused"
    assert isinstance(raised.value.__cause__, redis.ConnectionError)
    one.tell("start", "a")
    held = locks.acquire(name)
    with pytest.raises(fairlock.NotInTime) as raised:
        locks.acquire(name, wait=0.1)
    assert str(raised.value) == f"{name}: not acquired within 0.1 s: localhost:{port}"
    held.release()
    locks.close()


def test_r59_the_wrong_password_or_none(flavour, servers, name):
    one = servers("one")
    port = one.ports["a"]
    one.at("a").config_set("requirepass", "secret")
    start = time.monotonic()
    for options, code, hint in (({"password": "wrong"}, "WRONGPASS", "password"), ({}, "NOAUTH", "give the client a password")):
        locks = flavour.locks(port, client_options=options)
        with pytest.raises(fairlock.Refused) as raised:
            locks.acquire(name)
        text = str(raised.value)
        assert raised.value.code == code and text.startswith(f"{name}: localhost:{port}: {code} ") and hint in text
        locks.close()
    assert time.monotonic() - start < 20


@pytest.mark.parametrize("kind", ["one", "replica", "sentinel", "cluster"])
def test_r60_the_user_of_security_md(flavour, servers, kind):
    group = servers(kind)
    name, password = ("scripts", "secret4") if BY_SCRIPTS else ("packages", "secret")
    rule = rule_of(name)
    if kind == "cluster":
        rule.append("+command")  # RedisCluster itself asks for it, before this package has anything to say.
    for node in group.ports.keys() & set("abcd"):
        group.at(node).execute_command(*rule)
    user = {"username": name, "password": password}
    make, at = {"sentinel": (flavour.sentinel, "s"), "cluster": (flavour.cluster, "a")}.get(kind, (flavour.locks, "a"))
    locks = make(group.ports[at], client_options=user)
    use_all(flavour, locks, "app:orders", View(group.at("a")))
    locks.close()


def use_all(flavour, locks, name, view):
    held = locks.acquire(name, wait=60)
    assert locks.info(name).token == held.token and held.renew(90) == 90
    with pytest.raises(flavour.cancelled):
        locks.cancel_when(lambda: view.waits(name), name)
    with pytest.raises(fairlock.NotInTime):
        locks.acquire(name, wait=0.1)
    waiting = locks.begin(name)
    view.waits(name)
    held.release()
    waiting.result(LONGEST).release()
    for options in () if BY_SCRIPTS else ({"session": True}, {"shared": True}, {"limit": 2}):
        with locks.hold(name, **options):
            assert not view.is_free(name)
    assert view.is_free(name)


def test_r61_info(locks, view, name):
    assert locks.info(name) == fairlock.Info(None, 0, None, None, False, 0, 0, None)
    with locks.hold(name, lease=60, owner="me") as held:
        waiting = locks.begin(name)
        view.waits(name)
        info = locks.info(name)
        assert (info.owner, info.holds, info.token) == ("me", 1, held.token)
        assert 30 < info.lease <= 60 and not info.session
        assert (info.waiting, info.holders, info.limit) == (1, 1, 1)
    waiting.result(LONGEST).release()
    view.run("HSET", name, "a script", 1)
    assert locks.info(name).token is None and locks.info(name).lease is None
    view.run("DEL", name)


@pytest.mark.module
def test_r61_info_of_shared_locks(locks, name):
    with locks.hold(name, limit=3, session=True), locks.hold(name, limit=2):
        info = locks.info(name)
        assert info.session and (info.holders, info.limit) == (2, 2)


def test_r66_nothing_on_standard_error(flavour, one, name):
    ended = run(flavour, "quiet", one.ports["a"], name)
    said = ended.stderr.splitlines()
    if BY_SCRIPTS:  # the one warning of row 67
        assert "locks are taken by scripts" in said.pop(0)
    assert (ended.returncode, ended.stdout, said) == (0, "", [])
