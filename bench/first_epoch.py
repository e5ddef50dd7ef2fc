"""Sampling of blocks before the first epoch, in it, or not at all: accuracy and seconds after one and three epochs."""

import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from accuracy import score
from common import Bench, check
from content import MODELS, TABLES, arrays, stored
from real import Split, dense

from corgipile.linear import train
from corgipile.loader.sampled_runs import SKETCH_SUFFIX
from corgipile.orders import FullShuffle, Riffle
from corgipile.tables.io.index_cache import INDEX_SUFFIX

UNIT, BATCH = 256, 64
HELD, SPOTS = 104, 13 << 20  # units in memory, those on their way among them; bytes beside them
ORDERS = {
    "full": FullShuffle(),
    "label": Riffle(balance="label"),
    "look before": Riffle(balance="content"),
    "first epoch": Riffle(balance="content", first_epoch="label"),
}


def _arrow(rows: pa.Table, path: Path) -> None:
    with pa.ipc.new_file(path, rows.schema) as file:
        file.write_table(rows)


WRITERS = {
    "parquet, small groups": lambda rows, path: pq.write_table(rows, path, row_group_size=UNIT),
    "parquet, one group": pq.write_table,
    "arrow": _arrow,
}


def first_epoch_part(bench: Bench, name: str, by: str) -> None:
    """Train on a table that is stored in one way and written in three."""
    split = TABLES[name](bench.data)
    x, y = arrays(split)
    at = stored(x, y, by)
    rows = dense(x[at], y[at])
    settings: dict[str, Any] = {"model": MODELS.get(name, "logistic"), "batch_size": BATCH, "decay": 0.7}
    settings |= {"learning_rate": 0.05, "average": False, "memory": HELD * UNIT * 4 * (x.shape[1] + 1) + SPOTS}
    unit = "R2 points" if split.regression else "points"
    for kind, write in WRITERS.items():
        path = bench.work / f"{name}.{kind.split(',')[0]}"
        write(rows, path)
        for epochs in (1, 3):
            found = _trained(path, epochs, bench.pick(5, 2), settings, split)
            title = f"{name} by {by}, {kind}, {epochs} epoch{'s'[: epochs - 1]}"
            mean = {what: np.mean([one[1] for one in runs]) for what, runs in found.items()}
            told = ", ".join(f"{what} {one:.2f}" for what, one in mean.items())
            below = float(mean["look before"] - mean["first epoch"])
            bench.report(f"{title}: looked at in the first epoch, below a look before", below, unit, "", told)
            times = {what: median([one[0] for one in runs]) for what, runs in found.items()}
            told = ", ".join(f"{what} {one:.2f} s" for what, one in times.items())
            share = times["first epoch"] / times["look before"]
            bench.report(f"{title}: seconds, looked at in the first epoch / before it", share, "x", "", told)
        path.unlink()


def _trained(
    path: Path, epochs: int, seeds: int, settings: dict[str, Any], split: Split
) -> dict[str, list[tuple[float, float]]]:
    """Return seconds and score of each order for some seeds, in turn, without state between runs."""
    kept, found = path.with_name(f"{path.name}{SKETCH_SUFFIX}{INDEX_SUFFIX}"), {what: [] for what in ORDERS}
    for seed in range(seeds):
        for what, order in ORDERS.items():
            kept.unlink(missing_ok=True)
            given = settings if what != "full" else settings | {"memory": "1GB"}
            begin = time.perf_counter()
            model = train(path, order=order, epochs=epochs, seed=seed, **given)
            seconds = time.perf_counter() - begin
            check(
                kept.exists() == (what == "look before" or (what == "first epoch" and epochs > 1)), "looked, or did not"
            )
            check(sum(one["rows"] for one in model.history) == epochs * len(split.train), "rows were left out")
            found[what].append((seconds, score(model, split)))
    return found
