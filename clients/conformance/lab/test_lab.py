"""What the lab relies on: its analysis, with holds that are made up, and its network, between a client and a server of these tests' own."""

import socket

import pytest
from network import Network, both
from overlaps import holds_of, overlaps_of, pairs_of
from servers import HOST

LONG, A_MOMENT = 10, 0.3  # seconds: what is to come, and what is not
KILL, PLANNED = {"kind": "kill", "at": 10, "old": "a", "beside": "a"}, {"kind": "planned", "at": 30}


def begin(process, at, lock="a", limit=1, token=None):
    return {"event": "begin", "process": process, "package": "p", "lock": lock, "limit": limit, "token": token or int(at * 1000), "at": at}


def hold(process, first, last, how="release", **more):
    start = begin(process, first, **more)
    return [start, {**start, "event": "end", "at": last, "how": how}]


def found(*holds):
    """Of each overlap: the later holder, the others, how long, and after which fault."""
    overlaps = overlaps_of(holds_of([event for each in holds for event in each]), [KILL, PLANNED])
    return [(each.hold.process, [other.process for other in each.others], each.seconds, each.fault and each.fault["kind"]) for each in overlaps]


TWO = {"limit": 2}
GONE = {"event": "exit", "process": "x", "at": 14}


@pytest.mark.parametrize(("holds", "overlaps"), [
    ([hold("x", 1, 2), hold("y", 2, 3), hold("x", 3.5, 4)], []),
    ([hold("x", 1, 3), hold("y", 2, 4, lock="b")], []),
    ([hold("x", 11, 12.5), hold("y", 12, 15)], [("y", ["x"], 0.5, "kill")]),
    ([hold("x", 1, 3), hold("y", 2, 4)], [("y", ["x"], 1, None)]),
    ([hold("y", 32, 35), hold("x", 31, 33)], [("y", ["x"], 1, "planned")]),
    ([hold("x", 11, 19), hold("y", 12, 13), hold("z", 14, 16)], [("y", ["x"], 1, "kill"), ("z", ["x"], 2, "kill")]),
    ([hold("x", 1, 5, **TWO), hold("y", 2, 6, **TWO), hold("z", 5, 7, **TWO)], []),
    ([hold("x", 1, 5, **TWO), hold("y", 2, 6, **TWO), hold("z", 4, 7, **TWO)], [("z", ["x", "y"], 1, None)]),
    ([hold("x", 11, 13, "lost:notheld"), hold("y", 12, 14), hold("z", 15, 16)], [("y", ["x"], 1, "kill")]),
    ([[begin("x", 11), GONE], hold("y", 12, 13), hold("z", 13.5, 15)], [("y", ["x"], 1, "kill"), ("z", ["x"], 0.5, "kill")]),
    ([[begin("x", 11), GONE], hold("y", 14, 15)], []),
    ([[*hold("x", 11, 12), GONE], hold("y", 13, 15)], []),
], ids=["one after another", "two locks", "how long", "before any fault", "in any order", "within another", "two may", "the third may not", "lost",
        "until its process has ended", "after its process has ended", "ended before its process"])  # fmt: skip
def test_holds_overlap_beyond_their_limit_until_they_end_or_are_lost_or_their_process_has_ended(holds, overlaps):
    assert found(*holds) == overlaps


def test_a_release_that_is_refused_tells_its_holder_too():
    late = {"event": "late", "process": "x", "lock": "a", "token": 11000, "cause": "notheld"}
    (one,) = overlaps_of(holds_of([*hold("x", 11, 13), late, *hold("y", 12, 14)]), [])
    assert one.others[0].was_told() and not one.hold.was_told()


@pytest.mark.parametrize(("first", "last", "old", "is_told_apart"), [
    (hold("x-c", 11, 14), hold("y-a", 12, 15), "y-a", False),
    (hold("x-b", 11, 14, token=9), hold("y-a", 12, 15, token=8), "y-a", True),
    (hold("x-b", 11, 14), hold("y-c", 12, 15, "lost:notheld"), "y-c", False),
    (hold("x-b", 11, 14), hold("y-c", 12, 15), "x-b", True),
    (hold("x-a", 11, 14, token=9), hold("y-c", 12, 15, token=9), "x-a", False),
])  # fmt: skip
def test_the_old_masters_hold_is_known_by_the_machine_that_was_cut_off_or_by_what_its_holder_was_told(first, last, old, is_told_apart):
    (overlap,) = overlaps_of(holds_of([*first, *last]), [KILL])
    (pair,) = pairs_of(overlap)
    assert (pair.old.process, pair.is_told_apart()) == (old, is_told_apart)


def test_what_is_stopped_arrives_when_that_is_mended_or_its_connection_is_reset():
    network, listener = Network(), socket.create_server((HOST, 0))
    door = network.door("server", lambda: listener.getsockname()[1])

    def connect(name):
        client = socket.create_connection((HOST, door), LONG, (network.address(name), 0))
        server, _ = listener.accept()
        passes(client, server)
        return client, server

    (client, server), (last, its), others = map(connect, ["client", "client", "other"])
    network.stop({("client", "server")})
    client.sendall(b"late")
    client.shutdown(socket.SHUT_WR)
    server.settimeout(A_MOMENT)
    with pytest.raises(TimeoutError):
        server.recv(10)
    passes(server, client)
    passes(*others)
    network.mend()
    assert server.recv(10) == b"late" and server.recv(10) == b""
    network.stop({("server", "client")})
    network.mend(reset=True)
    with pytest.raises(ConnectionResetError):
        last.recv(10)
    network.stop(both({"other"}, {"server"}))
    network.end()  # Although something is stopped.


def passes(sender, receiver):
    sender.sendall(b"x")
    receiver.settimeout(LONG)
    assert receiver.recv(10) == b"x"
