"""Writes the pages of behaviours: their rows are the tests' docstrings."""

import ast
import pathlib
import re

HERE = pathlib.Path(__file__).parent
WRITTEN = "`scripts/clients/conformance table` writes this page from the [tests](conformance/README.md): do not edit."
# By whether rows need the module.
PAGES = {
    False: (
        HERE.parent / "behaviours.md",
        f"""\
# Behaviours

What each package does, a row for each test: with the module, and without it by scripts. [Others](behaviours-module.md) need the module; the
[protocol](protocol.md) says how. {WRITTEN}
""",
    ),
    True: (
        HERE.parent / "behaviours-module.md",
        f"""\
# Behaviours that need the module

What each package does, as in [Behaviours](behaviours.md), with the module, or about its absence. {WRITTEN}
""",
    ),
}


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


def pages():
    """Each page's path and text."""
    all_rows = sorted(rows().items())
    for kind, (path, head) in PAGES.items():
        said = [f"\n**{number}** {said.removesuffix('.')}\n" for number, (needs_module, said) in all_rows if needs_module is kind]
        yield path, head + "".join(said)


if __name__ == "__main__":
    for path, text in pages():
        path.write_text(text)
