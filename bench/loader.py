"""Loader against PyTorch, scDataset and Hugging Face datasets: rows per second, warm and cold."""

import time
from pathlib import Path

import numpy as np
from common import Bench, Peer, Skip, alone, check, interleave, median, rate, ratio
from data import classes, numbered
from pagecache import drop

import corgipile as cp
from corgipile import quality

BATCH, BLOCK, FETCH = 256, 64, 64


def walk(loader: cp.Loader, rows: int) -> float:
    """Iterate over one epoch; return its seconds."""
    seen, start = 0, time.perf_counter()
    for batch in loader:
        seen += len(batch["label"])
    seconds = time.perf_counter() - start
    check(seen == rows, f"{seen} rows of {rows} came")
    return seconds


def label_deff(loader: cp.Loader, labels: np.ndarray) -> float:
    """Measure deff of an epoch, after checking that labels belong to their rows and that all came."""
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


def torch_part(bench: Bench) -> None:
    """Rows in memory behind DataLoader(TensorDataset), against Riffle from a warm file."""
    rows = bench.pick(400_000, 200_000)
    x, y, arrow = classes(bench.work, rows, 128)
    with Peer("torch", x=str(x), y=str(y), batch=BATCH) as peer, cp.Loader(cp.open(arrow), BATCH) as loader:
        ours = cp.Loader(cp.open(arrow), BATCH, format="torch")
        cases = {
            "torch": lambda: peer.seconds(rows),
            "numpy": lambda: walk(loader, rows),
            "tensors": lambda: walk(ours, rows),
        }
        times = interleave(cases, bench.repeats)
        shuffled = peer_deff(peer, bench.work / "labels.npy")
        note = f"DataLoader {rate(rows, median(times['torch']))}, deff {shuffled:.2f}; "
        for name, target in (("tensors", ">= 40"), ("numpy", "")):
            value, spread = ratio(times, "torch", name)
            found = label_deff(loader if name == "numpy" else _plain(arrow), np.load(y))
            own = f"Riffle {rate(rows, median(times[name]))}, deff {found:.2f} ({spread})"
            bench.report(f"Loader (Riffle, B=256, {name}) / torch DataLoader", value, "x", target, note + own)
        ours.close()


def _plain(arrow: Path) -> cp.Loader:
    return cp.Loader(cp.open(arrow), BATCH)


def scdataset_part(bench: Bench) -> None:
    """ScDataset on memory-mapped arrays, against Riffle on the same files; warm, then cold."""
    rows = bench.pick(1_000_000, 200_000)
    x, y, arrow = classes(bench.work, rows, 128)
    budgets = {"memory of scDataset's fetch": f"{FETCH * BATCH * 520}B", "default memory": None}
    tables = open_tables(x, y, arrow)
    with Peer("scdataset", x=str(x), y=str(y), batch=BATCH, block=BLOCK, fetch=FETCH) as peer:
        theirs = peer_deff(peer, bench.work / "labels.npy")
        loaders = {
            (form, text): cp.Loader(table, BATCH, order=_order(text), memory=memory)
            for form, table in tables.items()
            for text, memory in budgets.items()
        }
        deffs = {name: label_deff(loader, np.load(y)) for name, loader in loaders.items()}
        warm = {name: lambda loader=loader: walk(loader, rows) for name, loader in loaders.items()}
        _scdataset_rows(bench, "warm", 2, {"peer": lambda: peer.seconds(rows), **warm}, deffs, theirs, rows)

        def cold(table: cp.tables.Table, memory: str | None, text: str) -> float:
            drop(x, y, arrow)
            start = time.perf_counter()
            with cp.Loader(table, BATCH, order=_order(text), memory=memory) as loader:
                opening = time.perf_counter() - start
                return opening + walk(loader, rows)

        def peer_cold() -> float:
            drop(x, y, arrow)
            return peer.seconds(rows)

        chilled = {
            (form, text): lambda t=table, m=memory, n=text: cold(t, m, n)
            for form, table in tables.items()
            for text, memory in budgets.items()
        }
        _scdataset_rows(bench, "cold", 8, {"peer": peer_cold, **chilled}, deffs, theirs, rows)
        for loader in loaders.values():
            loader.close()


def _order(text: str) -> cp.orders.Riffle:
    """With little memory, take blocks as small as scDataset's, so that as many are mixed."""
    return cp.orders.Riffle() if text == "default memory" else cp.orders.Riffle(block=BLOCK)


def _scdataset_rows(
    bench: Bench, state: str, target: float, cases: dict, deffs: dict, theirs: float, rows: int
) -> None:
    times = interleave(cases, max(3, bench.repeats // (2 if state == "cold" else 1)), warm=state == "warm")
    for (form, text), found in deffs.items():
        value, spread = ratio(times, "peer", (form, text))
        note = (
            f"scDataset {rate(rows, median(times['peer']))}, deff {theirs:.2f}; "
            f"Riffle {rate(rows, median(times[form, text]))}, deff {found:.2f} ({spread})"
        )
        fair = f">= {target}" if found <= theirs else ""
        bench.report(f"Loader (Riffle, {form}, {text}) / scDataset, {state}", value, "x", fair, note)


def rows_part(bench: Bench) -> None:
    """Single rows of 1 KB in random order from a cold file, against Hugging Face random access."""
    rows = bench.pick(3_000_000, 500_000)
    arrow, stream = numbered(bench.work, rows)
    order = cp.orders.FullShuffle(unit="row")
    wanted, few = bench.pick(65_536, 32_768), 1000

    def ours(epoch: int, keep: list[np.ndarray]) -> float:
        drop(arrow, stream)
        start, seen = time.perf_counter(), 0
        with cp.Loader(cp.open(arrow), BATCH, order=order, seed=5) as loader:
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
        for epoch in range(max(3, bench.repeats // 2)):
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
    bench.part("torch", torch_part)
    bench.part("scdataset", scdataset_part)
    bench.part("rows", rows_part)


if __name__ == "__main__":
    alone("loader", main)
