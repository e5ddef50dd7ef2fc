"""DeviceLoader feeding a CUDA device, with rows gathered, pinned and copied meanwhile; against a DataLoader."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import Bench, Skip, alone, check, interleave, median, rate, ratio
from data import arrays, numbered
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from corgipile.torch import CorgiPileDataset, DeviceLoader

BATCH, FEATURES, CLASSES = 1024, 256, 10
WIDTHS = {"a small model": 512, "a large model": 8192}
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
        self._model = nn.Sequential(nn.Linear(FEATURES, width), nn.ReLU(), nn.Linear(width, CLASSES)).cuda()
        self._optimizer = torch.optim.SGD(self._model.parameters(), 1e-12)  # the features grow with the row number

    def step(self, features: Tensor, label: Tensor) -> None:
        """Take one step."""
        loss = nn.functional.cross_entropy(self._model(features), label.long() % CLASSES)
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


def overlap_part(bench: Bench) -> None:
    """Compare loading, computing, and both, which together should take as long as the slower one."""
    if not torch.cuda.is_available():
        raise Skip("no CUDA device here")
    rows = bench.table_rows(1_000_000, 200_000)
    arrow, _ = numbered(bench.work, rows, 4 * (FEATURES + 1))
    loader = DeviceLoader(CorgiPileDataset(arrow, batch_size=BATCH), "cuda")
    for title, width in WIDTHS.items():
        steps = Steps(width)
        still = torch.zeros(BATCH, FEATURES, device="cuda"), torch.zeros(BATCH, dtype=torch.int32, device="cuda")

        def load() -> None:
            total = sum(batch["label"].sum() for batch in loader)  # int64
            check(int(total) == rows * (rows - 1) // 2, "the device has other rows")

        def compute(steps: Steps = steps, still: tuple[Tensor, Tensor] = still) -> None:
            for _ in range(len(loader)):
                steps.step(*still)

        def both(steps: Steps = steps) -> None:
            for batch in loader:
                steps.step(batch["features"], batch["label"])

        cases = {"load": load, "compute": compute, "both": both}
        times = interleave({name: lambda work=work: timed(work) for name, work in cases.items()}, bench.repeats)
        middle = {name: median(seconds) for name, seconds in times.items()}
        value = middle["both"] / max(middle["load"], middle["compute"])
        note = ", ".join(f"{name} {rate(rows, seconds)}" for name, seconds in middle.items())
        bench.report(f"epoch on the GPU / the slower of loading and computing, {title}", value, "x", "<= 1.2", note)


def peer_part(bench: Bench) -> None:
    """Compare an epoch of the small model fed by us, and by a DataLoader that shuffles a map-style dataset."""
    if not torch.cuda.is_available():
        raise Skip("no CUDA device here")
    rows = bench.table_rows(1_000_000, 200_000)
    arrow, _ = numbered(bench.work, rows, 4 * (FEATURES + 1))
    steps, x, y = Steps(WIDTHS["a small model"]), *arrays(arrow)

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
    bench.part("overlap", overlap_part)
    bench.part("peer", peer_part)


if __name__ == "__main__":
    alone("torch_gpu", main)
