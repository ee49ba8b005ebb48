"""Callers that take locks by the drivers of the packages (clients/conformance), and say when they hold which."""

import json
import random
import threading
import time

from driving import CLIENTS, Driver, DriverFault, Failed, command_of
from servers import until

# A client of each language.
WORKERS = {language: client for client, (language, *_) in reversed(CLIENTS.items())}
WAIT = 2  # seconds


BOUND = """
import runpy, socket, sys
class Bound(socket.socket):
    def connect(self, other):
        self.bind((source, 0))
        super().connect(other)
_, source, *sys.argv = sys.argv
socket.socket = Bound
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Record:
    """All events, in memory and in a file, and when each process has begun its last hold."""

    def __init__(self, path):
        self.events, self.begun, self.mutex = [], {}, threading.Lock()
        self.file = open(path, "w", encoding="utf-8")

    def add(self, **event):
        with self.mutex:
            self.events.append(event)
            print(json.dumps(event), file=self.file, flush=True)
            if event["event"] == "begin":
                self.begun[event["process"]] = event["at"]


class Worker:
    """A process that uses a package, with a caller for each of the locks (`name[:limit]`).

    Each holds its lock for a time from the range `hold`, and then pauses for one from `idle`, both in seconds. `source`: the address that its
    connections come from (Python only).
    """

    def __init__(self, language, number, locks, client, options, record, folder, hold, idle, source=None):
        self.name, self.language, self.record = f"{language}-{number}", language, record
        self.holding, self.idle, self.log, self.is_over = hold, idle, folder / f"{self.name}.log", threading.Event()
        *program, driver = command_of(language)
        self.driver = Driver(WORKERS[language], [*program, "-c", BOUND, source, driver] if source else None)
        self.locks = self.driver.new(client, wait=WAIT, **options)
        self.callers = [threading.Thread(target=self.call, args=lock.split(":"), daemon=True) for lock in locks]
        for caller in self.callers:
            caller.start()

    def say(self, event, **more):
        if not self.is_over.is_set():  # Else it ended meanwhile.
            self.record.add(event=event, **more, process=self.name, package=self.language)

    def call(self, lock, limit="1"):
        options = {"limit": int(limit)} if limit != "1" else {}
        while not self.is_over.is_set():
            try:
                self.hold(self.locks.acquire(lock, **options), int(limit))
                self.is_over.wait(random.uniform(*self.idle))
            except Failed as failed:
                if failed.type != "NotInTime":
                    self.say("error", lock=lock, error=str(failed), at=time.time())
                    self.is_over.wait(0.1)
            except DriverFault:
                return  # begin or is_at_work will say so.

    def hold(self, held, limit):
        which = {"lock": held.name, "token": held.token}
        self.say("begin", **which, limit=limit, at=time.time())
        cause = held.lost(random.uniform(*self.holding))
        self.say("end", **which, at=time.time(), how=f"lost:{cause}" if cause else "release")
        try:
            if not cause:
                held.release()
        except Failed as failed:
            if failed.type != "LockLost":
                raise
            self.say("late", **which, at=time.time(), cause=failed.cause)

    def begin(self):
        until(f"{self.name} holds a lock", self.is_at_work, pause=0.5)

    def is_at_work(self):
        if self.driver.fault:
            raise SystemExit(str(self.driver.broken(self.driver.fault)))
        return self.name in self.record.begun

    def kill(self):
        self.is_over.set()
        self.driver.process.kill()
        for caller in self.callers:
            caller.join()
        self.log.write_text(self.driver.said())
        self.driver.kill()
        self.record.add(event="exit", process=self.name, at=time.time())
