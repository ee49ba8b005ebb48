"""What users of other lock libraries met, and what passes or works must stay so."""

import socket
import threading

import pytest
import redis
from driving import Failed
from redis_server import command_of
from servers import HOST, on, until
from view import LONG, waiting

pytestmark = pytest.mark.module
SECONDS = 30  # where the alternative is a minute, or for ever
FOREVER = 1e11  # seconds


def keep_busy(one, name):
    """A script that the server runs for some seconds, in which it answers everybody BUSY; then it deletes a lock."""
    script = "local ends = redis.call('TIME')[1] + 3; repeat until redis.call('TIME')[1] + 0 >= ends; redis.call('DEL', KEYS[1])"

    def is_busy():
        try:
            return not one.at().ping()
        except redis.RedisError as error:
            return "BUSY" in str(error)

    one.at().config_set("busy-reply-threshold", 100)
    with socket.create_connection((HOST, one.port("a"))) as connection:
        connection.sendall(command_of(("EVAL", script, 1, name)))
        until("it is busy", is_busy)


def test_r72_busy(driver, own, name):
    """BUSY at an acquisition, a renewal and a release: they are sent again. NOTHELD after it is a loss. A session that is checked meanwhile is not
    lost."""
    locks = driver.new(own.client(), lease=LONG)
    held, other = locks.acquire(f"{name}:held"), locks.acquire(f"{name}:other")
    session, gone = locks.acquire(f"{name}:session", session=True, lease=6), locks.acquire(f"{name}:gone")
    keep_busy(own, gone.name)
    call, released, lost = locks.begin(name, wait=LONG), *(driver.begin("release", of=each.id) for each in (other, gone))
    assert held.renew() == LONG
    released.result()
    call.result().release()
    assert own.view().is_free(other.name) and session.lost(0) is None and lost.failure().type == "LockLost"


def test_r74_maxclients(driver, own, name):
    """The server has `maxclients` for some seconds: a caller, a waiter and a release get through afterwards."""
    proxy, view, locks = own.proxy(), own.view(), driver.new(own.through_proxy(), lease=LONG)
    held = locks.acquire(name)
    call = locks.begin(name)
    until("it waits", lambda: view.waiting(name) == 1)
    view.client.config_set("maxclients", 1)
    proxy.cut()
    proxy.mend()
    fresh = driver.new(own.client(), lease=LONG).begin(f"{name}:fresh")
    released = driver.begin("release", of=held.id)
    threading.Event().wait(3)
    view.client.config_set("maxclients", 1000)
    released.result()
    for each in (call, fresh):
        each.result().release()


@pytest.mark.parametrize("session", [False, True], ids=["", "session"])
def test_r75_half_open(driver, own, name, session):
    """A connection dies without a word while its caller waits: it gets the lock within seconds of its release."""
    view, locks = own.view(), driver.new(own.through_proxy(), lease=9, patience=9, command_timeout=2, session=session)
    view.acquire(name)
    (call,) = waiting(locks, view, name, 1)
    own.proxy().half_open()
    view.release(name)
    until("it has it", call.done, longest=SECONDS)
    call.result().release()


def test_r75a_half_open_from_the_start(driver, own, name):
    """A connection dies without a word while it is made for a release: another one is made, and that succeeds."""
    proxy, locks = own.proxy(), driver.new(own.through_proxy(), lease=LONG, command_timeout=3, release_timeout=10)
    held = locks.acquire(name)
    proxy.cut()
    proxy.mend()
    proxy.lose("hello", "client", "fairlock.release", only_held=True)  # What the library says first.
    call = driver.begin("release", of=held.id)
    until("it is being made", lambda: proxy.stopped)
    proxy.half_open()
    proxy.mend()
    call.result()
    assert own.view().is_free(name)


def test_r76_for_ever(driver, own, name):
    """Any length of time works, also "for ever" as a number, or is refused at once with its range; other locks are still renewed."""
    used = []
    view = own.view()
    for option in ("wait", "lease", "patience", "command_timeout", "release_timeout", "retry_timeout", "sync_timeout"):
        lock = f"{name}:{option}"
        try:
            locks = driver.new(own.client(), **{option: FOREVER})
            used.append((locks.acquire(lock), *waiting(locks, view, lock, 1), locks.acquire(f"{lock}:other", lease=9)))
        except Failed as failed:
            assert failed.type == "Argument" and any(letter.isdigit() for letter in failed.text)
    connected = view.client.info("stats")["total_connections_received"]
    assert all(other.lost(10 if number == 0 else 0) is None for number, (_, _, other) in enumerate(used))
    assert view.client.info("stats")["total_connections_received"] < connected + 20
    for held, call, other in used:
        assert held.lost(0) is None
        for each in (held, other):
            each.release()
        call.result().release()
        assert view.is_free(held.name)


@pytest.mark.parametrize("kind", ["one", "sentinel", "cluster"])
def test_r79_mutual_tls(driver, servers, certificates, name, kind):
    """TLS with a client's certificate: one server, Sentinel, a cluster: acquired, waited for, a session."""
    group = servers(kind, tls=True)
    cert, key = (f"{certificates}/{each}.pem" for each in ("cert", "key"))
    locks, lock = driver.new(group.client(tls={"ca": cert, "cert": cert, "key": key})), on("a", name)
    held = locks.acquire(lock, wait=SECONDS)
    (call,) = waiting(locks, group.view(), lock, 1, session=True)
    held.release()
    call.result().release()
    assert group.view().is_free(lock)
    locks.close(ping=True)
