"""Mixing of orders by row numbers, and audits: detected faults, false alarms, and cost."""

import sys
import time

import numpy as np
import pyarrow as pa
from common import HERE, Bench, alone, check, interleave, median
from content import TABLES, accuracy_part, cost_part, spread_part

from corgipile import Loader
from corgipile.orders import Blocks, CorgiPile, FullShuffle, Key, Order, Riffle, visited_rows
from corgipile.quality import Audit, audit, coverage, deff, expected_deff_corgipile, h_d, prefix_discrepancy
from corgipile.verdicts import FAULTS

sys.path.insert(0, str(HERE.parent / "tests" / "support"))
import planted

BATCH, CLASSES = 256, 10
GRID = [(64, 16), (64, 64), (64, 256), (128, 32), (128, 128), (512, 16), (512, 64), (1024, 16), (1024, 64)]


def measure(order: Order, blocks: Blocks, labels: np.ndarray, epochs: int) -> tuple[float, float]:
    """Return mean deff and prefix discrepancy of some epochs; each row must be visited once per epoch."""
    fitted = order.fit(blocks.rows, 1.0, None)
    found = []
    for epoch in range(epochs):
        rows = np.concatenate(list(visited_rows(fitted, blocks, Key(3, epoch))))
        check(coverage(rows, blocks.rows).exact, f"{fitted.name} did not visit every row once")
        found.append((deff(labels[rows], BATCH), prefix_discrepancy(labels[rows])))
    means = np.mean(found, axis=0)
    return float(means[0]), float(means[1])


def formula_part(bench: Bench) -> None:
    """Compare CorgiPile's deff with the formula, over block and buffer sizes; label-sorted, sizes that divide."""
    rows, epochs = 1 << 19, bench.pick(24, 8)
    labels = np.arange(rows) * CLASSES // rows
    off = []
    for block, count in GRID:
        blocks = Blocks(rows, even=block)
        found, _ = measure(CorgiPile(block=block, buffer=count * block), blocks, labels, epochs)
        spread = h_d(labels, np.append(np.arange(0, rows, block), rows))
        expected = expected_deff_corgipile(BATCH, count, block, blocks.count, spread)
        off.append(100 * abs(found / expected - 1))
        note = f"measured {found:.2f}, formula {expected:.2f}, h_D {spread:.1f}"
        bench.report(f"CorgiPile deff off the formula, {count} blocks of {block}", off[-1], "%", "", note)
    note = f"B = {BATCH}, {CLASSES} classes sorted, {epochs} epochs each"
    bench.report(f"CorgiPile deff off the formula, worst of {len(GRID)}", max(off), "%", "<= 10", note)


def mixing_part(bench: Bench) -> None:
    """Measure Riffle and its balanced form with memory for 128 blocks of 100 rows."""
    rows, block, epochs = 400_000, 100, bench.pick(40, 10)
    labels = np.arange(rows) * CLASSES // rows
    sketch = labels.reshape(-1, block).mean(axis=1)
    plain, known = Blocks(rows, even=block), Blocks(rows, even=block, sketch=sketch)
    buffer = 128 * block
    cases = {
        "full shuffle": (FullShuffle(), plain, "", ""),
        "CorgiPile": (CorgiPile(block=block, buffer=buffer // 2), plain, "", ""),
        "Riffle": (Riffle(block=block, buffer=buffer, group=1), plain, "<= 1.5", "<= 12"),
        "balanced Riffle": (Riffle(block=block, buffer=buffer, group=1, balance="label"), known, "<= 0.5", "<= 1.5"),
    }
    for name, (order, blocks, most, drift) in cases.items():
        found, prefix = measure(order, blocks, labels, epochs)
        held = order.fit(rows, 1.0, None).resident(blocks) / block
        note = f"{held:.0f} blocks in memory" if name != "full shuffle" else ""
        bench.report(f"{name}: deff, 10 classes sorted, B = {BATCH}", found, "", most, note)
        bench.report(f"{name}: prefix discrepancy", prefix, "", drift, note)


def faults_part(bench: Bench) -> None:
    """Check that each planted fault is found by its name."""
    found = []
    for name in FAULTS:
        loaders, other = planted.alone(name)
        report = audit(*loaders, id="id", key="label", rows=planted.ROWS, other_seed=other)
        found += [name] if name in [fault.name for fault in report.faults] else []
    note = f"of {len(FAULTS)} faults"
    bench.report("audit: planted faults found by name", 100 * len(found) / len(FAULTS), "%", ">= 100", note)


def honest(run: int) -> list[object]:
    """Return the loaders of a fault-free run, one per rank, with varying sizes, orders, labels and ranks."""
    rng = np.random.default_rng([12, run])
    rows, kinds, batch = (int(rng.integers(low, high)) for low, high in ((2_000, 12_000), (2, 40), (16, 200)))
    labels = np.sort(rng.integers(0, kinds, rows)) if run % 3 else rng.integers(0, kinds, rows)
    world = (1, 1, 2, 4)[run // 5 % 4]
    if run % 5 == 4:
        orders = [rng.permutation(rows) for _ in range(2)]
        return [Twice(*(ids[rank::world] for ids in orders), labels=labels, batch=batch) for rank in range(world)]
    table = pa.table({"id": np.arange(rows), "label": labels})
    order = ("auto", "riffle", "corgipile", "full")[run % 5]
    return [
        Loader(table, batch_size=batch, order=order, memory="96KB", seed=run, rank=rank, world=world)
        for rank in range(world)
    ]


class Twice:
    """A loader of two epochs, given by row numbers."""

    def __init__(self, *epochs: np.ndarray, labels: np.ndarray, batch: int) -> None:
        self.epochs, self.labels, self.batch, self.ran = epochs, labels, batch, 0

    def __iter__(self):
        """Yield the batches of the next epoch."""
        ids = self.epochs[self.ran % len(self.epochs)]
        self.ran += 1
        for start in range(0, len(ids), self.batch):
            part = ids[start : start + self.batch]
            yield {"id": part, "label": self.labels[part]}


def honest_part(bench: Bench) -> None:
    """Check that runs without faults raise no alarm."""
    runs, alarms = bench.pick(200, 40), []
    for run in range(runs):
        loaders = honest(run)
        rows = None if run % 5 == 4 else len(loaders[0].feeder.table)
        alarms += [f"run {run}: {fault}" for fault in audit(*loaders, id="id", key="label", rows=rows).faults]
    for alarm in alarms:
        print(f"  {alarm}")
    bench.report(f"audit: false alarms in {runs} honest runs", len(alarms), "", "<= 0", "orders, sizes, 1 to 4 ranks")


def overhead_part(bench: Bench) -> None:
    """Measure the CPU time of a live audit alone, for a loader of a million rows per second."""
    rows = bench.pick(4_000_000, 1_000_000)
    ids = np.random.default_rng(0).permutation(rows)
    labels = ids * CLASSES // rows
    batches = [{"id": ids[at : at + BATCH], "label": labels[at : at + BATCH]} for at in range(0, rows, BATCH)]
    cases = {"id and key": {"id": "id", "key": "label"}, "key only": {"key": "label"}, "neither": None}

    def watched(fields: dict[str, str] | None) -> float:
        live = None if fields is None else Audit(rows=rows, **fields)
        start = time.process_time()
        for _ in live.watch(batches) if live else batches:
            pass
        seconds = time.process_time() - start
        if live:
            epoch = live.report().epochs[0]
            check(epoch.batches == len(batches) and epoch.distinct in (None, rows), "the audit missed rows")
        return seconds

    times = interleave({name: lambda fields=fields: watched(fields) for name, fields in cases.items()}, bench.repeats)
    for name in ("id and key", "key only"):
        each = (median(times[name]) - median(times["neither"])) / rows * 1e9
        note = f"{each:.0f} ns a row, batches of {BATCH}"
        bench.report(f"live audit, {name}: of 1 M rows/s", each / 10, "%", "<= 5", note)


def stats_part(bench: Bench) -> None:
    """Measure the cost of reading a loader's statistics every hundred batches, at a million rows per second."""
    rows = bench.pick(4_000_000, 1_000_000)
    loader = Loader(pa.table({"x": np.zeros(rows, np.float32)}), batch_size=BATCH, memory="1MB")
    cases = {"asked": 100, "not asked": 1 << 40}

    def epoch(every: int) -> float:
        start = time.process_time()
        for number, _ in enumerate(loader):
            if number % every == every - 1:
                check(loader.stats.batches == number + 1, "the figures are of another batch")
        seconds = time.process_time() - start
        check(loader.stats.rows == rows, "rows were not counted")
        return seconds

    times = interleave({name: lambda every=every: epoch(every) for name, every in cases.items()}, 3 * bench.repeats)
    each = (median(times["asked"]) - median(times["not asked"])) / rows * 1e9
    begun = iter(loader)
    next(begun)
    start = time.perf_counter()
    for _ in range(1000):
        loader.stats  # noqa: B018 - a property
    asking = (time.perf_counter() - start) * 1e3
    bench.report("loader.stats at every 100th batch: of 1 M rows/s", asking / (100 * BATCH) * 100, "%", "<= 0.5",
                 f"{asking:.0f} us a time; epochs of CPU time differ by {each:.1f} ns a row")  # fmt: skip


def main(bench: Bench) -> None:
    """Run all parts."""
    bench.part("formula", formula_part)
    bench.part("mixing", mixing_part)
    bench.part("faults", faults_part)
    bench.part("honest", honest_part)
    bench.part("overhead", overhead_part)
    bench.part("stats", stats_part)
    for name in TABLES:
        for block in (256, 1000):
            if block == 256 or name in ("skin", "mixture"):  # the others have too few such blocks
                bench.part(f"content-{name}", lambda b, name=name, block=block: spread_part(b, name, block))
    for name in TABLES:
        for batch in (64, 1):
            bench.part(
                f"content-accuracy-{name}-{batch}", lambda b, name=name, batch=batch: accuracy_part(b, name, batch)
            )
    bench.part("content-cost", cost_part)


if __name__ == "__main__":
    alone("quality", main)
