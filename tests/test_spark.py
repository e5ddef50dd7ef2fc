"""Spark as it runs: a session of this machine, whose tasks and ranks are processes of their own."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from corgipile import Loader

PROGRAM = Path(__file__).parent / "support" / "spark_jobs.py"
SOURCE = Path(__file__).parent.parent / "src"
PYTHON = os.environ.get("CORGIPILE_SPARK_PYTHON") or (importlib.util.find_spec("pyspark") and sys.executable)
needs_spark = pytest.mark.skipif(
    not PYTHON or not shutil.which("java"),
    reason="Spark or Java is not installed; CORGIPILE_SPARK_PYTHON may name an interpreter that has PySpark",
)


@needs_spark
def test_tasks_shuffle_and_convert_and_ranks_share(tmp_path):
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [PYTHON, PROGRAM, tmp_path], env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    said = json.loads((tmp_path / "said.json").read_text())
    assert said["before"].startswith("BadArgument: there is no Spark session")
    assert said["shuffled"]
    assert said["files"] > 2
    assert said["converted"]
    assert said["there"].startswith("WouldOverwrite")
    assert said["task"].startswith("BadValue: column 'text', row ")
    assert said["world"] == 2
    assert {name.split("-")[0] for name in said["left"]} == {"alone.arrow", "rank", "rows", "shuffled", "table.arrow"}
    alone = Loader(tmp_path / "table.arrow", batch_size=120, seed=1, global_batches="fixed", memory="64KB")
    ranks = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(2)]
    together = [sorted(one + other) for one, other in zip(*ranks, strict=True)]
    assert together == [sorted(batch["x"].tolist()) for batch in alone]


@pytest.mark.skipif(importlib.util.find_spec("pyspark") is not None, reason="PySpark is installed")
def test_what_is_missing_is_said():
    from corgipile.errors import MissingExtra  # noqa: PLC0415

    with pytest.raises(MissingExtra, match=r"corgipile\[spark\]"):
        importlib.import_module("corgipile.spark")
