"""The suite itself: its table, what needs nothing but Python, and what becomes of a broken driver."""

import subprocess
import sys

import driving
import pytest
import table


def test_the_page_of_behaviours_is_up_to_date():
    assert table.PAGE.read_text() == table.page(), "run scripts/clients/conformance table"


@pytest.mark.parametrize(("program", "said"), [(["server"], ""), (["lab/faults", "--help"], "usage: ")], ids=["server", "lab"])
def test_the_packages_own_tests_and_the_lab_start_without_any_package(program, said):
    without_packages = [sys.executable, "-S", *program]
    started = subprocess.run(without_packages, cwd=table.HERE, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=driving.LONGEST)
    assert started.stdout.startswith(said) and started.returncode == 0, started.stderr


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import sys; sys.stdin.readline(); sys.exit('out of order')", "has ended with 1"),
        ("import time; print('Hello', file=__import__('sys').stderr, flush=True); time.sleep(600)", "does not answer in time"),
        ("print('Hello', flush=True); import time; time.sleep(60)", "printed what answers nothing: b'Hello"),
        ("import sys; sys.stdin.readline(); print('{\"id\": 1, \"failed\": {\"type\": \"Unknown\", \"text\": \"new\"}}', flush=True); sys.stdin.readline()", "does not know the operation"),
    ],
    ids=["dies", "hangs", "talks", "does not know"],
)
def test_a_broken_driver_is_told_with_its_standard_error(program, said):
    driver = driving.Driver("go", [sys.executable, "-c", program])
    with pytest.raises(driving.DriverFault) as raised:
        driver.begin("new", client={}, options={}).result(2 if said == "does not answer in time" else driving.LONGEST)
    assert said in str(raised.value) and ("Hello" in str(raised.value) or "out of order" in str(raised.value) or "know" in said)
    driver.kill()
