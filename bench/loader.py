"""Loader against PyTorch, scDataset and Hugging Face datasets: rows per second, warm and cold."""

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from common import Bench, Peer, alone, check, interleave, median, rate, ratio, walk
from data import classes, numbered
from pagecache import drop

import corgipile as cp
from corgipile import quality

BATCH, BLOCK, FETCH = 256, 64, 64
BUDGETS = {"default memory": (None, None), "scDataset's memory": (FETCH * BATCH * 520, BLOCK)}  # bytes, rows of a block


def label_deff(loader: cp.Loader, labels: np.ndarray) -> float:
    """Measure deff of an epoch, after checking that labels match their rows and that all rows came."""
    seen = []
    for batch in loader:
        check(bool((batch["features"][:, 0] == batch["label"]).all()), "labels came with other rows")
        seen.append(batch["label"].copy())
    visited = np.concatenate(seen)
    check(bool((np.bincount(visited) == np.bincount(labels)).all()), "the labels are not those of the table")
    return quality.deff(visited, BATCH)


def peer_deff(peer: Peer, out: Path) -> float:
    """Measure deff of a peer's epoch."""
    peer.ask(labels=str(out))
    return quality.deff(np.load(out), BATCH)


def open_tables(x: Path, y: Path, arrow: Path) -> dict[str, cp.tables.Table]:
    """Open the same rows in two formats."""
    return {"npy": cp.open(x, label=y), "arrow": cp.open(arrow)}


def torch_part(bench: Bench, features: int) -> None:
    """Compare DataLoader(TensorDataset) in memory with Riffle on a warm file."""
    rows = bench.pick(400_000, 200_000)
    x, y, arrow = classes(bench.work, rows, features)
    with Peer("torch", x=str(x), y=str(y), batch=BATCH) as peer, ExitStack() as stack:
        loaders = {
            form: stack.enter_context(cp.Loader(cp.open(arrow), batch_size=BATCH, format=form))
            for form in ("torch", "numpy")
        }
        theirs = peer_deff(peer, bench.work / "labels.npy")
        found = label_deff(loaders["numpy"], np.load(y))
        cases = {name: lambda loader=loader: walk(loader, rows) for name, loader in loaders.items()}
        times = interleave({"peer": lambda: peer.seconds(rows), **cases}, bench.repeats)
        for form in loaders:
            value, spread = ratio(times, "peer", form)
            note = (
                f"DataLoader {rate(rows, median(times['peer']))}, deff {theirs:.2f}; "
                f"Riffle {rate(rows, median(times[form]))}, deff {found:.2f} ({spread})"
            )
            measure = f"Loader (Riffle, {form}, {features} float32) / DataLoader(TensorDataset)"
            bench.report(measure, value, "x", ">= 40", note)


def scdataset_part(bench: Bench) -> None:
    """Compare scDataset on memory-mapped arrays with Riffle on the same warm files."""
    rows = bench.pick(400_000, 200_000)
    x, y, arrow = classes(bench.work, rows, 128)
    with Peer("scdataset", **_scdataset(x, y)) as peer, ExitStack() as stack:
        loaders = {
            (form, text): stack.enter_context(_budgeted(table, text))
            for form, table in open_tables(x, y, arrow).items()
            for text in BUDGETS
        }
        theirs = peer_deff(peer, bench.work / "labels.npy")
        deffs = {name: label_deff(loader, np.load(y)) for name, loader in loaders.items()}
        cases = {name: lambda loader=loader: walk(loader, rows) for name, loader in loaders.items()}
        times = interleave({"peer": lambda: peer.seconds(rows), **cases}, bench.repeats)
        _scdataset_rows(bench, "warm", ">= 2", times, {"peer": theirs, **deffs}, rows)


def scdataset_cold_part(bench: Bench) -> None:
    """Compare on a cold file: the first rows of a large table, since read-ahead soon caches a small one."""
    rows, wanted = bench.pick(4_000_000, 1_500_000), bench.pick(200_000, 75_000)
    x, y, arrow = classes(bench.work, rows, 128)
    with Peer("scdataset", **_scdataset(x, y)) as peer:
        theirs = peer_deff(peer, bench.work / "labels.npy")

        def peer_cold(limit: int) -> float:
            drop(x, y)
            return peer.seconds(limit=limit) / limit

        def cold(table: cp.tables.Table, text: str, limit: int) -> float:
            drop(x, y, arrow)
            start, seen = time.perf_counter(), 0
            with _budgeted(table, text) as loader:
                for batch in loader:
                    seen += len(batch["label"])
                    if seen >= limit:
                        break
                return (time.perf_counter() - start) / seen

        names = [(form, text) for form in ("npy", "arrow") for text in BUDGETS]
        tables, deffs = open_tables(x, y, arrow), {"peer": theirs}
        for form, text in names:
            with _budgeted(tables[form], text) as loader:
                deffs[form, text] = label_deff(loader, np.load(y))
        for limit, target in ((wanted, ">= 8"), (rows, "")):
            cases = {name: lambda n=name, c=limit: cold(tables[n[0]], n[1], c) for name in names}
            times = interleave({"peer": lambda c=limit: peer_cold(c), **cases}, bench.few, warm=False)
            state = f"cold, {limit:,} of {rows:,} rows"
            _scdataset_rows(bench, state, target, times, deffs, 1)


def _scdataset(x: Path, y: Path) -> dict[str, Any]:
    return {"x": str(x), "y": str(y), "batch": BATCH, "block": BLOCK, "fetch": FETCH}


def _budgeted(table: cp.tables.Table, text: str) -> cp.Loader:
    return cp.Loader(table, batch_size=BATCH, order=cp.orders.Riffle(block=BUDGETS[text][1]), memory=BUDGETS[text][0])


def _scdataset_rows(bench: Bench, state: str, target: str, times: dict, deffs: dict[Any, float], rows: int) -> None:
    """Print a row for each table and budget; the target applies to orders that mix at least as well."""
    for name in list(times)[1:]:
        value, spread = ratio(times, "peer", name)
        note = (
            f"scDataset {rate(rows, median(times['peer']))}, deff {deffs['peer']:.2f}; "
            f"Riffle {rate(rows, median(times[name]))}, deff {deffs[name]:.2f} ({spread})"
        )
        fair = target if deffs[name] <= deffs["peer"] else ""
        bench.report(f"Loader (Riffle, {', '.join(name)}) / scDataset, {state}", value, "x", fair, note)


def rows_part(bench: Bench) -> None:
    """Compare single rows of 1 KB in random order from a cold file with Hugging Face random access."""
    rows = bench.pick(2_000_000, 500_000)
    arrow, stream = numbered(bench.work, rows)
    order = cp.orders.FullShuffle(unit="row")
    wanted, few = bench.pick(65_536, 32_768), 1000

    def ours(epoch: int, keep: list[np.ndarray]) -> float:
        drop(arrow, stream)
        start, seen = time.perf_counter(), 0
        with cp.Loader(cp.open(arrow), batch_size=BATCH, order=order, seed=5) as loader:
            loader.set_epoch(epoch)
            for batch in loader:
                keep.append(batch["label"].copy())
                seen += len(batch["label"])
                if seen >= wanted:
                    seconds = time.perf_counter() - start
                    break
        return seconds / seen * rows

    def theirs(peer: Peer, numbers: np.ndarray) -> float:
        np.save(bench.work / "numbers.npy", numbers)
        drop(arrow, stream)
        answer = peer.ask(numbers=str(bench.work / "numbers.npy"))
        check(answer["sum"] == int(numbers.sum()), "Hugging Face datasets gave other rows")
        return answer["seconds"] / answer["rows"] * rows

    times: dict[str, list[float]] = {"ours": [], "hf": [], "hf many": []}
    with Peer("hf", path=str(stream), column="label") as peer:
        for epoch in range(bench.few):
            keep: list[np.ndarray] = []
            times["ours"].append(ours(epoch, keep))
            numbers = np.concatenate(keep)
            check(len(np.unique(numbers)) == len(numbers), "a row came twice")
            times["hf"].append(theirs(peer, numbers[:few]))
            times["hf many"].append(theirs(peer, numbers[:wanted]))
    for name, count, target in (("hf", few, ">= 50"), ("hf many", wanted, "")):
        value, spread = ratio(times, name, "ours")
        note = (
            f"datasets {rate(rows, median(times[name]))} over {count:,} rows, "
            f"ours {rate(rows, median(times['ours']))} over {wanted:,} ({spread})"
        )
        measure = f"FullShuffle by row, 1 KB rows, cold / HF datasets, {count:,} rows of {rows:,}"
        bench.report(measure, value, "x", target, note)


def main(bench: Bench) -> None:
    """Run all parts."""
    for features in (28, 128):
        bench.part(f"torch-{features}", lambda bench, features=features: torch_part(bench, features))
    bench.part("scdataset", scdataset_part)
    bench.part("cold", scdataset_cold_part)
    bench.part("rows", rows_part)


if __name__ == "__main__":
    alone("loader", main)
