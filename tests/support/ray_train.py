"""A program for Ray: shuffled blocks, tables by tasks, a training resumed by other workers, and a failing one."""

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import ray
import ray.data
import ray.train
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

import corgipile as cp
import corgipile.ray
from corgipile.errors import BadArgument, BadValue

ROWS = 3000


def table(folder):
    path = folder / "table.arrow"
    made = pa.table({"x": np.arange(ROWS), "label": np.arange(ROWS) // 300})
    with pa.ipc.new_file(path, made.schema) as file:
        file.write_table(made, max_chunksize=300)
    return str(path)


def work(config):
    context = ray.train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    dataset = corgipile.ray.dataset(
        config["table"], checkpoint=config.get("checkpoint"), batch_size=120, seed=1, global_batches="fixed"
    )
    iteration = iter(dataset)
    begun = dataset.state_dict()["segments"]
    step = sum(begun[-1]["batches"]) if begun else 0
    for batch in iteration:
        step += 1
        with open(f"{config['log']}/{rank}-of-{world}.log", "a") as log:  # noqa: PTH123
            print(json.dumps([step, batch["x"].tolist()]), file=log)
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = corgipile.ray.save(dataset, folder) if rank == 0 else None
            ray.train.report({"step": step}, checkpoint=checkpoint)
        failed = Path(config["log"]) / "failed"
        if step == config.get("fail") and rank == world - 1 and not failed.exists():
            failed.touch()
            raise RuntimeError("this worker fails once")
        if step == config.get("stop"):
            break


def train(folder, workers, config, failures=0):
    trainer = TorchTrainer(
        work,
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=workers, resources_per_worker={"CPU": 0.5}),
        run_config=RunConfig(
            name=f"{workers}-{time.time()}", storage_path=str(folder), failure_config=FailureConfig(failures)
        ),
    )
    return trainer.fit().checkpoint


def steps(log):
    """Return the rows of each global batch, from its last delivery."""
    found = {}
    for path in sorted(Path(log).glob("*.log"), key=lambda path: path.stat().st_mtime):
        for line in path.read_text().splitlines():
            step, rows = json.loads(line)
            found.setdefault(step, {})[path.name] = rows
    return {step: [row for rows in ranks.values() for row in rows] for step, ranks in found.items()}


def rows(path):
    found = cp.open(path)
    return found.read(0, len(found)).to_pylist()


def written(folder, path):
    """Shuffle and convert by tasks; return the results."""
    corgipile.ray.reshuffle(path, folder / "shuffled", memory="64KB", seed=5)
    cp.reshuffle(path, folder / "alone.arrow", memory="64KB", seed=5)
    corgipile.ray.convert(path, folder / "rows-%05d.parquet", shard_size="16KB")
    said = {
        "shuffled rows": rows(folder / "shuffled") == rows(folder / "alone.arrow") != rows(path),
        "files": len(list((folder / "shuffled").iterdir())),
        "converted": rows(sorted(folder.glob("*.parquet"))) == rows(path),
    }
    cp.convert(pa.table({"x": [0.0] * 3000 + [None] * 1000}), folder / "nulls.arrow")
    try:
        corgipile.ray.convert(folder / "nulls.arrow", folder / "tar", to="tfrecord", shard_size="4KB")
    except BadValue as error:
        said["task"] = str(error)
    return said | {"left": sorted(one.name for one in folder.iterdir())}


def main(folder):
    path = table(folder)
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, configure_logging=False)
    source = corgipile.ray.ShuffledDatasource(path, seed=1, block_rows=500, memory="64KB")
    blocks = ray.data.read_datasource(source, override_num_blocks=3)
    had = [row for batch in blocks.iter_batches(batch_size=250) for row in batch["x"].tolist()]
    said = {"blocks": sorted(had) == list(range(ROWS)), "shuffled": float(np.mean(np.diff(had) == 1))}
    said |= written(folder, path)
    try:
        corgipile.ray.dataset(path)
    except BadArgument as error:
        said["outside"] = str(error)
    logs = [folder / name for name in ("changed", "failing")]
    for log in logs:
        log.mkdir()
    config = {"table": path, "log": str(logs[0])}
    checkpoint = train(folder, 2, {**config, "stop": 9})
    train(folder, 3, {**config, "checkpoint": checkpoint})
    said["changed"] = steps(logs[0])
    train(folder, 2, {"table": path, "log": str(logs[1]), "fail": 11}, failures=1)
    said["failing"] = steps(logs[1])
    (folder / "said.json").write_text(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
