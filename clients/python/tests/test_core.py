"""The machine without a server: the steps that it takes, and what it makes of what comes of them."""

import asyncio
import threading
from types import SimpleNamespace

import pytest
import redis.exceptions as redis_errors

import fairlock
from fairlock._core import Core
from fairlock._options import Options
from fairlock.aio import Tasks


@pytest.fixture
def core():
    timer = SimpleNamespace(set=lambda *_: None, clear=lambda *_: None)
    kinds = {"mutex": threading.Lock, "bell": threading.Event, "gate": threading.Semaphore, "lost": threading.Event}
    made = Core(Options(), SimpleNamespace(where="here", is_cluster=False, timer=timer, **kinds))
    made.now, made.replicas[None] = lambda: 1000.0, 0
    return made


def steps(work, *results):
    """The steps that it takes, given what comes of them; at the end its result or error."""
    taken, results = [], iter(results)
    try:
        step = next(work)
        while True:
            taken.append(step[2][0][0] if step[0] == "send" else step[0])
            if step[0] == "route":
                result = (None, "here", None)
            else:
                result = step[1].acquire() if step[0] == "enter" else next(results)
            step = work.throw(result) if isinstance(result, Exception) else work.send(result)
    except StopIteration as end:
        return taken, end.value
    except fairlock.FairlockError as error:
        return taken, error


def acquire(core, *results, **options):
    taken, result = steps(core.acquire(core.ask("orders", Options().but(options))), *results)
    return [step for step in taken if step not in ("enter", "route")], result


def test_a_free_lock_is_one_request(core):
    taken, hold = acquire(core, [7])
    assert taken == ["FAIRLOCK.ACQUIRE"] and hold.token == 7 and hold.end == 1030


def test_a_waiter_listens_asks_again_and_then_waits_for_its_bell(core):
    taken, hold = acquire(core, [[1, 500]], None, [[1, 500]], None, [9])
    assert taken == ["FAIRLOCK.ACQUIRE", "listen", "FAIRLOCK.ACQUIRE", "listen", "FAIRLOCK.ACQUIRE"] and hold.token == 9


def test_a_lost_reply_is_asked_again_and_a_refusal_then_leaves(core):
    taken, error = acquire(core, redis_errors.ConnectionError("cut"), None, [redis_errors.OutOfMemoryError("no")], [0], [0])
    assert taken == ["FAIRLOCK.ACQUIRE", "pause", "FAIRLOCK.ACQUIRE", "FAIRLOCK.CANCEL", "FAIRLOCK.RELEASE"]
    assert isinstance(error, fairlock.Refused) and error.code == "OOM"


def test_too_few_replicas_give_the_lock_back(core):
    taken, error = acquire(core, [7, 0], [0], [0], min_replicas=1, wait=0)
    assert taken == ["FAIRLOCK.ACQUIRE", "FAIRLOCK.CANCEL", "FAIRLOCK.RELEASE"] and isinstance(error, fairlock.NotReplicated)


def test_the_role_is_asked_once_for_each_server(core):
    core.replicas.clear()
    assert acquire(core, [[b"master", 0, [b"one"]]], [7, 1])[0] == ["ROLE", "FAIRLOCK.ACQUIRE"]
    assert acquire(core, [8, 1])[0] == ["FAIRLOCK.ACQUIRE"]


def test_without_the_module_scripts_are_sent_and_their_text_once(core):
    unknown = redis_errors.ResponseError("unknown command 'FAIRLOCK.ACQUIRE'")
    taken, hold = acquire(core, [unknown], [redis_errors.NoScriptError("")], [7])
    assert taken == ["FAIRLOCK.ACQUIRE", "EVALSHA", "EVAL"] and hold.token == 7 and core.native is False


def test_a_release_whose_first_reply_was_lost_has_succeeded(core):
    _, hold = acquire(core, [7])
    taken, result = steps(core.release(hold), redis_errors.TimeoutError("late"), None, [redis_errors.ResponseError("NOTHELD no")])
    assert [step for step in taken if step != "route"] == ["FAIRLOCK.RELEASE", "pause", "FAIRLOCK.RELEASE"] and result is None


def test_a_cluster_whose_client_never_answers_is_asked_for_so_long_only():
    async def never(*_):
        await asyncio.Event().wait()

    io = Tasks.__new__(Tasks)
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

    def work():
        yield "refresh", "orders"
        with pytest.raises(redis_errors.ConnectionError, match="writelines"):
            yield "send", SimpleNamespace(get_connection=gone), [], 1, None

    io = Tasks.__new__(Tasks)
    io.client, io.core = SimpleNamespace(execute_command=gone), SimpleNamespace(options=Options())
    asyncio.run(io.run(work()))
