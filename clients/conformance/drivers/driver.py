"""The driver of the Python package (README.md beside): driver.py python-threads|python-asyncio. For threads nothing is awaited: each
operation, written once, runs to its end in a thread of its own."""

import asyncio
import contextlib
import dataclasses
import functools
import inspect
import json
import sys
import threading

import redis.asyncio

import fairlock.aio

IS_ASYNC = sys.argv[1] == "python-asyncio"
library, package, Event = (redis.asyncio, fairlock.aio, asyncio.Event) if IS_ASYNC else (redis, fairlock, threading.Event)
made, holds, blocks, tasks, writing = {}, {}, {}, {}, threading.Lock()
BodyError, Unknown = (type(name, (Exception,), {}) for name in ("BodyError", "Unknown"))


def say(**line):
    with writing:
        print(json.dumps(line), flush=True)


async def maybe(result):
    return await result if inspect.isawaitable(result) else result


def client_of(kind, addrs=(), username=None, password=None, readTimeout=None, tls=None, map=None, **_):
    nodes = [(host, int(port)) for host, port in (each.split(":") for each in addrs)]
    secure = {"ssl": True, "ssl_ca_certs": tls["ca"], "ssl_certfile": tls["cert"], "ssl_keyfile": tls["key"]} if tls else {}
    options = {"username": username, "password": password, **({"socket_timeout": readTimeout} if readTimeout else {}), **secure}
    if kind == "sentinel":
        return library.Sentinel(nodes, sentinel_kwargs=secure).master_for("locks", **options)
    if kind == "one":
        return library.Redis(host=nodes[0][0], port=nodes[0][1], **options)
    if map:  # all of them are on one host
        options["address_remap"] = lambda address: (nodes[0][0], address[1])
    return library.RedisCluster(startup_nodes=[library.cluster.ClusterNode(*each) for each in nodes], **options)


def hooks_of(locks, kind):
    def hook(which, event):
        if kind == "fail":
            raise BodyError("a hook")
        say(**{"event": "hook", "locks": locks, "hook": which, "with": dataclasses.asdict(event)})

    return fairlock.Hooks(**{f"on_{name}": functools.partial(hook, name) for name in ("wait", "acquired", "lost", "released")})


class Operations:
    async def new(self, id, client, options, hooks=None):
        user = client_of(**client)
        made[id] = package.Locks(user, **options, **({"hooks": hooks_of(id, hooks)} if hooks else {})), user

    async def acquire(self, id, of, name, options, by="acquire"):
        holds[id] = held = await maybe(getattr(made[of][0], by)(name, **options))
        return held and {"token": held.token, "owner": held.owner}

    async def tryAcquire(self, **fields):
        return await self.acquire(by="try_acquire", **fields)

    async def block(self, id, of, name, options, fail, inner=None):
        left, lock = blocks.setdefault(id, Event()), made[of][0](name, **options)
        async with contextlib.AsyncExitStack() as block:
            holds[id] = held = await block.enter_async_context(lock) if IS_ASYNC else block.enter_context(lock)
            say(event="inside", id=id, token=held.token, owner=held.owner)
            if inner:
                await answer(**inner)
            await maybe(left.wait())
            if fail:
                raise BodyError("the body's own")

    async def abandon(self, id, of, name, options):  # Nothing refers to what it holds.
        held = await maybe(made[of][0].acquire(name, **options))
        return {"token": held.token, "owner": held.owner}

    async def renew(self, id, of, **lease):
        return {"lease": await maybe(holds[of].renew(**lease))}

    async def release(self, id, of):
        await maybe(holds[of].release())

    async def lost(self, id, of, wait):
        lost = holds[of].lost
        if IS_ASYNC:
            await asyncio.wait([asyncio.ensure_future(lost.wait())], timeout=wait)
        else:
            lost.wait(wait)
        return {"cause": lost.cause}

    async def end(self, id, of):
        blocks[of].set() if of in blocks else tasks[of].cancel()

    async def info(self, id, of, name):
        return dataclasses.asdict(await maybe(made[of][0].info(name)))

    async def native(self, id, of):
        return {"native": made[of][0].native}

    async def close(self, id, of, ping):
        ours, user = made.pop(of)
        await maybe(ours.aclose() if IS_ASYNC else ours.close())
        if ping:
            await maybe(user.ping())
        await maybe(getattr(user, "aclose", user.close)())  # redis-py 5.0.0 has no aclose


async def answer(op, id, **fields):
    try:
        if not hasattr(Operations, op):
            raise Unknown(op)
        say(id=id, ok=await getattr(Operations(), op)(id=id, **fields))
    except BaseException as error:
        below = error.__cause__
        its = {key: getattr(error, key, None) for key in ("code", "cause")}
        because = below and (str(below) or type(below).__name__)
        say(id=id, failed={"type": type(error).__name__, "text": str(error), "because": because, "also": getattr(error, "__notes__", []), **its})


def run(work):
    with contextlib.suppress(StopIteration):
        work.send(None)


def start(request):
    if IS_ASYNC:
        tasks[request["id"]] = asyncio.create_task(answer(**request))
    else:
        threading.Thread(target=run, args=(answer(**request),), daemon=True).start()


async def serve():
    begin = asyncio.get_running_loop().call_soon_threadsafe
    await asyncio.to_thread(lambda: [begin(start, json.loads(line)) for line in sys.stdin])


if IS_ASYNC:
    asyncio.run(serve())
else:
    for line in sys.stdin:
        start(json.loads(line))
