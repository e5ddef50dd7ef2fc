"""DeviceLoader feeding a CUDA device, with the shuffle buffer there or on the host; against a DataLoader."""

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import Bench, Skip, alone, check, interleave, median, rate, ratio
from data import arrays, numbered
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from corgipile.torch import CorgiPileDataset, DeviceLoader

BATCH, BATCHES, FEATURES, CLASSES, WIDTH = 1024, (512, 4096, 16_384), 256, 10, 1024
STEP_BOUNDS = (1.03, 1.05, 1.15)  # by batch size
MAX_STEPS = 2000  # of an epoch that is timed
THREADS, CHUNK = 8, 16 << 20  # of reading alone
WORKERS = (0, 4, 8)  # of the peer; the fastest counts


def device_batches(loader: DataLoader) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield a DataLoader's pinned batches on the device, copying the next one during computation."""
    side, main = torch.cuda.Stream(), torch.cuda.current_stream()
    before = None
    for batch in loader:
        with torch.cuda.stream(side):
            coming = tuple(batch[name].to("cuda", non_blocking=True) for name in ("features", "label"))
            copied = side.record_event()
        if before is not None:
            yield before
        main.wait_event(copied)
        for tensor in coming:
            tensor.record_stream(main)
        before = coming
    if before is not None:
        yield before


class Mapped(Dataset):
    """Rows of two memory-mapped arrays, one index per batch: the fastest possible map-style dataset."""

    def __init__(self, x: Path, y: Path) -> None:
        self._x, self._y = np.load(x, mmap_mode="r"), np.load(y, mmap_mode="r")

    def __len__(self) -> int:
        return len(self._x)

    def __getitems__(self, rows: list[int]) -> dict[str, Tensor]:
        """Return a batch."""
        return {"features": torch.from_numpy(self._x[rows]), "label": torch.from_numpy(self._y[rows])}


def whole(batch: Any) -> Any:
    """Return a batch unchanged: nothing to collate."""
    return batch


class Steps:
    """Updates of a model with two layers."""

    def __init__(self, width: int) -> None:
        layers = nn.Linear(FEATURES, width), nn.ReLU(), nn.Linear(width, CLASSES)
        self._model = nn.Sequential(*layers).to("cuda", torch.bfloat16)
        self._optimizer = torch.optim.SGD(self._model.parameters(), 1e-12)  # the features grow with the row number

    def step(self, features: Tensor, label: Tensor) -> None:
        """Take one step."""
        loss = nn.functional.cross_entropy(self._model(features.bfloat16()), label.long() % CLASSES)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()


def timed(work: Callable[[], None]) -> float:
    """Return seconds, including the device's work."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def raw_read(path: Path) -> float:
    """Return the seconds that threads take to read a file into page-locked memory."""
    size, targets = (
        path.stat().st_size,
        [torch.empty(CHUNK, dtype=torch.uint8, pin_memory=True).numpy() for _ in range(THREADS)],
    )
    starts, descriptor = iter(range(0, size, CHUNK)), os.open(path, os.O_RDONLY)

    def read(target: np.ndarray) -> None:
        for start in starts:  # a range's iterator is safe to share
            os.preadv(descriptor, [target], start)

    with ThreadPoolExecutor(THREADS) as pool:
        seconds = timed(lambda: list(pool.map(read, targets)))
    os.close(descriptor)
    return seconds


def table(bench: Bench) -> tuple[Path, int]:
    """Return a table of rows of 1 KB in the page cache, and its number of rows."""
    if not torch.cuda.is_available():
        raise Skip("no CUDA device here")
    rows = bench.table_rows(4_000_000, 400_000)
    arrow, _ = numbered(bench.work, rows, 4 * (FEATURES + 1), stream=False)
    return arrow, rows


def loaders(arrow: Path, batch: int) -> dict[str, DeviceLoader]:
    """Return loaders with the shuffle buffer on the device and on the host."""
    sizes = {"on the device": None, "on the host": 0}
    return {name: DeviceLoader(CorgiPileDataset(arrow, batch_size=batch), device_memory=m) for name, m in sizes.items()}


def rate_part(bench: Bench) -> None:
    """Compare an epoch without work with reading alone; count the rows."""
    arrow, rows = table(bench)
    cases: dict[str, Callable[[], float]] = {"pread": lambda: raw_read(arrow)}
    for batch in BATCHES[1:]:
        for place, loader in loaders(arrow, batch).items():

            def load(loader: DeviceLoader = loader) -> None:
                total = sum(batch["label"].sum() for batch in loader)  # int64
                check(int(total) == rows * (rows - 1) // 2, "the device has other rows")

            cases[f"{place}, {batch:,}"] = lambda load=load: timed(load)
    times = interleave(cases, bench.few)
    for name in list(cases)[1:]:
        value, spread = ratio(times, name, "pread")
        target = ">= 0.85" if "device" in name else ""
        note = f"{rate(rows, median(times[name]))} ({spread})"
        bench.report(f"loading, buffer and batch {name} / pread by {THREADS} threads", 1 / value, "x", target, note)


def training_part(bench: Bench) -> None:
    """Compare training steps with those on batches that lie on the device."""
    arrow, rows = table(bench)
    for batch, bound in zip(BATCHES, STEP_BOUNDS, strict=True):
        steps, count = Steps(WIDTH), min(rows // batch, MAX_STEPS)
        still = torch.zeros(batch, FEATURES, device="cuda"), torch.zeros(batch, dtype=torch.int32, device="cuda")

        def compute(count: int = count, steps: Steps = steps, still: tuple[Tensor, Tensor] = still) -> None:
            for _ in range(count):
                steps.step(*still)

        cases = {"still": compute}
        for place, loader in loaders(arrow, batch).items():

            def both(loader: DeviceLoader = loader, count: int = count, steps: Steps = steps) -> None:
                for batch in islice(loader, count):
                    steps.step(batch["features"], batch["label"])

            cases[place] = both
        times = interleave({name: lambda work=work: timed(work) for name, work in cases.items()}, bench.few)
        for place in list(cases)[1:]:
            value, spread = ratio(times, place, "still")
            target = f"<= {bound}" if "device" in place else ""
            ours, resident = (rate(count * batch, median(times[name])) for name in (place, "still"))
            note = f"{ours}, resident {resident} ({spread})"
            bench.report(f"step, buffer {place}, batch {batch:,} / step on resident rows", value, "x", target, note)


def peer_part(bench: Bench) -> None:
    """Compare an epoch of the small model fed by us, and by a DataLoader that shuffles a map-style dataset."""
    if not torch.cuda.is_available():
        raise Skip("no CUDA device here")
    rows = bench.table_rows(1_000_000, 200_000)
    arrow, _ = numbered(bench.work, rows, 4 * (FEATURES + 1))
    steps, x, y = Steps(WIDTH), *arrays(arrow)

    def run(batches: Callable[[], Iterator[tuple[Tensor, Tensor]]]) -> float:
        def epoch() -> None:
            total = torch.zeros((), dtype=torch.int64, device="cuda")
            for features, label in batches():
                steps.step(features, label)
                total += label.sum()
            check(int(total) == rows * (rows - 1) // 2, "the device has other rows")

        return timed(epoch)

    ours = DeviceLoader(CorgiPileDataset(arrow, batch_size=BATCH), "cuda")
    cases = {"ours": lambda: run(lambda: ((batch["features"], batch["label"]) for batch in ours))}
    for workers in WORKERS:
        loader = DataLoader(
            Mapped(x, y),
            BATCH,
            shuffle=True,
            num_workers=workers,
            persistent_workers=workers > 0,
            collate_fn=whole,
            pin_memory=True,
        )
        cases[f"{workers} workers"] = lambda loader=loader: run(partial(device_batches, loader))
    times = interleave(cases, bench.few)
    theirs = min((name for name in times if name != "ours"), key=lambda name: median(times[name]))
    value, spread = ratio(times, theirs, "ours")
    note = ", ".join(f"{name} {rate(rows, median(seconds))}" for name, seconds in times.items()) + f" ({spread})"
    bench.report(
        "epoch on the GPU, DataLoader(__getitems__ of a memmap, shuffle=True) / ours", value, "x", ">= 1", note
    )


def main(bench: Bench) -> None:
    """Run all parts."""
    bench.part("rate", rate_part)
    bench.part("training", training_part)
    bench.part("peer", peer_part)


if __name__ == "__main__":
    alone("torch_gpu", main)
