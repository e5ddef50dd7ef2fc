"""Imports among the modules of the package, from the sources."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

SRC = Path(__file__).resolve().parents[2] / "src"


class Import(NamedTuple):
    """One import statement's target.

    Attributes:
        module: The module that imports.
        target: The imported module of the package, else the name as written.
        late: Whether a function imports it when it is called; `corgipile.lazy.lazy` declares its module like an import.
        typing: Whether only type checkers see it.
    """

    module: str
    target: str
    late: bool
    typing: bool


@cache
def modules() -> dict[str, Path]:
    """Return the path of each module by its dotted name."""
    found = {}
    for path in sorted((SRC / "corgipile").rglob("*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports() -> tuple[Import, ...]:
    """Return all imports of all modules."""
    return tuple(found for name, path in modules().items() for found in _of(name, path))


def late_imports() -> list[Import]:
    """Return the imports inside functions."""
    return [found for found in imports() if found.late]


def circles() -> list[list[str]]:
    """Return groups of modules that import each other, directly or not, at any time."""
    targets: dict[str, set[str]] = {name: set() for name in modules()}
    for one in imports():
        if not one.typing and one.target in targets:
            targets[one.module].add(one.target)
    return circles_of(targets)


def circles_of(targets: dict[str, set[str]]) -> list[list[str]]:
    """Return groups of names that reach each other."""
    reach = {name: _reached(name, targets) for name in targets}
    groups = {frozenset(other for other in reach[name] if name in reach[other]) for name in targets}
    return [sorted(group) for group in groups if len(group) > 1]


def _reached(start: str, targets: dict[str, set[str]]) -> set[str]:
    seen, waiting = {start}, [start]
    while waiting:
        new = targets[waiting.pop()] - seen
        seen |= new
        waiting += new
    return seen


def _of(module: str, path: Path) -> Iterator[Import]:
    def walk(node: ast.AST, late: bool, typing: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            checked = isinstance(node, ast.If) and child in node.body and "TYPE_CHECKING" in ast.unparse(node.test)
            checking = typing or checked
            if isinstance(child, ast.Import | ast.ImportFrom):
                for target in sorted(_targets(child)):
                    yield Import(module, target, late, checking)
            elif isinstance(child, ast.Call) and ast.unparse(child.func) == "lazy":
                yield Import(module, ast.literal_eval(child.args[0]), late, checking)
            yield from walk(child, late or function, checking)

    yield from walk(ast.parse(path.read_text()), late=False, typing=False)


def _targets(node: ast.Import | ast.ImportFrom) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    names = {f"{node.module}.{alias.name}" for alias in node.names}
    return {name if name in modules() else str(node.module) for name in names}
