"""What is done to masters and their network, in `faults`. A machine is a server, its Sentinel and its clients: x, sx and kx."""

import dataclasses

from network import both, ways

# What excludes two holders: that all replicas confirm a hold, that at least one does, or nothing needs to.
ALL, ONE, ANY = ("all",), ("all", "one"), ("all", "one", "none")


@dataclasses.dataclass
class Scenario:
    """`cuts` says for a master, all names and dice what is done: faults of Network (or Place), their ways, and the seconds until the next one."""

    title: str
    cuts: object
    excludes: tuple
    kind: str = "watched"
    options: tuple = ()
    is_change: bool = True  # of the master
    ends_grants: bool = False  # min-replicas-to-write keeps a master that is cut off from granting
    is_beyond_skew: bool = False  # an old master's tokens pass those of the new one
    after: tuple = (3.0, 5.0)  # seconds that the cut lasts when the master has changed, or when it does not change
    # How many replicas confirm holds of packages; the leases of their processes; and their callers' pauses.
    counts: tuple = (0, 1, 2)
    leases: tuple = (3, 3, 3)
    idle: tuple = (0.0, 0.4)

    def group(self):
        """Scenarios with the same servers and workers share them."""
        return self.kind, self.options, self.counts, self.leases, self.idle


def machine(*names):
    return {kind + name for name in names for kind in ("", "s", "k")}


def around(some, names):
    """What is between these and all others."""
    return both(some, names - some)


def replicas(master):
    return sorted(set("abc") - {master})


def alone(master, names, dice):
    return [(dice.choice(["stop", "refuse"]), around(machine(master), names), 0)]


def nothing_leaves(master, names, _):
    return [("stop", ways(machine(master), names - machine(master)), 0)]


def nothing_arrives(master, names, _):
    return [("stop", ways(names - machine(master), machine(master)), 0)]


def with_a_replica(master, names, dice):
    """The Sentinel of that replica is on the other side, so that there are two."""
    return [("stop", around({*machine(master), dice.choice(replicas(master))}, names), 0)]


def from_sentinels(master, _, dice):
    return [(dice.choice(["stop", "refuse"]), both({master}, {"sa", "sb", "sc"}), 0)]


def replication_first(master, names, dice):
    return [("stop", both({master}, set("abcd") - {master}), 2.0), *alone(master, names, dice)]


def replication_one_way_first(master, names, dice):
    """What the master sends does not arrive; what the replicas acknowledge does."""
    return [("stop", ways({master}, set("abcd") - {master}), 6.0), *alone(master, names, dice)]


def one_replica_first(master, names, dice):
    """The other one is cut off with the master."""
    other, promoted = dice.sample(replicas(master), 2)
    return [("stop", both({master}, {promoted}), 2.0), ("stop", around({*machine(master), other}, names), 0)]


def sentinels_apart(*_):
    return [("stop", both({"sa"}, {"sb"}) | both({"sb"}, {"sc"}) | both({"sa"}, {"sc"}), 0)]


def clients_cut_off(master, names, dice):
    some = {dice.choice(sorted(name for name in names if name[0] == "k"))}
    servers = names - {name for name in names if name[0] == "k"}
    return [dice.choice([
        ("stop", both(some, servers), 0), ("refuse", both(some, servers), 0),
        ("stop", ways(some, servers), 0), ("stop", ways(servers, some), 0),
        ("slow", both(some, servers), 0),
    ])]


def kill(master, *_):
    return [("kill", master, 0)]


def planned(master, *_):
    return [("replace", master, 0)]


def paused(master, *_):
    return [("pause", master, 0), ("replace", master, 0)]


MIN_REPLICAS = ("--min-replicas-to-write", "1", "--min-replicas-max-lag", "2")
SKEW = ("--fairlock.clock-skew", "1000")

# A hold that the new master still knows protects the lock from others, a short while; and a holder that does not learn that it has
# lost the lock believes in it for long. So there are leases of both lengths, and a lock is sometimes free.
BY_SENTINELS = {"counts": (1,), "leases": (2, 10), "idle": (0, 8)}

SCENARIOS = {
    "kill": Scenario("the master is killed, and comes back empty", kill, ONE, after=(0.0, 1.0), **BY_SENTINELS),
    "planned": Scenario("`SENTINEL FAILOVER`", planned, ALL, after=(0.0, 1.0), **BY_SENTINELS),
    "paused": Scenario("`SENTINEL FAILOVER` while writes are paused", paused, ONE, after=(0.0, 1.0), **BY_SENTINELS),
    "alone": Scenario("the master's machine is cut off", alone, ONE),
    "leaves": Scenario("nothing leaves the master's machine", nothing_leaves, ONE),
    "arrives": Scenario("nothing arrives at the master's machine", nothing_arrives, ONE),
    "limited": Scenario("the master's machine is cut off, `min-replicas-to-write 1`", alone, ONE, options=MIN_REPLICAS, ends_grants=True),
    "with": Scenario("the master is cut off together with a replica", with_a_replica, ALL),
    "with-limited": Scenario("the master is cut off together with a replica, `min-replicas-to-write 2`", with_a_replica, ALL, ends_grants=True,
                             options=("--min-replicas-to-write", "2", *MIN_REPLICAS[2:])),
    "sentinels": Scenario("the master is cut off from the Sentinels only", from_sentinels, ALL),
    "replication": Scenario("replication stops 2 s before the master's machine is cut off", replication_first, ONE),
    "one-way": Scenario("what it sends to replicas stops 6 s before the master's machine is cut off, `min-replicas-to-write 1`", replication_one_way_first, ONE, options=MIN_REPLICAS),
    "one-replica": Scenario("one replica is cut off 2 s before, and is then promoted", one_replica_first, ALL),
    "long": Scenario("the master's machine is cut off for longer than `clock-skew` (1 s)", alone, ONE, options=SKEW, is_beyond_skew=True, after=(6.0, 9.0)),
    "apart": Scenario("the Sentinels are cut off from each other", sentinels_apart, ANY, is_change=False),
    "clients": Scenario("clients are cut off", clients_cut_off, ANY, is_change=False),
    "cluster": Scenario("cluster: the master's machine is cut off", alone, ONE, "cluster"),
    "cluster-leaves": Scenario("cluster: nothing leaves the master's machine", nothing_leaves, ONE, "cluster"),
    "cluster-arrives": Scenario("cluster: nothing arrives at the master's machine", nothing_arrives, ONE, "cluster"),
    "cluster-replication": Scenario("cluster: replication stops 2 s before the master's machine is cut off", replication_first, ONE, "cluster"),
    "cluster-clients": Scenario("cluster: clients are cut off", clients_cut_off, ANY, "cluster", is_change=False),
}
