#!/usr/bin/env python3
"""The proxy of `partitions`, between a client and a server of these tests' own."""

import socket
import sys
import time
import unittest

sys.dont_write_bytecode = True  # Nothing is written into the source tree.
from network import DELAY, Network, both  # noqa: E402
from redis_server import HOST  # noqa: E402

LONG, A_MOMENT = 10, 0.3  # seconds: what is to come, and what is not


class Cuts(unittest.TestCase):
    def setUp(self):
        self.network = Network()
        self.listener = socket.create_server((HOST, 0))
        self.listener.settimeout(LONG)
        self.door = self.network.door("server", lambda: self.listener.getsockname()[1])
        self.client, self.server = self.connect("client")

    def connect(self, name):
        client = socket.create_connection((HOST, self.door), LONG, (self.network.address(name), 0))
        self.addCleanup(client.close)
        server, _ = self.listener.accept()
        self.addCleanup(server.close)
        server.settimeout(LONG)
        self.passes(client, server)
        return client, server

    def passes(self, sender, receiver, data=b"x"):
        sender.sendall(data)
        self.assertEqual(receiver.recv(10), data)

    def is_silent(self, receiver):
        receiver.settimeout(A_MOMENT)
        with self.assertRaises(TimeoutError):
            receiver.recv(10)
        receiver.settimeout(LONG)

    def test_what_is_stopped_one_way_arrives_when_that_is_mended(self):
        self.network.stop({("client", "server")})
        self.client.sendall(b"late")
        self.is_silent(self.server)
        self.passes(self.server, self.client)
        self.network.mend()
        self.assertEqual(self.server.recv(10), b"late")

    def test_an_end_does_not_arrive_either_and_others_are_not_concerned(self):
        other, its_server = self.connect("other")
        self.network.stop(both({"client"}, {"server"}))
        self.client.close()
        self.is_silent(self.server)
        self.passes(other, its_server)
        self.network.mend()
        self.assertEqual(self.server.recv(10), b"")

    def test_connections_that_were_cut_are_reset_if_they_are_to_be(self):
        self.network.stop({("server", "client")})
        self.network.mend(reset=True)
        with self.assertRaises(ConnectionResetError):
            self.client.recv(10)

    def test_one_that_is_refused_is_reset_and_cannot_connect_again(self):
        self.network.refuse({("client", "server")})
        with self.assertRaises(ConnectionResetError):
            self.client.recv(10)
        with self.assertRaises(ConnectionResetError):
            socket.create_connection((HOST, self.door), LONG, (self.network.address("client"), 0)).recv(10)
        self.network.mend()
        self.connect("client")

    def test_of_half_a_close_the_sender_hears_nothing(self):
        self.network.half_close({("client", "server")})
        self.assertEqual(self.server.recv(10), b"")
        self.server.sendall(b"x")
        self.is_silent(self.client)
        self.network.mend()
        with self.assertRaises(ConnectionResetError):
            self.client.recv(10)

    def test_what_is_slow_arrives_later(self):
        self.network.slow({("client", "server")})
        begin = time.monotonic()
        self.passes(self.client, self.server)
        self.assertGreaterEqual(time.monotonic() - begin, DELAY)


if __name__ == "__main__":
    unittest.main()
