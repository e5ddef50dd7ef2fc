"""CorgiPileDataset in a DataLoader, against the loaders of PyTorch, Hugging Face, Grain and MosaicML, warm and cold."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import HERE, Bench, Peer, alone, check, interleave, median, rate, ratio
from data import arrays, hollow, numbered
from pagecache import drop
from torch.utils.data import DataLoader

import corgipile as cp
from corgipile import quality
from corgipile.torch import CorgiPileDataset

BATCH, FEATURES, CLASSES = 256, 256, 10
ROW_BYTES = 4 * (FEATURES + 1)
MEMORY = "64MB"
ORDERS = {"Riffle": "riffle", "balanced Riffle": cp.orders.Riffle(balance="label")}
NOISE = 1.02  # deff of some thousand batches is known to one or two percent
FAR = 4  # the first rows of a cold table are taken from one so many times larger, which read-ahead fills less soon


@dataclass(frozen=True)
class Rival:
    """Another loader over the same rows.

    Attributes:
        title: Printed name.
        job: Its job in the peers' environment.
        warm, cold: Target speed-ups.
        most: Rows of a timed run; None for all. A slow loader is timed on some, its start separately.
        converted: Whether it reads files of its own format, which are slow to write and so stay small.
        strict: Whether the targets apply only to orders that mix at least as well.
        settings: Arguments of its job besides the files.
    """

    title: str
    job: str
    warm: str
    cold: str
    most: int | None = None
    strict: bool = True
    converted: bool = False
    environment: str = ".venv-peers"
    settings: tuple[tuple[str, Any], ...] = ()


RIVALS = (
    Rival("DataLoader(map-style, shuffle=True)", "map", ">= 10", ">= 20", most=100_000, strict=False),
    Rival("DataLoader(__getitems__ of a memmap, shuffle=True)", "getitems", ">= 2", ">= 8", strict=False),
    Rival("datasets 5.2.0", "hf_iterable", ">= 10", ">= 10", settings=(("buffer", 10_000), ("shards", 16))),
    Rival("datasets 5.2.0, with our memory", "hf_iterable", "", "", settings=(("buffer", 65_000), ("shards", 16))),
    Rival("Grain, ArrayRecord", "grain", ">= 10", ">= 10", most=200_000, converted=True),
    Rival("MosaicML py1e", "mosaicml", ">= 10", ">= 10", most=30_000, converted=True, environment=".venv-mosaicml"),
)


@dataclass(frozen=True)
class Files:
    """One table in each format: 256 float32 that encode the row number, as does the label."""

    rows: int
    arrow: Path
    stream: Path
    x: Path
    y: Path
    work: Path

    @classmethod
    def make(cls, bench: Bench, times: int = 1) -> "Files":
        """Write the table unless it exists."""
        rows = times * bench.table_rows(1_000_000, 200_000)
        arrow, stream = numbered(bench.work, rows, ROW_BYTES)
        return cls(rows, arrow, stream, *arrays(arrow), bench.work)

    def of(self, rival: Rival) -> tuple[dict[str, Any], Callable[[], list[Path]]]:
        """Return the settings of a peer's job, and the key of the files it reads."""
        settings = {**dict(rival.settings), "batch": BATCH}
        if rival.job == "hf_iterable":
            return {**settings, "stream": str(self.stream)}, lambda: [self.stream]
        settings |= {"x": str(self.x), "y": str(self.y)}
        if rival.job in ("map", "getitems"):
            return settings, lambda: [self.x, self.y]
        folder = self.work / f"{rival.job}-{self.rows}"
        return {**settings, "folder": str(folder)}, lambda: [path for path in folder.rglob("*") if path.is_file()]

    def mixing(self, numbers: np.ndarray) -> float:
        """Measure deff of visited rows as if the table were sorted by ten classes; no row may come twice."""
        check(len(np.unique(numbers)) == len(numbers), "a row came twice")
        return quality.measure(numbers, np.arange(self.rows) * CLASSES // self.rows, BATCH).deff


def loaded(files: Files, order: Any, workers: int = 0) -> DataLoader:
    """Open the table and wrap it in a DataLoader."""
    data = CorgiPileDataset(files.arrow, order=order, memory=MEMORY, batch_size=BATCH)
    return DataLoader(data, batch_size=None, num_workers=workers, persistent_workers=workers > 0)


def walk(loader: DataLoader, rows: int, limit: int | None = None) -> float:
    """Iterate, up to a limit; return the seconds per row."""
    seen, start = 0, time.perf_counter()
    for batch in loader:
        seen += len(batch["label"])
        if limit and seen >= limit:
            break
    seconds = time.perf_counter() - start
    check(seen == rows or bool(limit), f"{seen} rows of {rows} came")
    return seconds / seen


def visited(loader: DataLoader, rows: int) -> np.ndarray:
    """Return the row numbers of an epoch, after checking that each row came once, and whole."""
    seen = []
    for batch in loader:
        check(bool((batch["features"] == batch["label"][:, None]).all()), "labels came with other rows")
        seen.append(batch["label"].clone())
    numbers = torch.cat(seen).numpy()
    check(quality.coverage(numbers, rows).exact, "not every row came exactly once")
    return numbers


def rival_part(bench: Bench, rival: Rival) -> None:
    """Time one rival and our orders, round after round."""
    files = Files.make(bench)
    settings, paths = files.of(rival)
    loaders = {name: loaded(files, order) for name, order in ORDERS.items()}
    deffs = {name: files.mixing(visited(loader, files.rows)) for name, loader in loaders.items()}
    limit = rival.most and min(rival.most, files.rows)
    with Peer(rival.job, HERE / rival.environment, **settings) as peer:
        out = bench.work / "numbers.npy"
        peer.ask(labels=str(out), limit=limit)
        deffs["peer"] = files.mixing(np.load(out))

        def warm() -> float:
            answer = peer.ask(seed=1, limit=limit)
            check(bool(limit) or answer["rows"] == files.rows, f"the peer saw {answer['rows']} rows of {files.rows}")
            return (answer["seconds"] - answer["first"]) / (answer["rows"] - answer["head"])

        times = interleave({"peer": warm, **_cases(loaders, files.rows)}, bench.few)
        _report(bench, rival, "warm", rival.warm, times, deffs)
        cold = _cold_cases(files, limit) | {"peer": lambda: _cold_peer(peer, paths(), limit)}
        times = interleave(cold, bench.few, warm=False)
        some = f"first {limit:,}" if limit else "all"
        target = rival.cold if rival.converted else ""
        _report(bench, rival, f"cold, {some} of {files.rows:,} rows", target, times, deffs)
    if not rival.converted:
        _far_part(bench, rival, deffs)


def _far_part(bench: Bench, rival: Rival, deffs: dict[str, float]) -> None:
    """Time the first rows of a larger cold table; its mixing was measured on the smaller one."""
    files, limit = Files.make(bench, FAR), bench.table_rows(1_000_000, 200_000) // 10
    settings, paths = files.of(rival)
    with Peer(rival.job, HERE / rival.environment, **settings) as peer:
        cold = _cold_cases(files, limit) | {"peer": lambda: _cold_peer(peer, paths(), limit)}
        times = interleave(cold, bench.few, warm=False)
    _report(bench, rival, f"cold, first {limit:,} of {files.rows:,} rows", rival.cold, times, deffs)


def _cases(loaders: dict[str, DataLoader], rows: int) -> dict[str, Callable[[], float]]:
    return {name: lambda loader=loader: walk(loader, rows) for name, loader in loaders.items()}


def _cold_cases(files: Files, limit: int | None) -> dict[str, Callable[[], float]]:
    def run(order: Any) -> float:
        drop(files.arrow)
        start = time.perf_counter()
        loader = loaded(files, order)  # opening and, for the balanced order, a first look at the labels are in the time
        opening = time.perf_counter() - start
        return opening / (limit or files.rows) + walk(loader, files.rows, limit)

    return {name: lambda order=order: run(order) for name, order in ORDERS.items()}


def _cold_peer(peer: Peer, paths: list[Path], limit: int | None) -> float:
    drop(*paths)
    answer = peer.ask(seed=2, limit=limit)
    return answer["seconds"] / answer["rows"]


def _report(bench: Bench, rival: Rival, state: str, target: str, times: dict, deffs: dict[str, float]) -> None:
    """Print a row for each of our orders."""
    for name in ORDERS:
        value, spread = ratio(times, "peer", name)
        note = (
            f"theirs {rate(1, median(times['peer']))}, deff {deffs['peer']:.2f}; "
            f"ours {rate(1, median(times[name]))}, deff {deffs[name]:.2f} ({spread})"
        )
        fair = not rival.strict or deffs[name] <= NOISE * deffs["peer"]
        bench.report(f"{name} / {rival.title}, {state}", value, "x", target if fair else "", note)


def order_part(bench: Bench) -> None:
    """Compare Riffle with no shuffle through the same dataset, without workers and with two."""
    files = Files.make(bench)
    for workers in (0, 2):
        loaders = {name: loaded(files, name, workers) for name in ("riffle", "no_shuffle")}
        for loader in loaders.values():
            visited(loader, files.rows)
        warm = _cases(loaders, files.rows)

        def cold(name: str, warm: dict[str, Callable[[], float]] = warm) -> float:
            drop(files.arrow)
            return warm[name]()

        for state, cases in {"warm": warm, "cold": {name: lambda name=name: cold(name) for name in loaders}}.items():
            times = interleave(cases, bench.repeats if state == "warm" else bench.few, warm=state == "warm")
            value, spread = ratio(times, "no_shuffle", "riffle")
            rates = ", ".join(f"{name} {rate(1, median(times[name]))}" for name in times)
            bench.report(
                f"Riffle / No Shuffle, {state}, {workers} workers", value, "x", ">= 0.95", f"{rates} ({spread})"
            )


def open_part(bench: Bench) -> None:
    """Time the opening of a large Arrow file: with our writer's row counts, or reading each batch's header."""
    size = bench.pick(10_000_000_000, 1_000_000_000)
    for noted, title in ((True, "as corgipile writes it"), (False, "without the noted rows")):
        path = hollow(bench.work / "hollow.arrow", size, 1024, 256, noted=noted)
        try:
            drop(path)
            cold = _open(path)
            warm = median([_open(path) for _ in range(max(5, bench.repeats))])
        finally:
            path.unlink()
        target = "<= 50" if noted else ""
        for state, seconds in (("warm", warm), ("cold", cold)):
            bench.report(f"open(), {size / 1e9:.0f} GB Arrow {title}, {state}", 1000 * seconds, "ms", target)


def _open(path: Path) -> float:
    start = time.perf_counter()
    table = cp.open(path)
    seconds = time.perf_counter() - start
    last = table.read(len(table) - 1, len(table))
    check(last.num_rows == 1, "the last row cannot be read")
    return seconds


def main(bench: Bench) -> None:
    """Run all parts."""
    for rival in RIVALS:
        bench.part(f"peer-{rival.job}", lambda bench, rival=rival: rival_part(bench, rival))
    bench.part("orders", order_part)
    bench.part("open", open_part)


if __name__ == "__main__":
    alone("torch_loader", main)
