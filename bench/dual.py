"""Dual coordinate descent: seconds to LIBLINEAR's objective, and a grid of models from one read of a table."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from common import Bench, Skip, alone, check, interleave, median, ratio
from data import higgs
from learners import TASKS, Task

import corgipile as cp

SETS = ("a9a", "reuters", "ijcnn1", "higgs_sample", "sst2")
KINDS = {"svm": "hinge", "squared_hinge": "squared_hinge", "logistic": None}
TOLERANCES = (1e-1, 1e-3)  # of LIBLINEAR: its own, and a hundredth
GAPS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
ROWS = (1_000_000, 100_000)


def liblinear(kind: str, tolerance: float) -> Any:
    """Return LIBLINEAR's dual solver at C = 1, with the bias among the weights."""
    try:
        from sklearn.linear_model import LogisticRegression  # noqa: PLC0415 - optional
        from sklearn.svm import LinearSVC  # noqa: PLC0415 - optional
    except ImportError:
        raise Skip("scikit-learn is not installed") from None
    how = {"C": 1.0, "dual": True, "tol": tolerance, "max_iter": 100_000}
    return LogisticRegression(solver="liblinear", **how) if kind == "logistic" else LinearSVC(loss=KINDS[kind], **how)


def objective(kind: str, coef: Any, bias: Any, x: Any, y: np.ndarray) -> float:
    """Return the mean loss and penalty of a model."""
    w, b = np.asarray(coef, float).ravel(), float(np.ravel(bias)[0])
    margin = np.where(y == y.max(), 1, -1) * (x @ w + b)
    lack = np.maximum(0, 1 - margin)
    losses = {"logistic": np.logaddexp(0, -margin), "squared_hinge": lack**2}.get(kind, lack)
    return float(losses.mean() + (w @ w + b * b) / len(y) / 2)


def coefficients(model: Any) -> tuple[Any, Any]:
    """Return coefficients and bias of a model, theirs or ours."""
    return (model.coef_, model.intercept_) if hasattr(model, "coef_") else (model.coef, model.intercept)


def timed(work: Callable[[], Any]) -> float:
    """Return the seconds that a call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compared(bench: Bench, task: Task, name: str, kind: str, tolerance: float) -> None:
    """Compare one loss at one tolerance of LIBLINEAR; ours trains to a gap of equal quality."""
    x, y = task.arrays(task.train), task.train["label"].to_numpy()
    path = bench.work / f"{name}.arrow"
    how = {"model": kind, "solver": "dual", "l2": 1 / len(y), "epochs": 500, "standardize": False}

    def theirs() -> Any:
        return liblinear(kind, tolerance).fit(x, y)

    def ours(gap: float) -> Any:
        return cp.train(path, tolerance=gap, **how)

    def value(model: Any) -> float:
        return objective(kind, *coefficients(model), x, y)

    goal = value(theirs())
    gap = next((gap for gap in GAPS if value(ours(gap)) <= goal * (1 + 1e-6)), None)
    check(gap is not None, f"no gap of {GAPS} reaches {goal}")
    cases = {"liblinear": lambda: timed(theirs), "ours": lambda: timed(lambda: ours(gap))}
    times = interleave(cases, bench.few, warm=False)
    found, spread = ratio(times, "ours", "liblinear")
    seconds = f"{median(times['ours']):.3g} s, {median(times['liblinear']):.3g} s ({spread})"
    measure = f"{name}, {kind}: seconds to the objective of LIBLINEAR at {tolerance:g}"
    bench.report(measure, found, "x", "<= 2", f"{seconds}, objective {goal:.6g}, gap {gap:g}")


def liblinear_part(bench: Bench, name: str) -> None:
    """Compare on one data set: their rows are in memory, ours in a file."""
    task: Task = TASKS[name](bench.data)
    cp.convert(task.train, bench.work / f"{name}.arrow", overwrite=True)
    for kind in KINDS:
        for tolerance in TOLERANCES:
            compared(bench, task, name, kind, tolerance)


def search_part(bench: Bench) -> None:
    """Compare sixteen models from one read, each with a validation fold scored in another read, with one model."""
    rows = bench.pick(*ROWS)
    path = higgs(bench.work, rows, 28)
    grid, epochs = {"learning_rate": [0.003, 0.01], "l2": [0.0, 1e-5]}, 3

    def search() -> float:
        start = time.perf_counter()
        found = cp.search(path, grid, folds=4, epochs=epochs, refit=False)
        seconds = time.perf_counter() - start
        check(len(found.results) == 4 and len(found.results[0]["scores"]) == 4, "a model is missing")
        return seconds

    def one() -> float:
        start = time.perf_counter()
        model = cp.train(path, epochs=epochs)
        check(model.history[-1]["rows"] == rows, "rows are missing")
        return time.perf_counter() - start

    times = interleave({"search": search, "one": one}, bench.repeats)
    value, spread = ratio(times, "search", "one")
    note = f"{median(times['search']):.3g} s, {median(times['one']):.3g} s ({spread})"
    bench.report(f"16 models in one read / one, {rows:,} x 28, {epochs} epochs", value, "x", "<= 4", note)


def main(bench: Bench) -> None:
    """Run all parts."""
    bench.part("search", search_part)
    for name in SETS:
        bench.part(name, lambda bench, name=name: liblinear_part(bench, name))


if __name__ == "__main__":
    alone("dual", main)
