"""A look at a server's locks from outside, and what others do to them."""

import re

import redis
from servers import CLIENTS, LUA, until

AT_ONCE = 20  # seconds, where the alternative is a minute
LONG = 120


class View:
    """A server's locks."""

    def __init__(self, client):
        self.client = client

    def run(self, *words):
        """Without the module, by the command's script."""
        try:
            return self.client.execute_command(*words)
        except redis.ResponseError as error:
            if "unknown command" not in str(error):
                raise
        command, name, *rest = words
        script = LUA / f"{command.removeprefix('FAIRLOCK.').lower()}.lua"
        return self.client.eval(script.read_text(), 4, name, *keys_of(name), *rest)

    def acquire(self, name, owner="another", lease=60):
        """Takes the lock for somebody else; the token."""
        token = self.run("FAIRLOCK.ACQUIRE", name, owner, "NOWAIT", "LEASE", int(lease * 1000))
        assert token and token > 0
        return token

    def release(self, name, owner="another"):
        return self.run("FAIRLOCK.RELEASE", name, owner)

    def breaks(self, name):
        return self.client.delete(name)

    def info(self, name):
        reply = self.run("FAIRLOCK.INFO", name)
        return dict(zip(reply[::2], reply[1::2], strict=True))

    def owner(self, name):
        return self.info(name)["owner"]

    def is_free(self, name):
        return self.owner(name) is None

    def queue(self, name):
        return self.client.lrange(keys_of(name)[0], 0, -1)

    def waits(self, name, count=1):
        """Waits until this many listen: a caller can be in the queue before that."""
        until(f"{count} wait for {name}", lambda: self.waiting(name) == count, pause=0.005)

    def waiting(self, name):
        """How many of those in the queue listen."""
        channels = [f"redisson_lock__channel:{keys_of(name)[0].partition(':')[2]}:{owner}" for owner in self.queue(name)]
        if not channels:
            return 0
        plain, sharded = (self.client.execute_command("PUBSUB", kind, *channels)[1::2] for kind in ("NUMSUB", "SHARDNUMSUB"))
        return sum(max(counts) > 0 for counts in zip(plain, sharded, strict=True))

    def listened_for(self, name):
        """How many owners' channels are subscribed to, whether they wait or not."""
        pattern = f"redisson_lock__channel:{keys_of(name)[0].partition(':')[2]}:*"
        return len({channel for kind in ("CHANNELS", "SHARDCHANNELS") for channel in self.client.execute_command("PUBSUB", kind, pattern)})

    def calls(self, command):
        """How often it was called; as a script, by a command that only its script calls, if there is one."""
        stats = self.client.info("commandstats")
        scripted = {"acquire": ["eval", "evalsha"], "release": ["del"], "renew": ["pexpire"]}[command]
        return sum(stats.get(f"cmdstat_{each}", {}).get("calls", 0) for each in [f"fairlock.{command}", *scripted])

    def clients(self):
        """All connections of clients but this one."""
        me = self.client.client_id()
        return [each for each in self.client.client_list() if int(each["id"]) != me]


def keys_of(name):
    rest = name if "{" in name else f"{{{name}}}"
    return [f"{prefix}:{rest}" for prefix in ("redisson_lock_queue", "redisson_lock_timeout", "fairlock_token")]


def rule_of(user):
    """The command of SECURITY.md that makes a user."""
    text = (CLIENTS.parent / "SECURITY.md").read_text()
    return re.search(rf"^    (ACL SETUSER {user} .*)$", text, re.MULTILINE)[1].split()


def waiting(locks, view, name, count, **options):
    """So many that wait, one after the other."""
    calls = []
    for number in range(1, count + 1):
        calls.append(locks.begin(name, **options))
        view.waits(name, number)
    return calls


def release_in_turn(calls, owners, view, name):
    """Each call gets the lock, for its owner, when the one before has given it up."""
    for call, owner in zip(calls, owners, strict=True):
        held = call.result()
        assert view.owner(name) == held.owner == owner
        held.release()


def release_as_they_come(calls, **limit):
    """Each call gets the lock in its turn, and gives it up; the order is not known here."""
    while calls:
        until("the next one has it", lambda: any(call.done() for call in calls), **limit)
        done = next(call for call in calls if call.done())
        calls.remove(done)
        done.result().release()
