"""What needs the module, and servers without it."""

import re
import subprocess
import textwrap

import pytest
from driving import CLIENTS, ROOT, Failed
from servers import LONGEST, until
from view import AT_ONCE, LONG, release_in_turn, rule_of, waiting

pytestmark = pytest.mark.module
LEASE = 30
# Of the README: how its program begins, its file, the usual address in it, and that of a test's server.
PROGRAMS = {
    "python-threads": ("python", "hello.py", "redis.Redis()", "redis.Redis(port=PORT)"),
    "node-redis": ("js", "hello.mjs", "createClient()", "createClient({ url: 'redis://127.0.0.1:PORT' })"),
    "go": ("go", "hello.go", "127.0.0.1:6379", "127.0.0.1:PORT"),
    "java": ("java", "Hello.java", "redis://localhost", "redis://127.0.0.1:PORT"),
    "rust-tokio": ("rust,no_run", "hello.rs", "redis://localhost", "redis://127.0.0.1:PORT"),
}


@pytest.fixture
def plain(servers):
    return servers(module=False)


def test_r21_connection(driver, own, name):
    """A session's connection is killed: the next waiter has the lock at once; lost with cause `connection` or `notheld` within a third of the lease."""
    view, locks = own.view(), driver.new(own.client())
    held = locks.acquire(name, session=True, lease=LEASE)
    (call,) = waiting(locks, view, name, 1)
    view.run("CLIENT", "KILL", "TYPE", "normal")  # all but those that listen, and this one
    call.result(AT_ONCE).release()
    assert held.lost() in ("connection", "notheld")  # Later it would be `lease`.
    with pytest.raises(Failed, match="LockLost"):
        held.release()


def test_r23b_released_when_checked(locks, view, name):
    """A session that is released while it is checked was not lost."""
    for _ in range(3):
        held = locks.acquire(name, session=True, lease=6)
        assert held.lost(2) is None  # a third of the lease: the check is due
        held.release()
    assert view.is_free(name)


def test_r41_required(driver, plain, name):
    """No module, and it is required: NoModule, at once, with its text."""
    failed = driver.new(plain.client(), module="required").begin(name).failure(AT_ONCE)
    assert failed.type == "NoModule"
    assert f":{plain.port('a')}: the server does not have the fairlock module" in failed.text and "\n" not in failed.text
    assert "loadmodule /path/to/libfairlock.so" in failed.text and "docs/operations.md" in failed.text


def test_r50_shared(locks, view, name):
    """As many share a lock as `limit` says; an exclusive caller waits for all of them, and shared ones behind it wait for it, and hold together."""
    readers = [locks.acquire(name, limit=3) for _ in range(3)]
    assert len({reader.token for reader in readers}) == 3
    assert locks.fails(name, limit=3, wait=0).type == "NotInTime"
    (writer,) = waiting(locks, view, name, 1)
    late = [locks.begin(name, shared=True) for _ in range(2)]
    view.waits(name, 3)
    for reader in readers:
        assert not writer.done()
        reader.release()
    held = writer.result()
    assert not any(call.done() for call in late)
    held.release()
    for reader in [call.result() for call in late]:
        reader.release()
    assert view.is_free(name)


@pytest.mark.parametrize("options", [{"session": True}, {"shared": True}, {"limit": 2}], ids=lambda each: next(iter(each)))
def test_r68_needs_module(driver, plain, name, options):
    """No module: `session`, `shared` and `limit` are NoModule at once, naming the option; QUEUE is empty."""
    view, locks, (option,) = plain.view(), driver.new(plain.client()), options
    locks.acquire(name)  # It is known by now what the server has.
    failed = locks.begin(name, **options).failure(AT_ONCE)
    assert failed.type == "NoModule" and view.queue(name) == []
    said, _, rest = failed.text.partition(" needs the fairlock module, which the server does not")
    assert f":{plain.port('a')}: " in said and option in said.lower() and rest  # As the language writes the option.
    assert "loadmodule /path/to/libfairlock.so" in failed.text and "\n" not in failed.text


def test_r53_readme(client, own, tmp_path):
    """The program of the README prints what that says."""
    if client not in PROGRAMS:
        pytest.skip("it is of the other flavour")
    (fence, file, usual, here), language = PROGRAMS[client], CLIENTS[client][0]
    text = (ROOT / "clients" / language / "README.md").read_text()
    program = re.search(rf"```{fence}\n(.*?)```", text, re.DOTALL)[1]
    promised = textwrap.dedent(re.search(r"It prints .*?\n\n(?:```text\n)?(.*?\n)(?:```|\n)", text, re.DOTALL)[1])
    assert usual in program
    (tmp_path / file).write_text(program.replace(usual, here.replace("PORT", str(own.port("a")))))
    ran = subprocess.run([ROOT / "scripts/clients" / language, "run", file], cwd=tmp_path, capture_output=True, text=True, timeout=10 * LONGEST)
    assert (ran.returncode, re.sub(r"\d{16}", "TOKEN", ran.stdout)) == (0, re.sub(r"\d{16}", "TOKEN", promised)), ran.stderr


@pytest.mark.parametrize("user", [{}, {"username": "scripts", "password": "secret4"}], ids=["", "scripts"])
def test_r69_loaded(driver, plain, name, user):
    """MODULE LOAD while one holds by a script and two wait: all go on in order. A new Locks is `native`, theirs is not. By a user that may run only
    scripts none is, and sessions are NOPERM."""
    view, name, before = plain.view(), f"app:{name}", driver.size()
    view.run(*rule_of("scripts"))
    old, new = (driver.new(plain.client(**user), lease=LONG) for _ in range(2))
    held = old.acquire(name)
    calls = waiting(old, view, name, 2)
    owners = view.queue(name)
    plain.load()
    assert held.renew() == LONG and old.info(name)["owner"] == held.owner
    assert new.fails(name, wait=0).type == "NotInTime"
    held.release()
    release_in_turn(calls, owners, view, name)
    for each in (new, old):
        if user:
            assert each.fails(name, session=True).code == "NOPERM"
        else:
            each.acquire(name, shared=True).release()
    assert view.is_free(name) and (new.native(), old.native()) == (not user, False)
    assert driver.said(before).count(": the user may not run the commands of the fairlock module: ") == bool(user)


def test_r71a_no_role(driver, servers, name):
    """A server that does not know ROLE is a master without replicas."""
    locks = driver.new(servers("one", "--rename-command", "ROLE", "HIDDEN", module=False).client())
    held = locks.acquire(name)
    held.renew()
    held.release()
