"""Which rows run for which clients, what they are given, and the matrix at the end."""

import itertools
import os
import pathlib
import re
import subprocess

import pytest
from driving import CLIENTS, NOT_CANCELLED, Driver, command_of
from servers import Servers

numbers = itertools.count()
MODES = ("module", "scripts")
drivers = {}  # the one of this process, by client: the next test has it, too
cells = {}  # of the matrix: (row, client, mode) to its marks, each with a reason


def pytest_addoption(parser):
    parser.addoption("--clients", default=" ".join(CLIENTS), help="names of clients or languages")
    parser.addoption("--rows", default="", help="numbers of rows")
    parser.addoption("--mode", default="module scripts", help="servers with the module, or without it: by scripts")


def pytest_configure(config):
    config.addinivalue_line("markers", "module: the server has to have the module, or the row is about its absence")
    for language in {CLIENTS[client][0] for client in clients_of(config)}:
        command_of(language)  # Once, and not in each worker.


def clients_of(config):
    chosen = set(config.getoption("--clients").split())
    if wrong := chosen - set(CLIENTS) - {language for language, *_ in CLIENTS.values()}:
        raise pytest.UsageError(f"no such client: {', '.join(sorted(wrong))}; there are {', '.join(CLIENTS)}")
    return [client for client, (language, *_) in CLIENTS.items() if {client, language} & chosen]


def row_of(function):
    return re.match(r"test_r(\d\d[a-z]?)_", function)[1]


def pytest_generate_tests(metafunc):
    if "client" in metafunc.fixturenames:
        is_module_only = any(metafunc.definition.iter_markers("module"))
        clients = clients_of(metafunc.config)
        modes = [mode for mode in metafunc.config.getoption("--mode").split() if mode == "module" or not is_module_only]
        # By its scope pytest runs all of a client one after another: it keeps its driver.
        metafunc.parametrize(("client", "mode"), [(client, mode) for client in clients for mode in modes], scope="session")


def pytest_collection_modifyitems(config, items):
    rows, chosen = config.getoption("--rows").split(), []
    for item in items:
        if "client" not in item.fixturenames:
            chosen += [] if rows else [item]
            continue
        row, client, mode = row_of(item.originalname), item.callspec.params["client"], item.callspec.params["mode"]
        if client not in CLIENTS:  # The row is for no client in this mode.
            continue
        if rows and row not in rows and row[:2] not in rows:
            continue
        item.user_properties.append(("cell", [row, client, mode]))
        chosen.append(item)
    items[:] = chosen


@pytest.fixture
def driver(request, client, mode, servers):
    """The client's driver; `servers` end after it."""
    for other in [each for each in drivers if each != client]:
        drivers.pop(other).kill()
    made = drivers[client] = drivers.get(client) or Driver(client)
    failed = request.session.testsfailed
    yield made
    has_failed = True
    try:
        if request.session.testsfailed == failed:
            made.end_test()
            has_failed = False
    finally:
        if has_failed:  # Nothing is known about its state: the next test has a new one.
            drivers.pop(client).kill()


@pytest.fixture
def servers(mode, certificates):
    """Starts servers that end with the test."""
    started = []

    def start(kind="one", *options, module=mode == "module", tls=False):
        started.append(Servers(kind, options, module, tls and certificates))
        return started[-1]

    yield start
    for each in started:
        each.end()


@pytest.fixture(scope="session")
def shared():
    """Servers for tests that leave them intact; of one kind and mode at a time, since idle servers take processor time."""
    made = {}

    def get(kind, mode):
        if (kind, mode) not in made:
            end()
            made[kind, mode] = Servers(kind, module=mode == "module")
        return made[kind, mode]

    def end():
        while made:
            made.popitem()[1].end()

    yield get
    end()


@pytest.fixture
def own(servers):
    """A server of the test's own."""
    return servers()


@pytest.fixture
def one(shared, mode):
    return shared("one", mode)


@pytest.fixture
def view(one):
    return one.view()


@pytest.fixture
def locks(driver, one):
    return driver.new(one.client())


@pytest.fixture
def cancel(driver):
    """Ends a call that waits."""
    if driver.client in NOT_CANCELLED:
        pytest.skip("a thread that waits cannot be cancelled")
    return lambda call: driver.ask("end", of=call.id)


@pytest.fixture
def name(request):
    """A lock that no other test has."""
    return f"lock:{request.node.originalname}:{os.getpid()}:{next(numbers)}"


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    """A folder with a key and its certificate, which serves servers and clients, and is its own authority."""
    folder = tmp_path_factory.mktemp("tls")
    its = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=locks -keyout key.pem -out cert.pem"
    whose = "-addext subjectAltName=IP:127.0.0.1,DNS:localhost -addext basicConstraints=CA:FALSE"
    subprocess.run(["openssl", *its.split(), *whose.split()], cwd=folder, check=True, capture_output=True)
    return str(folder)


def pytest_sessionfinish():
    for each in drivers.values():
        each.kill()


# The matrix.


def pytest_runtest_logreport(report):
    cell = dict(report.user_properties).get("cell")
    if cell is None or (report.when != "call" and report.passed):
        return
    mark, why = {"passed": "+", "failed": "F"}.get(report.outcome), None
    if report.skipped and hasattr(report, "wasxfail"):
        mark, why = "k", f"known: {report.wasxfail}"
    elif report.skipped:
        mark, why = "-", str(report.longrepr[2]).removeprefix("Skipped: ")
    cells.setdefault(tuple(cell), {})[mark] = why


def pytest_terminal_summary(terminalreporter, config):
    if hasattr(config, "workerinput") or not cells:
        return
    text = matrix()
    pathlib.Path(os.environ["CONFORMANCE_TARGET"], "matrix.txt").write_text(text)
    terminalreporter.write(f"\n{text}")


def matrix():
    """Row by package: + passed, F failed, k known to fail, - not applicable. Reasons below."""
    clients = [client for client in CLIENTS if any(cell[1] == client for cell in cells)]
    width, notes, lines = max(map(len, clients)) + 2, {}, []
    lines.append("row  " + "".join(client.ljust(width) for client in clients) + "(with the module, by scripts)")
    for (row, client, _), marks in cells.items():
        for mark in marks.keys() & {"k", "-"}:
            notes.setdefault((row, marks[mark]), set()).add(client)
    for row in sorted({row for row, _, _ in cells}):
        line = row.ljust(5)
        for client in clients:
            of_modes = [cells.get((row, client, mode), {}) for mode in MODES]
            line += " ".join(next((mark for mark in "Fk+-" if mark in marks), " ") for marks in of_modes).ljust(width)
        lines.append(line.rstrip())
    lines += ["", "+ passed, F failed, k known to fail, - not applicable"]
    lines += [f"{row} {why}: {', '.join(sorted(clients))}" for (row, why), clients in sorted(notes.items())]
    return "\n".join(lines) + "\n"
