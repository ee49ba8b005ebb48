"""Real servers for the rows, each in a directory of its own, what is done to them, and a proxy."""

import contextlib
import itertools
import pathlib
import signal
import tempfile

from network import Proxy
from redis_server import HOST, LONGEST, Sentinel, Server, Trouble, call, free_port, module_path, spawn, until  # noqa: F401

CLIENTS = pathlib.Path(__file__).parents[1]

LUA = CLIENTS / "lua"
# Milliseconds of silence after which a server is taken for dead: where one is killed, and else. On a busy machine a second may be but slow.
DEAD, ALIVE = 1000, 60_000
STARTING = 3000  # So that the nodes of a cluster ask each other often, and soon know each other.
SLOTS = {"a": (0, 5460), "b": (5461, 10922), "c": (10923, 16383)}


def on(node, name):
    """A name whose slot is the master's."""
    from redis.crc import key_slot  # Only here: the lab and `server` need nothing but Python.

    first, last = SLOTS[node]
    return next(each for each in (f"{name}:{number}" for number in range(1000)) if first <= key_slot(each.encode()) <= last)


class Servers:
    """The servers of a test by name. Kinds: `one` (a), `replica` (a and its replica b), `sentinel` (also s), `cluster` (masters a to c, a's replica d).

    `module`: whether they have it; options are redis-server's; `tls`: the folder of the certificate; a proxy is made when asked for.
    In `folder`, if it is given, all remains.
    """

    slots = SLOTS

    def __init__(self, kind, options=(), module=True, tls=None, folder=None):
        self.kind, self.module, self.tls = kind, module, tls
        self.passing = None if folder else tempfile.TemporaryDirectory(prefix="fairlock-conformance-", ignore_cleanup_errors=True)
        self.folder = folder or self.passing.name
        self.options, self.servers, self.secure, self.proxies, self.clients = list(options), {}, {}, [], {}
        try:
            getattr(self, f"_start_{kind}")()
        except BaseException:
            self.end()
            raise

    def _add(self, name, *options):
        module = ["--loadmodule", module_path()] if self.module else []
        always = ["--enable-module-command", "local", "--save", "", "--repl-diskless-sync-delay", "0"]
        if "--appendonly" not in self.options:
            always += ["--appendonly", "yes"]
        if self.tls:
            self.secure[name] = free_port()
            always += ["--tls-port", str(self.secure[name]), *(f"--{word}" if word.startswith("tls") else word for word in tls_options(self.tls))]
        self.servers[name] = Server(name, self.folder, [*module, *always, *options, *self.options])
        return self.servers[name]

    def _start_one(self):
        self._add("a")

    def _start_replica(self):
        self._add("a", "--repl-ping-replica-period", "1")
        self._add("b", "--replicaof", f"{HOST} {self.reached_at('a')}")
        until("b follows a", lambda: "state=online" in call(self.port("a"), "INFO", "replication"))

    def _start_sentinel(self):
        self._start_replica()
        settings = [f"sentinel down-after-milliseconds locks {ALIVE}", "sentinel failover-timeout locks 3000"]
        if self.tls:
            self.secure["s"] = free_port()
            words = ["tls-port", str(self.secure["s"]), *tls_options(self.tls)]
            settings += map(" ".join, zip(words[::2], words[1::2], strict=True))
        sentinel = self.servers["s"] = Sentinel("s", self.folder, self.reached_at("a"), 1, settings)
        until("s knows b", lambda: "slaves=1" in call(sentinel.port, "INFO", "sentinel"))

    def _start_cluster(self):
        options = ["--cluster-enabled", "yes", "--cluster-node-timeout", str(STARTING), "--cluster-port", "BUS"]
        for epoch, name in enumerate("abcd", start=1):
            call(self._add(name, *options).port, "CLUSTER", "SET-CONFIG-EPOCH", epoch)
        for name, slots in self.slots.items():
            call(self.port(name), "CLUSTER", "ADDSLOTSRANGE", *slots)
        for name, other in itertools.combinations("abcd", 2):
            call(self.port(name), "CLUSTER", "MEET", HOST, self.reached_at(other), self._bus(other))
        self._until_all("know each other", lambda port: self._known(port) == 4)
        self.follow("d", "a")
        role = "myself,slave", " slave "
        self._until_all("know d's role", lambda port: " slave " in call(port, "CLUSTER", "NODES").replace(*role))
        self._until_all("are up", lambda port: "cluster_state:ok" in call(port, "CLUSTER", "INFO"))
        self._notice_after(ALIVE)

    def follow(self, replica, master):
        replica, master = self.port(replica), self.port(master)
        until("it can follow", lambda: call(replica, "CLUSTER", "REPLICATE", call(master, "CLUSTER", "MYID")))
        until("it follows", lambda: "state=online" in call(master, "INFO", "replication"))

    def _bus(self, name):
        return call(self.port(name), "CONFIG", "GET", "cluster-port")[1]

    @staticmethod
    def _known(port):
        nodes = call(port, "CLUSTER", "NODES")
        return nodes.count(" connected") if "handshake" not in nodes else 0

    def _until_all(self, what, condition):
        for name, server in self.servers.items():
            until(f"{name}: {what}", lambda port=server.port: condition(port))

    # What a driver needs to reach them, and what tests look at.

    def port(self, name):
        return self.servers[name].port

    def reached_at(self, name):
        """The port for its peers and for clients."""
        return self.secure[name] if self.tls else self.port(name)

    def client(self, **more):
        """The description of a client of the library for these servers."""
        kind, name = {"sentinel": ("sentinel", "s"), "cluster": ("cluster", "a")}.get(self.kind, ("one", "a"))
        return {"kind": kind, "addrs": [f"{HOST}:{self.reached_at(name)}"], **more}

    def proxy(self):
        """In front of a."""
        self.proxies = self.proxies or [Proxy(self.port("a"))]
        return self.proxies[0]

    def through_proxy(self, **more):
        return {"kind": "one", "addrs": [f"{HOST}:{self.proxy().port}"], **more}

    def at(self, name="a"):
        """A plain client of one of them: always the same one, which is cheaper to poll with."""
        import redis  # Only here, as above.

        if name not in self.clients:
            self.clients[name] = redis.Redis(port=self.port(name), decode_responses=True, protocol=2)
        return self.clients[name]

    def view(self, name="a"):
        from view import View

        return View(self.at(name))

    def lose(self, *commands, **more):
        """The reply to the next of these commands is lost."""
        words = [f"FAIRLOCK.{command}" for command in commands]
        if not self.module:  # Known to the server, a script need not be sent.
            scripts = [(LUA / f"{command}.lua").read_text() for command in commands]
            words = [word for script in scripts for word in (call(self.port("a"), "SCRIPT", "LOAD", script), script[:80])]
        self.proxy().lose(*words, **more)

    # What is done to them.

    def load(self):
        call(self.port("a"), "MODULE", "LOAD", module_path())

    def kill(self, name="a"):
        self.servers[name].kill()

    def die(self, name):
        """As `kill`, and the others notice it."""
        self.kill(name)
        self._notice_after(DEAD)

    def _notice_after(self, milliseconds):
        if self.kind == "sentinel":
            call(self.port("s"), "SENTINEL", "SET", "locks", "down-after-milliseconds", milliseconds)
            return
        for server in self.servers.values():
            if server.process.poll() is None:
                call(server.port, "CONFIG", "SET", "cluster-node-timeout", milliseconds)

    def start(self, name="a"):
        self.servers[name].start()

    def stop(self, name="a"):
        self.servers[name].process.send_signal(signal.SIGSTOP)

    def go_on(self, name="a"):
        self.servers[name].process.send_signal(signal.SIGCONT)

    @contextlib.contextmanager
    def moving(self, slot, source, target):
        """As `redis-cli --cluster reshard` moves a slot; meanwhile its keys are at the new node, which does not own it yet."""
        masters = {each: call(self.port(each), "CLUSTER", "MYID") for each in "abc"}
        call(self.port(target), "CLUSTER", "SETSLOT", slot, "IMPORTING", masters[source])
        call(self.port(source), "CLUSTER", "SETSLOT", slot, "MIGRATING", masters[target])
        while keys := call(self.port(source), "CLUSTER", "GETKEYSINSLOT", slot, 100):
            call(self.port(source), "MIGRATE", HOST, self.port(target), "", 0, 5000, "KEYS", *keys)
        yield
        for each in [target, source, *(masters.keys() - {target, source})]:
            call(self.port(each), "CLUSTER", "SETSLOT", slot, "NODE", masters[target])

    def fail_over(self):
        """Kills a, and waits for the new master."""
        successor = self.port("b" if self.kind == "sentinel" else "d")
        self.die("a")
        until("another is the master", lambda: call(successor, "ROLE")[0] == "master")
        if self.kind == "sentinel":
            sentinel = self.port("s")
            until("the sentinel says so", lambda: call(sentinel, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "locks")[1] == str(successor))
        else:
            for name in "bcd":
                until(f"{name} is up", lambda name=name: "cluster_state:ok" in call(self.port(name), "CLUSTER", "INFO"))
        self._notice_after(ALIVE)

    def end(self):
        for proxy in self.proxies:
            proxy.end()
        for client in self.clients.values():
            client.close()
        for server in self.servers.values():
            server.kill()
        if self.passing:
            self.passing.cleanup()


def tls_options(folder):
    options = {"ca-cert-file": f"{folder}/cert.pem", "cert-file": f"{folder}/cert.pem", "key-file": f"{folder}/key.pem"}
    options |= {"auth-clients": "yes", "replication": "yes", "cluster": "yes"}
    return [word for option, value in options.items() for word in (f"tls-{option}", value)]
