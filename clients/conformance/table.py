"""Prints the table of rows, which are the tests' docstrings."""

import ast
import pathlib
import re

HERE = pathlib.Path(__file__).parent
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


if __name__ == "__main__":
    for head, kind in zip(HEADS, (False, True), strict=True):
        print(f"\n{head}\n")
        for number, (needs_module, said) in sorted(rows().items()):
            if needs_module is kind:
                print(f"- {number}: {said.removesuffix('.')}")
