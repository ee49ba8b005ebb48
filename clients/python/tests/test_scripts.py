"""Rows 67 to 71: servers without the module."""

import subprocess
import sys
import time

import pytest

import fairlock
from servers import HERE, View, rule_of, until, until_one

AT_ONCE = 20  # seconds
LONG = 120


@pytest.fixture
def plain(servers):
    return servers("plain")


def test_r67_locks_are_taken_by_scripts_and_a_warning_says_so(flavour, plain, name, caplog):
    locks = flavour.locks(plain.ports["a"])
    assert locks.real.native is None
    for _ in range(2):
        with locks.hold(name) as held:
            assert View(plain.at("a")).info(name)["token"] == held.token > 0
    assert locks.real.native is False
    (said,) = [record.getMessage() for record in caplog.records if record.name == "fairlock"]
    assert f":{plain.ports['a']}: the server does not have the fairlock module: locks are taken by scripts. " in said
    locks.close()


@pytest.mark.module
def test_r67_with_the_module_nothing_is_said(flavour, locks, name, caplog):
    with locks.hold(name):
        assert locks.real.native is True
    assert not [record for record in caplog.records if record.name == "fairlock"]


def test_callers_with_one_owner_share_its_place(flavour, plain, name):
    view, locks = View(plain.at("a")), flavour.locks(plain.ports["a"])
    held = locks.acquire(name)
    waiting = [locks.begin(name, owner="me") for _ in range(2)]
    view.waits(name)
    assert view.queue(name) == ["me"]
    held.release()
    first, second = [future.result(60) for future in waiting]
    assert first.token == second.token
    first.release()
    locks.close()


def test_waiters_that_are_cut_off_from_their_wake_ups_listen_anew(flavour, plain, name):
    view, locks = View(plain.at("a")), flavour.locks(plain.ports["a"], lease=LONG, patience=LONG)
    held = locks.acquire(name)
    waiting = [locks.begin(name) for _ in range(3)]
    view.waits(name, 3)
    assert view.run("CLIENT", "KILL", "TYPE", "pubsub") > 0
    view.waits(name, 3)
    start = time.monotonic()
    held.release()
    while waiting:
        until_one(waiting).result().release()
    assert time.monotonic() - start < AT_ONCE
    locks.close()


@pytest.mark.parametrize("options", [{"session": True}, {"shared": True}, {"limit": 2}, {"module": "required"}])
def test_r68_what_no_script_can_do_is_refused(flavour, plain, name, options):
    view, locks = View(plain.at("a")), flavour.locks(plain.ports["a"])
    with locks.hold(name):  # It is known by now what the server has.
        start = time.monotonic()
        with pytest.raises(fairlock.NoModule) as raised:
            locks.acquire(name, **options)
        assert time.monotonic() - start < AT_ONCE and view.queue(name) == []
    (option,) = options
    said = str(raised.value)
    assert option == "module" or f":{plain.ports['a']}: {option} needs the fairlock module, which the server does not" in said
    assert "loadmodule /path/to/libfairlock.so" in said and "\n" not in said
    locks.close()


def test_r69_the_module_is_loaded_under_a_holder_and_its_waiters(flavour, plain, name):
    view, locks = View(plain.at("a")), flavour.locks(plain.ports["a"])
    held, waiting = locks.acquire(name, lease=LONG), []
    for count in (1, 2):
        waiting.append(locks.begin(name, lease=LONG))
        view.waits(name, count)
    owners = view.queue(name)
    plain.tell("load", "a")
    assert held.renew() == LONG
    held.release()
    for owner, future in zip(owners, waiting, strict=True):
        second = future.result(60)
        assert second.owner == view.owner(name) == owner
        second.release()
    assert view.is_free(name)
    other = flavour.locks(plain.ports["a"])
    with other.hold(name, shared=True):
        assert other.real.native is True
    # A connection that has used scripts does not keep its Locks from what the module can do now.
    with locks.hold(name, shared=True):
        assert locks.real.native is True
    scripts = view.client.info("commandstats")["cmdstat_evalsha"]["calls"]
    with locks.hold(name):
        pass
    assert view.client.info("commandstats")["cmdstat_evalsha"]["calls"] == scripts
    for each in (locks, other):
        each.close()


def test_r70_a_waiter_that_was_killed_is_passed_over(flavour, plain, name):
    view, locks = View(plain.at("a")), flavour.locks(plain.ports["a"], patience=2)
    held = locks.acquire(name)
    program = [sys.executable, HERE / "programs" / "waits.py", str(plain.ports["a"]), name, flavour.name]
    with subprocess.Popen(program, stderr=subprocess.DEVNULL) as process:
        view.waits(name)
        process.kill()
    until("it is gone", lambda: view.waiting(name) == 0)
    waiting = locks.begin(name)
    view.waits(name)
    assert len(view.queue(name)) == 2
    held.release()
    waiting.result(60).release()
    assert view.queue(name) == []
    locks.close()


def test_r71_a_user_who_may_not_use_the_module_goes_on_by_scripts(flavour, plain, name, caplog):
    view, user = View(plain.at("a")), {"username": "scripts", "password": "secret4"}
    view.run(*rule_of("scripts"))
    name = f"app:{name}"
    locks, others = (flavour.locks(plain.ports["a"], client_options=user) for _ in range(2))
    held, waiting = locks.acquire(name, lease=9), []
    for count in (1, 2):
        waiting.append(locks.begin(name))
        view.waits(name, count)
    plain.tell("load", "a")
    # What opens connections: they must not lead the others to the module.
    with pytest.raises(fairlock.NotInTime):
        others.acquire(name, wait=0)
    for each in (locks, others):
        for options in ({"session": True}, {"shared": True}):
            with pytest.raises(fairlock.Refused) as raised:
                each.acquire(name, **options)
            assert raised.value.code == "NOPERM"
    held.renew()
    held.release()
    for future in waiting:
        following = future.result(60)
        following.renew()
        assert locks.info(name).owner == following.owner
        following.release()
    assert (locks.real.native, others.real.native) == (False, False)
    said = [record.getMessage() for record in caplog.records if record.name == "fairlock"]
    assert [f":{plain.ports['a']}: the user may not run the commands of the fairlock module: " in each for each in said] == [False, True]
    for each in (locks, others):
        each.close()


def test_a_server_that_does_not_know_role_is_a_master(flavour, servers, name):
    locks = flavour.locks(servers("plain", "--rename-command", "ROLE", "HIDDEN").ports["a"])
    with locks.hold(name) as held:
        held.renew()
    locks.close()
