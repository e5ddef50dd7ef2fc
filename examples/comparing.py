"""One model, trained by every order on one table sorted by label: what the PyTorch examples share."""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from corgipile import orders, quality
from corgipile.torch import CorgiPileDataset

BLOCKS = 24  # in memory, a tenth of the table in all

Inputs = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Task:
    """What is learned, and how.

    Attributes:
        train: Table to learn from, sorted by its column ``label``.
        test: Table to measure accuracy on.
        rows: Rows of ``train``.
        model: Makes the model.
        transform: Turns a batch of columns into the model's input and the labels.
        epochs: Passes.
        batch: Rows of a batch.
        rate: Largest step of AdamW.
        seed: Seed of weights and orders.
    """

    train: Path
    test: Path
    rows: int
    model: Callable[[], nn.Module]
    transform: Callable[[dict[str, Any]], Inputs]
    epochs: int
    batch: int
    rate: float
    seed: int = 0


def every(rows: int) -> dict[str, orders.Order]:
    """Return the orders, each with the same memory but for the two that need none."""
    block = max(1, rows // 10 // BLOCKS)
    sizes = {"block": block, "buffer": BLOCKS * block}
    return {
        "No Shuffle": orders.NoShuffle(),
        "Sliding Window": orders.SlidingWindow(buffer=BLOCKS * block),
        "CorgiPile": orders.CorgiPile(**sizes),
        "Riffle": orders.Riffle(**sizes),
        "Riffle, balanced": orders.Riffle(**sizes, balance="label"),
        "full shuffle": orders.FullShuffle(),
    }


def compare(task: Task) -> dict[str, float]:
    """Train by every order and print a line for each: how even its batches were, and the accuracy reached."""
    first = not dist.is_initialized() or dist.get_rank() == 0
    ranks = dist.get_world_size() if dist.is_initialized() else 1
    if first:
        print(f"{task.rows} rows sorted by label, {BLOCKS} blocks in memory, {task.epochs} epochs, {ranks} process(es)")
        print(f"{'order':<18}{'deff of batches':>16}{'accuracy':>10}{'seconds':>9}", flush=True)
    found = {}
    for name, order in every(task.rows).items():
        start = time.perf_counter()
        model, labels = trained(task, order)
        found[name] = accuracy(task, model)
        if first:
            spread = quality.deff(labels, min(task.batch, len(labels)))
            seconds = time.perf_counter() - start
            print(f"{name:<18}{spread:>16.2f}{found[name]:>10.1%}{seconds:>9.1f}", flush=True)
    return found


def trained(task: Task, order: orders.Order) -> tuple[nn.Module, Tensor]:
    """Train a new model; return it with the labels of the first epoch, in the order in which they came."""
    torch.manual_seed(task.seed)
    data = CorgiPileDataset(
        task.train, order=order, memory=None, batch_size=task.batch, seed=task.seed, transform=task.transform
    )
    loader = DataLoader(data, batch_size=None)
    model: nn.Module = task.model()
    if dist.is_initialized():
        model = DistributedDataParallel(model)  # each rank reads its share of every epoch: rank and world are found
    optimizer = torch.optim.AdamW(model.parameters(), task.rate)
    steps = task.epochs * len(loader)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, task.rate, total_steps=steps + 1)
    labels = []
    for epoch in range(task.epochs):
        data.set_epoch(epoch)
        for inputs, label in loader:
            loss = nn.functional.cross_entropy(model(inputs), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            if epoch == 0:
                labels.append(label)
    return model, torch.cat(labels)


def accuracy(task: Task, model: nn.Module) -> float:
    """Return the share of the test rows that a model gets right."""
    model.eval()
    right = total = 0
    data = CorgiPileDataset(task.test, order="no_shuffle", batch_size=256, transform=task.transform, rank=0, world=1)
    with torch.inference_mode():
        for inputs, label in data:
            right += int((model(inputs).argmax(1) == label).sum())
            total += len(label)
    return right / total


def options(description: str, **defaults: float) -> argparse.Namespace:
    """Read the command line: a number for each default, the folder of real data sets, threads of PyTorch."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    for name, value in defaults.items():
        parser.add_argument(f"--{name}", type=type(value), default=value, help=f"default {value}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="threads that compute, default 1: another one reads")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder of real data sets, used instead of made ones")
    settings = parser.parse_args()
    torch.set_num_threads(settings.threads)
    return settings


def learning(settings: argparse.Namespace) -> tuple[int, int, float, int]:
    """Return what a `Task` takes last: epochs, batch, rate, seed."""
    return settings.epochs, settings.batch, settings.rate, settings.seed
