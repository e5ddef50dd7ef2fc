"""Newton's method: correct digits on NIST's linear regressions, and seconds against SGD and scikit-learn."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from common import Bench, Skip, alone, check, interleave, median, ratio
from data import higgs

import corgipile as cp

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from nist import NAMES, digits, nist

ROWS = (4_000_000, 400_000)


def named(x: Any, y: Any) -> pa.Table:
    """Return a table of arrays, a column for each feature."""
    return pa.table({f"x{at}": x[:, at] for at in range(x.shape[1])} | {"label": y})


def digits_part(bench: Bench) -> None:
    """Report the fewest correct digits of any certified coefficient, and those of NumPy's lstsq."""
    for name in NAMES:
        x, y, certified = nist(name)
        model = cp.train(named(x, y), model="linear", solver="newton")
        theirs = np.linalg.lstsq(np.column_stack([np.ones(len(x)), x]), y, rcond=None)[0]
        ours = digits([*model.intercept, *model.coef[0]], certified)
        bench.report(f"{name}: correct digits", ours, "digits", "", f"lstsq {digits(theirs, certified):.1f}")


def timed(work: Callable[[], Any]) -> float:
    """Return the seconds that a call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def peers() -> tuple[Any, Any]:
    """Return scikit-learn's estimators of both losses."""
    try:
        from sklearn.linear_model import LinearRegression, LogisticRegression  # noqa: PLC0415 - optional
    except ImportError:
        raise Skip("scikit-learn is not installed") from None
    return LinearRegression(), LogisticRegression(C=np.inf, tol=1e-6, max_iter=1000)


def seconds_part(bench: Bench) -> None:
    """Compare with an epoch of SGD in file order, and with scikit-learn on arrays in memory."""
    path = higgs(bench.work, bench.pick(*ROWS), 28)
    opened = cp.open(path).read(0, len(cp.open(path)))
    x = opened.column(0).combine_chunks() if isinstance(opened.column(0), pa.ChunkedArray) else opened.column(0)
    x, y = x.flatten().to_numpy().reshape(-1, 28), opened.column("label").to_numpy(zero_copy_only=False)
    linear, logistic = peers()
    how = {"model": "linear", "standardize": False}
    cases = {
        "newton": lambda: timed(lambda: cp.train(path, solver="newton", **how)),
        "epoch": lambda: timed(lambda: cp.train(path, order="no_shuffle", epochs=1, learning_rate=1e-4, **how)),
        "scikit-learn": lambda: timed(lambda: linear.fit(x, y)),
    }
    times = interleave(cases, bench.few)
    for under, target in (("epoch", "<= 3"), ("scikit-learn", "<= 0.5")):
        value, spread = ratio(times, "newton", under)
        note = f"{median(times['newton']):.3g} s, {median(times[under]):.3g} s ({spread})"
        bench.report(f"linear, {len(x):,} x 28: seconds / {under}", value, "x", target, note)
    cases = {
        "newton": lambda: timed(lambda: cp.train(path, solver="newton", tolerance=1e-7)),
        "lbfgs": lambda: timed(lambda: logistic.fit(x, y)),
    }
    times = interleave(cases, 1, warm=False)
    value, spread = ratio(times, "newton", "lbfgs")
    best = cp.train(path, solver="newton").history[-1]["objective"]
    sign = np.where(y > 0, 1.0, -1.0)
    theirs = np.logaddexp(0, -sign * (x @ logistic.coef_[0] + logistic.intercept_[0])).mean()
    check(theirs < best * (1 + 1e-4), f"lbfgs ends at {theirs}, the optimum is {best}")
    note = f"{median(times['newton']):.3g} s, {median(times['lbfgs']):.3g} s, which ends {theirs / best - 1:.1g} above"
    bench.report(f"logistic, {len(x):,} x 28: seconds / lbfgs", value, "x", "<= 0.5", note)


def main(bench: Bench) -> None:
    """Run all parts."""
    bench.part("digits", digits_part)
    bench.part("seconds", seconds_part)


if __name__ == "__main__":
    alone("exact", main)
