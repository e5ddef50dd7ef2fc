"""Held-out accuracy, and seconds to an accuracy, reading included: ours with defaults against tuned learners.

Settings and numbers of epochs, ours too, are chosen on a fifth of the training rows. The test rows only score what was
chosen, and each score is a median of five seeds.
"""

import itertools
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from common import Bench, Peer, Skip, alone, interleave, median, ratio
from learners import TASKS as REAL
from learners import Task
from real import dense

import corgipile as cp

CLOCK = time.process_time if os.environ.get("BENCH_CLOCK") == "cpu" else time.perf_counter  # where others work, too
MARGIN = 0.2  # points below the best of all peers on validation rows: what is to be reached
MOST_EPOCHS = 20
REPEATS = 3  # of each of a peer's settings, to choose the fastest
SLOW = 20_000_000  # entries, for each two classes, beyond which few settings are tried, once; slow peers are left out
FAR = 10  # times the fastest peer: those that take longer are not timed in turn
MOST = 9_408_000  # numbers of dense rows to learn from: 12,000 rows of Fashion-MNIST
GRIDS: dict[str, list[dict[str, Any]]] = {  # the defaults first; few epochs too, for ours are as few as reach the goal
    "sgd": [
        *({"alpha": alpha} for alpha in (1e-4, 1e-6, 1e-5, 1e-3)),
        *({"alpha": 1e-5, "epochs": epochs} for epochs in (1, 2, 20)),
        {"alpha": 1e-3, "epochs": 1},
    ],
    "liblinear": [{"c": 1.0}, {"c": 0.1}, {"c": 10.0}],
    "vw": [{}, {"passes": 5}, {"rate": 0.1}, {"rate": 2.0}, {"passes": 20}],
    "gblinear": [{}, {"rounds": 50}, {"rounds": 50, "penalty": 1.0}],
    "river": [{}, {"rate": 0.1}],
}
SEEDS = 5
SEEDED = {"sgd"}  # peers whose results depend on a seed


def made(classes: int, width: int, apart: float) -> Task:
    """Draw 25,000 rows of Gaussian classes with features mixed by a random matrix, a fifth for validation."""
    rng, rows = np.random.default_rng(0), 25_000
    mix, means = rng.normal(size=(width, width)) / np.sqrt(width), rng.normal(size=(classes, width)) * apart
    y = rng.integers(0, classes, rows)
    x = (means[y] + rng.normal(size=(rows, width))) @ mix + rng.normal(size=width)
    table = dense(x.astype(np.float32), y)
    return Task(table.slice(0, rows * 4 // 5), table.slice(rows * 4 // 5), "softmax" if classes > 2 else "logistic")


MADE = {"made, 400 columns": (2, 400, 0.08), "made, 100 classes": (100, 50, 0.45)}
TASKS = REAL | {name: lambda _, how=how: made(*how) for name, how in MADE.items()}


def peers_of(task: Task, classes: int, entries: int) -> list[str]:
    """Return the peers that finish a task in time."""
    left_out = {"liblinear"} if task.model == "linear" or entries > SLOW else set()
    if classes > 2 or entries > SLOW:
        left_out.add("river")
    return [name for name in GRIDS if name not in left_out]


def scaled(task: Task) -> tuple[Any, Any, int]:
    """Return features for training and validation, scaled if dense, and the number of entries of both."""
    parts = [task.arrays(rows) for rows in (task.train, task.test)]
    if not isinstance(parts[0], np.ndarray):
        return *parts, parts[0].nnz
    spread = parts[0].std(axis=0)
    spread[spread == 0] = 1
    x, x_test = (((part - parts[0].mean(axis=0)) / spread).astype(np.float32) for part in parts)
    return x, x_test, x.size


def lines(x: Any, y: np.ndarray, model: str, classes: int) -> str:
    """Return rows in Vowpal Wabbit's format."""
    targets = y.astype(float) if model == "linear" else y.astype(int) + 1 if classes > 2 else np.where(y > 0, 1, -1)
    if isinstance(x, np.ndarray):
        rows = (" ".join(f"{at}:{value:.6g}" for at, value in enumerate(row) if value) for row in x.tolist())
    else:
        cuts = itertools.pairwise(x.indptr.tolist())
        keys, values = x.indices.tolist(), x.data.tolist()
        rows = (" ".join(f"{keys[at]}:{values[at]:.6g}" for at in range(a, b)) for a, b in cuts)
    return "".join(f"{target} |f {row}\n" for target, row in zip(targets.tolist(), rows, strict=True))


def write(task: Task, place: Path) -> tuple[int, int]:
    """Write a task for ours and for peers in one shuffled order; return its classes and entry counts."""
    order = np.random.default_rng(0).permutation(len(task.train))
    if "features" in task.train.column_names:
        order = order[: MOST // task.train.schema.field("features").type.list_size]
    train = task.train.take(pa.array(order))
    cp.convert(train, f"{place}.arrow", overwrite=True)
    x, x_test, entries = scaled(Task(train, task.test, task.model))
    y = train["label"].to_numpy()
    classes = 0 if task.model == "linear" else len(np.unique(y))
    for part, rows, labels in (("train", x, y), ("test", x_test, task.test["label"].to_numpy())):
        np.save(f"{place}-{part}-y.npy", labels)
        Path(f"{place}-{part}.vw").write_text(lines(rows, labels, task.model, classes))
        if isinstance(rows, np.ndarray):
            np.save(f"{place}-{part}-x.npy", rows)
            continue
        for name in ("data", "indices", "indptr"):
            np.save(f"{place}-{part}-{name}.npy", getattr(rows, name))
        np.save(f"{place}-width.npy", rows.shape[1])
    return classes, entries * max(1, classes // 2)


def inner(task: Task) -> Task:
    """Return four fifths of the training rows, and the others for validation."""
    order = np.random.default_rng(1).permutation(len(task.train))
    cut = len(order) * 4 // 5
    return Task(task.train.take(pa.array(order[:cut])), task.train.take(pa.array(order[cut:])), task.model)


def ours(task: Task, place: Path, epochs: int) -> tuple[list[float], float]:
    """Return the median score after each epoch, with defaults, and the range of the last over seeds."""
    scores = []
    for seed in range(SEEDS):
        model = cp.train(f"{place}.arrow", model=task.model, epochs=epochs, test=task.test, seed=seed)
        scores.append([100 * record.get("test_accuracy", record.get("test_r2")) for record in model.history])
    return [median(list(found)) for found in zip(*scores, strict=True)], float(np.ptp([found[-1] for found in scores]))


class Tried(NamedTuple):
    """Result of a peer with some settings: score in points, its range over seeds, and seconds."""

    score: float
    spread: float
    seconds: float
    how: dict[str, Any]

    @property
    def settings(self) -> str:
        """Return the settings as passed to the peer."""
        return str(self.how or "defaults")


def run(peer: Peer, other: str, settings: dict[str, Any], place: Path, seeds: int = SEEDS) -> Tried:
    """Return a peer's median result over seeds."""
    ways = [settings | {"seed": seed} for seed in range(seeds)] if other in SEEDED else [settings] * min(seeds, REPEATS)
    ran = [peer.ask(peer=other, settings=way, path=str(place)) for way in ways]
    scores = [one["score"] for one in ran]
    return Tried(median(scores), float(np.ptp(scores)), median([one["seconds"] for one in ran]), settings)


def tried(bench: Bench, peer: Peer, other: str, place: Path, entries: int) -> list[Tried]:
    """Return a peer's results on validation rows for each of its settings."""
    found = []
    for settings in GRIDS[other][: 2 if bench.quick or entries > SLOW else None]:
        try:
            found.append(run(peer, other, settings, place, 1 if entries > SLOW else SEEDS))
        except Skip as reason:
            print(f"  skip   {other}: {reason}", flush=True)
    return found


def part(bench: Bench, name: str) -> None:
    """Compare on one data set: choose on validation rows, then score and time what was chosen."""
    task, place = TASKS[name](bench.data), bench.work / name.replace(",", "").replace(" ", "-")
    classes, entries = write(task, place)
    choosing, choice = inner(task), place.with_name(f"{place.name}-choice")
    write(choosing, choice)
    with Peer("learner", path=str(place), regression=task.model == "linear", classes=classes) as peer:
        known = {other: tried(bench, peer, other, choice, entries) for other in peers_of(task, classes, entries)}
        known = {other: found for other, found in known.items() if found}
        if not known:
            raise Skip("no peer is there")
        goal = max(one.score for found in known.values() for one in found) - MARGIN
        scores, _ = ours(choosing, choice, MOST_EPOCHS)
        best = {other: max(found, key=lambda one: (one.score, -one.seconds)) for other, found in known.items()}
        accuracy(bench, peer, name, task, place, best, scores)
        there = {other: [one for one in found if one.score >= goal] for other, found in known.items()}
        fastest = {other: min(found, key=lambda one: one.seconds) for other, found in there.items() if found}
        epochs = next((at for at, score in enumerate(scores, 1) if score >= goal), None)
        if epochs:
            timed(
                bench, peer, f"{name}: seconds to {goal:.2f} in validation", partial(fit, task, place, epochs), fastest
            )
            return
    bench.report(
        f"{name}: epochs to {goal:.2f}", np.inf, "epochs", f"<= {MOST_EPOCHS}", f"{max(scores):.2f} is the best"
    )


def accuracy(
    bench: Bench, peer: Peer, name: str, task: Task, place: Path, best: dict[str, Tried], scores: list[float]
) -> None:
    """Report test scores of each peer's best settings, and of ours with defaults after the best number of epochs."""
    theirs = {other: run(peer, other, one.how, place) for other, one in best.items()}
    for other, one in theirs.items():
        bench.report(f"{name}: {other}", one.score, "points", "", f"± {one.spread / 2:.2f}; {one.settings}")
    epochs = 1 + int(np.argmax(scores))
    mine, spread = ours(task, place, epochs)
    short = max(one.score for one in theirs.values()) - mine[-1]
    note = f"ours {mine[-1]:.2f} ± {spread / 2:.2f}, {epochs} epochs"
    bench.report(f"{name}: best of peers - ours with defaults", short, "points", "<= 0.3", note)


def fit(task: Task, place: Path, epochs: int) -> float:
    """Return the seconds of a training with defaults, from the file to the model."""
    start = CLOCK()
    cp.train(f"{place}.arrow", model=task.model, epochs=epochs)
    return CLOCK() - start


def timed(bench: Bench, peer: Peer, measure: str, mine: Callable[[], float], fastest: dict[str, Tried]) -> None:
    """Time the runs that reached the goal, in turn: ours, and each peer from prepared arrays and from the file."""
    cases: dict[str, Callable[[], float]] = {"ours": mine}
    for other, one in fastest.items():
        if one.seconds > FAR * min(other.seconds for other in fastest.values()):
            continue  # what it took is told above
        ask = partial(peer.seconds, peer=other, settings=one.how)
        ways = {"text": ask} if other == "vw" else {"arrays": ask, "file": partial(ask, whole=True)}
        cases |= {f"{other}, {way}": run for way, run in ways.items()}
    times = interleave(cases, bench.repeats)
    seconds = {case: median(found) for case, found in times.items()}
    for case in list(cases)[1:]:
        how = fastest[case.split(",")[0]].settings
        value, spread = ratio(times, "ours", case)
        note = f"{1e3 * seconds['ours']:.3g} ms here; {1e3 * seconds[case]:.3g} ms there, {how}; {spread}"
        bench.report(f"{measure}: ours / {case}", value, "x", "<= 0.5", note)


def main(bench: Bench) -> None:
    """Run all parts."""
    for name in TASKS:
        bench.part(name, lambda bench, name=name: part(bench, name))


if __name__ == "__main__":
    alone("learner_peers", main)
