"""Evaluates a model on a table in one pass: metrics by class, AUC and calibration."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument, BadValue
from corgipile.linear import passes
from corgipile.linear.classes import check_label, check_weight, codes_of
from corgipile.linear.encoded import as_numbers, encode_table
from corgipile.linear.features import find_inputs, log_unknown
from corgipile.linear.nulls import NullsAsNaN
from corgipile.linear.ranking import Ranking
from corgipile.linear.sgd import SGD, Figures
from corgipile.loader.materialize import bring
from corgipile.sizes import OnBad, whole
from corgipile.suggestions import listed
from corgipile.tables import open as open_table
from corgipile.tables.io.remote import is_remote

if TYPE_CHECKING:
    from corgipile.linear.model import Model
    from corgipile.linear.problem import Record, Task

__all__ = ["Evaluation", "figures_of", "figures_on", "judge", "measuring"]

FloatArray = npt.NDArray[np.float64]
MAX_CONFUSION_CELLS = 1 << 20
MAX_BINS = 1000


@dataclass(frozen=True)
class Evaluation:
    """Metrics of a model on a table.

    Attributes:
        figures: ``loss``; for classes ``accuracy``, ``log_loss``, ``auc`` and ``calibration_error``, the mean distance
            of ``predicted`` from ``observed``; for numbers ``r2``, ``rmse`` and ``mae``. Undefined metrics are None:
            the logarithmic loss of scores that are not probabilities, the AUC of rows that are all on one side.
        rows: The number of rows.
        by_class: ``class``, ``precision``, ``recall``, ``f1`` (NaN for 0 / 0), and ``weight``, the sum of the class's
            row weights; None in regression.
        confusion: [actual, predicted], sums of row weights; None in regression and above 1,024 classes.
        calibration: Bins of probabilities: ``low`` and ``high``, their ends; ``predicted``, the mean probability;
            ``observed``, the share of rows in the class; ``weight`` and ``rows``. Empty bins are omitted.
        skipped: The number of rows that ``on_bad="skip"`` left out.

    Example:
        >>> import corgipile as cp
        >>> x = np.linspace(-1, 1, 1000)
        >>> rows = pa.table({"x": x, "label": np.random.default_rng(0).random(1000) < 1 / (1 + np.exp(-4 * x))})
        >>> found = cp.train(rows, epochs=20).judge(rows)
        >>> found.figures["auc"] > 0.85, found.figures["calibration_error"] < 0.05, int(found.confusion.sum())
        (True, True, 1000)
    """

    figures: dict[str, float | None]
    rows: int
    by_class: pa.Table | None = None
    confusion: FloatArray | None = None
    calibration: pa.Table | None = None
    skipped: int = 0


def judge(
    model: "Model",
    table: Any,
    label: str | None,
    weight: str | None,
    positive: Any = None,
    bins: int = 10,
    on_bad: OnBad = "raise",
) -> Evaluation:
    """Evaluate a model on a table by class, by rank and by probability, in one pass.

    Args:
        model: The model; models by group predict each row by its group's model.
        table: A path, a `Table`, a ``pyarrow.Table`` or a data frame.
        label: The label column; None: that of training.
        weight: The weight column; None: every row has weight 1, even if training used weights.
        positive: The class of AUC and calibration; None: the second of two; with more classes both are omitted.
        bins: The number of probability bins for the calibration.
        on_bad: ``"skip"`` leaves out, and counts, rows that cannot be evaluated.

    Raises:
        BadArgument: ``positive`` is not a class.
        BadValue: The table has no rows, or a label or feature is not finite.
    """
    whole(bins, "bins", 1, MAX_BINS)
    if model.loss.numbers:
        if positive is not None:
            raise BadArgument(f"positive needs classes, and a {model.kind} model predicts numbers; leave it out")
        return _evaluate_regression(model, table, label, weight, on_bad)
    watch = _Classes(model, _place_of(model, positive), bins)
    figures, skipped = figures_on(model, table, label, weight, watch, on_bad)
    known = figures.record(model.kind)
    log_loss = figures.loss if model.loss.probability and not model.loss.rest else None
    auc = None if watch.ranking is None else watch.ranking.area()
    more: dict[str, float | None] = {"log_loss": log_loss, "auc": auc}
    calibration = watch.calibration()
    if calibration is not None:
        distance = np.abs(calibration["predicted"].to_numpy() - calibration["observed"].to_numpy())
        more["calibration_error"] = float(np.average(distance, weights=calibration["weight"].to_numpy()))
    return Evaluation({**known, **more}, figures.rows, watch.by_class(), watch.confusion, calibration, skipped)


def figures_on(
    model: "Model",
    table: Any,
    label: str | None,
    weight: str | None,
    watch: passes.Watch | None = None,
    on_bad: OnBad = "raise",
) -> tuple[Figures, int]:
    """Return loss and score of a model on a table, and the number of rows left out.

    ``watch`` receives the scores of the other rows, see `passes.measure`.
    """
    column = model.label_or(label)
    opened = open_table(table)
    opened = as_numbers(opened, column, weight, once=not is_remote(opened))
    check_label(encode_table(opened, model.encoding, column), column, repr(opened))
    if weight is not None:
        check_weight(opened, weight, column, repr(opened))
    figures, skipped = model.measure_table(opened, column, weight, watch, on_bad)
    if skipped and on_bad == "raise":
        raise BadValue(f"{skipped} rows of {opened!r} have scores outside the range of {model.coef.dtype}")
    return figures, skipped


def _evaluate_regression(
    model: "Model", table: Any, label: str | None, weight: str | None, on_bad: OnBad
) -> Evaluation:
    sums = np.zeros(3)

    def watch(scores: npt.NDArray[Any], labels: npt.NDArray[Any], weights: FloatArray) -> None:
        error = model.finish(scores, "predict").astype(np.float64) - labels
        sums[:] += weights @ np.square(error), weights @ np.abs(error), weights.sum()

    figures, skipped = figures_on(model, table, label, weight, watch, on_bad)
    squares, sizes, weighed = sums.tolist()
    extra = {"rmse": float(np.sqrt(squares / weighed)), "mae": sizes / weighed}
    return Evaluation({**figures.record(model.kind), **extra}, figures.rows, skipped=skipped)


def _place_of(model: "Model", positive: Any) -> int | None:
    """Return the place of the positive class: the named one, or the second of two."""
    known = model.classes.tolist()
    if positive is None:
        return 1 if len(known) == 2 else None
    predicted = [at for at, value in enumerate(known) if value == positive or str(value) == str(positive)]
    if not predicted:
        raise BadArgument(f"positive must be a class of the model, {listed(known)}, got {positive!r}")
    return predicted[0]


class _Classes:
    """Sums over predicted rows that the metrics of classes need; without a positive class no AUC and no calibration."""

    def __init__(self, model: "Model", positive: int | None, bins: int) -> None:
        count = len(model.classes)
        self._model, self._positive, self._bins = model, positive, bins
        self._codes = codes_of(model.classes)
        self._class_sums = np.zeros((3, count))  # by class: weights of actual, predicted and correct rows
        self.confusion = np.zeros((count, count)) if count * count <= MAX_CONFUSION_CELLS else None
        self.ranking = None if positive is None else Ranking()
        self._bin_sums = np.zeros((4, bins))  # by bin: rows, weights, probability sums, positive weights

    def __call__(self, scores: npt.NDArray[Any], labels: npt.NDArray[Any], weights: FloatArray) -> None:
        """Add rows."""
        count = len(self._codes)
        actual = np.searchsorted(self._codes, labels)
        predicted = scores.argmax(axis=1) if self._model.loss.per_class else (scores[:, 0] > 0).astype(np.intp)
        both = np.where(actual == predicted, weights, 0.0)
        of_class = ((actual, weights), (predicted, weights), (actual, both))
        self._class_sums += [np.bincount(place, amount, count) for place, amount in of_class]
        if self.confusion is not None:
            np.add.at(self.confusion, (actual, predicted), weights)
        if self.ranking is None:
            return
        is_positive = actual == self._positive
        self.ranking.add(self._log_odds(scores), is_positive, weights)
        if self._model.loss.probability:
            shares = self._model.finish(scores, "predict_proba")[:, self._positive]
            at = np.minimum((shares * self._bins).astype(np.intp), self._bins - 1)
            amounts = (np.ones(len(at)), weights, weights * shares, np.where(is_positive, weights, 0.0))
            self._bin_sums += [np.bincount(at, amount, self._bins) for amount in amounts]

    def _log_odds(self, scores: npt.NDArray[Any]) -> FloatArray:
        """Return the positive class's score; between classes with probabilities, its log-odds."""
        assert self._positive is not None  # noqa: S101 - for the type checker
        loss, margins = self._model.loss, scores.astype(np.float64)
        if not loss.per_class:
            return margins[:, 0] if self._positive == 1 else -margins[:, 0]
        if not loss.probability:
            return np.ascontiguousarray(margins[:, self._positive])
        margins = -np.logaddexp(0, -margins) if loss.rest else margins
        rest = np.delete(margins, self._positive, axis=1)
        return np.asarray(margins[:, self._positive] - np.logaddexp.reduce(rest, axis=1))

    def by_class(self) -> pa.Table:
        """Return the metrics of each class."""
        actual, predicted, both = self._class_sums
        return pa.table({"class": self._model.classes, **figures_of(both, predicted, actual), "weight": actual})

    def calibration(self) -> pa.Table | None:
        """Return predicted and observed probabilities by bin; None without probabilities."""
        if self.ranking is None or not self._model.loss.probability:
            return None
        filled = np.flatnonzero(self._bin_sums[1])
        rows, weights, shares, is_positive = self._bin_sums[:, filled]
        ends = {"low": filled / self._bins, "high": (filled + 1) / self._bins}
        means = {"predicted": shares / weights, "observed": is_positive / weights}
        return pa.table({**ends, **means, "weight": weights, "rows": rows.astype(np.int64)})


@contextmanager
def measuring(test: Any, task: "Task") -> Iterator["Callable[[Model], Record] | None"]:
    """Yield a function that evaluates a model on the test table; None without one."""
    if test is None:
        yield None
        return
    table = open_table(test)
    inputs, whose = task.inputs, f"the test table {table!r}"
    weights = [] if task.weight is None else [task.weight]
    bring(table, [*task.columns, task.label, *weights], None)  # the table is read after each epoch
    table = encode_table(as_numbers(table, task.label, task.weight, once=True), task.encoding, task.label, once=True)
    check_label(table, task.label, whose)
    log_unknown(table.schema, task.facts(), task.label)
    test_inputs = find_inputs(table, inputs.columns, task.label, inputs.width, whose=whose)
    if test_inputs.width != inputs.width:
        raise BadArgument(f"the test table must have {inputs.width} features, got {test_inputs.width}")
    if not len(table):
        raise BadValue(f"{whose} has no rows to evaluate the model on")
    if not test_inputs.sparse:
        test_inputs = replace(test_inputs, dtype=np.promote_types(test_inputs.dtype, inputs.dtype))
    if task.weight is not None:
        check_weight(table, task.weight, task.label, whose)
    read = NullsAsNaN(table, test_inputs, task.label, task.weight, skip=task.on_bad == "skip")

    def measure(model: "Model") -> "Record":
        sgd = SGD(task.kind, test_inputs, task.classes, on_bad=task.on_bad)
        sgd.assign(model.coef, model.intercept)
        record = passes.measure(sgd, feeder, task.label, task.weight).record(task.kind)
        skipped = {"skipped": sgd.skipped} if sgd.skipped else {}
        return {f"test_{name}": value for name, value in (record | skipped).items()}

    with passes.reader(test_inputs, read, task.label, task.weight) as feeder:
        yield measure


def figures_of(hits: FloatArray, predicted: FloatArray, actual: FloatArray) -> dict[str, FloatArray]:
    """Return precision, recall and F1 from the weights of correct, predicted and actual rows; NaN for 0 / 0.

    Example:
        >>> {name: v.tolist() for name, v in figures_of(np.array([1.0]), np.array([2.0]), np.array([1.0])).items()}
        {'precision': [0.5], 'recall': [1.0], 'f1': [0.6666666666666666]}
    """
    parts = {"precision": (hits, predicted), "recall": (hits, actual), "f1": (2 * hits, predicted + actual)}
    return {
        name: np.divide(part, whole, out=np.full(len(part), np.nan), where=whole != 0)
        for name, (part, whole) in parts.items()
    }
