"""The PyTorch examples run as their users run them, on little data."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ORDERS = ["No Shuffle", "Sliding Window", "CorgiPile", "Riffle", "Riffle, balanced", "full shuffle"]
LITTLE = {
    "resnet18": ["--rows", "120", "--epochs", "1", "--width", "2"],
    "transformer": ["--rows", "240", "--epochs", "1", "--width", "8"],
    "ddp": ["--rows", "120", "--epochs", "1", "--width", "8"],
}


def run(*words):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"}  # a crash says where it was
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def check(lines, processes):
    head, columns, *rows = lines
    assert f"{processes} process(es)" in head
    assert columns.split() == ["order", "deff", "of", "batches", "accuracy", "seconds"]
    assert [row[:18].rstrip() for row in rows] == ORDERS
    deffs, scores = zip(*((float(row[18:34]), float(row[34:44].strip().rstrip("%"))) for row in rows), strict=True)
    assert all(0 <= score <= 100 for score in scores)
    assert deffs[0] > 3 * deffs[-1]  # sorted by label is far from shuffled
    assert deffs[4] < 2


@pytest.mark.parametrize("name", ["resnet18", "ddp"])
def test_images(name):
    pytest.importorskip("sklearn")
    check(run(sys.executable, EXAMPLES / f"{name}.py", *LITTLE[name]), 2 if name == "ddp" else 1)


def test_text():
    check(run(sys.executable, EXAMPLES / "transformer.py", *LITTLE["transformer"]), 1)


def test_torchrun():
    pytest.importorskip("sklearn")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    check(run(*launcher, EXAMPLES / "ddp.py", *LITTLE["ddp"]), 2)
