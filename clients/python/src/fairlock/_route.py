"""Where the connections for a lock go: to the one server, the master that Sentinels name, or a node of a cluster.

Taken from the user's client: its kind of connection and what that is made with. The client itself is left alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import redis.exceptions as redis_errors
from redis.backoff import NoBackoff
from redis.crc import key_slot

if TYPE_CHECKING:
    from ._lines import Lines

Address = tuple[str, int]
# What belongs to the client that the connections are modelled on, or to features that are not used here.
NOT_OURS = re.compile(
    r"maint|orig_|himport|event_dispatcher|retry|decode_responses|protocol|redis_connect_func$|cache|connection_pool"
)
REDIRECT = re.compile(r"(?:MOVED |ASK )?(\d+) (\S*):(\d+)$")


class Route:
    """Makes connections; it learns which server is the master, or which node has which slot."""

    sentinels: tuple[Address, ...] | list[Address] = ()
    is_cluster = False

    def __init__(self, client: Any, kinds: Any, command_timeout: float) -> None:
        check_client(client, kinds)
        self.client, self.kinds, self.command_timeout = client, kinds, command_timeout
        self.is_cluster = isinstance(client, kinds.cluster)
        self.slots: dict[int, Address] = {}
        self.nodes: list[Address] = []
        self.map: Any = None
        # The most replicas seen of a slot's master, or of the one master: one that is down counts.
        self.known: dict[int, int] = {}
        self.master: Address | None = None
        self.asked = float("-inf")  # when the Sentinels named it
        if not self.is_cluster:
            pool = client.connection_pool
            self.plan = self._plan(pool)
            if hasattr(pool, "sentinel_manager"):
                self._take_sentinels(pool)

    def _plan(self, pool: Any) -> tuple[type[Any], dict[str, Any]]:
        """The class of a pool's connections, and its arguments."""
        kinds, made, given = self.kinds, pool.connection_class, pool.connection_kwargs
        if hasattr(pool, "sentinel_manager"):  # Its own class would look for the master by itself.
            made = kinds.ssl if issubclass(made, kinds.ssl) else kinds.tcp
        options = {key: value for key, value in given.items() if not NOT_OURS.search(key)}
        options |= {
            # Those of asyncio have a timeout for each read; the connection's own would end a blocked one.
            "socket_timeout": None if kinds.is_async else self.command_timeout,
            "socket_connect_timeout": self.command_timeout,
            # The package itself tries again, with the same owner.
            "retry": kinds.retry(NoBackoff(), 0),
            "protocol": 2,
            "health_check_interval": 0,
        }
        if not self.is_cluster and "redis_connect_func" in given:
            options["redis_connect_func"] = given["redis_connect_func"]
        if issubclass(made, kinds.tcp):
            options["socket_keepalive"] = True
        return made, options

    def _take_sentinels(self, pool: Any) -> None:
        self.service = pool.service_name
        pools = [sentinel.connection_pool for sentinel in pool.sentinel_manager.sentinels]
        given = [(each.connection_kwargs["host"], int(each.connection_kwargs["port"])) for each in pools]
        self.sentinel_plans = dict(zip(given, map(self._plan, pools), strict=True))
        self.sentinels = list(self.sentinel_plans)

    def adopt(self, node: Any, nodes: list[Any]) -> None:
        """Takes the arguments for connections to nodes from an initialized cluster client."""
        is_pool = hasattr(node, "connection_kwargs")
        self.plan = self._plan(node if is_pool else self.client.get_redis_connection(node).connection_pool)
        self.nodes = [(each.host, int(each.port)) for each in nodes]

    def connection(self, address: Address | None) -> Any:
        if address is None:
            return self.plan[0](**self.plan[1])
        kind, options = self.sentinel_plans[address] if address in self.sentinels else self.plan
        return kind(**{**options, "host": address[0], "port": address[1]})

    # ------------------------------------------------------------------------ what is known

    @property
    def is_watched(self) -> bool:
        """Whether another server can become the master."""
        return self.is_cluster or bool(self.sentinels)

    def address(self, name: str | bytes) -> Address | None:
        """The known server for a lock; LookupError: find it first."""
        if self.is_cluster:
            return self.slots[self.slot(name)]
        if self.sentinels and self.master is None:
            raise LookupError
        return self.master

    def masters(self) -> set[Address]:
        return set(self.slots.values()) if self.is_cluster else {self.master} if self.master else set()

    def replicas(self, name: str | bytes) -> int:
        """How many replicas the lock's master is known to have."""
        return self.known.get(self.slot(name) if self.is_cluster else 0, 0)

    def forget(self) -> None:
        """After a failure, the known masters may be out of date."""
        self.slots, self.map, self.master = {}, None, None

    @staticmethod
    def slot(name: str | bytes) -> int:
        return key_slot(name.encode() if isinstance(name, str) else name)

    # ----------------------------------------------------------------------------- finding

    async def find(self, lines: Lines) -> set[Address]:
        """The masters now: asks the Sentinels, or the nodes, one after another until one answers."""
        last: Exception | None = None
        for server in list(self.sentinels or self.nodes):
            try:
                masters = await (self._ask_sentinel if self.sentinels else self._ask_node)(server, lines)
            except (redis_errors.RedisError, OSError) as error:
                last = last or error
                continue
            self._ask_first(server)
            return masters
        raise last or redis_errors.ConnectionError("no node of the cluster is known")

    def _ask_first(self, server: Address) -> None:
        """Next time, the one that answered."""
        if self.sentinels:
            self.sentinels = [server, *(each for each in self.sentinels if each != server)]
        else:
            self.nodes = [server, *(each for each in self.nodes if each != server)]

    async def _ask_sentinel(self, sentinel: Address, lines: Lines) -> set[Address]:
        desk, now = lines.desk(sentinel, "guide"), lines.runtime.now()
        # This one names the new master a little earlier than MASTER does.
        found = await desk.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service, timeout=self.command_timeout)
        if found is None:
            raise redis_errors.ConnectionError(f"the Sentinel knows no master {self.service!r}")
        state = await desk.call("SENTINEL", "MASTER", self.service, timeout=self.command_timeout)
        fields = dict(zip(state[::2], state[1::2], strict=True))
        self.known[0] = max(self.known.get(0, 0), int(fields[b"num-slaves"]))
        master = (found[0].decode(), int(found[1]))
        self.master, self.asked = master, now
        return {master}

    async def _ask_node(self, node: Address, lines: Lines) -> set[Address]:
        desk = lines.desk(node, "guide")
        ranges = await desk.call("CLUSTER", "SLOTS", timeout=self.command_timeout)
        # SLOTS does not show replicas that are down.
        text = await desk.call("CLUSTER", "NODES", timeout=self.command_timeout)
        masters_of_replicas = [line.split()[3] for line in text.splitlines()]
        found = [
            (first, last, [((host or node[0].encode()).decode(), int(port)) for host, port, *_ in members],
             masters_of_replicas.count(members[0][2]))
            for first, last, *members in ranges
        ]  # fmt: skip
        if found != self.map:
            self._learn(found)
            self.map = found
        return {members[0] for _, _, members, _ in found}

    def _learn(self, found: list[tuple[int, int, list[Address], int]]) -> None:
        slots: dict[int, Address] = {}
        nodes: list[Address] = []
        for first, last, members, replicas in found:
            slots |= dict.fromkeys(range(first, last + 1), members[0])
            nodes += members
            if replicas:
                self.known |= {slot: max(replicas, self.known.get(slot, 0)) for slot in range(first, last + 1)}
        self.slots = slots
        # Nodes that are not in the reply may be back later.
        self.nodes = list(dict.fromkeys([*self.nodes, *nodes]))

    def redirect(self, text: str, asked: Address | None, for_good: bool) -> Address | None:
        """The address in a MOVED or ASK."""
        found = REDIRECT.search(text)
        if not found or not self.is_cluster:
            return None
        slot, host, port = found.groups()
        address = (host or (asked[0] if asked else ""), int(port))
        if for_good:
            self.slots[int(slot)], self.map = address, None
        return address

    def describe(self, address: Address | None) -> str:
        if address is None and self.sentinels:
            return "Sentinel " + ", ".join(f"{host}:{port}" for host, port in self.sentinels)
        if address is None and self.is_cluster:
            return "the cluster"
        host, port = address or (self.plan[1].get("host"), self.plan[1].get("port"))
        return str(self.plan[1].get("path")) if host is None else f"{host}:{port}"


def check_client(client: Any, kinds: Any) -> None:
    """Refuses an object that only looks like a client: it could lead to another server."""
    if isinstance(client, (kinds.client, kinds.cluster)):
        pool = getattr(client, "connection_pool", None)
        if getattr(pool, "is_master", True):
            return
        hint = ": locks are the master's, use sentinel.master_for(name)"
    elif isinstance(client, (str, bytes)):
        hint = f": {kinds.module}.Redis.from_url(url)"
    elif hasattr(client, "master_for"):
        hint = ": sentinel.master_for(name)"
    elif hasattr(client, "get_connection"):
        hint = f": {kinds.module}.Redis(connection_pool=pool)"
    elif isinstance(client, kinds.others):
        hint = f": that is for {kinds.other}"
    else:
        hint = ""
    kind = type(client)
    what = "None" if client is None else f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    raise TypeError(f"{kinds.locks} wants a {kinds.module}.Redis or {kinds.module}.RedisCluster, not {what}{hint}")
