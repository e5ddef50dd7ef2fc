"""Balance by content: its effect on labels, features, their products and accuracy, and its cost."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from accuracy import score
from common import Bench, check, interleave, median, ratio
from data import higgs
from pagecache import drop, read_plainly
from real import READERS, Split, dense, held_out

import corgipile as cp
from corgipile.linear import train
from corgipile.loader.sampled_runs import SKETCH_SUFFIX
from corgipile.orders import FullShuffle, Order, Riffle
from corgipile.quality import coverage, deff, prefix_discrepancy
from corgipile.tables.io.index_cache import INDEX_SUFFIX

BATCH, HELD, CELLS = 256, 64, 12
SEEDS = 20  # of accuracies: the spread of five is off by a factor of 3 at times
STORED = ("label", "feature", "cells", "time")
MODELS = {"protein": "linear", "fashion_mnist": "softmax", "mixture": "softmax"}


def mixture(_: Any) -> Split:
    """Return 60 clusters of 20 features in three classes."""
    random = np.random.default_rng(1)
    kind = random.integers(0, 60, 200_000)
    x = random.normal(size=(60, 20))[kind] * 1.5 + random.normal(size=(len(kind), 20))
    y = (x @ random.normal(size=(20, 3)) + 3 * random.normal(size=(len(kind), 3))).argmax(axis=1)
    return held_out(x, y, regression=False)


TABLES = {**{name: READERS[name] for name in ("skin", "protein", "ijcnn1", "fashion_mnist")}, "mixture": mixture}


def arrays(split: Split) -> tuple[np.ndarray, np.ndarray]:
    """Return features and labels of the training rows."""
    y = split.train["label"].to_numpy()
    x = split.train["features"].combine_chunks().flatten().to_numpy().reshape(len(y), -1)
    return x, y


def stored(x: np.ndarray, y: np.ndarray, by: str) -> np.ndarray:
    """Return rows in storage order."""
    random = np.random.default_rng(5)
    mixed = random.permutation(len(y))
    some = x[random.choice(len(x), min(len(x), 5000), replace=False)]
    spread = x @ np.linalg.svd(some - some.mean(axis=0), full_matrices=False)[2][:2].T
    if by == "label":
        key = y.astype(np.float64)
    elif by == "feature":  # one that has many values
        key = x[:, int(np.argmax([len(np.unique(column)) for column in some.T]))].astype(np.float64)
    elif by == "cells":
        edges = np.quantile(spread, np.linspace(0, 1, CELLS + 1)[1:-1], axis=0)
        at = [np.searchsorted(edge, values) for edge, values in zip(edges.T, spread.T, strict=True)]
        key = random.permutation(CELLS * CELLS)[at[0] * CELLS + at[1]].astype(np.float64)
    else:  # a drift that comes round, of which each row's time is known roughly
        turn = spread / spread.std(axis=0)
        key = np.arctan2(turn[:, 1], turn[:, 0]) / (2 * np.pi) + 0.1 * random.normal(size=len(y))
    return mixed[np.argsort(key[mixed], kind="stable")]


def keys(x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """Return the measured values of rows: labels, 16 projections of the features, and the products of both."""
    sides = x @ np.random.default_rng(123).normal(size=(x.shape[1], 16))
    sides = (sides - sides.mean(axis=0)) / sides.std(axis=0)
    hot = (y[:, None] == np.unique(y)).astype(np.float64) if y.dtype.kind == "i" else y[:, None].astype(np.float64)
    products = ((hot - hot.mean(axis=0))[:, :, None] * sides[:, None, :]).reshape(len(y), -1)
    return {"labels": y, "features": sides, "label x feature": products}


def visits(table: Any, order: Order, epochs: int) -> Iterator[np.ndarray]:
    """Yield the rows of some epochs, each row once per epoch."""
    with cp.Loader(table, order=order, memory=None, seed=3) as loader:
        for epoch in range(epochs):
            rows = np.concatenate(list(loader.feeder.rows(epoch)))
            check(coverage(rows, len(table)).exact, f"{order!r} did not visit every row once")
            yield rows


def measured(table: Any, order: Order, values: dict[str, np.ndarray], epochs: int) -> np.ndarray:
    """Return mean deff and prefix discrepancy, (2, keys)."""
    found = [
        [
            [deff(one[rows], BATCH) for one in values.values()],
            [prefix_discrepancy(one[rows]) for one in values.values()],
        ]
        for rows in visits(table, order, epochs)
    ]
    mean: np.ndarray = np.mean(found, axis=0)
    return mean


def orders(block: int) -> dict[str, Order]:
    """Return Riffle with its balance of blocks, 64 of them in memory."""
    sizes: dict[str, Any] = {"block": block, "buffer": HELD * block, "group": 1}
    return {
        "content": Riffle(**sizes, balance="content"),
        "label": Riffle(**sizes, balance="label"),
        "random": Riffle(**sizes),
    }


def spread_part(bench: Bench, name: str, block: int) -> None:
    """Measure deff and prefix discrepancy of a table stored in four ways."""
    x, y = arrays(TABLES[name](bench.data))
    for by in STORED:
        order = stored(x, y, by)
        table, values = cp.open(dense(x[order], y[order])), keys(x[order], y[order])
        full = measured(table, FullShuffle(), values, 2)
        found = {what: measured(table, one, values, bench.pick(5, 2)) for what, one in orders(block).items()}
        told = {what: " ".join(f"{one:.2f}" for one in values[0]) for what, values in found.items()}
        note = f"{', '.join(values)}: {told['content']}; by label {told['label']}; random blocks {told['random']}"
        title = f"{name} by {by}, {HELD} blocks of {block}"
        bench.report(f"{title}: deff by content, the worst", found["content"][0].max(), "", "<= 1.2", note)
        told = {what: " ".join(f"{one:.1f}" for one in values[1] / full[1]) for what, values in found.items()}
        note = f"{', '.join(values)}: {told['content']}; by label {told['label']}; random blocks {told['random']}"
        over = (found["content"][1] / full[1]).max()
        bench.report(f"{title}: prefix discrepancy / a full shuffle's, the worst", over, "x", "<= 2", note)


def accuracy_part(bench: Bench, name: str, batch: int) -> None:
    """Train three epochs on a table stored in each way, and after a full shuffle."""
    split, seeds, block = TABLES[name](bench.data), bench.pick(SEEDS, 2), 256
    x, y = arrays(split)
    settings: dict[str, Any] = {"model": MODELS.get(name, "logistic"), "epochs": 3, "batch_size": batch, "decay": 0.7}
    settings["learning_rate"] = (
        (0.05 if batch > 1 else 0.002) if name != "fashion_mnist" else 0.1 if batch > 1 else 0.002
    )
    unit = "R2 points" if split.regression else "points"
    for by in STORED:
        order = stored(x, y, by)
        table, found = cp.open(dense(x[order], y[order])), {}
        for what, one in {"full": FullShuffle(), **orders(block)}.items():
            few = seeds if what in ("full", "content") else min(seeds, 5)
            models = [train(table, order=one, memory=None, seed=seed, **settings) for seed in range(few)]
            found[what] = [score(model, split) for model in models]
        told = ", ".join(f"{what} {np.mean(one):.2f} ± {np.std(one):.2f}" for what, one in found.items())
        below = float(np.mean(found["full"]) - np.mean(found["content"]))
        title = f"{name} by {by}, {batch} rows a step, 3 epochs, {seeds} seeds"
        bench.report(f"{title}: content below a full shuffle", below, unit, "<= 0.3", told)
        spread = float(np.std(found["content"]) / max(np.std(found["full"]), 0.02))
        bench.report(f"{title}: spread / the full shuffle's (0.02 at least)", spread, "x", "<= 2")


SERIATE = """
import json, resource, time
import numpy as np
from corgipile import _kernel
blocks, width = 1_000_000, 33
random = np.random.default_rng(0)
vectors = np.empty((blocks, width), np.int16)
for start in range(0, blocks, 100_000):
    at = np.arange(start, start + 100_000)[:, None]
    vectors[start:start + 100_000] = random.normal(size=(100_000, width)) * 50 + (at // 5000 * 37 % 997 - 500)
order = np.empty(blocks, np.int64)
begin = time.process_time()
_kernel.balance_vectors(vectors, width, 1, order)
seconds = time.process_time() - begin
assert (np.bincount(order, minlength=blocks) == 1).all()
print(json.dumps({"seconds": seconds, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
"""


def cost_part(bench: Bench) -> None:
    """Time the ordering of a million blocks, and the sampling of a large file's blocks relative to reading it."""
    done = subprocess.run([sys.executable, "-c", SERIATE], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    note = "33 numbers a block"
    bench.report("content: CPU seconds that order 1,000,000 blocks", found["seconds"], "s", "<= 20", note)
    bench.report("content: peak memory of that process, vectors included", found["peak"], "MB", "<= 200", note)
    rows = bench.pick(36_000_000, 2_000_000)
    path = higgs(bench.work, rows, 28)

    index = path.with_name(f"{path.name}{SKETCH_SUFFIX}{INDEX_SUFFIX}")

    def looked() -> float:
        index.unlink(missing_ok=True)
        return begun()

    def begun() -> float:
        drop(path)
        begin = time.perf_counter()
        with cp.Loader(cp.open(path), order=Riffle(balance="content")) as loader:
            check(len(loader.feeder.blocks.sketch) == loader.feeder.blocks.count, "not every block has a sketch")
        return time.perf_counter() - begin

    def read() -> float:
        drop(path)
        return read_plainly(path, chunk=256 << 10)

    times = interleave({"looked": looked, "begun": begun, "read": read}, bench.few, warm=False)
    share, spread = ratio(times, "looked", "read")
    note = (
        f"{median(times['looked']):.2f} s and {median(times['read']):.2f} s, {path.stat().st_size >> 20} MB ({spread})"
    )
    bench.report(
        "content: looking at all blocks of a cold file / reading it in sequence", 100 * share, "%", "<= 5", note
    )
    share, spread = ratio(times, "begun", "read")
    note = f"{median(times['begun']):.2f} s ({spread})"
    bench.report("content: beginning with what was kept of it / reading it in sequence", 100 * share, "%", "<= 5", note)
