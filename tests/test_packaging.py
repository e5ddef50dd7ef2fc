"""What is packed: the sources whole, and a description that a package index can show."""

import re
import shutil
import subprocess
import sys
import tarfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
WANTED = (
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "bench/README.md",
    "docs/frameworks.md",
    "docs/orders.png",
    "examples/demo.py",
    "kernel/plan/plan.h",
    "postgres/Makefile",
    "postgres/README.md",
    "pyproject.toml",
    "setup.py",
    "src/corgipile/_kernel/bind_sgd.c",
    "src/corgipile/py.typed",
    "src/corgipile_command.py",
    "src/corgipile_pytest.py",
    "tests/conftest.py",
    "tests/test_packaging.py",
)


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """The names in a source distribution, and its description."""
    copy = tmp_path_factory.mktemp("packaging") / "copy"
    ignored = shutil.ignore_patterns(
        ".venv", ".git", "shared", "*.egg-info", "build", ".*_cache", "__pycache__", "*.so"
    )
    shutil.copytree(ROOT, copy, ignore=ignored)
    command = [sys.executable, "setup.py", "--quiet", "sdist", "--formats=gztar"]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = (copy / "dist").iterdir()
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        (facts,) = (name for name in archive.getnames() if name.count("/") == 1 and name.endswith("PKG-INFO"))
        return names, archive.extractfile(facts).read().decode()


def test_the_source_distribution_is_whole(packed):
    names, _ = packed

    assert [name for name in WANTED if name not in names] == []
    folders = ("bench", "docs", "examples", "kernel", "postgres", "src/corgipile", "tests")
    kinds = {".py", ".md", ".c", ".h", ".sql", ".png", ".txt"}
    there = {
        str(path.relative_to(ROOT)) for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in kinds
    }
    assert {name for name in there - names if "cache" not in name} == set()
    assert not [name for name in names if name.endswith((".so", ".pyc"))]


def test_the_description_shows_on_a_package_index(packed):
    facts = Parser().parsestr(packed[1])
    text = facts.get_payload()
    assert facts["Description-Content-Type"] == "text/markdown"
    assert "A Parquet file from pandas" in text
    assert re.findall(r"\]\((?!https?://)", text) == []
    assert (ROOT / "README.md").read_text().count("](docs/orders.png)") == 1


def test_the_command_and_its_extras(packed):
    facts = Parser().parsestr(packed[1])
    needed = [line for line in facts.get_all("Requires-Dist") if 'extra == "pg"' in line]
    assert any("corgipile[cli]" in line for line in needed)  # `corgipile pg` is a command
