import json, os, random, sys, threading, time
import redis
from redis.sentinel import Sentinel
import fairlock

env = os.environ
sentinels = [(h, int(p)) for h, p in (a.split(":") for a in env["FAILOVER_SENTINELS"].split(","))]
client = Sentinel(sentinels, socket_timeout=1).master_for(env["FAILOVER_MASTER"], redis.Redis)
options = {"lease": int(env["FAILOVER_LEASE_MS"]) / 1000, "wait": 2}
if env.get("FAILOVER_MIN_REPLICAS"):
    options["min_replicas"] = int(env["FAILOVER_MIN_REPLICAS"])
low, high = (int(x) / 1000 for x in (env.get("FAILOVER_HOLD_MS") or "50-150").split("-"))
idle_low, idle_high = (int(x) / 1000 for x in (env.get("FAILOVER_IDLE_MS") or "0-0").split("-"))
locks = fairlock.Locks(client, **options)
mutex = threading.Lock()

def say(**event):
    with mutex:
        print(json.dumps(event), flush=True)

def caller(name, limit):
    while True:
        try:
            held = locks.acquire(name, **({"limit": limit} if limit > 1 else {}))
        except fairlock.NotInTime:
            continue
        except Exception as error:
            say(event="error", lock=name, text=repr(error), at=time.time())
            time.sleep(0.1)
            continue
        at = time.time()
        say(event="begin", lock=name, limit=limit, owner=held.owner, token=held.token, at=at)
        is_lost = held.lost.wait(random.uniform(low, high))
        at = time.time()
        say(event="end", lock=name, token=held.token, at=at, how=f"lost:{held.lost.cause}" if is_lost else "release")
        try:
            held.release()
        except fairlock.LockLost as lost:
            if not is_lost:
                say(event="late", lock=name, token=held.token, cause=lost.cause)
        except Exception as error:
            say(event="error", lock=name, text="release: " + repr(error), at=time.time())
        time.sleep(random.uniform(idle_low, idle_high))

for entry in env["FAILOVER_LOCKS"].split(","):
    name, _, limit = entry.partition(":")
    for _ in range(int(env["FAILOVER_WORKERS"])):
        threading.Thread(target=caller, args=(name, int(limit or 1)), daemon=True).start()
sys.stdin.read()
os._exit(0)
