"""How well a model does on rows beyond its loss: by class, by rank and by probability, from one pass."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument, BadValue
from corgipile.linear import passes
from corgipile.linear.classes import check_label, check_weight, codes_of
from corgipile.linear.encoded import numeric, readable
from corgipile.linear.ranking import Ranking
from corgipile.linear.sgd import Figures
from corgipile.sizes import OnBad, whole
from corgipile.suggestions import listed
from corgipile.tables import open as open_table
from corgipile.tables.io.remote import is_remote

if TYPE_CHECKING:
    from corgipile.linear.model import Model

__all__ = ["Evaluation", "figures_of", "figures_on", "judge"]

FloatArray = npt.NDArray[np.float64]
MOST_CELLS = 1 << 20  # of a confusion matrix
MOST_BINS = 1000


@dataclass(frozen=True)
class Evaluation:
    """How well a model does on the rows of a table.

    Attributes:
        figures: ``loss``; of classes ``accuracy``, ``log_loss``, ``auc`` and ``calibration_error``, the mean distance
            of ``predicted`` from ``observed``; of numbers ``r2``, ``rmse`` and ``mae``. None is what there is none of:
            the logarithmic loss of scores that are no probabilities, the area where all rows are of one side.
        rows: How many rows there were.
        by_class: ``class``, ``precision``, ``recall``, ``f1`` (NaN of 0 / 0), and ``weight``, what its rows count for,
            each for 1 where nothing else is said; None of numbers.
        confusion: [actual, predicted], what rows count for; None of numbers, and of more than 1,024 classes.
        calibration: Bins of probabilities: ``low`` and ``high``, their ends; ``predicted``, the mean probability;
            ``observed``, the share of rows that are of the class; ``weight`` and ``rows``. Empty ones are left out.
        skipped: How many rows were left out besides, with ``on_bad="skip"``.

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
    """Return how well a model does on a table by class, by rank and by probability, from one pass.

    Args:
        model: The model; that of groups takes each row by the model of its group.
        table: A path, a `Table`, a ``pyarrow.Table`` or a data frame.
        label: The label column; None: that of training.
        weight: A column of what rows count for; None: each for 1, however the model was trained.
        positive: The class that area and calibration are of; None: the second of two, and of more there are neither.
        bins: Of probabilities, for the calibration.
        on_bad: ``"skip"`` leaves out, and counts, rows that it cannot be judged by.

    Raises:
        BadArgument: There is no such class.
        BadValue: The table has no rows, or a row has a label or feature that is no finite number.
    """
    whole(bins, "bins", 1, MOST_BINS)
    if model.loss.numbers:
        if positive is not None:
            raise BadArgument(f"positive names a class, and a {model.kind} model predicts numbers; leave it out")
        return _of_numbers(model, table, label, weight, on_bad)
    watch = _Classes(model, _place_of(model, positive), bins)
    figures, skipped = figures_on(model, table, label, weight, watch, on_bad)
    known = figures.record(model.kind)
    log_loss = figures.loss if model.loss.probability and not model.loss.rest else None
    area = None if watch.ranking is None else watch.ranking.area()
    more: dict[str, float | None] = {"log_loss": log_loss, "auc": area}
    calibration = watch.calibration()
    if calibration is not None:
        off = np.abs(calibration["predicted"].to_numpy() - calibration["observed"].to_numpy())
        more["calibration_error"] = float(np.average(off, weights=calibration["weight"].to_numpy()))
    return Evaluation({**known, **more}, figures.rows, watch.by_class(), watch.confusion, calibration, skipped)


def figures_on(
    model: "Model",
    table: Any,
    label: str | None,
    weight: str | None,
    watch: passes.Watch | None = None,
    on_bad: OnBad = "raise",
) -> tuple[Figures, int]:
    """Return loss and score of a model on a table, and how many rows were left out.

    ``watch`` is told the scores of the others, see `passes.measure`.
    """
    column = model.label_or(label)
    opened = open_table(table)
    opened = numeric(opened, column, weight, once=not is_remote(opened))
    check_label(readable(opened, model.encoding, column), column, repr(opened))
    if weight is not None:
        check_weight(opened, weight, column, repr(opened))
    figures, skipped = model.judged(opened, column, weight, watch, on_bad)
    if skipped and on_bad == "raise":
        raise BadValue(f"{skipped} rows of {opened!r} have scores beyond what {model.coef.dtype} can hold")
    return figures, skipped


def _of_numbers(model: "Model", table: Any, label: str | None, weight: str | None, on_bad: OnBad) -> Evaluation:
    sums = np.zeros(3)

    def watch(scores: npt.NDArray[Any], labels: npt.NDArray[Any], weights: FloatArray) -> None:
        error = model.finish(scores, "predict").astype(np.float64) - labels
        sums[:] += weights @ np.square(error), weights @ np.abs(error), weights.sum()

    figures, skipped = figures_on(model, table, label, weight, watch, on_bad)
    squares, sizes, weighed = sums.tolist()
    also = {"rmse": float(np.sqrt(squares / weighed)), "mae": sizes / weighed}
    return Evaluation({**figures.record(model.kind), **also}, figures.rows, skipped=skipped)


def _place_of(model: "Model", positive: Any) -> int | None:
    """Return the place of the class that is told from the others: the one that is named, else the second of two."""
    known = model.classes.tolist()
    if positive is None:
        return 1 if len(known) == 2 else None
    said = [at for at, one in enumerate(known) if one == positive or str(one) == str(positive)]
    if not said:
        raise BadArgument(f"positive is {positive!r}, which is no class of the model; it has {listed(known)}")
    return said[0]


class _Classes:
    """What is counted of rows whose classes are predicted.

    Args:
        model: The model.
        positive: The place of the class that is told from the others; None: there is none.
        bins: Of its probabilities.
    """

    def __init__(self, model: "Model", positive: int | None, bins: int) -> None:
        count = len(model.classes)
        self._model, self._positive, self._bins = model, positive, bins
        self._codes = codes_of(model.classes)
        self._tallies = np.zeros((3, count))  # of classes: rows that are, are said to be, and are both
        self.confusion = np.zeros((count, count)) if count * count <= MOST_CELLS else None
        self.ranking = None if positive is None else Ranking()
        self._shares = np.zeros((4, bins))  # of bins: rows, weights, sums of probabilities, weights of the class

    def __call__(self, scores: npt.NDArray[Any], labels: npt.NDArray[Any], weights: FloatArray) -> None:
        """Take in rows."""
        count = len(self._codes)
        actual = np.searchsorted(self._codes, labels)
        said = scores.argmax(axis=1) if self._model.loss.per_class else (scores[:, 0] > 0).astype(np.intp)
        both = np.where(actual == said, weights, 0.0)
        of_class = ((actual, weights), (said, weights), (actual, both))
        self._tallies += [np.bincount(place, amount, count) for place, amount in of_class]
        if self.confusion is not None:
            np.add.at(self.confusion, (actual, said), weights)
        if self.ranking is None:
            return
        mine = actual == self._positive
        self.ranking.add(self._favour(scores), mine, weights)
        if self._model.loss.probability:
            shares = self._model.finish(scores, "predict_proba")[:, self._positive]
            at = np.minimum((shares * self._bins).astype(np.intp), self._bins - 1)
            each = (np.ones(len(at)), weights, weights * shares, np.where(mine, weights, 0.0))
            self._shares += [np.bincount(at, amount, self._bins) for amount in each]

    def _favour(self, scores: npt.NDArray[Any]) -> FloatArray:
        """Return how much is in favour of the class: where several have probabilities, the logarithm of its odds."""
        assert self._positive is not None  # noqa: S101 - else nobody asks
        loss, given = self._model.loss, scores.astype(np.float64)
        if not loss.per_class:
            return given[:, 0] if self._positive == 1 else -given[:, 0]
        if not loss.probability:
            return np.ascontiguousarray(given[:, self._positive])
        given = -np.logaddexp(0, -given) if loss.rest else given
        rest = np.delete(given, self._positive, axis=1)
        return np.asarray(given[:, self._positive] - np.logaddexp.reduce(rest, axis=1))

    def by_class(self) -> pa.Table:
        """Return the scores of each class."""
        there, said, both = self._tallies
        return pa.table({"class": self._model.classes, **figures_of(both, said, there), "weight": there})

    def calibration(self) -> pa.Table | None:
        """Return probabilities beside what came of them, by bin; None where there are none."""
        if self.ranking is None or not self._model.loss.probability:
            return None
        some = np.flatnonzero(self._shares[1])
        rows, weights, shares, mine = self._shares[:, some]
        ends = {"low": some / self._bins, "high": (some + 1) / self._bins}
        means = {"predicted": shares / weights, "observed": mine / weights}
        return pa.table({**ends, **means, "weight": weights, "rows": rows.astype(np.int64)})


def figures_of(hits: FloatArray, said: FloatArray, there: FloatArray) -> dict[str, FloatArray]:
    """Return precision, recall and F1 by how often a label was rightly said, was said, and was there; NaN of 0 / 0.

    Example:
        >>> {name: one.tolist() for name, one in figures_of(np.array([1.0]), np.array([2.0]), np.array([1.0])).items()}
        {'precision': [0.5], 'recall': [1.0], 'f1': [0.6666666666666666]}
    """
    parts = {"precision": (hits, said), "recall": (hits, there), "f1": (2 * hits, said + there)}
    return {
        name: np.divide(part, whole, out=np.full(len(part), np.nan), where=whole != 0)
        for name, (part, whole) in parts.items()
    }
