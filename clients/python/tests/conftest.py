import itertools

import pytest
from flavours import Tasks, Threads
from servers import Servers, View

numbers = itertools.count()


@pytest.fixture(params=[Threads, Tasks], ids=["threads", "tasks"])
def flavour(request):
    made = request.param()
    yield made
    made.end()


@pytest.fixture
def servers(request):
    """Starts servers that end with the test."""
    started = []

    def start(*arguments):
        started.append(Servers(*arguments))
        return started[-1]

    yield start
    for each in started:
        each.end()


@pytest.fixture(scope="session")
def one_for_all():
    made = Servers("one")
    yield made
    made.end()


@pytest.fixture
def one(one_for_all):
    """A server that is shared by tests which do it no harm."""
    return one_for_all


@pytest.fixture
def view(one):
    return View(one.at("a"))


@pytest.fixture
def locks(flavour, one):
    made = flavour.locks(one.ports["a"])
    yield made
    made.close()


@pytest.fixture
def name(request):
    """A lock that no other test has."""
    return f"lock:{request.node.name}:{next(numbers)}"


@pytest.fixture(scope="session")
def cluster():
    made = Servers("cluster")
    yield made
    made.end()
