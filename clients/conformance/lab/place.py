"""Masters with replicas, replaced by Sentinels or as nodes of a cluster, in a network that can be cut."""

import random

import servers
from network import Network
from servers import HOST, Sentinel, call, until

NAME = "locks"
LONGEST_CHANGE = 300  # seconds that a change of master may take; only ever reached on failure
SENTINEL_OPTIONS = [f"sentinel down-after-milliseconds {NAME} 3000", f"sentinel failover-timeout {NAME} 10000"]
SERVER_OPTIONS = ["--appendonly", "no", "--cluster-node-timeout", "3000", "--cluster-replica-validity-factor", "0"]


def fields(pairs):
    return dict(zip(pairs[::2], pairs[1::2]))


class Place(servers.Servers):
    """They know each other by the doors of the network. Kinds: `watched` (master and two replicas, without persistence, a to c, and their
    Sentinels, sa to sc, quorum 2), and `cluster`, where all locks of a test are in a's slots, so that a or its replica d is their master."""

    slots = {"a": (0, 16381), "b": (16382, 16382), "c": (16383, 16383)}

    def __init__(self, kind, folder, options=()):
        self.network, self.doors, self.buses, self.epochs = Network(), {}, {}, set()
        super().__init__(kind, [*SERVER_OPTIONS, *options], folder=folder)
        self.settle()

    def _door(self, name):
        self.doors[name] = self.network.door(name, lambda: self.port(name))
        return self.doors[name]

    def _add(self, name, *options):
        door, buses = self._door(name), []
        more = ["--replica-announce-ip", HOST, "--replica-announce-port", door, "--bind-source-addr", self.network.address(name)]
        if self.kind == "cluster":
            self.buses[name] = self.network.door(name, lambda: buses[0])
            more += ["--cluster-announce-ip", HOST, "--cluster-announce-port", door, "--cluster-announce-bus-port", self.buses[name]]
        server = super()._add(name, *options, *map(str, more))
        buses += [super()._bus(name)] if self.kind == "cluster" else []
        return server

    def _bus(self, name):
        return self.buses[name]

    def reached_at(self, name):
        return self.doors[name]

    def _start_watched(self):
        for name in "abc":
            self._add(name)
        # REPLICAOF is sent, not configured, so that each server restarts as a master.
        for name in "bc":
            call(self.port(name), "REPLICAOF", HOST, self.doors["a"])
        for name in ("sa", "sb", "sc"):
            options = [*SENTINEL_OPTIONS, f"bind-source-addr {self.network.address(name)}",
                       f"sentinel announce-ip {HOST}", f"sentinel announce-port {self._door(name)}"]
            self.servers[name] = Sentinel(name, self.folder, self.doors["a"], 2, options)
            # An old master is made a replica after four of these publish periods, at the next INFO: 5 s instead of up to 18.
            call(self.port(name), "SENTINEL", "DEBUG", "INFO-PERIOD", 1000, "PUBLISH-PERIOD", 1000)

    # What is done to them, besides what the network does.

    def mend(self):
        for server in self.servers.values():
            if server.process.poll() is not None:
                server.start()

    def pause(self, name):
        """No writes are lost by what follows."""
        call(self.port(name), "CLIENT", "PAUSE", 3000, "WRITE")

    def replace(self, _):
        until("a Sentinel begins", lambda: call(random.choice(self.sentinels()), "SENTINEL", "FAILOVER", NAME) == "OK")

    # What is seen of them.

    def sentinels(self):
        return [server.port for name, server in self.servers.items() if name.startswith("s")]

    def name_of(self, door):
        return next(name for name, port in self.doors.items() if port == int(door))

    def nodes(self, name):
        """What a node knows of the others and of itself: port, flags, epoch and slots."""
        lines = [line.split() for line in call(self.port(name), "CLUSTER", "NODES").splitlines()]
        return [(line[1].split("@")[0].rsplit(":", 1)[1], line[2], int(line[6]), line[8:]) for line in lines]

    def owners(self):
        """What each node knows of the master of the locks."""
        return [node for name in "abcd" for node in self.nodes(name) if "0-16381" in node[3]]

    def masters(self):
        """By the word of each Sentinel or node."""
        if self.kind == "cluster":
            return {self.name_of(port) for port, *_ in self.owners()}
        return {self.name_of(call(port, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)[1]) for port in self.sentinels()}

    def changes(self):
        """How often the master has changed; in a cluster, how many of its epochs have been seen here: a new one takes any greater number."""
        if self.kind == "cluster":
            self.epochs.add(max(epoch for _, _, epoch, _ in self.owners()))
            return len(self.epochs)
        return max(int(fields(call(port, "SENTINEL", "MASTER", NAME))["config-epoch"]) for port in self.sentinels())

    def settle(self):
        until("all has settled", self.is_settled, pause=0.2, longest=LONGEST_CHANGE)

    def is_settled(self):
        master, *others = self.masters()
        followers, knowing = (set("ad"), all(map(self.is_content, "abcd"))) if self.kind == "cluster" else (
            set("abc"), all(self.is_known(port, self.doors[master]) for port in self.sentinels()))
        return not others and knowing and self.is_in_step(master, followers - {master})

    def is_in_step(self, master, followers):
        """Whether these are the master's replicas, and have received everything."""
        role, offset, replicas = call(self.port(master), "ROLE")
        states = [call(self.port(name), "ROLE") for name in followers]
        return role == "master" and len(replicas) == len(followers) and all(
            state[0] == "slave" and state[2:4] == [self.doors[master], "connected"] and state[4] >= offset for state in states)

    @staticmethod
    def is_known(sentinel, master):
        """Whether a Sentinel sees the master, its replicas and the other Sentinels as they are."""
        seen = fields(call(sentinel, "SENTINEL", "MASTER", NAME))
        replicas = [fields(each) for each in call(sentinel, "SENTINEL", "REPLICAS", NAME)]
        right = {"flags": "slave", "role-reported": "slave", "master-link-status": "ok", "master-port": str(master)}
        return (seen["flags"], seen["num-other-sentinels"], len(replicas)) == ("master", "2", 2) and all(
            right.items() <= replica.items() for replica in replicas)

    def is_content(self, name):
        return "cluster_state:ok" in call(self.port(name), "CLUSTER", "INFO") and not any(
            "fail" in flags for _, flags, _, _ in self.nodes(name))
