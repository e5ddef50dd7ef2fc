"""Partial local shuffling: accuracy by epoch, and seconds per epoch, by the fraction Q that ranks exchange.

    python bench/papers/partial.py [--data DIR] [--scale 4] [--seeds 3] [--part learning|seconds] [--save]

Eight ranks train on Fashion-MNIST together, each on its own rows: a piece of the table in storage order, sorted by
label, or of a shuffled copy. Before each epoch they exchange the fraction Q. The paper's ranks visit their rows in
random order; with Riffle they have 2 % of them in memory. Seconds are those of two processes, each with its own folder,
which read an epoch from disk and exchange rows concurrently, against equally many single rows read from a shared file.
"""

import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import figures
import numpy as np
import torch
import torch.distributed as dist
from orders import orders

from corgipile.orders import FullShuffle, Order, Partial

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from common import Skip
from exchange import ranks
from local_parts import RANKS, cold, curve, shared_file, stagings
from real import READERS, Split

FRACTIONS = (0.0, 0.03, 0.1, 0.3, 1.0)
EPOCHS = {"softmax": 6, "cnn": 8}
WIDTHS, BYTES, REPEATS = (1_000, 25_000), 400 << 20, 3


def compared(rows: int) -> dict[str, Order]:
    """Return the compared options of ranks with a given number of rows."""
    known = orders(rows)
    within = {name: known[name] for name in ("Riffle", "Riffle, balanced")}
    return {
        "global": FullShuffle(),
        **{f"Q = {one:g}": Partial(fraction=one, within=FullShuffle(), unit=1) for one in FRACTIONS},
        **{f"Q = 0.1, {name}": Partial(fraction=0.1, within=order, unit=1) for name, order in within.items()},
    }


def thinned(split: Split, scale: int) -> Split:
    """Keep every n-th row."""
    return replace(split, train=split.train.take(np.arange(0, len(split.train), scale)))


def learning(split: Split, seeds: int) -> list[dict[str, Any]]:
    """Train both models from either staging with each compared option."""
    torch.set_num_threads(1)
    results = []
    with tempfile.TemporaryDirectory() as work:
        paths = stagings(split, Path(work))
        for kind, epochs in EPOCHS.items():
            for staging, path in paths.items():
                curves = {}
                for name, order in compared(len(split.train) // RANKS).items():
                    found = [curve(path, order, split, kind, seed, epochs) for seed in range(seeds)]
                    curves[name] = np.mean(found, axis=0).round(3).tolist()
                results.append({"what": kind, "staging": staging, "seeds": seeds, "curves": curves})
                print(told(results[-1]), flush=True)
    return results


def epochs(rank: int, world: int, folder: Path, shared: Path, width: int) -> list[list[list[float]]]:
    """Read cold epochs with each fraction in turn, each time from a new part."""
    apart = [[folder / f"{turn}-{at}" for at in range(len(FRACTIONS))] for turn in range(REPEATS)]
    if rank == 0:
        for path in (path for turn in apart for path in turn):
            path.mkdir()
    dist.barrier()
    return [
        [cold(rank, world, path, shared, width, fraction) for path, fraction in zip(turn, FRACTIONS, strict=True)]
        for turn in apart
    ]


def seconds(scale: int) -> list[dict[str, Any]]:
    """Return the median over turns of the slower rank's seconds."""
    results = []
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as work:
        for width in WIDTHS:
            shared = shared_file(Path(work) / f"{width}.arrow", width, BYTES // scale)
            folder = Path(tempfile.mkdtemp(dir=work))
            found = np.max(ranks(epochs, 2, folder, folder, shared, width), axis=0)
            local = np.median(found[:, :, 0], axis=0)
            taken = {f"Q = {one:g}": [float(took)] for one, took in zip(FRACTIONS, local, strict=True)}
            taken["shared, one by one"] = [float(np.median(found[:, :, 1]))]
            results.append({"what": f"seconds, rows of {4 * width / 1000:g} KB", "staging": "", "curves": taken})
            print(told(results[-1]), flush=True)
    return results


def told(result: dict[str, Any]) -> str:
    """Return a line of the table: the final accuracies."""
    names = [*compared(1000), "shared, one by one"]
    cells = [f"{result['curves'][name][-1]:.2f}" if name in result["curves"] else "" for name in names]
    return f"| {result['what']} | {result['staging']} | {' | '.join(cells)} |"


def main() -> None:
    """Run the parts; print the results, and save them if requested."""
    parser = figures.arguments(__doc__ or "")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--part", choices=["learning", "seconds"], help="only this one")
    given = parser.parse_args()
    lines = figures.head(["what", "staging", *compared(1000), "shared, one by one"])
    print("\n".join(lines), flush=True)
    results: list[dict[str, Any]] = []
    if given.part != "seconds":
        try:
            split = READERS["fashion_mnist"](given.data)
        except Skip as reason:
            sys.exit(f"skip fashion_mnist: {reason}")
        results += learning(thinned(split, given.scale), given.seeds)
    if given.part != "learning":
        results += seconds(given.scale)
    if given.save:
        lines, results = figures.joined("partial", lines, results, lambda one: (one["what"], one["staging"]), told)
        picture = figures.save("partial", results, lines)
        panels = {(one["what"], one["staging"]): one["curves"] for one in results if one["staging"]}
        figures.draw(panels, picture, across="epoch", up="accuracy on held-out rows, %")


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).resolve().parents[1]))  # where processes of ranks look
    main()
