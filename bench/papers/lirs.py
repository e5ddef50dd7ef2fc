"""LIRS (Table 3, Fig. 9 to 11): epochs to the final function value of BMF, each with 1/30 of the rows in memory.

    python bench/papers/lirs.py [--data DIR] [--scale 4] [--table NAME] [--save]

Dual coordinate descent with each way of reading: BMF (blocks drawn at random once, solved in memory), LIRS (rows by a
random index, or pages), the input pipeline of TensorFlow (a window over the file in storage order), CorgiPile, Riffle.
After each epoch the primal objective is measured in double precision. Tables have the shapes of the paper's, scaled
down; each is stored mixed, and sorted by its label.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import figures
import numpy as np
import pyarrow as pa

import corgipile as cp
from corgipile.linear import passes
from corgipile.linear.dual import Dual
from corgipile.linear.features import find_inputs
from corgipile.linear.sgd import rows_in
from corgipile.loader.buffered_reader import BufferedReader
from corgipile.orders import CorgiPile, FullShuffle, Riffle, SlidingWindow

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from common import Skip
from learners import svmlight

EPOCHS, SHARE = 30, 30
STORED: dict[str, Callable[[pa.Table], pa.Table]] = {
    "mixed": lambda rows: rows,
    "sorted": lambda rows: rows.sort_by("label"),
}
SAID = {"webspam": 7, "epsilon": 12, "kdd": 11, "higgs": 17}  # epochs of LIRS to what BMF has after 30


def dense(rows: int, width: int, seed: int) -> pa.Table:
    """Make rows of unit length near a separating plane, with noise."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, width)).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = x @ rng.normal(size=width) + rng.normal(0, 0.5, rows) > 0
    return pa.table(
        {"features": pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), width), "label": y.astype("i1")}
    )


def sparse(rows: int, entries: int, width: int, seed: int) -> pa.Table:
    """Make rows of unit length with features as frequent as words."""
    rng = np.random.default_rng(seed)
    keys = [np.unique((width ** rng.random(entries)).astype(np.int32)) for _ in range(rows)]
    weights = rng.normal(size=width)
    y = [weights[key].sum() + rng.normal(0, 2) > 0 for key in keys]
    values = [np.full(len(key), len(key) ** -0.5, np.float32) for key in keys]
    columns = {
        "features_k": pa.array(keys, pa.list_(pa.int32())),
        "features_v": pa.array(values, pa.list_(pa.float32())),
    }
    return pa.table({**columns, "label": np.array(y).astype("i1")})


MADE: dict[str, Callable[[int], pa.Table]] = {
    "webspam": lambda scale: sparse(10_000 // scale, 300, 1 << 17, 0),
    "epsilon": lambda scale: dense(20_000 // scale, 400, 1),
    "kdd": lambda scale: sparse(60_000 // scale, 36, 1 << 18, 2),
    "higgs": lambda scale: dense(100_000 // scale, 28, 3),
}


def tables(data: Path | None, scale: int, only: str | None = None) -> Iterator[tuple[str, pa.Table]]:
    """Yield the tables by name, or a single one."""
    for name, make in MADE.items():
        if only in (None, name):
            yield name, make(scale)
    if only not in (None, "a9a"):
        return
    try:
        yield "a9a", svmlight(data, "a9a/a9a.gz", "a9a/a9a.t.gz").train
    except Skip as reason:
        print(f"skip a9a: {reason}")


@contextmanager
def opened(path: Path, order: Any, label: str = "label") -> Iterator[tuple[BufferedReader, Any]]:
    """Open a table by an order whose buffer sets the rows in memory."""
    table = cp.open(path)
    inputs = find_inputs(table, None, label)
    with inputs.feeder(table, label, order, None, 0) as feeder:
        yield feeder, inputs


def visit(dual: Dual, feeder: BufferedReader, epoch: int, *, learn: bool) -> None:
    """Run one pass."""
    dual.begin()
    for step, (slots, numbers) in enumerate(zip(feeder.epoch(epoch), feeder.rows(epoch), strict=True)):
        rows, labels = rows_in(feeder.buffer, dual.inputs, slots), feeder.buffer.dense("label")
        dual.learn(rows, labels, slots, passes.row_at(feeder, epoch, step), numbers=numbers if learn else None)


def curve(path: Path, order: Any, inner: int, epochs: int, enough: float = 0.0) -> tuple[list[float], float, float]:
    """Return the objective after each epoch, the bound after the last, and the seconds of the epochs."""
    values, seconds = [], 0.0
    with opened(path, order) as (feeder, inputs):
        rows = len(feeder.table)
        dual = Dual("squared_hinge", inputs, np.array([0, 1]), rows=rows, l2=1 / rows, passes=inner)
        for epoch in range(epochs):
            start = time.perf_counter()
            visit(dual, feeder, epoch, learn=True)
            seconds += time.perf_counter() - start
            with passes.reader(inputs, feeder.table, "label") as reader:
                visit(dual, reader, 0, learn=False)
            value, bound = dual.objective()
            values.append(value)
            if value - bound <= enough * bound:
                break
    return values, bound, seconds


def ways(rows: int) -> dict[str, tuple[bool, Any]]:
    """Return the orders by name, and whether each reads the table written by BMF."""
    held = rows // SHARE
    return {
        "BMF": (True, CorgiPile(block=held, buffer=held, ahead=0)),
        "LIRS, rows": (False, FullShuffle(buffer=held, ahead=0)),
        "LIRS, pages": (False, FullShuffle(unit="page", pages=1, buffer=held, ahead=0)),
        "TFIP": (False, SlidingWindow(buffer=held, ahead=0)),
        "CorgiPile": (False, CorgiPile(buffer=held, ahead=0)),
        "Riffle": (False, Riffle(buffer=held)),
        "Riffle, balanced": (False, Riffle(buffer=held, balance="label")),
    }


def measure(name: str, stored: str, rows: pa.Table, work: Path, inner: int) -> dict[str, Any]:
    """Run each way over one table."""
    path, split = work / f"{name}-{stored}.arrow", work / f"{name}-{stored}-bmf.arrow"
    cp.convert(rows, path)
    cp.reshuffle(path, split, method="bmf", block=len(rows) // SHARE)
    _, best, _ = curve(path, FullShuffle(buffer=len(rows), ahead=0), 500, 20, 1e-9)
    found = {}
    for way, (theirs, order) in ways(len(rows)).items():
        values, _, seconds = curve(split if theirs else path, order, inner, EPOCHS)
        found[way] = {"values": [max(value / best - 1, 1e-12) for value in values], "seconds": seconds}
    goal = found["BMF"]["values"][-1]
    for record in found.values():
        record["epochs"] = next((at + 1 for at, value in enumerate(record["values"]) if value <= goal), None)
    return {"table": name, "stored": stored, "rows": len(rows), "inner": inner, "best": best, "ways": found}


def told(result: dict[str, Any]) -> str:
    """Return a line of the table."""
    cells = [f"{one['epochs'] or '> 30'} ({one['values'][-1]:.1e})" for one in result["ways"].values()]
    said = SAID.get(result["table"], "") if result["stored"] == "mixed" else ""
    return f"| {result['table']} | {result['stored']} | {said} | {' | '.join(cells)} |"


def main() -> None:
    """Run all tables; print the results, and save them if requested."""
    parser = figures.arguments(__doc__ or "")
    parser.add_argument("--inner", type=int, default=10, help="visits of a row while it is in memory")
    parser.add_argument("--table", help="of these tables one alone")
    given = parser.parse_args()
    results: list[dict[str, Any]] = []
    named = list(ways(SHARE))
    lines = figures.head(["table", "stored", "LIRS, paper", *named])
    print("\n".join(lines), flush=True)
    with tempfile.TemporaryDirectory(prefix="corgipile-lirs-") as work:
        for name, rows in tables(given.data, given.scale, given.table):
            for stored, sort in STORED.items():
                results.append(measure(name, stored, sort(rows), Path(work), given.inner))
                lines.append(told(results[-1]))
                print(lines[-1], flush=True)
    if given.save:
        lines, results = figures.joined("lirs", lines, results, lambda one: (one["table"], one["stored"]), told)
        panels = {
            (one["table"], f"stored {one['stored']}"): {way: record["values"] for way, record in one["ways"].items()}
            for one in results
        }
        path = figures.save("lirs", results, lines)
        figures.draw(panels, path, across="epoch", up="(f - f*) / f*", logarithmic=True)


if __name__ == "__main__":
    main()
