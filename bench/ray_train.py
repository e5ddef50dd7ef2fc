"""Rows per second of a Ray Train worker: `corgipile.ray`, a plain loader, and Ray Data with a local shuffle buffer.

    PYTHONPATH=src python bench/ray_train.py     # an interpreter that has Ray and PyTorch

The table is sorted by label, in Parquet row groups of 10,000 rows. Ray Data's shuffle buffer has as many rows as our
memory budget; deff measures the mixing of batches, 1 is a full shuffle.
"""

import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray
import ray.data
import ray.train
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from torch.utils.data import DataLoader

import corgipile.ray
from corgipile.torch import CorgiPileDataset

ROWS, WIDTH, BATCH, ROUNDS = 400_000, 28, 256, 3
MEMORY = 8 << 20
BUFFER = MEMORY // (4 * WIDTH + 4)


def table(folder):
    numbers = np.random.default_rng(0).random((WIDTH, ROWS), np.float32)
    columns = {f"f{at}": column for at, column in enumerate(numbers)}
    labels = (np.arange(ROWS) * 10 // ROWS).astype(np.int32)
    path = folder / "sorted.parquet"
    pq.write_table(pa.table({**columns, "label": labels}), path, row_group_size=10_000)
    return path


def timed(batches):
    """Return rows per second, and deff of the batches; each row must come once."""
    means, rows, start = [], 0, time.perf_counter()
    for batch in batches:
        labels = batch["label"]
        rows += len(labels)
        if len(labels) == BATCH:
            means.append(float(labels.float().mean()))
    seconds = time.perf_counter() - start
    if rows != ROWS:
        raise SystemExit(f"{rows} rows came of {ROWS}")
    return rows / seconds, BATCH * float(np.var(means)) / 8.25  # the variance of labels 0 to 9


def work(config):
    settings = {"batch_size": BATCH, "memory": MEMORY, "seed": 1}
    ours = corgipile.ray.dataset(config["path"], **settings)
    plain = CorgiPileDataset(config["path"], rank=0, world=1, **settings)
    shard = ray.train.get_dataset_shard("train")
    cases = {
        "plain": lambda: DataLoader(plain, batch_size=None),
        "ours": lambda: DataLoader(ours, batch_size=None),
        "ray.data": lambda: shard.iter_torch_batches(batch_size=BATCH, local_shuffle_buffer_size=BUFFER),
    }
    found = {name: [] for name in cases}
    for _ in range(ROUNDS):
        for name, case in cases.items():
            found[name].append(timed(case()))
    figures = {}
    for name, runs in found.items():
        figures[f"{name} rate"], figures[f"{name} deff"] = (statistics.median(one) for one in zip(*runs, strict=True))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "figures.json").write_text(json.dumps(figures))
        ray.train.report({}, checkpoint=ray.train.Checkpoint.from_directory(folder))


def main(folder):
    path = table(folder)
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
    trainer = TorchTrainer(
        work,
        train_loop_config={"path": str(path)},
        datasets={"train": ray.data.read_parquet(str(path))},
        scaling_config=ScalingConfig(num_workers=1),
        run_config=RunConfig(storage_path=str(folder)),
    )
    with trainer.fit().checkpoint.as_directory() as saved:
        found = json.loads((Path(saved) / "figures.json").read_text())
    rates = {name: found[f"{name} rate"] for name in ("plain", "ours", "ray.data")}
    for name, rate in rates.items():
        print(f"{name}: {rate / 1e3:.0f} k rows/s, deff {found[f'{name} deff']:.2f}")
    print(f"ours / plain loader: {rates['ours'] / rates['plain']:.2f} x (target 0.9)")
    print(f"ours / ray.data: {rates['ours'] / rates['ray.data']:.1f} x (target 5, at lower deff)")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
