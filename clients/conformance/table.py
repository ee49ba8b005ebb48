"""The table of rows in clients/behaviours.md, made of the tests' docstrings; `--write` writes it."""

import ast
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).parent
PAGE = HERE.parent / "behaviours.md"
BEGIN = "### The table of behaviours\n"
HEADS = (
    "These are tested with the module, and without it by scripts:",
    "These need the module, or are about its absence:",
)


def rows():
    """By whether they need the module: number and sentence."""
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


def table():
    text, found = BEGIN, sorted(rows().items())
    for head, kind in zip(HEADS, (False, True), strict=True):
        lines = [f"- {number}: {said.removesuffix('.')}\n" for number, (needs_module, said) in found if needs_module is kind]
        text += f"\n{head}\n\n" + "".join(lines)
    return text


def parts():
    """What stands on the page before the table, and the table."""
    before, begin, after = PAGE.read_text().partition(BEGIN)
    return before, begin + after


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    PAGE.write_text(parts()[0] + table())
