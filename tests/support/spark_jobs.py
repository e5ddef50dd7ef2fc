"""A program for Spark: a table shuffled and converted by tasks, errors of tasks, and ranks of a TorchDistributor."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.ml.torch.distributor import TorchDistributor
from pyspark.sql import SparkSession

import corgipile as cp
import corgipile.spark
from corgipile.errors import BadArgument, BadValue

ROWS, MEMORY = 4000, "128KB"


def rank(path, folder):
    """Run one rank of a training."""
    import torch.distributed as dist  # noqa: PLC0415 - where it runs

    from corgipile.torch import CorgiPileDataset  # noqa: PLC0415 - as above

    dist.init_process_group("gloo")
    dataset = CorgiPileDataset(path, batch_size=120, seed=1, global_batches="fixed", memory="64KB")
    batches = [batch["x"].tolist() for batch in dataset]
    (Path(folder) / f"rank-{dist.get_rank()}.json").write_text(json.dumps(batches))
    dist.barrier()
    return dist.get_world_size()


def error_of(work):
    try:
        work()
    except (BadArgument, BadValue) as error:
        return f"{type(error).__name__}: {error}"
    return None


def rows(path):
    table = cp.open(path)
    return table.read(0, len(table)).to_pylist()


def main(folder):
    source = str(folder / "table.arrow")
    made = pa.table(
        {
            "x": np.arange(ROWS),
            "pair": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(2 * ROWS, dtype=np.uint16)), 2),
            "text": [None if at % 7 == 0 else "é" * (at % 5) for at in range(ROWS)],
        }
    )
    cp.convert(made, source)
    said = {"before": error_of(lambda: corgipile.spark.reshuffle(source, folder / "none"))}
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1", OMP_NUM_THREADS="1")
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    corgipile.spark.reshuffle(source, folder / "shuffled", memory=MEMORY, seed=5)
    cp.reshuffle(source, folder / "alone.arrow", memory=MEMORY, seed=5)
    said["shuffled"] = rows(folder / "shuffled") == rows(folder / "alone.arrow") != rows(source)
    said["files"] = len(list((folder / "shuffled").iterdir()))
    corgipile.spark.convert(source, folder / "rows-%05d.parquet", shard_size="16KB")
    said["converted"] = rows(sorted(folder.glob("*.parquet"))) == rows(source)
    said["there"] = error_of(lambda: corgipile.spark.convert(source, folder / "shuffled"))
    said["task"] = error_of(lambda: corgipile.spark.convert(source, folder / "tar", to="tfrecord", shard_size="8KB"))
    distributor = TorchDistributor(num_processes=2, local_mode=False, use_gpu=False)
    said["world"] = distributor.run(rank, source, str(folder))
    session.stop()
    said["left"] = sorted(path.name for path in folder.iterdir())
    (folder / "said.json").write_text(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
