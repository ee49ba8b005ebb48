"""What is idiom in Python; the rows of the table are tested by clients/conformance, whose servers are used here, too."""

import itertools
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "conformance"))
from servers import Servers  # noqa: E402

numbers = itertools.count()


@pytest.fixture(scope="session")
def one():
    made = Servers("one")
    yield made
    made.end()


@pytest.fixture
def view(one):
    return one.view()


@pytest.fixture
def name(request):
    return f"lock:{request.node.name}:{next(numbers)}"
