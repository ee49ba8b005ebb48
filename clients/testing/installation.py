"""Masters with replicas, replaced by Sentinels or as nodes of a cluster, for tests that do them harm."""

import random

from redis_server import HOST, Sentinel, Server, call, module_path, until

NAME = "locks"
LONGEST_CHANGE = 300  # seconds that a change of master may take; only ever reached on failure
SENTINEL_OPTIONS = [f"sentinel down-after-milliseconds {NAME} 3000", f"sentinel failover-timeout {NAME} 10000"]
SERVER_OPTIONS = ["--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0"]
NODE_TIMEOUT = 3000  # milliseconds


def fields(pairs):
    return dict(zip(pairs[::2], pairs[1::2]))


class Installation:
    """Servers by name. With a network they know each other by the doors of its proxy, and else by their ports."""

    def __init__(self, folder, network=None, options=()):
        self.folder, self.network = folder, network
        self.options = ["--loadmodule", module_path(), *SERVER_OPTIONS, *options]
        self.servers, self.sentinels, self.seen = {}, {}, {}

    def add(self, name, *more):
        options = [*self.options, *more]
        if self.network:
            door = self.network.door(name, lambda: self.servers[name].port)
            options += ["--replica-announce-ip", HOST, "--replica-announce-port", door, "--bind-source-addr", self.network.address(name)]
        self.servers[name] = Server(name, self.folder, [str(option) for option in options])
        self.seen[name] = door if self.network else self.servers[name].port

    def name_of(self, seen):
        return next(name for name, port in self.seen.items() if port == int(seen))

    def role(self, name):
        return call(self.servers[name].port, "ROLE")

    def settle(self):
        until("all has settled", self.is_settled, pause=0.2, longest=LONGEST_CHANGE)

    def is_in_step(self, master, followers):
        """Whether these are the master's replicas, and have received everything."""
        role, offset, replicas = self.role(master)
        states = [self.role(name) for name in followers]
        return role == "master" and len(replicas) == len(followers) and all(
            state[0] == "slave" and state[2:4] == [self.seen[master], "connected"] and state[4] >= offset for state in states)

    def end(self):
        for server in self.servers.values():
            server.kill()


class Watched(Installation):
    """A master and two replicas (without persistence), and three Sentinels (quorum 2)."""

    def __init__(self, folder, network=None, options=()):
        super().__init__(folder, network, options)
        for name in "abc":
            self.add(name)
        # REPLICAOF is sent, not configured, so that each server restarts as a master.
        for name in "bc":
            call(self.servers[name].port, "REPLICAOF", HOST, self.seen["a"])
        for name in "abc":
            self.sentinels[f"s{name}"] = self.add_sentinel(f"s{name}")
        for port in self.ports():
            # An old master is made a replica after four of these publish periods, at the next INFO: 5 s instead of up to 18.
            call(port, "SENTINEL", "DEBUG", "INFO-PERIOD", 1000, "PUBLISH-PERIOD", 1000)
        self.settle()

    def add_sentinel(self, name):
        options = list(SENTINEL_OPTIONS)
        if self.network:
            self.seen[name] = self.network.door(name, lambda: self.sentinels[name].port)
            options += [f"bind-source-addr {self.network.address(name)}",
                        f"sentinel announce-ip {HOST}", f"sentinel announce-port {self.seen[name]}"]
        sentinel = Sentinel(name, self.folder, self.seen["a"], 2, options)
        self.seen.setdefault(name, sentinel.port)
        return sentinel

    def ports(self):
        return [sentinel.port for sentinel in self.sentinels.values()]

    def masters(self):
        """By the word of each Sentinel."""
        return {self.name_of(call(port, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)[1]) for port in self.ports()}

    def changes(self):
        """How often the Sentinels have changed the master so far."""
        return max(int(fields(call(port, "SENTINEL", "MASTER", NAME))["config-epoch"]) for port in self.ports())

    def is_settled(self):
        master, *others = self.masters()
        return not others and self.is_in_step(master, set("abc") - {master}) and all(
            self.is_known(port, self.seen[master]) for port in self.ports())

    @staticmethod
    def is_known(sentinel, master):
        """Whether a Sentinel sees the master, its replicas and the other Sentinels as they are."""
        seen = fields(call(sentinel, "SENTINEL", "MASTER", NAME))
        replicas = [fields(each) for each in call(sentinel, "SENTINEL", "REPLICAS", NAME)]
        right = {"flags": "slave", "role-reported": "slave", "master-link-status": "ok", "master-port": str(master)}
        return (seen["flags"], seen["num-other-sentinels"], len(replicas)) == ("master", "2", 2) and all(
            right.items() <= replica.items() for replica in replicas)

    def replace(self):
        """SENTINEL FAILOVER, until a Sentinel names another master."""
        old = self.masters()
        until("a Sentinel begins", lambda: call(random.choice(self.ports()), "SENTINEL", "FAILOVER", NAME) == "OK")
        until("a Sentinel names another master", lambda: self.masters() != old, longest=LONGEST_CHANGE)


class Cluster(Installation):
    """Three masters, a to c, and a replica of a, d. All locks of a test are in a's slots, so that a or d is their master."""

    def __init__(self, folder, network, options=()):
        more = ["--cluster-enabled", "yes", "--cluster-node-timeout", NODE_TIMEOUT, "--cluster-replica-validity-factor", 0]
        super().__init__(folder, network, [*options, *more])
        self.buses, self.seen_buses, self.epochs = {}, {}, set()
        for epoch, name in enumerate("abcd", start=1):
            self.add_node(name)
            call(self.servers[name].port, "CLUSTER", "SET-CONFIG-EPOCH", epoch)
        for name, first, last in (("a", 0, 16381), ("b", 16382, 16382), ("c", 16383, 16383)):
            call(self.servers[name].port, "CLUSTER", "ADDSLOTSRANGE", first, last)
        for name in "bcd":
            call(self.servers["a"].port, "CLUSTER", "MEET", HOST, self.seen[name], self.seen_buses[name])
        until("all know each other", lambda: all(len(self.nodes(name)) == 4 for name in "abcd"))
        a = call(self.servers["a"].port, "CLUSTER", "MYID")
        until("d can follow a", lambda: call(self.servers["d"].port, "CLUSTER", "REPLICATE", a))
        self.settle()

    def add_node(self, name):
        bus = self.seen_buses[name] = self.network.door(name, lambda: self.buses[name])
        self.add(name, "--cluster-port", "BUS", "--cluster-announce-ip", HOST, "--cluster-announce-bus-port", bus)
        server = self.servers[name].port
        call(server, "CONFIG", "SET", "cluster-announce-port", self.seen[name])
        self.buses[name] = int(call(server, "CONFIG", "GET", "cluster-port")[1])

    def nodes(self, name):
        """What a node knows of the others and of itself: port, flags, epoch and slots."""
        lines = [line.split() for line in call(self.servers[name].port, "CLUSTER", "NODES").splitlines()]
        return [(line[1].split("@")[0].rsplit(":", 1)[1], line[2], int(line[6]), line[8:]) for line in lines]

    def owners(self):
        """What each node knows of the master of the locks."""
        return [node for name in "abcd" for node in self.nodes(name) if "0-16381" in node[3]]

    def masters(self):
        """By the word of each node."""
        return {self.name_of(port) for port, *_ in self.owners()}

    def changes(self):
        """How many epochs of the locks' master have been seen here: a new one takes any greater number."""
        self.epochs.add(max(epoch for _, _, epoch, _ in self.owners()))
        return len(self.epochs)

    def is_settled(self):
        master, *others = self.masters()
        return not others and self.is_in_step(master, {"a", "d"} - {master}) and all(map(self.is_content, "abcd"))

    def is_content(self, name):
        return "cluster_state:ok" in call(self.servers[name].port, "CLUSTER", "INFO") and not any(
            "fail" in flags for _, flags, _, _ in self.nodes(name))
