"""Predictions of a plan against measurements, and order="auto" against the best of 30 settings by hand."""

import functools
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from common import Bench, Skip, alone, check, median, rate, walk
from pagecache import drop

import corgipile as cp
from corgipile.orders import BlockOnly, CorgiPile, FullShuffle, NoShuffle, Order, Reservoir, Riffle, SlidingWindow
from corgipile.planner.candidates import Setting, candidates
from corgipile.planner.trial import add_predictions, run_trials
from corgipile.quality import deff
from corgipile.tables import Table
from corgipile.tables.formats.arrow.writer import Writer

BATCH, MEMORY, FEATURES, CLASSES, CELLS = 256, "2%", 28, 10, 400
MOST = 1.1  # deff
PART, FINALISTS = 8, 5  # of an epoch, by which a grid is screened; settings that are left then
SIZES = ("16KB", "32KB", "64KB", "128KB", "256KB")
TOLD: dict[str, Order] = {
    **{f"riffle, {size}": Riffle(block=size) for size in ("4KB", "16KB", "64KB")},
    **{f"balanced, {size}": Riffle(block=size, balance="label") for size in ("4KB", "16KB", "64KB")},
    **{f"corgipile, {size}": CorgiPile(block=size) for size in ("4KB", "16KB", "64KB")},
    "no_shuffle": NoShuffle(),
}
TIMED: dict[str, Order] = {
    "auto": Riffle(balance="label", batch=BATCH),
    **{f"riffle, {size}": Riffle(block=size) for size in ("16KB", "64KB", "256KB")},
    "balanced, 1MB": Riffle(block="1MB", balance="label"),
    **{f"corgipile, {size}": CorgiPile(block=size) for size in ("64KB", "256KB")},
    "block_only": BlockOnly(block="256KB"),
    "no_shuffle": NoShuffle(),
    "full by page": FullShuffle(unit="page"),
}


def clustered(work: Path, rows: int) -> Path:
    """Make a label-sorted table whose features lie in clusters of neighbours, ``CELLS`` per class."""
    path = work / f"clustered-{rows}.arrow"
    if path.exists():
        return path
    random = np.random.default_rng(0)
    noise = random.standard_normal((1 << 16, FEATURES), np.float32)
    centers = 1.5 * random.standard_normal((CELLS * CLASSES, FEATURES), np.float32)
    schema = pa.schema([("features", pa.list_(pa.float32(), FEATURES)), ("label", pa.int32())])
    with Writer(path, schema) as file:
        for start in range(0, rows, 1 << 16):
            at = np.arange(start, min(start + (1 << 16), rows))
            x = centers[at * len(centers) // rows] + np.roll(noise, start >> 16, 0)[: len(at)]
            lists = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), FEATURES)
            label = pa.array(at * CLASSES // rows, pa.int32())
            file.write(pa.RecordBatch.from_arrays([lists, label], schema=schema))
    return path


def deff_part(bench: Bench) -> None:
    """Compare deff from stretches of an epoch with deff of the whole epoch: sorted labels, and labels in bursts."""
    rows = bench.pick(12_000_000, 3_000_000)
    bursts = np.repeat(np.random.default_rng(1).integers(0, CLASSES, -(-rows // 3000)), 3000)[:rows]
    for lies, label in (("sorted", np.arange(rows) * CLASSES // rows), ("in bursts of 3,000", bursts)):
        table = cp.open({"x": np.zeros(rows, np.float64), "label": label.astype(np.int64)})
        told = candidates([*TOLD.values()], Setting(table, 2 << 20, BATCH, "label", 1, 0.0, 0))
        off = []
        for one in told:
            with cp.Loader(table, order=one.order, memory="2MB") as loader:
                seen = np.concatenate(list(loader.feeder.rows(0)))
            check(len(seen) == rows, f"{one.title} visited {len(seen)} rows of {rows}")
            found = deff(label[seen], BATCH)
            if found - 1 > 0.2:
                off.append(100 * abs(one.deff / found - 1))
            print(f"         {one.title} of {one.block_rows} rows a block: told {one.deff:.3f}, is {found:.3f}")
        note = f"{len(told)} settings, {len(off)} of deff above 1.2, {rows:,} rows, labels {lies}"
        bench.report(f"deff told, labels {lies}: off, the worst", max(off), "%", "<= 10", note)


def in_pieces(bench: Bench, name: str, cases: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, list[Any]]:
    """Run all cases in turn as `interleave` does; with ``--work`` continue an interrupted run."""
    path = bench.work / f"{name}.jsonl"
    kept = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    known = {(case, number): value for case, number, value in kept}
    times: dict[str, list[Any]] = {case: [] for case in cases}
    with path.open("a") as file:
        for number in range(repeats):
            for case in list(cases) if number % 2 == 0 else reversed(list(cases)):
                if (case, number) not in known:
                    known[case, number] = cases[case]()
                    file.write(f"{json.dumps([case, number, known[case, number]])}\n")
                    file.flush()
                times[case].append(known[case, number])
    return times


def seconds_part(bench: Bench, cold: bool) -> None:
    """Compare predicted and measured seconds of epochs, each predicted and then run, in turn."""
    path = clustered(bench.work, bench.table_rows(9_000_000, 2_000_000))
    table, state = cp.open(path), "cold" if cold else "warm"
    setting = Setting(table, len(table) * 116 // 50, BATCH, "label", 1, 0.4, 0)
    if not cold:
        walk(cp.Loader(table, order="no_shuffle", batch_size=BATCH), len(table))
    found = dict(zip(TIMED, candidates([*TIMED.values()], setting), strict=True))

    def epoch(name: str) -> tuple[float, float]:
        if cold:
            drop(path)
        (one,) = add_predictions(run_trials([found[name]], setting), None, setting, cached=not cold)
        check(one.seconds is not None and (one.cold is not None) == cold, f"the table was not {state} all the time")
        if cold:
            drop(path)
        with cp.Loader(table, order=one.order, memory=MEMORY, batch_size=BATCH) as loader:
            return float(one.seconds or 0), walk(loader, len(table))

    cases = {name: lambda name=name: epoch(name) for name in TIMED}
    off = {}
    for name, pairs in in_pieces(bench, f"seconds-{state}-{len(table)}", cases, bench.repeats).items():
        said, seconds = zip(*pairs, strict=True)
        off[name] = 100 * abs(median(said) / median(seconds) - 1)
        ranges = [f"{median(some):.2f} s ({min(some):.2f}..{max(some):.2f})" for some in (said, seconds)]
        note = f"told {ranges[0]}, took {ranges[1]}"
        bench.report(f"{state} seconds told, {name}: off", off[name], "%", "<= 25", note)
    within = sum(value <= 25 for value in off.values())
    bench.report(f"settings within 25 %, {state}", within, f"of {len(off)}", f">= {len(off)}")


def grid() -> dict[str, Any]:
    """Return 30 settings that a user might try."""
    riffles = {f"riffle, {size}, {by or 'random'}": Riffle(block=size, balance=by)
               for size in SIZES for by in (None, "label", "content")}  # fmt: skip
    piles = {f"corgipile, {size}": CorgiPile(block=size) for size in SIZES}
    fuller = {f"balanced, {size}, 1.5 % of the rows": Riffle(block=size, buffer="1.5%", balance="label")
              for size in SIZES}  # fmt: skip
    others = {"full": FullShuffle(), "full by page": FullShuffle(unit="page"), "no_shuffle": NoShuffle(),
              "sliding_window": SlidingWindow(), "reservoir": Reservoir()}  # fmt: skip
    return {**riffles, **piles, **fuller, **others}


def spreads(rows: Iterator[np.ndarray], label: np.ndarray, sides: np.ndarray) -> tuple[float, float]:
    """Return deff of labels and of feature projections over a whole epoch."""
    seen = np.concatenate(list(rows))
    check(len(seen) >= len(label), f"{len(seen)} rows of {len(label)} were visited")  # by a reservoir some twice
    batches = seen[: len(seen) // BATCH * BATCH].reshape(-1, BATCH)
    means = [sides[part].mean(axis=1, dtype=np.float64) for part in np.array_split(batches, 1 + len(batches) // 256)]
    squares = ((np.concatenate(means) - sides.mean(axis=0, dtype=np.float64)) ** 2).mean(axis=0)
    return deff(label[seen], BATCH), float((BATCH * squares / sides.var(axis=0, dtype=np.float64)).mean())


def columns(table: Table) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels and 8 projections of the features."""
    label, sides = np.empty(len(table), np.int32), np.empty((len(table), 8), np.float32)
    turn = np.random.default_rng(5).standard_normal((FEATURES, 8)).astype(np.float32)
    for start in range(0, len(table), 1 << 16):
        part = table.read(start, min(start + (1 << 16), len(table)), ["features", "label"])
        label[start : start + (1 << 16)] = part.column("label").to_numpy()
        sides[start : start + (1 << 16)] = part.column("features").flatten().to_numpy().reshape(-1, FEATURES) @ turn
    return label, sides


def mixed(bench: Bench, table: Table) -> dict[str, Any]:
    """Report the mixing of order="auto"; return it and the settings that mix as well, over whole epochs."""
    orders = {"auto": "auto", **grid()}
    read = functools.cache(lambda: columns(table))

    def spread(order: Any) -> tuple[float, float]:
        with cp.Loader(table, order=order, memory=MEMORY, batch_size=BATCH) as loader:
            return spreads(loader.feeder.rows(0), *read())

    cases = {name: lambda order=order: spread(order) for name, order in orders.items()}
    told = {name: values for name, (values,) in in_pieces(bench, f"auto-mixed-{len(table)}", cases, 1).items()}
    fit = {name: orders[name] for name, values in told.items() if max(values) <= MOST}
    by_label, by_features = told["auto"]
    note = f"{len(fit) - ('auto' in fit)} of {len(grid())} settings have both at most {MOST}"
    bench.report(f"auto, memory {MEMORY}: deff of labels", by_label, "", f"<= {MOST}", note)
    bench.report(f"auto, memory {MEMORY}: deff of features", by_features, "", f"<= {MOST}", note)
    fit.pop("full", None)  # a read for each row: it takes minutes
    if not fit.keys() - {"auto"}:
        raise Skip("no setting by hand mixes as well within so little memory")
    return {"auto": "auto", **fit}


def auto_part(bench: Bench, cold: bool) -> None:
    """Compare order="auto" with 2 % in memory with the fastest of a grid at equal deff of labels and features.

    The grid is screened by an eighth of an epoch; whole epochs are timed for the best and for auto.
    """
    path = clustered(bench.work, bench.table_rows(36_000_000, 2_000_000))
    table, state = cp.open(path), "cold" if cold else "warm"
    orders = mixed(bench, table)

    def epoch(order: Any, part: int) -> float:
        if cold:
            drop(path)
        start, rows = time.perf_counter(), 0
        with cp.Loader(table, order=order, memory=MEMORY, batch_size=BATCH) as loader:
            for batch in loader:
                rows += len(batch["label"])
                if rows >= len(table) // part:
                    break
        return time.perf_counter() - start

    def timed(what: str, names: Iterable[str], part: int, repeats: int) -> dict[str, list[float]]:
        cases = {name: lambda name=name: epoch(orders[name], part) for name in names}
        return in_pieces(bench, f"auto-{state}-{what}-{len(table)}", cases, repeats)

    if not cold:
        walk(cp.Loader(table, order="no_shuffle", batch_size=BATCH), len(table))
    screened = timed("screened", orders, PART, 2)
    by_time = sorted(screened, key=lambda name: min(screened[name]))
    last = [name for name in by_time if name != "auto"][:FINALISTS]
    times = timed("last", ["auto", *last], 1, bench.few)
    best = min(last, key=lambda name: median(times[name]))
    share = 100 * median(times[best]) / median(times["auto"])
    told = ", ".join(f"{name} {rate(len(table), median(values))}" for name, values in times.items())
    note = f"{told}; auto was number {by_time.index('auto') + 1} of {len(orders)} over an {PART}th of an epoch"
    bench.report(f"auto, {state}: rate of the best of {len(grid())} at deff {MOST}", share, "%", ">= 90", note)


def main(bench: Bench) -> None:
    """Run all parts; with ``--work`` the next run continues an interrupted one."""
    bench.part("deff", deff_part)
    for cold in (True, False):
        bench.part(f"seconds-{'cold' if cold else 'warm'}", functools.partial(seconds_part, cold=cold))
    for cold in (True, False):
        bench.part(f"auto-{'cold' if cold else 'warm'}", functools.partial(auto_part, cold=cold))


if __name__ == "__main__":
    alone("plan", main)
