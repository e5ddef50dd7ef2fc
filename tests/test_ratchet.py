"""Sizes that may only shrink: each measure must be at its limit in ``ratchet.json``, or below it by a little.

A change that lowers a measure lowers its limit; a limit rises only for a reason that the commit gives.
"""

import ast
import json
import re
import subprocess
from pathlib import Path

import pytest
from imports import circles, late_imports

ROOT = Path(__file__).resolve().parents[1]
LIMITS = json.loads(Path(__file__).with_name("ratchet.json").read_text())
SLACK = 0.02  # by which a measure may fall below its limit
DIALECT = re.compile(
    r"^(Of|What|Where|Whether|Whence|Which|So that|Who|Whose|How (much|many|far))\b"
    r"|\b(of which|by which|of whom|is told|are told|tells|says|said|do the same|of its own|anew|beside|apart|alike)\b",
    re.IGNORECASE,
)
VAGUE = {
    "MOST",
    "SHARE",
    "KEPT",
    "FEW",
    "TOGETHER",
    "LITTLE",
    "MANY",
    "ROOM",
    "SOON",
    "APART",
    "BESIDE",
    "ALSO",
    "LONG",
}


def files(*patterns):
    """Return the tracked files of these patterns, else those on disk: an unpacked source has no history."""
    command = ["git", "ls-files", *patterns]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    found = [ROOT / line for line in listed.splitlines()]
    return [path for path in found or {path for one in patterns for path in ROOT.glob(one)} if path.is_file()]


def product_lines():
    """Count the lines of the product, docstrings included."""
    return sum(len(path.read_text().splitlines()) for path in files("src/**", "kernel/**", "postgres/**"))


def first_lines():
    """Yield the first line of each docstring of the product, and of each header comment of its C."""
    for path in files("src/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text:
                    yield text.splitlines()[0]
    for path in files("kernel/**/*.h", "postgres/src/*", "src/corgipile/_kernel/*"):
        yield from re.findall(r"^/\* ?(.*)$", path.read_text(), re.MULTILINE)


def long_lines():
    """Count the lines of C that are longer than 120 columns."""
    paths = files("kernel/**/*.h", "kernel/*.h", "postgres/src/*", "src/corgipile/_kernel/*.[ch]")
    return sum(len(line) > 120 for path in paths for line in path.read_text().splitlines())


def vague_constants():
    """Count the constants of modules whose names do not say what they bound."""
    count = 0
    for path in files("src/**/*.py"):
        for node in ast.parse(path.read_text()).body:
            for target in node.targets if isinstance(node, ast.Assign) else ():
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                count += sum(isinstance(name, ast.Name) and name.id in VAGUE for name in names)
    return count


MEASURES = {
    "product lines": product_lines,
    "imports inside functions": lambda: len(late_imports()),
    "modules in import circles": lambda: sum(map(len, circles())),
    "first lines in dialect": lambda: sum(bool(DIALECT.search(line)) for line in first_lines()),
    "C lines over 120 columns": long_lines,
    "constants named for no bound": vague_constants,
}


@pytest.mark.parametrize("name", MEASURES)
def test_sizes_do_not_grow(name):
    measured, limit = MEASURES[name](), LIMITS[name]
    assert measured <= limit, f"{name}: {measured}, at most {limit}; make it smaller"
    assert measured >= int(limit * (1 - SLACK)), f"{name}: {measured}; lower the limit of {limit} in tests/ratchet.json"


def test_every_limit_is_measured():
    assert LIMITS.keys() == MEASURES.keys()
