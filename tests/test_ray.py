"""Ray as it runs: a cluster of this machine, in processes of its own."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from corgipile import Loader

PROGRAM = Path(__file__).parent / "support" / "ray_train.py"
SOURCE = Path(__file__).parent.parent / "src"
PYTHON = os.environ.get("CORGIPILE_RAY_PYTHON") or (importlib.util.find_spec("ray") and sys.executable)
needs_ray = pytest.mark.skipif(not PYTHON, reason="Ray is not installed; CORGIPILE_RAY_PYTHON may name an interpreter")


@needs_ray
def test_workers_come_back_and_change(tmp_path):
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "RAY_TRAIN_V2_ENABLED": "1"}
    done = subprocess.run(
        [PYTHON, PROGRAM, tmp_path], env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    said = json.loads((tmp_path / "said.json").read_text())
    assert said["blocks"]
    assert said["shuffled"] < 0.2
    assert said["shuffled rows"]
    assert said["files"] > 2
    assert said["converted"]
    assert said["task"].startswith("column 'x', row 3")
    left = {name.split("-")[0] for name in said["left"]}
    assert left == {"alone.arrow", "nulls.arrow", "rows", "shuffled", "table.arrow"}
    assert "must be called in a TorchTrainer's function" in said["outside"]
    alone = Loader(tmp_path / "table.arrow", batch_size=120, seed=1, global_batches="fixed", columns=["x"])
    batches = {str(step): sorted(batch["x"].tolist()) for step, batch in enumerate(alone, 1)}
    for run in ("changed", "failing"):
        assert {step: sorted(rows) for step, rows in said[run].items()} == batches


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is installed")
def test_what_is_missing_is_said():
    from corgipile.errors import MissingExtra  # noqa: PLC0415

    with pytest.raises(MissingExtra, match=r"corgipile\[ray\]"):
        importlib.import_module("corgipile.ray")
