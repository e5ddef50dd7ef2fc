"""Cost of other steps and of weights relative to plain SGD, and of several models relative to one: kernel only."""

from collections.abc import Callable
from typing import Any

import numpy as np
from common import Bench, alone, check, interleave, median, rate, ratio
from peer_walk import timed

from corgipile.linear.features import Features
from corgipile.linear.sgd import SGD, Step
from corgipile.linear.sparse import Sparse
from corgipile.linear.stack import learn_all

WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "weight column": {"weights": True},
    "class weights": {"class_weight": np.array([0.5, 3.0])},
    "average": {"average": True},
    "adagrad": {"step": "adagrad"},
    "adam": {"step": "adam"},
    "max_norm": {"max_norm": 1.0},
    "normalized": {"step": "normalized"},
    "auto": {"step": "auto"},
}


def dense(rows: int, width: int) -> tuple[Features, Any, Any]:
    """Make dense rows."""
    x = np.random.default_rng(0).normal(size=(rows, width)).astype(np.float32)
    return Features(("x",), sparse=False, width=width, dtype=x.dtype, lists=True), x, None


def sparse(rows: int, width: int, filled: int) -> tuple[Features, Any, Any]:
    """Make sparse rows with a given number of entries each."""
    rng = np.random.default_rng(0)
    indices = np.sort(rng.integers(0, width // filled, (rows, filled)) + np.arange(filled) * (width // filled)).astype(
        np.int32
    )
    values = rng.normal(size=(rows, filled)).astype(np.float32)
    starts = np.arange(rows, dtype=np.uint64) * filled * 4
    at = Sparse(indices.ctypes.data + starts, values.ctypes.data + starts, np.full(rows, filled))
    return Features(("k", "v"), sparse=True, width=width, dtype=values.dtype, lists=True), at, (indices, values)


def part(bench: Bench, name: str, made: tuple[Features, Any, Any], goal: str) -> None:
    """Measure one form of rows."""
    inputs, rows, kept = made
    count = len(rows.lengths) if isinstance(rows, Sparse) else len(rows)
    rng = np.random.default_rng(1)
    labels, weights = rng.integers(0, 2, count).astype(np.int32), rng.uniform(0.5, 2, count).astype(np.float32)
    visit = rng.permutation(count).astype(np.int32)

    def epoch(how: dict[str, Any]) -> Callable[[], float]:
        how = dict(how)
        weighted = weights if how.pop("weights", False) else None
        sgd = SGD("logistic", inputs, np.array([0, 1]), **how)

        def run() -> float:
            sgd.begin(0.01)
            seconds = timed(lambda: sgd.learn(rows, labels, visit, str, weighted))
            check(sgd.flush().rows == count, "rows were left out")
            return seconds

        return run

    times = interleave({way: epoch(how) for way, how in WAYS.items()}, bench.repeats)
    for way in list(WAYS)[1:]:
        value, spread = ratio(times, "plain", way)
        note = f"{rate(count, median(times[way]))}, plain {rate(count, median(times['plain']))} ({spread})"
        bench.report(f"rows/s of {way} / plain, {name}", value, "x", goal, note)
    del kept


def several(bench: Bench, step: str, l1: float = 0.0) -> None:
    """Measure models that visit dense rows together: with other rates, or labels."""
    inputs, rows, _ = dense(bench.pick(100_000, 10_000), 28)
    rng, count = np.random.default_rng(1), len(rows)
    sets, numbers = rng.integers(0, 2, (64, 16)).astype(bool), rng.integers(0, 64, count).astype(np.int32)
    labels, visit = sets[numbers, 0].astype(np.int32), rng.permutation(count).astype(np.int32)

    def epoch(models: int, *, own_labels: bool = False) -> Callable[[], float]:
        all_of = [SGD("logistic", inputs, np.array([0, 1]), step=step, l1=l1) for _ in range(models)]

        def learn() -> None:
            if models == 1:
                all_of[0].learn(rows, labels, visit, str)
            elif own_labels:
                learn_all(all_of, Step(rows, numbers, visit, str), sets)
            else:
                learn_all(all_of, Step(rows, labels, visit, str))

        def run() -> float:
            for at, one in enumerate(all_of):
                one.begin(0.01 + at / 1000)
            seconds = timed(learn)
            check([one.flush().rows for one in all_of] == [count] * models, "rows were left out")
            return seconds

        return run

    cases = {"one": epoch(1), "16 models": epoch(16), "8 labels": epoch(8, own_labels=True)}
    times = interleave(cases, bench.repeats)
    for case in list(cases)[1:]:
        value, spread = ratio(times, case, "one")
        note = f"{rate(count, median(times[case]))}, one {rate(count, median(times['one']))} ({spread})"
        name = f"{step}{' with l1' if l1 else ''}"
        bench.report(f"{case} at once / one, {name}, 28 dense", value, "x", "<= 4", note)


def main(bench: Bench) -> None:
    """Run all parts."""
    for step in ("constant", "adagrad", "auto"):
        bench.part(f"several, {step}", lambda bench, step=step: several(bench, step))
    for step in ("constant", "auto"):
        bench.part(f"several, {step} with l1", lambda bench, step=step: several(bench, step, 1e-4))
    bench.part("dense", lambda bench: part(bench, "28 dense", dense(bench.pick(400_000, 20_000), 28), ">= 0.6"))
    wide = bench.pick(1 << 18, 1 << 12)
    bench.part(
        "sparse", lambda bench: part(bench, "40 of 2^18", sparse(bench.pick(100_000, 5_000), wide, 40), ">= 0.5")
    )


if __name__ == "__main__":
    alone("steps", main)
