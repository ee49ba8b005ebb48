"""Row 53: the programs of the README."""

import os
import re
import subprocess
import sys

PACKAGE = os.path.join(os.path.dirname(__file__), "..")


def readme():
    with open(os.path.join(PACKAGE, "README.md"), encoding="utf-8") as file:
        return file.read()


def test_r53_the_program_of_the_readme_runs(one):
    text = readme()
    program = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]
    promised = re.search(r"It prints .*?\n\n((?:    [^\n]*\n)+)", text, re.DOTALL)[1]
    # A reader's server has the usual port.
    program = program.replace("redis.Redis()", f"redis.Redis(port={one.port('a')})")
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    pattern = re.sub(r"\d{16}", r"\\d{16}", "".join(line.strip() + "\n" for line in promised.splitlines()))
    assert re.fullmatch(pattern, output.stdout), output.stdout


def test_r53_the_tests_of_the_readme_pass():
    program = re.search(r"^## Tests.*?```python\n(.*?)```", readme(), re.DOTALL | re.MULTILINE)[1]
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
