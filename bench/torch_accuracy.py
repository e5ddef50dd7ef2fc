"""Accuracy of a small CNN on Fashion-MNIST sorted by class, with each order, through the PyTorch dataset."""

from pathlib import Path

import numpy as np
import torch
from common import Bench, alone, check
from real import READERS, Split
from torch import nn
from torch.utils.data import DataLoader

from corgipile.orders import CorgiPile, FullShuffle, NoShuffle, Order, Riffle, SlidingWindow
from corgipile.tables.formats.arrow.writer import Writer
from corgipile.torch import CorgiPileDataset

BATCH, EPOCHS, RATE = 128, 3, 0.1
BLOCK, BLOCKS = 100, 24
HELD = BLOCK * BLOCKS
ORDERS: dict[str, Order] = {
    "full shuffle": FullShuffle(),
    "balanced Riffle": Riffle(block=BLOCK, buffer=HELD, balance="label"),
    "Riffle": Riffle(block=BLOCK, buffer=HELD),
    "CorgiPile": CorgiPile(block=BLOCK, buffer=HELD),
    "CorgiPile, half of it read-ahead": CorgiPile(block=BLOCK, buffer=HELD // 2),
    "Sliding Window": SlidingWindow(buffer=HELD),
    "No Shuffle": NoShuffle(),
}


def network() -> nn.Module:
    """Make two convolutions and two dense layers: 53 thousand weights, half a minute of one core for 10 epochs."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        *(nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ReLU()),
        *(nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10)),
    )


def accuracy(path: Path, order: Order, split: Split, seed: int) -> float:
    """Train from a file; return validation accuracy in percent."""
    torch.manual_seed(seed)
    model = network()
    data = CorgiPileDataset(path, order=order, memory=None, batch_size=BATCH, seed=seed)
    loader = DataLoader(data, batch_size=None)
    optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=0.9)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=EPOCHS * len(loader) + 1)
    for _ in range(EPOCHS):
        seen = 0
        for batch in loader:
            loss = nn.functional.cross_entropy(model(batch["features"]), batch["label"].long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            seen += len(batch["label"])
        check(seen == split.train.num_rows, f"{seen} rows of {split.train.num_rows} came")
    with torch.inference_mode():
        return 100 * float(np.mean(model(torch.from_numpy(split.x_test)).argmax(1).numpy() == split.y_test))


def cnn_part(bench: Bench) -> None:
    """Compare all orders with equal memory, 24 blocks of 100 rows, and equal initial weights."""
    split, seeds = READERS["fashion_mnist"](bench.data), bench.pick(5, 1)
    path = bench.work / "fashion-sorted.arrow"
    with Writer(path, split.train.schema) as writer:
        for batch in split.train.to_batches(max_chunksize=4096):
            writer.write(batch)
    torch.set_num_threads(1)
    found = {name: [accuracy(path, order, split, s) for s in range(seeds)] for name, order in ORDERS.items()}
    goal = float(np.mean(found["full shuffle"]))
    for name in list(ORDERS)[1:]:
        mean, spread = float(np.mean(found[name])), float(np.std(found[name]))
        target = "<= 0.5" if name == "balanced Riffle" else ""
        note = f"{mean:.2f} ± {spread:.2f}, full shuffle {goal:.2f} ± {np.std(found['full shuffle']):.2f} %"
        measure = f"fashion_mnist sorted, CNN, B = {BATCH}, {EPOCHS} epochs, {seeds} seeds: {name} below full shuffle"
        bench.report(measure, goal - mean, "points", target, note)


def main(bench: Bench) -> None:
    """Run all parts."""
    bench.part("cnn", cnn_part)


if __name__ == "__main__":
    alone("torch_accuracy", main)
