"""CorgiPile (Fig. 1, 8, 9): accuracy of small networks by epoch, on images and text sorted by class, by SGD and Adam.

    python bench/papers/networks.py [--data DIR] [--scale 4] [--seeds 0 1 2] [--only NAME] [--save]

A CNN trains on Fashion-MNIST, a bag of word embeddings on SST-2, both on the CPU, with equal initial weights for all
orders. All have 2 % of the rows in memory, CorgiPile half of it for the blocks it drains and half for those it reads.
Results of other seeds and networks saved on the same day are kept, so that each can run separately.
"""

import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import figures
import numpy as np
import pyarrow as pa
import torch
from orders import orders
from torch import nn
from torch.utils.data import DataLoader

import corgipile as cp
from corgipile.orders import Order
from corgipile.torch import CorgiPileDataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from common import Skip, check
from real import READERS, unpack
from torch_accuracy import network

BATCH, EPOCHS, WORDS, BITS, LONGEST = 64, 4, 16, 13, 48
STEPS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": partial(torch.optim.SGD, momentum=0.9),
    "Adam": torch.optim.Adam,
}
RATES = {("CNN", "SGD"): 0.05, ("CNN", "Adam"): 0.001, ("embeddings", "SGD"): 2.0, ("embeddings", "Adam"): 0.01}
LEFT_OUT = ("Block-Only",)


class Words(nn.Module):
    """The mean of word embeddings, and a dense layer; number 0 means no word."""

    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(1 << BITS, WORDS, mode="mean", padding_idx=0)
        self.out = nn.Linear(WORDS, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Score rows of word numbers."""
        return self.out(self.bag(x))


def texts(data: Path | None, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return hashed words, int32[rows, LONGEST], and labels."""
    rows = [line.rsplit("\t", 1) for line in unpack(data, f"sst2/{name}.tsv.gz").decode().splitlines()]
    rows = [row for row in rows if len(row) == 2 and row[1].strip() in ("0", "1")]
    x = np.zeros((len(rows), LONGEST), np.int32)
    for at, (text, _) in enumerate(rows):
        keys = [1 + zlib.crc32(word.encode()) % ((1 << BITS) - 1) for word in text.lower().split()[:LONGEST]]
        x[at, : len(keys)] = keys
    return x, np.array([int(label) for _, label in rows], np.int64)


def table(x: np.ndarray, y: np.ndarray) -> pa.Table:
    """Return rows as a table, sorted by class."""
    order = np.argsort(y, kind="stable")
    flat = pa.array(np.ascontiguousarray(x[order]).reshape(-1))
    return pa.table({"features": pa.FixedSizeListArray.from_arrays(flat, x.shape[1]), "label": y[order]})


def tasks(data: Path | None, scale: int) -> Iterator[tuple[str, Callable[[], nn.Module], pa.Table, Any, Any]]:
    """Yield name, network, rows sorted by class, validation features and labels."""
    for name, read in (("fashion_mnist, CNN", images), ("sst2, embeddings", words)):
        try:
            make, rows, x, y = read(data)
        except Skip as reason:
            print(f"skip {name}: {reason}")
            continue
        yield name, make, rows.take(np.arange(0, len(rows), scale)), x, y


def images(data: Path | None) -> tuple[Callable[[], nn.Module], pa.Table, Any, Any]:
    """Read Fashion-MNIST."""
    split = READERS["fashion_mnist"](data)
    return network, split.train.sort_by("label"), split.x_test, split.y_test


def words(data: Path | None) -> tuple[Callable[[], nn.Module], pa.Table, Any, Any]:
    """Read SST-2."""
    return Words, table(*texts(data, "train")), *texts(data, "dev")


def curve(
    make: Callable[[], nn.Module], step: tuple[str, str], path: Path, order: Order, rows: int, test: Any, seed: int
) -> list[float]:
    """Return validation accuracy after each epoch, in percent."""
    torch.manual_seed(seed)
    model = make()
    loader = DataLoader(CorgiPileDataset(path, order=order, memory=None, batch_size=BATCH, seed=seed), batch_size=None)
    optimizer, scores = STEPS[step[1]](model.parameters(), lr=RATES[step]), []
    for _ in range(EPOCHS):
        seen = 0
        for batch in loader:
            loss = nn.functional.cross_entropy(model(batch["features"]), batch["label"].long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(batch["label"])
        check(seen >= rows, f"{seen} rows of {rows} came")
        with torch.inference_mode():
            said = model(torch.from_numpy(np.asarray(test[0]))).argmax(1).numpy()
        scores.append(100 * float(np.mean(said == test[1])))
    return scores


def measure(
    task: tuple[str, Callable[[], nn.Module], pa.Table, Any, Any], step: str, seed: int, work: Path
) -> dict[str, Any]:
    """Run each order over one table."""
    name, make, rows, *test = task
    mixed, path = rows.take(np.random.default_rng(0).permutation(len(rows))), work / "rows.arrow"
    curves = {}
    for way, order in orders(len(rows)).items():
        if way in LEFT_OUT:
            continue
        cp.convert(mixed if way == "Shuffle Once" else rows, path, overwrite=True)
        found = curve(make, (name.split(", ")[1], step), path, order, len(rows), test, seed)
        curves[way] = np.round(found, 3).tolist()
    return {"task": name, "step": step, "rows": len(rows), "seed": seed, "curves": curves}


def means(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the mean curves of each network and step over its seeds."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in results:
        found.setdefault((one["task"], one["step"]), []).append(one)
    return [
        {**many[0], "seeds": sum(one.get("seeds", 1) for one in many)}
        | {"curves": {way: np.mean([one["curves"][way] for one in many], axis=0) for way in many[0]["curves"]}}
        for many in found.values()
    ]


def told(result: dict[str, Any]) -> str:
    """Return a line of the table: the final accuracy of Shuffle Once, and the others' distance from it."""
    curves = result["curves"]
    goal = curves["Shuffle Once"][-1]
    cells = [f"{goal:.2f}", *(f"{curves[name][-1] - goal:+.2f}" for name in list(curves)[1:])]
    return f"| {result['task']} | {result['step']} | {result['rows']:,} | {result['seeds']} | {' | '.join(cells)} |"


def main() -> None:
    """Run all tasks; print the results, and save them if requested."""
    parser = figures.arguments(__doc__ or "")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", default="", help="tasks whose names contain this")
    given = parser.parse_args()
    torch.set_num_threads(1)
    results: list[dict[str, Any]] = []
    lines = figures.head(["network", "step", "rows", "seeds", *(way for way in orders(1000) if way not in LEFT_OUT)])
    print("\n".join(lines), flush=True)
    with tempfile.TemporaryDirectory(prefix="corgipile-networks-") as work:
        for task in tasks(given.data, given.scale):
            for step in STEPS:
                if given.only not in f"{task[0]}, {step}":
                    continue
                results += [measure(task, step, seed, Path(work)) for seed in given.seeds]
                lines.append(told(means(results)[-1]))
                print(lines[-1], flush=True)
    if given.save:
        _, results = figures.joined(
            "networks", lines, results, lambda one: (one["task"], one["step"], one["seed"]), str
        )
        panels = {(one["task"], one["step"]): one["curves"] for one in means(results)}
        path = figures.save("networks", results, [*lines[:2], *map(told, means(results))])
        figures.draw(panels, path, across="epoch", up="accuracy of held-out rows, %")


if __name__ == "__main__":
    main()
