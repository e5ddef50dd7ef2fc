"""ARCHITECTURE.md is true: who imports whom, which words are retired, how large modules are, what is public."""

import ast
import io
import re
import statistics
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src" / "corgipile"
# What each room may import of the others; a room may import itself.
BASE = {
    "extras",
    "bars",
    "_kernel",
    "errors",
    "losses",
    "nesting",
    "random",
    "sizes",
    "settings",
    "steps",
    "suggestions",
    "plugins",
    "scratch",
    "arrow_compute",
    "arrow_memory",
    "outputs",
    "repayment",
}

MAY = {
    "stores": {"_kernel", "errors", "scratch", "sizes"},
    "tables": BASE | {"stores"},
    "orders": BASE,
    "features": BASE | {"tables"},
    "loader": BASE | {"stores", "tables", "orders", "features"},
    "linear": BASE | {"tables", "orders", "features", "loader"},
    "torch": BASE | {"tables", "orders", "features", "loader", "exchange", "quality", "linear"},
    "exchange": BASE | {"tables", "orders"},
    "ray": BASE | {"tables", "loader", "torch", "conversion", "relayout"},
    "spark": BASE | {"conversion", "relayout"},
    "quality": BASE | {"tables", "orders"},
    "hooks": {"errors", "outputs", "sizes"},
    "proof": BASE | {"quality"},
    "testing": BASE | {"tables", "orders", "quality"},
    "planner": BASE | {"stores", "tables", "orders", "features", "loader", "quality", "relayout"},
    "relayout": BASE | {"tables", "orders", "loader", "conversion"},
    "conversion": BASE | {"stores", "tables"},
    "postgres": BASE | {"tables"},
    "sql": BASE | {"stores", "tables", "orders", "features", "loader", "linear"},
}
RETIRED = {"store", "held", "filler", "crew", "flight", "flights", "parcel", "parcels", "heads", "inflate", "inflater"}
RETIRED |= {"machine", "course", "bodies"}
ALLOWED = {("description.py", "machine"), ("cli/compare.py", "machine")}  # a computer
ALLOWED |= {(f"stores/{name}.py", "store") for name in ("buckets", "library")}  # a module of obstore
ALLOWED |= {(f"torch/{name}.py", "store") for name in ("elastic", "members")}  # one of torch.distributed


def modules():
    return sorted(path for path in SRC.rglob("*.py"))


def room(path):
    parts = path.relative_to(SRC).parts
    return parts[0].removesuffix(".py")


def imported(path):
    """Yield the rooms that a module imports when it is imported itself, and those it imports later."""
    tree = ast.parse(path.read_text())
    top = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "corgipile":
            inner = node.module.split(".")[1:]
            names = [inner[0]] if inner else [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [a.name.split(".")[1] for a in node.names if a.name.startswith("corgipile.")]
        for name in names:
            yield name, id(node) in top


def test_a_room_imports_what_it_may():
    wrong = []
    for path in modules():
        mine = room(path)
        for name, top in imported(path):
            others = (SRC / name).is_dir() or (SRC / f"{name}.py").exists()
            if mine in MAY and top and others and name != mine and name not in MAY[mine]:
                wrong.append((str(path.relative_to(SRC)), name))
    assert wrong == []


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
