"""The driver of a package as a process, and its Locks and holds as objects of this suite (README.md has the lines)."""

import contextlib
import itertools
import json
import os
import pathlib
import queue
import re
import subprocess
import tempfile
import threading

from servers import LONGEST, Trouble, spawn, until

ROOT = pathlib.Path(__file__).parents[2]
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
# The languages that compile types, and so have no test of wrong ones; some of them have null.
TYPED, NULLABLE = ("go", "java", "rust"), ("java",)
NOT_CANCELLED = ("python-threads", "rust-blocking")  # as threads are not there

LENGTHS = ("wait", "lease", "patience", "sync_timeout", "retry_timeout", "command_timeout", "release_timeout", "readTimeout", "waited", "held")
UNITS = {"python": 1, "typescript": 1000, "java": 1000, "go": 10**9}  # of a second
SAME = {"TypeError": "Argument", "ValueError": "Argument", "RangeError": "Argument", "IllegalArgument": "Argument", "WrongArgument": "Argument",
        "AbortError": "Cancelled", "CancelledError": "Cancelled", "Interrupted": "Cancelled", "ContextCanceled": "Cancelled",
        "NotReplicatedInTime": "NotReplicated", "BodyError": "Body", "UnsupportedOperation": "Unknown"}  # fmt: skip


def shaped(language, fields):
    """Options as the language writes them: their names, and what their values are."""
    return {named(language, key): value_of(language, key, value) for key, value in fields.items()}


def named(language, key):
    return re.sub("_(.)", lambda part: part[1].upper(), key) if language in ("typescript", "java") else key


def value_of(language, key, value):
    if (language, key) == ("rust", "owner"):
        return list(value.encode())
    if (language, key) == ("java", "module"):
        return value.upper()
    return length(language, value) if key in LENGTHS else value


def length(language, seconds):
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        return seconds  # A wrong one.
    if language == "rust":
        return {"secs": int(seconds // 1), "nanos": round(seconds % 1 * 1e9)}
    unit = UNITS[language]
    return seconds if unit == 1 else min(round(seconds * unit), 2**63 - 1)


def plain(language, fields):
    """What a package says, as Python writes it: `shaped` the other way."""
    words = {re.sub("(?<=[a-z])[A-Z]", r"_\g<0>", key).lower(): value for key, value in fields.items()}
    for key in words.keys() & set(LENGTHS):
        value = words[key]
        if isinstance(value, dict):
            words[key] = value["secs"] + value["nanos"] / 1e9
        elif value is not None:
            words[key] = value / UNITS[language]
    return words


def cause_of(fields):
    """Rust says `LockLost(NotHeld)`."""
    said = fields.get("cause") or fields.get("Cause") or fields.get("type", "").partition("(")[2]
    return said.rpartition("(")[2].rstrip(")").lower() or None


def urls_of(kind, addrs, username="", password=None, tls=None, **_):
    """Of each server, Sentinel or node; and the one of all of them."""
    scheme, access = f"redis{'s' if tls else ''}", f"{username}:{password}@" if password else ""
    urls = [f"{scheme}://{access}{each}" for each in addrs]
    return {"urls": urls, "url": f"{scheme}-sentinel://{access}{','.join(addrs)}#locks" if kind == "sentinel" else urls[0]}


class Failed(Trouble):
    """What a package has answered a call with, which failed."""

    def __init__(self, fields):
        name = fields["type"].partition("(")[0].removesuffix("Exception")
        name = name if name[0].isupper() else name.title().replace(" ", "")
        self.type, self.text = SAME.get(name, name), fields.get("text", "")
        super().__init__(f"{self.type}: {self.text}")
        self.code, self.because = fields.get("code") or None, fields.get("because")
        self.all = "\n".join([self.text, *(fields.get("also") or [])])
        self.cause = cause_of(fields)


class DriverFault(Exception):
    """The driver has died, hung, or printed what is no line of the protocol."""


def command_of(language):
    """Compiles the driver, unless the process that has started this one did."""
    name = f"CONFORMANCE_DRIVER_{language}"
    if name not in os.environ:
        made = subprocess.run([ROOT / "scripts/clients" / language, "driver"], stdout=subprocess.PIPE, text=True, check=True)
        os.environ[name] = made.stdout
    return os.environ[name].splitlines()


class Driver:
    def __init__(self, client, command=None):
        self.client = client
        self.language, self.is_ordered, self.many = CLIENTS[client]
        self.errors = tempfile.TemporaryFile()
        command = command or command_of(self.language)
        self.process = spawn([*command, client], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors)
        self.writing, self.fault, self.numbers, self.calls, self.events = threading.Lock(), None, itertools.count(1), {}, []
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

    def request(self, op, **fields):
        """A request, and the call whose result its answer will be."""
        call = Call(self, next(self.numbers))
        self.calls[call.id] = call
        return call, {"id": call.id, "op": op, **{key: value for key, value in fields.items() if value is not ...}}

    def begin(self, op, **fields):
        """Sends a request; its answer is the call's result."""
        with self.writing:
            call, request = self.request(op, **fields)
            line = json.dumps(request)
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
        client = shaped(self.language, client) | urls_of(**client)
        call = self.begin("new", client=client, options=shaped(self.language, options), hooks=hooks)
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
        self.process.kill()
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
        if not answer.get("failed"):
            return self.made(answer.get("ok") or {})
        failed = Failed(answer["failed"])
        if failed.type == "Unknown":
            raise self.driver.broken(f"does not know the operation {failed.text}")
        raise failed

    def failure(self, longest=LONGEST):
        try:
            result = self.result(longest)
        except Failed as failed:
            return failed
        raise AssertionError(f"it has not failed: {result}")


class Locks:
    def __init__(self, driver, number):
        self.driver, self.id = driver, number

    def begin(self, name, op="acquire", inner=..., fail=..., **options):
        """A call that goes on by itself; its result is what is held."""
        call = self.driver.begin(op, inner=inner, fail=fail, **self.asks(name, **options))
        call.made = lambda ok: Held(self.driver, call.id, name, ok) if ok else None
        return call

    def asks(self, name, **options):
        return {"of": self.id, "name": name, "options": shaped(self.driver.language, options)}

    def acquire(self, name, **options):
        return self.begin(name, **options).result()

    def try_acquire(self, name, **options):
        try:
            return self.begin(name, op="tryAcquire", **options).result()
        except Failed as failed:  # As Go says it.
            assert failed.type == "NotInTime"

    def fails(self, name, **options):
        """The failure of an acquisition."""
        return self.begin(name, **options).failure()

    def block(self, name, inner=None, fail=False, **options):
        """The lock is held inside the language's own block, until that is left, with `fail` by an error. `inner`: options of an acquisition in
        there, by the same caller."""
        inside, request = self.driver.request("acquire", **self.asks(name, **inner)) if inner else (None, ...)
        call = self.begin(name, op="block", inner=request, fail=fail, **options)
        is_its = lambda event: event["event"] == "inside" and event["id"] == call.id  # noqa: E731
        until(f"inside the block of {name}", lambda: call.done() or any(map(is_its, self.driver.events)), pause=0.005)
        if call.done():
            call.result()
        return Block(self, call, name, next(filter(is_its, self.driver.events)), inside)

    def info(self, name):
        info = plain(self.driver.language, self.driver.ask("info", of=self.id, name=name))
        for key in ("owner", "lease", "token", "limit"):  # Some languages have a number for none.
            info[key] = info.get(key) or None
        return info | {"lease": info["lease"] if (info["lease"] or 0) > 0 else None}

    def native(self):
        return self.driver.ask("native", of=self.id).get("native")

    def hooks(self):
        told = [each for each in self.driver.events if each["event"] == "hook" and each["locks"] == self.id]
        return [{"hook": each["hook"].removeprefix("on").lower(), **plain(self.driver.language, each["with"]), "cause": cause_of(each["with"])} for each in told]

    def close(self, ping=False):
        """`ping`: the client still works afterwards, and is closed then."""
        if self in self.driver.locks:
            self.driver.locks.remove(self)
            self.driver.ask("close", of=self.id, ping=ping)


def loss_of(call, longest=LONGEST):
    """The cause, as the answer or as its failure says it."""
    try:
        return cause_of(call.result(longest))
    except Failed as failed:
        if failed.type != "LockLost":
            raise
        return failed.cause


class Held:
    def __init__(self, driver, number, name, fields):
        self.driver, self.id, self.name = driver, number, name
        self.token, self.owner = fields["token"], fields["owner"]

    def renew(self, lease=...):
        language = self.driver.language
        return plain(language, self.driver.ask("renew", of=self.id, lease=length(language, lease)))["lease"]

    def release(self):
        self.driver.ask("release", of=self.id)

    def lost(self, wait=LONGEST):
        """The cause, as soon as it is lost; None: not within this time."""
        return loss_of(self.losing(wait), wait + LONGEST)

    def losing(self, wait=LONGEST):
        return self.driver.begin("lost", of=self.id, wait=length(self.driver.language, wait))


class Block(Held):
    def __init__(self, locks, call, name, fields, inside):
        super().__init__(locks.driver, call.id, name, fields)
        self.call, self.inside = call, inside
        if inside:
            inside.made = lambda ok: Held(locks.driver, inside.id, name, ok)

    def leave(self):
        """Ends the block; the result is the call's."""
        self.driver.ask("end", of=self.id)
        self.call.made = lambda ok: None
        return self.call.result()
