"""The driver of a package as a process, and its Locks and holds as objects of this suite (README.md has the lines)."""

import contextlib
import json
import os
import pathlib
import queue
import signal
import subprocess
import sys
import tempfile
import threading

from servers import LONGEST, end_with_parent, until

# By name: the language, whether calls are started in the order of the lines, and how many callers are many.
CLIENTS = {
    "python-threads": ("python", False, 100),
    "python-asyncio": ("python", True, 1000),
    "node-redis": ("typescript", True, 1000),
    "ioredis": ("typescript", True, 1000),
    "go": ("go", False, 100),
    "java": ("java", False, 100),
    "rust-tokio": ("rust", False, 100),
    "rust-blocking": ("rust", False, 100),
}


class Failed(Exception):
    """What a package has answered a call with, which failed."""

    def __init__(self, fields):
        super().__init__(f"{fields['type']}: {fields['text']}")
        self.type, self.code, self.text, self.cause = (fields.get(key) for key in ("type", "code", "text", "cause"))
        self.because, self.also = fields.get("because"), fields.get("also") or []


class DriverFault(Exception):
    """The driver has died, hung, or printed what is no line of the protocol."""


class Driver:
    def __init__(self, client, command=None):
        self.client = client
        self.language, self.is_ordered, self.many = CLIENTS[client]
        command = command or pathlib.Path(os.environ["CONFORMANCE_TARGET"], f"{self.language}.command").read_text().splitlines()
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [*command, client], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, preexec_fn=end_with_parent
        )
        self.writing, self.fault, self.number, self.calls, self.events = threading.Lock(), None, 0, {}, []
        self.locks = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            try:
                said = json.loads(line)
                if "event" in said:
                    self.events.append(said)
                else:
                    self.calls.pop(said["id"]).answered.put(said)
            except (ValueError, KeyError, TypeError):
                self._fail(f"printed what answers nothing: {line[:500]!r}")
        self._fail(f"has ended with {self.process.wait()}")

    def _fail(self, what):
        self.fault = self.fault or what
        for call in list(self.calls.values()):
            call.answered.put(None)

    def broken(self, what):
        return DriverFault(f"the driver of {self.client} {what}; its standard error:\n{self.said()[-4000:]}")

    def said(self, since=0):
        return os.pread(self.errors.fileno(), 1 << 20, since).decode(errors="replace")

    def size(self):
        return os.fstat(self.errors.fileno()).st_size

    def begin(self, op, **fields):
        """Sends a request; its answer is the call's result."""
        with self.writing:
            self.number += 1
            call = Call(self, self.number)
            self.calls[call.id] = call
            line = json.dumps({"id": call.id, "op": op, **{key: value for key, value in fields.items() if value is not ...}})
            try:
                self.process.stdin.write(line.encode() + b"\n")
                self.process.stdin.flush()
            except OSError:
                self._fail("does not read any more")
        if self.fault:
            call.answered.put(None)
        return call

    def ask(self, op, **fields):
        return self.begin(op, **fields).result()

    def new(self, client, hooks=..., **options):
        call = self.begin("new", client=client, options=options, hooks=hooks)
        call.result(3 * LONGEST)  # The process may only be starting, on a busy machine.
        locks = Locks(self, call.id)
        self.locks.append(locks)
        return locks

    def end_test(self):
        """Whatever a test has left is closed; the next one has the same process."""
        for locks in self.locks[:]:
            locks.close()
        self.events.clear()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.reader.join()
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            with contextlib.suppress(BrokenPipeError):  # It was killed while it was written to.
                stream.close()


class Call:
    """A request that was sent."""

    def __init__(self, driver, number):
        self.driver, self.id = driver, number
        self.answered, self.answer, self.made = queue.SimpleQueue(), ..., lambda ok: ok

    def done(self):
        return self.answer is not ... or not self.answered.empty()

    def result(self, longest=LONGEST):
        if self.answer is ...:
            try:
                self.answer = self.answered.get(timeout=longest)
            except queue.Empty:
                self.driver.fault = "does not answer in time"
                raise self.driver.broken("does not answer in time") from None
        answer = self.answer
        if answer is None:
            raise self.driver.broken(self.driver.fault)
        if "na" in answer:
            import pytest  # Only here: the lab and `server` need nothing but Python.

            pytest.skip(f"not applicable: {answer['na']}")
        if "failed" in answer:
            raise Failed(answer["failed"])
        if "ok" not in answer:
            raise self.driver.broken(f"does not know the operation: {answer}")
        return self.made(answer["ok"])

    def failure(self):
        try:
            result = self.result()
        except Failed as failed:
            return failed
        raise AssertionError(f"it has not failed: {result}")

    def cancel(self):
        self.driver.ask("cancel", call=self.id)


class Locks:
    def __init__(self, driver, number):
        self.driver, self.id = driver, number

    def begin(self, name, op="acquire", **options):
        """A call that goes on by itself; its result is what is held."""
        extra = {key: options.pop(key) for key in ("try", "inner") if key in options}
        call = self.driver.begin(op, locks=self.id, name=name, options=options, **extra)
        call.made = lambda ok: Held(self.driver, call.id, name, ok) if ok else None
        return call

    def acquire(self, name, **options):
        return self.begin(name, **options).result()

    def try_acquire(self, name, **options):
        return self.begin(name, **{"try": True}, **options).result()

    def fails(self, name, **options):
        """The failure of an acquisition."""
        return self.begin(name, **options).failure()

    def block(self, name, **options):
        """The lock is held inside the language's own block, until that is left."""
        call = self.begin(name, op="block", **options)
        is_its = lambda event: event["event"] == "inside" and event["id"] == call.id  # noqa: E731
        until(f"inside the block of {name}", lambda: call.done() or any(map(is_its, self.driver.events)), pause=0.005)
        if call.done():
            call.result()
        return Block(self.driver, call, name, next(filter(is_its, self.driver.events)))

    def info(self, name):
        return self.driver.ask("info", locks=self.id, name=name)

    def native(self):
        return self.driver.ask("native", locks=self.id)["native"]

    def hooks(self):
        return [each for each in self.driver.events if each["event"] == "hook" and each["locks"] == self.id]

    def close(self):
        if self in self.driver.locks:
            self.driver.locks.remove(self)
            self.driver.ask("close", locks=self.id)


class Held:
    def __init__(self, driver, number, name, fields):
        self.driver, self.id, self.name = driver, number, name
        self.token, self.owner = fields["token"], fields["owner"]

    def renew(self, lease=...):
        return self.driver.ask("renew", held=self.id, lease=lease)["lease"]

    def release(self):
        self.driver.ask("release", held=self.id)

    def lost(self, wait=LONGEST):
        """The cause, as soon as it is lost; None: not within this time."""
        return self.driver.begin("lost", held=self.id, wait=wait).result(wait + LONGEST)["cause"]


class Block(Held):
    def __init__(self, driver, call, name, inside):
        super().__init__(driver, call.id, name, inside)
        self.call, self.inner = call, inside.get("inner")

    def leave(self, fail=False):
        """Ends the block; the result is the call's."""
        self.driver.ask("leave", block=self.id, fail=fail)
        self.call.made = lambda ok: None
        return self.call.result()


if __name__ == "__main__":  # the languages of these clients, or of all
    chosen = set(sys.argv[1:]) or set(CLIENTS)
    wrong = chosen - set(CLIENTS) - {language for language, *_ in CLIENTS.values()}
    if wrong:
        sys.exit(f"no such client: {', '.join(sorted(wrong))}; there are {', '.join(CLIENTS)}")
    print(*dict.fromkeys(language for client, (language, *_) in CLIENTS.items() if {client, language} & chosen))
