"""Server processes for tests: started on a free port of 127.0.0.1, asked, killed, started again."""

import contextlib
import os
import socket
import subprocess
import time

HOST = "127.0.0.1"
LONGEST = 60  # seconds that anything may take here; only ever reached on failure


class Trouble(Exception):
    """A failure, with its reason."""


def free_port():
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


def until(what, condition, pause=0.01, longest=LONGEST):
    """Looks less often as it takes longer."""
    end = time.monotonic() + longest
    while True:
        with contextlib.suppress(OSError, Trouble):
            if condition():
                return
        if time.monotonic() > end:
            raise Trouble(f"still not so: {what}")
        time.sleep(pause)
        pause = max(pause, min(pause * 1.1, 0.1))


def call(port, *words):
    """One command on a connection of its own."""
    with socket.create_connection((HOST, port), timeout=10) as connection:
        connection.sendall(command_of(words))
        return reply_of(connection.makefile("rb"))


def command_of(words):
    words = [str(word).encode() for word in words]
    return b"".join([b"*%d\r\n" % len(words), *(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)])


def reply_of(stream):
    kind, text = (line := stream.readline().rstrip(b"\r\n"))[:1], line[1:].decode()
    if kind == b"-":
        raise Trouble(text)
    if kind == b"$":
        return stream.read(int(text) + 2)[:-2].decode() if text != "-1" else None
    if kind == b"*":
        return [reply_of(stream) for _ in range(int(text))]
    if not kind:
        raise Trouble("the connection has closed")
    return int(text) if kind == b":" else text


class Server:
    """A server process with a directory of its own; started again it has its port and its data."""

    def __init__(self, name, folder, options):
        self.name = name
        self.folder = os.path.join(folder, name)
        os.mkdir(self.folder)
        self.options = options
        self.process = None
        self.kept = socket.socket()
        self.port = 0
        while not self.port:
            self.begin(free_port())

    def begin(self, port):
        """If another process has taken the port, the next one is tried."""
        command = self.command_at(port)
        self.run(command)
        if self.is_up(port):
            self.port, self.command = port, command
        elif "Address already in use" not in self.said() and "bind" not in self.said():
            raise Trouble(f"{self.name} does not start: {self.said()}")

    def command_at(self, port):
        bus = str(free_port())
        command = ["redis-server", "--port", str(port), "--bind", HOST, "--dir", self.folder]
        return command + [bus if option == "BUS" else option for option in self.options]

    def run(self, command):
        with open(os.path.join(self.folder, "log"), "wb") as log:
            self.process = spawn(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def is_up(self, port):
        end = time.monotonic() + LONGEST
        while self.process.poll() is None and time.monotonic() < end:
            # Another server could have the port and answer: this one says its own process.
            with contextlib.suppress(OSError, Trouble):
                if f"process_id:{self.process.pid}\r" in call(port, "INFO", "server"):
                    return True
            time.sleep(0.02)
        return False

    def said(self):
        with open(os.path.join(self.folder, "log"), encoding="utf-8") as log:
            return log.read()

    def start(self):
        self.kept.close()
        self.run(self.command)
        until(f"{self.name} is up with its data", lambda: "\nloading:0" in call(self.port, "INFO", "persistence"))  # not async_loading

    def kill(self):
        """Its port stays its own, so that no server of another test is found there; nothing listens on it."""
        self.process.kill()
        self.process.wait()
        self.kept = socket.socket()
        self.kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            self.kept.bind((HOST, self.port))


class Sentinel(Server):
    """A Sentinel that watches the master at a port under the name `locks`; options are lines of its file."""

    def __init__(self, name, folder, master, quorum, options):
        self.watched = f"sentinel monitor locks {HOST} {master} {quorum}"
        super().__init__(name, folder, options)

    def command_at(self, port):
        path = os.path.join(self.folder, "sentinel.conf")
        with open(path, "w", encoding="utf-8") as file:
            lines = [f"port {port}", f"bind {HOST}", f"dir {self.folder}", self.watched, *self.options]
            file.write("\n".join(lines) + "\n")
        return ["redis-server", path, "--sentinel"]


def spawn(command, **streams):
    """A process that does not outlive this program, even if it is killed; Ctrl-C is this program's. By setpriv, of every Linux: with `preexec_fn`
    Python would copy itself for each."""
    return subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *command], start_new_session=True, **streams)


def module_path():
    path = os.environ.get("FAIRLOCK_MODULE", "")
    if not os.path.isfile(path):
        raise Trouble(f"FAIRLOCK_MODULE names no file: '{path}'; it is the built module, libfairlock.so")
    return os.path.abspath(path)
