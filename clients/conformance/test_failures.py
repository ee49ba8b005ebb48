"""One server that fails, refuses, is cut off, or is not there."""

import time

import pytest
from driving import NULLABLE, TYPED, Failed, loss_of
from servers import on, until
from view import AT_ONCE, LONG, release_in_turn, rule_of, waiting


def test_r27_release_unheard(driver, own, name):
    """The reply to RELEASE is lost: release succeeds, the lock is free."""
    locks = driver.new(own.through_proxy())
    held = locks.acquire(name)
    own.lose("release")
    held.release()
    assert own.proxy().lost == 1 and own.view().is_free(name)


def test_r27a_release_not_sent(driver, own, name):
    """No server for `release_timeout`: release fails, not before, and the lock is not renewed any more."""
    locks = driver.new(own.through_proxy(), release_timeout=0.7, command_timeout=1)
    held = locks.acquire(name, lease=4)
    own.proxy().cut()
    start = time.monotonic()
    with pytest.raises(Failed):
        held.release()
    assert time.monotonic() - start >= 0.7
    own.proxy().mend()
    until("its lease has ended", lambda: own.view().is_free(name))


def test_r28a_and_then_refused(driver, own, name):
    """The reply to ACQUIRE is lost, the next ask refused (OOM): no hold is left."""
    view, proxy, locks = own.view(), own.proxy(), driver.new(own.through_proxy(), lease=LONG)
    locks.acquire(name).release()
    proxy.freeze()
    call = locks.begin(name)
    until("the server has granted it", lambda: not view.is_free(name))
    view.client.config_set("maxmemory", 1)
    proxy.cut()
    proxy.mend()
    assert call.failure().code == "OOM"
    until("it is free", lambda: view.is_free(name))


def test_r30_restart(driver, servers, name):
    """The server restarts while callers wait: they get the lock in order, with the same owners."""
    one = servers("one", "--appendfsync", "always")
    view, locks = one.view(), driver.new(one.client(), patience=LONG)
    view.acquire(name, lease=LONG)
    calls = waiting(locks, view, name, 2)
    owners = view.queue(name)
    one.kill()
    one.start()
    view.waits(name, 2)
    assert view.queue(name) == owners
    view.release(name)
    release_in_turn(calls, owners, view, name)


def test_r42_refused(driver, own, name, mode):
    """A string is WrongType; a hash that is no lock is NotALock; with the module, QUEUEFULL is QueueFull; each with code and text."""
    view, locks = own.view(), driver.new(own.client())
    for words, kind, code in (("SET", "hello"), "WrongType", "WRONGTYPE"), (("HSET", "name", "Ann"), "NotALock", "NOTALOCK"):
        view.run(words[0], name, *words[1:])
        failed = locks.fails(name)
        assert (failed.type, failed.code) == (kind, code) and code in failed.text
        view.breaks(name)
    if mode == "module":
        own.at().config_set("fairlock.max-waiters", 1)
        locks.acquire(name)
        waiting(locks, view, name, 1)
        failed = locks.fails(name)
        assert (failed.type, failed.code) == ("QueueFull", "QUEUEFULL") and "QUEUEFULL" in failed.text


def test_r44_nothing_listens(driver, own, name):
    """Nothing listens: Unavailable after `retry_timeout`; NotInTime or Unavailable when `wait` is over, and for `try_acquire`. The error names lock,
    address and, as its cause, the first failure. A server that starts in time is used."""
    driver.new(own.client()).acquire(name).release()  # A process that is only starting has no time for a failure.
    own.kill()
    locks, hasty, other = driver.new(own.client(), retry_timeout=LONG), driver.new(own.client(), retry_timeout=0.3, command_timeout=2), f"{name}:other"
    call, at = locks.begin(name), str(own.port("a"))
    assert hasty.fails(name).type == "Unavailable"
    for failed in hasty.fails(other), locks.fails(other, wait=8), locks.begin(other, op="tryAcquire").failure():
        assert failed.type in ("NotInTime", "Unavailable") and failed.because and "refused" in failed.text.lower()
        assert other in failed.text and at in failed.text
    assert not call.done()
    own.start()
    held = call.result()
    failed = locks.fails(name, wait=5)
    assert failed.type == "NotInTime" and not failed.because and name in failed.text and at in failed.text
    held.release()


@pytest.mark.module
def test_r44a_less_often(driver, own, name):
    """A refusal that may pass (NOREPLICAS) is met by asking again, less and less often; after `retry_timeout` it is Unavailable. With `wait=0`, too, for
    `command_timeout`."""
    locks = driver.new(own.client(), retry_timeout=2, command_timeout=2)
    locks.acquire(name).release()  # A process that is only starting may not be connected in time.
    own.at().config_set("min-replicas-to-write", 1)
    asked = 0
    for options in ({}, {"wait": 0}):
        assert locks.fails(name, **options).type in ("Unavailable", "NotInTime" if options else None)
        before, asked = asked, own.at().info("commandstats")["cmdstat_fairlock.acquire"]["rejected_calls"]
        assert asked - before < 20  # 40 if the first pause were the last one, too


@pytest.mark.module
def test_r45_out_of_range(driver, own, name):
    """Arguments out of range are refused, nothing was sent."""
    locks, connected = driver.new(own.client()), own.at().info("stats")["total_connections_received"]
    wrong = [("lease", 0), ("lease", -1), ("wait", -1), ("sync_timeout", -1), ("limit", 0), ("limit", 1_000_001), ("owner", ""), ("owner", "x" * 257), ("owner", "*"), ("name", "")]
    for option, value in wrong:
        if driver.language != "rust" or value != -1:  # which does not compile there
            assert locks.fails(**{"name": name, option: value}).type == "Argument", (option, value)
    assert own.at().info("stats")["total_connections_received"] <= connected + 1 and own.view().calls("acquire") == 0


def test_r46_close(driver, own, name):
    """Closing Locks: waits end with Closed, held locks are lost with cause `closed`, connections close; the user's client still works."""
    view, locks = own.view(), driver.new(own.client())
    held = locks.acquire(name)
    (call,) = waiting(locks, view, name, 1)
    lost = held.losing()
    locks.close(ping=True)
    assert call.failure().type == "Closed"
    assert view.queue(name) == [] and loss_of(lost) == "closed"
    until("all connections are closed", lambda: view.clients() == [])


def test_r46a_close_while_releasing(driver, own, name):
    """Closing Locks, and then its client, while a release is under way: that succeeds, and connections close."""
    view, locks = own.view(), driver.new(own.through_proxy())
    held = locks.acquire(name)
    own.lose("release", only_held=True)
    call = driver.begin("release", of=held.id)
    until("it is free", lambda: view.is_free(name))
    driver.locks.remove(locks)
    closing = driver.begin("close", of=locks.id, ping=True)
    own.proxy().mend()
    closing.result()
    call.result()
    until("all connections are closed", lambda: not view.clients())


@pytest.mark.module
@pytest.mark.parametrize(("option", "value"), [
    ("waitt", 3), ("wait", "3"), ("wait", True), ("lease", None), ("renew", "no"), ("limit", 1.5), ("owner", 7), ("min_replicas", "1"), ("shared", 1),
    ("retry_timeout", 1), ("name", None), ("name", 7),
])  # fmt: skip
def test_r58_unknown_or_wrong(driver, one, name, option, value):
    """Unknown options and wrong types are refused at once (unless by the compiler)."""
    if driver.language in TYPED and (driver.language not in NULLABLE or not (value is None or option == "retry_timeout")):
        pytest.skip("the compiler refuses it")
    locks = driver.new(one.client())
    assert locks.fails(**{"name": name, option: value}).type == "Argument"
    if option not in ("name", "retry_timeout"):
        with pytest.raises(Failed, match="Argument"):
            driver.new(one.client(), **{option: value})


@pytest.mark.parametrize(("code", "password", "hint"), [("WRONGPASS", "wrong", "password"), ("NOAUTH", None, "a password")])
def test_r59a_passwords(driver, own, name, code, password, hint):
    """WRONGPASS and NOAUTH are refused at once, with code and hint."""
    own.at().config_set("requirepass", "secret")
    failed = driver.new(own.client(password=password)).begin(name).failure(AT_ONCE)
    assert (failed.type, failed.code) == ("Refused", code) and hint in failed.text
    assert name in failed.text and str(own.port("a")) in failed.text


def test_r59b_denied(driver, own, name, mode):
    """NOPERM is refused with a hint: to the user's rule; where ROLE or WAIT is missing to `sync_timeout`, and the grant is given back."""
    view, locks = own.view(), driver.new(own.client(username="worker", password="secret"))
    rights = ["+@all", "-evalsha", "-eval"] + (["-fairlock.acquire"] if mode == "module" else [])
    view.run("ACL", "SETUSER", "worker", "on", ">secret", "~*", "&*", *rights)
    failed = locks.fails(name)
    assert (failed.type, failed.code) == ("Refused", "NOPERM") and "SECURITY.md" in failed.text
    for command, options in ("role", {}), ("wait", {"min_replicas": 1}):
        view.run("ACL", "SETUSER", "worker", "+@all", f"-{command}")
        locks = driver.new(own.client(username="worker", password="secret"))  # The first may have asked for the role already.
        failed = locks.fails(name, **options)
        assert failed.code == "NOPERM" and "synctimeout" in failed.text.replace("_", "").lower() and view.is_free(name)
    locks.acquire(name, sync_timeout=0).release()


@pytest.mark.parametrize("kind", ["one", "cluster"])
def test_r59c_may_not_listen(driver, servers, name, kind):
    """A user that may not listen to a lock's wake-ups: NOPERM is refused at once, and QUEUE is empty; other locks are waited for."""
    group, name, other = servers(kind), on("a", name), on("a", f"{name}:other")
    for node in group.servers:
        group.at(node).execute_command(*"ACL SETUSER worker on >secret ~* resetchannels &*:other* +@all".split())
    view, locks = group.view(), driver.new(group.client(username="worker", password="secret"), patience=LONG)
    for each in (name, other):
        view.acquire(each)
    call, refused = locks.begin(other), locks.begin(name)
    failed = refused.failure(AT_ONCE)
    assert (failed.type, failed.code) == ("Refused", "NOPERM") and view.queue(name) == []
    until("the other is listened for", lambda: view.listened_for(other) == 1)
    view.release(other)
    call.result(AT_ONCE).release()


@pytest.mark.parametrize("kind", ["one", "replica", "sentinel", "cluster"])
def test_r60_permissions(driver, shared, name, kind, mode):
    """The user `packages` of SECURITY.md (by scripts: `scripts`) can do all, also with a replica, a Sentinel, a cluster."""
    group, name = shared(kind, mode), on("a", f"app:{name}")
    user, password = ("scripts", "secret4") if mode == "scripts" else ("packages", "secret")
    # Cluster clients of some libraries ask for COMMAND themselves, before the package has anything to say.
    rule = [*rule_of(user), "+command"] if kind == "cluster" else rule_of(user)
    for node in group.servers.keys() & set("abcd"):
        group.at(node).execute_command(*rule)
    view, locks = group.view(), driver.new(group.client(username=user, password=password), sync_timeout=3)
    held = locks.acquire(name)
    assert locks.info(name)["token"] == held.token and held.renew(90) == 90
    assert locks.fails(name, wait=0.1).type == "NotInTime"
    (call,) = waiting(locks, view, name, 1)
    held.release()
    call.result().release()
    for options in () if mode == "scripts" else ({"session": True}, {"shared": True}, {"limit": 2}):
        held = locks.acquire(name, **options)
        assert not view.is_free(name)
        held.release()
    assert view.is_free(name)
