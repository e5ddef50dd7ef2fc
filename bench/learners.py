"""Learners with defaults against the best learning rate of a grid and against tuned peers, on real data as it is."""

import bz2
import itertools
import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from common import Bench, Skip, alone
from peer_walk import timed
from real import Split, fashion_mnist, protein, skin, sparse, unpack

import corgipile as cp

RATES = (0.0001, 0.001, 0.01, 0.1, 1.0)
STRENGTHS = (0.01, 1.0, 100.0)  # C of LIBLINEAR; 1 / (C rows) is alpha of SGDClassifier
EPOCHS = 5
BITS = 18


class Reached(NamedTuple):
    """Validation accuracy or R2 in points, seconds so far, and validation loss."""

    score: float
    seconds: float
    loss: float


@dataclass(frozen=True)
class Task:
    """Training rows, validation rows, and the training settings."""

    train: pa.Table
    test: pa.Table
    model: str = "logistic"

    def learn(self, **settings: Any) -> list[Reached]:
        """Return the results after each epoch."""
        try:
            model = cp.train(self.train, model=self.model, epochs=EPOCHS, test=self.test, **settings)
        except cp.errors.Diverged:
            return [Reached(-100.0, 0.0, math.inf)]
        scores = [100 * record.get("test_accuracy", record.get("test_r2")) for record in model.history]
        seconds = itertools.accumulate(record["seconds"] for record in model.history)
        losses = [record["test_loss"] for record in model.history]
        return [Reached(*found) for found in zip(scores, seconds, losses, strict=True)]

    def arrays(self, rows: pa.Table) -> Any:
        """Return features in scikit-learn's form."""
        if "features_k" in rows.column_names:
            from scipy.sparse import csr_matrix  # noqa: PLC0415 - optional

            keys, values = (rows[name].combine_chunks() for name in ("features_k", "features_v"))
            starts = np.concatenate([[0], np.cumsum(keys.value_lengths().to_numpy())])
            width = 1 + max(
                int(part["features_k"].combine_chunks().flatten().to_numpy().max()) for part in (self.train, self.test)
            )
            return csr_matrix((values.flatten().to_numpy(), keys.flatten().to_numpy(), starts), (len(rows), width))
        if "features" in rows.column_names:
            return rows["features"].combine_chunks().flatten().to_numpy().reshape(len(rows), -1)
        return np.column_stack([rows[name].to_numpy() for name in rows.column_names if name != "label"])


def split(split: Split, model: str) -> Task:
    """Make a task from rows standardised by `real`."""
    test = (
        {name: split.x_test[name] for name in split.x_test.column_names} if isinstance(split.x_test, pa.Table) else {}
    )
    if not test:
        width = split.x_test.shape[1]
        flat = pa.array(np.ascontiguousarray(split.x_test, np.float32).reshape(-1))
        test = {"features": pa.FixedSizeListArray.from_arrays(flat, width)}
    return Task(split.train, pa.table({**test, "label": split.y_test}), model)


def columns(x: np.ndarray, y: np.ndarray, x_test: np.ndarray, y_test: np.ndarray, model: str = "logistic") -> Task:
    """Make a task from raw columns."""

    def table(x: np.ndarray, y: np.ndarray) -> pa.Table:
        return pa.table({**{f"x{at}": x[:, at] for at in range(x.shape[1])}, "label": y})

    return Task(table(x, y), table(x_test, y_test), model)


def held(x: np.ndarray, y: np.ndarray, model: str) -> Task:
    """Use every fifth row of a seeded permutation for validation."""
    order = np.random.default_rng(0).permutation(len(y))
    test, train = order[::5], np.delete(order, np.s_[::5])
    return columns(x[train], y[train], x[test], y[test], model)


def svmlight(data: Path | None, train: str, test: str) -> Task:
    """Read two files of sparse rows."""

    def text(name: str) -> bytes:
        if not name.endswith("bz2"):
            return unpack(data, name)
        if data is None or not (data / name).exists():
            raise Skip(f"{name} is not in the data folder")
        return bz2.decompress((data / name).read_bytes())

    def whole(name: str) -> pa.Table:
        rows = sparse(text(name))
        return rows.set_column(0, "label", pa.array((rows["label"].to_numpy() > 0).astype(np.int32)))

    return Task(whole(train), whole(test))


def ijcnn1(data: Path | None) -> Task:
    """Read 22 mostly present features as dense rows."""
    found = svmlight(data, "ijcnn1/ijcnn1.trn.bz2", "ijcnn1/ijcnn1.tst.bz2")

    def dense(rows: pa.Table) -> np.ndarray:
        x, lengths = np.zeros((len(rows), 22)), rows["features_k"].combine_chunks().value_lengths().to_numpy()
        at = rows["features_k"].combine_chunks().flatten().to_numpy()
        x[np.repeat(np.arange(len(rows)), lengths), at] = rows["features_v"].combine_chunks().flatten().to_numpy()
        return x

    train, test = found.train, found.test
    return columns(dense(train), train["label"].to_numpy(), dense(test), test["label"].to_numpy())


def higgs_sample(data: Path | None) -> Task:
    """Read 28 raw features after the label."""
    parts = []
    for name in ("train", "test"):
        table = np.loadtxt(unpack(data, f"higgs_sample/binary.{name}.gz").decode().splitlines())
        parts += [table[:, 1:], table[:, 0].astype(np.int64)]
    return columns(*parts)


def sst2(data: Path | None) -> Task:
    """Hash words and pairs of words."""

    def table(name: str) -> pa.Table:
        rows = [line.rsplit("\t", 1) for line in unpack(data, f"sst2/{name}.tsv.gz").decode().splitlines()]
        rows = [row for row in rows if len(row) == 2 and row[1].strip() in ("0", "1")]
        keys = []
        for text, _ in rows:
            words = text.lower().split()
            both = [*words, *map(" ".join, itertools.pairwise(words))]
            keys.append(sorted({zlib.crc32(word.encode()) % (1 << BITS) for word in both}))
        values = [np.ones(len(key), np.float32) for key in keys]
        return pa.table(
            {
                "label": pa.array([int(label) for _, label in rows], pa.int32()),
                "features_k": pa.array(keys, pa.list_(pa.int32())),
                "features_v": pa.array(values, pa.list_(pa.float32())),
            }
        )

    return Task(table("train"), table("dev"))


def flights200k(data: Path | None) -> Task:
    """Predict the delay from distance and time of day."""
    if data is None or not (data / "flights200k/flights-200k.arrow").exists():
        raise Skip("flights200k is not in the data folder")
    rows = cp.open(data / "flights200k/flights-200k.arrow")
    batch = rows.read(0, len(rows))
    arrays = {name: batch.column(name).to_numpy(zero_copy_only=False).astype(np.float64) for name in batch.schema.names}
    y = arrays.pop("delay")
    return held(np.column_stack(list(arrays.values())), y, "linear")


def raw(data: Path | None, name: str) -> Task:
    """Read raw columns before the target."""
    if name == "skin":
        table = np.loadtxt(unpack(data, "skin/Skin_NonSkin.txt.gz").decode().splitlines())
        return held(table[:, :3], (table[:, 3] == 1).astype(np.int64), "logistic")
    table = np.loadtxt(unpack(data, "protein/data.csv.gz").decode().splitlines(), delimiter=",")
    return held(table[:, :-1], table[:, -1], "linear")


TASKS: dict[str, Callable[[Path | None], Task]] = {
    "a9a": lambda data: svmlight(data, "a9a/a9a.gz", "a9a/a9a.t.gz"),
    "agaricus": lambda data: svmlight(data, "agaricus/agaricus.txt.train.gz", "agaricus/agaricus.txt.test.gz"),
    "reuters": lambda data: svmlight(data, "reuters/reuters.trn.bz2", "reuters/reuters.tst.bz2"),
    "sst2": sst2,
    "ijcnn1": ijcnn1,
    "higgs_sample": higgs_sample,
    "skin": lambda data: split(skin(data), "logistic"),
    "skin, raw": lambda data: raw(data, "skin"),
    "protein": lambda data: split(protein(data), "linear"),
    "protein, raw": lambda data: raw(data, "protein"),
    "flights200k": flights200k,
    "fashion_mnist": lambda data: split(fashion_mnist(data), "softmax"),
}


def peers(task: Task) -> Iterator[tuple[str, float, float]]:
    """Yield name, score and seconds of each peer, with defaults and the best of a grid; rows are shuffled in memory."""
    try:
        from sklearn.linear_model import LogisticRegression, SGDClassifier, SGDRegressor  # noqa: PLC0415 - optional
        from sklearn.preprocessing import MaxAbsScaler, StandardScaler  # noqa: PLC0415 - optional
    except ImportError:
        raise Skip("scikit-learn is not installed") from None
    order = np.random.default_rng(0).permutation(len(task.train))
    x, y = task.arrays(task.train)[order], task.train["label"].to_numpy()[order]
    x_test, y_test = task.arrays(task.test), task.test["label"].to_numpy()
    scaler = StandardScaler() if isinstance(x, np.ndarray) else MaxAbsScaler()
    x, x_test = scaler.fit_transform(x), scaler.transform(x_test)  # by hand, and not timed
    sgd: Any = SGDRegressor if task.model == "linear" else SGDClassifier
    how = {"max_iter": EPOCHS, "tol": None} | ({} if task.model == "linear" else {"loss": "log_loss"})
    made = {"sgd": [sgd(**how), *(sgd(**how, alpha=1 / (c * len(y))) for c in STRENGTHS)]}
    if task.model == "logistic":
        made["liblinear"] = [LogisticRegression(solver="liblinear", C=c) for c in (1.0, *STRENGTHS)]
    for name, models in made.items():
        seconds = [timed(lambda model=model: model.fit(x, y)) for model in models]
        scores = [100 * model.score(x_test, y_test) for model in models]
        yield f"{name}, defaults", scores[0], seconds[0]
        best = int(np.argmax(scores))
        yield f"{name}, tuned", scores[best], seconds[best]


def seconds_to(goal: float, way: list[Reached]) -> str:
    """Return when a score was reached, as text."""
    return next((f"{one.seconds:.2f} s" for one in way if one.score >= goal), "never")


def part(bench: Bench, name: str) -> None:
    """Compare on one data set with the learning rate of a grid that has the least validation loss.

    A larger rate may reach a higher accuracy by luck in its last rows, at a far higher loss; that is printed, too.
    """
    task = TASKS[name](bench.data)
    ways = {f"rate {rate:g}": task.learn(learning_rate=rate) for rate in RATES}
    best = min(ways, key=lambda rate: ways[rate][-1].loss)
    luckiest = max(ways, key=lambda rate: ways[rate][-1].score)
    known = list(peers(task))
    goal = max(score for _, score, _ in known) - 0.2
    for ours, settings in {"defaults": {}, "step=decay": {"step": "decay"}}.items():
        way = task.learn(**settings)
        last, against = way[-1], ways[best][-1]
        note = f"{last.score:.2f} at loss {last.loss:.4f}, {best} {against.score:.2f} at {against.loss:.4f}, highest "
        note += f"{luckiest} {ways[luckiest][-1].score:.2f} at {ways[luckiest][-1].loss:.4f}; {last.seconds:.2f} s; "
        note += f"{goal:.2f} reached: {seconds_to(goal, way)}"
        bench.report(f"{name}: best rate of a grid - {ours}", against.score - last.score, "points", "<= 0.5", note)
    for peer, score, seconds in known:
        bench.report(f"{name}: {peer}", score, "points", "", f"{seconds:.2f} s, rows in memory and scaled")


def main(bench: Bench) -> None:
    """Run all parts."""
    for name in TASKS:
        bench.part(name, lambda bench, name=name: part(bench, name))


if __name__ == "__main__":
    alone("learners", main)
