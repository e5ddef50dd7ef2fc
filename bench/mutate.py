# ruff: noqa: D102
"""Mutation testing by hand: changes one place of the sources at a time, and runs the nearest tests.

``python bench/mutate.py --count 10 kernel/plan src/corgipile/orders`` mutates a copy of the checkout at ten places of
each folder and prints the score and the survivors. A survivor is a missing test, or a change that makes no difference.
Changed C is first tried in the programs of tests/kernel that include it, then compiled without optimisation and linked
with the other objects of the last ``setup.py build_ext``.
"""

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
BINDINGS = Path("src/corgipile/_kernel")
LIBRARY = Path("src/corgipile/_kernel.abi3.so")
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "build", "__pycache__", "results", ".*_cache")
SLACK = 60  # seconds that tests may take longer than without a mutation
# Tests by folder or file; the longest match counts.
NEAREST = {
    "kernel/plan": "tests/test_random.py tests/orders/test_laws.py tests/orders/test_full.py",
    "kernel/plan/seriate.h": "tests/kernel/test_content.py tests/orders/test_laws.py",
    "kernel/plan/lanes.h": "tests/orders/test_global_batches.py tests/orders/test_dealing_laws.py",
    "kernel/plan/slots.h": "tests/orders/test_global_batches.py tests/orders/test_turns.py",
    "kernel/plan/fit.h": "tests/orders/test_laws.py tests/test_budget.py tests/loader/test_default_order.py",
    "kernel/plan/content.h": "tests/kernel/test_content.py tests/loader/test_content.py",
    "kernel/plan/sketch.h": "tests/kernel/test_sketch_sanitized.py tests/loader/test_sketched.py",
    "kernel/plan/spots.h": "tests/kernel/test_spots.py tests/loader/test_sampled_runs.py",
    "kernel/plan/similarity.h": "tests/kernel/test_content.py tests/loader/test_auto_content.py",
    "kernel/io": "tests/loader/test_readers.py tests/kernel/test_lists_sanitized.py",
    "kernel/io/async_gather.h": "tests/loader/test_async_gather.py tests/loader/test_readers.py",
    "kernel/io/pread.h": "tests/loader/test_wide_rows.py tests/loader/test_readers.py",
    "kernel/io/expand.h": "tests/kernel/test_expand_sanitized.py",
    "kernel/io/lists.h": "tests/kernel/test_lists_sanitized.py tests/loader/test_list_widths.py",
    "kernel/io/row_mask.h": "tests/loader/test_selection.py",
    "kernel/formats": "tests/kernel/test_fields_sanitized.py tests/kernel/test_lines_sanitized.py "
    "tests/kernel/test_nesting_sanitized.py",
    "kernel/formats/svmlight.h": "tests/kernel/test_svmlight_sanitized.py",
    "kernel/formats/tfrecord.h": "tests/kernel/test_records_sanitized.py",
    "kernel/formats/example.h": "tests/kernel/test_records_sanitized.py",
    "kernel/formats/crc32c.h": "tests/kernel/test_records_sanitized.py",
    "kernel/sgd": "tests/kernel/test_sgd.py tests/kernel/test_sgd_rules.py tests/kernel/test_sgd_average.py "
    "tests/kernel/test_sgd_weights.py",
    "kernel/newton": "tests/kernel/test_newton.py tests/linear/test_newton.py",
    **dict.fromkeys(
        ("kernel/sgd/simd", "kernel/sgd/scratch.h", "kernel/sgd/multi", "kernel/sgd/pack"),
        "tests/kernel/test_sgd_multi_model.py tests/kernel/test_sgd.py",
    ),
    "kernel/dual": "tests/kernel/test_dual.py tests/linear/test_dual.py tests/linear/test_dual_weights.py",
    "kernel/quality": "tests/kernel/test_visits_sanitized.py tests/quality/test_audit.py",
    "kernel/text": "tests/kernel/test_hashed_sanitized.py tests/features/test_hashed.py tests/linear/test_text.py",
    "src/corgipile/orders": "tests/orders/test_global_batches.py tests/orders/test_exchange.py "
    "tests/orders/test_turns.py tests/loader/test_partial.py tests/orders/test_full.py tests/orders/test_laws.py "
    "tests/orders/test_dealing_laws.py",
    "src/corgipile/loader": "tests/loader/test_loader.py tests/loader/test_states.py tests/loader/test_rewind.py "
    "tests/loader/test_checkpoint.py tests/loader/test_readers.py",
    "src/corgipile/loader/mixed.py": "tests/tables/test_mixing.py",
    "src/corgipile/loader/prefetch.py": "tests/loader/test_prefetch.py tests/loader/test_stats.py",
    "src/corgipile/tables": "tests/tables/test_contract.py",
    "src/corgipile/tables/formats/lance": "tests/tables/test_long_values.py tests/tables/test_lakes.py",
    "src/corgipile/exchange": "tests/exchange",
    "src/corgipile/quality": "tests/quality",
}
# Programs of tests/kernel that check laws of the headers that they include; the fast ones first.
PROGRAMS = ("async_gather", "ranges", "reading", "plans", "prefetch")
SANITIZERS = ["-DCP_CHECKS", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
TOKENS = {  # what replaces a token of C
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&", "+": "-", "-": "+",
    "*": "+", "/": "*", "%": "/", "+=": "-=", "-=": "+=", "++": "--", "--": "++", "<<": ">>", ">>": "<<", "&": "|",
    "|": "&", "cp_min64": "cp_max64", "cp_max64": "cp_min64",
}  # fmt: skip
TOKEN = re.compile(
    r"(?<= )(<<|>>|[<>=!+-]=|&&|\|\||[<>+*/%&|-])(?= )|\+\+|--|\bcp_m(?:in|ax)64\b|(?<![\w.])\d+(?![\w.])"
)
STATEMENT = re.compile(r"^ +(?!return|else|static|const|break|goto)[\w>.\[\]*()-]+(\(.*\)| (=|[+|^-]=) .*);$")
UNTESTED = re.compile(r"^\s*#|CP_CHECK|prefetch|alloc\(|^\s*free\(|_Static_assert")  # lines without effect on results
OPERATORS: dict[type[ast.AST], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.In: "not in",
    ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is", ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.FloorDiv: "*",
    ast.Div: "*", ast.Mod: "//", ast.And: "or", ast.Or: "and",
}  # fmt: skip


class Mutation(NamedTuple):
    """One change: bytes of a file replaced by others."""

    path: Path
    start: int
    stop: int
    new: bytes

    @property
    def line(self) -> int:
        """Return the number of its line, from 1."""
        return (ROOT / self.path).read_bytes().count(b"\n", 0, self.start) + 1

    def __str__(self) -> str:
        text = (ROOT / self.path).read_bytes()
        old, whole = text[self.start : self.stop].decode(), text.splitlines()[self.line - 1].decode().strip()
        return f"{self.path}:{self.line}: {old!r} -> {self.new.decode()!r} in: {whole}"


def mutations_of_c(path: Path) -> Iterator[Mutation]:
    """Yield changes of operators and numbers, and dropped statements."""
    text = (ROOT / path).read_text()
    bare = re.sub(r"/\*.*?\*/|\"[^\"\n]*\"", lambda found: re.sub(r"[^\n]", "\0", found.group()), text, flags=re.DOTALL)
    start = 0
    for line in bare.splitlines(keepends=True):
        code = line.rstrip("\0\n ")
        if not UNTESTED.search(code) and code.startswith(" "):
            if STATEMENT.match(code):
                at = len(code) - len(code.lstrip())
                yield Mutation(path, start + at, start + len(code), b";")
            for found in TOKEN.finditer(code):
                token = found.group()
                new = str(int(token) + 1) if token.isdigit() else TOKENS.get(token)
                if new:
                    yield Mutation(path, start + found.start(), start + found.end(), new.encode())
        start += len(line)


class Changes(ast.NodeVisitor):
    """Collects changes of operators and constants, and dropped statements, outside annotations and messages."""

    def __init__(self, path: Path) -> None:
        self.path, self.text, self.found = path, (ROOT / path).read_bytes(), list[Mutation]()
        lengths = [len(line) for line in self.text.splitlines(keepends=True)]
        self.starts = [sum(lengths[:at]) for at in range(len(lengths))]

    def _begin(self, node: Any) -> int:
        return int(self.starts[node.lineno - 1] + node.col_offset)

    def _end(self, node: Any) -> int:
        return int(self.starts[node.end_lineno - 1] + node.end_col_offset)

    def _replace(self, node: ast.AST, new: str) -> None:
        self.found.append(Mutation(self.path, self._begin(node), self._end(node), new.encode()))

    def _operator(self, left: ast.AST, right: ast.AST, operator: ast.AST) -> None:
        gap = self.text[self._end(left) : self._begin(right)]
        new, old = OPERATORS.get(type(operator)), gap.strip(b" ()\n")
        if new and old and b"\n" not in old:
            at = self._end(left) + gap.index(old)
            self.found.append(Mutation(self.path, at, at + len(old), new.encode()))

    def generic_visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign | ast.AugAssign):
            self._replace(node, "pass")
        for name, value in ast.iter_fields(node):
            if name not in ("annotation", "returns", "decorator_list", "type_params"):
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        self.visit(child)

    def visit_Raise(self, node: ast.Raise) -> None: ...

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None: ...

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self._replace(node, "pass")
        if not isinstance(node.value, ast.Constant):
            self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        self._operator(node.left, node.comparators[0], node.ops[0])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self._operator(node.left, node.right, node.op)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self._operator(node.values[0], node.values[1], node.op)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool | int):
            self._replace(node, str(not node.value) if isinstance(node.value, bool) else str(node.value + 1))


def mutations_of_python(path: Path) -> Iterator[Mutation]:
    """Yield the changes of functions and classes."""
    changes = Changes(path)
    for node in ast.parse(changes.text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            changes.visit(node)
    yield from changes.found


def tests_of(path: Path) -> str:
    """Return the tests nearest to a file: its examples and those of its name or folder first."""
    tests = NEAREST[max((key for key in NEAREST if str(path).startswith(key)), key=len)]
    if path.suffix == ".h":
        return tests
    folder = Path("tests", *(part for part in path.parts[2:-1] if part != "formats"))
    own = folder / f"test_{path.stem}.py"
    own = own if (ROOT / own).exists() or len(folder.parts) < 3 else folder
    return f"--doctest-modules {path} {own} {tests}" if (ROOT / own).exists() else f"--doctest-modules {path} {tests}"


def drawn(folder: str, seed: int) -> list[Mutation]:
    """Return all mutations of a folder, a file or one line (``FILE:LINE``) in random order."""
    folder, _, line = folder.partition(":")
    found = sorted((ROOT / folder).rglob("*")) if (ROOT / folder).is_dir() else [ROOT / folder]
    paths = [path.relative_to(ROOT) for path in found if path.suffix in (".h", ".py")]
    makers = {".h": mutations_of_c, ".py": mutations_of_python}
    every = [mutation for path in paths for mutation in makers[path.suffix](path)]
    every = [mutation for mutation in every if not line or mutation.line == int(line)]
    places = np.random.default_rng([seed, *folder.encode()]).permutation(len(every))
    return [every[place] for place in places.tolist()]


class Copy:
    """A copy of the checkout that is mutated and tested."""

    def __init__(self, folder: Path, limit: float | None) -> None:
        self.folder, self.limit, self.limits = folder, limit, dict[str, float]()
        shutil.copytree(ROOT, folder, ignore=LEFT_OUT, symlinks=True)
        objects = sorted(ROOT.glob(f"build/temp*/{BINDINGS}/*.o"))
        if not objects:
            sys.exit("no objects of the kernel: run setup.py build_ext --inplace first")
        self.objects = {path.stem: path for path in objects}
        self.units = {path.stem: self._headers(path.relative_to(ROOT)) for path in (ROOT / BINDINGS).glob("*.c")}
        self.programs = {name: self._headers(Path("tests/kernel", f"{name}.c")) for name in PROGRAMS}
        self.printed = dict[str, str | None]()

    def _compiler(self) -> list[str]:
        includes = [f"-I{self.folder / part}" for part in ("kernel", BINDINGS)] + [f"-I{sysconfig.get_path('include')}"]
        return ["cc", "-std=c11", "-O0", "-g0", "-w", "-fPIC", "-ffp-contract=off", "-DCP_NO_CLONES",
                "-DPy_LIMITED_API=0x030B0000", *includes]  # fmt: skip

    def _headers(self, unit: Path) -> set[Path]:
        command = [*self._compiler(), "-D_GNU_SOURCE", "-MM", str(self.folder / unit)]
        words = subprocess.run(command, capture_output=True, text=True, check=True).stdout.replace("\\\n", " ").split()
        return {Path(word).resolve() for word in words[1:]}

    def build(self, header: Path) -> bool:
        """Compile what includes a header and link the kernel; return whether that succeeded."""
        names = [name for name, headers in self.units.items() if (self.folder / header).resolve() in headers]
        made = {name: self.folder / f"{name}.o" for name in names}
        for name, path in made.items():
            command = [*self._compiler(), "-c", str(self.folder / BINDINGS / f"{name}.c"), "-o", str(path)]
            if subprocess.run(command, capture_output=True, check=False).returncode:
                return False
        every = [str(path) for path in (self.objects | made).values()]
        linked = ["cc", "-shared", *every, "-o", str(self.folder / LIBRARY), "-lpthread", "-lm"]
        return subprocess.run(linked, capture_output=True, check=False).returncode == 0

    def _output(self, name: str) -> str | None:
        """Return what a program prints; None if it fails or does not end, "" if it does not compile."""
        binary = str(self.folder / name)
        command = [*self._compiler(), "-std=gnu11", *SANITIZERS, str(self.folder / f"tests/kernel/{name}.c")]
        command += ["-o", binary]
        if subprocess.run([*command, "-lpthread", "-lm"], capture_output=True, check=False).returncode:
            return ""
        try:
            done = subprocess.run([binary], capture_output=True, text=True, timeout=2 * SLACK, check=False)
        except subprocess.TimeoutExpired:
            return None
        return None if done.returncode else f"{name} {done.stdout}"

    def seen(self, header: Path) -> bool | None:
        """Return whether a program's law sees the change of a header; None if that does not compile."""
        for name in PROGRAMS:
            if (self.folder / header).resolve() in self.programs[name]:
                output = self._output(name)
                if output != self.printed[name]:
                    return None if output == "" else True
        return False

    def outcome(self, tests: str, limit: float | None = None) -> str:
        """Run tests for some seconds at most."""
        env = {**os.environ, "PYTHONPATH": str(self.folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests.split()]
        with subprocess.Popen(
            command, cwd=self.folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0
        ) as process:
            try:
                return "caught   " if process.wait(limit) else "survived "
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                return "timed out"

    def tried(self, mutation: Mutation) -> str | None:
        """Return the outcome of the nearest tests; None if a mutation does not compile."""
        tests = tests_of(mutation.path)
        in_c = mutation.path.suffix == ".h"
        if self.limit is None and tests not in self.limits:
            begun = time.monotonic()
            if self.outcome(tests) != "survived ":
                sys.exit(f"without a mutation must pass: {tests}")
            self.limits[tests] = 3 * (time.monotonic() - begun) + SLACK
        for name in PROGRAMS if in_c and not self.printed else ():
            self.printed[name] = self._output(name)
            if not self.printed[name]:
                sys.exit(f"without a mutation must run: tests/kernel/{name}.c")
        path = self.folder / mutation.path
        text = path.read_bytes()
        path.write_bytes(text[: mutation.start] + mutation.new + text[mutation.stop :])
        try:
            limit = self.limits.get(tests, self.limit)
            seen = self.seen(mutation.path) if in_c else False
            if seen or seen is None:
                return "caught   " if seen else None
            return self.outcome(tests, limit) if not in_c or self.build(mutation.path) else None
        finally:
            path.write_bytes(text)
            if in_c:
                shutil.copy(ROOT / LIBRARY, self.folder / LIBRARY)


def main() -> None:
    """Mutate folders and print scores."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", default=list(dict.fromkeys(key for key in NEAREST if "." not in key)))
    parser.add_argument("--count", type=int, default=10, help="mutations of each folder, file or line (default 10)")
    parser.add_argument("--seed", type=int, default=0, help="draws other mutations (default 0)")
    parser.add_argument("--limit", type=float, help="seconds for tests, without running them unchanged first")
    options = parser.parse_args()
    caught = tried = 0
    with tempfile.TemporaryDirectory(prefix="mutated-") as scratch:
        copy = Copy(Path(scratch) / "copy", options.limit)
        for folder in options.folders:
            of_folder = [0, 0]
            for mutation in drawn(folder, options.seed):
                if of_folder[1] == options.count:
                    break
                outcome = copy.tried(mutation)
                if outcome is not None:
                    of_folder = [of_folder[0] + (outcome != "survived "), of_folder[1] + 1]
                    print(outcome, mutation, flush=True)
            print(f"{folder}: {of_folder[0]} of {of_folder[1]} caught", flush=True)
            caught, tried = caught + of_folder[0], tried + of_folder[1]
    print(f"in all: {caught} of {tried} caught")


if __name__ == "__main__":
    main()
