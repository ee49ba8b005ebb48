"""Where the connections for a lock go: to the one server, the master that sentinels name, or a node of a cluster.

Taken from the user's client: its kind of connection and what that is made with. The client itself is left alone.
"""

from __future__ import annotations

import re
from typing import Any

from redis.backoff import NoBackoff
from redis.crc import key_slot

Address = tuple[str, int]
# What belongs to the client that the connections are modelled on, or to features that are not used here.
NOT_OURS = re.compile(r"maint|orig_|himport|event_dispatcher|retry|decode_responses|protocol|redis_connect_func$|cache")
REDIRECT = re.compile(r"(?:MOVED |ASK )?(\d+) (\S*):(\d+)$")


class Route:
    """Makes what connections need; in a cluster it learns which node has which slot."""

    def __init__(self, client: Any, kinds: Any, command_timeout: float) -> None:
        # Sentinel connections refer to their pool by a weak reference.
        self.client = client
        self.kinds = kinds
        self.command_timeout = command_timeout
        self.is_cluster = not hasattr(client, "connection_pool")
        self.slots: dict[int, Address] = {}
        self.nodes: list[Address] = []
        if not self.is_cluster:
            pool = client.connection_pool
            self._take(pool.connection_class, pool.connection_kwargs)

    def _take(self, connection_class: Any, options: dict[str, Any]) -> None:
        self.connection_class = connection_class
        self.options = {key: value for key, value in options.items() if not NOT_OURS.search(key)}
        self.options |= {
            # Those of asyncio have a timeout for each read; the connection's own would end a blocked one.
            "socket_timeout": None if self.kinds.is_async else self.command_timeout,
            "socket_connect_timeout": self.command_timeout,
            # The package itself tries again, with the same owner.
            "retry": self.kinds.retry(NoBackoff(), 0),
            "protocol": 2,
            "health_check_interval": 0,
        }
        if not self.is_cluster and "redis_connect_func" in options:
            self.options["redis_connect_func"] = options["redis_connect_func"]
        if issubclass(connection_class, self.kinds.tcp):
            self.options["socket_keepalive"] = True

    def adopt(self, node: Any, nodes: list[Any]) -> None:
        """Takes from a cluster client that is initialized what a node is connected to with."""
        source = node if hasattr(node, "connection_kwargs") else self.client.get_redis_connection(node).connection_pool
        self._take(source.connection_class, source.connection_kwargs)
        self.nodes = [(each.host, int(each.port)) for each in nodes]

    def connection(self, address: Address | None) -> Any:
        options = dict(self.options)
        if address is not None:
            options["host"], options["port"] = address
        return self.connection_class(**options)

    def address(self, name: str | bytes) -> Address | None:
        """The node for a lock as far as it is known; LookupError: ask the cluster first."""
        return self.slots[self.slot(name)] if self.is_cluster else None

    @staticmethod
    def slot(name: str | bytes) -> int:
        return key_slot(name.encode() if isinstance(name, str) else name)

    def learn(self, ranges: Any, asked: Address) -> None:
        """Takes the reply to CLUSTER SLOTS."""
        self.slots, nodes = {}, []
        for first, last, *members in ranges:
            hosts = [((host or asked[0].encode()).decode(), int(port)) for host, port, *_ in members]
            self.slots |= dict.fromkeys(range(first, last + 1), hosts[0])
            nodes += hosts
        # Nodes that are not in the reply may be back later.
        self.nodes = list(dict.fromkeys([*nodes, *self.nodes]))

    def redirect(self, text: str, asked: Address | None, for_good: bool) -> Address | None:
        """The address in a MOVED or ASK."""
        found = REDIRECT.search(text)
        if not found or not self.is_cluster:
            return None
        slot, host, port = found.groups()
        address = (host or (asked[0] if asked else ""), int(port))
        if for_good:
            self.slots[int(slot)] = address
        return address

    def describe(self, address: Address | None) -> str:
        host, port = address or (self.options.get("host"), self.options.get("port"))
        if host is None:
            return str(self.options.get("path") or "the master that the sentinels name")
        return f"{host}:{port}"
