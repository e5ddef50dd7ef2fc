"""Defaults against ``standardize=True`` on tables of all scales: as they are, and with added columns."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from common import Bench, Skip, alone
from learners import higgs_sample, ijcnn1
from real import unpack

import corgipile as cp

TARGET = "<= 0.01"
EPOCHS, SOME = 5, 20_000  # rows of the larger sets


@dataclass(frozen=True)
class Rows:
    """Features and labels; the first rows of a permutation are for training; float labels are numbers."""

    x: np.ndarray
    y: np.ndarray
    share: float = 0.8

    @property
    def model(self) -> str:
        """Return the model for these labels."""
        if self.y.dtype.kind == "f":
            return "linear"
        return "logistic" if len(np.unique(self.y)) == 2 else "softmax"

    def table(self, rows: np.ndarray) -> pa.Table:
        """Return some rows as columns."""
        columns = {f"x{at}": self.x[rows, at] for at in range(self.x.shape[1])}
        return pa.table({**columns, "label": self.y[rows]})

    def score(self, **settings: object) -> float:
        """Train on a share of the rows; return accuracy or R2 on the others."""
        order, learnt = np.random.default_rng(0).permutation(len(self.y)), round(self.share * len(self.y))
        train, test = self.table(order[:learnt]), self.table(order[learnt:])
        try:
            record = cp.train(train, model=self.model, epochs=EPOCHS, **settings).measure(test)
        except cp.errors.Diverged:
            return -1.0
        return max(-1.0, float(record["r2"] if self.model == "linear" else record["accuracy"]))

    def beside(self, *columns: np.ndarray) -> "Rows":
        """Return the rows with added columns."""
        return replace(self, x=np.column_stack([self.x, *columns]))


def one_hot(rows: Rows, values: int = 20) -> Rows:
    """Add a column for each of 20 states; the first two correlate slightly with the label."""
    rng = np.random.default_rng(1)
    state, high = rng.integers(0, values, len(rows.y)), rows.y > np.median(rows.y)
    state = np.where(rng.random(len(state)) < 0.1, high, state)
    return rows.beside(np.eye(values)[state])


def counts(rows: Rows) -> Rows:
    """Add mostly zero counts, one of them in thousands, and a constant."""
    rng = np.random.default_rng(2)
    made = rng.poisson([0.05, 0.3, 2, 0.1], (len(rows.y), 4)) * [1, 1, 1, 1000]
    return rows.beside(made, np.full(len(rows.y), 3.0))


def tiny(rows: Rows) -> Rows:
    """Multiply every third column by 1e-6."""
    return replace(rows, x=rows.x * np.where(np.arange(rows.x.shape[1]) % 3, 1, 1e-6))


def large(rows: Rows) -> Rows:
    """Multiply every third column by 1e6."""
    return replace(rows, x=rows.x * np.where(np.arange(rows.x.shape[1]) % 3, 1, 1e6))


def scaled(rows: Rows, by: float) -> Rows:
    """Multiply all columns."""
    return replace(rows, x=rows.x * by)


VARIANTS: dict[str, Callable[[Rows], Rows]] = {
    "as it is": lambda rows: rows,
    "+ one-hot": one_hot,
    "+ counts": counts,
    "x 1e-6": tiny,
    "x 1e6": large,
    "all x 0.05": partial(scaled, by=0.05),
}


def bundled(name: str) -> Rows:
    """Return a data set of scikit-learn."""
    from sklearn import datasets  # noqa: PLC0415 - optional

    found = getattr(datasets, f"load_{name}")()
    return Rows(found.data, found.target.astype(np.float64 if name == "diabetes" else np.int64))


def real(name: str, data: Path | None) -> Rows:
    """Return a data set of the data folder."""
    if name in ("higgs_sample", "ijcnn1"):
        task = (higgs_sample if name == "higgs_sample" else ijcnn1)(data)
        x = np.column_stack([task.train[column].to_numpy() for column in task.train.column_names if column != "label"])
        return Rows(x[:SOME], task.train["label"].to_numpy()[:SOME])
    if name == "flights200k":
        if data is None or not (data / name).exists():
            raise Skip(f"{name} is not in the data folder")
        (path,) = (path for path in (data / name).iterdir() if "arrow" in path.name)
        table = cp.open(path).read(0, 200_000)
        columns = [table.column(at).to_numpy(zero_copy_only=False).astype(np.float64) for at in range(3)]
        named = dict(zip(table.schema.names, columns, strict=True))
        y = named.pop("delay")
        return pick(Rows(np.column_stack(list(named.values())), y))
    path = {"protein": "protein/data.csv.gz", "skin": "skin/Skin_NonSkin.txt.gz"}[name]
    lines = unpack(data, path).decode().splitlines()
    table = np.array([line.replace("\t", ",").split(",") for line in lines], np.float64)
    y = table[:, -1]
    return pick(Rows(table[:, :-1], y if name == "protein" else y.astype(np.int64)))


def pick(rows: Rows) -> Rows:
    """Return some of the rows."""
    at = np.random.default_rng(3).permutation(len(rows.y))[:SOME]
    return Rows(rows.x[at], rows.y[at])


def made(x: np.ndarray, kind: str, seed: int, noise: float = 0.3) -> Rows:
    """Return rows with labels linear in their features: numbers, classes, or a rare class."""
    rng, spread = np.random.default_rng(seed), x.std(axis=0)
    z = (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1)
    outputs = int(kind) if kind.isdigit() else 1
    score = z @ rng.normal(size=(x.shape[1], outputs)) / np.sqrt(x.shape[1])
    score += noise * rng.normal(size=score.shape)
    if kind == "rare":
        return Rows(x, (score[:, 0] > np.quantile(score, 0.97)).astype(np.int64))
    if outputs > 1:
        return Rows(x, score.argmax(axis=1) if outputs > 2 else (score[:, 0] > score[:, 1]).astype(np.int64))
    return Rows(x, score[:, 0] * {"price": 1e5, "small": 1e-6}.get(kind, 1) + {"price": 3e5}.get(kind, 0))


def synthetic(rows: int = 4000) -> Iterator[tuple[str, Rows]]:
    """Yield tables of every shape."""
    rng = np.random.default_rng(7)
    normal = rng.normal(size=(rows, 10))
    mixed = normal @ rng.normal(size=(10, 10))
    house = np.column_stack([rng.lognormal(4, 1, rows), rng.integers(1, 6, rows), rng.integers(1950, 2020, rows)])
    person = np.column_stack(
        [rng.integers(18, 90, rows), rng.random(rows) < 0.3, rng.exponential(2000, rows), rng.integers(0, 72, rows),
         rng.normal(65, 30, rows), rng.random((rows, 4)) < [0.5, 0.1, 0.9, 0.02]]
    )  # fmt: skip
    bird = np.eye(3)[rng.integers(0, 3, rows)]
    bird = np.column_stack(
        [bird @ [[39, 18, 190], [49, 18, 196], [47, 15, 217]] + rng.normal(size=(rows, 3)) * [2.7, 1.2, 6.7],
         bird @ [3700, 3730, 5070] + 450 * rng.normal(size=rows), np.eye(3)[rng.integers(0, 3, rows)], bird[:, :0]]
    )  # fmt: skip
    dates = np.column_stack([1.7e9 + rng.integers(0, 3e7, rows), rng.integers(0, 7, rows), rng.normal(size=rows)])
    zeros = normal * (rng.random((rows, 10)) < 0.1)
    yield "normal, numbers", made(normal, "number", 1)
    yield "normal, two classes", made(normal, "2", 2)
    yield "normal, 8 classes", made(normal, "8", 3)
    yield "correlated, numbers", made(mixed, "number", 4)
    yield "correlated, two classes", made(mixed, "2", 5)
    yield "heavy tails, numbers", made(rng.standard_t(2.5, (rows, 8)), "number", 6)
    yield "heavy tails, two classes", made(rng.lognormal(0, 1.5, (rows, 8)), "2", 7)
    yield "houses, prices", made(house, "price", 8)
    yield "persons, churn", made(person, "rare", 9)
    yield "persons, numbers", made(person, "number", 10)
    yield "birds, mass", Rows(bird[:, [0, 1, 2, 4, 5, 6]], bird[:, 3])
    yield "birds, island", made(bird, "3", 12)
    yield "dates, numbers", made(dates, "number", 13)
    yield "dates, two classes", made(dates, "2", 14)
    yield "flags, numbers", made((rng.random((rows, 12)) < 0.3) * 1.0, "number", 15)
    yield "flags, two classes", made((rng.random((rows, 12)) < 0.7) * 1.0, "2", 16)
    yield "counts, numbers", made(rng.poisson(0.5, (rows, 9)) * 1.0, "number", 17)
    yield "counts, two classes", made(rng.poisson([0.1] * 5 + [30, 300], (rows, 7)) * 1.0, "2", 18)
    yield "mostly zeros, numbers", made(zeros, "number", 19)
    yield "mostly zeros, two classes", made(zeros, "2", 20)
    yield "percent, numbers", made(rng.beta(2, 5, (rows, 6)), "number", 21)
    yield "ids beside, two classes", made(np.column_stack([np.arange(rows), normal[:, :5]]), "2", 22)
    yield "rare class", made(normal * 3 + 5, "rare", 23)
    yield "tiny labels", made(normal, "small", 24)
    yield "far labels", made(normal * 50 + 100, "price", 25)
    yield "100 columns, numbers", made(rng.normal(size=(rows, 100)), "number", 26)
    few = {"share": 0.1}
    yield "few rows, numbers", replace(made(rng.normal(5, 2, (rows, 6)), "number", 27), **few)
    yield "few rows, 3 classes", replace(made(rng.gamma(2, 2, (rows, 6)), "3", 28), **few)
    yield "few persons, numbers", replace(made(person, "number", 29), **few)


def tables(data: Path | None) -> Iterator[tuple[str, Callable[[], Rows]]]:
    """Yield the name of each table, and its maker."""
    for name in ("iris", "wine", "breast_cancer", "diabetes", "digits"):
        yield name, partial(bundled, name)
    for name in ("higgs_sample", "ijcnn1", "protein", "skin", "flights200k"):
        yield name, partial(real, name, data)
    for name, rows in synthetic():
        yield name, lambda rows=rows: rows


def part(bench: Bench, name: str, make: Callable[[], Rows]) -> None:
    """Compare the default with both settings on one table and its variants."""
    rows = make()
    for variant, change in VARIANTS.items():
        changed = change(rows)
        usual, true, false = (changed.score(**said) for said in ({}, {"standardize": True}, {"standardize": False}))
        note = f"default {usual:.3f}, standardised {true:.3f}, as they are {false:.3f}"
        bench.report(f"{name}, {variant}: standardised less default", true - usual, "", TARGET, note)


def main(bench: Bench) -> None:
    """Run all tables."""
    for name, make in tables(bench.data):
        bench.part(name, lambda bench, name=name, make=make: part(bench, name, make))


if __name__ == "__main__":
    alone("scales", main)
