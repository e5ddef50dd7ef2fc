"""The core works without the rooms at the edge and the minor formats: delete their folders, run the core's tests."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EDGES = ["cli", "conversion", "linear", "planner", "postgres", "proof", "relayout", "settings.py", "sql"]
EDGES += [
    "__main__.py",
    "comparison.py",
    "datasets.py",
    "description.py",
    "hooks.py",
    "ray.py",
    "repayment.py",
    "spark.py",
]
EDGES += ["torch/linear.py"]
MINOR = {
    "anndata",
    "avro",
    "delta",
    "duckdb",
    "hdf5",
    "huggingface",
    "iceberg",
    "lance",
    "mds",
    "orc",
    "sqlite",
    "zarr",
}
QUICK = ["orders/test_full.py", "loader/test_selection.py", "loader/test_skips.py", "quality/test_report.py"]
IMPORT_ALL = """
import importlib, pathlib, sys
root = pathlib.Path(sys.argv[1])
for path in sorted(root.rglob("*.py")):
    importlib.import_module(".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"))
"""


@pytest.fixture(scope="module")
def core(tmp_path_factory):
    """Return a folder with the package, less its edges."""
    folder = tmp_path_factory.mktemp("core")
    package = folder / "corgipile"
    shutil.copytree(ROOT / "src" / "corgipile", package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in [*EDGES, *(f"tables/formats/{name}" for name in MINOR)]:
        path = package / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.with_suffix(".py").unlink()
    _unregister(package / "tables" / "registry.py")
    return folder


def _unregister(registry):
    """Delete the lines of the minor formats."""
    tree = ast.parse(registry.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            node.names = [name for name in node.names if (name.asname or name.name) not in MINOR]
        elif isinstance(node, ast.Dict):
            lines = [(key, value) for key, value in zip(node.keys, node.values, strict=True) if not _is_minor(key)]
            node.keys, node.values = [key for key, _ in lines], [value for _, value in lines]
    tree.body = [node for node in tree.body if not isinstance(node, ast.ImportFrom) or node.names]
    registry.write_text(ast.unparse(tree))


def _is_minor(key):
    return isinstance(key, ast.Constant) and key.value in MINOR


def run(core, *arguments):
    path = os.pathsep.join([str(core), str(ROOT / "tests" / "support")])
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, cwd=ROOT,
                          env={**os.environ, "PYTHONPATH": path})  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_modules_of_the_core_import_no_edge(core):
    run(core, "-c", IMPORT_ALL, str(core))


def test_tests_of_the_core_pass(core):
    tests = [str(ROOT / "tests" / name) for name in QUICK]
    assert "passed" in run(core, "-m", "pytest", "-q", "--noconftest", "-p", "no:cacheprovider", *tests)
