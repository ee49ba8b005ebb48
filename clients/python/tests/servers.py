"""Servers for a test, by clients/testing/servers; and plain clients that look at them."""

import os
import subprocess
import time

import redis

PROGRAM = os.environ.get("FAIRLOCK_SERVERS") or os.path.join(
    os.path.dirname(__file__), "..", "..", "testing", "servers"
)
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

    def at(self, name):
        """A plain client of one of them, for a look from outside."""
        return redis.Redis(port=self.ports[name], decode_responses=True, protocol=2)

    def end(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class View:
    """What the server has to say about its locks."""

    def __init__(self, client):
        self.client = client

    def run(self, *words):
        return self.client.execute_command(*words)

    def info(self, name):
        reply = self.run("FAIRLOCK.INFO", name)
        return dict(zip(reply[::2], reply[1::2], strict=True))

    def owner(self, name):
        return self.info(name)["owner"]

    def queue(self, name):
        return [waiter[0] for waiter in self.run("FAIRLOCK.QUEUE", name)]

    def waits(self, name, count=1):
        """That the server has blocked so many: who is in the queue only may not have got that far."""
        blocked = ["blocked"] * count
        until(f"{count} wait for {name}", lambda: [each[1] for each in self.run("FAIRLOCK.QUEUE", name)] == blocked)

    def is_free(self, name):
        return self.owner(name) is None

    def calls(self, command):
        stats = self.client.info("commandstats")
        return stats.get(f"cmdstat_fairlock.{command}", {}).get("calls", 0)

    def clients(self):
        """The connections of this package: all but this one."""
        me = self.client.client_id()
        return [each for each in self.client.client_list() if int(each["id"]) != me]


def until(what, condition, longest=LONGEST):
    end = time.monotonic() + longest
    while not condition():
        assert time.monotonic() < end, f"still not so: {what}"
        time.sleep(0.005)
