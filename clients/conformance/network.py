"""The network between the processes of a test: a proxy that every connection passes, and that cuts, delays and resets them.

A process has a name. Its connections come from an address of its own, 127.0.1.n: servers and Sentinels have `bind-source-addr`, clients bind.
It is reached at a door, a port of the proxy that it announces for its own. So any process can be cut off from any other, in one direction or
both, and no privileges are needed. A way is a pair of names: what the first sends to the second, whichever of them has opened the connection.

Unlike in a real network, connecting succeeds at once when the other end is cut off. Then nothing is heard of it until the connection is
reset, some seconds later.
"""

import asyncio
import contextlib
import resource
import socket
import struct
import threading

from redis_server import HOST, LONGEST

AT_ONCE = 65536  # bytes
DELAY, CONNECT = 0.5, 5  # seconds: of a slow way, and that a connection to what is cut off may take


def ways(some, others):
    """All that these send to those."""
    return {(one, other) for one in some for other in others}


def both(some, others):
    return ways(some, others) | ways(others, some)


class Connection:
    """A connection through the proxy, as its two halves."""

    def __init__(self, source, target, near, far):
        self.ways = (source, target), (target, source)
        self.near, self.far = near, far
        self.is_doomed = self.is_silent = False

    def reset(self):
        for writer in (self.near, self.far):
            with contextlib.suppress(OSError):  # It is closed already.
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()


class Network:
    def __init__(self):
        # Each connection is two here, and those that are cut off are tried again all the time.
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        self.addresses, self.names = {}, {}
        self.stopped, self.refused, self.delayed = set(), set(), set()
        self.connections, self.listeners = set(), []
        self.words, self.lost = [], 0
        self.loop, self.change = asyncio.new_event_loop(), asyncio.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        self.loop.run_forever()
        self.loop.close()

    def end(self):
        async def close():
            pumps = asyncio.all_tasks() - {asyncio.current_task()}
            self.stopped.clear()  # Else the end of what is stopped would be waited for.
            for listener in self.listeners:
                listener.close()
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
        self._do(close())
        self.loop.call_soon_threadsafe(self.loop.stop)

    def address(self, name):
        """Where the connections of a process are to come from; clients that share a name are cut off together."""
        if name not in self.addresses:
            self.addresses[name] = f"127.0.1.{len(self.addresses) + 1}"
            self.names[self.addresses[name]] = name
        return self.addresses[name]

    def door(self, name, target):
        """A port that leads to the process; `target` is called for its own port, which may not be known yet."""
        async def listen():
            server = await asyncio.start_server(lambda *near: self._accept(name, target, *near), HOST, 0)
            self.listeners.append(server)
            return server.sockets[0].getsockname()[1]
        return self._do(listen())

    # ------------------------------------------------------------------------ faults

    def stop(self, some):
        """What is sent these ways arrives after `mend`: TCP sends it again until then."""
        self._set(lambda: self.stopped.update(some))

    def refuse(self, some):
        """Connections that use these ways are reset, and new ones refused: as by a host that has gone."""
        def refuse():
            self.refused.update(some)
            self._reset(some)
        self._set(refuse)

    def slow(self, some):
        self._set(lambda: self.delayed.update(some))

    def half_open(self):
        """The opener of each present connection hears no more of it, and the other sees its end. New ones work."""
        def silence():
            for connection in self.connections:
                connection.is_silent = True
                connection.far.transport.abort()
        self._set(silence)

    def lose(self, *words, only_held=False):
        """The reply to the next request with one of these words is lost, with its connection; or only held up, with all replies after it, until `mend`."""
        self.words, self.is_held_up = [word.upper().encode() for word in words], only_held

    def mend(self, reset=False):
        """Ends all faults. `reset`: connections that were cut do not go on, as if a firewall had forgotten them."""
        def mend():
            if reset:
                self._reset(self.stopped)
            for some in (self.stopped, self.refused, self.delayed):
                some.clear()
        self._set(mend)

    # ------------------------------------------------------------------------ passing on

    async def _accept(self, target, port, reader, near):
        source = self.names.get(near.get_extra_info("peername")[0])
        connection = Connection(source, target, near, near)
        try:
            await asyncio.wait_for(self._pass(*connection.ways), CONNECT)
            far_reader, connection.far = await asyncio.open_connection(HOST, port())
            self.connections.add(connection)
            await self._pass(*connection.ways)  # Something may have changed meanwhile.
            halves = (reader, connection.far), (far_reader, near)
            await asyncio.gather(*(self._pump(connection, *half, way) for half, way in zip(halves, connection.ways)))
        except (OSError, asyncio.TimeoutError, asyncio.CancelledError):
            connection.reset()
        finally:
            self.connections.discard(connection)
            for writer in (near, connection.far):
                writer.close()

    async def _pump(self, connection, reader, writer, way):
        try:
            while data := await reader.read(AT_ONCE):
                self._look(connection, data, writer)
                await self._pass(way)
                if connection.is_silent:
                    continue
                if writer.is_closing():  # It was reset meanwhile.
                    raise ConnectionResetError
                writer.write(data)
                await writer.drain()
        finally:
            await self._pass(way)  # An end does not arrive either.
        if not (writer.is_closing() or connection.is_silent):
            writer.write_eof()

    def _look(self, connection, data, writer):
        if connection.is_doomed and writer is connection.near:
            self.lost += 1
            raise ConnectionResetError
        if any(word in data.upper() for word in self.words):
            self.words = []
            if self.is_held_up:
                self.stopped.add(connection.ways[1])
            else:
                connection.is_doomed = True

    async def _pass(self, *some):
        """Waits until something may go these ways."""
        while not self.stopped.isdisjoint(some):
            await self.change.wait()
        if not self.refused.isdisjoint(some):
            raise ConnectionResetError
        if not self.delayed.isdisjoint(some):
            await asyncio.sleep(DELAY)

    def _reset(self, some):
        for connection in list(self.connections):
            if not some.isdisjoint(connection.ways):
                connection.reset()

    def _set(self, change):
        async def set_all():
            change()
            self.change.set()
            self.change = asyncio.Event()
        self._do(set_all())

    def _do(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(LONGEST)


class Proxy(Network):
    """In front of one server; its clients have no names."""

    def __init__(self, port):
        super().__init__()
        self.port = self.door("server", lambda: port)

    def freeze(self):
        """No bytes from the server pass."""
        self.stop({("server", None)})

    def cut(self):
        """All connections are reset, and no new ones accepted."""
        self.refuse({("server", None)})
