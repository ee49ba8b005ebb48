"""The driver of the Python package (README.md beside): driver.py python-threads|python-asyncio. For threads nothing is awaited: each
operation, written once, runs to its end in a thread of its own."""

import asyncio
import contextlib
import dataclasses
import functools
import inspect
import json
import socket
import sys
import threading

import redis
import redis.asyncio

import fairlock
import fairlock.aio

IS_ASYNC = sys.argv[1] == "python-asyncio"
library, package = (redis.asyncio, fairlock.aio) if IS_ASYNC else (redis, fairlock)
made, holds, inside, tasks = {}, {}, {}, {}
writing = threading.Lock()
NAMES = {"BodyError": "Body", "CancelledError": "Cancelled", "TypeError": "Argument", "ValueError": "Argument"}
BodyError, NotApplicable = type("BodyError", (Exception,), {}), type("NotApplicable", (Exception,), {})


def say(**line):
    with writing:
        print(json.dumps(line), flush=True)


async def maybe(result):
    return await result if inspect.isawaitable(result) else result


def come_from(address):
    """All connections of this process have this address at this end."""

    class From(socket.socket):
        def connect(self, other):
            self.bind((address, 0))
            super().connect(other)

    socket.socket = From


def client_of(kind, at=(), source=None, user=None, password=None, timeout=None, tls=None, map=None):
    if source:
        come_from(source)
    nodes = [(host, int(port)) for host, port in (each.split(":") for each in at)]
    secure = {"ssl": True, "ssl_ca_certs": tls["ca"], "ssl_certfile": tls["cert"], "ssl_keyfile": tls["key"]} if tls else {}
    options = {"username": user, "password": password, **({"socket_timeout": timeout} if timeout else {}), **secure}
    if kind == "one":
        return library.Redis(host=nodes[0][0], port=nodes[0][1], **options)
    if kind == "sentinel":
        return library.Sentinel(nodes, sentinel_kwargs=secure).master_for("locks", **options)
    if kind == "cluster":
        if map:  # all of them are on one host
            options["address_remap"] = lambda at: (nodes[0][0], at[1])
        return library.RedisCluster(startup_nodes=[library.cluster.ClusterNode(*each) for each in nodes], **options)
    return {"nothing": None, "text": "redis://127.0.0.1"}[kind]


def hooks_of(locks, kind):
    def hook(which, event):
        if kind == "fail":
            raise BodyError("a hook")
        say(event="hook", locks=locks, hook=which, **{key: value for key, value in dataclasses.asdict(event).items() if value is not None})

    names = ("wait", "acquired", "lost", "released")
    return fairlock.Hooks(**{f"on_{name}": functools.partial(hook, name) for name in names})


class Within:
    """The block of either package."""

    def __init__(self, lock):
        self.enter, self.exit = (lock.__aenter__, lock.__aexit__) if IS_ASYNC else (lock.__enter__, lock.__exit__)

    async def __aenter__(self):
        return await maybe(self.enter())

    async def __aexit__(self, *error):
        return await maybe(self.exit(*error))


class Operations:
    async def new(self, id, client, options, hooks=None):
        user = client_of(**client)
        made[id] = package.Locks(user, **options, **({"hooks": hooks_of(id, hooks)} if hooks else {})), user

    async def acquire(self, id, locks, name, options, **how):
        acquire = made[locks][0].try_acquire if how.get("try") else made[locks][0].acquire
        holds[id] = held = await maybe(acquire(name, **options))
        return held and {"token": held.token, "owner": held.owner}

    async def block(self, id, locks, name, options, inner=None):
        left = inside[id] = (asyncio if IS_ASYNC else threading).Event()
        async with Within(made[locks][0](name, **options)) as held:
            holds[id], token = held, None
            if inner is not None:
                async with Within(made[locks][0](name, **inner)) as again:
                    token = again.token
            say(event="inside", id=id, token=held.token, owner=held.owner, inner=token)
            await maybe(left.wait())
            if left.fail:
                raise BodyError("the body's own")

    async def leave(self, id, block, fail=False):
        inside[block].fail = fail
        inside[block].set()

    async def abandon(self, id, locks, name, options):  # in a block that its thread or task never leaves
        block = holds[id, "block"] = Within(made[locks][0](name, **options))
        holds[id] = held = await block.__aenter__()
        return {"token": held.token, "owner": held.owner}

    async def renew(self, id, held, **lease):
        return {"lease": await maybe(holds[held].renew(**lease))}

    async def release(self, id, held):
        await maybe(holds[held].release())

    async def lost(self, id, held, wait):
        lost = holds[held].lost
        if IS_ASYNC:
            await asyncio.wait([asyncio.ensure_future(lost.wait())], timeout=wait)
        else:
            lost.wait(wait)
        return {"cause": lost.cause}

    async def cancel(self, id, call):
        if not IS_ASYNC:
            raise NotApplicable("a thread that waits cannot be cancelled")
        tasks[call].cancel()

    async def info(self, id, locks, name):
        return dataclasses.asdict(await maybe(made[locks][0].info(name)))

    async def native(self, id, locks):
        return {"native": made[locks][0].native}

    async def close(self, id, locks):
        ours, user = made.pop(locks)
        await maybe(ours.aclose() if IS_ASYNC else ours.close())
        with contextlib.suppress(redis.RedisError, redis.exceptions.RedisClusterException):  # Its server may be down.
            await maybe(user.ping())
        await maybe(getattr(user, "aclose", user.close)())  # redis-py 5.0.0 has no aclose


async def answer(op, **fields):
    work, id = getattr(Operations(), op, None), fields["id"]
    try:
        say(**({"id": id, "ok": await work(**fields) or {}} if work else {"id": id, "unknown": op}))
    except NotApplicable as why:
        say(id=id, na=str(why))
    except BaseException as error:
        kind, below = type(error).__name__, error.__cause__
        its = {key: getattr(error, key, None) for key in ("code", "cause")}
        also, because = getattr(error, "__notes__", []), below and (str(below) or type(below).__name__)
        say(id=id, failed={"type": NAMES.get(kind, kind), "text": str(error), "because": because, "also": also, **its})


def run(work):
    with contextlib.suppress(StopIteration):
        work.send(None)


async def serve():
    begin = asyncio.get_running_loop().call_soon_threadsafe
    await asyncio.to_thread(lambda: [begin(start, json.loads(line)) for line in sys.stdin])


def start(request):
    tasks[request["id"]] = asyncio.create_task(answer(**request))


if IS_ASYNC:
    asyncio.run(serve())
else:
    for line in sys.stdin:
        threading.Thread(target=run, args=(answer(**json.loads(line)),), daemon=True).start()
