"""Programs that use the client packages, one process each, and their output."""

import contextlib
import json
import os
import subprocess
import threading
import time
from pathlib import Path

from redis_server import end_with_parent, until

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LONGEST_BUILD = 900  # seconds until a worker holds its first lock; only ever reached on failure
WORKERS = {"python": "worker.py", "typescript": "worker.mjs", "java": "worker.java", "go": "worker.go", "rust": "worker.rs"}


class Record:
    """All events, in memory and in a file."""

    def __init__(self, path):
        self.events, self.mutex = [], threading.Lock()
        self.file = open(path, "w", encoding="utf-8")

    def add(self, **event):
        with self.mutex:
            self.events.append(event)
            print(json.dumps(event), file=self.file, flush=True)

    def has(self, **wanted):
        with self.mutex:
            return any(wanted.items() <= event.items() for event in self.events)


class Worker:
    """A process of a package's worker program; its lines become events."""

    def __init__(self, language, number, locks, settings, record, folder):
        self.name, self.language, self.record = f"{language}-{number}", language, record
        self.said = folder / f"{self.name}.log"
        command = [ROOT / "scripts/clients" / language, "run", HERE / "failover" / WORKERS[language]]
        own = {"FAILOVER_LOCKS": ",".join(locks)}
        with open(self.said, "wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                env={**os.environ, **settings, **own}, preexec_fn=end_with_parent,
            )
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            with contextlib.suppress(ValueError):  # the line of a process that was killed
                self.record.add(**json.loads(line), process=self.name, package=self.language)
        self.process.wait()
        self.record.add(event="exit", process=self.name, at=time.time())

    def begin(self):
        until(f"{self.name} holds a lock", self.is_at_work, pause=0.5, longest=LONGEST_BUILD)

    def is_at_work(self):
        if self.process.poll() is not None:
            raise SystemExit(f"{self.name} has ended\n{self.said.read_text(errors='replace')[-4000:]}")
        return self.record.has(event="begin", process=self.name)

    def kill(self):
        self.process.kill()
        self.reader.join()

    def end(self):
        """Closed standard input ends it; a moment later it is killed."""
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.reader.join()
