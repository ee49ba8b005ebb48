"""Servers for a test, by clients/testing/servers; and plain clients that look at them."""

import os
import pathlib
import re
import subprocess
import time

import redis

HERE = pathlib.Path(__file__).parent
LUA = HERE.parent.parent / "lua"
# Servers have no module then, and locks are taken by scripts.
BY_SCRIPTS = bool(os.environ.get("FAIRLOCK_SCRIPTS"))

PROGRAM = os.environ.get("FAIRLOCK_SERVERS") or HERE.parent.parent / "testing" / "servers"
LONGEST = 60  # seconds until a condition is given up; only ever reached on failure


class Servers:
    def __init__(self, kind, *options):
        self.process = subprocess.Popen(
            [PROGRAM, kind, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.ports = {}
        for line in self.process.stdout:
            if line == "ready\n":
                return
            name, port, _ = line.split()
            self.ports[name] = int(port)
        raise AssertionError("no servers: see standard error")

    def tell(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        assert answer[:1] == ["ok"], answer
        return answer[1:]

    def lose(self, command):
        """Drops the reply to the next such command."""
        if BY_SCRIPTS:
            # Known to the server, it is not sent a second time.
            self.tell("lose", self.at("a").script_load((LUA / f"{command}.lua").read_text()))
        else:
            self.tell("lose", f"FAIRLOCK.{command}")

    def at(self, name):
        """A plain client of one of them, for a look from outside."""
        return redis.Redis(port=self.ports[name], decode_responses=True, protocol=2)

    def end(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class View:
    """A server's locks; without the module, from their keys."""

    def __init__(self, client):
        self.client = client

    def run(self, *words):
        try:
            return self.client.execute_command(*words)
        except redis.ResponseError as error:
            if "unknown command" not in str(error):
                raise
        command, name, *rest = words
        return getattr(self, "_" + command.removeprefix("FAIRLOCK.").lower())(name, *rest)

    def _acquire(self, name, *rest):
        return self._script("acquire", name, rest)

    def _release(self, name, *rest):
        return self._script("release", name, rest)

    def _script(self, script, name, rest):
        return self.client.eval((LUA / f"{script}.lua").read_text(), 4, name, *keys_of(name), *rest)

    def _break(self, name):
        return self.client.delete(name)

    def _queue(self, name):
        return [[owner, "polling"] for owner in self.client.lrange(keys_of(name)[0], 0, -1)]

    def _info(self, name):
        fields = self.client.hgetall(name)
        token = int(fields.pop("", 0)) or None
        ((owner, holds),) = fields.items() or [(None, 0)]
        lease = self.client.pttl(name) if owner else 0
        waiting = self.client.llen(keys_of(name)[0])
        return ["owner", owner, "holds", int(holds), "lease", lease, "token", token, "waiting", waiting]

    def info(self, name):
        reply = self.run("FAIRLOCK.INFO", name)
        return dict(zip(reply[::2], reply[1::2], strict=True))

    def owner(self, name):
        return self.info(name)["owner"]

    def queue(self, name):
        return [waiter[0] for waiter in self.run("FAIRLOCK.QUEUE", name)]

    def waits(self, name, count=1):
        """Whether this many are blocked or listen: a caller can be in the queue before that."""
        until(f"{count} wait for {name}", lambda: self.waiting(name) == count)

    def waiting(self, name):
        waiters = self.run("FAIRLOCK.QUEUE", name)
        return sum(state == "blocked" or self.listens(name, owner) for owner, state, *_ in waiters)

    def listens(self, name, owner):
        channel = f"redisson_lock__channel:{keys_of(name)[0].partition(':')[2]}:{owner}"
        kinds = ["NUMSUB", "SHARDNUMSUB"] if self.client.info("cluster")["cluster_enabled"] else ["NUMSUB"]
        return any(self.client.execute_command("PUBSUB", kind, channel)[1] for kind in kinds)

    def polls(self, name):
        """Whether those that wait are not blocked in the server."""
        return [waiter[1] for waiter in self.run("FAIRLOCK.QUEUE", name)] == ["polling"]

    def is_free(self, name):
        return self.owner(name) is None

    def calls(self, command):
        """How often it was called; as a script, by a command that only its script calls, if there is one."""
        stats = self.client.info("commandstats")
        scripted = {"acquire": ["eval", "evalsha"], "release": ["del"], "renew": ["pexpire"]}[command]
        return sum(stats.get(f"cmdstat_{each}", {}).get("calls", 0) for each in [f"fairlock.{command}", *scripted])

    def clients(self):
        """The connections of this package: all but this one."""
        me = self.client.client_id()
        return [each for each in self.client.client_list() if int(each["id"]) != me]


def keys_of(name):
    rest = name if "{" in name else f"{{{name}}}"
    return [f"{prefix}:{rest}" for prefix in ("redisson_lock_queue", "redisson_lock_timeout", "fairlock_token")]


def until(what, condition, longest=LONGEST):
    end = time.monotonic() + longest
    while not condition():
        assert time.monotonic() < end, f"still not so: {what}"
        time.sleep(0.005)


def until_one(futures):
    """Takes out the one that is done."""
    until("the next one has it", lambda: any(future.done() for future in futures))
    done = next(future for future in futures if future.done())
    futures.remove(done)
    return done


def rule_of(user):
    """The command of SECURITY.md that makes a user."""
    with open(os.path.join(HERE, "..", "..", "..", "SECURITY.md"), encoding="utf-8") as file:
        return re.search(rf"^    (ACL SETUSER {user} .*)$", file.read(), re.MULTILINE)[1].split()
