"""Writes the page of behaviours: its rows are the tests' docstrings."""

import ast
import pathlib
import re

HERE = pathlib.Path(__file__).parent
PAGE = HERE.parent / "behaviours.md"
HEAD = """\
# Behaviours

What each package does, a row for each test: with the module, and without it by scripts; *module*: only with it, or about its absence. The
[protocol](protocol.md) says how. `scripts/clients/conformance table` writes this page from the [tests](conformance/README.md): do not edit.
"""


def rows():
    """By number: whether the row needs the module, and its sentence."""
    found = {}
    for path in HERE.glob("test_*.py"):
        tree = ast.parse(path.read_text())
        is_whole = any(isinstance(node, ast.Assign) and ast.unparse(node) == "pytestmark = pytest.mark.module" for node in tree.body)
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and (named := re.match(r"test_r(\d\d[a-z]?)_", node.name)):
                needs_module = is_whole or "pytest.mark.module" in map(ast.unparse, node.decorator_list)
                assert named[1] not in found, f"two rows have the number {named[1]}"
                found[named[1]] = needs_module, ast.get_docstring(node)
    return found


def page():
    return HEAD + "".join(f"\n**{number}** {'*module*: ' * needs}{said.removesuffix('.')}\n" for number, (needs, said) in sorted(rows().items()))


if __name__ == "__main__":
    PAGE.write_text(page())
