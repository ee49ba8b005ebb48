import itertools
import pathlib
import subprocess

import pytest
from flavours import Tasks, Threads
from servers import BY_SCRIPTS, PROGRAM, Servers, View

numbers = itertools.count()


def pytest_configure(config):
    config.addinivalue_line("markers", "module: the server has to have the module")


def pytest_collection_modifyitems(config, items):
    """With FAIRLOCK_SCRIPTS, the rows that hold with scripts."""
    if not BY_SCRIPTS:
        return
    rows = subprocess.run([pathlib.Path(PROGRAM).with_name("rows"), "--scripts"], capture_output=True, text=True, check=True).stdout.split()
    chosen = [item for item in items if item.name[6:8] in rows and not item.get_closest_marker("module")]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


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
    """A server shared by tests that leave it intact."""
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
