"""CorgiPileDataset feeding a CUDA device: pinned copies on a stream of their own, under the computation."""

import time
from collections.abc import Callable, Iterator

import torch
from common import Bench, Skip, alone, check, interleave, median, rate
from data import numbered
from torch import Tensor, nn
from torch.utils.data import DataLoader

from corgipile.torch import CorgiPileDataset

BATCH, FEATURES, CLASSES = 1024, 256, 10
WIDTHS = {"a small model": 512, "a large model": 8192}


def device_batches(loader: DataLoader) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches on the device, the next of which is copied while one is computed with."""
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


class Steps:
    """Updates of a model of two layers."""

    def __init__(self, width: int) -> None:
        self._model = nn.Sequential(nn.Linear(FEATURES, width), nn.ReLU(), nn.Linear(width, CLASSES)).cuda()
        self._optimizer = torch.optim.SGD(self._model.parameters(), 1e-12)  # the features grow with the row number

    def step(self, features: Tensor, label: Tensor) -> None:
        """Take one."""
        loss = nn.functional.cross_entropy(self._model(features), label.long() % CLASSES)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()


def timed(work: Callable[[], None]) -> float:
    """Return seconds, the device's work included."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def overlap_part(bench: Bench) -> None:
    """Loading alone, computing alone, and both: together they should take as long as the slower one."""
    if not torch.cuda.is_available():
        raise Skip("no CUDA device here")
    rows = bench.table_rows(1_000_000, 200_000)
    arrow, _ = numbered(bench.work, rows, 4 * (FEATURES + 1))
    data = CorgiPileDataset(arrow, batch_size=BATCH)
    loader = DataLoader(data, batch_size=None, pin_memory=True)
    for title, width in WIDTHS.items():
        steps = Steps(width)
        still = torch.zeros(BATCH, FEATURES, device="cuda"), torch.zeros(BATCH, dtype=torch.int32, device="cuda")

        def load() -> None:
            total = sum(label.sum() for _, label in device_batches(loader))  # int64
            check(int(total) == rows * (rows - 1) // 2, "the device has other rows")

        def compute(steps: Steps = steps, still: tuple[Tensor, Tensor] = still) -> None:
            for _ in range(len(loader)):
                steps.step(*still)

        def both(steps: Steps = steps) -> None:
            for features, label in device_batches(loader):
                steps.step(features, label)

        cases = {"load": load, "compute": compute, "both": both}
        times = interleave({name: lambda work=work: timed(work) for name, work in cases.items()}, bench.repeats)
        middle = {name: median(seconds) for name, seconds in times.items()}
        value = middle["both"] / max(middle["load"], middle["compute"])
        note = ", ".join(f"{name} {rate(rows, seconds)}" for name, seconds in middle.items())
        bench.report(f"epoch on the GPU / the slower of loading and computing, {title}", value, "x", "<= 1.2", note)


def main(bench: Bench) -> None:
    """Run all parts."""
    bench.part("overlap", overlap_part)


if __name__ == "__main__":
    alone("torch_gpu", main)
