"""What is idiom in Python; the rows are tested by clients/conformance, whose servers are used here, too."""

import asyncio
import contextlib
import gc
import itertools
import linecache
import os
import pathlib
import pickle
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest.mock
import weakref
from types import SimpleNamespace

import fakeredis
import pytest
import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.backoff
import redis.retry
import redis.sentinel
from servers import Servers, until

import fairlock
import fairlock.aio
from fairlock._io import Listener
from fairlock._options import Options
from fairlock._threads import Mutex, Threads, finish

README = (pathlib.Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
numbers = itertools.count()


@pytest.fixture(scope="session")
def one():
    made = Servers("one")
    yield made
    made.end()


@pytest.fixture
def view(one):
    return one.view()


@pytest.fixture
def name(request):
    return f"lock:{request.node.name}:{next(numbers)}"


@pytest.fixture
def locks(one):
    with fairlock.Locks(redis.Redis(port=one.port("a")), lease=9) as made:
        yield made


def run(one, work, **options):
    """A coroutine function that is given the Locks of asyncio."""

    async def main():
        async with redis.asyncio.Redis(port=one.port("a")) as client, fairlock.aio.Locks(client, **options) as locks:
            return await asyncio.wait_for(work(locks), 60)

    return asyncio.run(main())


def test_the_errors_are_those_of_python_too():
    assert issubclass(fairlock.NotInTime, TimeoutError) and issubclass(fairlock.NotReplicated, fairlock.NotInTime)
    assert issubclass(fairlock.Unavailable, ConnectionError)


@pytest.mark.parametrize("error", [fairlock.LockLost("lost", "lease"), fairlock.Refused("refused", "OOM")], ids=str)
def test_an_error_arrives_from_the_process_of_a_pool(error):
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeoutError])
def test_an_interrupted_thread_leaves_the_queue(locks, view, name, error):
    def interrupt():
        view.waits(name)
        time.sleep(0.3)  # It has begun to listen, and pauses.
        os.kill(os.getpid(), signal.SIGALRM)

    def handle(*_):
        raise error("alarm")

    signal.signal(signal.SIGALRM, handle)
    with locks.acquire(name):
        threading.Thread(target=interrupt).start()
        with pytest.raises(error, match="^alarm$"):
            locks.acquire(name, wait=9)
        assert view.queue(name) == []


def test_cancelling_a_task_at_any_moment_leaves_nothing(one, view, name):
    async def work(locks):
        for moment in range(200):
            task = asyncio.create_task(locks.acquire(name))
            await asyncio.sleep(moment / 100_000)
            if not task.done():
                task.cancel()
            (held,) = await asyncio.gather(task, return_exceptions=True)
            if not isinstance(held, BaseException):
                await held.release()
            assert view.is_free(name) and view.queue(name) == [], moment

    run(one, work)


def test_what_a_task_forgets_waits_for_no_collection(one, view, name):
    async def forgotten(locks):
        return weakref.ref(await locks.acquire(name))

    gc.disable()
    try:
        assert run(one, lambda locks: asyncio.create_task(forgotten(locks)))() is None
    finally:
        gc.enable()


def test_a_block_goes_on_after_the_thread_that_entered_it(locks, name):
    with contextlib.ExitStack() as block:  # As a fixture, or a web framework's dependency.
        thread = threading.Thread(target=lambda: block.enter_context(locks(name, lease=2)))
        thread.start()
        thread.join()
        time.sleep(2.5)


def test_a_block_goes_on_after_the_task_that_entered_it(one, name):
    async def work(locks):
        async with contextlib.AsyncExitStack() as block:
            await asyncio.create_task(block.enter_async_context(locks(name, lease=2)))
            await asyncio.sleep(2.5)

    run(one, work)


def test_a_lock_that_is_granted_while_locks_closes_is_given_back(one, view, name):
    outcomes = []

    def wait():
        try:
            outcomes.append(locks.acquire(name))
        except fairlock.Closed as closed:
            outcomes.append(closed)

    def on_lost(_):  # In the middle of `close`.
        view.release(name)
        thread.join()

    locks = fairlock.Locks(redis.Redis(port=one.port("a")), hooks=fairlock.Hooks(on_lost=on_lost))
    held, thread = locks.acquire(f"{name}:other"), threading.Thread(target=wait)
    view.acquire(name)
    thread.start()
    view.waits(name)
    locks.close()
    assert held.lost.cause == "closed" and isinstance(outcomes[0], fairlock.Closed) and view.is_free(name)


def test_no_thread_is_left_after_the_release(locks, view, name):
    before = view.calls("renew")
    with locks(name, lease=9):
        until("it is renewed", lambda: view.calls("renew") > before)
    until("none is left", lambda: not [thread for thread in threading.enumerate() if thread.name == "fairlock"])


def test_no_task_is_left_after_the_release(one, name):
    async def work(locks):
        async with locks(name, lease=9):
            await asyncio.sleep(3.2)  # It is renewed after three seconds.
        while len(asyncio.all_tasks()) > 2:  # this one and wait_for's
            await asyncio.sleep(0.01)

    run(one, work)


@pytest.mark.parametrize("kind", [redis, redis.asyncio], ids=["threads", "tasks"])
def test_what_is_no_client_is_refused(kind):
    new, other = (fairlock.Locks, redis.asyncio) if kind is redis else (fairlock.aio.Locks, redis)
    pool, sentinel = redis.ConnectionPool(), kind.sentinel.Sentinel([("127.0.0.1", 1)])
    wrappers = [unittest.mock.Mock(spec=kind.Redis), kind.Redis().pipeline(), type("Redis", (), {"connection_pool": pool})()]
    for client in ["redis://127.0.0.1", b"", None, {}, pool, sentinel, sentinel.slave_for("locks"), other.Redis(), *wrappers]:
        with pytest.raises(TypeError, match=f"wants a {kind.__name__}.Redis"):
            new(client)


def test_a_subclass_of_the_client_works(one, view, name):
    client = type("Ours", (redis.Redis,), {})(port=one.port("a"), decode_responses=True)
    with fairlock.Locks(client) as locks, locks(name) as held:
        assert locks.info(name).owner == held.owner == view.owner(name)


def test_a_function_is_decorated(locks, view, name):
    @locks(name)
    def owner():
        return view.owner(name)

    assert owner() and owner() and view.is_free(name)


def test_a_renewal_whose_thread_cannot_start_is_tried_again(locks, view, name, monkeypatch):
    start, refused = threading.Thread.start, []

    def refuse(thread):
        if thread.name == "fairlock" and len(refused) < 3:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    before = view.calls("renew")
    with locks(name, lease=9), locks(f"{name}:other", lease=9):
        until("both are renewed", lambda: view.calls("renew") >= before + 2)
    assert len(refused) == 3


@pytest.mark.parametrize("flavour", ["threads", "tasks"])
def test_children_that_are_forked_share_nothing(one, view, name, flavour):
    program = [sys.executable, pathlib.Path(__file__).with_name("fork.py"), str(one.port("a")), name, flavour]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=120)
    said = f"{name}:parents: the lock is held by the process that was forked"
    assert (ended.returncode, ended.stdout.splitlines()) == (0, [said] * 4), ended.stderr
    assert view.is_free(name) and view.is_free(f"{name}:parents")


def test_a_session_ends_with_the_parent_although_a_child_lives_on(one, view, name):
    program = f"""
import os, signal, sys, redis, fairlock
locks = fairlock.Locks(redis.Redis(port={one.port("a")}), lease=120)
held = locks.acquire({name!r}, session=True)
if os.fork() == 0:
    print("held", flush=True)
    sys.stdin.read()
    os._exit(0)
signal.pause()
"""
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout.readline() == "held\n" and not view.is_free(name)
        parent.kill()
        until("it is free", lambda: view.is_free(name), longest=20)
        parent.stdin.close()  # The child has waited for this.


def test_a_caller_waits_for_its_turn_to_ask_no_longer_than_for_the_lock():
    def ask(name):
        with pytest.raises(fairlock.NotInTime):
            locks.acquire(name, wait=0.2)
        ended.append(name)

    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = redis.Redis(port=silent.getsockname()[1], socket_timeout=4, retry=redis.retry.Retry(redis.backoff.NoBackoff(), 0))
        locks, ended, start = fairlock.Locks(client), [], time.monotonic()
        callers = [threading.Thread(target=ask, args=(f"lock {number}",)) for number in range(17)]
        for caller in callers:
            caller.start()
        until("one has ended", lambda: ended)
        assert time.monotonic() - start < 4  # The others connect for that long.
        for caller in callers:
            caller.join()


def test_an_error_that_a_signal_raises_at_any_line_leaves_the_lock_to_others(locks, name):
    def interrupted(at):
        lines = itertools.count()

        def trace(frame, event, _):
            code = frame.f_code
            is_there = "fairlock" in code.co_filename and code.co_name in ("acquire", "_acquire", "_try_first")
            # Python itself lets no signal in between a lock and its block.
            if is_there and not linecache.getline(code.co_filename, frame.f_lineno).strip().startswith("with "):
                if event == "line" and next(lines) == at:
                    raise KeyboardInterrupt
            return trace

        sys.settrace(trace)
        try:
            locks.acquire(f"{name}:{at}", lease=1).release()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(None)
        return False

    for at in itertools.takewhile(interrupted, itertools.count()):
        locks.acquire(f"{name}:{at}", wait=9).release()
    assert at > 20


def test_an_exception_that_a_signal_raises_takes_no_place_to_ask(monkeypatch):
    locks, enter = fairlock.Locks(fakeredis.FakeRedis()), Threads.enter

    async def enter_and_end(*given):
        await enter(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Threads, "enter", enter_and_end)
        for _ in range(16):
            with pytest.raises(KeyboardInterrupt):
                locks.acquire("orders")
    locks.acquire("orders", wait=1).release()


def test_a_cluster_whose_client_never_answers_is_asked_for_so_long_only():
    async def never(*_):
        await asyncio.Event().wait()

    io = fairlock.aio.Tasks.__new__(fairlock.aio.Tasks)
    io.client, io.is_cluster = SimpleNamespace(execute_command=never, initialize=never), True
    io.core = SimpleNamespace(options=Options(command_timeout=0.05))

    async def main():
        await io.refresh("orders")
        with pytest.raises(TimeoutError, match="^$"):
            await io.route("orders")

    asyncio.run(asyncio.wait_for(main(), 5))


def test_a_connection_that_the_library_closes_while_it_is_written_to_has_failed():
    async def gone(*_):
        raise AttributeError("'NoneType' object has no attribute 'writelines'")

    async def main():
        await io.refresh("orders")
        with pytest.raises(redis.ConnectionError, match="writelines"):
            await io.send(SimpleNamespace(get_connection=gone), [], 1)

    io = fairlock.aio.Tasks.__new__(fairlock.aio.Tasks)
    io.client, io.core = SimpleNamespace(execute_command=gone), SimpleNamespace(options=Options())
    asyncio.run(main())


@pytest.mark.parametrize("error", [redis.ConnectionError("reset"), AttributeError("no attribute 'sendall'"), ValueError("closed file")])
def test_a_connection_that_listens_is_over_once_it_cannot_be_written_to(error):
    def fails(*_, **__):
        raise error

    listener = Listener(SimpleNamespace(mutex=threading.Lock), None, SimpleNamespace(send_command=fails))
    with pytest.raises(redis.ConnectionError, match=str(error)):
        finish(listener.send("UNSUBSCRIBE", b"channel"))
    assert listener.is_over


def test_a_locks_that_was_refused_in_another_event_loop_closes_at_once(one, name):
    locks = fairlock.aio.Locks(redis.asyncio.Redis(port=one.port("a")), command_timeout=60)

    async def use():
        async with locks(name):
            pass

    asyncio.run(use())
    with pytest.raises(RuntimeError, match="another event loop"):
        asyncio.run(use())
    start = time.monotonic()
    asyncio.run(locks.aclose())
    assert time.monotonic() - start < 30


@pytest.mark.parametrize("error", [ValueError("closed file"), TypeError("argument must be an int, or have a fileno() method.")])
def test_a_connection_that_is_cut_while_it_is_read_ends_quietly(error):
    async def fails(_):
        raise error

    pool, connection = SimpleNamespace(release=lambda _: None), SimpleNamespace(disconnect=lambda _: None)
    listener = Listener(SimpleNamespace(mutex=Mutex, receive=fails), pool, connection)
    finish(listener.read())
    assert listener.is_over


def test_tasks_need_no_server():
    async def main():
        async with fairlock.aio.Locks(fakeredis.FakeAsyncRedis()) as locks:
            held = await locks.acquire("orders")
            task = asyncio.create_task(locks.acquire("orders"))
            while not (await locks.info("orders")).waiting:
                await asyncio.sleep(0.01)
            await held.release()
            await (await task).release()

    asyncio.run(main())


def test_the_tests_of_the_readme_pass():
    program = re.search(r"^## Tests.*?```python\n(.*?)```", README, re.DOTALL | re.MULTILINE)[1]
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
