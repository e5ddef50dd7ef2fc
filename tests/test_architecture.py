"""ARCHITECTURE.md is true: who imports whom, which words are retired, how large modules are, what is public."""

import ast
import io
import re
import statistics
import sys
import tokenize
from pathlib import Path

import imports
from calls_in_c import calls, included

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src" / "corgipile"
RETIRED = {"store", "held", "filler", "crew", "flight", "flights", "parcel", "parcels", "heads", "inflate", "inflater"}
RETIRED |= {"machine", "course", "bodies"}
ALLOWED = {("environment.py", "machine"), ("cli/compare.py", "machine")}  # a computer
ALLOWED |= {(f"stores/{name}.py", "store") for name in ("buckets", "library")}  # a module of obstore
ALLOWED |= {(f"torch/{name}.py", "store") for name in ("elastic", "members")}  # one of torch.distributed


def modules():
    return sorted(path for path in SRC.rglob("*.py"))


def rooms():
    """Return what each room may import, by the tables of ARCHITECTURE.md; ``all`` is every room."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    table = text[text.index("## Rooms of the package") : text.index("## The way of a row")]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| ")]
    names = {tuple(re.findall(r"`([\w.]+)`", first)): last for first, _, last in rows[1:]}
    base = next(room for room in names if "errors" in room)
    every = {name for room in names for name in room}
    return {
        name: every if last == "all" else {*room, *base, *re.findall(r"`(\w+)`", last)}
        for room, last in names.items()
        for name in room
    }


def room(module):
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "corgipile"


def test_a_room_imports_what_it_may():
    """Also inside functions; type checkers may look further."""
    may = rooms()
    known = {room(name) for name in imports.modules()} - {"corgipile", "__main__"}
    assert known == may.keys() - {"_kernel"}
    wrong = [
        (one.module, one.target)
        for one in imports.imports()
        if room(one.module) in may and not one.typing and one.target in imports.modules()
        and room(one.target) not in may[room(one.module)] | {"corgipile"}
    ]  # fmt: skip
    assert wrong == []


def test_functions_import_only_optional_packages():
    required = {"corgipile", "numpy", "pyarrow", *sys.stdlib_module_names}
    late = {(one.module, one.target) for one in imports.late_imports() if one.target.split(".")[0] in required}
    assert late == set()


def test_retired_words_stay_away():
    wrong = []
    for path in modules():
        name = str(path.relative_to(SRC))
        wrong += [name for word in re.split(r"[/.]", name) if word in RETIRED]
        for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
            word = token.string.strip("_").lower()
            if token.type == tokenize.NAME and word in RETIRED and (name, word) not in ALLOWED:
                wrong.append((name, token.start[0], token.string))
    assert wrong == []


def test_modules_are_small():
    lengths = {path: len(path.read_text().splitlines()) for path in modules()}
    assert statistics.median(lengths.values()) <= 150
    assert {path: n for path, n in lengths.items() if n > 400} == {}


def test_files_in_c_are_small():
    lengths = {
        path: len(path.read_text().splitlines())
        for folder in ("kernel", "postgres", "src/corgipile/_kernel")
        for path in (ROOT / folder).rglob("*.[ch]")
    }
    assert {path: n for path, n in lengths.items() if n > 400} == {}


def test_files_of_the_extension_do_not_call_in_circles():
    assert imports.circles_of(calls()) == []


def test_no_header_is_in_half_of_the_extension():
    files = included()
    headers = [header for name, some in files.items() if name.endswith(".c") for header in some]
    assert max(map(headers.count, headers)) <= sum(name.endswith(".c") for name in files) // 2


def test_public_names_are_documented():
    silent = []
    for path in modules():
        tree = ast.parse(path.read_text())
        public = {
            name
            for node in tree.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
            for name in ast.literal_eval(node.value)
        }
        kinds = (ast.ClassDef, ast.FunctionDef)
        made = {node.name: node for node in tree.body if isinstance(node, kinds)}
        silent += [f"{path.stem}.{name}" for name in public & made.keys() if not ast.get_docstring(made[name])]
    assert silent == []


def test_what_the_document_names_is_there():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    names = set(re.findall(r"`([\w/]+\.(?:py|h|c))`", text))
    assert len(names) > 30
    folders = ("src", "kernel", "postgres", "tests")
    there = ["/" + str(path.relative_to(ROOT)) for folder in folders for path in (ROOT / folder).rglob("*.*")]
    assert {name for name in names if not any(path.endswith(f"/{name}") for path in there)} == set()
