"""Clients that use plain commands: they take a lock, have replicas confirm it by WAIT where they are told to, and say when they hold it."""

import itertools
import random
import socket
import threading
import time

from place import NAME
from servers import HOST, Trouble, command_of, reply_of

LEASE, PATIENCE, CONFIRM = 3000, 1000, 500  # milliseconds: of ACQUIRE, and of WAIT
ANSWER = 1.0  # seconds that an answer may take besides
HOLD, IDLE = (0.2, 2.8), (0.0, 0.4)  # seconds


class Line:
    """A connection from an address, of which every command has a time limit."""

    def __init__(self, source, port):
        self.socket = socket.create_connection((HOST, port), ANSWER, (source, 0))
        self.replies = self.socket.makefile("rb")

    def ask(self, *words, longest=0):
        """`longest`: the milliseconds that the command itself may take."""
        self.socket.settimeout(ANSWER + longest / 1000)
        self.socket.sendall(command_of(words))
        return reply_of(self.replies)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.replies.close()
        self.socket.close()


class Client(threading.Thread):
    """One caller of one lock. It finds the master by one Sentinel, the one of its own machine, or by the nodes of a cluster."""

    def __init__(self, name, lock, confirm, source, place, record):
        super().__init__(daemon=True)
        self.name, self.lock, self.confirm = name, lock, confirm
        self.source, self.place, self.record = source, place, record
        self.owners = (f"{name}-{number}" for number in itertools.count(1))
        self.is_over, self.master = False, None

    def run(self):
        while not self.is_over:
            time.sleep(random.uniform(*IDLE))
            try:
                with Line(self.source, self.find()) as line:
                    self.attempt(line, next(self.owners))
            except (OSError, Trouble) as error:
                self.follow(str(error))

    def find(self):
        if self.place.sentinels():
            with Line(self.source, self.place.doors[f"s{self.name[-1]}"]) as line:
                self.master = int(line.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)[1])
        elif self.master is None:
            self.master = self.place.doors[random.choice("abcd")]
        return self.master

    def follow(self, error):
        self.master = int(error.rsplit(":", 1)[1]) if error.startswith("MOVED ") else None

    def attempt(self, line, owner):
        end = time.time() + LEASE / 1000
        token = line.ask("FAIRLOCK.ACQUIRE", self.lock, owner, "LEASE", LEASE, "WAIT", PATIENCE, longest=PATIENCE)
        if token is None:
            return
        is_confirmed = not self.confirm or line.ask("WAIT", self.confirm, CONFIRM, longest=CONFIRM) >= self.confirm
        if is_confirmed and time.time() < end:
            self.hold(owner, token, end)
        try:
            line.ask("FAIRLOCK.RELEASE", self.lock, owner, "TOKEN", token)
        except Trouble as trouble:
            if str(trouble).startswith("NOTHELD ") and is_confirmed and time.time() < end:
                self.say("late", token, at=time.time(), cause="notheld")
            else:
                raise

    def hold(self, owner, token, end):
        begin = time.time()
        self.say("begin", token, at=begin, owner=owner, limit=1, server=self.place.name_of(self.master))
        end = min(end, begin + random.uniform(*HOLD))
        time.sleep(max(0, end - begin))
        self.say("end", token, at=end, how="release")

    def say(self, event, token, **more):
        self.record.add(event=event, process=self.name, package="plain", lock=self.lock, token=token, **more)
